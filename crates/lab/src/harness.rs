//! Runs kernel-facing tests: crates' own test harnesses, in guests of each suite.
//!
//! A test that needs the lab is an ignored test whose name begins with `lab_`. The harness is asked here for their
//! names, so that a guest that dies cannot lose any: what did not report has failed.
//!
//! What a test finds may depend on the kernel. Such a test, or a module of such tests, has a name that begins with
//! `lab_kernel`, and runs on every suite, or with `lab_oldest`, and runs on the oldest and the default suite; the others run
//! on the default suite, unless suites are named or all is asked for. A harness in which nothing is marked runs whole on
//! every suite. Those that begin with `lab_long` run only where
//! suites or all are asked for, or when a filter lets them through.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::groups::{cards_of, groups, is_for, is_long, name_of, names, parts, says_kernels, wants_software};
use super::archive::GuestFile;
use super::builder::{self, Builder, Kind, Source};
use super::elf;
use super::host;
use super::image::Image;
use super::parallel::{self, in_parallel};
use super::progress::{Progress, Step};
use super::protocol::{Circumstances, Job, Message, Verdict};
use super::record;
use super::software;
use super::suite::Suite;
use super::times::Times;
use super::vm::{self, Died, Run, Spec};
use crate::{Proof, Proofs, program};
use tarn_base::error::Usage;
use tarn_base::output::Output;

mod groups;

/// What to test, and where.
pub struct Request {
    /// What the program can prove.
    pub proofs: Proofs,
    /// Test harnesses, linked statically.
    pub harnesses: Vec<PathBuf>,
    /// The images to test on.
    pub images: Vec<Image>,
    /// Whether every test runs on each of them: not only on the default suite, and long ones, too.
    pub everywhere: bool,
    /// Whether sweeps and loops are run at full length.
    pub thorough: bool,
    /// Only tests whose name contains one of these; all when empty.
    pub filter: Vec<String>,
    /// Of the guests' random sources: another one finds what holds by chance only.
    pub seed: u64,
    /// Whether guests are booted that were booted with the same before.
    pub fresh: bool,
    /// Whether the CPU time that each test took is printed.
    pub times: bool,
    /// Virtual CPUs of a guest.
    pub cpus: u8,
    /// Guests at a time.
    pub jobs: usize,
    /// A mirror instead of the default, for the builder of modules.
    pub mirror: Option<String>,
}

/// What `cargo test` has built of one crate.
struct Harness {
    /// What its tests load.
    modules: Vec<Source>,
    /// The stage's own program, for tests that run tarn; empty for crates that have none.
    tarn: Vec<GuestFile>,
    /// The crate's name, with `::` behind it, where there are several harnesses.
    prefix: String,
    /// Fit for the guest.
    program: Vec<u8>,
    /// Those that need the lab and that the filter lets through.
    tests: Vec<String>,
    /// Whether its tests say whether they depend on the kernel.
    is_marked: bool,
}

/// Some of the tests, on one suite.
struct Task<'a> {
    request: &'a Request,
    image: &'a Image,
    harness: &'a Harness,
    name: String,
    tests: Vec<String>,
    files: &'a [GuestFile],
}

/// How one test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ending {
    test: String,
    verdict: Verdict,
    detail: String,
    /// QEMU's CPU time; `None` when its guest need not run.
    took: Option<Duration>,
}

/// How all tests of a guest ended.
struct Ran {
    endings: Vec<Ending>,
    /// QEMU's CPU time; `None` when the guest need not run.
    cpu: Option<Duration>,
}

impl Ran {
    fn count(&self, prefix: &str, times: &mut Times) {
        let Some(cpu) = self.cpu else {
            return times.replay();
        };
        times.guest(cpu, self.endings.iter().filter_map(|ending| ending.took).sum());
        for Ending { test, took, .. } in &self.endings {
            times.add(format!("{prefix}{test}"), took.unwrap_or_default());
        }
    }
}

