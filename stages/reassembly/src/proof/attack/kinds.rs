//! Which attacks there are, and how their cases are called.

use std::fmt;

use super::super::scene::Contender;
use tarn_lab::experiment::Size;

/// What the attacker sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// First fragments, whose rest never comes.
    FirstOnly,
    /// Datagrams of eight fragments without one of them.
    AllButOne,
    /// Fragments that overlap, which end a datagram, and one behind them, which begins another.
    Overlapping,
    /// Fragments of 8 bytes with gaps between.
    Tiny,
}

/// What else is different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Nothing.
    Plain,
    /// The attacker uses the legitimate sender's address.
    Spoofed,
    /// The legitimate packets are a tunnel's, of two fragments.
    Tunnel,
    /// Every legitimate datagram comes from an address that has never sent one.
    Strangers,
    /// The attacker sends ten times as many fragments, of 64 bytes.
    Flood,
}

/// An attack, and the datagrams that have to survive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attack {
    pub kind: Kind,
    /// Addresses that the attacker uses.
    pub sources: u32,
    /// From a legitimate datagram's first fragment to its last, ms.
    pub spread_ms: u64,
    pub variant: Variant,
    pub is_v6: bool,
}

const MANY: u32 = 10_000;
const SPREADS_MS: [u64; 4] = [1, 10, 100, 400];

impl Kind {
    const ALL: [Self; 4] = [Self::FirstOnly, Self::AllButOne, Self::Overlapping, Self::Tiny];

    fn name(self) -> &'static str {
        match self {
            Self::FirstOnly => "first-only",
            Self::AllButOne => "all-but-one",
            Self::Overlapping => "overlapping",
            Self::Tiny => "tiny",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::FirstOnly => "first fragments only",
            Self::AllButOne => "all fragments but one",
            Self::Overlapping => "overlapping fragments",
            Self::Tiny => "tiny fragments",
        }
    }
}

impl Variant {
    fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Spoofed => "-spoofed",
            Self::Tunnel => "-tunnel",
            Self::Strangers => "-strangers",
            Self::Flood => "-flood",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Spoofed => ", of the sender's address",
            Self::Tunnel => ", a tunnel",
            Self::Strangers => ", unknown senders",
            Self::Flood => ", ten times as many",
        }
    }
}

/// `first-only-10000-10ms`
impl fmt::Display for Attack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.is_v6 { "-v6" } else { "" };
        let Self {
            kind,
            sources,
            spread_ms,
            variant,
            ..
        } = self;
        write!(
            formatter,
            "{}-{sources}-{spread_ms}ms{}{family}",
            kind.name(),
            variant.suffix()
        )
    }
}

impl Attack {
    const fn plain(kind: Kind, sources: u32, spread_ms: u64) -> Self {
        Self {
            kind,
            sources,
            spread_ms,
            variant: Variant::Plain,
            is_v6: false,
        }
    }

    const fn with(self, variant: Variant) -> Self {
        Self { variant, ..self }
    }

    const fn v6(self) -> Self {
        Self { is_v6: true, ..self }
    }

    /// `tarn-first-only-10000-10ms`
    pub fn case(&self, contender: Contender) -> String {
        format!("{}-{self}", contender.name())
    }

    /// What a reader is told.
    pub fn title(&self, contender: Contender) -> String {
        let sources = if self.sources == 1 {
            "one source".to_owned()
        } else {
            format!("{} sources", self.sources)
        };
        let family = if self.is_v6 { ", IPv6" } else { "" };
        format!(
            "{}: {}, {sources}, {} ms{}{family}",
            contender.title(),
            self.kind.title(),
            self.spread_ms,
            self.variant.title()
        )
    }

    /// Whether the goal is that 99.9 % complete.
    pub fn is_promised(&self) -> bool {
        let is_named = matches!(self.kind, Kind::FirstOnly | Kind::AllButOne);
        match self.variant {
            Variant::Spoofed | Variant::Flood => false,
            // Against one source, or up to 10 ms.
            Variant::Strangers => is_named && (self.spread_ms <= 10 || self.sources == 1),
            Variant::Plain | Variant::Tunnel => is_named,
        }
    }
}

