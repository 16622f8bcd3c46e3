//! What this host offers to the stage.

use super::clients;
use super::module::MODULE;
use tarn_frame::Ability;
use tarn_kernel::nft::Nft;

/// The abilities, all of them needed; nothing is changed.
pub fn abilities() -> Vec<Ability> {
    let mut abilities = MODULE.abilities();
    let nft = Nft::find().and_then(|nft| Ok((nft.version()?, nft)));
    match nft {
        Err(error) => abilities.push(Ability::of("nft", true, Err(error))),
        Ok((version, nft)) => {
            let maps = clients::judge(&nft).map(|()| "maps of networks to classes work".to_owned());
            abilities.extend([
                Ability::of("nft", true, Ok(version)),
                Ability::of("nftables", true, maps),
            ]);
        }
    }
    abilities
}