/// Runs the tests and prints a line each, and the failures' output.
///
/// # Errors
/// When a test fails, or a guest does.
pub fn run(request: &Request, progress: &Progress, output: &mut Output) -> Result<()> {
    let harnesses = harnesses(request)?;
    let memory = request.images.iter().map(Image::memory).max().unwrap_or_default();
    let needed = parallel::all(&request.images, |image| {
        let needed = |harness| needed(request, harness, image, progress);
        harnesses.iter().map(needed).collect::<Result<Vec<_>>>()
    })?;
    let tasks = all_tasks(request, &harnesses, &needed);
    if tasks.is_empty() {
        return Err(Usage("these tests break a debug kernel on purpose: add --debug-kernel".into()).into());
    }
    let guests = request.jobs.min(tasks.len());
    host::check(guests, memory)?;
    let (mut counts, mut before, mut failures) = ([0; 3], 0, Vec::new());
    let mut times = Times::default();
    in_parallel(
        &tasks,
        guests,
        |task| test(task, progress),
        |task, ran| {
            let prefix = format!("{} {}", task.image.suite, task.harness.prefix);
            ran.count(&prefix, &mut times);
            let endings = ran.endings;
            progress.aside(|| {
                for ending in &endings {
                    output.line(line(&prefix, ending));
                }
            });
            for ending in endings {
                counts[ending.verdict as usize] += 1;
                before += usize::from(ending.took.is_none() && ending.verdict == Verdict::Passed);
                if ending.verdict == Verdict::Failed {
                    failures.push(format!(
                        "---- {}{} on {}\n{}",
                        task.harness.prefix,
                        ending.test,
                        task.image.suite,
                        ending.detail.trim_end()
                    ));
                }
            }
        },
    );
    for failure in &failures {
        output.line(format!("\n{failure}"));
    }
    if request.times {
        times.print(output);
    }
    let replayed = match before {
        0 => String::new(),
        before => format!(" ({before} passed before, {})", record::REPLAYED),
    };
    output.line(format!(
        "\n{} passed, {} failed, {} skipped{replayed}",
        counts[0], counts[1], counts[2]
    ));
    if !failures.is_empty() {
        bail!("{} of {} tests failed", failures.len(), counts.iter().sum::<usize>());
    }
    Ok(())
}

/// The harnesses with what is asked for of them; an error when that is nothing.
fn harnesses(request: &Request) -> Result<Vec<Harness>> {
    let several = request.harnesses.len() > 1;
    let read = |path: &PathBuf| Harness::read(path, several, request);
    let harnesses = request.harnesses.iter().map(read).collect::<Result<Vec<_>>>()?;
    if harnesses.iter().all(|harness| harness.tests.is_empty()) {
        let paths: Vec<_> = request
            .harnesses
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let contains = match &request.filter[..] {
            [] => String::new(),
            filter => format!(" and contains {}", filter.join(" or ")),
        };
        return Err(Usage(format!("no test of {} needs the lab{contains}", paths.join(", "))).into());
    }
    Ok(harnesses)
}

impl Harness {
    fn read(path: &Path, several: bool, request: &Request) -> Result<Self> {
        let all = names(&listing(path)?);
        let name = crate_name(path);
        let prefix = if several { format!("{name}::") } else { String::new() };
        let is_wanted = |test: &&String| is_wanted(&format!("{prefix}{test}"), &request.filter, request.everywhere);
        Ok(Self {
            tests: all.iter().filter(is_wanted).cloned().collect(),
            is_marked: all.iter().any(|test| says_kernels(test)),
            program: guest_program(path)?,
            modules: modules_of(&name, request.proofs),
            tarn: tarn(path)?.into_iter().collect(),
            prefix,
        })
    }

