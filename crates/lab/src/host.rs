//! What the lab needs of the host that boots guests.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::parallel;
use tarn_base::error::Unsupported;

/// The emulator.
pub const QEMU: &str = "qemu-system-x86_64";

/// Major and minor number of a version.
type Version = (u32, u32);

/// The oldest QEMU that the lab is tried with.
const OLDEST: Version = (7, 0);

/// The first QEMU that gives each virtual CPU its share of the time up to the next timer ("ensure fairness with
/// icount"). On older ones a CPU that waits for another in a loop without a pause waits for ever.
const FAIR: Version = (8, 1);

/// The first kernel that pauses while it waits for a second CPU to start.
const PAUSES: Version = (6, 5);

/// What a guest takes of the host besides its memory, in MiB: its initramfs twice (ours and QEMU's) and the code that
/// QEMU has translated.
const OVERHEAD: u64 = 512;

/// Whether this host can boot `guests` of `memory` MiB at a time.
///
/// # Errors
/// [`Unsupported`], with what to install or to change.
pub fn check(guests: usize, memory: u32) -> Result<()> {
    let (major, minor) = qemu_version()?;
    if (major, minor) < OLDEST {
        let message = format!(
            "the lab needs QEMU {}.{} or newer; this is {major}.{minor}",
            OLDEST.0, OLDEST.1
        );
        return Err(Unsupported(message).into());
    }
    check_memory(
        guests,
        memory,
        &fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?,
    )
}

/// Whether a kernel of this release starts a second CPU under this host's QEMU.
///
/// # Errors
/// [`Unsupported`] when it does not.
pub fn check_second_cpu(release: &str) -> Result<()> {
    if qemu_version()? >= FAIR || version(release) >= Some(PAUSES) {
        return Ok(());
    }
    Err(Unsupported(format!(
        "Linux {release} cannot start a second CPU under a QEMU before {}.{}: take a suite with a newer kernel (--suite)",
        FAIR.0, FAIR.1
    ))
    .into())
}

fn qemu_version() -> Result<Version> {
    let output = Command::new(QEMU).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        Unsupported(format!(
            "the lab needs QEMU ({QEMU}: {error}): apt-get install qemu-system-x86"
        ))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_once("version ")
        .and_then(|(_, rest)| version(rest))
        .with_context(|| format!("{QEMU} --version tells no version: {text}"))
}

/// The first two numbers of a version.
fn version(text: &str) -> Option<Version> {
    let mut parts = text.split(|character: char| !character.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// How many guests of `memory` MiB this host boots at a time when nobody says: one a processor, as far as memory goes.
pub fn guests(memory: u32) -> usize {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    parallel::processors().min(guests_in(memory, &meminfo)).max(1)
}

fn guests_in(memory: u32, meminfo: &str) -> usize {
    usize::try_from(available(meminfo) / (u64::from(memory) + OVERHEAD)).unwrap_or(usize::MAX)
}

/// The memory that programs can have, in MiB. A host that does not tell is taken at its best: QEMU says so itself if it
/// gets no memory.
fn available(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(u64::MAX) / 1024
}

fn check_memory(guests: usize, memory: u32, meminfo: &str) -> Result<()> {
    let available = available(meminfo);
    let needed = (u64::from(memory) + OVERHEAD) * guests as u64;
    if needed <= available {
        return Ok(());
    }
    let fewer = if guests > 1 {
        ", or run fewer at a time with --jobs"
    } else {
        ""
    };
    Err(Unsupported(format!(
        "{guests} guest(s) need {needed} MiB of memory and {available} MiB are available: end other programs{fewer}"
    ))
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("7.2.22 (Debian 1:7.2+dfsg-7)"), Some((7, 2)));
        assert!(version("10.0.2") >= Some(OLDEST));
        assert!(version("6.1.0-56-cloud-amd64") < Some(PAUSES));
        assert!(version("6.12.117+deb13-cloud-amd64") >= Some(PAUSES));
        assert_eq!(version("something else"), None);
    }

    /// A guest that does not fit would be killed by the host in the middle of a run, or take something else with it.
    #[test]
    fn more_guests_than_memory_are_refused_with_the_way_out() {
        let meminfo = "MemTotal: 4000000 kB\nMemAvailable:    2097152 kB\n";
        assert!(check_memory(1, 1024, meminfo).is_ok());
        let message = check_memory(2, 1024, meminfo).unwrap_err().to_string();
        assert!(message.contains("3072 MiB") && message.contains("--jobs"), "{message}");
        assert_eq!(guests_in(1024, meminfo), 1);
        assert_eq!(guests_in(1024, "MemAvailable: 1000 kB"), 0);
        assert!(guests_in(1024, "") > 1000);
        assert!((1..=parallel::processors()).contains(&guests(1024)));
    }
}
