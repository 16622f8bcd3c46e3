//! Where packets are dropped on their way to a program.

use anyhow::{Context, Result};
use tarn_lab::topology::Namespace;

/// Packets that a host's eth0 has got so far, and where some ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Places {
    /// That the card put into its ring.
    received: u64,
    /// For which the ring had no room.
    ring: u64,
    /// That an XDP program dropped.
    xdp: u64,
    /// For which a UDP socket's buffer had no room.
    socket: u64,
}

impl Places {
    /// What the card's driver (vmxnet3) and the kernel have counted.
    ///
    /// # Errors
    /// A driver that counts otherwise.
    pub fn of(host: &Namespace) -> Result<Self> {
        let card = host.run("ethtool", &["-S", "eth0"])?;
        let of_card = |name| counted(&card, name).with_context(|| format!("ethtool -S does not show \"{name}\""));
        let udp = host.enter(|| Ok(std::fs::read_to_string("/proc/thread-self/net/snmp")?))?;
        Ok(Self {
            received: of_card("ucast pkts rx")?,
            ring: of_card("pkts rx OOB")?,
            xdp: of_card("xdp drops")?,
            socket: receive_buffer_errors(&udp).context("/proc/net/snmp does not show RcvbufErrors")?,
        })
    }

    /// Of what has come since an earlier moment, in percent: dropped in the ring, by XDP, and at a socket.
    pub fn shares_since(&self, before: &Self) -> [f64; 3] {
        let ring = self.ring - before.ring;
        let all = (self.received - before.received + ring).max(1) as f64;
        [ring, self.xdp - before.xdp, self.socket - before.socket].map(|count| count as f64 * 100.0 / all)
    }
}

/// The sum of a figure over a card's queues.
fn counted(text: &str, name: &str) -> Option<u64> {
    let figures = text.lines().filter_map(|line| line.trim().split_once(": "));
    let of_queues = figures.filter(|(is_called, _)| *is_called == name);
    let counts: Vec<u64> = of_queues
        .map(|(_, count)| count.trim().parse().ok())
        .collect::<Option<_>>()?;
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// The lines of a protocol are the names, then the figures.
fn receive_buffer_errors(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, figures) = (lines.next()?, lines.next()?);
    let mut pairs = names.split(' ').zip(figures.split(' '));
    pairs.find(|(name, _)| *name == "RcvbufErrors")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_their_names() {
        let card =
            "NIC statistics:\n     Rx Queue#: 0\n       ucast pkts rx: 7\n     Rx Queue#: 1\n       ucast pkts rx: 5\n";
        assert_eq!(counted(card, "ucast pkts rx"), Some(12));
        assert_eq!(counted(card, "pkts rx"), None);
        let snmp = "Tcp: RtoMin\nTcp: 200\nUdp: InDatagrams InErrors RcvbufErrors\nUdp: 1 9 4\nUdpLite: RcvbufErrors\nUdpLite: 8\n";
        assert_eq!(receive_buffer_errors(snmp), Some(4));
    }

    #[test]
    fn shares_are_of_all_that_came() {
        let before = Places {
            received: 10,
            ..Places::default()
        };
        let now = Places {
            received: 60,
            ring: 50,
            xdp: 30,
            socket: 1,
        };
        assert_eq!(now.shares_since(&before), [50.0, 30.0, 1.0]);
    }
}
