//! What the host and the guest say to each other.
//!
//! The host hands the guest one [`Job`], a file in the initramfs. The guest answers with [`Message`]s, one JSON
//! document a line, on the debug console: a port that takes a byte an instruction, synchronously. Disks, virtio
//! and network channels complete at the host's speed and would make runs differ; this one cannot.

use serde::{Deserialize, Serialize};

use super::experiment::{Measurement, Size};

/// Where the guest finds its job.
pub const JOB_PATH: &str = "/tarn/job.json";

/// The I/O port of the debug console.
pub const DEBUG_CONSOLE_PORT: u16 = 0xe9;

/// What a guest is booted for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Job {
    /// Run one experiment.
    Experiment {
        /// [`super::experiment::Experiment::name`].
        name: String,
        /// Which of its parts, from 0.
        part: usize,
        /// The seed of everything random.
        seed: u64,
        /// How much of it is wanted.
        size: Size,
        /// The name of the suite, for messages.
        suite: String,
    },
    /// Run kernel-facing tests: the program is a test harness.
    Tests {
        /// The tests, by their whole names.
        tests: Vec<String>,
        /// What they can ask about their guest.
        circumstances: Circumstances,
    },
    /// An interactive shell on the serial console.
    Shell,
}

/// What tests can ask about their guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Circumstances {
    /// The name of the suite, so that a test can tell what its kernel must have.
    pub suite: String,
    /// Whether the kernel is a debug kernel, whose checkers are asked after each test.
    pub debug: bool,
    /// Whether sweeps and loops are run at full length.
    pub thorough: bool,
    /// The seed of everything random.
    pub seed: u64,
}

/// What the guest says, in the order it happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// The guest is up.
    Started {
        /// `uname -r`.
        kernel: String,
    },
    /// How far the job is.
    Progress {
        /// The case or test that runs.
        step: String,
        /// Done, in 0..=1.
        fraction: f64,
        /// The guest's clock, in nanoseconds since its boot.
        time_ns: u64,
    },
    /// A test has ended.
    Test {
        /// Its full name.
        name: String,
        /// How it ended.
        verdict: Verdict,
        /// The reason of a skip, the output of a failure; empty otherwise.
        detail: String,
    },
    /// The experiment's result.
    Measured(Measurement),
    /// The job has ended; nothing follows.
    Ended {
        /// What failed, whole; `None` when all went well.
        error: Option<String>,
    },
}

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It held.
    Passed,
    /// It did not.
    Failed,
    /// This kernel lacks what the test needs, and may lack it.
    Skipped,
}
