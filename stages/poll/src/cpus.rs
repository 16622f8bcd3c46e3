//! Which CPUs the threads that receive run on.

use std::fmt;

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::threads::is_of_a_napi;

/// The kernel thread that starts all others, which run where it may.
const KTHREADD: i32 = 2;

/// CPUs, by number, each once and the lowest first; at least one. Written as the kernel does: `0-3,6`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cpus(Vec<usize>);

impl Cpus {
    /// Those of a list; `None` where it is none, or has a number that no CPU can have (1,024).
    pub fn parse(list: &str) -> Option<Self> {
        let mut all = Vec::new();
        for range in list.trim().split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let [first, last] = [first, last].map(|number| number.trim().parse::<usize>().ok());
            let (first, last) = (first?, last?);
            if first > last || last >= CpuSet::count() {
                return None;
            }
            all.extend(first..=last);
        }
        all.sort_unstable();
        all.dedup();
        Some(Self(all))
    }

    /// Whether a thread can run here where these say.
    ///
    /// # Errors
    /// None of them is online.
    pub fn check(&self) -> Result<()> {
        let online = online()?;
        if !self.0.iter().any(|cpu| online.0.contains(cpu)) {
            bail!("cpus = \"{self}\": none of them is online; {online} are");
        }
        Ok(())
    }

    /// Has a thread of a NAPI run on these only.
    ///
    /// # Errors
    /// `EINVAL`: the kernel lets threads run on none of them, as in a control group that has others. `EPERM` without CAP_SYS_NICE.
    pub fn hold(&self, thread: i32) -> nix::Result<()> {
        match is_of_a_napi(thread) {
            true => self.set(thread),
            false => Ok(()),
        }
    }

    /// Has a thread of a NAPI run again where the kernel's own threads do. Returns false where somebody else has had it run elsewhere:
    /// that stays.
    pub fn release(&self, thread: i32) -> bool {
        !is_of_a_napi(thread) || self.reset(thread)
    }

    fn set(&self, thread: i32) -> nix::Result<()> {
        let mut set = CpuSet::new();
        self.0.iter().try_for_each(|cpu| set.set(*cpu))?;
        sched_setaffinity(Pid::from_raw(thread), &set)
    }

    fn reset(&self, thread: i32) -> bool {
        let thread = Pid::from_raw(thread);
        let (Ok(now), Ok(online)) = (sched_getaffinity(thread), online()) else {
            return true; // it has ended
        };
        // The kernel reports those of a thread's CPUs that are online.
        let is_ours = |cpu: usize| self.0.contains(&cpu) && online.0.contains(&cpu);
        if (0..CpuSet::count()).any(|cpu| now.is_set(cpu) != Ok(is_ours(cpu))) {
            return false;
        }
        let _ = of_the_kernel().set(thread.as_raw());
        true
    }
}

fn online() -> Result<Cpus> {
    const FILE: &str = "/sys/devices/system/cpu/online";
    let text = std::fs::read_to_string(FILE).with_context(|| format!("cannot read {FILE}"))?;
    Cpus::parse(&text).with_context(|| format!("{FILE} is no list of CPUs"))
}

/// Where the kernel's threads may run, also on CPUs that are offline now (proc(5), `Cpus_allowed_list`): all that are not isolated. In
/// another PID namespace they cannot be seen: all.
fn of_the_kernel() -> Cpus {
    let status = std::fs::read_to_string(format!("/proc/{KTHREADD}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_it = field("Name:") == Some("kthreadd");
    let allowed = field("Cpus_allowed_list:").filter(|_| is_it).and_then(Cpus::parse);
    allowed.unwrap_or_else(|| Cpus((0..CpuSet::count()).collect()))
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.0.chunk_by(|cpu, next| cpu + 1 == *next);
        let written = ranges.map(|range| match range {
            [first, .., last] => format!("{first}-{last}"),
            _ => range[0].to_string(),
        });
        f.write_str(&written.collect::<Vec<_>>().join(","))
    }
}

impl From<Cpus> for String {
    fn from(cpus: Cpus) -> Self {
        cpus.to_string()
    }
}

impl TryFrom<String> for Cpus {
    type Error = String;

    fn try_from(list: String) -> Result<Self, String> {
        Self::parse(&list).ok_or_else(|| format!("'{list}' is no list of CPUs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_the_kernel_writes_it() {
        for (list, written) in [
            ("0", "0"),
            ("0-3,6\n", "0-3,6"),
            ("6, 1-2,0", "0-2,6"),
            ("3,3,4", "3-4"),
            ("1023", "1023"),
        ] {
            assert_eq!(Cpus::parse(list).unwrap().to_string(), written);
        }
        for list in ["", "a", "3-1", "1024", "0-", "-1", "0,,1", "0-99999999999999999999"] {
            assert_eq!(Cpus::parse(list), None, "{list}");
        }
    }

    /// Threads on CPUs that are not there would run anywhere.
    #[test]
    fn cpus_that_are_not_online_are_refused() {
        assert!(Cpus::parse("0").unwrap().check().is_ok());
        let error = Cpus::parse("1000-1001").unwrap().check().unwrap_err().to_string();
        assert!(
            error.starts_with("cpus = \"1000-1001\": none of them is online; 0"),
            "{error}"
        );
    }

    #[test]
    fn a_thread_is_held_and_released_unless_somebody_else_has_moved_it() {
        std::thread::spawn(|| {
            let allowed = || {
                let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
                Cpus(
                    (0..CpuSet::count())
                        .filter(|cpu| set.is_set(*cpu) == Ok(true))
                        .collect(),
                )
            };
            let first = Cpus(vec![allowed().0[0]]);
            first.set(0).unwrap();
            assert_eq!(allowed(), first);
            assert!(first.reset(0));
            let released = allowed();
            // Of the kernel's, those that this process may use.
            assert!(released.0.iter().all(|cpu| of_the_kernel().0.contains(cpu)));
            assert!(!Cpus(vec![1000]).reset(0), "it was not held there");
            assert_eq!(allowed(), released);
            assert!(Cpus(vec![1000]).set(0).is_err());
        })
        .join()
        .unwrap();
    }
}
