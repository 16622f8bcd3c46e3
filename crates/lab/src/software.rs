//! More real software than every guest has: load generators that we did not write, the services that they ask, and what else only
//! a few scenes need.
//!
//! It lies over the root file system as a second archive, which only guests that want it unpack: each of them takes longer to boot,
//! and the others stay as they are, to the last figure.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::archive::Archive;
use super::bootstrap::Bootstrap;
use super::cache::{Slot, cannot_write};
use super::image::{self, Image};
use super::progress::Progress;

/// How the name of a test begins, or of its module, whose guest has it.
pub const TESTS: &str = "lab_software";

/// The packages besides those of every guest.
const PACKAGES: &[&str] = &["dnsperf", "gunicorn", "memcached", "nghttp2-client"];

/// A module that is kept, and left out elsewhere.
const BONDING: &str = "bonding|";

/// What is kept of what is left out elsewhere: these programs need it.
const KEPT: &[&str] = &[
    "usr/bin/h2load",
    "usr/lib/python3",
    "usr/lib/x86_64-linux-gnu/libicu",
    "usr/lib/x86_64-linux-gnu/libxml2",
];

/// Python would compile what it imports at each start. What it has compiled says by a hash what it was made of: a guest's files
/// have no times.
const COMPILE: &str = r#"cd "$1" || exit
for directory in usr/lib/python3*; do
    chroot . python3 -m compileall -q -f --invalidation-mode unchecked-hash "/$directory" || exit
done
"#;

/// The file in the cache.
const ARCHIVE: &str = "software.cpio";

/// The image with this software. It is fetched first where it is not there, or was made for another kernel; `again`, in any case.
///
/// # Errors
/// Those of fetching and unpacking the packages, and of writing to the cache.
pub fn over(image: &Image, mirror: Option<&str>, again: bool, progress: &Progress) -> Result<Image> {
    let suite = image.suite;
    let slot = Slot::new(suite.name, "software")?;
    let bootstrap = Bootstrap {
        suite,
        mirror,
        packages: image::package_list(suite, PACKAGES),
        hook: format!("{}{COMPILE}", hook()),
    };
    // What is the same there and in the image is left out of it.
    let base = fs::metadata(image.base()).and_then(|base| base.modified());
    let base = base.with_context(|| format!("cannot read {}", image.base().display()))?;
    let recipe = format!("over {base:?}\nkept {KEPT:?}\n{}", bootstrap.recipe());
    let task = format!("software {suite}");
    slot.ensure(&recipe, again, &task, progress, |new| {
        make(&bootstrap, image, new, &task, progress)
    })
    .with_context(|| format!("cannot make the software of {suite}"))?;
    Ok(image.clone().with_software(slot.path().join(ARCHIVE)))
}

fn hook() -> String {
    let left_out = image::MODULES_LEFT_OUT
        .iter()
        .map(|pattern| pattern.replace(BONDING, ""));
    let left_out: Vec<String> = left_out.collect();
    image::hook(&left_out.iter().map(String::as_str).collect::<Vec<_>>())
}

fn make(bootstrap: &Bootstrap, image: &Image, directory: &Path, task: &str, progress: &Progress) -> Result<()> {
    let mut archive = bootstrap.run(directory, task, progress, |stream| Archive::from_tar(stream, is_wanted))?;
    let release = archive
        .take_file("boot/release")
        .context("the packages hold no kernel")?;
    if release != image.own_release()?.as_bytes() {
        bail!(
            "{} has a newer kernel than its image: make it anew with `tarn lab image --again --suite {0}`",
            image.suite
        );
    }
    let base = File::open(image.base()).map_err(anyhow::Error::from);
    let base = base
        .and_then(|base| Archive::from_cpio(BufReader::new(base)))
        .with_context(|| format!("cannot read {}", image.base().display()))?;
    archive.leave_out(&base);
    let written = || -> Result<()> {
        let mut file = BufWriter::new(File::create(directory.join(ARCHIVE))?);
        archive.write(&mut file)?;
        Ok(file.flush()?)
    };
    written().with_context(|| cannot_write(directory))
}

fn is_wanted(path: &str) -> bool {
    path == "boot/release" || KEPT.iter().any(|start| path.starts_with(start)) || image::is_kept(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bond would be missing from the kernel, or Python's library from the guest.
    #[test]
    fn what_is_left_out_of_every_guest_is_kept_here() {
        assert!(image::hook(image::MODULES_LEFT_OUT).contains("(bonding|geneve"));
        assert!(hook().contains("drivers/net/(geneve|gtp"));
        assert!(is_wanted("usr/lib/python3/dist-packages/gunicorn/__init__.py"));
        assert!(!is_wanted("usr/share/doc/gunicorn/changelog.gz"));
        assert!(!is_wanted("boot/vmlinux"));
    }
}
