//! What a host seems to be for.

use std::fs;
use std::path::Path;

use tarn_kernel::links::Link;

use super::Profile;

/// How the names of connectors begin that a display is plugged into (drm_connector.c). Virtual machines, and the remote consoles of
/// servers, have others, which are always connected.
const DISPLAYS: [&str; 6] = ["eDP-", "LVDS-", "DSI-", "HDMI-", "DP-", "DVI-"];

/// What a host with these files and devices seems to be for, and why. `is_up` picks the devices that can carry packets now; `uplinks` are
/// those that default routes lead by.
pub fn seeming(root: &Path, links: &[Link], is_up: impl Fn(&Link) -> bool, uplinks: &[u32]) -> (Profile, &'static str) {
    if has_entry(root, "sys/class/power_supply", is_battery) {
        return (Profile::Desktop, "it has a battery");
    }
    let is_on = |path: &str| read(&root.join(path)) == "1";
    let forwards = is_on("proc/sys/net/ipv4/ip_forward") || is_on("proc/sys/net/ipv6/conf/all/forwarding");
    if forwards && !serves_guests(links) && has_inside(links, is_up, uplinks) {
        return (Profile::Router, "it forwards, and has a network card that is no uplink");
    }
    if has_entry(root, "sys/class/drm", is_connected) {
        return (Profile::Desktop, "it has a display");
    }
    (Profile::Server, "it has no display and no battery")
}

/// A file's text without the line's end; none where it cannot be read. The kernel need not write UTF-8.
fn read(path: &Path) -> String {
    let content = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&content).trim().to_owned()
}

fn has_entry(root: &Path, directory: &str, is_it: fn(&Path) -> bool) -> bool {
    let mut entries = fs::read_dir(root.join(directory)).into_iter().flatten().flatten();
    entries.any(|entry| is_it(&entry.path()))
}

/// Mice and headsets have batteries, too, whose scope is the device (power_supply_sysfs.c).
fn is_battery(supply: &Path) -> bool {
    read(&supply.join("type")) == "Battery" && read(&supply.join("scope")) != "Device"
}

/// `card0-HDMI-A-1`
fn is_connected(connector: &Path) -> bool {
    let name = connector.file_name().unwrap_or_default().to_string_lossy();
    let is_display = name
        .split_once('-')
        .is_some_and(|(_, name)| DISPLAYS.iter().any(|display| name.starts_with(display)));
    is_display && read(&connector.join("status")) == "connected"
}

/// Whether a device leads out of this host: a card, a VLAN or a port of a switch.
fn is_port(link: &Link) -> bool {
    match link.kind.as_str() {
        "" => link.is_ethernet() && !link.is_loopback,
        "vlan" | "dsa" => true,
        _ => false,
    }
}

/// Whether there are containers or virtual machines, which have a host forward that is no router: a bridge without ports, which is down
/// while none of them runs, or a veth that leads into another namespace.
fn serves_guests(links: &[Link]) -> bool {
    let has_ports = |bridge: &Link| {
        let mut links = links.iter();
        links.any(|link| link.master == Some(bridge.index) && is_port(link))
    };
    links.iter().any(|link| match link.kind.as_str() {
        "bridge" => !has_ports(link),
        "veth" => link.other_namespace,
        _ => false,
    })
}

/// Whether a port that is up leads elsewhere than the uplinks.
fn has_inside(links: &[Link], is_up: impl Fn(&Link) -> bool, uplinks: &[u32]) -> bool {
    let mut ports = links.iter().filter(|link| is_port(link) && is_up(link));
    ports.any(|port| !is_of_uplink(port, links, uplinks))
}

