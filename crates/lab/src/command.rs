//! The verbs of `tarn lab`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use self::arguments::{
    cpus_argument, debug_kernel_flag, default_suites, flag, fresh_flag, jobs, jobs_argument, memory, mirror,
    mirror_argument, part_argument, seed, seed_argument, suite_argument, suites, suites_argument, times_flag, values,
    wants_debug_kernel,
};
use super::builder::{self, Builder};
use super::cards::Cards;
use super::experiment::{Experiment, Outcome, Size};
use super::image::{Image, MEMORY};
use super::progress::Progress;
use super::protocol::Job;
use super::suite::{DEFAULT, SUITES, Suite};
use super::vm::{self, Spec};
use super::{debug, debug_kernel};
use super::{harness, host, parallel, results, run, software};
use crate::{Proofs, experiments};
use crate::{report, tables};
use tarn_base::error::Usage;
use tarn_base::output::{Align, Output, Table};
use tarn_frame::Tool;

mod arguments;

const AFTER_HELP: &str = "\
The lab boots stock Debian kernels in QEMU, under a clock that counts instructions: the same seed gives the same \
figures on any machine, however busy it is. It needs qemu-system-x86 and mmdebstrap, no root and no KVM, and changes \
nothing on the host. Images and results are kept in ~/.cache/tarn, which can be deleted at any time.

Examples:
  tarn lab run                            every one, on trixie's kernel
  tarn lab run redirect --suite bookworm  one, on another kernel
  tarn lab run redirect --seed 7 --json a.json
  tarn lab report                         the newest results, as HTML
  tarn lab shell                          look around in a guest";

pub(super) fn command(proofs: Proofs) -> Command {
    Command::new("lab")
        .about("Measure and test on stock kernels, exactly repeatably")
        .after_help(AFTER_HELP)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(list_command())
        .subcommand(image_command())
        .subcommand(run_command(proofs))
        .subcommand(test_command())
        .subcommand(report_command())
        .subcommand(tables_command())
        .subcommand(shell_command())
        .subcommands(bench_command(proofs))
}

pub(super) fn execute(proofs: Proofs, matches: &ArgMatches, output: &mut Output) -> Result<()> {
    match matches.subcommand() {
        Some(("list", matches)) => list(proofs, matches, output),
        Some(("image", matches)) => image(matches, output),
        Some(("run", matches)) => run_experiments(proofs, matches, output),
        Some(("test", matches)) => test(proofs, matches, output),
        Some(("report", matches)) => write_report(proofs, matches, output),
        Some(("tables", matches)) => update_tables(matches, output),
        Some(("bench", matches)) => bench(proofs, matches, output),
        Some(("shell", matches)) => shell(matches, output),
        _ => Err(Usage("a verb is missing: `tarn lab --help` lists them".into()).into()),
    }
}

fn list_command() -> Command {
    Command::new("list")
        .about("The experiments and the suites")
        .arg(flag("json", "Print one JSON document"))
}

fn image_command() -> Command {
    Command::new("image")
        .about("Make a suite's kernel and root file system (`run` and `test` do so when needed)")
        .arg(suites_argument())
        .arg(mirror_argument())
        .arg(flag(
            "again",
            "Make it even if it is there, for the suite's newest kernel",
        ))
        .arg(flag(
            "builder",
            "Also make what builds modules for its kernel, and try it",
        ))
        .arg(flag(
            "software",
            "Also fetch the real software that only some scenes have",
        ))
        .arg(debug_kernel_flag())
}

fn run_command(proofs: Proofs) -> Command {
    let names = PossibleValuesParser::new(experiments(proofs).map(|experiment| experiment.name));
    let file = |name| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
    };
    let headline = flag("headline", "Only the cases that each experiment is told by");
    Command::new("run")
        .about("Run experiments and print what they measure")
        .arg(
            Arg::new("experiments")
                .value_name("EXPERIMENT")
                .num_args(0..)
                .value_parser(names)
                .help("All when none is named"),
        )
        .arg(suites_argument())
        .arg(seed_argument())
        .arg(flag("full", "The full size; the quick one shows the same in less time"))
        .arg(headline.conflicts_with("full"))
        .arg(part_argument())
        .arg(file("json").help("Write the result; an array when there are several"))
        .arg(file("tables").help("Write the tables there instead of printing them"))
        .arg(fresh_flag())
        .arg(times_flag())
        .arg(jobs_argument())
        .arg(flag("keep-log", "Keep the kernels' logs"))
        .arg(mirror_argument())
        .after_help("Exit code 1 when a check does not hold.")
}

