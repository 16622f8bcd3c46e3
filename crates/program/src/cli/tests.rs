//! The command line as scripts and people use it.

use super::*;
use crate::testing::{Host, STAGES, frame_at};
use tarn_base::error::{Unsupported, exit_code};
use tarn_base::output::testing::output;
use tarn_watch::Frame;

/// The words of a command line.
fn words(line: &str) -> Vec<OsString> {
    let words = std::iter::once("tarn").chain(line.split_whitespace());
    words.map(OsString::from).collect()
}

/// Carries out a command line: its exit code and what it printed.
fn tarn(line: &str) -> (u8, String) {
    let (mut output, written) = output(None);
    let code = run(STAGES, &[], &words(line), &mut output).unwrap_or_else(|error| exit_code(&error));
    (code, written.text())
}

#[test]
fn the_command_tree_is_sound_and_has_every_stage_and_verb() {
    let command = command(STAGES, &[]);
    command.clone().debug_assert();
    for verb in ["init", "check", "up", "down", "status", "metrics", "first", "second"] {
        let found = command
            .find_subcommand(verb)
            .unwrap_or_else(|| panic!("{verb} is missing"));
        assert!(!found.is_hide_set() && found.get_about().is_some(), "{verb}");
    }
}

#[test]
fn help_fits_a_terminal_of_a_hundred_columns() {
    let mut root = command(STAGES, &[]).term_width(100);
    root.build();
    let names: Vec<String> = root.get_subcommands().map(|verb| verb.get_name().to_string()).collect();
    let mut texts = vec![root.render_long_help().to_string()];
    texts.extend(
        names
            .iter()
            .filter_map(|name| Some(root.find_subcommand_mut(name)?.render_long_help().to_string())),
    );
    for line in texts.iter().flat_map(|text| text.lines()) {
        assert!(line.chars().count() <= 110, "{line}");
    }
}

#[test]
fn scripts_can_tell_wrong_usage_from_everything_else() {
    assert_eq!(tarn("--version").0, 0);
    assert_eq!(tarn("--help").0, 0);
    assert_eq!(tarn("up --help").0, 0);
    for wrong in [
        "",
        "dance",
        "up --fast",
        "up --json",
        "up --dry-run --foreground",
        "check nowhere",
    ] {
        assert_eq!(tarn(wrong).0, 2, "{wrong}");
    }
}

#[test]
fn json_is_understood_behind_every_verb_of_a_stage() {
    assert_eq!(tarn("first list"), (0, "first json=false\n".to_string()));
    for line in ["first list --json", "first --json list", "first list x --json"] {
        assert_eq!(tarn(line), (0, "first json=true\n".to_string()), "{line}");
    }
}

/// A tool with a `--json` of its own.
struct Bench;

impl Tool for Bench {
    fn command(&self) -> Command {
        Command::new("bench").arg(Arg::new("json").long("json").required(true))
    }

    fn execute(&self, _matches: &ArgMatches, _output: &mut Output) -> Result<()> {
        Ok(())
    }
}

/// A program that reads `--json` reads why there is no answer in the same way, and need not read clap's usage.
#[test]
fn with_json_errors_are_json_of_wrong_usage_too() {
    for (line, code, told) in [
        ("first count x --json", 2, "invalid value 'x' for '<to>'"),
        ("first --json", 2, "requires a subcommand"),
        ("first dance --json", 2, "unrecognized subcommand 'dance'"),
        ("up --json", 2, "--dry-run"),
        ("down --json", 2, "unexpected argument '--json' found"),
        ("--json", 2, "unexpected argument '--json' found"),
        ("check nowhere --json", 2, "nowhere"),
        ("up --dry-run --json -c /nowhere/tarn.toml", 2, "/nowhere/tarn.toml"),
        ("first count 13 --json", 3, "this host is superstitious"),
    ] {
        let (words, (mut output, _)) = (words(line), output(None));
        let error = run(STAGES, &[], &words, &mut output).unwrap_err();
        assert!(errors_are_json(&[], &words), "{line}");
        let json = tarn_base::error::json(&error);
        assert_eq!((&json["ok"], &json["code"]), (&false.into(), &code.into()), "{line}");
        let shown = json["error"].as_str().unwrap();
        assert!(shown.contains(told) && !shown.contains("Usage:"), "{line}: {shown}");
    }
}

#[test]
fn without_json_and_for_tools_errors_are_for_people() {
    let tools: &[&dyn Tool] = &[&Bench];
    for line in [
        "first count x",
        "first list -- --json",
        "bench --json",
        "bench --json file",
        "",
    ] {
        assert!(!errors_are_json(tools, &words(line)), "{line}");
    }
    let (mut output, _) = output(None);
    assert_eq!(run(STAGES, tools, &words("bench --json"), &mut output).unwrap(), 2);
}

#[test]
fn check_says_which_stage_cannot_run_and_why() {
    // Nobody asked for the second one in particular.
    let (code, text) = tarn("check");
    assert_eq!(code, 0);
    assert!(
        text.contains("first: can run here") && text.contains("second: cannot run here"),
        "{text}"
    );
    assert!(text.contains("gone: bring it back"), "{text}");
    assert_eq!(tarn("check first").0, 0);
    let (code, text) = tarn("check second --json");
    assert_eq!(code, 3);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["able"], false);
    assert_eq!(document["stages"][0]["name"], "second");
    assert_eq!(document["stages"][0]["abilities"][1]["required"], true);
    assert!(document["host"].as_array().is_some_and(|host| host.len() >= 5));
}

