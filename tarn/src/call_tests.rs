//! Calls as programs make them, against the stages' own command trees; nothing is carried out.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::STAGES;
use anyhow::Result;
use clap::ArgMatches;
use serde_json::Value;
use tarn_base::error::exit_code;
use tarn_classes::network::Network;
use tarn_program::call::{Call, key, verbs};

fn understood(call: &Value) -> Result<ArgMatches> {
    let call: Call = serde_json::from_value(call.clone())?;
    Ok(call.understand(STAGES)?.1)
}

fn classes(verb: &str, arguments: Value) -> Result<ArgMatches> {
    let matches = understood(&json!({"stage": "classes", "verb": verb, "arguments": arguments}))?;
    Ok(matches.subcommand_matches(verb).unwrap().clone())
}

/// The words of a refusal, which is one of wrong usage.
fn refused(verb: &str, arguments: Value) -> String {
    let error = classes(verb, arguments).unwrap_err();
    assert_eq!(exit_code(&error), 2, "{error:#}");
    tarn_base::error::paragraph(&error)
}

/// What a login handler sends comes to what a person writes.
#[test]
fn arguments_are_given_by_name_as_texts_or_numbers() {
    let add = classes("add", json!({"class": "gold", "for": "30m", "address": "192.0.2.7"})).unwrap();
    assert_eq!(add.get_one::<Network>("ADDRESS").unwrap().to_string(), "192.0.2.7");
    assert_eq!(add.get_one::<String>("CLASS").unwrap(), "gold");
    assert_eq!(add.get_one::<std::time::Duration>("for").unwrap().as_secs(), 1800);
    let target = classes("set-target", json!({"class": 0, "percent": 99.9})).unwrap();
    assert_eq!(target.get_one::<u32>("PERCENT"), Some(&9990));
    assert!(classes("reset", json!({"clients": true})).unwrap().get_flag("clients"));
    assert!(!classes("reset", json!({"clients": null})).unwrap().get_flag("clients"));
    assert!(understood(&json!({"stage": "classes", "verb": "status"})).is_ok());
}

#[test]
fn an_argument_that_may_be_left_out_is_not_taken_for_another() {
    let deadline = |arguments| classes("set-deadline", arguments).unwrap();
    assert_eq!(deadline(json!({"time": "4ms"})).get_one::<String>("CLASS"), None);
    let one = deadline(json!({"time": "4ms", "class": "gold"}));
    assert_eq!(one.get_one::<String>("CLASS").unwrap(), "gold");
    assert_eq!(
        refused("set-deadline", json!({"class": "gold"})),
        "argument `time`: it is missing"
    );
    assert_eq!(
        refused("set-target", json!({"percent": 95})),
        "argument `class`: it is missing"
    );
}

/// A name that a user chose must not become an option, or a program would do what it was not told to.
#[test]
fn no_value_is_taken_for_an_option() {
    let told = refused("add", json!({"address": "192.0.2.7", "class": "--for=1s"}));
    assert!(told.contains("begins with -"), "{told}");
    let told = refused("add", json!({"address": "192.0.2.7", "class": "gold", "for": "--help"}));
    assert!(told.contains("'--help' is no time"), "{told}");
    let told = refused("reset", json!({"clients": "yes"}));
    assert!(told.contains("neither true nor false"), "{told}");
}

/// The same words as on the command line, without its hints.
#[test]
fn what_is_wrong_is_told_in_the_command_line_s_words() {
    for (verb, arguments, told) in [
        (
            "set-target",
            json!({"class": "gold", "percent": 101}),
            "invalid value '101' for '<PERCENT>': write the percent of answers to be in time: 0.01 to 100",
        ),
        (
            "set-hold",
            json!({}),
            "the following required arguments were not provided: <TIME>",
        ),
        (
            "set-hold",
            json!({"time": "1ms", "rounds": 2}),
            "the argument '--rounds <N>' cannot be used with '[TIME]'",
        ),
        (
            "add",
            json!({"address": ["192.0.2.7"], "class": "gold"}),
            "argument `address`: [\"192.0.2.7\"] is neither a text nor a number",
        ),
        (
            "start",
            json!({"now": true}),
            "there is no argument `now`: `start` has none",
        ),
        (
            "delete",
            json!({"adress": 1}),
            "there is no argument `adress`: known are address",
        ),
    ] {
        assert_eq!(refused(verb, arguments), told, "{verb}");
    }
}

