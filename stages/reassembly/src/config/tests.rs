//! What an operator would lose if a mistake were accepted, or told in the wrong place.

use super::*;
use tarn_base::config::testing;

/// The section as read, or every error, as the user sees them.
fn section(text: &str) -> Result<Config, Vec<String>> {
    testing::section("reassembly", text, read)
}

fn config(text: &str) -> Config {
    section(text).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn defaults() -> Defaults {
    Defaults {
        memory: 5 << 20,
        timeout4: Duration::from_secs(20),
        timeout6: Duration::from_secs(40),
        notes: Vec::new(),
    }
}

/// Who tuned the kernel keeps what was tuned.
#[test]
fn what_is_left_out_is_the_kernel_s() {
    let settings = config("[reassembly]\n").settings(&defaults());
    let expected = Settings {
        memory: 5 << 20,
        share: 8,
        timeout4: Duration::from_secs(20),
        timeout6: Duration::from_secs(40),
        datagrams: Datagrams::Auto,
    };
    assert_eq!(settings, expected);
}

#[test]
fn everything_can_be_said() {
    let text = "[reassembly]\nmemory = \"16 MiB\"\ntimeout = \"1.5s\"\nshare = \"1/16\"\ndatagrams = \"host\"\n";
    let expected = Settings {
        memory: 16 << 20,
        share: 16,
        timeout4: Duration::from_millis(1500),
        timeout6: Duration::from_millis(1500),
        datagrams: Datagrams::Host,
    };
    assert_eq!(config(text).settings(&defaults()), expected);
    assert_eq!(config("[reassembly]\nmemory = 262144\n").memory, Some(262_144));
}

#[test]
fn the_bounds_themselves_are_within() {
    for (memory_text, timeout_text, share_text) in [("256KiB", "100ms", "1/2"), ("256MiB", "120s", "1/64")] {
        assert!(memory(memory_text).is_ok() && timeout(timeout_text).is_ok() && share(share_text).is_ok());
    }
}

#[test]
fn every_mistake_is_told_with_its_place_and_what_would_be_right() {
    let text = "[reassembly]\nmemory = \"64KiB\"\ntimeout = \"5m\"\nshare = \"1/65\"\n";
    let expected = [
        "t:2:10: reassembly.memory: 64KiB is out of range; write \"256KiB\" to \"256MiB\", or the bytes as a number",
        "t:3:11: reassembly.timeout: 5m is out of range; write 100ms to 2m",
        "t:4:9: reassembly.share: 1/65 is out of range; write \"1/2\" to \"1/64\"",
    ];
    assert_eq!(section(text).unwrap_err(), expected);
    let text = "[reassembly]\nmemory = \"much\"\ntimeout = \"soon\"\nshare = \"12 %\"\n";
    let expected = [
        "t:2:10: reassembly.memory: 'much' is no size; write \"256KiB\" to \"256MiB\", or the bytes as a number",
        "t:3:11: reassembly.timeout: 'soon' is no time; write a number and its unit: 500us, 4ms, 10s, 30m, 12h or 7d",
        "t:4:9: reassembly.share: '12 %' is no share; write \"1/2\" to \"1/64\"",
    ];
    assert_eq!(section(text).unwrap_err(), expected);
    let text = "[reassembly]\nmemory = 268435457\n";
    let expected = "t:2:10: reassembly.memory: 268435457 bytes are out of range; write \"256KiB\" to \"256MiB\", or the \
                    bytes as a number";
    assert_eq!(section(text).unwrap_err(), [expected]);
}

#[test]
fn keys_and_choices_that_are_not_known_are_told_with_the_nearest() {
    let errors = section("[reassembly]\ntimeuot = \"1s\"\ndatagrams = \"hosts\"\nshare = 8\n").unwrap_err();
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors[0].contains("did you mean `timeout`?"), "{errors:?}");
    assert!(
        errors[1].contains("`hosts` is not a choice here; did you mean `host`?"),
        "{errors:?}"
    );
    assert!(errors[2].contains("reassembly.share"), "{errors:?}");
}

/// The verb takes what the file takes.
#[test]
fn choices_are_read_by_their_names() {
    for choice in Datagrams::CHOICES {
        assert_eq!(datagrams(choice.name()), Ok(choice));
    }
    assert!(
        datagrams("everything")
            .unwrap_err()
            .to_string()
            .contains("auto, host, all")
    );
}