/// The attacks of the quick size; the first one is plotted over time.
pub static QUICK: [Attack; 24] = [
    Attack::plain(Kind::FirstOnly, MANY, 10),
    Attack::plain(Kind::FirstOnly, MANY, 1),
    Attack::plain(Kind::FirstOnly, MANY, 100),
    Attack::plain(Kind::FirstOnly, MANY, 400),
    Attack::plain(Kind::FirstOnly, 1, 1),
    Attack::plain(Kind::FirstOnly, 1, 10),
    Attack::plain(Kind::FirstOnly, 1, 100),
    Attack::plain(Kind::FirstOnly, 1, 400),
    Attack::plain(Kind::AllButOne, MANY, 10),
    Attack::plain(Kind::AllButOne, MANY, 400),
    Attack::plain(Kind::AllButOne, 1, 10),
    Attack::plain(Kind::AllButOne, 1, 400),
    Attack::plain(Kind::Overlapping, MANY, 10),
    Attack::plain(Kind::Overlapping, 1, 10),
    Attack::plain(Kind::Tiny, MANY, 10),
    Attack::plain(Kind::Tiny, 1, 10),
    Attack::plain(Kind::FirstOnly, 1, 10).with(Variant::Spoofed),
    Attack::plain(Kind::AllButOne, 1, 10).with(Variant::Spoofed),
    Attack::plain(Kind::FirstOnly, 1, 100).with(Variant::Spoofed),
    Attack::plain(Kind::FirstOnly, MANY, 10).with(Variant::Tunnel),
    Attack::plain(Kind::FirstOnly, MANY, 10).with(Variant::Strangers),
    Attack::plain(Kind::FirstOnly, MANY, 400).with(Variant::Strangers),
    Attack::plain(Kind::FirstOnly, MANY, 10).with(Variant::Flood),
    Attack::plain(Kind::FirstOnly, MANY, 10).v6(),
];

/// Those of them that are promised something, for the plot.
pub static PROMISED_NAMES: &[&str] = &[
    "first-only-10000-10ms",
    "first-only-10000-1ms",
    "first-only-10000-100ms",
    "first-only-10000-400ms",
    "first-only-1-1ms",
    "first-only-1-10ms",
    "first-only-1-100ms",
    "first-only-1-400ms",
    "all-but-one-10000-10ms",
    "all-but-one-10000-400ms",
    "all-but-one-1-10ms",
    "all-but-one-1-400ms",
    "first-only-10000-10ms-tunnel",
    "first-only-10000-10ms-strangers",
    "first-only-10000-10ms-v6",
];

/// In the order of [`PROMISED_NAMES`].
pub fn promised() -> impl Iterator<Item = &'static Attack> {
    QUICK.iter().filter(|attack| attack.is_promised())
}

/// The attacks of a size.
pub fn attacks(size: Size) -> Vec<Attack> {
    let mut all = QUICK.to_vec();
    if size != Size::Full {
        return all;
    }
    for spread_ms in SPREADS_MS {
        for kind in Kind::ALL {
            all.extend([1, MANY].map(|sources| Attack::plain(kind, sources, spread_ms)));
        }
        for kind in [Kind::FirstOnly, Kind::AllButOne] {
            let one = Attack::plain(kind, 1, spread_ms);
            let many = Attack::plain(kind, MANY, spread_ms);
            all.extend([one.with(Variant::Spoofed), many.with(Variant::Strangers), many.v6()]);
        }
    }
    for sources in [1, MANY] {
        all.extend(
            [Kind::FirstOnly, Kind::AllButOne].map(|kind| Attack::plain(kind, sources, 10).with(Variant::Tunnel)),
        );
    }
    let mut known: Vec<Attack> = Vec::new();
    for attack in all {
        if !known.contains(&attack) {
            known.push(attack);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a plot would show a figure beside the name of another attack.
    #[test]
    fn the_plot_names_the_attacks_in_their_order() {
        let names: Vec<String> = promised().map(ToString::to_string).collect();
        assert_eq!(names, PROMISED_NAMES);
    }

    #[test]
    fn every_attack_has_a_name_of_its_own() {
        let mut names: Vec<String> = attacks(Size::Full).iter().map(ToString::to_string).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(names.contains(&"all-but-one-1-10ms-tunnel".to_owned()));
    }
}
