//! What people, scripts and a screen get of figures.

use super::*;

#[test]
fn scripts_find_every_figure_under_its_field_s_name() {
    let json = testing::figures("x").json();
    assert_eq!(json["carrier"], "bpf");
    assert_eq!(json["packets"], 30);
    assert_eq!(json["rules_in_use"][1]["note"], "x");
    assert_eq!(json["rules_in_use"][0]["note"], Value::Null);
    assert_eq!(Value::from(f64::NAN), Value::Null);
}

#[test]
fn people_see_units_and_what_a_figure_means() {
    let figures = testing::figures("x");
    let text = figures.table().render(None);
    assert!(
        text.contains("30 packets") && text.contains("Packets steered"),
        "{text}"
    );
    let rows = figures.tables[0].table().render(None);
    assert!(rows.starts_with("ID  NOTE  BYTES\n1   -        10\n"), "{rows}");
    let short = figures.short_table().render(None);
    assert!(short.contains("packets    30 packets\n"), "{short}");
    let meanings = figures.tables[0].meanings().render(None);
    assert!(meanings.contains("BYTES   Bytes steered\n"), "{meanings}");
    assert_eq!([2.0, 0.5].map(|measure| super::text(&measure.into())), ["2", "0.5"]);
}

described! {
    /// A column of each sort.
    struct Columns {
        rate_mbit_s: Gauge "Mbit/s" "",
        depth_percent: Gauge "%" "",
        bytes: Counter "bytes" "",
        resent: Counter "packets" "",
        min_rtt_ms: Gauge "ms" "" => "MIN MS",
        internal: Gauge "" "" => "",
    }
}

#[test]
fn a_title_has_its_unit_once_and_what_only_programs_want_is_hidden() {
    let one = || Value::from(1);
    let columns = Columns {
        rate_mbit_s: one(),
        depth_percent: one(),
        bytes: one(),
        resent: one(),
        min_rtt_ms: one(),
        internal: one(),
    };
    let table = FigureTable {
        name: "columns",
        fields: Columns::FIELDS,
        rows: vec![columns.values()],
        ..FigureTable::default()
    };
    let text = table.table().render(None);
    let expected = "RATE (Mbit/s)  DEPTH (%)  BYTES  RESENT (packets)  MIN MS\n";
    assert!(text.starts_with(expected), "{text}");
}