#[test]
fn check_of_a_configuration_asks_only_for_what_it_needs() {
    let host = Host::new();
    host.configure("[second]\n");
    let line = format!("check -c {}", host.path().join("tarn.toml").display());
    assert_eq!(tarn(&line).0, 0, "this configuration does without wings");
    host.configure("[second]\nmissing = \"grow some\"\n");
    let (code, text) = tarn(&line);
    assert!(code == 3 && text.contains("grow some"), "{text}");
    host.configure("[third]\n");
    assert_eq!(tarn(&line).0, 2);
}

#[test]
fn a_dry_run_prints_every_change_and_makes_none() {
    let host = Host::new();
    host.configure("[first]\nset = [{ path = \"@/a\", value = 1 }]\n");
    let path = host.path().join("tarn.toml");
    let (mut printed, written) = output(None);
    let options = up::Options {
        path: path.clone(),
        dry_run: true,
        foreground: false,
    };
    up::up(&frame_at(&path), &options, &mut printed).unwrap();
    assert_eq!(
        written.text(),
        format!("# first\necho 1 >{}\n", host.path().join("a").display())
    );
    host.assert_untouched();
    let (mut printed, written) = output(None);
    printed.json = true;
    up::up(&frame_at(&path), &options, &mut printed).unwrap();
    let document: serde_json::Value = serde_json::from_str(&written.text()).unwrap();
    assert_eq!(document["stages"][0]["name"], "first");
    host.assert_untouched();
}

#[test]
fn a_dry_run_tells_what_would_be_put_back_too() {
    let host = Host::new();
    host.configure("[first]\nset = [{ path = \"@/a\", value = 1 }]\n");
    host.up().unwrap();
    host.configure("[second]\n");
    let path = host.path().join("tarn.toml");
    let (mut printed, written) = output(None);
    up::up(
        &frame_at(&path),
        &up::Options {
            path,
            dry_run: true,
            foreground: false,
        },
        &mut printed,
    )
    .unwrap();
    let told = format!(
        "# second\n# nothing to change\n# first\n# put back: sysctl {}\n",
        host.path().join("a").display()
    );
    assert_eq!(written.text(), told);
    host.down().unwrap();
}

#[test]
fn without_the_rights_of_root_nothing_is_begun() {
    let host = Host::new();
    host.configure("[first]\nset = [{ path = \"@/a\", value = 1 }]\n");
    let refuse = |verb: &str| Err(Unsupported(format!("run `sudo tarn {verb}`")));
    let frame = Frame {
        rights: refuse,
        ..host.frame()
    };
    let options = up::Options {
        path: host.path().join("tarn.toml"),
        dry_run: false,
        foreground: false,
    };
    let (mut output, _) = output(None);
    let error = up::up(&frame, &options, &mut output).unwrap_err();
    assert_eq!(
        (exit_code(&error), error.to_string().as_str()),
        (3, "run `sudo tarn up`")
    );
    host.assert_untouched();
    up::down(&frame, &mut output).unwrap();
    status::status(&frame, &mut output).unwrap();
    host.up().unwrap();
    assert_eq!(exit_code(&up::down(&frame, &mut output).unwrap_err()), 3);
    assert_eq!(exit_code(&status::status(&frame, &mut output).unwrap_err()), 3);
    host.down().unwrap();
}

#[test]
fn the_metrics_of_a_host_without_tarn_are_well_formed() {
    let host = Host::new();
    let (mut output, written) = output(None);
    status::metrics(&host.frame(), &mut output).unwrap();
    assert!(written.text().contains("tarn_agent_up 0\n"));
    assert!(written.text().contains("tarn_stage_up{stage=\"second\"} 0\n"));
}

/// A monitor that checks the exit code would never learn that tarn no longer does anything.
#[test]
fn status_exits_with_1_when_not_all_works_as_configured() {
    let host = Host::new();
    let told = |host: &Host| {
        let (code, document) = host.status_json();
        let troubles = document["troubles"].as_array().unwrap();
        let texts: Vec<String> = troubles.iter().map(|text| text.as_str().unwrap().to_owned()).collect();
        assert_eq!(code, u8::from(!texts.is_empty()));
        let shown = host.status();
        let first: Vec<&str> = shown.lines().take(texts.len()).collect();
        let expected: Vec<String> = texts.iter().map(|text| format!("trouble: {text}")).collect();
        assert_eq!(first, expected);
        texts.join("; ")
    };
    assert_eq!(told(&host), "", "nothing is up");
    host.configure("[first]\nset = [{ path = \"@/a\", value = 1 }]\n");
    host.up().unwrap();
    assert_eq!(told(&host), "");
    host.signal_agent(nix::sys::signal::Signal::SIGKILL);
    assert!(told(&host).starts_with("the agent is not running"));
    // A `tarn up` holds the lock while it replaces the agent: a monitor that asks just then need not wake anybody.
    for (verb, is_excused) in [("up", true), ("down", false)] {
        let lock = host.frame().state.try_lock(verb).unwrap();
        assert!(lock.is_some());
        assert_eq!(told(&host).is_empty(), is_excused, "{verb}");
    }
    // Somebody has put a value of their own in the place of tarn's.
    host.up().unwrap();
    host.set("a", "7");
    let trouble = told(&host);
    assert!(trouble.starts_with("first: left alone"), "{trouble}");
    host.down().unwrap();
    assert_eq!(told(&host), "");
}
