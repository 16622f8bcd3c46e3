//! The section `[poll]` of `tarn.toml`.
//!
//! ```toml
//! [poll]
//! devices = "auto"          # Ethernet cards that are here now or come later; or ["eth0", "eth1"]
//! threads = "auto"          # during a storm; always where nothing can be shed. Or "on": always
//! priority = 1              # of the threads, as long as they leave others something: SCHED_FIFO, 1 to 48
//! shed = "auto"             # where the driver runs XDP programs; or "off"
//! ```

use serde::{Deserialize, Serialize};
use toml::Spanned;

use tarn_base::config::{ConfigError, Reader, Section};

/// The highest priority of the threads: the kernel's own threads for interrupts have 50, and the guard has one more than they.
const PRIORITY_MOST: i64 = 48;
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
    /// Whether packets are shed where they can be.
    pub sheds: bool,
}

/// The section as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    devices: Option<Spanned<Devices>>,
    threads: Option<Spanned<String>>,
    priority: Option<Spanned<i64>>,
    shed: Option<Spanned<String>>,
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
    let config = Config {
        devices: written.devices.as_ref().and_then(|devices| names(&mut reader, devices)),
        always_threads: choice(&mut reader, "threads", written.threads.as_ref(), "on"),
        priority: reader.number("priority", written.priority.as_ref(), 1, 1..=PRIORITY_MOST) as i32,
        sheds: !choice(&mut reader, "shed", written.shed.as_ref(), "off"),
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

/// Whether the other word than "auto" was written.
fn choice(reader: &mut Reader<'_>, key: &str, written: Option<&Spanned<String>>, other: &str) -> bool {
    let Some(written) = written else { return false };
    let word = written.get_ref();
    if word != "auto" && word != other {
        let message = format!("'{word}' is no choice");
        reader.error(written.span(), key, message, format!("write \"auto\" or \"{other}\""));
    }
    word == other
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
            read_text("[poll]\ndevices = \"auto\"\nthreads = \"auto\"\npriority = 1\nshed = \"auto\"\n").unwrap()
        );
        assert_eq!(
            (config.devices, config.always_threads, config.priority, config.sheds),
            (None, false, 1, true)
        );
    }

    #[test]
    fn what_is_named_is_taken() {
        let config =
            read_text("[poll]\ndevices = [\"eth0\"]\nthreads = \"on\"\npriority = 48\nshed = \"off\"\n").unwrap();
        assert_eq!(config.devices.as_deref(), Some(["eth0".to_owned()].as_slice()));
        assert_eq!(
            (config.always_threads, config.priority, config.sheds),
            (true, 48, false)
        );
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
            ("weight = 16", "there is no such key"),
        ] {
            let error = read_text(&format!("[poll]\n{text}\n")).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
