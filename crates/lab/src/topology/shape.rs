//! What a link does to packets: delay, loss, rate.

use std::fmt::Write as _;
use std::time::Duration;

/// How packets that leave by an interface are delayed, lost and slowed down: netem's parameters. What is random in it, netem
/// draws from the kernel's own generator, which the lab's virtual machine seeds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shape {
    delay: Duration,
    jitter: Duration,
    loss_percent: f64,
    duplicate_percent: f64,
    reorder_percent: f64,
    slot: Duration,
    rate: Option<u64>,
    limit: Option<u32>,
}

impl Shape {
    /// A wire: nothing is changed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every packet waits so long.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The delay varies uniformly by so much in both directions; packets may overtake each other by it.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// This share of packets is lost, independently, in 0.0..=100.0.
    pub fn loss_percent(mut self, percent: f64) -> Self {
        self.loss_percent = percent;
        self
    }

    /// This share of packets is sent twice, in 0.0..=100.0.
    pub fn duplicate_percent(mut self, percent: f64) -> Self {
        self.duplicate_percent = percent;
        self
    }

    /// This share of packets is not delayed, in 0.0..=100.0, and overtakes those that are.
    pub fn reorder_percent(mut self, percent: f64) -> Self {
        self.reorder_percent = percent;
        self
    }

    /// Packets leave only every so often, all that have waited at once.
    pub fn slot(mut self, every: Duration) -> Self {
        self.slot = every;
        self
    }

    /// Packets leave at this many bits a second, Ethernet header included.
    pub fn rate(mut self, bits_per_second: u64) -> Self {
        self.rate = Some(bits_per_second);
        self
    }

    /// The queue holds this many packets, delayed ones included; further ones are dropped. netem's default is 1000.
    pub fn limit(mut self, packets: u32) -> Self {
        self.limit = Some(packets);
        self
    }

    /// What follows `tc`, to add it to an interface or to change that.
    pub(super) fn command(&self, verb: &str, interface: &str) -> String {
        format!("qdisc {verb} dev {interface} root handle 1: {}", self.netem())
    }

    /// The qdisc and its parameters, as tc wants them.
    fn netem(&self) -> String {
        let mut text = "netem".to_owned();
        // Writing to a String cannot fail.
        if let Some(limit) = self.limit {
            let _ = write!(text, " limit {limit}");
        }
        if !self.delay.is_zero() || !self.jitter.is_zero() {
            let _ = write!(text, " delay {}us", self.delay.as_micros());
        }
        if !self.jitter.is_zero() {
            let _ = write!(text, " {}us", self.jitter.as_micros());
        }
        for (name, percent) in [
            ("loss random", self.loss_percent),
            ("duplicate", self.duplicate_percent),
            ("reorder", self.reorder_percent),
        ] {
            if percent > 0.0 {
                let _ = write!(text, " {name} {percent}%");
            }
        }
        if let Some(rate) = self.rate {
            let _ = write!(text, " rate {rate}bit");
        }
        if !self.slot.is_zero() {
            let _ = write!(text, " slot {}us", self.slot.as_micros());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_told_to_tc_in_its_own_words() {
        let shape = Shape::new()
            .delay(Duration::from_millis(10))
            .jitter(Duration::from_micros(500))
            .loss_percent(0.5)
            .rate(20_000_000)
            .limit(50);
        assert_eq!(
            shape.netem(),
            "netem limit 50 delay 10000us 500us loss random 0.5% rate 20000000bit"
        );
        assert_eq!(Shape::new().netem(), "netem");
    }
}
