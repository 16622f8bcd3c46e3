//! Imports into a file of clients, as on a host where all services go through HAProxy; the module takes the same changes.

use std::time::Duration;

use serde_json::{Value, json};
use tarn_base::error::exit_code;
use tarn_base::output::testing::output;
use tarn_frame::state::StateDirectory;

use super::*;
use crate::clients::Client;
use crate::config::tests::config;
use crate::known::Known;

const SHOP: &str = "\
[classes]
deadline = \"40ms\"
max_clients = 4

[[classes.service]]
name = \"shop\"
through = \"haproxy\"

[[classes.class]]
name = \"gold\"
target = 90

[[classes.class]]
name = \"rest\"
target = 50

[classes.import]
by = \"months\"
thresholds = [12]
";

const REAL: How = How {
    is_dry: false,
    skips_wrong: false,
    replaces: false,
};
const DRY: How = How { is_dry: true, ..REAL };
const SKIPPING: How = How {
    skips_wrong: true,
    ..REAL
};
const REPLACING: How = How { replaces: true, ..REAL };

/// What is up, with no clients yet.
struct Host {
    known: Known,
    store: Store,
    _directory: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(&directory.path().join("run"), "netns-test");
        state.create().unwrap();
        let known = Known {
            config: config(SHOP),
            stopped: false,
            names_clients: false,
            resets: 0,
        };
        Self {
            store: Store::of(&known.config, &state).unwrap(),
            known,
            _directory: directory,
        }
    }

    /// Imports a file: what is reported, in JSON and as text, and whether it is an error.
    fn import(&mut self, text: &str, how: How) -> (Value, String, Result<()>) {
        let config = &self.known.config;
        let plan = plan(text, rule(config).unwrap()).unwrap();
        let (report, done) = carry_out(config, &mut self.store, plan, how).unwrap();
        let (mut output, written) = output(None);
        report.print(&self.known, &mut output).unwrap();
        (
            serde_json::to_value(report.document(&self.known)).unwrap(),
            written.text(),
            done,
        )
    }

    fn clients(&mut self) -> Vec<(String, Option<u16>)> {
        let entries = self.store.all().unwrap();
        let shown = entries.iter().map(|entry| (entry.prefix.to_string(), entry.class));
        shown.collect()
    }
}

fn clients(expected: &[(&str, u16)]) -> Vec<(String, Option<u16>)> {
    let client = |(prefix, class): &(&str, u16)| ((*prefix).to_owned(), Some(*class));
    expected.iter().map(client).collect()
}

/// An operator who has read the dry run is not surprised.
#[test]
fn the_import_does_what_its_dry_run_says() {
    let mut host = Host::new();
    host.import("address,months\n10.0.0.1,1\n10.0.0.2,24\n", REAL)
        .2
        .unwrap();
    let text = "address,months\n10.0.0.1,24\n10.0.0.2,24\n10.0.0.3,1\n";
    let before = host.clients();
    let (dry, dry_text, done) = host.import(text, DRY);
    assert!(done.is_ok());
    assert_eq!(host.clients(), before);
    let (real, real_text, done) = host.import(text, REAL);
    assert!(done.is_ok());
    let changed = json!([{"line": 2, "network": "10.0.0.1", "from": "rest", "left_s": null, "to": "gold"}]);
    let expected = json!({
        "classes": [
            {"class": "gold", "clients": 2, "new": 0, "same": 1, "changed": 1},
            {"class": "rest", "clients": 1, "new": 1, "same": 0, "changed": 0},
        ],
        "changes": changed,
        "changes_left_out": 0,
        "removed": [],
        "removed_left_out": 0,
        "wrong": [],
        "wrong_left_out": 0,
        "refused": null,
        "carried_out": false,
    });
    assert_eq!(dry, expected);
    assert_eq!((&real["changes"], &real["carried_out"]), (&changed, &json!(true)));
    assert!(
        dry_text.contains("line 2: 10.0.0.1 would change from rest to gold"),
        "{dry_text}"
    );
    assert!(
        real_text.contains("line 2: 10.0.0.1 changed from rest to gold"),
        "{real_text}"
    );
    let expected = [("10.0.0.1/32", 0), ("10.0.0.2/32", 0), ("10.0.0.3/32", 1)];
    assert_eq!(host.clients(), clients(&expected));
    let (again, _, _) = host.import(text, REAL);
    assert_eq!((&again["changes"], &again["carried_out"]), (&json!([]), &json!(true)));
}

