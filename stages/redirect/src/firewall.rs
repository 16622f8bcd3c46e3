//! The host's own firewall, as far as nftables shows it: what of it redirected packets do not meet with `bpf`, and whether
//! there is any where this host begins to forward.

use anyhow::Result;

use tarn_frame::Ability;
use tarn_kernel::nft::read::{self, Filter, Hook};

/// The ability's name.
pub const NAME: &str = "firewall met by bpf";
/// As many chains are named.
const NAMED: usize = 3;

/// What redirected packets bypass with `bpf`, in a line; `None` when that is nothing, or nobody says.
pub fn bypassed() -> Option<String> {
    let filters: Vec<Filter> = others().ok()?;
    (!filters.is_empty()).then(|| {
        format!(
            "packets that bpf redirects do not meet the firewall's rules in {}; mode = \"nftables\" in the section \
             [redirect] has them meet these",
            names(&filters)
        )
    })
}

/// The same for `tarn check`.
pub fn ability() -> Ability {
    let bypassed = bypassed();
    Ability {
        name: NAME.to_owned(),
        present: bypassed.is_none(),
        required: false,
        detail: bypassed.unwrap_or_else(|| "no nftables rules that redirected packets would bypass".to_owned()),
    }
}

/// Whether rules, or a policy, say what this host forwards. Where nobody tells, there may be some.
pub fn rules_forwarding() -> bool {
    others().map_or(true, |filters| {
        filters.iter().any(|filter| filter.hook == Hook::Forward)
    })
}

fn others() -> Result<Vec<Filter>> {
    let mut filters = read::filters()?;
    filters.retain(|filter| !filter.is_ours);
    Ok(filters)
}

fn names(filters: &[Filter]) -> String {
    let mut names: Vec<String> = filters
        .iter()
        .take(NAMED)
        .map(
            |Filter {
                 family, table, chain, ..
             }| format!("'{family} {table} {chain}'"),
        )
        .collect();
    if filters.len() > NAMED {
        names.push(format!("{} more chains", filters.len() - NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line stays one that can be read, however many chains a host has.
    #[test]
    fn few_chains_are_named() {
        let filter = |number: usize| Filter {
            family: "inet",
            table: "filter".to_owned(),
            chain: format!("forward{number}"),
            hook: Hook::Forward,
            is_ours: false,
        };
        let filters: Vec<Filter> = (0..5).map(filter).collect();
        assert_eq!(names(&filters[..1]), "'inet filter forward0'");
        assert!(names(&filters).ends_with("'inet filter forward2', 2 more chains"));
    }
}
