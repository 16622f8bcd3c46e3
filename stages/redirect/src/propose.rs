//! What `tarn init` writes about this stage.

use tarn_frame::survey::{Profile, Proposal, Survey, quoted};

/// An example: no port is redirected that nobody asked for.
pub fn propose(survey: &Survey) -> Proposal {
    let devices: Vec<String> = survey.uplinks.iter().map(|uplink| quoted(&uplink.device)).collect();
    let only = match survey.profile {
        Profile::Router if !devices.is_empty() => {
            format!(
                "# Devices that face the Internet:\ndevices = [{}]\n",
                devices.join(", ")
            )
        }
        _ => String::new(),
    };
    let section = format!(
        "[redirect]\n{only}\n[[redirect.rule]]\nprotocol = \"udp\"\nfrom = \"0.0.0.0:8080\"     # any address of this host\n\
         to = \"10.0.1.2:8083\"\n"
    );
    Proposal::example(
        "Only you know which ports to redirect, and where. Redirected packets bypass the firewall of this host, unless \
         mode = \"nftables\".",
        section,
    )
}
