//! A host under load, second by second.

use super::Host;

/// A recorded quarter of a minute: an ordinary load, a flood, an uplink that goes silent, figures that cannot be read, a
/// reading that comes late, and a device that begins to count anew.
pub fn session() -> Vec<Result<Host, String>> {
    const WORK: [u64; 12] = [
        0, 1_000, 2_100, 3_000, 4_000, 54_000, 254_000, 354_000, 355_000, 0, 356_000, 357_000,
    ];
    let host = |step: usize| {
        let flood = (5..8).contains(&step);
        let second = [step, step + 3][usize::from(step > 9)] as f64;
        let silent = ("wan0", "silent", 0.0, None);
        let well = ("wan0", "used", 100.0, Some(12.0 + step as f64 / 4.0));
        let other = (
            "wan1",
            if step < 6 { "standby" } else { "used" },
            if step < 6 { 0.0 } else { 100.0 },
            Some(30.0),
        );
        Host {
            second,
            poll: (
                vec![
                    ("eth0", if flood { "4711" } else { "none" }, WORK[step]),
                    ("eth1", "none", 100 * step as u64),
                ],
                if flood {
                    1_000 * (step as u64 - 4)
                } else {
                    3_000 * u64::from(step > 7)
                },
            ),
            classes: (step > 1).then(|| vec![("gold", Some(99.5 - step as f64 / 5.0)), ("silver", None)]),
            paths: match step {
                8 => Err("paths-now.json is damaged"),
                0..6 => Ok(vec![well, other]),
                _ => Ok(vec![silent, other]),
            },
            troubles: [
                None,
                Some("paths: its figures cannot be read: paths-now.json is damaged"),
            ][usize::from(step == 8)]
            .into_iter()
            .collect(),
        }
    };
    (0..12)
        .map(|step| match step {
            9 => Err("the journal cannot be read".to_owned()),
            _ => Ok(host(step)),
        })
        .collect()
}
