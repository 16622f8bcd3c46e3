//! A table of customers, imported by a program on the control socket.

use std::io::Write;

use serde_json::{Value, json};

use super::program::Server;
use super::scene::Scene;

/// The module has what the dry run said.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_an_import_changes_what_its_dry_run_says() {
    let scene = Scene::new();
    let program = Server::up(&scene);
    let mut session = program.open();
    session.does("add", &json!({"address": "192.0.2.1", "class": "rest", "for": "30m"}));
    session.does("add", &json!({"address": "192.0.2.2", "class": "gold"}));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"address,months\n192.0.2.1,24\n192.0.2.2,12\n::ffff:192.0.2.3,6\n192.0.2.300,1\n")
        .unwrap();
    let arguments = |is_dry: bool| json!({"file": file.path(), "dry_run": is_dry, "skip_wrong": true});
    let mut dry = session.does("import", &arguments(true));
    assert_eq!(
        (&dry["carried_out"], &dry["wrong"][0]["line"]),
        (&json!(false), &json!(5))
    );
    assert_eq!(
        (&dry["changes"][0]["from"], &dry["changes"][0]["to"], &dry["changes"][1]),
        (&json!("rest"), &json!("gold"), &Value::Null)
    );
    let mut real = session.does("import", &arguments(false));
    assert_eq!(real["carried_out"], true);
    // Time goes on.
    for report in [&mut dry, &mut real] {
        report["changes"][0]["left_s"] = Value::Null;
        report["carried_out"] = Value::Null;
    }
    assert_eq!(dry, real);
    let client =
        |network: &str, class: &str| json!({"network": network, "class": class, "origin": "command", "left_s": null});
    let expected = [
        client("192.0.2.1", "gold"),
        client("192.0.2.2", "gold"),
        client("192.0.2.3", "silver"),
    ];
    assert_eq!(session.does("list", &json!({})), json!({ "clients": expected }));
    program.down();
}
