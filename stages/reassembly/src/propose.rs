//! What `tarn init` writes about this stage.

use tarn_frame::survey::{Proposal, Survey, TUNNELS};

const SECTION: &str = "\
[reassembly]
memory = \"16MiB\"         # limit for fragments
";

/// SIP over UDP: its requests are often larger than a packet.
const SIP: u16 = 5060;
const DNS: u16 = 53;
/// It keeps its packets small enough.
const WIREGUARD: &str = "wireguard";

/// For whoever receives fragments as a rule.
pub fn propose(survey: &Survey) -> Proposal {
    if !survey.listening(false, &[SIP]).is_empty() {
        return Proposal::of(
            format!(
                "Datagrams to udp/{SIP} may arrive in fragments. They are reassembled at the same cost in any order, also \
                 while somebody floods this host with fragments."
            ),
            SECTION,
        );
    }
    let is_tunnel = |kind: &str| TUNNELS.contains(&kind) && kind != WIREGUARD;
    let tunnel = survey.links.iter().find(|link| is_tunnel(&link.kind));
    let reason = match (tunnel, survey.listening(false, &[DNS]).is_empty()) {
        (Some(tunnel), _) => format!(
            "{} is a tunnel, whose packets arrive in fragments if its MTU is too large. `nstat -az IpReasmReqds` shows \
             whether there are any.",
            tunnel.name
        ),
        (None, false) => "A name server that asks others may get answers in fragments. `nstat -az IpReasmReqds` shows \
             whether there are any."
            .to_owned(),
        (None, true) => "Nothing was found here that receives fragmented datagrams. SIP servers, name servers and the \
             ends of tunnels do."
            .to_owned(),
    };
    Proposal::example(reason, SECTION)
}
