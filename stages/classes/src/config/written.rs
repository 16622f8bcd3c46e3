//! The section as it is written, before it is judged.

use serde::Deserialize;
use toml::Spanned;

use super::Column;
use crate::module::Rule;
use tarn_base::config::NumberOrText;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenSection {
    pub ports: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub service: Vec<WrittenService>,
    pub deadline: Option<Spanned<String>>,
    #[serde(default)]
    pub rule: Rule,
    pub limit: Option<Spanned<NumberOrText>>,
    pub window: Option<Spanned<String>>,
    pub hold: Option<Spanned<String>>,
    pub hold_rounds: Option<Spanned<i64>>,
    pub patience: Option<Spanned<String>>,
    pub overdue: Option<Spanned<String>>,
    pub memory: Option<Spanned<NumberOrText>>,
    pub max_clients: Option<Spanned<i64>>,
    #[serde(default)]
    pub class: Vec<WrittenClass>,
    pub import: Option<WrittenImport>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenService {
    pub name: Option<Spanned<String>>,
    pub through: Option<Spanned<String>>,
    pub socket: Option<Spanned<String>>,
    pub maps: Option<Spanned<String>>,
    pub ports: Option<Spanned<Vec<Spanned<String>>>>,
    pub protocol: Option<Spanned<String>>,
    pub deadline: Option<Spanned<String>>,
    pub limit: Option<Spanned<NumberOrText>>,
    pub patience: Option<Spanned<String>>,
    pub overdue: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenClass {
    pub name: Spanned<String>,
    pub target: Spanned<f64>,
    pub deadline: Option<Spanned<String>>,
    pub cap: Option<Spanned<i64>>,
    #[serde(default)]
    pub networks: Vec<Spanned<String>>,
    pub networks_file: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenImport {
    pub by: Column,
    pub thresholds: Spanned<Vec<i64>>,
}
