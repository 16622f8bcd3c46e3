//! Kernel modules of ours: where they are found, how they are loaded and taken out.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;

use super::features::{Finding, Host};
use super::program;
use crate::undone::Undone;

/// Where modules lie that were built for the lab's guests, or by hand.
const OUR_DIRECTORY: &str = "/tarn/modules";

/// Where the package and `make install` put the modules' sources, for DKMS.
const PACKAGED_SOURCES: &str = concat!("/usr/src/tarn-", env!("CARGO_PKG_VERSION"));

/// A module that can be loaded, or is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// It is loaded.
    Loaded,
    /// modprobe(8) finds it.
    Installed,
    /// A file of its own.
    File(PathBuf),
}

/// Whether the module is loaded.
pub fn is_loaded(name: &str) -> bool {
    Path::new("/sys/module").join(name).exists()
}

/// Where the module is; `None` when it is nowhere.
pub fn find(name: &str) -> Option<Presence> {
    if is_loaded(name) {
        return Some(Presence::Loaded);
    }
    let file = Path::new(OUR_DIRECTORY).join(format!("{name}.ko"));
    if file.is_file() {
        return Some(Presence::File(file));
    }
    let is_found = run("modprobe", &["--dry-run".as_ref(), "--quiet".as_ref(), name.as_ref()]).is_ok();
    is_found.then_some(Presence::Installed)
}

/// What this host offers for the module, as `tarn check` tells it.
pub fn finding(name: &str) -> Finding {
    match find(name) {
        Some(Presence::Loaded) => Finding::Present("it is loaded".to_owned()),
        Some(Presence::Installed) => Finding::Present("it is installed".to_owned()),
        Some(Presence::File(file)) => Finding::Present(format!("it is in {}", file.display())),
        None => Finding::Absent {
            reason: format!(
                "the module {name} is not there for Linux {}",
                Host::this().release_text()
            ),
            remedy: how_to_build(),
        },
    }
}

/// What to do where a module is nowhere. DKMS builds installed sources, and needs the kernel's headers.
fn how_to_build() -> String {
    if Path::new(PACKAGED_SOURCES).exists() {
        let release = Host::this().release_text();
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "install dkms and this kernel's headers (on Debian, `apt-get install dkms linux-headers-{release}`), \
             then run `dkms install tarn/{version}`"
        )
    } else {
        "build it with `make modules`, which says how it is installed".to_owned()
    }
}

/// How the module is loaded, as a command; `None` when it is already, or is nowhere.
pub fn command(name: &str) -> Option<String> {
    match find(name)? {
        Presence::Loaded => None,
        Presence::Installed => Some(format!("modprobe {name}")),
        Presence::File(file) => Some(format!("insmod {}", file.display())),
    }
}

/// Loads the module. One that is loaded is left.
///
/// # Errors
/// It is nowhere, or the kernel refuses it, in the words of the program that loads it.
pub fn load(name: &str) -> Result<()> {
    let loaded = match find(name) {
        Some(Presence::Loaded) => return Ok(()),
        Some(Presence::Installed) => run("modprobe", &[name.as_ref()]),
        Some(Presence::File(file)) => load_dependencies(&file).and_then(|()| run("insmod", &[file.as_os_str()])),
        None => bail!("the module {name} is nowhere: {}", how_to_build()),
    };
    loaded.map(drop).map_err(|error| {
        anyhow!(
            "cannot load the module {name}: {error:#}: look at the kernel's log (`dmesg`); a kernel with lockdown wants it signed"
        )
    })
}

/// Loads what a module's file names as its dependencies, which insmod does not.
fn load_dependencies(file: &Path) -> Result<()> {
    let names = run("modinfo", &["--field".as_ref(), "depends".as_ref(), file.as_os_str()])?;
    for name in names.split(',').filter(|name| !name.is_empty()) {
        run("modprobe", &[name.as_ref()])?;
    }
    Ok(())
}

/// Runs a program of kmod's and returns what it prints.
fn run(name: &str, arguments: &[&OsStr]) -> Result<String> {
    let program = program::find(name).with_context(|| format!("the program '{name}' is not there: install kmod"))?;
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Takes the module out.
///
/// # Errors
/// The kernel's refusal.
pub fn unload(name: &str) -> Result<Undone> {
    if !is_loaded(name) {
        return Ok(Undone::Gone);
    }
    let c_name = std::ffi::CString::new(name).context("a module's name with a zero in it")?;
    match nix::kmod::delete_module(&c_name, nix::kmod::DeleteModuleFlags::O_NONBLOCK) {
        Ok(()) => Ok(Undone::PutBack),
        Err(Errno::ENOENT) => Ok(Undone::Gone),
        Err(error) => Err(error).with_context(|| format!("cannot take the module {name} out: `rmmod {name}` says why")),
    }
}
