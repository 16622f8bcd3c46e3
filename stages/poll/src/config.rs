//! The section `[poll]` of `tarn.toml`.
//!
//! ```toml
//! [poll]
//! devices = "auto"          # Ethernet cards that are here now or come later; or ["eth0", "eth1"]
//! threads = "auto"          # during a storm; always where nothing can be shed. Or "on": always
//! priority = 1              # of the threads, as long as they leave others something: SCHED_FIFO, 1 to 48
//! cpus = "auto"             # that the threads run on: where the kernel's do; or "2-3,6"
//! shed = "auto"             # where the driver runs XDP programs; or "off"
//! profile = "default"       # or "timely": for threads that have to be on time
//! weight = 16               # packets that a poll may take, with "timely": 8 to 64
//! ```

use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::cpus::Cpus;
use crate::module::{KERNEL_WEIGHT, WEIGHT};
use tarn_base::config::{ConfigError, Reader, Section};

/// The highest priority of the threads: the kernel's own threads for interrupts have 50, and the guard has one more than they.
const PRIORITY_MOST: i64 = 48;
/// Packets that a poll may take with the profile "timely".
const TIMELY_WEIGHT: u32 = 16;
/// The most devices that can be named.
pub const DEVICES_MOST: usize = 64;

/// A valid section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Devices that are named; `None`: Ethernet cards.
    pub devices: Option<Vec<String>>,
    /// Whether devices are threaded in calm times, too.
    pub always_threads: bool,
    /// The priority of threads that go first.
    pub priority: i32,
    /// The CPUs that the threads run on; `None`: where the kernel's threads run.
    #[serde(default)]
    pub cpus: Option<Cpus>,
    /// Whether packets are shed where they can be.
    pub sheds: bool,
    /// How many packets a poll may take; `None`: as many as the kernel lets it.
    #[serde(default)]
    pub weight: Option<u32>,
    /// Whether CPUs are kept from sleeping so deeply that it takes them long to wake up.
    #[serde(default)]
    pub stays_awake: bool,
}

/// The section as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    devices: Option<Spanned<Devices>>,
    threads: Option<Spanned<String>>,
    priority: Option<Spanned<i64>>,
    cpus: Option<Spanned<String>>,
    shed: Option<Spanned<String>>,
    profile: Option<Spanned<String>>,
    weight: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Devices {
    Word(String),
    Names(Vec<String>),
}

/// Reads and validates the section.
///
/// # Errors
/// Every mistake found.
pub fn read(section: &Section<'_>) -> Result<Config, Vec<ConfigError>> {
    let written: Written = section.deserialize_whole()?;
    let mut reader = Reader::new(section);
    let is_timely = choice(&mut reader, "profile", written.profile.as_ref(), ["default", "timely"]);
    let threads = choice(&mut reader, "threads", written.threads.as_ref(), ["auto", "on"]);
    let config = Config {
        devices: written.devices.as_ref().and_then(|devices| names(&mut reader, devices)),
        always_threads: threads || is_timely,
        priority: reader.number("priority", written.priority.as_ref(), 1, 1..=PRIORITY_MOST) as i32,
        cpus: written.cpus.as_ref().and_then(|written| cpus(&mut reader, written)),
        sheds: !choice(&mut reader, "shed", written.shed.as_ref(), ["auto", "off"]),
        weight: weight(&mut reader, written.weight.as_ref(), is_timely),
        stays_awake: is_timely,
    };
    reader.finish(config)
}

fn names(reader: &mut Reader<'_>, written: &Spanned<Devices>) -> Option<Vec<String>> {
    let span = written.span();
    match written.get_ref() {
        Devices::Word(word) if word == "auto" => None,
        Devices::Word(word) => {
            let message = format!("'{word}' does not say which devices are meant");
            reader.error(
                span,
                "devices",
                message,
                "write \"auto\", or a list of devices: [\"eth0\"]",
            );
            None
        }
        Devices::Names(names) => {
            if names.is_empty() {
                reader.error(
                    span.clone(),
                    "devices",
                    "no device is named",
                    "write \"auto\", or leave the key out",
                );
            }
            if names.len() > DEVICES_MOST {
                let message = format!("{} devices are more than {DEVICES_MOST}", names.len());
                reader.error(span.clone(), "devices", message, "write \"auto\"");
            }
            for (index, name) in names.iter().enumerate() {
                reader.device("devices", span.clone(), name);
                if names[..index].contains(name) {
                    let message = format!("'{name}' is named twice");
                    reader.error(span.clone(), "devices", message, "leave one of them out");
                }
            }
            Some(names.clone())
        }
    }
}

fn cpus(reader: &mut Reader<'_>, written: &Spanned<String>) -> Option<Cpus> {
    let list = written.get_ref();
    if list == "auto" {
        return None;
    }
    let cpus = Cpus::parse(list);
    if cpus.is_none() {
        let message = format!("'{list}' is no list of CPUs");
        reader.error(
            written.span(),
            "cpus",
            message,
            "write \"auto\", or their numbers: \"2-3,6\"",
        );
    }
    cpus
}