fn test_command() -> Command {
    let harness = Arg::new("harness")
        .long("harness")
        .value_name("FILE")
        .required(true)
        .action(ArgAction::Append)
        .value_parser(value_parser!(PathBuf));
    Command::new("test")
        .about("Run kernel-facing tests on the suites' kernels")
        .arg(harness.help("What `cargo test --no-run` built; can be repeated"))
        .arg(suites_argument().help("All when none is named; with --debug-kernel, trixie"))
        .arg(flag(
            "all",
            "Every test on every suite, also where its name does not say that it depends on the kernel, or that it is long",
        ))
        .arg(seed_argument())
        .arg(debug_kernel_flag())
        .arg(fresh_flag())
        .arg(times_flag())
        .arg(cpus_argument())
        .arg(jobs_argument())
        .arg(mirror_argument())
        .arg(
            Arg::new("filter")
                .value_name("FILTER")
                .num_args(0..)
                .help("Only tests whose name contains one of these [default with --debug-kernel: those of modules]"),
        )
        .after_help(
            "Where no suite is named, tests run on trixie; those with `lab_kernel` at the beginning of their name, or of \
             a module's that they are in, on every suite, and those with `lab_oldest` on bookworm, too; a harness that has none \
             of these runs on every suite. Those with `lab_long` there run only with --all, on a suite or a debug kernel that \
             is named, or when a FILTER matches. The last line is `N passed, N failed, N skipped`. Exit code 1 when a test \
             fails.",
        )
}

fn report_command() -> Command {
    let results = Arg::new("results")
        .value_name("RESULT.json")
        .num_args(0..)
        .value_parser(value_parser!(PathBuf));
    let file = Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FILE")
        .default_value("report.html");
    Command::new("report")
        .about("Write results as one HTML file that needs nothing else")
        .arg(results.help("What `tarn lab run --json` wrote; the newest results when none is named"))
        .arg(
            file.value_parser(value_parser!(PathBuf))
                .help("The file; one that ends in .svg gets the first plot of one result"),
        )
}

fn tables_command() -> Command {
    let files = |argument: Arg| argument.required(true).value_parser(value_parser!(PathBuf));
    let results = Arg::new("results").value_name("RESULT.json").num_args(1..);
    let markdown = Arg::new("file")
        .long("file")
        .value_name("FILE.md")
        .action(ArgAction::Append);
    Command::new("tables")
        .about("Write the tables of figures in Markdown files from results")
        .arg(files(results).help("What `tarn lab run --json` wrote"))
        .arg(files(markdown).help("A file with tables; can be repeated"))
        .arg(flag("check", "Write nothing; print where a table and its result differ"))
        .after_help(
            "A table stands between the comments `<!-- table of EXPERIMENT` and `<!-- end of table -->`; CONTRIBUTING.md \
             describes them. With --check, exit code 1 when a table differs from a result that was made with the same \
             kernel, seed, size and compilers; figures may be the unit apart that they are rounded to.",
        )
}

fn shell_command() -> Command {
    Command::new("shell")
        .about("An interactive guest on this terminal")
        .arg(suite_argument().default_value(DEFAULT).help("The suite"))
        .arg(debug_kernel_flag())
        .arg(mirror_argument())
}

/// `tarn lab bench`, with a verb for each stage that has a benchmark.
fn bench_command(proofs: Proofs) -> Option<Command> {
    let stages: Vec<Command> = benches(proofs).map(Tool::command).collect();
    let json = flag("json", "Print one JSON document").global(true);
    (!stages.is_empty()).then(|| {
        Command::new("bench")
            .about("Measure what a stage costs on this very machine")
            .subcommand_required(true)
            .arg_required_else_help(true)
            .arg(json)
            .subcommands(stages)
    })
}

fn benches(proofs: Proofs) -> impl Iterator<Item = &'static dyn Tool> {
    proofs.iter().filter_map(|proof| proof.bench)
}

fn bench(proofs: Proofs, matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let named = |tool: &&'static dyn Tool| Some(tool.command().get_name()) == matches.subcommand_name();
    let (Some((_, matches)), Some(tool)) = (matches.subcommand(), benches(proofs).find(named)) else {
        return Err(Usage("a stage is missing: `tarn lab bench --help` lists them".into()).into());
    };
    output.json = matches.get_flag("json");
    tool.execute(matches, output)
}

