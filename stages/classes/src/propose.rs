//! What `tarn init` writes about this stage.

use tarn_frame::survey::{Port, Proposal, Survey};

/// The ports of TCP that web servers have.
const WEB: [u16; 6] = [80, 443, 3000, 8000, 8080, 8443];
const DNS: [u16; 1] = [53];

/// A service of these ports, as `tarn.toml` has it.
fn service(name: &str, ports: &[Port], protocol: &str) -> String {
    let ports: Vec<String> = ports.iter().map(|port| format!("\"{port}\"")).collect();
    format!(
        "[[classes.service]]\nname = \"{name}\"\nports = [{}]\nprotocol = \"{protocol}\"\n\n",
        ports.join(", ")
    )
}

/// An example with the services that are here: nobody can see who was promised what.
pub fn propose(survey: &Survey) -> Proposal {
    let (web, dns) = (survey.listening(true, &WEB), survey.listening(false, &DNS));
    let mut services = String::new();
    if !web.is_empty() || dns.is_empty() {
        let usual = [80, 443].map(|number| Port { is_tcp: true, number });
        let ports = if web.is_empty() { &usual[..] } else { &web[..] };
        services += &service("web", ports, "http");
    }
    if !dns.is_empty() {
        services += &service("names", &dns, "dns");
    }
    let section = format!(
        "[classes]\ndeadline = \"40ms\"        # from a request's arrival to its answer\n\n{services}\
         [[classes.class]]\nname = \"gold\"\ntarget = 90              # percent of answers within the deadline\n\
         networks = [\"203.0.113.0/24\"]\n\n[[classes.class]]\nname = \"guest\"           # everybody else\ntarget = 50\n"
    );
    Proposal::example(
        "Only you know which clients need an answer in time when this host is overloaded.",
        section,
    )
}