/// Whether the second of two words was written; the first is the default.
fn choice(reader: &mut Reader<'_>, key: &str, written: Option<&Spanned<String>>, words: [&str; 2]) -> bool {
    let Some(written) = written else { return false };
    let (word, [default, other]) = (written.get_ref(), words);
    if !words.contains(&word.as_str()) {
        let message = format!("'{word}' is no choice");
        let remedy = format!("write \"{default}\" or \"{other}\"");
        reader.error(written.span(), key, message, remedy);
    }
    word == other
}

fn weight(reader: &mut Reader<'_>, written: Option<&Spanned<i64>>, is_timely: bool) -> Option<u32> {
    if let Some(written) = written.filter(|_| !is_timely) {
        let message = "only threads that always receive have a weight of their own";
        reader.error(
            written.span(),
            "weight",
            message,
            "add profile = \"timely\", or leave the key out",
        );
    }
    let range = i64::from(*WEIGHT.start())..=i64::from(*WEIGHT.end());
    let default = if is_timely { TIMELY_WEIGHT } else { KERNEL_WEIGHT };
    let weight = reader.number("weight", written, default, range);
    Some(weight).filter(|weight| *weight != KERNEL_WEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_base::config::testing;

    fn read_text(text: &str) -> Result<Config, String> {
        testing::section("poll", text, read).map_err(|errors| errors.join("\n"))
    }

    #[test]
    fn an_empty_section_is_all_that_most_need() {
        let config = read_text("[poll]\n").unwrap();
        assert_eq!(
            config,
            read_text(
                "[poll]\ndevices = \"auto\"\nthreads = \"auto\"\npriority = 1\ncpus = \"auto\"\nshed = \"auto\"\n"
            )
            .unwrap()
        );
        assert_eq!(
            (config.devices, config.always_threads, config.priority, config.sheds),
            (None, false, 1, true)
        );
        assert_eq!((config.weight, config.stays_awake), (None, false));
    }

    #[test]
    fn what_is_named_is_taken() {
        let config = read_text(
            "[poll]\ndevices = [\"eth0\"]\nthreads = \"on\"\npriority = 48\nshed = \"off\"\ncpus = \"3,1\"\n",
        )
        .unwrap();
        assert_eq!(config.cpus, Cpus::parse("1,3"));
        assert_eq!(config.devices.as_deref(), Some(["eth0".to_owned()].as_slice()));
        assert_eq!(
            (config.always_threads, config.priority, config.sheds),
            (true, 48, false)
        );
    }

    #[test]
    fn a_profile_sets_what_belongs_together() {
        let timely = |more: &str| read_text(&format!("[poll]\nprofile = \"timely\"\n{more}")).unwrap();
        let config = timely("");
        assert_eq!(
            (config.always_threads, config.weight, config.stays_awake),
            (true, Some(16), true)
        );
        assert_eq!(timely("weight = 8\n").weight, Some(8));
        assert_eq!(
            timely("weight = 64\n").weight,
            None,
            "the kernel's own: no module is needed"
        );
        assert_eq!(read_text("[poll]\nprofile = \"default\"\n"), read_text("[poll]\n"));
    }

    /// What an earlier tarn has left in the state directory is understood by the one that comes after it.
    #[test]
    fn what_an_earlier_tarn_has_written_is_read() {
        let text = r#"{"devices":null,"always_threads":true,"priority":1,"sheds":true}"#;
        let config: Config = serde_json::from_str(text).unwrap();
        assert_eq!((config.weight, config.stays_awake, &config.cpus), (None, false, &None));
        let held = Config {
            cpus: Cpus::parse("2-3"),
            ..config
        };
        let text = serde_json::to_string(&held).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), held);
    }

    #[test]
    fn a_mistake_is_reported_at_its_place_with_what_would_be_right() {
        for (text, wanted) in [
            ("devices = \"eth0\"", "'eth0' does not say which devices are meant"),
            ("devices = []", "no device is named"),
            ("devices = [\"a/b\"]", "'a/b' cannot be the name of a device"),
            ("devices = [\"a\", \"a\"]", "'a' is named twice"),
            (
                "threads = \"off\"",
                "t:2:11: poll.threads: 'off' is no choice; write \"auto\" or \"on\"",
            ),
            ("shed = \"on\"", "write \"auto\" or \"off\""),
            ("priority = 49", "poll.priority: 49 is out of range; write 1 to 48"),
            ("priority = 0", "0 is out of range"),
            (
                "cpus = \"3-1\"",
                "'3-1' is no list of CPUs; write \"auto\", or their numbers: \"2-3,6\"",
            ),
            (
                "weight = 16",
                "poll.weight: only threads that always receive have a weight of their own",
            ),
            ("profile = \"timely\"\nweight = 4", "4 is out of range; write 8 to 64"),
            ("profile = \"fast\"", "write \"default\" or \"timely\""),
            ("budget = 16", "there is no such key"),
        ] {
            let error = read_text(&format!("[poll]\n{text}\n")).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
