//! What proves the stage.

use anyhow::{Context, Result};

use tarn_lab::Proof;
use tarn_lab::topology::Namespace;

mod cost;
mod jitter;

/// The proof.
pub static PROOF: Proof = Proof {
    stage: crate::STAGE,
    modules: &[],
    experiments: &[&jitter::JITTER, &cost::COST],
    bench: None,
};

/// Brings tarn up on a host, with the uplinks `wan1` by 10.1.0.1, `wan2` by 10.2.0.1, and so on, to a destination where a target is.
/// `stage` and `group` are further lines of the configuration.
fn bring_up(host: &Namespace, uplinks: usize, (to, target): (&str, &str), stage: &str, group: &str) -> Result<()> {
    let uplinks: Vec<String> = (1..=uplinks)
        .map(|number| format!("{{ device = \"wan{number}\", gateway = \"10.{number}.0.1\" }}"))
        .collect();
    let pin = if group.contains("pin") { "" } else { "pin = false" };
    let text = format!(
        "[paths]\n{stage}\n[[paths.group]]\n{group}\n{pin}\nto = \"{to}\"\ntargets = [\"{target}\"]\nuplink = [{}]\n",
        uplinks.join(", ")
    );
    let file = "/tmp/tarn.toml";
    std::fs::write(file, text).with_context(|| format!("write {file}"))?;
    host.tarn(&["up", "-c", file]).map(drop)
}

/// The routes by which the kernel itself chooses among these uplinks: one nexthop each.
fn nexthops(uplinks: impl Iterator<Item = usize>) -> String {
    let nexthops = uplinks.map(|number| format!("nexthop via 10.{number}.0.1 dev wan{number}"));
    nexthops.collect::<Vec<_>>().join(" ")
}
