//! The command line: the command tree is built from the stages, and every verb is carried out from here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::call::in_words;
use crate::{check, events, init, manual};
use tarn_base::error::Usage;
use tarn_base::output::Output;
use tarn_frame::configuration::DEFAULT_PATH;
use tarn_frame::survey::Profile;
use tarn_frame::{Stage, Stages, Tool};
use tarn_watch::Frame;

pub mod status;
#[cfg(test)]
mod tests;
pub mod up;

const AFTER_HELP: &str = "\
Examples:
  tarn init                  write a configuration for this host
  tarn check                 what this host can do
  tarn up --dry-run          what `tarn up` would change, as commands
  tarn up                    bring up what /etc/tarn/tarn.toml configures
  tarn status                what runs, with figures
  tarn events                what has been decided, and why
  tarn down                  put the host back as it was

tarn acts on the network namespace it is run in: `ip netns exec NAME tarn up` for another.

With --json, an error is the last line of standard error, as {\"ok\":false,\"error\":TEXT,\"code\":EXIT CODE}.

Exit codes: 0 done; 1 failed, the host is as before, or `tarn status` found trouble; 2 wrong usage or configuration; 3 this host cannot do it.";

const UP_HELP: &str = "\
Everything that can be refused (a wrong configuration, a host that lacks something) is refused before anything \
changes. `tarn up` returns when every configured stage is up; an agent stays in the background.

What is up in the kernel does not need the agent: it survives `kill -9`, and the next `tarn up` adopts it without \
losing a packet. Run again with another configuration, `tarn up` changes what is different.

Examples:
  tarn up
  tarn up -c tarn.toml --dry-run
  tarn up --foreground       for systemd: the agent itself, with sd_notify
  TARN_LOG=debug tarn up     with what libbpf and the verifier print";

const DOWN_HELP: &str = "\
Works with and without an agent, and after a crash at any point. A value that someone else has changed since is left \
alone, with one line that says so. When nothing is up it says so, and that is no failure.";

const CHECK_HELP: &str = "\
Exit code 0 when every stage asked about can run here, 3 when one cannot; so a script asks `tarn check redirect` or \
`tarn check -c tarn.toml`. Nothing on the host changes.

Examples:
  tarn check
  tarn check redirect --json
  tarn check -c tarn.toml    whether this configuration can work here";

const INIT_HELP: &str = "\
Looks at the devices, the default routes and the ports that programs listen on, and writes for each stage what it would \
do here and why. What this host cannot run, or only you can decide, is commented out. Nothing else is changed. A file \
that already configures tarn is replaced only with --force.

Examples:
  tarn init                        write /etc/tarn/tarn.toml
  tarn init --profile router -o -  print the configuration for a router";

const STATUS_HELP: &str = "\
The figures are read from the kernel: they are true without the agent too. Exit code 0 when all works as configured, \
and also when nothing is up (the key `up` of --json tells); 1 when the agent is missing or does not answer, or a stage \
is half up, or left alone because somebody else has changed it. The first lines say so, as does `troubles` of --json.";

const EVENTS_HELP: &str = "\
The events are the agent's log since the stages came up, at most about 2 MB of it. They go with `tarn down`. Under systemd, \
the journal has them too, with the stage as a field: `journalctl -u tarn TARN_STAGE=paths`.

Examples:
  tarn events paths
  tarn events --follow --json | while read -r event; do ...";

const METRICS_HELP: &str = "\
Example, for the textfile collector of node_exporter, which must not read half a file:
  cd /var/lib/prometheus/node-exporter &&
  tarn metrics >tarn.new &&
  mv tarn.new tarn.prom";

/// The whole command tree.
pub fn command(stages: &[&dyn Stage], tools: &[&dyn Tool]) -> Command {
    verbs(stages, tools).subcommand(manual::pages_command())
}

/// The command tree that people see.
pub fn verbs(stages: &[&dyn Stage], tools: &[&dyn Tool]) -> Command {
    let mut command = Command::new("tarn")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Keeps the network latency of a Linux host still, on stock kernels")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(AFTER_HELP)
        .subcommand(init_command())
        .subcommand(check_command())
        .subcommand(up_command())
        .subcommand(
            Command::new("down")
                .about("Put the host back as it was")
                .after_help(DOWN_HELP),
        )
        .subcommand(reading("status", "What runs, with figures").after_help(STATUS_HELP))
        .subcommand(events_command())
        .subcommand(reading("metrics", "The figures, as Prometheus reads them").after_help(METRICS_HELP));
    for stage in stages {
        // Global, so that it can stand behind each of the stage's verbs.
        let stage = stage.command().name(stage.name()).about(sentence(stage.about()));
        command = command.subcommand(stage.arg(json_argument().global(true)));
    }
    command
        .subcommands(tools.iter().map(|tool| tool.command()))
        .subcommand(manual::completions_command())
}

/// What a stage does, with a capital letter as the other verbs' texts.
fn sentence(about: &str) -> String {
    let mut letters = about.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

fn json_argument() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print one JSON document")
}

fn reading(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).arg(json_argument())
}

