//! What `tarn init` writes about this stage.

use tarn_frame::survey::{Profile, Proposal, Survey};

use crate::probe;

const SECTION: &str = "\
[poll]
devices = \"auto\"         # all Ethernet cards, including those added later
";

/// For desktops: it costs power, and helps only programs that have to run on time.
const TIMELY: &str = "\
[poll]
profile = \"timely\"       # short polls, and CPUs that never sleep deeply
";

/// What would be done on this host.
pub fn propose(survey: &Survey) -> Proposal {
    if let Some(reason) = probe::nothing_to_do(false) {
        return Proposal::example(format!("tarn does nothing here on this kernel: {reason}."), SECTION);
    }
    match survey.profile {
        Profile::Desktop => Proposal::example(
            "Desktops are rarely flooded. Programs that have to run on time beside a download can be helped; that costs \
             power, and needs the kernel module tarn_poll.",
            TIMELY,
        ),
        Profile::Router | Profile::Server => Proposal::of(
            "Packets from strangers can flood this host and leave programs no CPU time. tarn attaches an XDP program to \
             each card, which costs some drivers their receive offloads. A card whose driver runs no XDP gets receive \
             threads at once; the others get them when a flood begins.",
            SECTION,
        ),
    }
}
