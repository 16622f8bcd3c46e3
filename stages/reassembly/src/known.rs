//! What tarn has set, in the state directory: what runs with other settings was set by somebody else since.

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};

use super::module::{MODULE, Module, Settings};
use tarn_base::{size, time};
use tarn_frame::state::StateDirectory;
use tarn_frame::up;

/// The file in the state directory.
pub const FILE: &str = "reassembly.json";

/// What tarn has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The settings.
    pub settings: Settings,
    /// What ran before, which runs on after a crash in between.
    pub before: Option<Settings>,
}

impl Known {
    /// What is up in this namespace; `None` when nothing is.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged.
    pub fn load(state: &StateDirectory) -> Result<Option<Self>> {
        state.read_json(FILE)
    }

    /// Remembers it.
    ///
    /// # Errors
    /// A full disk, no rights.
    fn save(&self, state: &StateDirectory) -> Result<()> {
        state.write_json(FILE, self)
    }

    /// Has the module begin with these settings, or change what runs to them, but for what somebody else has set since
    /// `known`. Returns a line for each of those.
    ///
    /// # Errors
    /// The kernel's, or a full disk; then all is as it was.
    pub fn begin(
        known: Option<&Self>,
        settings: Settings,
        state: &StateDirectory,
        module: &mut Module,
    ) -> Result<Vec<String>> {
        let running = module.state()?.map(|running| running.settings);
        let respected = match (known, running) {
            (Some(known), Some(running)) => known.respecting(settings, running),
            (_, before) => Respected {
                settings,
                before,
                left_alone: Vec::new(),
            },
        };
        let before = respected.before;
        Self { settings, before }.put(known, &respected.settings, state, module)?;
        Ok(respected.left_alone)
    }

    /// Changes what runs, whoever has set it.
    ///
    /// # Errors
    /// Nothing runs, the kernel's, or a full disk; then all is as it was.
    pub fn change(&self, change: impl Fn(&mut Settings), state: &StateDirectory, module: &mut Module) -> Result<()> {
        let running = module.state()?.ok_or_else(stopped)?;
        let mut settings = self.settings;
        let mut respected = self.respecting(settings, running.settings);
        change(&mut settings);
        change(&mut respected.settings);
        let before = respected.before;
        Self { settings, before }.put(Some(self), &respected.settings, state, module)
    }

    /// Remembers itself in the place of `known`, and has the module take `settings`.
    fn put(
        &self,
        known: Option<&Self>,
        settings: &Settings,
        state: &StateDirectory,
        module: &mut Module,
    ) -> Result<()> {
        self.save(state)?;
        module.set(settings).map_err(|error| {
            let restored = known.map_or_else(|| state.remove_files(&[FILE]), |known| known.save(state));
            up::gone_on(error, restored)
        })
    }

    /// The settings wanted, but for those that run with a value that tarn has not set.
    fn respecting(&self, wanted: Settings, running: Settings) -> Respected {
        let (mut settings, mut before, mut left_alone) = (wanted, running, Vec::new());
        let (ours, or) = (self.settings, self.before.unwrap_or(self.settings));
        let mut tell = |name: &str, value: String| {
            left_alone.push(format!("{name} was set to {value} by someone else since: left alone"));
        };
        if is_kept(&mut settings.memory, &mut before.memory, [ours.memory, or.memory]) {
            tell("memory", size::text(settings.memory));
        }
        if is_kept(&mut settings.share, &mut before.share, [ours.share, or.share]) {
            tell("share", format!("1/{}", settings.share));
        }
        if is_kept(
            &mut settings.timeout4,
            &mut before.timeout4,
            [ours.timeout4, or.timeout4],
        ) {
            tell("the timeout of IPv4", time::text(settings.timeout4));
        }
        if is_kept(
            &mut settings.timeout6,
            &mut before.timeout6,
            [ours.timeout6, or.timeout6],
        ) {
            tell("the timeout of IPv6", time::text(settings.timeout6));
        }
        if is_kept(
            &mut settings.datagrams,
            &mut before.datagrams,
            [ours.datagrams, or.datagrams],
        ) {
            tell("datagrams", settings.datagrams.to_string());
        }
        Respected {
            settings,
            before: Some(before),
            left_alone,
        }
    }
}

/// The error of a verb that needs what somebody else has stopped.
pub fn stopped() -> anyhow::Error {
    anyhow!(
        "{} was stopped by someone else: `tarn up` has it reassemble again",
        MODULE.name
    )
}

/// What becomes of settings where somebody else has changed some.
#[derive(Debug, PartialEq, Eq)]
struct Respected {
    /// To be set.
    settings: Settings,
    /// What runs, without what somebody else has set: a later `up` must not take that for tarn's.
    before: Option<Settings>,
    /// A line for each value of somebody else's.
    left_alone: Vec<String>,
}

/// Keeps a value that runs, if it is neither wanted nor one of `ours`. `running` becomes ours then.
fn is_kept<T: PartialEq + Copy>(wanted: &mut T, running: &mut T, ours: [T; 2]) -> bool {
    if running == wanted || ours.contains(running) {
        return false;
    }
    (*wanted, *running) = (*running, ours[0]);
    true
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::module::Datagrams;
    use crate::module::tests::SETTINGS;

    const WANTED: Settings = Settings {
        memory: 8 << 20,
        share: 16,
        timeout4: Duration::from_secs(1),
        timeout6: Duration::from_secs(1),
        datagrams: Datagrams::Host,
    };

    const KNOWN: Known = Known {
        settings: SETTINGS,
        before: None,
    };

    #[test]
    fn a_changed_file_is_taken_where_nobody_has_interfered() {
        let respected = KNOWN.respecting(WANTED, SETTINGS);
        assert_eq!((respected.settings, respected.before), (WANTED, Some(SETTINGS)));
        assert!(respected.left_alone.is_empty());
    }

    /// "The administrator wins": a value that somebody has set by other means stays, and the log has one line.
    #[test]
    fn what_somebody_else_has_set_stays_however_often_tarn_comes_up() {
        let mut running = Settings {
            memory: 64 << 20,
            datagrams: Datagrams::All,
            ..SETTINGS
        };
        let mut known = KNOWN;
        for wanted in [WANTED, SETTINGS, WANTED] {
            let Respected {
                settings,
                before,
                left_alone,
            } = known.respecting(wanted, running);
            let expected = Settings {
                memory: 64 << 20,
                datagrams: Datagrams::All,
                ..wanted
            };
            assert_eq!(settings, expected);
            assert_eq!(
                left_alone[0],
                "memory was set to 64MiB by someone else since: left alone"
            );
            assert_eq!(left_alone.len(), 2);
            known = Known {
                settings: wanted,
                before,
            };
            running = settings;
        }
    }

    /// What tarn was about to change when it died is not taken for somebody else's.
    #[test]
    fn after_a_crash_in_between_the_settings_are_tarn_s() {
        let known = Known {
            settings: WANTED,
            before: Some(SETTINGS),
        };
        let third = Settings { share: 4, ..WANTED };
        for running in [SETTINGS, WANTED] {
            let respected = known.respecting(third, running);
            assert_eq!((respected.settings, respected.left_alone.len()), (third, 0));
        }
    }
}
