//! Judges a section, mistake by mistake.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;

use super::written::{WrittenGroup, WrittenPin, WrittenSection, WrittenUplink};
use super::{
    Adopt, COST_DEFAULT, COST_RANGE, Config, GAIN_MOST, GROUPS_MOST, Group, MARK_MASK, PREFIXES_MOST, RULE_PRIORITY,
    TARGETS_MOST, UPLINKS_MOST, Uplink, marks,
};
use crate::judge::{RATE_CLOSE, RATE_MOST, Settings};
use crate::target::Target;
use tarn_base::config::{ConfigError, Reader, Section};
use tarn_kernel::nft;
use tarn_kernel::route::{Destination, METRIC_IPV6};

const HOUR: Duration = Duration::from_secs(3600);
const MEMORY: RangeInclusive<Duration> = Duration::from_secs(1)..=HOUR;
const HOLD: RangeInclusive<Duration> = Duration::ZERO..=HOUR;
const BACK_AFTER: RangeInclusive<Duration> = Duration::from_millis(100)..=HOUR;
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(10);
/// What a target has to be.
const BEYOND: &str = "name a host beyond the providers, which all uplinks lead to";
/// The gateway that somebody else's default route has.
const AUTO: &str = "auto";
const LOOPBACK: &str = "lo";
const MARGIN: RangeInclusive<f64> = 0.0..=90.0;
/// Behind the last rule's number there has to be the main table's, 32766.
const PRIORITY: RangeInclusive<i64> = 1..=30_000;

/// Reads and validates the section.
///
/// # Errors
/// Every mistake found, in no particular order.
pub fn read(section: &Section<'_>) -> Result<Config, Vec<ConfigError>> {
    let written: WrittenSection = section.deserialize_whole()?;
    let mut reader = Reader::new(section);
    let settings = settings(&mut reader, &written);
    let mark_mask = mark_mask(&mut reader, written.mark_mask.as_ref());
    let rule_priority = reader.number("rule_priority", written.rule_priority.as_ref(), RULE_PRIORITY, PRIORITY);
    let groups = groups(&mut reader, &written.group);
    let config = Config {
        groups,
        settings,
        mark_mask,
        rule_priority,
        tcp: written.tcp,
    };
    if let Some(message) = config.lack_of_marks() {
        let span = written.group.span();
        reader.error(span, "mark_mask", message, "give it more bits");
    }
    if let Some((message, remedy)) = config.excess() {
        let span = written.rate.as_ref().map_or(written.group.span(), Spanned::span);
        reader.error(span, "rate", message, remedy);
    }
    reader.finish(config)
}

fn settings(reader: &mut Reader<'_>, written: &WrittenSection) -> Settings {
    let default = Settings::default();
    let rate = i64::from(RATE_MOST);
    Settings {
        policy: written.policy,
        measure: written.measure,
        gain: reader.number(
            "load_gain",
            written.load_gain.as_ref(),
            default.gain,
            0..=i64::from(GAIN_MOST),
        ),
        margin: margin(reader, written.margin.as_ref(), default.margin),
        hold: reader.time("hold", written.hold.as_ref(), default.hold, &HOLD),
        stay: reader.time("stay", written.stay.as_ref(), default.stay, &HOLD),
        back_after: reader.time(
            "back_after",
            written.back_after.as_ref(),
            default.back_after,
            &BACK_AFTER,
        ),
        reset_after: reader.time("reset_after", written.reset_after.as_ref(), default.reset_after, &HOLD),
        memory: reader.time("memory", written.memory.as_ref(), default.memory, &MEMORY),
        timeout: reader.time("timeout", written.timeout.as_ref(), default.timeout, &TIMEOUT),
        rate: (written.rate.as_ref()).map(|written| reader.number("rate", Some(written), RATE_CLOSE, 1..=rate)),
        ..default
    }
}

fn margin(reader: &mut Reader<'_>, written: Option<&Spanned<f64>>, default: f64) -> f64 {
    let Some(written) = written else { return default };
    let percent = reader.within("margin", written, *written.get_ref(), &MARGIN, |end| format!("{end} %"));
    percent / 100.0
}

fn mark_mask(reader: &mut Reader<'_>, written: Option<&Spanned<i64>>) -> u32 {
    let Some(written) = written else { return MARK_MASK };
    let mask = u32::try_from(*written.get_ref()).unwrap_or(0);
    let bits = marks(mask);
    if bits == 0 || bits & bits.wrapping_add(1) != 0 {
        let message = format!("{:#x} is no row of adjacent bits", written.get_ref());
        let remedy = "write 0xff000000, or other bits that nobody else marks packets with";
        reader.error(written.span(), "mark_mask", message, remedy);
    }
    mask
}