    /// Its tests that run on a suite.
    fn tests_on(&self, suite: &Suite, everywhere: bool) -> Vec<String> {
        let all = everywhere || !self.is_marked;
        let runs = |test: &&String| all || is_for(test, suite);
        self.tests.iter().filter(runs).cloned().collect()
    }
}

/// Whether a filter lets a test through; without one, whether it is short, or `all` are wanted.
fn is_wanted(name: &str, filter: &[String], all: bool) -> bool {
    match filter {
        [] => all || !is_long(name),
        filter => filter.iter().any(|part| name.contains(part.as_str())),
    }
}

/// What a harness says of the tests that are ignored otherwise.
fn listing(harness: &Path) -> Result<String> {
    let mut command = Command::new(harness);
    command
        .args(["--list", "--ignored", "--format", "terse"])
        .stdin(Stdio::null());
    let output = command
        .output()
        .with_context(|| format!("cannot run the test harness {}", harness.display()))?;
    if !output.status.success() {
        bail!(
            "{} is no test harness: {}",
            harness.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The crate's name in what cargo calls a harness, `CRATE-HASH`.
fn crate_name(harness: &Path) -> String {
    let name = harness.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-').map_or(&*name, |(name, _)| name).to_owned()
}

/// The modules that the tests of a crate load, each once: those of its stage, and the program's those of all; the lab's own tests
/// load one that breaks the kernel.
fn modules_of(name: &str, proofs: Proofs) -> Vec<Source> {
    let of_stage = |proof: &&&Proof| name.strip_prefix("tarn_") == Some(proof.stage);
    match proofs.iter().find(of_stage) {
        Some(proof) => proof.modules.to_vec(),
        None if name == "tarn_lab" => vec![builder::PROBE],
        None if name == "tarn" => {
            let of_all = proofs.iter().flat_map(|proof| proof.modules);
            let by_name: BTreeMap<&str, Source> = of_all.map(|source| (source.module, *source)).collect();
            by_name.into_values().collect()
        }
        None => Vec::new(),
    }
}

/// The program that the tests of a harness run as tarn.
fn tarn(harness: &Path) -> Result<Option<GuestFile>> {
    let Some(path) = program::of(harness) else {
        return Ok(None);
    };
    let place = program::PLACE.trim_start_matches('/').to_owned();
    Ok(Some((place, 0o755, guest_program(&path)?)))
}

fn guest_program(path: &Path) -> Result<Vec<u8>> {
    let program = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    elf::for_the_guest(program).with_context(|| format!("{} cannot run in the guest", path.display()))
}

/// What is to do, the guests with the most tests first, so that no long one is left at the end. `needed` is what each harness
/// needs on each image.
fn all_tasks<'a>(request: &'a Request, harnesses: &'a [Harness], needed: &'a [Vec<Needed>]) -> Vec<Task<'a>> {
    let tests = |image: &Image| {
        harnesses
            .iter()
            .map(|harness| harness.tests_on(image.suite, request.everywhere))
    };
    let mut images: Vec<_> = request.images.iter().zip(needed).collect();
    images.sort_by_key(|(image, _)| tests(image).map(|tests| tests.len()).sum::<usize>());
    let mut all = Vec::new();
    for (index, (image, needed)) in images.iter().enumerate() {
        let mut tasks = Vec::new();
        for ((harness, needed), tests) in harnesses.iter().zip(*needed).zip(tests(image)) {
            let parts = parts(tests.len(), index + 1 == images.len(), request.jobs);
            for tests in groups(&tests, parts, image.debug_kernel().is_some()) {
                let wants_software = tests.first().is_some_and(|test| wants_software(test));
                let software = needed.software.as_ref().filter(|_| wants_software);
                tasks.push(Task {
                    request,
                    image: software.unwrap_or(image),
                    harness,
                    name: format!("tests on {} ({})", image.suite, tasks.len() + 1),
                    tests,
                    files: &needed.files,
                });
            }
        }
        if let [only] = &mut tasks[..] {
            only.name = format!("tests on {}", image.suite);
        }
        all.append(&mut tasks);
    }
    all.sort_by_key(|task| Reverse(task.tests.len()));
    all
}

/// What a harness needs beside itself.
struct Needed {
    /// tarn, and the modules that its tests load, built for the image's kernel.
    files: Vec<GuestFile>,
    /// The image with more software, if a test wants it.
    software: Option<Image>,
}

fn needed(request: &Request, harness: &Harness, image: &Image, progress: &Progress) -> Result<Needed> {
    let mirror = request.mirror.as_deref();
    let tests = harness.tests_on(image.suite, request.everywhere);
    let software = tests.iter().any(|test| wants_software(test));
    let software = software.then(|| software::over(image, mirror, false, progress));
    Ok(Needed {
        files: files(request, harness, image, progress)?,
        software: software.transpose()?,
    })
}

fn files(request: &Request, harness: &Harness, image: &Image, progress: &Progress) -> Result<Vec<GuestFile>> {
    let mut files = harness.tarn.clone();
    if !harness.modules.is_empty() {
        let builder = Builder::ensure(image, request.mirror.as_deref(), progress)?;
        for source in &harness.modules {
            files.push(builder.file(source, Kind::Release)?);
            if source.has_selftest() {
                files.push(builder.file(source, Kind::Debug)?);
            }
        }
    }
    if let Some(kernel) = image.debug_kernel() {
        files.extend(kernel.files()?);
    }
    Ok(files)
}

/// Runs a task's tests in a guest. Every one of them comes back with a verdict, whatever becomes of the guest.
fn test(task: &Task, progress: &Progress) -> Ran {
    let mut reported = BTreeMap::new();
    let mut running = None;
    let Run {
        replayed, cpu, result, ..
    } = boot(task, progress, &mut running, &mut reported);
    progress.end(&task.name);
    let detail = |test: &String| match &result {
        Ok(()) => "the guest did not run it".to_owned(),
        Err(error) if running.as_ref() == Some(test) || running.is_none() => format!("{error:#}"),
        Err(error) => {
            let reason = error
                .downcast_ref::<Died>()
                .map_or_else(|| error.to_string(), |died| format!("the guest {}", died.reason));
            format!("not run: {reason}, in {}", running.as_deref().unwrap_or_default())
        }
    };
    let ending = |test: &String| {
        reported.remove(test).unwrap_or_else(|| Ending {
            test: test.clone(),
            verdict: Verdict::Failed,
            detail: detail(test),
            took: None,
        })
    };
    Ran {
        endings: task.tests.iter().map(ending).collect(),
        cpu: (!replayed).then_some(cpu),
    }
}

fn boot(
    task: &Task,
    progress: &Progress,
    running: &mut Option<String>,
    reported: &mut BTreeMap<String, Ending>,
) -> Run {
    let Request {
        seed, thorough, fresh, ..
    } = *task.request;
    let debug = task.image.debug_kernel().is_some();
    let job = Job::Tests {
        tests: task.tests.clone(),
        circumstances: Circumstances {
            suite: task.image.suite.name.into(),
            debug,
            thorough,
            seed,
        },
    };
    progress.show(&Step::first(&task.name, "booting"));
    let spec = Spec {
        image: task.image,
        job: &job,
        seed,
        cpus: task.request.cpus,
        memory: task.image.memory(),
        cards: task.tests.first().map(|test| cards_of(test)).unwrap_or_default(),
        program: Some(&task.harness.program),
        files: task.files.to_vec(),
    };
    let mut began = Duration::ZERO;
    let run = vm::run(&spec, false, fresh, |message, cpu| {
        match message {
            Message::Progress {
                step,
                fraction,
                time_ns,
            } => {
                let detail = format!("{:.1} s virtual", time_ns as f64 / 1e9);
                progress.show(&Step {
                    task: &task.name,
                    doing: name_of(&step),
                    fraction,
                    detail: &detail,
                });
                *running = Some(step);
                began = cpu;
            }
            Message::Test { name, verdict, detail } => {
                let ending = Ending {
                    test: name.clone(),
                    verdict,
                    detail,
                    took: Some(cpu.saturating_sub(began)),
                };
                reported.insert(name, ending);
            }
            _ => {}
        }
        Ok(())
    });
    if run.replayed {
        reported.values_mut().for_each(|ending| ending.took = None);
        progress.line(&format!("{}: passed before, {}", task.name, record::REPLAYED));
    }
    run
}

fn line(prefix: &str, ending: &Ending) -> String {
    let end = match (ending.verdict, ending.took) {
        (Verdict::Passed, Some(took)) => format!("passed in {:.1} CPU s", took.as_secs_f64()),
        (Verdict::Passed, None) => "passed before".to_owned(),
        (Verdict::Failed, _) => "FAILED".to_owned(),
        (Verdict::Skipped, _) => format!("skipped: {}", ending.detail.trim()),
    };
    format!("{prefix}{} ... {end}", ending.test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn harness(tests: &[&str]) -> Harness {
        let listing: String = tests.iter().map(|test| format!("{test}: test\n")).collect();
        let tests = names(&listing);
        Harness {
            modules: Vec::new(),
            tarn: Vec::new(),
            prefix: String::new(),
            program: Vec::new(),
            is_marked: tests.iter().any(|test| says_kernels(test)),
            tests,
        }
    }

    /// What depends on the kernel and meets one only is not tested.
    #[test]
    fn marked_tests_run_on_every_kernel_and_the_others_on_one() {
        let [bookworm, trixie, newest] =
            ["bookworm", "trixie", "trixie-backports"].map(|name| Suite::named(name).unwrap());
        let marked = harness(&["a::lab_x", "a::lab_kernel_y", "lab_kernels::lab_z", "a::lab_oldest_v"]);
        assert_eq!(marked.tests_on(trixie, false), marked.tests);
        assert_eq!(
            marked.tests_on(bookworm, false),
            ["a::lab_kernel_y", "lab_kernels::lab_z", "a::lab_oldest_v"]
        );
        assert_eq!(
            marked.tests_on(newest, false),
            ["a::lab_kernel_y", "lab_kernels::lab_z"]
        );
        assert_eq!(marked.tests_on(newest, true), marked.tests);
        let unmarked = harness(&["a::lab_x", "kernel::lab_y"]);
        assert_eq!(unmarked.tests_on(bookworm, false), unmarked.tests);
    }

    #[test]
    fn long_tests_run_when_they_are_asked_for() {
        let filter = ["a::".to_owned()];
        for (name, filter, all, runs) in [
            ("a::lab_x", &[][..], false, true),
            ("a::lab_long_x", &[], false, false),
            ("lab_long_a::lab_kernel_x", &[], false, false),
            ("lab_long_a::lab_kernel_x", &[], true, true),
            ("a::lab_long_x", &filter, false, true),
            ("b::lab_x", &filter, true, false),
        ] {
            assert_eq!(is_wanted(name, filter, all), runs, "{name} {filter:?} {all}");
        }
    }

    /// Tests of two crates may have the same path.
    #[test]
    fn a_harness_has_its_crates_name() {
        assert_eq!(
            crate_name(Path::new("target/debug/deps/tarn_redirect-d98109dd3bad1efa")),
            "tarn_redirect"
        );
        assert_eq!(crate_name(Path::new("harness")), "harness");
    }

    #[test]
    fn a_skip_shows_its_reason_and_is_no_pass() {
        let skip = Ending {
            test: "a".into(),
            verdict: Verdict::Skipped,
            detail: "no tcx before 6.6\n".into(),
            took: None,
        };
        assert_eq!(line("bookworm ", &skip), "bookworm a ... skipped: no tcx before 6.6");
    }
}
