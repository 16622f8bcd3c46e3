//! What this host can do, found by looking and never by trying: nothing changes.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use serde::Serialize;

use tarn_base::error::Unsupported;

/// The oldest kernel that tarn is for.
pub const OLDEST: Release = Release {
    major: 6,
    minor: 1,
    patch: 0,
};

/// `CAP_NET_ADMIN` of include/uapi/linux/capability.h.
const CAP_NET_ADMIN: u32 = 12;
/// `CAP_NET_RAW`
const CAP_NET_RAW: u32 = 13;
/// `CAP_SYS_ADMIN`: implies the right to use BPF.
const CAP_SYS_ADMIN: u32 = 21;
/// `CAP_PERFMON`: without it the verifier treats a program as a stranger's, and refuses ours.
const CAP_PERFMON: u32 = 38;
/// `CAP_BPF`.
const CAP_BPF: u32 = 39;

/// A kernel's version, without what distributions add to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// 6 of `6.12.117`.
    pub major: u32,
    /// 12 of `6.12.117`.
    pub minor: u32,
    /// 117 of `6.12.117`; 0 where there is none.
    pub patch: u32,
}

impl Release {
    /// Reads a release as `uname -r` prints it: `6.12.117+deb13-cloud-amd64`, `6.1-rc3`.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
        let mut parts = numbers.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        let patch = parts.next().and_then(|patch| patch.parse().ok()).unwrap_or(0);
        Some(Self { major, minor, patch })
    }
}

impl Display for Release {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 {
            write!(f, ".{}", self.patch)
        } else {
            Ok(())
        }
    }
}

/// What was found of an ability, or why it is not there and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// This host has it; what was found.
    Present(String),
    /// This host lacks it.
    Absent {
        /// Why.
        reason: String,
        /// What to do about it.
        remedy: String,
    },
}

impl Finding {
    fn absent(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Absent {
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }

    /// Whether this host has it.
    pub fn is_present(&self) -> bool {
        matches!(self, Self::Present(_))
    }

    /// The finding as an entry of `tarn check`.
    pub fn ability(self, name: &str, required: bool) -> Ability {
        let (present, detail) = match self {
            Self::Present(found) => (true, found),
            Self::Absent { reason, remedy } => (false, format!("{reason}: {remedy}")),
        };
        Ability {
            name: name.to_string(),
            present,
            required,
            detail,
        }
    }
}

/// One thing that a stage may need from the host.
#[derive(Debug, Clone, Serialize)]
pub struct Ability {
    /// A short name: `xdp`, `tcx`, `nftables`, `module loading`.
    pub name: String,
    /// Whether this host has it.
    pub present: bool,
    /// Whether the stage cannot run at all without it.
    pub required: bool,
    /// Where it is absent: why, and what to do about it. Where it is present: what was found.
    pub detail: String,
}

impl Ability {
    /// An ability that was found, with what was found, or was not, and why.
    pub fn of(name: &str, required: bool, found: anyhow::Result<String>) -> Self {
        Self {
            name: name.to_owned(),
            present: found.is_ok(),
            required,
            detail: found.unwrap_or_else(|error| format!("{error:#}")),
        }
    }
}

/// The host as seen through its file system.
#[derive(Debug, Clone)]
pub struct Host {
    root: PathBuf,
}

impl Host {
    /// This host.
    pub fn this() -> Self {
        Self::at(Path::new("/"))
    }

