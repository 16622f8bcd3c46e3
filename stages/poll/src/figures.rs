//! The stage's figures, for `status`, `top` and the metrics.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Result;
use tarn_base::described;
use tarn_base::figures::{Combine, FigureTable, Figures, Headline, Plot, Value};
use tarn_frame::agent;
use tarn_frame::state::StateDirectory;
use tarn_kernel::netdev;
use tarn_kernel::scheduling::{Policy, policy};

use crate::calm;
use crate::guard::Mode;
use crate::probe;
use crate::programs::Maps;
use crate::skeleton::types::{poll_device, shed_sender};
use crate::standing::standing;

described! {
    /// The stage as a whole.
    struct Receiving {
        devices: Gauge "devices" "Devices that are watched",
        trouble: Note "" "Why nothing is watched, though it should be, and what to do",
        shed_source: Counter "packets" "Dropped because their source exceeded its fair share",
        shed_port: Counter "packets" "Dropped because what they are addressed to exceeded its share",
        spared: Counter "packets" "Passed beyond a share, because they belong to a TCP connection",
    }
}

described! {
    /// A device.
    struct Watched {
        device: Label "" "Its name",
        receives: Label "" "What receives from it: softirqs, or threads that go before ordinary ones or not. Without a NAPI, threads cannot",
        share: Gauge "packets" "What a source may send in 10 ms; 0 while nothing is shed",
        cpu: Gauge "%" "Of a CPU, what its busiest thread takes",
        storms: Counter "storms" "How often more came in than a CPU can take",
        demotions: Counter "times" "How often its threads took too much, and went last",
    }
}

described! {
    /// A receive queue.
    struct Queue {
        device: Label "" "Its device",
        napi: Label "" "The kernel's number of its NAPI",
        polls: Counter "polls" "How often it was polled",
        full: Counter "polls" "Polls that found as much as they may take: it is behind" => "FULL",
        work: Counter "packets" "Packets that it received",
        mean: Gauge "packets" "Packets a poll" => "A POLL",
        weight: Gauge "packets" "The most that a poll may take" => "AT MOST",
        thread: Note "" "The thread that polls it; none: softirqs",
        policy: Note "" "How the thread is scheduled",
    }
}

described! {
    /// Who sent what was dropped.
    struct Sender {
        source: Label "" "The address that the packets bear",
        protocol: Label "" "Its protocol",
        port: Label "" "The port that they are addressed to",
        packets: Counter "packets" "About how many were dropped",
    }
}

/// The figures, read from the kernel; `None` when the stage is down.
///
/// # Errors
/// A file that is damaged, or a kernel that does not answer.
pub fn read(state: &StateDirectory) -> Result<Option<Figures>> {
    let Some(standing) = standing(state)? else {
        return Ok(None);
    };
    let maps = Maps::open(&standing.maps);
    let devices = maps.as_ref().map(Maps::devices).unwrap_or_default();
    let mut counts = [0; 3];
    for (index, _) in &devices {
        let here = maps.as_ref().map(|maps| maps.counts(*index)).unwrap_or_default();
        counts.iter_mut().zip(here).for_each(|(sum, here)| *sum += here);
    }
    let [source, port, spared] = counts;
    let is_idle = probe::nothing_to_do(standing.config.always_threads).is_some();
    let trouble = match agent::is_running(state) {
        _ if is_idle => None,
        false => Some("no agent guards the threads: softirqs receive until `tarn up` starts one"),
        true if devices.is_empty() && maps.as_ref().is_some_and(Maps::has_looked) => {
            Some("no device is watched: name one in `devices`, or see `tarn check poll`")
        }
        true => None,
    };
    let values = Receiving {
        devices: devices.len().into(),
        trouble: trouble.into(),
        shed_source: source.into(),
        shed_port: port.into(),
        spared: spared.into(),
    };
    let mut queues = Vec::new();
    let mut rows = Vec::new();
    for (index, shown) in &devices {
        let name = calm::name_of(*index).unwrap_or_else(|| format!("device {index}"));
        if let Some(maps) = &maps {
            queues.extend(queues_of(*index, &name, maps)?);
        }
        let has_no_napi = netdev::napis(*index)?.is_some_and(|napis| napis.is_empty());
        rows.push(row(name, shown, has_no_napi));
    }
    Ok(Some(Figures {
        fields: Receiving::FIELDS,
        values: values.values(),
        tables: vec![
            FigureTable {
                name: "watched",
                about: "Devices",
                key: 1,
                plot: None,
                fields: Watched::FIELDS,
                rows,
            },
            FigureTable {
                name: "queues",
                about: "Receive queues",
                key: 2,
                plot: Plot::of("work"),
                fields: Queue::FIELDS,
                rows: queues,
            },
        ],
        headline: Some(Headline {
            table: "queues",
            field: "work",
            less: None,
            what: "packets/s",
            combine: Combine::Sum,
        }),
        alarms: &SHED,
    }))
}

