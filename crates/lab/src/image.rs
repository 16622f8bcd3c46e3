//! A suite's kernel and root file system, as QEMU boots them.
//!
//! The whole root file system is an initramfs: disks and shared directories complete at the host's speed and would
//! make runs differ. Because the guest unpacks it at every boot, everything that no experiment uses is left out,
//! and nothing in it is compressed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::archive::Archive;
use super::bootstrap::Bootstrap;
use super::cache::{Slot, cannot_write};
use super::debug::{self, DebugKernel};
use super::progress::{Progress, Step};
use super::suite::Suite;

/// The memory of a guest, in MiB.
pub const MEMORY: u32 = 1024;

/// Raised when this file makes something else of the same packages.
const FORMAT: u32 = 1;

/// What every guest has; a stage's experiment may name more.
const PACKAGES: &[&str] = &[
    "bash",
    "busybox",
    "conntrack",
    "coreutils",
    "dhcpcd-base",
    "ethtool",
    "grep",
    "iproute2",
    "iputils-ping",
    "kmod",
    "libc-bin",
    "mawk",
    "mount",
    "nftables",
    "procps",
    "sed",
    "tcpdump",
    "util-linux",
    "xdp-tools",
];

/// Real software that experiments measure and tests use.
const SOFTWARE: &[&str] = &[
    "apache2-bin",
    "apache2-utils",
    "haproxy",
    "iperf3",
    "nginx-light",
    "openssh-client",
    "openssh-server",
    "unbound",
    "wireguard-tools",
];

/// What the hook needs to unpack the kernel and its modules.
const TOOLS: &[&str] = &["lz4", "xz-utils", "zstd"];

/// The kernel modules that are kept, below `/lib/modules/RELEASE/kernel`.
const MODULES: &[&str] = &[
    "arch/x86/crypto",
    "arch/x86/lib",
    "crypto",
    "drivers/net/(bonding|dummy|geneve|gtp|ifb|ipvlan|macsec|macvlan|macvtap|netconsole|netdevsim|netkit|nlmon|tap|team|tun|veth|vmxnet3|vrf|vxlan|wireguard|xfrm)",
    "lib",
    "net/(802|8021q|bridge|core|dns_resolver|ife|ipv4|ipv6|key|l2tp|llc|mpls|mptcp|netfilter|netlink|nsh|packet|psample|sched|sctp|tls|unix|xdp|xfrm)",
];

/// Of those, the ones that are left out: the old iptables and what stands on it, and protocols that no stage meets.
pub const MODULES_LEFT_OUT: &[&str] = &[
    "drivers/net/(bonding|geneve|gtp|macsec|team)",
    "net/bridge/netfilter/ebt",
    "net/ipv[46]/netfilter/(arp|ip)6?t",
    "net/netfilter/(ipset|ipvs|nf_conntrack_(amanda|h323|irc|netbios|pptp|sane|sip|snmp))",
    "net/netfilter/xt_",
    "net/(dns_resolver|l2tp|mpls|nsh)",
];

