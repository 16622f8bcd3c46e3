//! Runs kernel-facing tests: the crate's own test harness, in a guest of each suite.
//!
//! A test that needs the lab is an ignored test whose name begins with `lab_`. The harness is asked here for their
//! names, so that a guest that dies cannot lose any: what did not report has failed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::builder::{self, Builder, GuestFile, Kind};
use super::debug_kernel;
use super::elf;
use super::host;
use super::image::Image;
use super::parallel::{self, in_parallel};
use super::progress::{Progress, Step};
use super::protocol::{Job, Message, Verdict};
use super::record;
use super::vm::{self, Died, Spec};
use crate::error::Usage;
use crate::output::Output;
use crate::stages::STAGES;

/// A guest of its own pays for itself only with this many tests.
const TESTS_A_GUEST: usize = 8;

/// What to test, and where.
pub struct Request {
    /// A test harness, linked statically.
    pub harness: PathBuf,
    /// The images to test on.
    pub images: Vec<Image>,
    /// Only tests whose name contains one of these; all when empty.
    pub filter: Vec<String>,
    /// Of the guests' random sources: another one finds what holds by chance only.
    pub seed: u64,
    /// Whether guests are booted that were booted with the same before.
    pub fresh: bool,
    /// Guests at a time.
    pub jobs: usize,
    /// A mirror instead of the default, for the builder of modules.
    pub mirror: Option<String>,
}

/// Some of the tests, on one suite.
struct Task<'a> {
    image: &'a Image,
    name: String,
    tests: Vec<String>,
    files: &'a [GuestFile],
    seed: u64,
    fresh: bool,
}

/// How one test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ending {
    test: String,
    verdict: Verdict,
    detail: String,
    /// On this machine; `None` when its guest need not run.
    took: Option<Duration>,
}