fn row(device: String, shown: &poll_device, has_no_napi: bool) -> Vec<Value> {
    let receives = match Mode::of(shown.mode) {
        // What its guard wants, the device may not be able to do: it is down, or its driver has no NAPI.
        _ if has_no_napi => "softirqs, no NAPI",
        Mode::First | Mode::Last if shown.threaded == 0 => Mode::Calm.name(),
        mode => mode.name(),
    };
    Watched {
        device: device.into(),
        receives: receives.into(),
        share: shown.share.into(),
        cpu: (f64::from(shown.used) / 10.0).into(),
        storms: shown.storms.into(),
        demotions: shown.demotions.into(),
    }
    .values()
}

fn queues_of(index: u32, device: &str, maps: &Maps) -> Result<Vec<Vec<Value>>> {
    let napis = netdev::napis(index)?.unwrap_or_default();
    let rows = napis.into_iter().filter_map(|napi| {
        let counted = maps.napi(napi.id)?;
        let mean = counted.work as f64 / counted.polls.max(1) as f64;
        let scheduled = napi.thread.and_then(policy).map(|policy| match policy {
            Policy::Ordinary => "ordinary".to_owned(),
            Policy::Fifo(priority) => format!("FIFO {priority}"),
        });
        let row = Queue {
            device: device.into(),
            napi: napi.id.to_string().into(),
            polls: counted.polls.into(),
            full: counted.full.into(),
            work: counted.work.into(),
            mean: tarn_base::figures::rounded(mean, 1).into(),
            weight: counted.weight.into(),
            thread: napi.thread.map(|thread| thread.to_string()).into(),
            policy: scheduled.into(),
        };
        Some(row.values())
    });
    Ok(rows.collect())
}

/// What is dropped now.
static SHED: [Headline; 2] = [
    shed("shed_source", "dropped/s by source"),
    shed("shed_port", "dropped/s by port"),
];

const fn shed(field: &'static str, what: &'static str) -> Headline {
    Headline {
        table: "",
        field,
        less: None,
        what,
        combine: Combine::Sum,
    }
}

/// Who sent the most of what was dropped, while an agent counts it: at most `rows`; nothing when nobody did.
///
/// # Errors
/// A file that is damaged.
pub fn detail(state: &StateDirectory, rows: usize) -> Result<Vec<FigureTable>> {
    let maps = standing(state)?.and_then(|standing| Maps::open(&standing.maps));
    let table = maps.map(|maps| senders(&maps, rows));
    Ok(table.into_iter().filter(|table| !table.rows.is_empty()).collect())
}

/// Who sent the most of what was dropped.
pub fn senders(maps: &Maps, count: usize) -> FigureTable {
    let rows = maps.senders().into_iter().take(count);
    let rows = rows.map(|(sender, packets)| {
        Sender {
            source: address(&sender).into(),
            protocol: protocol(sender.protocol).into(),
            port: match sender.port {
                0 => Value::Null,
                port => u16::from_be(port).to_string().into(),
            },
            packets: packets.into(),
        }
        .values()
    });
    FigureTable {
        name: "senders",
        about: "Who sent what was dropped",
        key: 3,
        plot: Plot::of("packets"),
        fields: Sender::FIELDS,
        rows: rows.collect(),
    }
}

fn address(sender: &shed_sender) -> String {
    let bytes = sender.address.map(u32::to_ne_bytes);
    if i32::from(sender.family) == libc::AF_INET {
        return Ipv4Addr::from(bytes[0]).to_string();
    }
    let mut all = [0; 16];
    all.iter_mut()
        .zip(bytes.as_flattened())
        .for_each(|(to, from)| *to = *from);
    Ipv6Addr::from(all).to_string()
}

fn protocol(number: u8) -> String {
    match i32::from(number) {
        libc::IPPROTO_TCP => "TCP".to_owned(),
        libc::IPPROTO_UDP => "UDP".to_owned(),
        libc::IPPROTO_ICMP => "ICMP".to_owned(),
        libc::IPPROTO_ICMPV6 => "ICMPv6".to_owned(),
        libc::IPPROTO_SCTP => "SCTP".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_as_people_write_them() {
        let words = |bytes: [u8; 16]| {
            let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            [word(0), word(4), word(8), word(12)]
        };
        let v4 = shed_sender {
            address: [u32::from_ne_bytes([192, 0, 2, 7]), 0, 0, 0],
            family: libc::AF_INET as u8,
            ..shed_sender::default()
        };
        assert_eq!(address(&v4), "192.0.2.7");
        let wanted: Ipv6Addr = "2001:db8::7".parse().unwrap();
        let v6 = shed_sender {
            address: words(wanted.octets()),
            family: libc::AF_INET6 as u8,
            ..shed_sender::default()
        };
        assert_eq!(address(&v6), "2001:db8::7");
    }
}