fn groups(reader: &mut Reader<'_>, written: &Spanned<Vec<WrittenGroup>>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for group in written.get_ref() {
        let read = read_group(reader, group);
        let knows_metric = |group: &Group| group.adopt.as_ref().is_none_or(|adopt| adopt.metric.is_some());
        let is_taken = |other: &Group| (other.to, other.metric) == (read.to, read.metric);
        if knows_metric(&read) && groups.iter().filter(|other| knows_metric(other)).any(is_taken) {
            let message = format!("there is a group to {} with metric {} already", read.to, read.metric);
            reader.error(group.to.span(), "group.to", message, "give one of them another metric");
        }
        groups.push(read);
    }
    if groups.is_empty() {
        let remedy = "add [[paths.group]] with to and [[paths.group.uplink]]";
        reader.error(written.span(), "group", "there is no group", remedy);
    }
    if groups.len() > GROUPS_MOST {
        let message = format!("{} groups are more than {GROUPS_MOST}", groups.len());
        reader.error(written.span(), "group", message, "leave some out");
    }
    groups
}

fn read_group(reader: &mut Reader<'_>, written: &WrittenGroup) -> Group {
    let to = written.to.get_ref().parse().unwrap_or_else(|message: String| {
        reader.error(written.to.span(), "group.to", message, "");
        Destination::all(false)
    });
    let targets = read_targets(reader, "group.targets", &written.targets, to);
    // Before those that others add.
    let default = u32::from(to.address.is_ipv6());
    let metric = match reader.number(
        "group.metric",
        written.metric.as_ref(),
        default,
        0..=i64::from(u32::MAX),
    ) {
        0 if to.address.is_ipv6() => METRIC_IPV6,
        metric => metric,
    };
    Group {
        to,
        metric,
        pin: written.pin == WrittenPin::Said(true),
        finds_pin: matches!(written.pin, WrittenPin::Found(_)),
        number: 0,
        uplinks: uplinks(reader, written, to, &targets),
        adopt: written.adopt.then(|| Adopt {
            metric: written.metric.as_ref().map(|_| metric),
            targets,
            original: None,
        }),
    }
}

fn uplinks(reader: &mut Reader<'_>, written: &WrittenGroup, to: Destination, targets: &[Target]) -> Vec<Uplink> {
    const KEY: &str = "group.uplink.device";
    let mut uplinks: Vec<Uplink> = Vec::new();
    let mut prefixes = Vec::new();
    let all = written.uplink.as_ref().map_or(&[][..], |uplinks| uplinks.get_ref());
    for uplink in all {
        let mut read = read_uplink(reader, uplink, to, targets);
        read.prefixes = read_prefixes(reader, &uplink.prefixes, to, &mut prefixes);
        if written.pin == WrittenPin::Said(true) && !nft::can_name(&read.device) {
            let message = format!("nftables cannot name a device '{}'", read.device);
            reader.error(uplink.device.span(), KEY, message, "rename it, or leave out pin");
        }
        if uplinks.iter().any(|other| other.device == read.device) {
            let message = format!("{} is named twice", read.device);
            reader.error(uplink.device.span(), KEY, message, "name each device once");
        }
        if let Some(gateway) = uplink.gateway.as_ref().filter(|_| written.adopt) {
            let message = "the route that is taken over names the gateways";
            reader.error(gateway.span(), "group.uplink.gateway", message, "leave it out");
        }
        if read.is_onlink && (written.adopt || uplink.gateway.is_none()) {
            let message = "onlink is about a gateway, which is not named here";
            reader.error(uplink.device.span(), "group.uplink.onlink", message, "leave it out");
        }
        uplinks.push(read);
    }
    if !written.adopt && !(2..=UPLINKS_MOST).contains(&uplinks.len()) {
        let message = match uplinks.len() {
            0 | 1 => "there is nothing to choose from".to_owned(),
            many => format!("{many} uplinks are more than {UPLINKS_MOST}"),
        };
        let remedy = format!("name 2 to {UPLINKS_MOST} uplinks");
        let span = written.uplink.as_ref().map_or(written.to.span(), Spanned::span);
        reader.error(span, "group.uplink", message, remedy);
    }
    uplinks
}

