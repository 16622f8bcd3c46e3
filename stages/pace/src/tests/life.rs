//! It comes up, is changed, outlives its agent, and goes.

use super::available;
use crate::registration::{Identity, NAME, Registration};
use crate::skeleton::types::pace_parameters;
use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_pace_is_registered_found_again_and_taken_out() {
    let mut known: Option<Identity> = None;
    let registered = Registration::new(&pace_parameters::default(), |identity| {
        assert!(!available().contains(&NAME.to_owned()), "it is told before");
        known = Some(identity.clone());
        Ok(())
    });
    assert!(available().contains(&NAME.to_owned()));
    drop(registered.unwrap());
    assert!(available().contains(&NAME.to_owned()), "it outlives who registered it");
    let again = Registration::open(&known.unwrap()).unwrap().unwrap();
    assert!(again.stands().unwrap());
    assert!(again.remove().unwrap());
    assert!(!available().contains(&NAME.to_owned()));
    assert!(!again.remove().unwrap());
}

fn default_of(host: &Namespace) -> String {
    let text = host.run("cat", &["/proc/sys/net/ipv4/tcp_congestion_control"]).unwrap();
    text.trim().to_owned()
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_pace_is_the_default_while_it_is_up_and_only_then() {
    let host = Namespace::new("host").unwrap();
    let before = (default_of(&host), available());
    let program = Program::new(&host, "[pace]\nfor = \"all\"\n");
    program.run("up");
    assert_eq!(default_of(&host), NAME);
    program.kill_agent();
    assert_eq!(default_of(&host), NAME, "the kernel keeps it");
    program.run("up");
    program.configure("[pace]\nfor = [\"192.0.2.0/24\"]\n");
    program.run("up");
    assert_eq!(default_of(&host), before.0);
    program.run("down");
    assert_eq!((default_of(&host), available()), before);
}

#[test]
#[ignore = "needs the lab"]
fn lab_pace_goes_by_what_is_set_while_it_is_up() {
    let host = Namespace::new("host").unwrap();
    let program = Program::new(&host, "[pace]\nwindow_gain = 130\n");
    program.run("up");
    let shown = || -> serde_json::Value {
        let (code, text) = program.command_line("tarn pace status --json");
        assert_eq!(code, 0, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let value = |key: &str| {
        let shown = shown();
        let rows = shown["parameters"].as_array().unwrap();
        rows.iter().find(|row| row["parameter"] == key).unwrap()["value"].clone()
    };
    assert_eq!(value("window_gain"), 130);
    let (code, text) = program.command_line("tarn pace set window_gain=150 response=off");
    assert_eq!(
        (code, text.as_str()),
        (
            0,
            "response is now off, for connections that begin from now on\nwindow_gain is now 150\n"
        )
    );
    assert_eq!(
        (value("window_gain"), &shown()["response"]),
        (150.into(), &"off".into())
    );
    assert_eq!(program.command_line("tarn pace set window_gain=1").0, 2);
    assert_eq!(value("window_gain"), 150);
    program.run("up");
    assert_eq!(
        (value("window_gain"), &shown()["response"]),
        (130.into(), &"tarn".into()),
        "the file's again"
    );
    program.run("down");
}

/// An administrator who takes another default while tarn is up keeps it.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_leaves_a_default_alone_that_somebody_else_has_set() {
    let host = Namespace::new("host").unwrap();
    let program = Program::new(&host, "[pace]\nfor = \"all\"\n");
    program.run("up");
    host.sysctl("net/ipv4/tcp_congestion_control", "reno").unwrap();
    program.run("up");
    assert_eq!(default_of(&host), "reno");
    program.run("down");
    assert_eq!(default_of(&host), "reno");
}

/// The name is the whole kernel's.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_is_refused_where_another_namespace_has_it() {
    let [first, second] = ["first", "second"].map(|name| Namespace::new(name).unwrap());
    let (one, other) = (Program::new(&first, "[pace]\n"), Program::new(&second, "[pace]\n"));
    one.run("up");
    let complaint = other.complaint("up");
    assert!(complaint.contains("another network namespace"), "{complaint}");
    one.run("down");
    other.run("up");
    other.run("down");
}

/// Who deletes a namespace with tarn in it could never use the name again on that host.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_takes_over_from_a_namespace_that_is_gone() {
    let (first, second) = (
        super::chosen::host(&["192.0.2.1/32"]),
        Namespace::new("second").unwrap(),
    );
    let other = Program::new(&second, "[pace]\nfor = \"all\"\n");
    let one = Program::new(&first, "[pace]\nfor = [\"192.0.2.0/24\"]\n");
    one.run("up");
    one.kill_agent();
    let complaint = other.complaint("up");
    assert!(
        complaint.contains("another network namespace"),
        "it lives on without its agent: {complaint}"
    );
    drop(one);
    drop(first);
    assert!(available().contains(&NAME.to_owned()));
    other.run("up");
    assert_eq!(default_of(&second), NAME);
    assert_eq!(super::chosen::programs(&tarn_kernel::cgroup::root().unwrap()), 0);
    other.run("down");
    assert!(!available().contains(&NAME.to_owned()));
}
