//! Runs experiments, each on each suite in a guest of its own, several at a time.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::archive::GuestFile;
use super::builder::{Builder, Kind, Source};
use super::experiment::{Experiment, Measurement, Outcome, Size};
use super::highlight;
use super::host;
use super::image::{Image, MEMORY};
use super::parallel::{self, in_parallel};
use super::progress::{Progress, Step};
use super::protocol::{Job, Message};
use super::times::Times;
use super::vm::{self, Spec};
use super::{cache, record, results, software, table};
use crate::Proofs;
use tarn_base::error::Usage;
use tarn_base::output::Output;

/// What to run, and what to do with the results.
pub struct Request {
    /// What the program can prove.
    pub proofs: Proofs,
    /// The experiments.
    pub experiments: Vec<&'static Experiment>,
    /// The images to run them on.
    pub images: Vec<Image>,
    /// The seed of everything random.
    pub seed: u64,
    /// How much is run.
    pub size: Size,
    /// The parts of it that are run, from 0; all when empty.
    pub parts: Vec<usize>,
    /// Guests at a time.
    pub jobs: usize,
    /// Whether guests are booted that were booted with the same before.
    pub fresh: bool,
    /// Whether the CPU time that each took is printed.
    pub times: bool,
    /// Whether the guests' consoles are kept.
    pub keep_log: bool,
    /// Where the results are written.
    pub json: Option<PathBuf>,
    /// Where the tables are written; they are printed where it is `None`.
    pub tables: Option<PathBuf>,
    /// A mirror instead of the default, for the builder of modules.
    pub mirror: Option<String>,
}

/// One part of an experiment on one suite.
struct Task<'a> {
    experiment: &'static Experiment,
    /// With the software that the experiment wants.
    image: &'a Image,
    part: usize,
    /// The experiment on the suite.
    whole: String,
    /// The same, with the part's number if there are several.
    name: String,
    /// The modules that its stage has, built for the image's kernel.
    modules: Vec<GuestFile>,
}

/// What a guest measured.
struct Measured {
    kernel: String,
    measurement: Measurement,
    replayed: bool,
    /// QEMU's CPU time in all, and up to the experiment's beginning.
    cpu: Duration,
    boot: Duration,
}

impl Measured {
    fn count(&self, experiment: &str, times: &mut Times) {
        if self.replayed {
            return times.replay();
        }
        let took = self.cpu.saturating_sub(self.boot);
        times.guest(self.cpu, took);
        times.add(experiment.to_owned(), took);
    }
}

/// Runs everything, prints a table a result and the screen of highlights, and writes the results.
///
/// # Errors
/// When a guest fails, an experiment does, or a check of one does not hold; everything else is run all the same.
pub fn run(request: &Request, progress: &Progress, output: &mut Output) -> Result<()> {
    let needed = parallel::all(&request.images, |image| Needed::of(request, image, progress))?;
    check_parts(request)?;
    let tasks = tasks(request, &needed);
    let guests = request.jobs.min(tasks.len());
    host::check(guests, MEMORY)?;
    let mut outcomes = Vec::new();
    let mut failures = Vec::new();
    let mut parts = Vec::new();
    let mut times = Times::default();
    let mut tables = String::new();
    in_parallel(
        &tasks,
        guests,
        |task| measure(request, task, progress).with_context(|| task.name.clone()),
        |task, result| {
            if let Ok(measured) = &result {
                measured.count(&task.whole, &mut times);
            }
            parts.push(result);
            if parts.len() < parts_of(task.experiment, request).len() {
                return;
            }
            match whole(request, task, std::mem::take(&mut parts), progress) {
                Ok(outcome) => {
                    match request.tables {
                        Some(_) => tables += &(table(task, &outcome, None) + "\n"),
                        None => progress.aside(|| output.line(table(task, &outcome, output.width()))),
                    }
                    failures.extend(failed_checks(&outcome));
                    if request.parts.is_empty() {
                        failures.extend(highlight::missing(task.experiment, &outcome));
                    }
                    outcomes.push(outcome);
                }
                Err(error) => {
                    progress.line(&format!("{error:#}"));
                    failures.push(format!("{} failed", task.whole));
                }
            }
        },
    );
    if request.times {
        times.print(output);
    }
    // The file that was asked for first: a full cache must not lose it.
    if let (Some(path), false) = (&request.json, outcomes.is_empty()) {
        let several = request.experiments.len() * request.images.len() > 1;
        results::write(&outcomes, several, path)?;
    }
    // The report shows whole experiments only.
    if request.parts.is_empty() {
        outcomes.iter().try_for_each(results::keep)?;
    }
    if let Some(path) = &request.tables {
        results::replace(path, tables.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    // One result's table is all that there is to say of it.
    if request.experiments.len() > 1 {
        output.line(screen(request, &outcomes, &failures, output.width()));
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("; "));
    }
    Ok(())
}

/// The screen that a run ends with, its stages in the order of the experiments.
fn screen(request: &Request, outcomes: &[Outcome], failures: &[String], width: Option<usize>) -> String {
    let of = |experiment: &&'static Experiment| {
        let experiment = *experiment;
        let own = move |outcome: &&Outcome| outcome.experiment == experiment.name;
        outcomes.iter().filter(own).map(move |outcome| (experiment, outcome))
    };
    let results: Vec<_> = request.experiments.iter().flat_map(of).collect();
    highlight::screen(&results, failures, width)
}

