//! `start`, `stop`, `reset`, `status`, `set-target`, `set-deadline` and `set-hold`: how requests are scheduled.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ArgMatches;
use serde_json::json;

use super::Up;
use crate::config::{Config, DEADLINE, HOLD, percent};
use crate::haproxy::report;
use crate::haproxy::steering::{self, end_others};
use crate::module::{MODULE, Module, Settings};
use crate::{STAGE, figures, service, watch};
use tarn_base::error::Usage;
use tarn_base::output::Output;
use tarn_base::time;
use tarn_frame::journal::Journal;
use tarn_frame::up::not_up;
use tarn_kernel::modules;

/// Has requests scheduled again.
pub fn start(output: &mut Output) -> Result<()> {
    let (mut up, _lock) = Up::lock("start")?;
    let config = &up.known.config;
    let mut ran = !up.known.stopped;
    if !config.services.is_empty() {
        // Somebody else may have taken it out.
        if up.known.names_clients && !modules::is_loaded(MODULE.name) {
            bail!("the module was taken out, and its clients are gone with it: `tarn up` sets all up again");
        }
        MODULE.load(STAGE, &mut Journal::open(&up.state)?)?;
        let mut module = Module::loaded()?;
        ran = watch::first_stopped(&mut module, config)?.is_none();
    }
    service::schedule(config)?;
    up.set_stopped(false)?;
    let text = if ran {
        "requests are scheduled already"
    } else {
        "requests are scheduled"
    };
    output.answer(&json!({ "started": !ran }), text)
}

/// Has requests pass at once; what waits goes on.
pub fn stop(output: &mut Output) -> Result<()> {
    let (mut up, _lock) = Up::lock("stop")?;
    let was_stopped = up.known.stopped;
    // First, so that nobody takes it for somebody else's doing.
    up.set_stopped(true)?;
    let config = &up.known.config;
    let mut ran = !config.proxied.is_empty() && !was_stopped;
    if let Some(mut module) = Module::find()? {
        ran |= module.stop_services()?;
    }
    // The agent does it, too, if it is there.
    end_others(config, None);
    let text = match ran {
        true if config.services.is_empty() => "HAProxy serves all clients alike",
        true => "requests are not scheduled any more; what waited has gone on to the service",
        false => "requests are not scheduled; `tarn classes start` begins again",
    };
    output.answer(&json!({ "stopped": ran }), text)
}

/// Counts anew.
pub fn reset(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let (mut up, _lock) = Up::lock("reset")?;
    if let Some(mut module) = Module::find()? {
        up.each_running(&mut module, |module, _| module.reset())?;
    }
    let clients = matches.get_flag("clients");
    if clients {
        up.clients()?.clear()?;
        up.known.names_clients = false;
    }
    up.known.resets = up.known.resets.wrapping_add(1);
    up.known.save(&up.state)?;
    // With an agent or without: the next one must not go on with shares of before.
    up.state.remove_files(&[report::FILE])?;
    steering::reset(&up.known.config)?;
    let text = match clients {
        true => "counters begin at 0, and every client is of the last class",
        false => "counters begin at 0",
    };
    output.answer(&json!({ "reset": true, "clients": clients }), text)
}

/// Shows the figures.
pub fn status(output: &mut Output) -> Result<()> {
    let up = Up::find("status")?;
    let figures = figures::read(&up.state)?.ok_or_else(|| not_up(STAGE))?;
    figures.answer(output)
}

fn only_classes(settings: Settings) -> Settings {
    Settings {
        classes: settings.classes,
        ..Settings::default()
    }
}

/// Promises a class another share.
pub fn set_target(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let (mut up, _lock) = Up::lock("set-target")?;
    let class = up.class(matches)?.unwrap_or_default();
    let target = matches.get_one::<u32>("PERCENT").copied().unwrap_or_default();
    up.change(|config| config.classes[class].target = target, only_classes)?;
    let name = up.known.name(class);
    let text = format!("class {name}: {} % of answers are to be in time", percent(target));
    output.answer(&json!({ "class": name, "target": percent(target) }), text)
}

