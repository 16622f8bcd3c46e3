//! What a user would lose if the congestion control did not work in a kernel.

mod chosen;
mod kinds;
mod life;
mod many;
mod queues;
mod software;
mod steps;
mod told;
mod verified;

fn available() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}