/// What the experiments need on an image.
struct Needed {
    /// The stages' modules, built for its kernel.
    modules: Vec<(Source, GuestFile)>,
    /// The image with more software, if an experiment wants it.
    software: Option<Image>,
}

impl Needed {
    fn of(request: &Request, image: &Image, progress: &Progress) -> Result<Self> {
        let mirror = request.mirror.as_deref();
        let wanted = request.experiments.iter().any(|experiment| experiment.software);
        let software = wanted.then(|| software::over(image, mirror, false, progress));
        Ok(Self {
            modules: modules(request, image, progress)?,
            software: software.transpose()?,
        })
    }
}

/// The parts of each experiment on each image, one after the other. `needed` is what they need on each, in the order of the images.
fn tasks<'a>(request: &'a Request, needed: &'a [Needed]) -> Vec<Task<'a>> {
    let on = |experiment: &&'static Experiment| {
        let experiment = *experiment;
        let own = modules_of(request.proofs, experiment);
        let images = request.images.iter().zip(needed);
        images.flat_map(move |(image, needed)| {
            let is_own = |(source, _): &&(Source, GuestFile)| own.contains(source);
            let modules = needed.modules.iter().filter(is_own).map(|(_, file)| file.clone());
            let modules: Vec<GuestFile> = modules.collect();
            let image = match &needed.software {
                Some(software) if experiment.software => software,
                _ => image,
            };
            let whole = format!("{} on {}", experiment.name, image.suite);
            let name = |part: usize| match (experiment.parts)(request.size) {
                1 => whole.clone(),
                parts => format!("{whole}, {} of {parts}", part + 1),
            };
            let task = |part| Task {
                experiment,
                image,
                part,
                name: name(part),
                whole: whole.clone(),
                modules: modules.clone(),
            };
            parts_of(experiment, request).into_iter().map(task).collect::<Vec<_>>()
        })
    };
    request.experiments.iter().flat_map(on).collect()
}

/// A part that no experiment has is a mistake of whoever asks for it.
fn check_parts(request: &Request) -> Result<()> {
    let has = |experiment: &&Experiment| (experiment.parts)(request.size);
    let most = request.experiments.iter().copied().max_by_key(has);
    let Some((experiment, parts)) = most.map(|experiment| (experiment, has(&experiment))) else {
        return Ok(());
    };
    match request.parts.iter().find(|part| **part >= parts) {
        Some(part) => Err(Usage(format!(
            "there is no part {}: {} has {parts}",
            part + 1,
            experiment.name,
        ))
        .into()),
        None => Ok(()),
    }
}

/// The parts that are run of an experiment.
fn parts_of(experiment: &Experiment, request: &Request) -> Vec<usize> {
    let mut parts = match request.size {
        Size::Headline => experiment.headline.to_vec(),
        size => (0..(experiment.parts)(size)).collect(),
    };
    parts.retain(|part| request.parts.is_empty() || request.parts.contains(part));
    parts
}

/// The modules of the stage that an experiment belongs to.
fn modules_of(proofs: Proofs, experiment: &Experiment) -> &'static [Source] {
    let proof = proofs.iter().find(|proof| proof.stage == experiment.stage);
    proof.map_or(&[], |proof| proof.modules)
}

