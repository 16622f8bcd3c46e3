//! Why traffic moves, and how that is said.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

/// Why traffic moves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Nothing was chosen before.
    Begin,
    /// The device is gone, down, or without a carrier, or its gateway is not known.
    Gone(String),
    /// No target answers.
    Silent(String),
    /// Answers fail to come, and may be late or lost: for how long nothing has come, and what was to be expected, in microseconds.
    Missing(String, u64, u64),
    /// It is slow at this moment: what it takes now, and what was to be expected, in microseconds.
    Slow(String, u64, u64),
    /// Another one is calmer: the scores of the new one and the old one, in microseconds.
    Calmer(String, u64, String, u64),
    /// Another one has less to send: the loads of the new one and the old one, in bytes a second, costs included.
    LessBusy(String, u64, String, u64),
    /// It is well again.
    Back(String),
    /// Shares follow the scores.
    Shares,
    /// The policy was changed by command.
    Set,
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kilo = |bytes: &u64| *bytes as f64 / 1e3;
        let ms = |us: &u64| *us as f64 / 1e3;
        match self {
            Self::Begin => f.write_str("the first choice"),
            Self::Gone(name) => write!(
                f,
                "{name} cannot send: gone, down, without a carrier, or without a gateway"
            ),
            Self::Silent(name) => write!(f, "{name} is silent: no target answers"),
            Self::Missing(name, waited, expected) => {
                write!(
                    f,
                    "{name} answers late or not at all: nothing for {:.1} ms, expected within {:.1} ms",
                    ms(waited),
                    ms(expected)
                )
            }
            Self::Slow(name, now, expected) => {
                write!(
                    f,
                    "{name} is slow now: {:.1} ms, expected {:.1} ms at most",
                    ms(now),
                    ms(expected)
                )
            }
            Self::Calmer(new, score, old, than) => {
                write!(
                    f,
                    "{new} is calmer: score {:.1} ms, {old} has {:.1} ms",
                    ms(score),
                    ms(than)
                )
            }
            Self::LessBusy(new, load, old, than) => {
                write!(
                    f,
                    "{new} is less busy: {:.1} kB/s, {old} has {:.1} kB/s",
                    kilo(load),
                    kilo(than)
                )
            }
            Self::Back(name) => write!(f, "{name} is well again"),
            Self::Shares => f.write_str("the scores have changed"),
            Self::Set => f.write_str("the policy was changed"),
        }
    }
}