/// Runs the tests and prints a line each, and the failures' output.
///
/// # Errors
/// When a test fails, or a guest does.
pub fn run(request: &Request, progress: &Progress, output: &mut Output) -> Result<()> {
    let tests = list(&request.harness, &request.filter)?;
    let memory = request.images.iter().map(Image::memory).max().unwrap_or_default();
    let files = parallel::all(&request.images, |image| files(request, image, progress))?;
    let suites = request.images.len();
    let tasks: Vec<_> = request
        .images
        .iter()
        .zip(&files)
        .enumerate()
        .flat_map(|(suite, (image, files))| {
            let parts = parts(tests.len(), suite + 1 == suites, request.jobs);
            tasks(request, image, files, &tests, parts)
        })
        .collect();
    if tasks.is_empty() {
        return Err(Usage("these tests break a debug kernel on purpose: add --debug-kernel".into()).into());
    }
    let guests = request.jobs.min(tasks.len());
    host::check(guests, memory)?;
    let (mut counts, mut before, mut failures) = ([0; 3], 0, Vec::new());
    in_parallel(
        &tasks,
        guests,
        |task| test(task, progress),
        |task, endings| {
            progress.aside(|| {
                for ending in &endings {
                    output.line(line(task.image.suite.name, ending));
                }
            });
            for ending in endings {
                counts[ending.verdict as usize] += 1;
                before += usize::from(ending.took.is_none() && ending.verdict == Verdict::Passed);
                if ending.verdict == Verdict::Failed {
                    failures.push(format!(
                        "---- {} on {}\n{}",
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

/// The tests in a harness that need the lab and that the filter lets through.
fn list(harness: &Path, filter: &[String]) -> Result<Vec<String>> {
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
    let tests = names(&String::from_utf8_lossy(&output.stdout), filter);
    if tests.is_empty() {
        return Err(Usage(format!(
            "no test of {} needs the lab{}",
            harness.display(),
            if filter.is_empty() {
                String::new()
            } else {
                format!(" and contains {}", filter.join(" or "))
            }
        ))
        .into());
    }
    Ok(tests)
}

fn names(listing: &str, filter: &[String]) -> Vec<String> {
    let names = listing.lines().filter_map(|line| line.strip_suffix(": test"));
    let needs_lab = |name: &&str| name_of(name).starts_with("lab_");
    let wanted = |name: &&str| filter.is_empty() || filter.iter().any(|part| name.contains(part.as_str()));
    names.filter(needs_lab).filter(wanted).map(str::to_owned).collect()
}

/// The last part of a test's path.
fn name_of(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}

/// In how many guests a suite's tests are run. Only the last suite's are spread, over so many that all of `jobs` processors
/// have something to do until the end.
fn parts(tests: usize, is_last: bool, jobs: usize) -> usize {
    if is_last && jobs > 1 {
        (2 * jobs).min(tests.div_ceil(TESTS_A_GUEST)).max(1)
    } else {
        1
    }
}

fn tasks<'a>(
    request: &Request,
    image: &'a Image,
    files: &'a [GuestFile],
    tests: &[String],
    parts: usize,
) -> Vec<Task<'a>> {
    let breaks_the_kernel = |test: &&String| name_of(test).starts_with(debug_kernel::TESTS);
    let (breaking, tests): (Vec<_>, Vec<_>) = tests.iter().partition(breaks_the_kernel);
    // In turn, because tests of one file take about as long as each other.
    let of = |part: usize| tests.iter().skip(part).step_by(parts).copied().cloned().collect();
    let mut groups: Vec<Vec<String>> = (0..parts).map(of).collect();
    // A kernel that has complained checks less afterwards: each of these has a guest of its own.
    if image.debug_kernel().is_some() {
        groups.extend(breaking.into_iter().map(|test| vec![test.clone()]));
    }
    groups.retain(|tests| !tests.is_empty());
    let name = |part: usize| match groups.len() {
        1 => format!("tests on {}", image.suite),
        _ => format!("tests on {} ({})", image.suite, part + 1),
    };
    let names: Vec<_> = (0..groups.len()).map(name).collect();
    let task = |(name, tests)| Task {
        image,
        name,
        tests,
        files,
        seed: request.seed,
        fresh: request.fresh,
    };
    names.into_iter().zip(groups).map(task).collect()
}

/// The harness, and the modules that tests load, built for the image's kernel.
fn files(request: &Request, image: &Image, progress: &Progress) -> Result<Vec<GuestFile>> {
    let path = &request.harness;
    let harness = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let harness = elf::for_the_guest(harness).with_context(|| format!("{} cannot run in the guest", path.display()))?;
    let builder = Builder::ensure(image, request.mirror.as_deref(), progress)?;
    let mut files = vec![("tarn/tests".into(), 0o755, harness)];
    let modules = STAGES.iter().flat_map(|stage| stage.modules());
    for source in [&builder::PROBE].into_iter().chain(modules) {
        files.push(builder.file(source, Kind::Release)?);
        if source.has_selftest() {
            files.push(builder.file(source, Kind::Debug)?);
        }
    }
    if let Some(kernel) = image.debug_kernel() {
        files.extend(kernel.files()?);
    }
    Ok(files)
}

/// Runs a task's tests in a guest. Every one of them comes back with a verdict, whatever becomes of the guest.
fn test(task: &Task, progress: &Progress) -> Vec<Ending> {
    let mut reported = BTreeMap::new();
    let mut running = None;
    let result = boot(task, progress, &mut running, &mut reported);
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
    task.tests.iter().map(ending).collect()
}

fn boot(
    task: &Task,
    progress: &Progress,
    running: &mut Option<String>,
    reported: &mut BTreeMap<String, Ending>,
) -> Result<()> {
    let suite = task.image.suite.name;
    let job = Job::Tests {
        filter: task.tests.clone(),
        suite: suite.into(),
        debug: task.image.debug_kernel().is_some(),
    };
    progress.show(&Step::first(&task.name, "booting"));
    let spec = Spec {
        image: task.image,
        job: &job,
        seed: task.seed,
        // On two, a module meets itself; only there, where nothing else is at stake.
        cpus: if task.image.debug_kernel().is_some() { 2 } else { 1 },
        memory: task.image.memory(),
        files: task.files.to_vec(),
    };
    let mut began = Instant::now();
    let run = vm::run(&spec, false, task.fresh, |message, _| {
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
                began = Instant::now();
            }
            Message::Test { name, verdict, detail } => {
                let ending = Ending {
                    test: name.clone(),
                    verdict,
                    detail,
                    took: Some(began.elapsed()),
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
    run.result
}

fn line(suite: &str, ending: &Ending) -> String {
    let Ending {
        test,
        verdict,
        detail,
        took,
    } = ending;
    match verdict {
        Verdict::Passed => match took {
            Some(took) => format!("{suite} {test} ... passed in {:.1} s", took.as_secs_f64()),
            None => format!("{suite} {test} ... passed before"),
        },
        Verdict::Failed => format!("{suite} {test} ... FAILED"),
        Verdict::Skipped => format!("{suite} {test} ... skipped: {}", detail.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_that_need_the_lab_are_run_there() {
        let listing = "lab::a::lab_x: test\nlab::a::slow: test\nlab_y: test\nb::lab_bench: benchmark\n";
        assert_eq!(names(listing, &[]), ["lab::a::lab_x", "lab_y"]);
        assert_eq!(names(listing, &["y".into()]), ["lab_y"]);
    }

    /// A processor would otherwise stand idle while another works on the last suite.
    #[test]
    fn the_last_suite_is_split_so_that_no_processor_waits() {
        assert_eq!(parts(100, false, 2), 1);
        assert_eq!(parts(100, true, 2), 4);
        assert_eq!(parts(100, true, 1), 1);
        assert_eq!(parts(5, true, 2), 1);
    }

    #[test]
    fn a_skip_shows_its_reason_and_is_no_pass() {
        let skip = Ending {
            test: "a".into(),
            verdict: Verdict::Skipped,
            detail: "no tcx before 6.6\n".into(),
            took: None,
        };
        assert_eq!(line("bookworm", &skip), "bookworm a ... skipped: no tcx before 6.6");
    }
}
