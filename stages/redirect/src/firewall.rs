//! The host's own firewall, as far as nftables shows it: what of it redirected packets do not meet with `bpf`, and whether
//! there is any where this host begins to forward.

use anyhow::Result;

use crate::rule::Family;
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

/// Whether rules, or a policy, restrict what this host forwards of a family. Where the kernel does not say, there may be some.
pub fn restricts_forwarding(family: Family) -> bool {
    others().map_or(true, |filters| restrict_forwarding(&filters, family))
}

fn restrict_forwarding(filters: &[Filter], family: Family) -> bool {
    let name = match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    let meets = |filter: &Filter| filter.hook == Hook::Forward && [name, "inet"].contains(&filter.family);
    filters.iter().any(meets)
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

    fn filter(family: &'static str, number: usize) -> Filter {
        Filter {
            family,
            table: "filter".to_owned(),
            chain: format!("forward{number}"),
            hook: Hook::Forward,
            is_ours: false,
        }
    }

    /// A firewall of the one family leaves the other open: its administrator is told when forwarding is turned on for both.
    #[test]
    fn a_firewall_restricts_its_own_family() {
        let restricts = |of, family| restrict_forwarding(&[filter(of, 0)], family);
        assert!(restricts("ip", Family::V4) && !restricts("ip", Family::V6));
        assert!(restricts("ip6", Family::V6) && !restricts("ip6", Family::V4));
        assert!(restricts("inet", Family::V4) && restricts("inet", Family::V6));
        assert!(!restrict_forwarding(&[], Family::V4));
    }

    /// The line stays one that can be read, however many chains a host has.
    #[test]
    fn few_chains_are_named() {
        let filters: Vec<Filter> = (0..5).map(|number| filter("inet", number)).collect();
        assert_eq!(names(&filters[..1]), "'inet filter forward0'");
        assert!(names(&filters).ends_with("'inet filter forward2', 2 more chains"));
    }
}