    /// A host whose files lie below `root`.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
        }
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path))
            .ok()
            .map(|text| text.trim().to_string())
    }

    /// The running kernel's release, as `uname -r` prints it.
    pub fn release_text(&self) -> String {
        self.read("proc/sys/kernel/osrelease")
            .unwrap_or_else(|| "unknown".to_string())
    }

    /// Whether the kernel is as new as `oldest`.
    pub fn kernel_since(&self, oldest: Release) -> Finding {
        let text = self.release_text();
        match Release::parse(&text) {
            Some(release) if release >= oldest => Finding::Present(format!("Linux {text}")),
            Some(_) => Finding::absent(
                format!("this is Linux {text}, and it takes {oldest}"),
                format!("boot a kernel of {oldest} or newer"),
            ),
            None => Finding::absent(format!("cannot tell the kernel's version from {text:?}"), "mount /proc"),
        }
    }

    /// Whether the kernel tells its types (BTF), by which a BPF program adapts itself to it.
    pub fn btf(&self) -> Finding {
        match std::fs::metadata(self.root.join("sys/kernel/btf/vmlinux")) {
            Ok(found) if found.len() > 0 => Finding::Present(format!("{} KiB of types", found.len() / 1024)),
            _ => Finding::absent(
                "the kernel has no BTF (/sys/kernel/btf/vmlinux)",
                "boot a distribution's kernel, or one built with CONFIG_DEBUG_INFO_BTF=y",
            ),
        }
    }

    /// Whether BPF programs run as machine code.
    pub fn bpf_jit(&self) -> Finding {
        match self.read("proc/sys/net/core/bpf_jit_enable").as_deref() {
            Some("0") => Finding::absent(
                "BPF programs are interpreted, some times slower",
                "sysctl net.core.bpf_jit_enable=1",
            ),
            Some(_) => Finding::Present("BPF programs run as machine code".to_string()),
            None => Finding::absent(
                "not known: only root sees net.core.bpf_jit_enable, in the first network namespace",
                "look there if speed matters",
            ),
        }
    }

    /// Whether this process may configure the network.
    pub fn network_administration(&self) -> Finding {
        match self.has_capability(CAP_NET_ADMIN) {
            true => Finding::Present("CAP_NET_ADMIN".to_string()),
            false => Finding::absent("this process lacks CAP_NET_ADMIN", "run tarn as root"),
        }
    }

    /// Whether this process may send pings by raw sockets.
    pub fn raw_sockets(&self) -> Finding {
        match self.has_capability(CAP_NET_RAW) {
            true => Finding::Present("CAP_NET_RAW".to_string()),
            false => Finding::absent("this process lacks CAP_NET_RAW", "run tarn as root"),
        }
    }

    /// Whether this process may load BPF programs.
    pub fn bpf(&self) -> Finding {
        if !self.has_bpf_capabilities() {
            return Finding::absent("this process lacks CAP_BPF and CAP_PERFMON", "run tarn as root");
        }
        if self.in_user_namespace() {
            return Finding::absent(
                "this process is root in a user namespace only, where the kernel allows no BPF",
                "run tarn as the host's root",
            );
        }
        match self.lockdown().as_deref() {
            Some("confidentiality") => Finding::absent(
                "kernel lockdown forbids BPF (confidentiality)",
                "boot with lockdown=integrity or none",
            ),
            _ => Finding::Present("CAP_BPF, CAP_PERFMON".to_string()),
        }
    }

    /// Whether kernel modules can be loaded.
    pub fn module_loading(&self) -> Finding {
        if self.read("proc/modules").is_none() {
            return Finding::absent(
                "the kernel has no modules (CONFIG_MODULES=n)",
                "boot a distribution's kernel",
            );
        }
        if self.read("proc/sys/kernel/modules_disabled").as_deref() == Some("1") {
            return Finding::absent("module loading was switched off (kernel.modules_disabled=1)", "reboot");
        }
        let arguments = self.read("proc/cmdline").unwrap_or_default();
        if arguments.split_whitespace().any(|argument| argument == "nomodule") {
            return Finding::absent("the kernel was booted with nomodule", "boot without it");
        }
        match self.lockdown().as_deref() {
            Some(level @ ("integrity" | "confidentiality")) => Finding::Present(format!(
                "signed modules only (kernel lockdown: {level}): enrol DKMS's key with mokutil to load tarn's"
            )),
            _ => Finding::Present("modules can be loaded".to_string()),
        }
    }

    /// The kernel lockdown in force, if the kernel has any: `none`, `integrity` or `confidentiality`.
    fn lockdown(&self) -> Option<String> {
        let text = self.read("sys/kernel/security/lockdown")?;
        let chosen = text.split(['[', ']']).nth(1)?;
        Some(chosen.to_string())
    }

    fn has_bpf_capabilities(&self) -> bool {
        self.has_capability(CAP_SYS_ADMIN) || self.has_capability(CAP_BPF) && self.has_capability(CAP_PERFMON)
    }

    /// Whether the process is in a user namespace other than the first, which maps every user to itself.
    fn in_user_namespace(&self) -> bool {
        let map = self.read("proc/self/uid_map");
        map.is_some_and(|map| map.split_whitespace().ne(["0", "0", "4294967295"]))
    }

    /// Whether the process has a capability in its effective set.
    fn has_capability(&self, capability: u32) -> bool {
        let status = self.read("proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let set = effective
            .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
            .unwrap_or(0);
        set >> capability & 1 == 1
    }
}