/// Whether a device is an uplink, below one, or a member of one.
fn is_of_uplink(link: &Link, links: &[Link], uplinks: &[u32]) -> bool {
    let above = |below: &Link| {
        let is_above = |other: &&Link| other.lower == Some(below.index) && !other.other_namespace;
        links
            .iter()
            .filter(is_above)
            .map(|other| other.index)
            .collect::<Vec<u32>>()
    };
    // A VLAN on a bond of cards takes two steps.
    let mut reached = vec![link.index];
    let mut step = 0;
    while let Some(&index) = reached.get(step) {
        step += 1;
        if uplinks.contains(&index) {
            return true;
        }
        let Some(link) = links.iter().find(|link| link.index == index) else {
            continue;
        };
        let next = above(link).into_iter().chain(link.master);
        let next: Vec<u32> = next.filter(|next| !reached.contains(next)).collect();
        reached.extend(next);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::testing::link;
    use super::*;

    fn seems(files: &[(&str, &str)], links: &[Link], uplinks: &[u32]) -> Profile {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        seeming(root.path(), links, |link| !IDLE.contains(&link.name.as_str()), uplinks).0
    }

    /// Devices without a carrier.
    const IDLE: [&str; 2] = ["docker0", "eth9"];

    const FORWARDS: (&str, &str) = ("proc/sys/net/ipv4/ip_forward", "1\n");

    #[test]
    fn people_sit_at_a_display_or_a_battery() {
        let cards = [link(1, "eth0", ""), link(2, "eth1", "")];
        let of = |path: &str, content: &str| seems(&[(path, content)], &cards, &[1]);
        assert_eq!(
            of("sys/class/drm/card0-HDMI-A-1/status", "connected\n"),
            Profile::Desktop
        );
        assert_eq!(of("sys/class/power_supply/BAT0/type", "Battery\n"), Profile::Desktop);
        for unused in ["card0-DP-1", "card0-HDMI-A-2"] {
            assert_eq!(
                of(&format!("sys/class/drm/{unused}/status"), "disconnected\n"),
                Profile::Server
            );
        }
        // A virtual machine's card, and a server's remote console.
        for always in ["card0-Virtual-1", "card0-Unknown-1", "card0-VGA-1"] {
            assert_eq!(
                of(&format!("sys/class/drm/{always}/status"), "connected\n"),
                Profile::Server
            );
        }
        let mouse = "sys/class/power_supply/hidpp_battery_0";
        let mouse = [
            (format!("{mouse}/type"), "Battery\n"),
            (format!("{mouse}/scope"), "Device\n"),
        ];
        let mouse: Vec<_> = mouse.iter().map(|(path, content)| (path.as_str(), *content)).collect();
        assert_eq!(seems(&mouse, &cards, &[1]), Profile::Server);
    }

    #[test]
    fn a_router_forwards_between_networks_of_its_own() {
        let cards = [link(1, "eth0", ""), link(2, "eth1", "")];
        assert_eq!(seems(&[FORWARDS], &cards, &[1]), Profile::Router);
        assert_eq!(seems(&[], &cards, &[1]), Profile::Server);
        // A laptop in its dock runs containers.
        let battery = ("sys/class/power_supply/BAT0/type", "Battery\n");
        assert_eq!(seems(&[FORWARDS, battery], &cards, &[1]), Profile::Desktop);
        // Behind PPPoE, and on one card with a VLAN inside.
        let ppp = Link {
            hardware: libc::ARPHRD_PPP,
            ..link(3, "ppp0", "ppp")
        };
        assert_eq!(seems(&[FORWARDS], &[cards[0].clone(), ppp], &[3]), Profile::Router);
        let vlan = |index, name: &str| Link {
            lower: Some(1),
            ..link(index, name, "vlan")
        };
        let stick = [cards[0].clone(), vlan(4, "eth0.10"), vlan(5, "eth0.20")];
        assert_eq!(seems(&[FORWARDS], &stick, &[4]), Profile::Router);
    }

    #[test]
    fn a_host_of_containers_is_no_router() {
        let member = |index, name: &str| Link {
            master: Some(9),
            ..link(index, name, "")
        };
        let bond = [member(1, "eth0"), member(2, "eth1"), link(9, "bond0", "bond")];
        assert_eq!(seems(&[FORWARDS], &bond, &[9]), Profile::Server);
        let docker = [link(1, "eth0", ""), link(2, "eth1", ""), link(3, "docker0", "bridge")];
        assert_eq!(seems(&[FORWARDS], &docker, &[1]), Profile::Server);
        let pod = Link {
            other_namespace: true,
            ..link(3, "cali0", "veth")
        };
        let kubernetes = [link(1, "eth0", ""), link(2, "eth1", ""), pod];
        assert_eq!(seems(&[FORWARDS], &kubernetes, &[1]), Profile::Server);
        let unplugged = [link(1, "eth0", ""), link(2, "eth9", "")];
        assert_eq!(seems(&[FORWARDS], &unplugged, &[1]), Profile::Server);
    }
}
