//! nftables: scripts carried out by the `nft` program, tables read straight from the kernel.
//!
//! Tables, sets, chains and rules are written through `nft`, whose language is what `up --dry-run` shows and an
//! administrator can check. Elements are not: see [`batch`]. Nor is anything read through it: a million elements as text or
//! JSON would take gigabytes, and their form changed between versions.
//!
//! Everything of ours carries a comment that begins with [`MARK`], so that what someone else put into the same table
//! is told apart, and a table of the same name that someone else made is never touched.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::program;
use crate::undone::Undone;
use tarn_base::error::Unsupported;

pub mod batch;
pub mod read;

use read::Table;

/// The first word of the comment on everything that tarn puts into nftables.
pub const MARK: &str = "tarn";

/// Whether a device's name can stand between quotation marks and means that device alone: `*` at the end means all that begin so.
pub fn can_name(device: &str) -> bool {
    !device.contains(['"', '\'', '*', '\\'])
}

/// The `nft` program.
#[derive(Debug, Clone)]
pub struct Nft {
    path: PathBuf,
}

/// A script that `nft` or the kernel refused. Scripts are transactions: nothing of it was done.
#[derive(Debug, thiserror::Error)]
#[error("nftables refused a change: {message}")]
pub struct Refused {
    /// What `nft` said, its first complaint.
    pub message: String,
}

impl Nft {
    /// Finds the program.
    ///
    /// # Errors
    /// [`Unsupported`] where it is not installed.
    pub fn find() -> Result<Self> {
        let path = program::find("nft").ok_or_else(|| {
            Unsupported(
                "the program 'nft' is not installed: apt install nftables (or your distribution's package)".into(),
            )
        })?;
        Ok(Nft { path })
    }

    /// What `nft --version` says: `nftables v1.0.6 (Lester Gooch #5)`.
    ///
    /// # Errors
    /// A program that cannot be run.
    pub fn version(&self) -> Result<String> {
        let output = self.run(&["--version"], "")?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Carries a script out, whole or not at all, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`Refused`] with the reason, [`Unsupported`] without the right to.
    pub fn apply(&self, script: &str) -> Result<()> {
        judge(&self.run(&["-f", "-"], script)?)
    }

    /// Has the kernel judge a script without carrying it out.
    ///
    /// # Errors
    /// As [`Nft::apply`].
    pub fn check(&self, script: &str) -> Result<()> {
        judge(&self.run(&["--check", "-f", "-"], script)?)
    }

    /// All rules of this network namespace, as libnftables-json(5) writes them, without the elements of named sets and maps:
    /// a blocklist can have a million.
    ///
    /// # Errors
    /// As [`Nft::apply`].
    pub fn ruleset(&self) -> Result<String> {
        let output = self.run(&["--terse", "--json", "list", "ruleset"], "")?;
        judge(&output)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn run(&self, arguments: &[&str], script: &str) -> Result<Output> {
        let mut child = Command::new(&self.path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.path.display()))?;
        let stdin = child.stdin.take();
        // The script goes in on a thread of its own: nft may fill the pipe of its complaints meanwhile.
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| stdin.map_or(Ok(()), |mut pipe| pipe.write_all(script.as_bytes())));
            let output = child
                .wait_with_output()
                .with_context(|| format!("cannot wait for {}", self.path.display()));
            // An nft that ended early has said why on its standard error; a broken pipe adds nothing.
            let _ = writer.join();
            output
        })
    }
}

fn judge(output: &Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let message = complaint(&String::from_utf8_lossy(&output.stderr));
    if message.contains("Operation not permitted") {
        let text = "nftables may only be changed with CAP_NET_ADMIN: run tarn as root, as in sudo tarn up";
        return Err(Unsupported(text.to_owned()).into());
    }
    Err(Refused { message }.into())
}

