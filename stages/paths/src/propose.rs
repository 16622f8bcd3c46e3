//! What `tarn init` writes about this stage.

use std::fmt::Write;

use tarn_frame::survey::{Profile, Proposal, Survey, Uplink, quoted};

use crate::networkd;

/// Hosts that answer pings anywhere: Cloudflare's and Quad9's name servers.
const TARGETS: [&str; 2] = [
    "# Hosts to ping over each uplink:\ntargets = [\"1.1.1.1\", \"9.9.9.9\"]",
    "# Hosts to ping over each uplink:\ntargets = [\"2606:4700:4700::1111\", \"2620:fe::fe\"]",
];
const TO: [&str; 2] = ["default", "::/0"];
const GATEWAY: &str = "gateway = \"auto\"         # from the default route of the DHCP client";

/// A group of these uplinks, for IPv4 or IPv6 (1).
fn group(uplinks: &[&str], family: usize) -> String {
    let mut group = format!("[[paths.group]]\nto = \"{}\"\n{}\n", TO[family], TARGETS[family]);
    for device in uplinks {
        // Nothing can fail that is written to a text.
        let _ = write!(
            group,
            "\n[[paths.group.uplink]]\ndevice = {}\n{GATEWAY}\n",
            quoted(device)
        );
        // By its name (systemd.net-naming-scheme(7)), a modem for mobile networks.
        if device.starts_with("ww") {
            group += "metered = true           # fewer pings\n";
        }
    }
    group
}

fn section(groups: &[String]) -> String {
    format!("[paths]\npolicy = \"calmest\"\n\n{}", groups.join("\n"))
}

fn names<'a>(uplinks: &[&'a Uplink]) -> Vec<&'a str> {
    uplinks.iter().map(|uplink| uplink.device.as_str()).collect()
}

/// The uplinks of a family where there are several: those with the least metric first.
fn several(survey: &Survey, family: usize) -> Option<Vec<&Uplink>> {
    let mut uplinks: Vec<&Uplink> = survey
        .uplinks
        .iter()
        .filter(|uplink| uplink.metrics[family].is_some())
        .collect();
    uplinks.sort_by_key(|uplink| uplink.metrics[family]);
    (uplinks.len() > 1).then_some(uplinks)
}

/// Why somebody has to decide whether tarn chooses between these.
fn doubt(survey: &Survey, uplinks: &[&Uplink]) -> Option<String> {
    let reserve = || "If one of them is a reserve, leave it at that.".to_owned();
    hindrance(uplinks).or_else(|| (survey.profile != Profile::Router).then(reserve))
}

/// Why tarn should not choose between these by itself, whoever has said that they are to be used together.
fn hindrance(uplinks: &[&Uplink]) -> Option<String> {
    if let Some(tunnel) = uplinks.iter().find(|uplink| uplink.is_tunnel()) {
        return Some(format!(
            "{} is a tunnel: if it is there for privacy, nothing may go past it.",
            tunnel.device
        ));
    }
    let ability = networkd::ability().filter(|ability| !ability.present);
    ability.map(|ability| format!("systemd-networkd runs: {}.", ability.detail))
}

/// The administrator has said that the uplinks are to be used together.
fn adopting(survey: &Survey) -> Proposal {
    let section = format!(
        "[paths]\npolicy = \"proportional\"\n\n[[paths.group]]\nto = \"default\"\nadopt = true             # the route names the uplinks\n{}\n",
        TARGETS[0]
    );
    let found = "There is a multipath route to default.";
    match hindrance(&survey.uplinks.iter().collect::<Vec<_>>()) {
        None => Proposal::of(
            format!(
                "{found} Its uplinks stay in use, the calmer ones get more traffic, and traffic leaves an uplink that fails."
            ),
            section,
        ),
        Some(hindrance) => Proposal::example(format!("{found} {hindrance}"), section),
    }
}

/// For routers with several uplinks; elsewhere they may be there for another reason.
pub fn propose(survey: &Survey) -> Proposal {
    if survey.has_multipath {
        return adopting(survey);
    }
    let families: Vec<(usize, Vec<&Uplink>)> = [0, 1]
        .into_iter()
        .filter_map(|family| Some((family, several(survey, family)?)))
        .collect();
    let Some((_, first)) = families.first() else {
        return Proposal::example(
            "This host has at most one uplink, so there is nothing to choose.",
            section(&[group(&["wan0", "wwan0"], 0)]),
        );
    };
    let groups: Vec<String> = families
        .iter()
        .map(|(family, uplinks)| group(&names(uplinks), *family))
        .collect();
    let found = format!("Default routes lead by {}.", names(first).join(" and "));
    match families.iter().find_map(|(_, uplinks)| doubt(survey, uplinks)) {
        None => Proposal::of(
            format!("{found} New connections use the calmest of them, and traffic leaves an uplink that fails."),
            section(&groups),
        ),
        Some(doubt) => Proposal::example(
            format!("{found} The kernel uses the one with the lowest metric; tarn would use the calmest. {doubt}"),
            section(&groups),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_frame::survey::testing::host;

    /// A VPN that traffic must not leave, and a modem that costs money, are not for a program to choose.
    #[test]
    fn only_a_router_s_own_uplinks_are_chosen_from_unasked() {
        let two = [("eth0", ""), ("wwan0", "wwan")];
        if networkd::ability().is_none_or(|ability| ability.present) {
            assert!(propose(&host(Profile::Router, &two, &[])).is_proposed);
        }
        for (profile, uplinks) in [
            (Profile::Router, &[("eth0", ""), ("tun0", "tun")]),
            (Profile::Desktop, &two),
            (Profile::Server, &two),
        ] {
            let proposal = propose(&host(profile, uplinks, &[]));
            assert!(!proposal.is_proposed, "{}", proposal.section);
        }
        assert!(
            propose(&host(Profile::Desktop, &two, &[]))
                .section
                .contains("metered = true")
        );
    }

    /// A tunnel for IPv6 is no way for IPv4.
    #[test]
    fn each_family_has_its_own_uplinks() {
        let mut survey = host(Profile::Router, &[("eth0", ""), ("he-ipv6", "sit")], &[]);
        survey.uplinks[1].metrics = [None, Some(1024)];
        assert!(propose(&survey).reason.contains("at most one uplink"));
        survey.uplinks[0].metrics = [Some(100), Some(100)];
        let section = propose(&survey).section;
        assert!(
            section.contains("to = \"::/0\"") && !section.contains("to = \"default\""),
            "{section}"
        );
    }

    #[test]
    fn a_multipath_route_is_adopted() {
        let mut survey = host(Profile::Server, &[("eth0", ""), ("eth1", "")], &[]);
        survey.has_multipath = true;
        let proposal = propose(&survey);
        assert!(proposal.is_proposed && proposal.section.contains("adopt = true"));
    }
}