/// Refuses a verb that cannot do without the rights of root.
///
/// # Errors
/// [`Unsupported`], with the command to run instead.
pub fn require_root(verb: &str) -> Result<(), Unsupported> {
    let host = Host::this();
    if host.network_administration().is_present() && host.has_bpf_capabilities() {
        return Ok(());
    }
    Err(Unsupported(format!(
        "`tarn {verb}` needs the rights of root (CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON): run `sudo tarn {verb}`"
    )))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let host = Host::at(directory.path());
        (directory, host)
    }

    fn remedy(finding: Finding) -> String {
        match finding {
            Finding::Present(found) => panic!("present: {found}"),
            Finding::Absent { reason, remedy } => format!("{reason}: {remedy}"),
        }
    }

    #[test]
    fn every_distribution_s_release_is_read_and_ordered() {
        let order = [
            "5.14.0-427.el9.x86_64",
            "6.1.0-28-cloud-amd64",
            "6.1.119",
            "6.12-rc3",
            "6.12.117+deb13-cloud-amd64",
        ];
        let releases: Vec<Release> = order.iter().map(|text| Release::parse(text).unwrap()).collect();
        assert!(releases.is_sorted(), "{releases:?}");
        assert_eq!(
            Release::parse("6.12.117+deb13-cloud-amd64"),
            Some(Release {
                major: 6,
                minor: 12,
                patch: 117
            })
        );
        assert_eq!(
            Release::parse("6.8.0-45-generic"),
            Some(Release {
                major: 6,
                minor: 8,
                patch: 0
            })
        );
        assert!(
            Release::parse("6.9") < Release::parse("6.10"),
            "versions are numbers, not text"
        );
        assert_eq!(Release::parse("WSL"), None);
        assert_eq!(Release::parse("7"), None);
    }

    proptest! {
        #[test]
        fn no_release_makes_it_fail(text in ".{0,40}") {
            Release::parse(&text);
        }
    }

    #[test]
    fn an_old_kernel_is_told_what_it_takes() {
        let (_files, old) = host(&[("proc/sys/kernel/osrelease", "5.10.0-33-amd64\n")]);
        let told = remedy(old.kernel_since(OLDEST));
        assert!(
            told.contains("5.10.0-33-amd64") && told.contains("6.1 or newer"),
            "{told}"
        );
        let (_files, new) = host(&[("proc/sys/kernel/osrelease", "6.12.9\n")]);
        assert!(new.kernel_since(OLDEST).is_present());
    }

    #[test]
    fn every_way_of_forbidding_modules_is_told_with_its_remedy() {
        let modules = ("proc/modules", "nf_tables 1 0 - Live 0x0\n");
        let off = ("proc/sys/kernel/modules_disabled", "1\n");
        let nomodule = ("proc/cmdline", "root=/dev/sda nomodule quiet\n");
        let locked = ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        assert!(remedy(host(&[]).1.module_loading()).contains("CONFIG_MODULES"));
        assert!(remedy(host(&[modules, off]).1.module_loading()).contains("reboot"));
        assert!(remedy(host(&[modules, nomodule]).1.module_loading()).contains("boot without it"));
        let signed = host(&[modules, locked]).1.module_loading();
        assert!(
            matches!(&signed, Finding::Present(found) if found.contains("mokutil")),
            "{signed:?}"
        );
        let hint = ("proc/cmdline", "modprobe.blacklist=nomodule_fs\n");
        assert!(host(&[modules, hint]).1.module_loading().is_present());
    }

    #[test]
    fn rights_are_read_from_the_effective_set() {
        let status = |set: &str| format!("Name:\ttarn\nCapPrm:\t000001ffffffffff\nCapEff:\t{set}\n");
        let (_files, ordinary) = host(&[("proc/self/status", &status("0000000000000000"))]);
        assert!(remedy(ordinary.network_administration()).contains("root"));
        assert!(!ordinary.bpf().is_present());
        let (_files, service) = host(&[("proc/self/status", &status("000000c000001000"))]);
        assert!(service.network_administration().is_present() && service.bpf().is_present());
        let (_files, half) = host(&[("proc/self/status", &status("0000008000001000"))]);
        assert!(
            remedy(half.bpf()).contains("CAP_PERFMON"),
            "without it the verifier refuses"
        );
        let container = ("proc/self/uid_map", "         0     100000      65536\n");
        let (_files, container) = host(&[("proc/self/status", &status("000001ffffffffff")), container]);
        assert!(remedy(container.bpf()).contains("user namespace"));
        let first = ("proc/self/uid_map", "         0          0 4294967295\n");
        let (_files, first) = host(&[("proc/self/status", &status("000001ffffffffff")), first]);
        assert!(first.bpf().is_present());
        let lockdown = ("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
        let (_files, locked) = host(&[("proc/self/status", &status("000001ffffffffff")), lockdown]);
        assert!(remedy(locked.bpf()).contains("lockdown"));
    }
}