fn configuration_argument() -> Arg {
    Arg::new("configuration")
        .short('c')
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
}

fn init_command() -> Command {
    let profile = Arg::new("profile")
        .long("profile")
        .value_name("PROFILE")
        .value_parser(value_parser!(Profile))
        .help("What this host is mainly for; detected by default");
    let file = Arg::new("output")
        .short('o')
        .visible_short_alias('c')
        .long("output")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .default_value(DEFAULT_PATH)
        .help("Where to write; - for standard output");
    let force = Arg::new("force")
        .long("force")
        .action(ArgAction::SetTrue)
        .help("Replace a configuration that is there");
    Command::new("init")
        .about("Write a commented configuration for this host")
        .args([profile, file, force])
        .after_help(INIT_HELP)
}

fn init_options(matches: &ArgMatches) -> init::Options {
    init::Options {
        profile: matches.get_one::<Profile>("profile").copied(),
        path: matches.get_one::<PathBuf>("output").cloned().unwrap_or_default(),
        replaces: matches.get_flag("force"),
    }
}

fn events_command() -> Command {
    let follow = Arg::new("follow")
        .short('f')
        .long("follow")
        .action(ArgAction::SetTrue)
        .help("Go on with those that come, until Ctrl-C");
    let stage = Arg::new("stage")
        .value_name("STAGE")
        .help("Only those of this stage, or of `agent`");
    let last = Arg::new("last")
        .short('n')
        .long("last")
        .value_name("NUMBER")
        .value_parser(value_parser!(u32))
        .default_value("100")
        .help("The last so many");
    let json = "Print one JSON document; with --follow, one a line";
    reading("events", "What has been decided and found, and why")
        .args([stage, follow, last])
        .mut_arg("json", |argument| argument.help(json))
        .after_help(EVENTS_HELP)
}

fn events_options(matches: &ArgMatches) -> events::Options {
    let last = matches.get_one::<u32>("last").copied().unwrap_or_default();
    events::Options {
        stage: matches.get_one::<String>("stage").cloned(),
        last: usize::try_from(last).unwrap_or(usize::MAX),
        follows: matches.get_flag("follow"),
    }
}

fn check_command() -> Command {
    let names = Arg::new("stages")
        .value_name("STAGE")
        .num_args(0..)
        .help("Only these stages");
    let configuration = configuration_argument()
        .conflicts_with("stages")
        .help("Only what this configuration needs");
    reading("check", "What this host supports, stage by stage, and why not")
        .arg(names)
        .arg(configuration)
        .after_help(CHECK_HELP)
}

