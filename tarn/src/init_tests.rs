//! What `tarn init` proposes is what the stages accept.

use std::path::Path;

use tarn_frame::configuration;
use tarn_frame::survey::testing::host;
use tarn_frame::survey::{Profile, Survey};

use super::STAGES;

/// A file that somebody is given as a start has no mistake in it, and an example that is commented out none either.
#[test]
fn every_proposal_is_a_valid_configuration() {
    let services: [&[(bool, u16)]; 3] = [&[], &[(true, 8080), (false, 53)], &[(false, 5060)]];
    let uplinks: [&[(&str, &str)]; 3] = [
        &[],
        &[("eth0", ""), ("wwan0", "wwan")],
        &[
            ("enp65s0f0np0", ""),
            ("enp65s0f1np1", ""),
            ("a\"b\\c", ""),
            ("he-ipv6", "sit"),
        ],
    ];
    for profile in [Profile::Desktop, Profile::Router, Profile::Server] {
        for ports in services {
            for uplinks in uplinks {
                let mut survey = host(profile, uplinks, ports);
                survey
                    .uplinks
                    .iter_mut()
                    .for_each(|uplink| uplink.metrics[1] = Some(1024));
                for stage in STAGES {
                    let proposal = stage.propose(&survey);
                    let configured = configuration::parse(&proposal.section, Path::new(stage.name()), STAGES);
                    let names: Vec<&str> = configured.unwrap().stages.iter().map(|stage| stage.name).collect();
                    assert_eq!(names, [stage.name()], "{profile}: {}", proposal.section);
                    assert!(
                        proposal.section.lines().all(|line| line.chars().count() <= 78),
                        "{}",
                        proposal.section
                    );
                    assert!(proposal.reason.ends_with('.'), "{}", proposal.reason);
                }
            }
        }
    }
}

/// What a stage is for is in force where it has something to do, and only there.
#[test]
fn a_stage_is_proposed_where_it_has_something_to_do() {
    let is_proposed = |name: &str, survey: &Survey| {
        let stage = STAGES.iter().find(|stage| stage.name() == name).unwrap();
        stage.propose(survey).is_proposed
    };
    let one = [("eth0", "")];
    let desktop = host(Profile::Desktop, &one, &[(false, 53)]);
    assert!(is_proposed("pace", &desktop) && !is_proposed("paths", &desktop) && !is_proposed("reassembly", &desktop));
    assert!(is_proposed(
        "reassembly",
        &host(Profile::Server, &one, &[(false, 5060)])
    ));
    assert!(!is_proposed("pace", &host(Profile::Router, &one, &[])));
}

/// What a host can run depends on its kernel, and on what it lacks.
#[cfg(feature = "lab")]
mod lab_kernel {
    use tarn_lab::testing::Program;

    use super::super::host_tests::network;

    /// What `tarn init` writes passes `tarn check`, comes up without trouble, and goes again.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_cards_what_init_writes_comes_up() {
        let rig = network();
        let program = Program::new(rig.host().unwrap(), "");
        for profile in ["desktop", "router", "server"] {
            let file = program.configuration().with_file_name(format!("{profile}.toml"));
            let verb = |verb: &str| program.command_line(&format!("tarn {verb} {}", file.display()));
            let (code, wrote) = verb(&format!("init --profile {profile} -o"));
            assert_eq!(code, 0, "{profile}: {wrote}");
            if wrote.contains("choose a stage") {
                continue; // this kernel has no need of any
            }
            for (code, text) in [verb("check -c"), verb("up -c"), program.command_line("status")] {
                assert_eq!(code, 0, "{profile}: {text}\n{wrote}");
            }
            program.run("down");
        }
    }
}
