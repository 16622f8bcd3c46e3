//! tarn on the receiver, as its users run it.

use serde_json::Value;

use super::orders::expect_any_order;
use super::packet::payload;
use super::rig::{FAMILIES, Rig, module_of};
use crate::module::{Datagrams, Module};
use tarn_frame::testing::wait_until;
use tarn_kernel::modules;
use tarn_lab::testing::Program;

const CONFIGURATION: &str = r#"
[reassembly]
memory = "1MiB"
timeout = "5s"
share = "1/4"
datagrams = "host"
"#;

fn status(program: &Program<'_>) -> Value {
    let (code, text) = program.command_line("tarn reassembly status --json");
    assert_eq!(code, 0, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// A rig whose module is tarn's.
fn rig_and_program(rig: &Rig) -> Program<'_> {
    rig.module(Module::stop).unwrap();
    super::rig::unload();
    Program::new(rig.receiver(), CONFIGURATION)
}

/// From `tarn up` to `tarn down`: what is configured holds, what is counted is shown, and the stack has everything back.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_program_up_and_down() {
    let rig = Rig::new();
    let directory = {
        let program = rig_and_program(&rig);
        program.run("up");
        std::thread::sleep(super::rig::GRACE);
        let settings = module_of(rig.receiver()).state().unwrap().unwrap().settings;
        assert_eq!(
            (settings.memory, settings.share, settings.datagrams),
            (1 << 20, 4, Datagrams::Host)
        );
        for family in FAMILIES {
            let content = payload(4000, 1);
            rig.send_all(&rig.ip(family).fragments(&family.udp(&content), 800));
            rig.expect_by_stack(family, &content);
            rig.send(&rig.ip(family).fragment(0, true, &[0; 800]));
        }
        rig.settle();
        let shown = status(&program);
        assert_eq!(shown["datagrams"], 2, "{shown}");
        let families = shown["families"].as_array().unwrap();
        assert!(
            families
                .iter()
                .all(|row| row["completed"] == 1 && row["fragments"] == 7),
            "{shown}"
        );
        let (code, top) = program.command_line("tarn reassembly top --json");
        assert!(
            code == 0 && top.contains("10.0.0.1") && top.contains("fd00::/64"),
            "{top}"
        );
        let (code, text) = program.command_line("tarn reassembly set memory=2MiB share=1/16");
        assert_eq!(code, 0, "{text}");
        assert_eq!(status(&program)["ceiling"], 2 << 20);
        // The kernel part works without the agent.
        program.kill_agent();
        for family in FAMILIES {
            let content = payload(4000, 2);
            rig.send_all(&rig.ip(family).fragments(&family.udp(&content), 800));
            rig.expect_by_stack(family, &content);
        }
        program.run("down");
        assert!(!modules::is_loaded("tarn_reassembly"));
        program.state().path().to_owned()
    };
    wait_until("nothing is left of tarn", || !directory.exists());
    for family in FAMILIES {
        let content = payload(4000, 3);
        rig.send_all(&rig.ip(family).fragments(&family.udp(&content), 800));
        rig.expect_by_stack(family, &content);
    }
    rig.begin_anew();
    for family in FAMILIES {
        expect_any_order(&rig, family, "afterwards");
    }
}

/// A mistake in the file must not leave the host half configured.
#[test]
#[ignore = "needs the lab"]
fn lab_reassembly_program_refuses_what_is_out_of_bounds() {
    let rig = Rig::new();
    let program = rig_and_program(&rig);
    for (wrong, words) in [
        ("memory = \"1KiB\"", "memory"),
        ("timeout = \"1h\"", "timeout"),
        ("share = \"1/1\"", "share"),
        ("datagrams = \"some\"", "datagrams"),
    ] {
        program.configure(&format!("[reassembly]\n{wrong}\n"));
        let complaint = program.complaint("up");
        assert!(complaint.contains(words), "{complaint}");
        assert!(
            !program.state().exists() && !modules::is_loaded("tarn_reassembly"),
            "{wrong}"
        );
    }
}
