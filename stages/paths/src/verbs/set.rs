//! `tarn paths set`: changes the settings of the judgement while the agent runs.

use anyhow::Result;
use clap::builder::{EnumValueParser, RangedU64ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use crate::config::{COST_RANGE, Config, FILE, GAIN_MOST};
use crate::judge::{self, Measure, Policy};
use crate::orders::{self, Order};
use crate::{STAGE, probe};
use tarn_base::error::{Unsupported, Usage};
use tarn_base::output::Output;
use tarn_frame::state::StateDirectory;
use tarn_frame::{agent, up};
use tarn_kernel::route::Destination;

/// The verb.
pub fn command() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("set")
        .about("Change what uplinks are judged by, until the next `tarn up`")
        .arg(
            option("policy", "POLICY", "How flows are given to uplinks").value_parser(EnumValueParser::<Policy>::new()),
        )
        .arg(
            option("measure", "MEASURE", "What uplinks are compared by")
                .value_parser(EnumValueParser::<Measure>::new()),
        )
        .arg(
            option(
                "load-gain",
                "K",
                "How fast a measured load follows what is sent, 0 to 1024",
            )
            .value_parser(RangedU64ValueParser::<u32>::new().range(0..=GAIN_MOST.into())),
        )
        .arg(
            option(
                "cost",
                "DEVICE=PERCENT",
                "The cost of an uplink, 1 to 10000; can be repeated",
            )
            .action(ArgAction::Append)
            .value_parser(cost),
        )
        .arg(
            option(
                "to",
                "DESTINATION",
                "With --cost: only in the groups to there (default, ::/0, 10.0.0.0/8)",
            )
            .requires("cost")
            .value_parser(|text: &str| text.parse::<Destination>()),
        )
}

/// A device and its cost.
type Cost = (String, u32);

fn cost(text: &str) -> Result<Cost, String> {
    let (least, most) = (COST_RANGE.start(), COST_RANGE.end());
    let wrong = || format!("write a device and its cost in percent, {least} to {most}, as in wan0=200");
    let (device, percent) = text.rsplit_once('=').ok_or_else(wrong)?;
    let percent = percent.trim_end_matches('%').parse().map_err(|_| wrong())?;
    if device.is_empty() || !COST_RANGE.contains(&percent) {
        return Err(wrong());
    }
    Ok((device.to_owned(), percent))
}

/// Carries it out: in the agent, by its loop; elsewhere, by calling the agent. It is in force when this returns.
///
/// # Errors
/// What failed, and what to do about it.
pub fn execute(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let read = |state: &StateDirectory| state.read_json(FILE);
    let (state, config) = up::find(STAGE, "set", read)?;
    let (_, changed) = changed(config, matches)?;
    let result = match agent::call(&state, STAGE, "set", &arguments(matches))? {
        Some(result) => result,
        // This is the agent, or there is none.
        None => {
            let (_, config, _lock) = up::lock(STAGE, "set", read)?;
            let (config, _) = self::changed(config, matches)?;
            let result = json(&config);
            let beginning = output.beginning.take();
            orders::give(Order { config, beginning })?;
            result
        }
    };
    if output.json {
        return output.json(&result);
    }
    changed.iter().for_each(|line| output.line(line));
    Ok(())
}

/// The configuration with what is to change, and that a line each. Refuses what this host cannot measure.
fn changed(mut config: Config, matches: &ArgMatches) -> Result<(Config, Vec<String>)> {
    let changed = change(&mut config, matches)?;
    if config.settings.measure == Measure::Load {
        let mut abilities = probe::abilities(Measure::Load).into_iter();
        if let Some(missing) = abilities.find(|ability| ability.required && !ability.present) {
            let message = format!("this host cannot measure loads: {}: {}", missing.name, missing.detail);
            return Err(Unsupported(message).into());
        }
    }
    Ok((config, changed))
}

/// The same arguments, as a program names them.
fn arguments(matches: &ArgMatches) -> Value {
    let costs = matches.get_many::<Cost>("cost").into_iter().flatten();
    json!({
        "policy": matches.get_one::<Policy>("policy"),
        "measure": matches.get_one::<Measure>("measure"),
        "load_gain": matches.get_one::<u32>("load-gain"),
        "cost": costs.map(|(device, percent)| format!("{device}={percent}")).collect::<Vec<_>>(),
        "to": matches.get_one::<Destination>("to").map(Destination::to_string),
    })
}

