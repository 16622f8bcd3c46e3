//! What this host offers to the stage.

use anyhow::Result;

use super::clients;
use super::module::FAMILY;
use tarn_frame::Ability;
use tarn_kernel::features::{Host, OLDEST};
use tarn_kernel::modules;
use tarn_kernel::nft::Nft;

/// The abilities, all of them needed; nothing is changed.
pub fn abilities() -> Vec<Ability> {
    let host = Host::this();
    let mut abilities = vec![
        host.kernel_since(OLDEST).ability("kernel", true),
        host.network_administration().ability("network administration", true),
    ];
    if !modules::is_loaded(FAMILY.0) {
        abilities.push(host.module_loading().ability("module loading", true));
    }
    abilities.push(modules::finding(FAMILY.0).ability(FAMILY.0, true));
    let nft = Nft::find().and_then(|nft| Ok((nft.version()?, nft)));
    match nft {
        Err(error) => abilities.push(ability("nft", Err(error))),
        Ok((version, nft)) => {
            let maps = clients::judge(&nft).map(|()| "maps of networks to classes work".to_owned());
            abilities.extend([ability("nft", Ok(version)), ability("nftables", maps)]);
        }
    }
    abilities
}

fn ability(name: &str, found: Result<String>) -> Ability {
    Ability {
        name: name.to_owned(),
        present: found.is_ok(),
        required: true,
        detail: found.unwrap_or_else(|error| format!("{error:#}")),
    }
}
