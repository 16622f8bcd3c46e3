//! What this host offers to the stage.

use anyhow::{Result, bail};

use super::config::HAPROXY_SOCKET;
use super::haproxy::runtime::Runtime;
use super::known::Known;
use super::module::MODULE;
use tarn_frame::Ability;
use tarn_frame::state::StateDirectory;

/// The oldest HAProxy that changes a map at once (`prepare map`).
const HAPROXY_OLDEST: (u32, u32) = (2, 4);

/// The abilities; nothing is changed. The module is not needed where HAProxy runs, through which the stage works without it.
pub fn abilities() -> Vec<Ability> {
    let known = StateDirectory::of_this_namespace().and_then(|state| Known::load(&state));
    let known = known.ok().flatten();
    let needs_module = known.as_ref().is_some_and(|known| !known.config.services.is_empty());
    let haproxy = Ability::of("HAProxy", false, haproxy(known));
    let mut abilities = MODULE.abilities();
    if haproxy.present && !needs_module {
        for ability in abilities.iter_mut().filter(|ability| !ability.present) {
            ability.required = false;
            ability.detail += "; services with through = \"haproxy\" need no module";
        }
    }
    abilities.push(haproxy);
    abilities
}

/// The versions of those that services go through; if none is up, of Debian's.
fn haproxy(known: Option<Known>) -> Result<String> {
    let mut sockets: Vec<_> = known.into_iter().flat_map(|known| known.config.proxied).collect();
    sockets.dedup_by(|one, other| one.socket == other.socket);
    let mut sockets: Vec<_> = sockets.into_iter().map(|service| service.socket).collect();
    if sockets.is_empty() {
        sockets.push(HAPROXY_SOCKET.into());
    }
    let mut found = Vec::new();
    for socket in sockets {
        let version = Runtime::new(&socket).version()?;
        if parsed(&version).is_none_or(|version| version < HAPROXY_OLDEST) {
            let (major, minor) = HAPROXY_OLDEST;
            bail!(
                "HAProxy {version} at {} is too old: install {major}.{minor} or newer",
                socket.display()
            );
        }
        found.push(format!("{version} at {}", socket.display()));
    }
    Ok(found.join(", "))
}

/// The first two numbers.
fn parsed(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parsed("2.6.12-1+deb12u3"), Some((2, 6)));
        assert_eq!(parsed("3.0-dev1"), Some((3, 0)));
        assert!(parsed("2.10.1").unwrap() > HAPROXY_OLDEST && parsed("1.9").unwrap() < HAPROXY_OLDEST);
        assert_eq!(parsed("unknown"), None);
    }
}
