//! Keeps CPUs from sleeping deeply: an interrupt would wait for them to wake up.

use std::fs::File;
use std::io::Write;

use crate::STAGE;
use tarn_base::output::{Priority, log_at};

/// The kernel's limit for all CPUs (Documentation/power/pm_qos_interface.rst), in force while the file is open.
const FILE: &str = "/dev/cpu_dma_latency";
/// In us, as long as a wake-up may take: the first state of sleep (C1, 1 or 2 us) is allowed, deeper ones (from 10 us) are not.
const LATENCY_US: i32 = 5;

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