fn up_command() -> Command {
    let configuration = configuration_argument()
        .default_value(DEFAULT_PATH)
        .help("The configuration");
    let dry_run = Arg::new("dry-run").long("dry-run").action(ArgAction::SetTrue);
    let foreground = Arg::new("foreground")
        .long("foreground")
        .action(ArgAction::SetTrue)
        .conflicts_with("dry-run");
    reading("up", "Bring the configured stages up")
        .arg(configuration)
        .arg(dry_run.help("Print every change it would make, as commands, and make none"))
        .arg(foreground.help("Stay in the foreground instead of starting an agent"))
        .mut_arg("json", |json| {
            json.requires("dry-run").help("With --dry-run: print one JSON document")
        })
        .after_help(UP_HELP)
}

/// Carries out a command line (the program's name first). Returns 0, or the exit code that clap chose for help, a version or what
/// is wrong, which it has printed.
///
/// # Errors
/// What failed, and with `--json` also what is wrong; [`tarn_base::error::exit_code`] tells the exit code.
pub fn run(stages: Stages, tools: &[&dyn Tool], arguments: &[OsString], output: &mut Output) -> Result<u8> {
    let matches = match command(stages, tools).try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() && errors_are_json(tools, arguments) => return Err(in_words(&error).into()),
        Err(error) => {
            // There is nobody to tell when printing fails.
            let _ = error.print();
            return Ok(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let Some((verb, matches)) = matches.subcommand() else {
        return Err(Usage("a verb is missing: `tarn --help` lists them".to_string()).into());
    };
    // A tool's own `--json` may be something else.
    if let Some(tool) = tools.iter().find(|tool| tool.command().get_name() == verb) {
        tool.execute(matches, output)?;
    } else if let Some(done) = manual::execute(verbs(stages, tools), verb, matches, output) {
        done?;
    } else {
        dispatch(stages, verb, matches, output)?;
    }
    output.finish()?;
    Ok(0)
}

fn dispatch(stages: Stages, verb: &str, matches: &ArgMatches, output: &mut Output) -> Result<()> {
    output.json = wants_json(matches);
    if let Some(stage) = stages.iter().find(|stage| stage.name() == verb) {
        return stage.execute(matches, output);
    }
    if verb == "check" {
        let names: Vec<String> = matches.get_many("stages").into_iter().flatten().cloned().collect();
        return check::check(stages, &names, path(matches), output);
    }
    let frame = Frame::of_this_namespace(stages)?;
    match verb {
        "init" => init::init(&frame, &init_options(matches), output),
        "up" => up::up(&frame, &up_options(matches), output),
        "down" => up::down(&frame, output),
        "status" => status::status(&frame, output),
        "events" => events::events(&frame, &events_options(matches), output),
        "metrics" => status::metrics(&frame, output),
        other => Err(Usage(format!("there is no verb {other}: `tarn --help` lists them")).into()),
    }
}

fn path(matches: &ArgMatches) -> Option<&Path> {
    matches.get_one::<PathBuf>("configuration").map(PathBuf::as_path)
}

fn up_options(matches: &ArgMatches) -> up::Options {
    up::Options {
        path: path(matches).unwrap_or(Path::new(DEFAULT_PATH)).to_path_buf(),
        dry_run: matches.get_flag("dry-run"),
        foreground: matches.get_flag("foreground"),
    }
}

/// Whether errors are to be JSON: `--json` was given, which clap need not have understood. That of a tool may be something else.
pub fn errors_are_json(tools: &[&dyn Tool], arguments: &[OsString]) -> bool {
    let verb = arguments.get(1).and_then(|verb| verb.to_str());
    let is_tool = tools.iter().any(|tool| Some(tool.command().get_name()) == verb);
    let mut options = arguments.iter().take_while(|argument| *argument != "--");
    !is_tool && options.any(|argument| argument == "--json")
}

/// Whether `--json` was given, behind whichever verb.
fn wants_json(matches: &ArgMatches) -> bool {
    let given = |matches: &ArgMatches| {
        matches
            .try_get_one::<bool>("json")
            .ok()
            .flatten()
            .copied()
            .unwrap_or(false)
    };
    given(matches) || matches.subcommand().is_some_and(|(_, below)| wants_json(below))
}
