//! What this host offers to the carrier.

use anyhow::{Context, Result};

use super::adopt;
use super::layout::{TABLE, base_chains};
use super::steps::lines;
use crate::devices::Devices;
use crate::parse;
use crate::rule::{Origin, Rule};
use tarn_frame::Ability;
use tarn_kernel::nft::Nft;

/// Whether this host's nftables can keep when an element was found last: nft 1.0.7 and newer can.
pub fn keeps_last(nft: &Nft) -> bool {
    nft.check("add table inet tarn_check\nadd set inet tarn_check s { type inet_proto; counter; last; }\n")
        .is_ok()
}

/// What this host offers to the carrier; nothing is changed.
pub fn abilities() -> Vec<Ability> {
    let nft = match Nft::find().and_then(|nft| Ok((nft.version()?, nft))) {
        Err(error) => return vec![Ability::of("nft", false, Err(error))],
        Ok(found) => found,
    };
    let (version, nft) = nft;
    let last = if keeps_last(&nft) {
        "last use of rules is kept"
    } else {
        "last use of rules is not kept (nft 1.0.7 does)"
    };
    let nat = judge(&nft).map(|()| format!("destination NAT through maps works; {last}"));
    vec![
        Ability::of("nft", false, Ok(version)),
        Ability::of("nftables", false, nat),
    ]
}

/// Has the kernel judge a table like ours with every sort of lookup.
fn judge(nft: &Nft) -> Result<()> {
    let examples = [
        ("192.0.2.1:53", "192.0.2.2:54", Some("198.51.100.0/24")),
        ("0.0.0.0:54-55", "192.0.2.2", None),
        ("[::]:53", "[2001:db8::1]:54", None),
    ];
    let rules: Vec<Rule> = examples
        .into_iter()
        .filter_map(|(from, to, source)| {
            let written = parse::Written {
                protocols: &["udp"],
                from,
                to,
                source,
                note: None,
            };
            parse::rules(&written, Origin::Command).ok()
        })
        .flatten()
        .collect();
    let mut script = String::new();
    adopt::steps(None, &rules, &base_chains(&Devices::All), false, |step| {
        let lines = lines(&step).concat();
        script.push_str(&lines.replace(&format!(" {TABLE} "), " tarn_check "));
        Ok(())
    })?;
    nft.check(&script).context(
        "this kernel cannot do destination NAT with nftables maps: load the modules nf_tables, nft_chain_nat, nft_nat \
         and nft_fib_inet (modprobe), or use a kernel that has them",
    )
}