/// What is left out of the root file system: a prefix of the path, or `*` and an ending. Libraries among it are those of
/// modules of Apache's that nobody loads.
const LEFT_OUT: &[&str] = &[
    "*.a",
    "boot/",
    "dev/",
    "etc/apt/",
    "etc/kernel/",
    "etc/ssh/moduli",
    "etc/systemd/",
    "usr/bin/h2",
    "usr/bin/localedef",
    "usr/bin/lz4",
    "usr/bin/perl",
    "usr/bin/pzstd",
    "usr/bin/scp",
    "usr/bin/sftp",
    "usr/bin/ssh-a",
    "usr/bin/ssh-keyscan",
    "usr/bin/systemd",
    "usr/bin/udevadm",
    "usr/bin/zipdetails",
    "usr/bin/zstd",
    "usr/lib/dracut/",
    "usr/lib/klibc/",
    "usr/lib/openssh/sftp-server",
    "usr/lib/openssh/ssh-",
    "usr/lib/python3",
    "usr/lib/systemd/",
    "usr/lib/tmpfiles.d/",
    "usr/lib/udev/",
    "usr/lib/x86_64-linux-gnu/gconv/",
    "usr/lib/x86_64-linux-gnu/libbrotlienc",
    "usr/lib/x86_64-linux-gnu/libcurl",
    "usr/lib/x86_64-linux-gnu/libdb-5",
    "usr/lib/x86_64-linux-gnu/libgnutls",
    "usr/lib/x86_64-linux-gnu/libhogweed",
    "usr/lib/x86_64-linux-gnu/libicu",
    "usr/lib/x86_64-linux-gnu/libldap",
    "usr/lib/x86_64-linux-gnu/libnettle",
    "usr/lib/x86_64-linux-gnu/libp11-kit",
    "usr/lib/x86_64-linux-gnu/libperl",
    "usr/lib/x86_64-linux-gnu/librtmp",
    "usr/lib/x86_64-linux-gnu/libssh2",
    "usr/lib/x86_64-linux-gnu/libxml2",
    "usr/lib/x86_64-linux-gnu/perl",
    "usr/lib/x86_64-linux-gnu/security/",
    "usr/lib/x86_64-linux-gnu/systemd/",
    "usr/sbin/unbound-",
    "usr/share/bash-completion/",
    "usr/share/bug/",
    "usr/share/common-licenses/",
    "usr/share/doc",
    "usr/share/i18n/",
    "usr/share/info/",
    "usr/share/lintian/",
    "usr/share/locale/",
    "usr/share/man/",
    "usr/share/perl",
    "usr/share/vim/",
    "usr/share/zoneinfo/",
    "var/cache/",
    "var/lib/apt/",
    "var/lib/dpkg/",
    "var/log/",
];

/// Prepares the tree before it is packed: unpacks the kernel (a kernel that need not unpack itself boots a second
/// sooner, through the PVH entry that stock kernels have), drops modules that no experiment loads, unpacks the rest,
/// and makes what the packages' own scripts would have made.
const HOOK: &str = r#"cd "$1"
release=$(ls usr/lib/modules)
mkdir -p boot
kernel=boot/vmlinuz-$release
[ -e "$kernel" ] || kernel=usr/lib/modules/$release/vmlinuz
# The compressed kernel's place, from the boot protocol's header (Documentation/arch/x86/boot.rst).
field() { od -An -t"u$2" -j"$1" -N"$2" "$kernel" | tr -d ' '; }
start=$(( ($(field 497 1) + 1) * 512 + $(field 584 4) ))
length=$(field 588 4)
tail -c "+$((start + 1))" "$kernel" | head -c "$length" >boot/payload
case $(od -An -tx1 -N4 boot/payload | tr -d ' ') in
02214c18) unpack="lz4 -d -c" ;;
28b52ffd) unpack="zstd -d -c" ;;
fd377a58) unpack="xz -d -c --single-stream" ;;
*) echo "tarn: $kernel is compressed in a way that is not known" >&2; exit 1 ;;
esac
# The unpacked size follows the compressed data, which each of these takes for an error behind a good end.
size=$(tail -c 4 boot/payload | od -An -tu4 | tr -d ' ')
chroot . $unpack boot/payload >boot/vmlinux 2>boot/errors || true
if [ "$(wc -c <boot/vmlinux)" -ne "$size" ]; then
    cat boot/errors >&2
    exit 1
fi
cd "usr/lib/modules/$release/kernel"
find . -type f -name '*.ko*' | grep -vE '^\./(@MODULES@)[./]' | xargs -r rm
find . -type f -name '*.ko*' | grep -E '^\./(@LEFT_OUT@)' | xargs -r rm
cd "$1"
find usr/lib/modules -name '*.ko.xz' | xargs -r chroot . xz --decompress
find usr/lib/modules -name '*.ko.zst' | xargs -r chroot . zstd --quiet --rm --decompress
chroot . depmod "$release"
chroot . ldconfig
ln -sf mawk usr/bin/awk
rm -f "usr/lib/modules/$release/vmlinuz" "usr/lib/modules/$release/System.map"
printf '%s' "$release" >boot/release
"#;

