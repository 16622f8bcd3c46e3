//! Keeps CPUs from sleeping deeply: an interrupt would wait for them to wake up.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::STAGE;
use tarn_base::output::{Priority, log_at};

/// The kernel's limit for all CPUs (Documentation/power/pm_qos_interface.rst), in force while the file is open.
const FILE: &str = "/dev/cpu_dma_latency";
/// In us, as long as a wake-up may take: the first state of sleep (C1, 1 or 2 us) is allowed, deeper ones (from 10 us) are not.
const LATENCY_US: i32 = 5;

/// The first CPU's idle states, one directory each (Documentation/admin-guide/pm/cpuidle.rst).
const STATES: &str = "/sys/devices/system/cpu/cpu0/cpuidle";

/// How deeply CPUs sleep, for people.
pub fn idle_states() -> String {
    match deepest(Path::new(STATES)) {
        None => "the kernel knows none: the hypervisor, or nobody, has CPUs sleep".to_owned(),
        Some((name, latency)) if latency > LATENCY_US as u32 => {
            format!("{name} takes {latency} us to wake up from: profile = \"timely\" keeps CPUs out of it")
        }
        Some((name, latency)) => {
            format!("{name}, the deepest, takes {latency} us to wake up from: nothing is to be done")
        }
    }
}

/// The name of the enabled state that takes longest to wake up from, and how long, in us.
fn deepest(states: &Path) -> Option<(String, u32)> {
    let state = |directory: fs::DirEntry| {
        let read = |file| fs::read_to_string(directory.path().join(file)).ok();
        let is_enabled = read("disable")?.trim() == "0";
        let latency = read("latency")?.trim().parse().ok()?;
        is_enabled.then_some((read("name")?.trim().to_owned(), latency))
    };
    let states = fs::read_dir(states).ok()?.flatten().filter_map(state);
    states.max_by_key(|(_, latency)| *latency)
}

/// CPUs are kept awake as long as this lives, also when the process is killed; `None` where the kernel does not do that.
pub fn stay_awake() -> Option<File> {
    let limit = || {
        let mut file = File::options().write(true).open(FILE)?;
        file.write_all(&LATENCY_US.to_ne_bytes())?;
        Ok::<_, std::io::Error>(file)
    };
    let noted = |error: &std::io::Error| {
        log_at(
            Priority::Notice,
            STAGE,
            format!("{FILE}: {error}: CPUs sleep as deeply as before"),
        );
    };
    limit().inspect_err(noted).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who wonders where half a millisecond goes finds the state that the CPUs do wake up from, not one that is switched off.
    #[test]
    fn the_deepest_idle_state_in_use_is_found() {
        let states = tempfile::tempdir().unwrap();
        assert_eq!(deepest(&states.path().join("none")), None);
        assert_eq!(deepest(states.path()), None);
        for (number, name, latency, disable) in [
            (0, "POLL", 0, 0),
            (1, "C1", 2, 0),
            (2, "C6", 133, 0),
            (3, "C10", 890, 1),
        ] {
            let directory = states.path().join(format!("state{number}"));
            fs::create_dir(&directory).unwrap();
            let values = [
                ("name", name.to_owned()),
                ("latency", latency.to_string()),
                ("disable", disable.to_string()),
            ];
            values
                .iter()
                .for_each(|(file, value)| fs::write(directory.join(file), format!("{value}\n")).unwrap());
        }
        assert_eq!(deepest(states.path()), Some(("C6".to_owned(), 133)));
    }
}
