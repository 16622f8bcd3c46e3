//! The Debian suites whose stock kernels the lab boots.

use std::fmt;

use clap::builder::PossibleValuesParser;

/// A Debian suite and where its kernel comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suite {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// The release that the packages come from.
    pub release: &'static str,
    /// A further suite whose newer packages are preferred.
    pub backports: Option<&'static str>,
    /// The kernel that it brings, for people.
    pub kernel: &'static str,
}

/// Every suite, oldest kernel first.
pub static SUITES: &[Suite] = &[
    Suite {
        name: "bookworm",
        release: "bookworm",
        backports: None,
        kernel: "6.1",
    },
    Suite {
        name: "trixie",
        release: "trixie",
        backports: None,
        kernel: "6.12",
    },
    Suite {
        name: "trixie-backports",
        release: "trixie",
        backports: Some("trixie-backports"),
        kernel: "the newest that Debian has",
    },
];

/// The suite taken where none is named.
pub const DEFAULT: &str = "trixie";

impl Suite {
    /// The suite of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SUITES.iter().find(|suite| suite.name == name)
    }

    /// A package as apt takes it, from the suite's backports where it has some.
    pub fn package(&self, name: &str) -> String {
        match self.backports {
            Some(backports) => format!("{name}/{backports}"),
            None => name.to_owned(),
        }
    }

    /// Accepts the suites' names on the command line.
    pub fn parser() -> PossibleValuesParser {
        PossibleValuesParser::new(SUITES.iter().map(|suite| suite.name))
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}