/// The images of `suites` as far as they are not there.
fn images(suites: &[&'static Suite], matches: &ArgMatches, again: bool, progress: &Progress) -> Result<Vec<Image>> {
    parallel::all(suites, |suite| {
        let image = Image::ensure(suite, mirror(matches), again, progress)?;
        if wants_debug_kernel(matches) {
            return debug_kernel::instead(image, mirror(matches), again, progress);
        }
        Ok(image)
    })
}

fn list(proofs: Proofs, matches: &ArgMatches, output: &mut Output) -> Result<()> {
    if matches.get_flag("json") {
        let experiments: Vec<_> = experiments(proofs)
            .map(|experiment| serde_json::json!({ "name": experiment.name, "title": experiment.title }))
            .collect();
        let suites: Vec<_> = SUITES
            .iter()
            .map(|suite| serde_json::json!({ "name": suite.name, "kernel": suite.kernel }))
            .collect();
        return output.json(&serde_json::json!({ "experiments": experiments, "suites": suites }));
    }
    let mut table = Table::new(&[("experiment", Align::Left), ("what it shows", Align::Left)]);
    experiments(proofs).for_each(|experiment| table.row([experiment.name, experiment.title]));
    output.table(&table);
    output.line("");
    let mut table = Table::new(&[("suite", Align::Left), ("Linux", Align::Left)]);
    SUITES.iter().for_each(|suite| table.row([suite.name, suite.kernel]));
    output.table(&table);
    Ok(())
}

fn image(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let progress = Progress::default();
    let suites = suites(matches, &default_suites());
    for image in images(&suites, matches, matches.get_flag("again"), &progress)? {
        let path = image.base();
        let size = fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?;
        output.line(format!(
            "{}: Linux {}, {} MB in {}",
            image.suite,
            image.release,
            size.len() / 1_000_000,
            path.display()
        ));
        if matches.get_flag("software") {
            let again = matches.get_flag("again");
            software::over(&image, mirror(matches), again, &progress)?;
            output.line(format!("{}: with the software of every scene", image.suite));
        }
        if matches.get_flag("builder") {
            Builder::ensure(&image, mirror(matches), &progress)?.build(&builder::PROBE, builder::Kind::Release)?;
            output.line(format!("{}: builds modules for Linux {}", image.suite, image.release));
        }
    }
    Ok(())
}

fn run_experiments(proofs: Proofs, matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let named: Vec<String> = values(matches, "experiments");
    let wanted =
        |experiment: &&'static Experiment| named.is_empty() || named.iter().any(|name| name == experiment.name);
    let [json, tables] = ["json", "tables"].map(|name| matches.get_one::<PathBuf>(name).cloned());
    json.iter()
        .chain(&tables)
        .try_for_each(|path| results::check_path(path))?;
    host::check(1, MEMORY)?;
    let progress = Progress::default();
    let request = run::Request {
        proofs,
        experiments: experiments(proofs).filter(wanted).collect(),
        images: images(&suites(matches, &default_suites()), matches, false, &progress)?,
        seed: seed(matches),
        size: match (matches.get_flag("headline"), matches.get_flag("full")) {
            (true, _) => Size::Headline,
            (_, true) => Size::Full,
            _ => Size::Quick,
        },
        parts: values::<u16>(matches, "part")
            .into_iter()
            .map(|part| usize::from(part) - 1)
            .collect(),
        fresh: matches.get_flag("fresh"),
        times: matches.get_flag("times"),
        jobs: jobs(matches, MEMORY),
        keep_log: matches.get_flag("keep-log"),
        json,
        tables,
        mirror: mirror(matches).map(str::to_owned),
    };
    run::run(&request, &progress, output)
}

fn test(proofs: Proofs, matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let debug = wants_debug_kernel(matches);
    let default = if debug {
        default_suites()
    } else {
        SUITES.iter().collect()
    };
    let memory = memory(matches);
    host::check(1, memory)?;
    let progress = Progress::default();
    let filter: Vec<String> = values(matches, "filter");
    let request = harness::Request {
        proofs,
        harnesses: values(matches, "harness"),
        images: images(&suites(matches, &default), matches, false, &progress)?,
        thorough: matches.get_flag("all"),
        everywhere: matches.get_flag("all") || matches.contains_id("suite") || debug,
        filter: if debug && filter.is_empty() {
            tests_for_debugging(proofs)
        } else {
            filter
        },
        seed: seed(matches),
        fresh: matches.get_flag("fresh"),
        times: matches.get_flag("times"),
        // On two, a module meets itself; by default only where nothing is measured.
        cpus: matches.get_one("cpus").copied().unwrap_or(if debug { 2 } else { 1 }),
        jobs: jobs(matches, memory),
        mirror: mirror(matches).map(str::to_owned),
    };
    harness::run(&request, &progress, output)
}

/// What a debug kernel is for: the tests of a stage that has modules; otherwise whether it finds what is wrong.
fn tests_for_debugging(proofs: Proofs) -> Vec<String> {
    match proofs.iter().any(|proof| !proof.modules.is_empty()) {
        true => Vec::new(),
        false => vec![debug::TESTS.to_owned()],
    }
}

fn write_report(proofs: Proofs, matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let outcomes = if matches.contains_id("results") {
        named_results(matches)?
    } else {
        results::newest()?
    };
    let path: PathBuf = matches.get_one("output").cloned().unwrap_or_default();
    if path.extension().is_some_and(|extension| extension == "svg") {
        let [outcome] = &outcomes[..] else {
            return Err(Usage("an SVG shows one result: name its file".into()).into());
        };
        report::write_plot(proofs, outcome, &path)?;
    } else {
        report::write(proofs, &outcomes, &path)?;
    }
    output.line(format!("The report is in {}", path.display()));
    Ok(())
}

/// The results in the files that are named.
fn named_results(matches: &ArgMatches) -> Result<Vec<Outcome>> {
    let files: Vec<PathBuf> = values(matches, "results");
    let outcomes: Vec<_> = files.iter().map(|file| results::read(file)).collect::<Result<_>>()?;
    Ok(outcomes.concat())
}

fn update_tables(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let outcomes = named_results(matches)?;
    let files: Vec<PathBuf> = values(matches, "file");
    if !matches.get_flag("check") {
        for file in files {
            let (written, left) = tables::write(&file, &outcomes)?;
            output.line(format!("{}: tables written: {written}", file.display()));
            left.iter()
                .for_each(|experiment| output.line(format!("  no result of {experiment}: its table is as it was")));
        }
        return Ok(());
    }
    let mut wrong = 0;
    for file in files {
        let comparison = tables::compare(&file, &outcomes)?;
        comparison.report.iter().for_each(|line| output.line(line));
        wrong += comparison.wrong;
    }
    match wrong {
        0 => Ok(()),
        _ => bail!("tables that do not show what was measured: {wrong}; the same command without --check writes them"),
    }
}

fn shell(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    host::check(1, memory(matches))?;
    let progress = Progress::default();
    let images = images(&suites(matches, &[]), matches, false, &progress)?;
    for image in &images {
        output.line(format!(
            "Booting Linux {}. `exit` ends the guest; Ctrl-A X ends it at once.",
            image.release
        ));
        let spec = Spec {
            image,
            job: &Job::Shell,
            seed: 1,
            cpus: 1,
            memory: image.memory(),
            cards: Cards::None,
            program: None,
            files: Vec::new(),
        };
        vm::interactive(&spec)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command(&[]).debug_assert();
    }

    #[test]
    fn help_fits_a_terminal_of_80_columns() {
        for verb in ["", "list", "image", "run", "test", "report", "tables", "shell"] {
            let mut command = command(&[]).term_width(80);
            let command = if verb.is_empty() {
                &mut command
            } else {
                command.find_subcommand_mut(verb).unwrap()
            };
            let help = command.clone().term_width(80).render_long_help().to_string();
            assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        }
    }

    /// Lines broken by hand would be broken once more, in the middle, where the terminal is narrower.
    #[test]
    fn paragraphs_of_the_help_are_broken_by_the_terminal_only() {
        let help = command(&[]).term_width(80).render_long_help().to_string();
        let start = help.find("The lab boots").unwrap();
        let paragraph: Vec<_> = help[start..].lines().take_while(|line| !line.is_empty()).collect();
        let (_, full) = paragraph.split_last().unwrap();
        assert!(
            full.len() > 3 && full.iter().all(|line| line.len() > 60),
            "{paragraph:#?}"
        );
    }

    #[test]
    fn suites_can_be_repeated_and_misspelt_ones_are_refused() {
        let parse = |arguments: &[&str]| command(&[]).try_get_matches_from(arguments);
        let matches = parse(&["lab", "image", "--suite", "bookworm", "--suite", "trixie"]).unwrap();
        let (_, matches) = matches.subcommand().unwrap();
        let names: Vec<_> = suites(matches, &[]).iter().map(|suite| suite.name).collect();
        assert_eq!(names, ["bookworm", "trixie"]);
        assert!(parse(&["lab", "image", "--suite", "trixy"]).is_err());
        assert!(parse(&["lab", "run", "--jobs", "0"]).is_err());
    }
}
