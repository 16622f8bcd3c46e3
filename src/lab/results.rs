//! Results of experiments as files: where they are kept, written and found again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::cache;
use super::experiment::{Experiment, Measurement, Outcome, OutcomeReference};

/// The result of a measurement, with what is needed to tell and to repeat it.
pub fn outcome(
    experiment: &dyn Experiment,
    suite: &str,
    kernel: String,
    seed: u64,
    full: bool,
    measurement: Measurement,
) -> Outcome {
    let reference = experiment.references().iter().map(|reference| OutcomeReference {
        source: reference.source.into(),
        metric: reference.metric.into(),
        value: reference.value,
        note: reference.note.into(),
    });
    Outcome {
        experiment: experiment.name().into(),
        kernel,
        suite: suite.into(),
        seed,
        full,
        tarn: env!("CARGO_PKG_VERSION").into(),
        measurement,
        reference: reference.collect(),
    }
}

/// The directory where the newest result of each experiment and suite is kept.
///
/// # Errors
/// When the user has no home directory.
pub fn directory() -> Result<PathBuf> {
    Ok(cache::directory()?.join("results"))
}

/// Keeps a result as the newest of its experiment and suite.
///
/// # Errors
/// When the cache cannot be written.
pub fn keep(outcome: &Outcome) -> Result<()> {
    let directory = directory()?;
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let path = directory.join(format!("{}-{}.json", outcome.experiment, outcome.suite));
    write(std::slice::from_ref(outcome), &path)
}

/// Writes one result as a document, several as an array of them. The same results give the same bytes.
///
/// # Errors
/// When the file cannot be written; what was there before is then as it was.
pub fn write(outcomes: &[Outcome], path: &Path) -> Result<()> {
    let mut text = match outcomes {
        [one] => serde_json::to_vec(one),
        several => serde_json::to_vec(several),
    }
    .context("cannot write the result as JSON")?;
    text.push(b'\n');
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Reads the results in a file that [`write`] has written.
///
/// # Errors
/// When it is no such file.
pub fn read(path: &Path) -> Result<Vec<Outcome>> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let document: serde_json::Value =
        serde_json::from_slice(&text).with_context(|| format!("{} is no JSON document", path.display()))?;
    let several = document.is_array();
    let outcomes = if several {
        serde_json::from_value(document)
    } else {
        serde_json::from_value(document).map(|outcome| vec![outcome])
    };
    outcomes.with_context(|| format!("{} is no result of `tarn lab run --json`", path.display()))
}

/// The newest result of each experiment and suite.
///
/// # Errors
/// When there is none, or one of them cannot be read.
pub fn newest() -> Result<Vec<Outcome>> {
    let directory = directory()?;
    let entries = fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .map_while(Result::ok)
        .map(|entry| entry.path());
    let mut paths: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    paths.sort();
    if paths.is_empty() {
        bail!("there is no result yet: `tarn lab run` measures, or name the files that `tarn lab run --json` wrote");
    }
    paths
        .iter()
        .map(|path| read(path))
        .collect::<Result<Vec<_>>>()
        .map(|results| results.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::experiment::Case;

    fn outcome(experiment: &str, value: f64) -> Outcome {
        let metrics = [("b".to_owned(), value), ("a".to_owned(), 3.0)].into();
        let measurement = Measurement {
            cases: vec![Case {
                metrics,
                ..Case::default()
            }],
            ..Measurement::default()
        };
        Outcome {
            experiment: experiment.into(),
            kernel: "6.12".into(),
            suite: "trixie".into(),
            seed: u64::MAX,
            full: true,
            tarn: "0.1.0".into(),
            measurement,
            reference: Vec::new(),
        }
    }

    /// A result that changes on its way through a file would no longer be the one that was measured.
    #[test]
    fn what_is_written_is_read_and_written_the_same() {
        let home = tempfile::tempdir().unwrap();
        let (path, again) = (home.path().join("a.json"), home.path().join("b.json"));
        for outcomes in [
            vec![outcome("redirect", 0.1 + 0.2)],
            vec![outcome("a", 1e-300), outcome("b", 1.0 / 3.0)],
        ] {
            write(&outcomes, &path).unwrap();
            let read = read(&path).unwrap();
            assert_eq!(read, outcomes);
            write(&read, &again).unwrap();
            assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_is_no_result_is_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("other.json");
        fs::write(&path, "{\"a\": 1}").unwrap();
        let message = format!("{:#}", read(&path).unwrap_err());
        assert!(message.contains("other.json is no result"), "{message}");
    }
}