fn read_uplink(reader: &mut Reader<'_>, written: &WrittenUplink, to: Destination, targets: &[Target]) -> Uplink {
    let device = written.device.get_ref();
    reader.device("group.uplink.device", written.device.span(), device);
    let is_auto = written
        .gateway
        .as_ref()
        .is_some_and(|gateway| gateway.get_ref() == AUTO);
    let named = written.gateway.as_ref().filter(|_| !is_auto);
    let gateway = named.and_then(|gateway| read_gateway(reader, gateway, to));
    let own = written.targets.as_ref();
    if device == LOOPBACK {
        let message = "lo leads nowhere but to this host";
        reader.error(
            written.device.span(),
            "group.uplink.device",
            message,
            "name the device of an uplink",
        );
    }
    let cost = i64::from(*COST_RANGE.start())..=i64::from(*COST_RANGE.end());
    let targets = own.map_or_else(
        || targets.to_vec(),
        |own| read_targets(reader, "group.uplink.targets", own, to),
    );
    if let Some(target) = targets.iter().find(|target| Some(target.address()) == gateway) {
        let message =
            format!("{target} is the gateway of {device}, which answers while the provider behind it is dead");
        let span = written.gateway.as_ref().map_or(written.device.span(), Spanned::span);
        reader.error(span, "group.uplink.targets", message, BEYOND);
    }
    Uplink {
        device: device.clone(),
        gateway,
        is_auto,
        is_onlink: written.onlink,
        is_metered: written.metered,
        cost: reader.number("group.uplink.cost", written.cost.as_ref(), COST_DEFAULT, cost),
        targets,
        ..Uplink::default()
    }
}

fn read_gateway(reader: &mut Reader<'_>, written: &Spanned<String>, to: Destination) -> Option<IpAddr> {
    const KEY: &str = "group.uplink.gateway";
    let Ok(address) = written.get_ref().parse::<IpAddr>() else {
        let message = format!("'{}' is no address", written.get_ref());
        let remedy = "write the address of the router behind the device, or auto";
        reader.error(written.span(), KEY, message, remedy);
        return None;
    };
    // IPv4 by an IPv6 router is possible (RFC 8950), the other way round is not.
    if address.is_ipv4() && to.address.is_ipv6() {
        let message = format!("{address} cannot lead to {to}");
        reader.error(written.span(), KEY, message, "write an IPv6 address");
    }
    Some(address)
}

/// `taken` are those of the group so far: each may be one uplink's only, and none part of another.
fn read_prefixes(
    reader: &mut Reader<'_>,
    written: &[Spanned<String>],
    to: Destination,
    taken: &mut Vec<Destination>,
) -> Vec<Destination> {
    const KEY: &str = "group.uplink.prefixes";
    let mut prefixes = Vec::new();
    for text in written {
        let (message, remedy) = match text.get_ref().parse::<Destination>() {
            Ok(prefix) if prefix.address.is_ipv4() != to.address.is_ipv4() => (
                format!("{prefix} is not of the family of {to}"),
                "write prefixes that the provider has given, of the family of the group",
            ),
            Ok(prefix) if prefix.length == 0 => (
                format!("{prefix} is every address"),
                "write the prefix that the provider has given",
            ),
            Ok(prefix) => match taken.iter().find(|other| prefix.overlaps(***other)) {
                Some(other) => (
                    format!("{prefix} overlaps {other}"),
                    "a prefix belongs to one uplink of a group: leave one of them out",
                ),
                None => {
                    taken.push(prefix);
                    prefixes.push(prefix);
                    continue;
                }
            },
            Err(message) => (message, "write a prefix as in 2001:db8:b::/56"),
        };
        reader.error(text.span(), KEY, message, remedy);
    }
    if let Some(first) = written.get(PREFIXES_MOST) {
        let message = format!("{} prefixes are more than {PREFIXES_MOST}", written.len());
        reader.error(first.span(), KEY, message, "join those that lie side by side");
    }
    prefixes
}

fn read_targets(reader: &mut Reader<'_>, key: &str, written: &[Spanned<String>], to: Destination) -> Vec<Target> {
    let mut targets = Vec::new();
    for text in written {
        let (message, remedy) = match text.get_ref().parse::<Target>() {
            Ok(target) if target.address().is_ipv4() != to.address.is_ipv4() => (
                format!("{target} is not of the family of {to}"),
                "write addresses that the group's uplinks lead to",
            ),
            Ok(target) if target.uselessness().is_some() => (
                format!("{target} is {}", target.uselessness().unwrap_or_default()),
                BEYOND,
            ),
            Ok(target) if targets.contains(&target) => (format!("{target} is named twice"), "name each target once"),
            Ok(target) => {
                targets.push(target);
                continue;
            }
            Err(message) => (message, "names are not looked up"),
        };
        reader.error(text.span(), key, message, remedy);
    }
    if let Some(first) = written.get(TARGETS_MOST) {
        let message = format!("{} targets are more than {TARGETS_MOST}", written.len());
        reader.error(first.span(), key, message, "two or three are enough");
    }
    targets
}