#[test]
fn what_there_is_none_of_is_told_with_what_there_is() {
    for (call, told) in [
        (
            json!({"stage": "clases", "verb": "add"}),
            "no stage `clases`: known are poll, redirect, reassembly, classes",
        ),
        (
            json!({"stage": "classes", "verb": "dance"}),
            "no verb `dance`: known are start, stop,",
        ),
        (json!({"stage": "classes", "verb": "help"}), "no verb `help`"),
        // It keeps a CPU busy for minutes.
        (
            json!({"stage": "redirect", "verb": "bench"}),
            "known are add, del, list",
        ),
        (json!({"stage": "classes"}), "missing field `verb`"),
        (
            json!({"stage": "classes", "verb": "reset", "args": {}}),
            "unknown field `args`",
        ),
    ] {
        let error = format!("{:#}", understood(&call).unwrap_err());
        assert!(error.contains(told), "{error}");
    }
}

/// The agent works in another directory than its client, and would wait for ever for what never ends.
#[test]
fn files_are_named_whole_and_are_files() {
    for (file, told) in [
        ("-", "no path from the root"),
        ("customers.csv", "no path from the root"),
        ("/dev/zero", "is no file"),
        ("/nowhere/customers.csv", "cannot read"),
    ] {
        let error = refused("import", json!({ "file": file }));
        assert!(error.contains(told), "{error}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let import = classes("import", json!({"file": path, "dry_run": true})).unwrap();
    assert!(import.get_flag("dry-run") && !import.get_flag("skip-wrong"));
}

/// Every stage's verbs are there, not those of one.
#[test]
fn another_stage_s_verbs_take_lists() {
    let call = json!({"stage": "redirect", "verb": "del", "arguments": {"id": [3, 4]}});
    let matches = understood(&call).unwrap();
    let ids: Vec<u32> = matches
        .subcommand_matches("del")
        .unwrap()
        .get_many("ID")
        .unwrap()
        .copied()
        .collect();
    assert_eq!(ids, [3, 4]);
    let call = json!({"stage": "redirect", "verb": "add", "arguments":
        {"protocol": "udp", "from": "192.0.2.1:53", "to": "10.0.0.1", "note": "-- a note"}});
    let matches = understood(&call).unwrap();
    let add = matches.subcommand_matches("add").unwrap();
    assert_eq!(add.get_one::<String>("note").unwrap(), "-- a note");
}

/// Whoever writes a program reads the document.
#[test]
fn every_verb_and_argument_is_in_the_documentation() {
    let text = include_str!("../../docs/control-socket.md");
    for stage in STAGES {
        let section = text.split(&format!("### `{}`", stage.name())).nth(1).unwrap();
        let section = section.split("\n##").next().unwrap();
        for verb in verbs(*stage, &stage.command()) {
            let row = section
                .lines()
                .find(|line| line.starts_with(&format!("| `{}` |", verb.get_name())));
            let row = row.unwrap_or_else(|| panic!("{} {} is missing", stage.name(), verb.get_name()));
            for argument in verb.get_arguments().map(key) {
                assert!(row.contains(&format!("`{argument}`")), "{argument}: {row}");
            }
        }
    }
}

/// Acts as agents of which the first two end: with the request unread, and with an error that asks to repeat it.
fn replaced_agents(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    drop(listener.accept().unwrap());
    let retry = tarn_base::error::json(&tarn_base::error::Ending.into());
    let added = json!({"ok": true, "result": {"class": "gold"}});
    let status = json!({"ok": true, "result": {"classes": [{"service": "web", "class": "gold", "share": 97.5}]}});
    for answers in [vec![retry], vec![added, status]] {
        let (stream, _) = listener.accept().unwrap();
        let mut requests = BufReader::new(&stream).lines();
        for answer in answers {
            let request = requests.next().unwrap().unwrap();
            assert!(request.contains("\"stage\": \"classes\""), "{request}");
            (&stream).write_all(format!("{answer}\n").as_bytes()).unwrap();
        }
    }
}

/// Whoever takes the example has a login handler that outlives `tarn up`.
#[test]
fn the_documented_program_connects_again_when_the_agent_is_replaced() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIP: there is no python3");
        return;
    }
    let text = include_str!("../../docs/control-socket.md");
    let program = text.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let program = program.replace("/run/tarn/netns-1/control.sock", path.to_str().unwrap());
    // It begins while there is no agent.
    let child = Command::new("python3")
        .args(["-c", &program])
        .stdout(Stdio::piped())
        .spawn();
    std::thread::sleep(Duration::from_millis(300));
    let agents = std::thread::spawn(move || replaced_agents(&path));
    let ended = child.unwrap().wait_with_output().unwrap();
    assert!(ended.status.success());
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), "web gold 97.5\n");
    agents.join().unwrap();
}