/// Sets the deadline of a class, or of all; at one service, or at all.
pub fn set_deadline(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let deadline = duration(matches, "TIME", &DEADLINE)?;
    let (mut up, _lock) = Up::lock("set-deadline")?;
    let (class, service) = (up.class(matches)?, up.service(matches)?);
    let is_meant = |name: &str| service.as_deref().is_none_or(|service| service == name);
    let set_one = |deadlines: &mut Vec<Duration>| match class {
        Some(class) => deadlines[class] = deadline,
        None => deadlines.fill(deadline),
    };
    let set = |config: &mut Config| {
        for found in config.services.iter_mut().filter(|found| is_meant(&found.name)) {
            set_one(&mut found.deadlines);
            // An answer in time is to be seen.
            found.patience = found.patience.max(deadline);
        }
        let proxied = config.proxied.iter_mut().filter(|found| is_meant(&found.name));
        proxied.for_each(|found| set_one(&mut found.deadlines));
    };
    up.change(set, |settings| Settings {
        patience: settings.patience,
        ..only_classes(settings)
    })?;
    let (name, shown) = (class.map(|class| up.known.name(class)), time::text(deadline));
    let of = match &name {
        Some(name) => format!("class {name}"),
        None => "all classes".to_owned(),
    };
    let at = service
        .as_ref()
        .map(|service| format!(" at {service}"))
        .unwrap_or_default();
    let text = format!("{of}{at}: answers are in time within {shown}");
    output.answer(&json!({ "class": name, "service": service, "deadline": shown }), text)
}

/// The time that was given, if it is in range.
pub fn duration(matches: &ArgMatches, name: &str, range: &RangeInclusive<Duration>) -> Result<Duration> {
    let found = matches.get_one::<Duration>(name).copied().unwrap_or_default();
    if range.contains(&found) {
        return Ok(found);
    }
    let (least, most) = (time::text(*range.start()), time::text(*range.end()));
    let raw = matches.get_raw(name).and_then(|mut values| values.next());
    let written = raw.map_or_else(|| time::text(found), |text| text.to_string_lossy().into_owned());
    let told = if found < *range.start() { "short" } else { "long" };
    let name = name.to_lowercase();
    Err(Usage(format!("`{name}`: {written} is too {told}: write {least} to {most}")).into())
}

/// Lets requests gather.
pub fn set_hold(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let rounds = matches.get_one::<u32>("rounds").copied().unwrap_or_default();
    let hold = duration(matches, "TIME", &HOLD)?;
    let (mut up, _lock) = Up::lock("set-hold")?;
    let set = |config: &mut Config| (config.hold, config.hold_rounds) = (hold, rounds);
    up.change(set, |settings| Settings {
        hold: settings.hold,
        hold_rounds: settings.hold_rounds,
        ..Settings::default()
    })?;
    let text = match rounds {
        0 => format!("requests gather for {}", time::text(hold)),
        rounds => format!("requests gather for {rounds} rounds of the dispatcher"),
    };
    output.answer(&json!({ "hold": time::text(hold), "rounds": rounds }), text)
}

#[cfg(test)]
mod tests {
    use super::super::command;
    use super::*;
    use crate::config::LASTS;

    /// Whoever asks for less than there is learns how much there is.
    #[test]
    fn a_time_out_of_range_is_refused_as_it_was_written_with_the_range() {
        for (line, name, range, told) in [
            (
                "add 192.0.2.7 gold --for 0s",
                "for",
                LASTS,
                "`for`: 0s is too short: write 1s to 3650d",
            ),
            (
                "add 192.0.2.7 gold --for 1us",
                "for",
                LASTS,
                "`for`: 1us is too short: write 1s to 3650d",
            ),
            (
                "add 192.0.2.7 gold --for 4000d",
                "for",
                LASTS,
                "`for`: 4000d is too long: write 1s to 3650d",
            ),
            (
                "set-deadline 0us",
                "TIME",
                DEADLINE,
                "`time`: 0us is too short: write 1us to 1h",
            ),
            (
                "set-hold 2000ms",
                "TIME",
                HOLD,
                "`time`: 2000ms is too long: write 0ms to 1s",
            ),
        ] {
            let words = std::iter::once("classes").chain(line.split_whitespace());
            let matches = command().get_matches_from(words);
            let (_, matches) = matches.subcommand().unwrap();
            let error = duration(matches, name, &range).unwrap_err();
            assert_eq!(
                (error.to_string().as_str(), tarn_base::error::exit_code(&error)),
                (told, 2)
            );
        }
    }
}
