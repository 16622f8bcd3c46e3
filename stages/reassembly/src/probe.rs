//! What this host offers to the stage, and whether fragments are kept too long for its links.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::defaults::Defaults;
use super::module::{MODULE, Module, TIMEOUT};
use tarn_base::time;
use tarn_frame::Ability;

/// Where the network devices are.
const DEVICES: &str = "/sys/class/net";
/// IPv4 identifiers of a source, destination and protocol (RFC 791).
const IDENTIFIERS: u64 = 65_536;
/// A timeout is advised in steps of this.
const STEP_MS: u64 = 100;

/// The abilities; nothing is changed.
pub fn abilities() -> Vec<Ability> {
    let mut abilities = MODULE.abilities();
    abilities.push(timeout());
    abilities
}

/// Whether IPv4 identifiers may come again before their fragments are given up. The stage runs all the same.
fn timeout() -> Ability {
    let link = links(Path::new(DEVICES)).into_iter().min_by_key(Link::wrap);
    let (present, detail) = match kept() {
        Ok(kept) => judged(link.as_ref(), kept),
        Err(error) => (false, format!("{error:#}")),
    };
    Ability {
        name: "timeout".to_owned(),
        present,
        required: false,
        detail,
    }
}

/// How long IPv4 fragments are kept now: by the module, or else by the stack.
fn kept() -> Result<Duration> {
    // Without the rights to ask it, the module does not say.
    let running = Module::find().and_then(|module| module.map(|mut module| module.state()).transpose());
    match running.ok().flatten().flatten() {
        Some(running) => Ok(running.settings.timeout4),
        None => Ok(Defaults::read()?.timeout4),
    }
}

/// A network device whose speed is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Link {
    name: String,
    /// In Mbit/s.
    speed: u64,
    /// In bytes.
    mtu: u64,
}

impl Link {
    /// The time in which a sender at the link's speed has used all identifiers: a datagram that is sent in fragments is
    /// longer than the MTU (RFC 4963, section 2).
    fn wrap(&self) -> Duration {
        // An MTU is below 2^31: with identifiers, bits and thousands that is below 2^61, whatever a file says below 2^128.
        let bits = u128::from(IDENTIFIERS) * u128::from(self.mtu) * 8;
        let nanoseconds = bits * 1000 / u128::from(self.speed.max(1));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

/// The devices below this directory that are hardware: the speed of others is made up.
fn links(directory: &Path) -> Vec<Link> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse().ok();
    let link = |path: &Path| {
        Some(Link {
            name: path.file_name()?.to_string_lossy().into_owned(),
            // Without a carrier it cannot be read, or is -1; a speed that nobody knows is 0.
            speed: number(&path.join("speed")).filter(|speed| *speed > 0)?,
            mtu: number(&path.join("mtu"))?,
        })
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut links: Vec<Link> = paths
        .filter(|path| path.join("device").exists())
        .filter_map(|path| link(&path))
        .collect();
    links.sort_by(|a, b| a.name.cmp(&b.name));
    links
}

/// Whether `kept` is short enough for the fastest link, and the words for it.
fn judged(link: Option<&Link>, kept: Duration) -> (bool, String) {
    let kept_text = time::text(kept);
    let Some(link) = link else {
        let text = format!("IPv4 fragments are kept for {kept_text}; no network card reports its speed");
        return (true, text);
    };
    let wrap = link.wrap();
    let about = format!("{} ({} Mbit/s, MTU {})", link.name, link.speed, link.mtu);
    let reuse = format!(
        "at the speed of {about} a sender can reuse an identifier after {:.2} s",
        wrap.as_secs_f64()
    );
    let advised = advised(wrap);
    if kept <= wrap {
        return (true, format!("IPv4 fragments are kept for {kept_text}; {reuse}"));
    }
    if kept <= advised {
        return (
            true,
            format!("IPv4 fragments are kept for {kept_text}, the shortest timeout; {reuse}"),
        );
    }
    let advised = time::text(advised);
    let text = format!(
        "IPv4 fragments are kept for {kept_text}, but {reuse}, and fragments of two datagrams can be joined (RFC 4963): set \
         timeout = \"{advised}\" in [reassembly], unless datagrams take longer to arrive"
    );
    (false, text)
}

/// The longest timeout, in whole steps, that is no longer than `wrap` and that the stage has.
fn advised(wrap: Duration) -> Duration {
    let milliseconds = u64::try_from(wrap.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(milliseconds / STEP_MS * STEP_MS).clamp(*TIMEOUT.start(), *TIMEOUT.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(speed: u64, mtu: u64) -> Link {
        Link {
            name: "eth0".to_owned(),
            speed,
            mtu,
        }
    }

    /// RFC 4963's own table: at 1 Gbit/s with packets of 1,500 bytes, identifiers wrap in 0.8 s.
    #[test]
    fn identifiers_wrap_as_rfc_4963_says() {
        assert_eq!(link(1000, 1500).wrap(), Duration::from_micros(786_432));
        assert_eq!(link(10, 1500).wrap(), Duration::from_micros(78_643_200));
        assert!(link(u64::MAX, u64::MAX).wrap() > Duration::ZERO, "nothing overflows");
        assert!(link(0, 1500).wrap() > Duration::ZERO);
    }

    #[test]
    fn a_fast_link_is_told_with_the_timeout_to_set() {
        let (is_short, told) = judged(Some(&link(1000, 1500)), Duration::from_secs(30));
        assert!(!is_short);
        assert!(
            told.contains("eth0 (1000 Mbit/s, MTU 1500)") && told.contains("after 0.79 s"),
            "{told}"
        );
        assert!(told.contains("timeout = \"700ms\""), "{told}");
        assert!(crate::config::timeout("700ms").is_ok());
    }

    #[test]
    fn who_has_set_what_was_advised_is_not_advised_again() {
        for (speed, kept) in [(1000, 700), (10_000, 100), (10, 30_000)] {
            let (is_short, told) = judged(Some(&link(speed, 1500)), Duration::from_millis(kept));
            assert!(is_short, "{told}");
        }
        assert!(
            judged(None, Duration::from_secs(30)).0,
            "a container, which has no hardware"
        );
    }

    #[test]
    fn only_hardware_with_a_known_speed_counts() {
        let directory = tempfile::tempdir().unwrap();
        let device = |name: &str, speed: &str, is_hardware: bool| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.join(if is_hardware { "device" } else { "power" })).unwrap();
            fs::write(path.join("speed"), format!("{speed}\n")).unwrap();
            fs::write(path.join("mtu"), "1500\n").unwrap();
        };
        device("eth0", "1000", true);
        device("eth1", "-1", true);
        device("veth0", "10000", false);
        assert_eq!(links(directory.path()), [link(1000, 1500)]);
        assert!(links(&directory.path().join("none")).is_empty());
    }
}