/// A suite's image in the cache.
#[derive(Debug, Clone)]
pub struct Image {
    /// The suite.
    pub suite: &'static Suite,
    /// The kernel's release, as `uname -r` tells it.
    pub release: String,
    directory: PathBuf,
    /// More programs, which lie over the root file system: an archive of them.
    software: Option<PathBuf>,
    /// Booted instead of the suite's own kernel.
    debug_kernel: Option<DebugKernel>,
}

impl Image {
    /// The cached image, made first where there is none or it was made from something else.
    ///
    /// `again` makes it even if it is there, to get a newer kernel.
    ///
    /// # Errors
    /// Those of fetching and unpacking the packages, and of writing to the cache.
    pub fn ensure(suite: &'static Suite, mirror: Option<&str>, again: bool, progress: &Progress) -> Result<Self> {
        let slot = Slot::new(suite.name, "image")?;
        let bootstrap = Bootstrap {
            suite,
            mirror,
            packages: package_list(suite, &[]),
            hook: hook(MODULES_LEFT_OUT),
        };
        let recipe = format!("format {FORMAT}\nleft out {LEFT_OUT:?}\n{}", bootstrap.recipe());
        let task = format!("image {suite}");
        slot.ensure(&recipe, again, &task, progress, |new| {
            make(&bootstrap, new, &task, progress)
        })
        .with_context(|| format!("cannot make the image of {suite}"))?;
        let directory = slot.path();
        let image = Self {
            suite,
            release: String::new(),
            directory,
            software: None,
            debug_kernel: None,
        };
        Ok(Self {
            release: image.own_release()?,
            ..image
        })
    }

