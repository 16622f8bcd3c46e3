//! The congestion controls that are compared.

use anyhow::Result;

use crate::parameters::{RESPONSES, defaults};
use crate::registration::{NAME, Registration};
use crate::skeleton::types::pace_parameters;

/// A congestion control as connections get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The kernel's default.
    Cubic,
    /// The kernel's BBR, version 1.
    Bbr,
    /// Ours, with the response off.
    Plain,
    /// The published response, as its text has it.
    Published,
    /// The published response, as its author describes it.
    PublishedRepaired,
    /// Ours.
    Tarn,
}

impl Control {
    /// All, in the order of tables.
    pub const ALL: [Self; 6] = [
        Self::Cubic,
        Self::Bbr,
        Self::Published,
        Self::PublishedRepaired,
        Self::Plain,
        Self::Tarn,
    ];

    /// For the names of cases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Plain => "plain",
            Self::Published => "published",
            Self::PublishedRepaired => "published-repaired",
            Self::Tarn => "tarn",
        }
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Cubic => "CUBIC",
            Self::Bbr => "BBR",
            Self::Plain => "tarn, response off",
            Self::Published => "published response",
            Self::PublishedRepaired => "published response, repaired",
            Self::Tarn => "tarn",
        }
    }

    /// As the kernel knows it.
    pub fn in_kernel(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            _ => NAME,
        }
    }

    /// The parameters; `None` where it is none of ours.
    pub fn parameters(self) -> Option<pace_parameters> {
        let response = match self {
            Self::Cubic | Self::Bbr => return None,
            Self::Tarn => "tarn",
            Self::Plain => "off",
            Self::Published => "published",
            Self::PublishedRepaired => "published-repaired",
        };
        let mut parameters = defaults();
        parameters.response = self::response(response);
        Some(parameters)
    }

    /// Makes it available while the returned value lives.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn provide(self) -> Result<Provided> {
        let parameters = self.parameters();
        let registered = parameters.map(|parameters| Registration::new(&parameters, |_| Ok(())));
        Ok(Provided(registered.transpose()?))
    }
}

/// The number of a response.
pub fn response(name: &str) -> u32 {
    let known = RESPONSES.iter().find(|(known, _)| *known == name);
    known.map_or(0, |(_, number)| *number)
}

/// A congestion control that can be chosen until this is dropped.
pub struct Provided(Option<Registration>);

impl Drop for Provided {
    fn drop(&mut self) {
        if let Some(registration) = &self.0 {
            // Another case would find it registered, and say so.
            let _ = registration.remove();
        }
    }
}
