//! The agent in a network namespace of its own, on a stock kernel, with the state directory where users have it.

use super::*;
use crate::cli::{status, up};
use crate::testing::{REAL_NAMESPACE, STAGES};
use tarn_base::output::testing::output;
use tarn_frame::agent;
use tarn_kernel::netns::testing::in_new_namespace;
use tarn_kernel::sysctl;

const NAMES: [&str; 2] = ["net.ipv4.ip_forward", "net.ipv4.ip_local_port_range"];

const CONFIGURATION: &str = r#"
[first]
set = [{ path = "/proc/sys/net/ipv4/ip_forward", value = 1 }]
[second]
set = [{ path = "/proc/sys/net/ipv4/ip_local_port_range", value = 1, note = "2000 3000" }]
"#;

fn values() -> Vec<String> {
    NAMES
        .iter()
        .map(|name| sysctl::read(&sysctl::path(name)).unwrap())
        .collect()
}

#[test]
#[ignore = "needs the lab"]
fn lab_a_namespace_is_brought_up_and_put_back_and_others_are_not_touched() {
    let outside = values();
    let host = Host::new();
    host.configure(CONFIGURATION);
    std::fs::write(host.path().join(REAL_NAMESPACE), "").unwrap();
    in_new_namespace(|| {
        let before = values();
        let frame = host.frame();
        assert_eq!(frame.state.path().parent(), Some(std::path::Path::new("/run/tarn")));
        let (mut printed, written) = output(None);
        host.up().unwrap();
        assert_eq!(values(), ["1", "2000 3000"]);
        assert_eq!(
            outside,
            in_namespace_of_init(values),
            "the namespace beside it is as it was"
        );
        let agent = agent::information(&frame.state).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(agent.pid as i32), Signal::SIGKILL).unwrap();
        wait_until("the agent is gone", || !agent::is_running(&frame.state));
        assert_eq!(values(), ["1", "2000 3000"], "what is up outlives the agent");
        assert!(status::status(&frame, &mut printed).is_err());
        assert!(
            written.text().contains("the agent is not running"),
            "{}",
            written.text()
        );
        host.up().unwrap();
        assert_eq!(frame.stages.len(), STAGES.len());
        up::down(&frame, &mut printed).unwrap();
        assert_eq!(values(), before);
        assert!(!frame.state.exists());
    });
    assert_eq!(values(), outside);
}

/// Runs `work` in the namespace that this process was started in.
fn in_namespace_of_init<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let file = std::fs::File::open(format!("/proc/{}/ns/net", std::process::id())).unwrap();
    std::thread::scope(|scope| {
        let there = scope.spawn(move || {
            nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            work()
        });
        there.join().unwrap()
    })
}
