//! What `tarn init` writes about this stage.

use tarn_frame::survey::{Profile, Proposal, Survey};

const ALL: &str = "\
[pace]
for = \"all\"              # connections that begin from now on
";

const SOME: &str = "\
[pace]
for = [\"198.51.100.0/24\", \"2001:db8::/32\"]      # connections to these clients
cgroups = [\"system.slice/backup.service\"]       # and those of this service
";

/// For uploads of people; a server's clients are for its administrator to name.
pub fn propose(survey: &Survey) -> Proposal {
    match survey.profile {
        Profile::Desktop => Proposal::of(
            "An upload from this host backs off as soon as its link becomes slower, so that calls and games are not \
             delayed. Open connections stay as they are. The uplinks get the queueing discipline fq.",
            ALL,
        ),
        Profile::Server => Proposal::example(
            "Where clients are on mobile networks, connections to them back off as soon as these become slower. Only you \
             know which clients are.",
            SOME,
        ),
        Profile::Router => Proposal::example(
            "It affects only what this host sends itself, not what it forwards.",
            ALL,
        ),
    }
}
