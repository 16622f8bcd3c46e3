//! `tarn poll watch`: what comes in and what is done about it, a line for each device at each interval.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ArgMatches;
use serde_json::{Value, json};
use tarn_base::output::Output;
use tarn_base::runtime::{now, timestamp};
use tarn_frame::up;
use tarn_kernel::netdev;

use crate::STAGE;
use crate::calm;
use crate::guard::Mode;
use crate::programs::Maps;
use crate::skeleton::types::poll_device;
use crate::standing::standing;

/// Lines between two headings.
const HEADING_EVERY: usize = 20;
const HEADING: [&str; 8] = [
    "time",
    "device",
    "receives",
    "packets/s",
    "full%",
    "cpu%",
    "dropped/s",
    "share",
];

/// What a device has done since it is watched.
#[derive(Debug, Clone, Copy, Default)]
struct Total {
    polls: u64,
    full: u64,
    work: u64,
    shed: u64,
}

impl Total {
    fn of(device: u32, maps: &Maps) -> Result<Self> {
        let [source, port, _] = maps.counts(device);
        let mut total = Self {
            shed: source + port,
            ..Self::default()
        };
        let napis = netdev::napis(device)?.unwrap_or_default();
        for napi in napis.iter().filter_map(|napi| maps.napi(napi.id)) {
            total.polls += napi.polls;
            total.full += napi.full;
            total.work += napi.work;
        }
        Ok(total)
    }

    /// A queue that has gone takes its counters with it.
    fn since(&self, before: &Self) -> Self {
        Self {
            polls: self.polls.saturating_sub(before.polls),
            full: self.full.saturating_sub(before.full),
            work: self.work.saturating_sub(before.work),
            shed: self.shed.saturating_sub(before.shed),
        }
    }
}

fn line(name: &str, shown: &poll_device, grown: &Total, elapsed: Duration) -> Value {
    let a_second = |count: u64| (count as f64 / elapsed.as_secs_f64().max(0.001)).round() as u64;
    json!({
        "time": timestamp(now()),
        "device": name,
        "receives": Mode::of(shown.mode).name(),
        "packets_per_s": a_second(grown.work),
        "full_percent": (grown.full * 100).checked_div(grown.polls).unwrap_or_default(),
        "cpu_percent": f64::from(shown.used) / 10.0,
        "dropped_per_s": a_second(grown.shed),
        "share": shown.share,
    })
}

/// A line as people read it.
fn text(line: &Value) -> String {
    let [time, device, receives] = ["time", "device", "receives"].map(|key| line[key].as_str().unwrap_or_default());
    let numbers = ["packets_per_s", "full_percent", "cpu_percent", "dropped_per_s", "share"];
    let [packets, full, cpu, dropped, share] = numbers.map(|key| line[key].to_string());
    aligned([
        time.get(11..19).unwrap_or(time),
        device,
        receives,
        &packets,
        &full,
        &cpu,
        &dropped,
        &share,
    ])
}

/// 80 columns, with room for the longest name of a device.
fn aligned(cells: [&str; 8]) -> String {
    let [time, device, receives, packets, full, cpu, dropped, share] = cells;
    format!("{time:<9}{device:<16}{receives:<14}{packets:>10}{full:>6}{cpu:>6}{dropped:>11}{share:>8}")
}

/// Prints lines at each interval, until the reader is gone or there were as many intervals as asked for.
///
/// # Errors
/// The stage is not up, or no longer, or has no agent; the kernel's.
pub fn watch(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let given = |name: &str| matches.get_one::<u32>(name).copied().unwrap_or_default();
    let (interval, count) = (given("interval"), given("count"));
    let mut known: HashMap<u32, Total> = HashMap::new();
    let (mut printed, mut before) = (0, Instant::now());
    for round in 0.. {
        // After `tarn down` this ends with an error.
        let (_, standing) = up::find(STAGE, "watch", standing)?;
        let maps = Maps::open(&standing.maps).context("no agent counts here: `tarn up` starts one")?;
        let elapsed = before.elapsed();
        before = Instant::now();
        for (index, shown) in maps.devices() {
            let total = Total::of(index, &maps)?;
            // The first look at a device has nothing to compare with.
            let Some(earlier) = known.insert(index, total) else {
                continue;
            };
            let name = calm::name_of(index).unwrap_or_else(|| format!("device {index}"));
            let measured = line(&name, &shown, &total.since(&earlier), elapsed);
            if output.json {
                output.line(&measured);
            } else {
                if printed % HEADING_EVERY == 0 {
                    output.line(aligned(HEADING));
                }
                output.line(text(&measured));
            }
            printed += 1;
        }
        if output.failed() || count != 0 && round == count {
            break;
        }
        sleep(Duration::from_secs(interval.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_a_terminal_and_its_heading() {
        let flooded = poll_device {
            mode: Mode::First as u32,
            used: 1000,
            share: 1 << 20,
            ..poll_device::default()
        };
        let grown = Total {
            polls: 1,
            full: 1,
            work: 99_999_999,
            shed: 999_999_999,
        };
        for (shown, grown) in [
            (poll_device::default(), Total::default()),
            (flooded, grown.since(&Total::default())),
        ] {
            let line = text(&line("fifteen-letters", &shown, &grown, Duration::from_secs(1)));
            assert_eq!(line.len(), 80, "{line}");
        }
        assert_eq!(aligned(HEADING).len(), 80);
    }

    /// A queue that goes would show as 18 exapackets a second.
    #[test]
    fn counters_that_fall_count_nothing() {
        let (more, less) = (
            Total {
                work: 9,
                ..Total::default()
            },
            Total::default(),
        );
        assert_eq!(less.since(&more).work, 0);
        let line = line(
            "eth0",
            &poll_device::default(),
            &more.since(&less),
            Duration::from_millis(500),
        );
        assert_eq!((&line["packets_per_s"], &line["full_percent"]), (&json!(18), &json!(0)));
    }
}