/// One customer's typing error keeps no other from being imported, whatever it is.
#[test]
fn every_kind_of_wrong_line_is_skipped_when_asked_and_refused_otherwise() {
    let bytes = b"address,months,name\n10.0.0.1,24,M\xfcller\n10.0.0.300,24\n10.0.0.2,many\n10.0.0.3\n\
        10.0.0.1,1\n::ffff:10.0.0.1,1\n10.0.0.4,\"24\n10.0.0.5,2,4,Eva\n10.0.0.\xff,24\n10.0.0.9-10.0.0.1,24\n\
        10.0.0.1/8,24\n,,\n10.0.0.6,-1\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let text = read(file.path()).unwrap();
    let mut host = Host::new();
    let (dry, dry_text, _) = host.import(&text, DRY);
    let (refused, _, done) = host.import(&text, REAL);
    let error = done.unwrap_err();
    assert_eq!((exit_code(&error), host.clients()), (2, vec![]));
    assert!(
        error.to_string().starts_with("12 wrong lines: mend the file"),
        "{error}"
    );
    assert_eq!(dry, refused);
    assert!(
        dry_text.contains("the import would be refused: 12 wrong lines"),
        "{dry_text}"
    );
    assert_eq!(
        (&refused["carried_out"], &refused["refused"]),
        (&json!(false), &json!(error.to_string()))
    );
    let (skipped, _, done) = host.import(&text, SKIPPING);
    assert!(done.is_ok());
    let wrong = skipped["wrong"].as_array().unwrap();
    let lines: Vec<u64> = wrong.iter().map(|wrong| wrong["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, (3..=14).collect::<Vec<u64>>(), "{wrong:#?}");
    assert_eq!(
        (&skipped["carried_out"], &skipped["refused"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(host.clients(), clients(&[("10.0.0.1/32", 0)]));
}

/// A script would take a file of rubbish for one that was imported.
#[test]
fn what_changes_nothing_is_not_said_to_be_carried_out() {
    let mut host = Host::new();
    let (report, _, done) = host.import("address,months\ngold,24\n", SKIPPING);
    assert_eq!(
        done.unwrap_err().to_string(),
        "1 wrong line, and no other: nothing has changed"
    );
    assert_eq!(report["carried_out"], false);
    let (report, _, done) = host.import("address,months\n", REAL);
    assert!(done.is_ok() && report["carried_out"] == false);
    let many = "address,months\n10.0.0.1-10.0.0.14,24\n";
    for how in [DRY, REAL] {
        let (report, _, done) = host.import(many, how);
        let error = done.unwrap_err();
        assert!(
            error.to_string().starts_with("more than 4 networks of clients"),
            "{error}"
        );
        assert_eq!(
            (&report["carried_out"], &report["refused"]),
            (&json!(false), &json!(error.to_string()))
        );
    }
    assert_eq!(host.clients(), []);
}

/// Whoever has left would stay gold for ever; who has logged in, or is in tarn.toml, would lose what no table gave.
#[test]
fn an_import_that_replaces_takes_out_who_is_in_no_line() {
    let mut host = Host::new();
    let mut others = Change::default();
    for (network, origin, timeout) in [
        ("192.0.2.0/24", Origin::File, None),
        ("10.0.0.9", Origin::Command, Some(Duration::from_secs(3600))),
    ] {
        let client = Client::of_file((network.parse().unwrap(), 0));
        others.add(&Client {
            origin,
            timeout,
            ..client
        });
    }
    host.store.apply(others, 4).unwrap();
    let (_, _, done) = host.import("address,months\n10.0.0.1,24\n10.0.0.2,24\n", REAL);
    done.unwrap();
    // There is room for four: one comes and one goes.
    let (report, text, done) = host.import("address,months\n10.0.0.2,24\n10.0.0.3,1\n", REPLACING);
    done.unwrap();
    assert_eq!(report["removed"], json!([{"network": "10.0.0.1", "from": "gold"}]));
    assert!(
        text.contains("no line of its own: 10.0.0.1 is no longer of class gold"),
        "{text}"
    );
    let expected = [
        ("10.0.0.2/32", 0),
        ("10.0.0.3/32", 1),
        ("10.0.0.9/32", 0),
        ("192.0.2.0/24", 0),
    ];
    assert_eq!(host.clients(), clients(&expected));
    // A table that has a network of tarn.toml, too, does not make it one to be taken out.
    for table in [
        "address,months\n192.0.2.0/24,24\n10.0.0.2,24\n10.0.0.3,1\n",
        "address,months\n10.0.0.2,24\n10.0.0.3,1\n",
    ] {
        let (_, _, done) = host.import(table, REPLACING);
        done.unwrap();
        assert_eq!(host.clients(), clients(&expected));
    }
    let (_, _, done) = host.import("address,months\n", REPLACING);
    assert!(done.unwrap_err().to_string().contains("no customer is in the file"));
    let (report, _, done) = host.import("address,months\n10.0.0.2,24\nnobody,1\n", REPLACING);
    assert!(!done.unwrap_err().to_string().contains("--skip-wrong"));
    assert_eq!(report["removed"], json!([]));
    assert_eq!(host.clients(), clients(&expected));
}
