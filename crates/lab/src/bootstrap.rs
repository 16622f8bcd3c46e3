//! Has mmdebstrap fetch and unpack Debian packages, without installing them: no maintainer script runs, so nothing
//! depends on the day or the host, and nothing needs root. What the scripts would have made and the lab needs
//! (module dependencies, the linker's cache) is made by hooks.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::Signal;

use super::progress::{Progress, Step};
use super::sandbox;
use super::suite::Suite;
use tarn_base::error::Unsupported;

/// Makes `/bin` and its like links into `/usr` before anything is unpacked, as every Debian installation has them.
/// A suite's backports are added at the mirror that mmdebstrap chose for the suite itself.
const SETUP: &str = r#"for directory in bin sbin lib lib64; do
    mkdir -p "$1/usr/$directory"
    ln -s "usr/$directory" "$1/$directory"
done
if [ -n "@BACKPORTS@" ]; then
    sed -n 's/ @RELEASE@ / @BACKPORTS@ /p' "$1/etc/apt/sources.list" >"$1/etc/apt/sources.list.d/backports.list"
fi
"#;

/// mmdebstrap's own log lines, what they mean to a person, and how much of the whole is done by then.
const PHASES: &[(&str, &str, f64)] = &[
    ("I: running apt-get update", "reading the package lists", 0.05),
    ("I: downloading packages", "downloading packages", 0.15),
    ("I: extracting archives", "unpacking packages", 0.60),
    (
        "I: running --extract-hook",
        "preparing the kernel and its modules",
        0.75,
    ),
    ("I: creating tarball", "packing", 0.85),
];

/// What to fetch.
#[derive(Debug, Clone)]
pub struct Bootstrap<'a> {
    /// The suite.
    pub suite: &'a Suite,
    /// A mirror instead of mmdebstrap's default.
    pub mirror: Option<&'a str>,
    /// Debian packages, each as apt takes it; their dependencies come too.
    pub packages: Vec<String>,
    /// A shell script that is run when everything is unpacked, with the tree's root as `$1`.
    pub hook: String,
}

impl Bootstrap<'_> {
    /// Everything that decides what comes out, as text. The mirror does not: all have the same packages.
    pub fn recipe(&self) -> String {
        format!(
            "suite {}\npackages {}\n{}{}",
            self.suite,
            self.packages.join(" "),
            self.setup(),
            self.hook
        )
    }

    /// Fetches and unpacks, and hands `read` the tree as a tar stream. `scratch` is a directory on a disk with room
    /// for the unpacked tree.
    ///
    /// # Errors
    /// [`Unsupported`] when this host lacks something that can be installed; otherwise the network's, mmdebstrap's
    /// or those of `read`.
    pub fn run<T>(
        &self,
        scratch: &Path,
        task: &str,
        progress: &Progress,
        read: impl FnOnce(&mut dyn Read) -> Result<T>,
    ) -> Result<T> {
        let mut child = self.start(scratch)?;
        let (Some(mut stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            bail!("mmdebstrap has no output");
        };
        let (result, log) = thread::scope(|scope| {
            let log = scope.spawn(|| follow(stderr, task, progress));
            let result = read(&mut stdout);
            // What mmdebstrap writes behind the end of the archive, so that it can end.
            let _ = std::io::copy(&mut stdout, &mut std::io::sink());
            (result, log.join().unwrap_or_default())
        });
        match child.wait().context("cannot wait for mmdebstrap")?.success() {
            true => result,
            false => Err(explain(&log)),
        }
    }

    fn start(&self, scratch: &Path) -> Result<Child> {
        let mut command = match unpacking()? {
            Unpacking::AsRoot => {
                let mut command = sandbox::command("mmdebstrap");
                command.arg("--mode=root").env("TMPDIR", scratch);
                command
            }
            Unpacking::WithHelper => {
                let mut command = Command::new("mmdebstrap");
                command.arg("--mode=unshare");
                sandbox::die_with_parent(&mut command, Signal::SIGTERM);
                command
            }
        };
        command.args(["--variant=extract", "--skip=chroot/mount", "--format=tar"]);
        // Packages are unpacked as the only user that a namespace of one user has.
        command
            .env("TAR_OPTIONS", "--no-same-owner")
            .arg("--aptopt=APT::Sandbox::User \"root\"");
        // Somebody without a network should hear about it now, not in five minutes.
        command.args([
            "--aptopt=Acquire::http::Timeout \"10\"",
            "--aptopt=Acquire::Retries \"1\"",
        ]);
        command.arg(format!("--include={}", self.packages.join(",")));
        // The scripts are in the environment, because mmdebstrap repeats its arguments in its log.
        for (hook, script) in [("setup", &self.setup()), ("extract", &self.hook)] {
            command.env(format!("tarn_{hook}"), script);
            command.arg(format!("--{hook}-hook=sh -euc \"$tarn_{hook}\" {hook} \"$1\""));
        }
        command.args([self.suite.release, "-"]).args(self.mirror);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().context("cannot start mmdebstrap")
    }

    fn setup(&self) -> String {
        SETUP
            .replace("@RELEASE@", self.suite.release)
            .replace("@BACKPORTS@", self.suite.backports.unwrap_or_default())
    }
}

