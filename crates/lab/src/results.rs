//! Results of experiments as files: where they are kept, written and found again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::{AccessFlags, access};

use super::cache;
use super::experiment::{Experiment, Measurement, Outcome, Size};
use tarn_base::error::Usage;

/// The result of a measurement, with what is needed to tell and to repeat it.
pub fn outcome(
    experiment: &Experiment,
    suite: &str,
    kernel: String,
    seed: u64,
    size: Size,
    measurement: Measurement,
) -> Outcome {
    Outcome {
        experiment: experiment.name.into(),
        kernel,
        suite: suite.into(),
        seed,
        size,
        build: env!("TARN_BUILD").into(),
        tarn: env!("CARGO_PKG_VERSION").into(),
        measurement,
        reference: experiment.references.to_vec(),
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
    write(std::slice::from_ref(outcome), false, &path)
}

/// Whether a file could be written there: asked before minutes of measuring, not after.
///
/// # Errors
/// [`Usage`], with what is in the way.
pub fn check_path(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let wrong = if path.is_dir() {
        "it is a directory".to_owned()
    } else if !parent.is_dir() {
        format!("there is no directory {}", parent.display())
    } else if access(parent, AccessFlags::W_OK).is_err() && access(path, AccessFlags::W_OK).is_err() {
        format!("the directory {} is not writable", parent.display())
    } else {
        return Ok(());
    };
    Err(Usage(format!("cannot write {}: {wrong}", path.display())).into())
}

/// Writes a result as a document, or several (were it only one of those asked for) as an array of them. The same
/// results give the same bytes.
///
/// # Errors
/// When the file cannot be written; what was there before is then as it was.
pub fn write(outcomes: &[Outcome], several: bool, path: &Path) -> Result<()> {
    let mut text = match outcomes {
        [one] if !several => serde_json::to_vec(one),
        all => serde_json::to_vec(all),
    }
    .context("cannot write the result as JSON")?;
    text.push(b'\n');
    replace(path, &text).with_context(|| format!("cannot write {}", path.display()))
}

/// Puts a whole new file in a file's place. A link stays a link, and a device or a pipe is written to.
///
/// # Errors
/// When it cannot be written; what was there before is then as it was.
pub fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, text);
    }
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let replaced = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced
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
    use crate::experiment::Case;

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
            size: Size::Full,
            build: "rustc 1.95.0, clang 14.0.6, debug build".into(),
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
            write(&outcomes, false, &path).unwrap();
            let read = read(&path).unwrap();
            assert_eq!(read, outcomes);
            write(&read, false, &again).unwrap();
            assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    }

    proptest::proptest! {
        /// A figure that loses its last digit in a file could not be compared byte for byte.
        #[test]
        fn every_figure_is_read_as_it_was_written(bits: u64) {
            let value = f64::from_bits(bits);
            proptest::prop_assume!(value.is_finite());
            let text = serde_json::to_vec(&outcome("redirect", value)).unwrap();
            let read: Outcome = serde_json::from_slice(&text).unwrap();
            proptest::prop_assert_eq!(serde_json::to_vec(&read).unwrap(), text);
        }
    }

    /// `--json /dev/null` as root must not make /dev/null a file, nor `--json LINK` the link.
    #[test]
    fn a_link_and_a_pipe_stay_what_they_are() {
        let home = tempfile::tempdir().unwrap();
        let (file, link, pipe) = ["file", "link", "pipe"].map(|name| home.path().join(name)).into();
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write(&[outcome("a", 1.0)], true, &link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read(&file).unwrap().len(), 1);
        assert!(
            fs::read_to_string(&file).unwrap().starts_with("[{"),
            "one of several is a list too"
        );
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write(&[outcome("a", 1.0)], true, &pipe).unwrap();
        assert_eq!(reader.join().unwrap(), fs::read(&file).unwrap());
    }

    /// Minutes of measuring would be lost.
    #[test]
    fn a_place_where_nothing_can_be_written_is_found_out_before() {
        let home = tempfile::tempdir().unwrap();
        assert!(check_path(&home.path().join("a.json")).is_ok());
        assert!(check_path(Path::new("a.json")).is_ok());
        for wrong in ["", "missing/a.json"] {
            let error = check_path(&home.path().join(wrong)).unwrap_err();
            assert_eq!(tarn_base::error::exit_code(&error), 2, "{error}");
        }
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