/// Changes the configuration. Returns what has changed, a line each.
fn change(config: &mut Config, matches: &ArgMatches) -> Result<Vec<String>> {
    let mut changed = Vec::new();
    if let Some(policy) = matches.get_one::<Policy>("policy") {
        config.settings.policy = *policy;
        changed.push(format!("policy {}", judge::name(*policy)));
    }
    if let Some(measure) = matches.get_one::<Measure>("measure") {
        config.settings.measure = *measure;
        changed.push(format!("measure {}", judge::name(*measure)));
    }
    if let Some(gain) = matches.get_one::<u32>("load-gain") {
        config.settings.gain = *gain;
        changed.push(format!("load_gain {gain}"));
    }
    let to = matches.get_one::<Destination>("to");
    for (device, percent) in matches.get_many::<Cost>("cost").into_iter().flatten() {
        let groups = config
            .groups
            .iter_mut()
            .filter(|group| to.is_none_or(|to| *to == group.to));
        let uplinks = groups.flat_map(|group| group.uplinks.iter_mut().map(|uplink| (group.to, uplink)));
        let before = changed.len();
        for (to, uplink) in uplinks.filter(|(_, uplink)| uplink.device == *device) {
            uplink.cost = *percent;
            changed.push(format!("{to}: {device} costs {percent} %"));
        }
        if changed.len() == before {
            let message = format!("no such group has an uplink {device}: `tarn paths status` lists them");
            return Err(Usage(message).into());
        }
    }
    match changed.is_empty() {
        true => Err(Usage("say what to change: --policy, --measure, --load-gain or --cost".into()).into()),
        false => Ok(changed),
    }
}

fn json(config: &Config) -> Value {
    let uplinks = config.groups.iter().flat_map(|group| {
        let to = group.to.to_string();
        let cost =
            move |uplink: &crate::config::Uplink| json!({ "to": to, "uplink": uplink.device, "cost": uplink.cost });
        group.uplinks.iter().map(cost)
    });
    json!({
        "policy": config.settings.policy,
        "measure": config.settings.measure,
        "load_gain": config.settings.gain,
        "uplinks": uplinks.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_base::config::testing;

    const GROUPS: &str = "[[paths.group]]\nto = \"default\"\nuplink = [{ device = \"wan0\" }, { device = \"wan1\" }]\n\
                          [[paths.group]]\nto = \"::/0\"\nuplink = [{ device = \"wan0\" }, { device = \"wan1\" }]\n";

    fn set(line: &str) -> Result<(Config, Vec<String>), String> {
        let mut config = testing::section("paths", GROUPS, crate::config::read).unwrap();
        let words = ["set"].into_iter().chain(line.split_whitespace());
        let matches = command()
            .try_get_matches_from(words)
            .map_err(|error| error.to_string())?;
        let changed = change(&mut config, &matches).map_err(|error| error.to_string())?;
        Ok((config, changed))
    }

    #[test]
    fn what_is_named_is_changed_and_nothing_else() {
        let (config, changed) = set("--policy proportional --load-gain 64 --cost wan1=200 --to ::/0").unwrap();
        let costs: Vec<u32> = config
            .groups
            .iter()
            .flat_map(|group| &group.uplinks)
            .map(|uplink| uplink.cost)
            .collect();
        assert_eq!(costs, [100, 100, 100, 200]);
        assert_eq!(
            (config.settings.policy, config.settings.gain),
            (Policy::Proportional, 64)
        );
        assert_eq!(config.settings.measure, Measure::Delay);
        assert_eq!(
            changed,
            ["policy proportional", "load_gain 64", "::/0: wan1 costs 200 %"]
        );
        let (config, changed) = set("--cost wan0=50% --cost wan1=70 --measure load").unwrap();
        assert_eq!(
            (config.groups[0].uplinks[0].cost, config.groups[1].uplinks[1].cost),
            (50, 70)
        );
        assert_eq!(changed.len(), 5);
    }

    /// The agent reads it as docs/control-socket.md says.
    #[test]
    fn the_agent_is_called_with_what_the_command_line_says() {
        let line = "set --measure load --load-gain 64 --cost wan0=50% --cost wan1=70 --to ::/0";
        let matches = command().try_get_matches_from(line.split_whitespace()).unwrap();
        let expected = json!({
            "policy": null, "measure": "load", "load_gain": 64, "cost": ["wan0=50", "wan1=70"], "to": "::/0",
        });
        assert_eq!(arguments(&matches), expected);
    }

    #[test]
    fn mistakes_are_told() {
        for (line, expected) in [
            ("", "say what to change"),
            ("--to default", "--cost <DEVICE=PERCENT>"),
            ("--cost wan7=100", "no such group has an uplink wan7"),
            ("--cost wan1=100 --to 10.0.0.0/8", "no such group"),
            ("--cost wan1", "write a device and its cost"),
            ("--cost wan1=0", "1 to 10000"),
            ("--load-gain 1025", "1025 is not in 0..=1024"),
            ("--policy best", "possible values: calmest, proportional"),
            ("--measure jitter", "possible values: delay, load"),
            ("--cost wan1=50 --to internet", "no destination"),
        ] {
            let error = set(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
