//! `tarn check`: what this host supports, stage by stage, and why not.
//!
//! The document of `--json`: `kernel` (`uname -r`), `able` (whether every stage asked about can run), `host` (a list of
//! abilities) and `stages` (each with `name`, `able`, `abilities`). An ability has `name`, `present`, `required` and
//! `detail`: what was found, or why it is absent and the remedy.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use tarn_base::error::{Unsupported, Usage};
use tarn_base::output::{Align, Output, Table};
use tarn_frame::configuration::{self, ConfiguredStage};
use tarn_frame::{Ability, Stage, Stages};
use tarn_kernel::features::{Host, OLDEST};

/// One stage and what it found.
struct Checked {
    name: &'static str,
    abilities: Vec<Ability>,
}

impl Checked {
    fn able(&self) -> bool {
        self.abilities
            .iter()
            .all(|ability| ability.present || !ability.required)
    }
}

/// `tarn check`: of the stages named, or those a configuration has, or all.
///
/// # Errors
/// [`Usage`] for a stage there is none of or a wrong configuration; [`Unsupported`] when a stage asked about, or configured,
/// cannot run here, or none at all, after everything was printed.
pub fn check(stages: Stages, names: &[String], configuration: Option<&Path>, output: &mut Output) -> Result<()> {
    let checked = match configuration {
        Some(path) => check_configuration(stages, path)?,
        None => check_stages(stages, names)?,
    };
    let host = host_abilities(&Host::this());
    let unable: Vec<&str> = checked
        .iter()
        .filter(|stage| !stage.able())
        .map(|stage| stage.name)
        .collect();
    if output.json {
        print_json(&host, &checked, unable.is_empty(), output)?;
    } else {
        print_text(&host, &checked, output);
    }
    let is_asked = !names.is_empty() || configuration.is_some();
    match unable.as_slice() {
        [] => Ok(()),
        unable if !is_asked && unable.len() < checked.len() => Ok(()),
        names => Err(Unsupported(format!(
            "{} cannot run here: the table above says why",
            names.join(", ")
        ))
        .into()),
    }
}

fn check_stages(stages: &[&dyn Stage], names: &[String]) -> Result<Vec<Checked>> {
    for name in names {
        if !stages.iter().any(|stage| stage.name() == name) {
            let known: Vec<&str> = stages.iter().map(|stage| stage.name()).collect();
            return Err(Usage(format!("there is no stage `{name}`: known are {}", known.join(", "))).into());
        }
    }
    let asked = |stage: &&&dyn Stage| names.is_empty() || names.iter().any(|name| name == stage.name());
    let checked = stages.iter().filter(asked).map(|stage| Checked {
        name: stage.name(),
        abilities: stage.probe(),
    });
    Ok(checked.collect())
}

/// The stages that a configuration has: what it needs and this host lacks counts as required.
fn check_configuration(stages: &[&dyn Stage], path: &Path) -> Result<Vec<Checked>> {
    let mut checked = Vec::new();
    for ConfiguredStage { name, configured } in configuration::load(path, stages)?.stages {
        let missing = configured.missing();
        let found = stages
            .iter()
            .filter(|stage| stage.name() == name)
            .flat_map(|stage| stage.probe());
        let mut abilities: Vec<Ability> = found
            .filter(|ability| missing.iter().all(|other| other.name != ability.name))
            .collect();
        // What the stage wants of every host is settled by what its configuration needs of this one.
        abilities
            .iter_mut()
            .for_each(|ability| ability.required &= ability.present);
        abilities.extend(missing.into_iter().map(|ability| Ability {
            present: false,
            required: true,
            ..ability
        }));
        checked.push(Checked { name, abilities });
    }
    Ok(checked)
}

/// What every stage builds on.
fn host_abilities(host: &Host) -> Vec<Ability> {
    vec![
        host.kernel_since(OLDEST).ability("kernel", true),
        host.network_administration().ability("network rights", true),
        host.bpf().ability("BPF rights", false),
        host.btf().ability("BTF", false),
        host.bpf_jit().ability("BPF JIT", false),
        host.module_loading().ability("module loading", false),
    ]
}

fn print_json(host: &[Ability], checked: &[Checked], able: bool, output: &mut Output) -> Result<()> {
    let stage = |stage: &Checked| json!({"name": stage.name, "able": stage.able(), "abilities": stage.abilities});
    let stages: Vec<_> = checked.iter().map(stage).collect();
    output.json(&json!({"kernel": Host::this().release_text(), "able": able, "host": host, "stages": stages}))
}

fn print_text(host: &[Ability], checked: &[Checked], output: &mut Output) {
    output.line("this host");
    output.table(&table(host));
    for stage in checked {
        let verdict = if stage.able() {
            "can run here"
        } else {
            "cannot run here"
        };
        output.line(format_args!("\n{}: {verdict}", stage.name));
        output.table(&table(&stage.abilities));
    }
}

fn table(abilities: &[Ability]) -> Table {
    let mut table = Table::new(&[("ABILITY", Align::Left), ("HERE", Align::Left), ("DETAIL", Align::Left)]);
    for ability in abilities {
        let here = match (ability.present, ability.required) {
            (true, _) => "yes",
            (false, true) => "no, needed",
            (false, false) => "no",
        };
        table.row([ability.name.as_str(), here, ability.detail.as_str()]);
    }
    table
}