    /// The release of the suite's own kernel.
    ///
    /// # Errors
    /// When the cache cannot be read.
    pub fn own_release(&self) -> Result<String> {
        let path = self.directory.join("release");
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The same root file system with this kernel.
    ///
    /// # Errors
    /// When the cache cannot be read.
    pub fn with_debug_kernel(self, kernel: DebugKernel) -> Result<Self> {
        Ok(Self {
            release: kernel.release()?,
            debug_kernel: Some(kernel),
            ..self
        })
    }

    /// The same with more programs: those of an archive that lies over its root file system (see [`super::software`]).
    pub fn with_software(self, archive: PathBuf) -> Self {
        Self {
            software: Some(archive),
            ..self
        }
    }

    /// The debug kernel, if it boots one.
    pub fn debug_kernel(&self) -> Option<&DebugKernel> {
        self.debug_kernel.as_ref()
    }

    /// The memory that a guest of it has, in MiB.
    pub fn memory(&self) -> u32 {
        match self.debug_kernel {
            Some(_) => debug::MEMORY,
            None => MEMORY,
        }
    }

    /// The kernel, as `-kernel` takes it.
    pub fn kernel(&self) -> PathBuf {
        match &self.debug_kernel {
            Some(kernel) => kernel.kernel(),
            None => self.directory.join("vmlinux"),
        }
    }

    /// The root file system of every guest: an uncompressed cpio archive.
    pub fn base(&self) -> PathBuf {
        self.directory.join("base.cpio")
    }

    /// The archives that make up the root file system, one over the other.
    pub fn archives(&self) -> Vec<PathBuf> {
        [self.base()].into_iter().chain(self.software.clone()).collect()
    }
}

/// What a suite's image is made of, and `more`.
pub fn package_list(suite: &Suite, more: &[&str]) -> Vec<String> {
    let packages = PACKAGES.iter().chain(TOOLS).chain(SOFTWARE).chain(more);
    let packages = packages.map(ToString::to_string);
    let mut list: Vec<String> = packages.chain([suite.package("linux-image-cloud-amd64")]).collect();
    list.sort();
    list
}

/// The script that prepares the tree, with these modules left out.
pub fn hook(modules_left_out: &[&str]) -> String {
    HOOK.replace("@MODULES@", &MODULES.join("|"))
        .replace("@LEFT_OUT@", &modules_left_out.join("|"))
}

fn make(bootstrap: &Bootstrap, directory: &Path, task: &str, progress: &Progress) -> Result<()> {
    let mut archive = bootstrap.run(directory, task, progress, |stream| Archive::from_tar(stream, is_wanted))?;
    let mut taken = |path: &str| {
        archive
            .take_file(path)
            .with_context(|| format!("the packages hold no {path}"))
    };
    let (kernel, release) = (taken("boot/vmlinux")?, taken("boot/release")?);
    if !kernel.starts_with(b"\x7fELF") {
        bail!("the kernel could not be unpacked");
    }
    progress.show(&Step {
        task,
        doing: "writing",
        fraction: 0.95,
        detail: "",
    });
    furnish(&mut archive);
    let written = || -> Result<()> {
        fs::write(directory.join("vmlinux"), kernel)?;
        fs::write(directory.join("release"), release)?;
        let mut base = BufWriter::new(File::create(directory.join("base.cpio"))?);
        archive.write(&mut base)?;
        Ok(base.flush()?)
    };
    written().with_context(|| cannot_write(directory))
}

fn is_wanted(path: &str) -> bool {
    path == "boot/vmlinux" || path == "boot/release" || is_kept(path)
}

/// Adds what an installation makes and no package brings.
fn furnish(archive: &mut Archive) {
    for directory in [
        "dev",
        "proc",
        "root",
        "run",
        "sys",
        "var/lib/nginx",
        "var/log",
        "var/log/nginx",
    ] {
        archive.directory(directory, 0o755);
    }
    archive.directory("tmp", 0o1777);
    // The kernel opens it for /init before anything is mounted.
    archive.character_device("dev/console", 0o600, 5, 1);
    archive.file(
        "etc/passwd",
        0o644,
        "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534:sshd:/run/sshd:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    );
    archive.file("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n");
    archive.file("etc/hosts", 0o644, "127.0.0.1 localhost\n::1 localhost\n");
    archive.file("etc/hostname", 0o644, "lab\n");
}

/// Whether a path of the unpacked packages goes into the root file system.
pub fn is_kept(path: &str) -> bool {
    !LEFT_OUT.iter().any(|pattern| match pattern.strip_prefix('*') {
        Some(ending) => path.ends_with(ending),
        None => path.starts_with(pattern),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these is used by an experiment or a test; without it the guest is of no use.
    #[test]
    fn what_the_guest_needs_is_kept() {
        for path in [
            "bin",
            "usr/bin/bash",
            "usr/sbin/nft",
            "usr/lib/x86_64-linux-gnu/libc.so.6",
            "usr/lib64/ld-linux-x86-64.so.2",
            "etc/ld.so.cache",
            "usr/lib/modules/6.12.0/kernel/net/sched/sch_netem.ko",
            "usr/lib/modules/6.12.0/modules.dep.bin",
            "var/lib",
        ] {
            assert!(is_kept(path), "{path}");
        }
    }

    /// Each of these costs time at every boot and serves nobody.
    #[test]
    fn what_nobody_uses_is_left_out() {
        for path in [
            "boot/vmlinuz-6.12.0",
            "usr/share/doc/bash/changelog.gz",
            "usr/lib/udev/hwdb.d/20-OUI.hwdb",
            "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-257.so",
            "usr/share/locale/de/LC_MESSAGES/coreutils.mo",
        ] {
            assert!(!is_kept(path), "{path}");
        }
    }

    #[test]
    fn backports_bring_the_kernel_alone() {
        let list = package_list(Suite::named("trixie-backports").unwrap(), &["vegeta"]);
        assert!(list.contains(&"linux-image-cloud-amd64/trixie-backports".to_owned()));
        assert!(list.contains(&"haproxy".to_owned()));
        assert!(list.contains(&"vegeta".to_owned()));
        assert_eq!(list.iter().filter(|package| *package == "bash").count(), 1);
        assert_eq!(list.iter().filter(|package| package.contains("backports")).count(), 1);
    }
}