/// The first complaint of `nft` and the start of the line that it is about.
fn complaint(stderr: &str) -> String {
    let mut lines = stderr.lines().filter(|line| !line.trim().is_empty());
    let Some(first) = lines.find(|line| line.contains("rror")) else {
        return match stderr.trim() {
            "" => "nft failed without a word".to_owned(),
            other => other.to_owned(),
        };
    };
    let what = first
        .split_once("Error: ")
        .map_or(first, |(_, what)| what)
        .trim_end_matches(" [invalid type]");
    match lines
        .next()
        .map(|line| line.trim().chars().take(160).collect::<String>())
    {
        Some(line) => format!("{what}: {line}"),
        None => what.to_owned(),
    }
}

/// Returns when every packet has passed that was on its way by the rules before the last change. The kernel handles a
/// packet within one RCU read-side section from its reception to its transmission or delivery; this waits for all.
pub fn settle() {
    /// `MEMBARRIER_CMD_GLOBAL`
    const GLOBAL: libc::c_int = 1;
    /// Where the kernel has no such call for us (nohz_full): longer than any packet takes.
    const LONG: Duration = Duration::from_millis(20);
    // SAFETY: the call takes numbers only.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } != 0 {
        std::thread::sleep(LONG);
    }
}

/// Takes a table away that tarn made; one that is not there is gone already, and one that someone else made is left.
///
/// Chains, sets and rules that someone else put into our table stay in it. It can be called again after a crash.
///
/// # Errors
/// A kernel or an `nft` that refuses.
pub fn delete_table(family: &str, name: &str) -> Result<Undone> {
    let Some(table) = read::table(family, name)? else {
        return Ok(Undone::Gone);
    };
    if !table.is_ours() {
        return Ok(Undone::LeftAlone("it was made by someone else".to_owned()));
    }
    let context = || format!("cannot delete the table {family} {name}");
    let nft = Nft::find().with_context(context)?;
    let contents = Table::read(family, name)?;
    let foreign = contents.foreign();
    if foreign.is_empty() {
        nft.apply(&format!("delete table {family} handle {}\n", table.handle))
            .with_context(context)?;
        return Ok(Undone::PutBack);
    }
    empty(&nft, family, name, &contents).with_context(context)?;
    let remedy = format!("'nft delete table {family} {name}' takes it away");
    Ok(Undone::LeftAlone(format!(
        "it holds what someone else added ({}); {remedy}",
        foreign.join(", ")
    )))
}

/// Takes our rules out of a table, then our chains and sets as far as nobody else uses them.
fn empty(nft: &Nft, family: &str, name: &str, contents: &Table) -> Result<()> {
    let rules = contents.rules.iter().filter(|rule| rule.object.is_ours());
    let delete = |rule: &read::Rule| {
        format!(
            "delete rule {family} {name} {} handle {}\n",
            rule.chain, rule.object.handle
        )
    };
    nft.apply(&rules.map(delete).collect::<String>())?;
    let sets = contents.sets.iter().map(|set| ("set", set));
    let chains = contents.chains.iter().map(|chain| ("chain", chain));
    // A chain goes with all rules in it.
    let kept = |name: &str| {
        contents
            .rules
            .iter()
            .any(|rule| rule.chain == name && !rule.object.is_ours())
    };
    for (kind, object) in chains
        .filter(|(_, chain)| !kept(&chain.name))
        .chain(sets)
        .filter(|(_, object)| object.is_ours())
    {
        // The kernel refuses where a rule of someone else's needs it: then it stays with that rule.
        let _ = nft.apply(&format!("delete {kind} {family} {name} {}\n", object.name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_one_line_that_says_what_and_where() {
        let said = "/dev/stdin:1:1-40: Error: Could not process rule: No such file or directory\n\
                    delete element inet tarn_redirect to4 { udp . 192.0.2.1 . 53 }\n^^^^^\n";
        let refused = Refused {
            message: complaint(said),
        };
        assert_eq!(
            refused.to_string(),
            "nftables refused a change: Could not process rule: No such file or directory: \
             delete element inet tarn_redirect to4 { udp . 192.0.2.1 . 53 }"
        );
        assert_eq!(complaint("  \n"), "nft failed without a word");
    }
}
