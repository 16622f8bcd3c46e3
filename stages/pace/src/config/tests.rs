//! What a person can write into `[pace]`, and what they read where that is wrong.

use super::*;
use crate::parameters::Parameter;
use tarn_base::config::testing;

fn read_text(text: &str) -> Result<Config, String> {
    testing::section("pace", text, read).map_err(|errors| errors.join("\n"))
}

#[test]
fn every_parameter_is_a_key_with_its_bounds() {
    for parameter in &PARAMETERS {
        for value in [*parameter.range.start(), *parameter.range.end()] {
            let config = read_text(&format!("[pace]\n{} = {value}\n", parameter.name)).unwrap();
            assert_eq!(config.values.get(parameter), value, "{}", parameter.name);
            assert_eq!(parameter.get(&config.parameters()), value, "{}", parameter.name);
        }
        let (first, last) = (i64::from(*parameter.range.start()), i64::from(*parameter.range.end()));
        for beyond in [first - 1, last + 1] {
            let error = read_text(&format!("[pace]\n{} = {beyond}\n", parameter.name)).unwrap_err();
            let expected = format!(
                "pace.{}: {beyond} is out of range; write {first} to {last}",
                parameter.name
            );
            assert!(error.contains(&expected), "{error}");
        }
    }
}

#[test]
fn nothing_is_changed_by_an_empty_section() {
    let config = read_text("[pace]\n").unwrap();
    assert!(!config.everybody && config.destinations.is_empty() && config.groups.is_empty());
    assert_eq!(config.response_name(), "tarn");
}

#[test]
fn who_takes_it_is_everybody_or_destinations_or_groups() {
    assert!(read_text("[pace]\nfor = \"all\"\n").unwrap().everybody);
    let config =
        read_text("[pace]\nfor = [\"198.51.100.0/24\", \"2001:db8::/32\"]\ncgroups = [\"/user.slice\"]\n").unwrap();
    assert_eq!(config.destinations.len(), 2);
    assert_eq!(config.groups, [PathBuf::from("user.slice")]);
}

#[test]
fn a_mistake_is_reported_at_its_place_with_what_would_be_right() {
    for (text, wanted) in [
        ("for = \"some\"", "'some' does not say which connections are meant"),
        (
            "for = 5",
            "is the whole number 5; expected a text in quotes, or a list of them",
        ),
        ("for = [5]", "is the whole number 5; expected a text in quotes"),
        ("for = []", "no destination is named"),
        (
            "for = [\n\"192.0.2.0/24\",\n\"198.51.100.0/33\"]",
            "t:4:1: pace.for: '/33' is no prefix length of IPv4; write 0 to 32",
        ),
        (
            "for = [\n\"192.0.2.0/24\",\n\"192.0.2.0/24\"]",
            "t:4:1: pace.for: 192.0.2.0/24 is named twice; leave one of them out",
        ),
        ("existing = true", "pace.existing: true has no effect without `for`"),
        (
            "cgroups = [\"a\"]\nexisting = true",
            "pace.existing: true has no effect without `for`",
        ),
        (
            "existing = 1\nfor = \"all\"",
            "is the whole number 1; expected true or false",
        ),
        ("cgroups = [\"../etc\"]", "is no control group"),
        ("cgroups = [\"a\", \"/a\"]", "named twice"),
        ("fq = \"eth0\"", "'eth0' does not say which devices are meant"),
        ("fq = []", "no device is named"),
        (
            "fq = [\"eth0\",\n\"a/b\"]",
            "t:3:1: pace.fq: 'a/b' cannot be the name of a device",
        ),
        ("response = \"tarm\"", "there is no response 'tarm'"),
        ("response = 1", "is the whole number 1; expected a text in quotes"),
        ("window_gain = \"125\"", "is the text \"125\"; expected a whole number"),
        (
            "window = 5",
            "t:2:1: pace.window: there is no such key; known here: for,",
        ),
    ] {
        let error = read_text(&format!("[pace]\n{text}\n")).unwrap_err();
        assert!(error.contains(wanted), "{text}: {error}");
    }
    assert!(read_text("[pace]\nexisting = false\n").is_ok());
}

#[test]
fn there_may_be_many_destinations_but_not_any_number() {
    let text = |count: usize| {
        let prefixes = (0..count).map(|number| format!("\"2001:db8:0:{number:x}::/64\""));
        format!("[pace]\nfor = [{}]\n", prefixes.collect::<Vec<_>>().join(","))
    };
    assert_eq!(
        read_text(&text(DESTINATIONS_MOST)).unwrap().destinations.len(),
        DESTINATIONS_MOST
    );
    let error = read_text(&text(DESTINATIONS_MOST).replace("\"]\n", "\",\"2001:db8:1::/64\"]\n")).unwrap_err();
    assert!(error.contains("65537 destinations are more than 65536"), "{error}");
}

/// A later tarn has more parameters, and goes on with what an earlier one has left.
#[test]
fn the_file_of_another_version_is_read() {
    let read = |text: &str| serde_json::from_str::<Config>(text).unwrap();
    let older = read(r#"{"destinations":["192.0.2.0/24"],"response":1,"values":{"window_gain":150}}"#);
    let value = |name: &str| {
        let parameter = PARAMETERS.iter().find(|parameter| parameter.name == name).unwrap();
        older.values.get(parameter)
    };
    assert_eq!(
        (value("window_gain"), value("loss_share"), older.response),
        (150, 20, 1)
    );
    assert_eq!(
        (older.destinations.len(), older.existing, older.fq),
        (1, false, Fq::Auto)
    );
    let newer = read(r#"{"everybody":true,"beyond":{},"values":{"unknown":7}}"#);
    let is_default = |parameter: &Parameter| newer.values.get(parameter) == parameter.default;
    assert!(newer.everybody && PARAMETERS.iter().all(is_default));
    let config = read_text("[pace]\nfor = \"all\"\nloss_share = 0\n").unwrap();
    assert_eq!(read(&serde_json::to_string(&config).unwrap()), config);
}