/// How mmdebstrap becomes root over what it unpacks.
enum Unpacking {
    /// It is root already, or in a namespace that this program makes.
    AsRoot,
    /// It makes a namespace itself, with `newuidmap`. Some hosts (Ubuntu since 23.10) let it, and not us.
    WithHelper,
}

/// How this host lets us unpack Debian packages.
///
/// # Errors
/// [`Unsupported`], with what to install or to allow.
fn unpacking() -> Result<Unpacking> {
    let needed = [
        ("/usr/bin/mmdebstrap", "mmdebstrap"),
        (
            "/usr/share/keyrings/debian-archive-keyring.gpg",
            "debian-archive-keyring",
        ),
    ];
    let missing = needed.iter().filter(|(path, _)| !Path::new(path).exists());
    let packages = missing.map(|(_, package)| *package).collect::<Vec<_>>().join(" ");
    if !packages.is_empty() {
        return Err(Unsupported(format!("the lab needs {packages}: apt-get install {packages}")).into());
    }
    match sandbox::check() {
        Ok(()) => Ok(Unpacking::AsRoot),
        Err(_) if helper_works() => Ok(Unpacking::WithHelper),
        Err(error) => Err(error),
    }
}

fn helper_works() -> bool {
    let tried = Command::new("mmdebstrap")
        .args(["--unshare-helper", "true"])
        .stdin(Stdio::null())
        .output();
    tried.is_ok_and(|output| output.status.success())
}

/// Shows the phases that mmdebstrap reports, and returns all it said.
fn follow(stderr: ChildStderr, task: &str, progress: &Progress) -> Vec<String> {
    let mut log = Vec::new();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if let Some((_, doing, fraction)) = PHASES.iter().find(|(start, _, _)| line.starts_with(start)) {
            progress.show(&Step {
                task,
                doing,
                fraction: *fraction,
                detail: "",
            });
        }
        log.push(line);
    }
    log
}

/// What went wrong, from mmdebstrap's own words.
fn explain(log: &[String]) -> anyhow::Error {
    const NETWORK: &[&str] = &[
        "Could not resolve",
        "Could not connect",
        "Failed to fetch",
        "Unable to connect",
    ];
    const FULL: &[&str] = &["No space left on device", "enough free space"];
    if log.iter().any(|line| FULL.iter().any(|sign| line.contains(sign))) {
        return anyhow!(
            "the disk is full: unpacking needs about 1 GB where the lab's cache is (XDG_CACHE_HOME, ~/.cache), or in TMPDIR"
        );
    }
    if let Some(line) = log.iter().find(|line| NETWORK.iter().any(|sign| line.contains(sign))) {
        return anyhow!(
            "cannot fetch Debian packages: {}; check the network and the proxy, or name another mirror with --mirror URL",
            line.trim_start_matches("W: ").trim_start_matches("E: ")
        );
    }
    let errors = log
        .iter()
        .filter(|line| !line.starts_with("I: "))
        .cloned()
        .collect::<Vec<_>>();
    let last = errors[errors.len().saturating_sub(15)..].join("\n");
    anyhow!("mmdebstrap failed:\n{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bootstrap(mirror: Option<&str>) -> Bootstrap<'_> {
        let suite = Suite::named("trixie-backports").unwrap();
        Bootstrap {
            suite,
            mirror,
            packages: vec!["bash".into()],
            hook: "true".into(),
        }
    }

    /// Whatever decides what is in an image has to make another recipe, or an old image would be used on.
    #[test]
    fn the_recipe_tells_everything() {
        let recipe = bootstrap(None).recipe();
        for part in ["trixie-backports", "bash", "true", "sources.list.d"] {
            assert!(recipe.contains(part), "{part}");
        }
        assert_eq!(recipe, bootstrap(Some("http://mirror.example/debian")).recipe());
    }

    #[test]
    fn a_full_disk_is_named() {
        for line in [
            "E: You don't have enough free space in /tmp/x/var/cache/apt/archives/.",
            "tar: ./usr/bin/bash: Cannot write: No space left on device",
        ] {
            let message = explain(&[line.to_owned(), "E: apt-get failed".to_owned()]).to_string();
            assert!(message.starts_with("the disk is full"), "{message}");
        }
    }

    /// Without a network a person has to read what could not be reached, not a page of log.
    #[test]
    fn a_missing_network_is_named() {
        let log = [
            "I: running apt-get update...",
            "W: Failed to fetch http://deb.example/  Could not resolve 'deb.example'",
        ];
        let message = explain(&log.map(String::from)).to_string();
        assert!(
            message.starts_with("cannot fetch Debian packages: Failed to fetch http://deb.example/"),
            "{message}"
        );
        assert!(message.contains("--mirror"));
    }
}