/// Builds what the experiments load, for the image's kernel. Where none loads a module, no builder is needed.
fn modules(request: &Request, image: &Image, progress: &Progress) -> Result<Vec<(Source, GuestFile)>> {
    let mut sources: Vec<Source> = Vec::new();
    for source in request
        .experiments
        .iter()
        .flat_map(|experiment| modules_of(request.proofs, experiment))
    {
        if !sources.contains(source) {
            sources.push(*source);
        }
    }
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    let builder = Builder::ensure(image, request.mirror.as_deref(), progress)?;
    sources
        .into_iter()
        .map(|source| Ok((source, builder.file(&source, Kind::Release)?)))
        .collect()
}

/// Puts the parts of an experiment together; `last` is one of them.
fn whole(request: &Request, last: &Task, parts: Vec<Result<Measured>>, progress: &Progress) -> Result<Outcome> {
    let parts = parts.into_iter().collect::<Result<Vec<Measured>>>()?;
    if parts.iter().all(|part| part.replayed) {
        progress.line(&format!("{}: measured before, {}", last.whole, record::REPLAYED));
    }
    let kernel = parts.first().map(|part| part.kernel.clone()).unwrap_or_default();
    let mut measurement = Measurement::default();
    parts.into_iter().for_each(|part| measurement.append(part.measurement));
    if let Some(conclude) = last.experiment.conclude {
        conclude(&mut measurement);
    }
    measurement.check()?;
    let Request { seed, size, .. } = *request;
    Ok(results::outcome(
        last.experiment,
        last.image.suite.name,
        kernel,
        seed,
        size,
        measurement,
    ))
}

/// Boots a guest and has it run one part of an experiment.
fn measure(request: &Request, task: &Task, progress: &Progress) -> Result<Measured> {
    let (experiment, suite) = (task.experiment, task.image.suite.name);
    let Request { seed, size, .. } = *request;
    let job = Job::Experiment {
        name: experiment.name.into(),
        part: task.part,
        seed,
        size,
        suite: suite.into(),
    };
    progress.show(&Step::first(&task.name, "booting"));
    let spec = Spec {
        image: task.image,
        job: &job,
        seed,
        cpus: experiment.cpus,
        memory: MEMORY,
        cards: experiment.cards,
        program: None,
        files: task.modules.clone(),
    };
    let (mut kernel, mut measured, mut boot) = (None, None, None);
    let run = vm::run(&spec, true, request.fresh || request.keep_log, |message, cpu| {
        match message {
            Message::Started { kernel: release } => kernel = Some(release),
            Message::Progress {
                step,
                fraction,
                time_ns,
            } => {
                boot.get_or_insert(cpu);
                let detail = format!("{:.1} s virtual", time_ns as f64 / 1e9);
                progress.show(&Step {
                    task: &task.name,
                    doing: &step,
                    fraction,
                    detail: &detail,
                });
            }
            Message::Measured(measurement) => measured = Some(measurement),
            Message::Test { .. } | Message::Ended { .. } => {}
        }
        Ok(())
    });
    progress.end(&task.name);
    if request.keep_log || run.result.is_err() {
        keep_log(task, seed, &run.log, progress)?;
    }
    run.result?;
    Ok(Measured {
        kernel: kernel.context("the guest did not tell its kernel")?,
        measurement: measured.context("the guest ended without a result")?,
        replayed: run.replayed,
        cpu: run.cpu,
        boot: boot.unwrap_or_default(),
    })
}

fn keep_log(task: &Task, seed: u64, log: &str, progress: &Progress) -> Result<()> {
    let directory = cache::directory()?.join("logs");
    let name = task.name.replace(" on ", "-").replace(", ", "-").replace(' ', "-");
    let path = directory.join(format!("{name}-{seed}.log"));
    let written = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&path, log));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    progress.line(&format!("{}: the console's log is in {}", task.name, path.display()));
    Ok(())
}

fn table(task: &Task, outcome: &Outcome, width: Option<usize>) -> String {
    table::render(task.experiment.title, task.experiment.metrics, outcome, width)
}

/// That checks do not hold, if so; which ones stands in the table.
fn failed_checks(outcome: &Outcome) -> Option<String> {
    let failed = outcome.measurement.checks.iter().filter(|check| !check.passed).count();
    let all = outcome.measurement.checks.len();
    (failed > 0).then(|| {
        format!(
            "{} on {}: {failed} of {all} checks do not hold",
            outcome.experiment, outcome.suite
        )
    })
}
