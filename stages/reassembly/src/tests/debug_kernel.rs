//! What stock kernels cannot do: allocations that fail when they are told to, and the kernel's own test of reassembly.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::life::counters;
use super::packet::payload;
use super::rig::{FAMILIES, Rig, counter, eventually, taken};
use crate::module::tests::SETTINGS;
use crate::module::{Module, Settings};
use tarn_lab::debug;

/// Documentation/fault-injection/fault-injection.rst
const FAILSLAB: &str = "/sys/kernel/debug/failslab";

/// Whose allocations fail: the module's own, packets, and of the common sizes those that the module uses. The debug kernel's
/// bookkeeping, whose pieces are smaller, goes on.
const CACHES: [&str; 8] = [
    "tarn_reassembly_datagram",
    "tarn_reassembly_source",
    "skbuff_head_cache",
    "kmalloc-128",
    "kmalloc-192",
    "kmalloc-256",
    "kmalloc-512",
    "kmalloc-1k",
];

/// Of a hundred allocations that cannot wait, so many fail; those that can wait do not.
fn fail(percent: u32) {
    for cache in CACHES {
        fs::write(format!("/sys/kernel/slab/{cache}/failslab"), "1").expect(cache);
    }
    for (name, value) in [
        ("cache-filter", "Y".to_owned()),
        ("ignore-gfp-wait", "Y".to_owned()),
        ("verbose", "0".to_owned()),
        ("times", "-1".to_owned()),
        ("interval", "1".to_owned()),
        ("probability", percent.to_string()),
    ] {
        fs::write(Path::new(FAILSLAB).join(name), value).expect(name);
    }
}

/// Where memory is short, fragments are lost, and nothing else: what was accounted for is given back, and as soon as there is
/// memory again, datagrams arrive.
#[test]
#[ignore = "needs the lab"]
fn lab_debug_kernel_reassembly_survives_allocations_that_fail() {
    let rig = Rig::with(&Settings {
        timeout4: Duration::from_millis(200),
        timeout6: Duration::from_millis(200),
        ..SETTINGS
    });
    let mut failed = 0;
    for family in FAMILIES {
        let failures = || counter(rig.receiver(), &counters(family)[2]);
        for (round, percent) in [5, 20, 60].into_iter().enumerate() {
            let before = failures();
            fail(percent);
            for number in 0..200 {
                // In few pieces and in many, and of different sizes: slots, their chunks, and bitmaps.
                let content = payload(4000, number);
                let sizes: &[usize] = match number % 4 {
                    0 => &[1400, 1400, 1208],
                    1 => &[64; 63],
                    2 => &[1400, 72, 1400, 72, 1064],
                    _ => &[800; 6],
                };
                let mut fragments = rig.ip(family).cut(&family.udp(&content), sizes);
                let turn = number as usize % fragments.len();
                fragments.rotate_left(turn);
                rig.send_all(&fragments);
            }
            fail(0);
            rig.settle();
            while taken(rig.socket(family)).is_some() {}
            std::thread::sleep(Duration::from_secs(1));
            rig.expect_empty();
            let counted = rig.counted(family);
            println!("{} round {round}: {counted:?}", family.name());
            // The kernel's own counter has each, too: a fragment that nothing could be begun for, a datagram that was lost.
            let others = ["fragments", "passed", "duplicates", "completed"];
            let discarded = counted.iter().filter(|(name, _)| !others.contains(name));
            assert_eq!(
                failures() - before,
                discarded.map(|(_, count)| count).sum::<u64>(),
                "{counted:?}"
            );
            let lost = counted
                .iter()
                .filter(|(name, _)| ["no_memory", "allocation"].contains(name));
            failed += lost.map(|(_, count)| count).sum::<u64>();
        }
        let content = payload(4000, 7);
        rig.send_all(&rig.ip(family).fragments(&family.udp(&content), 800));
        rig.expect(family, &content, "with memory again");
    }
    assert!(failed > 100, "{failed} allocations of the module failed");
}

/// What the stock kernel promises of reassembly, the module keeps: any order, duplicates, and nothing of what overlaps. Without
/// connection tracking, which puts datagrams together on their way out, so that no fragment would come over the loopback.
#[test]
#[ignore = "needs the lab"]
fn lab_debug_kernel_reassembly_passes_the_kernels_own_test() {
    let rig = Rig::with(&Settings {
        timeout4: Duration::from_secs(1),
        timeout6: Duration::from_secs(1),
        ..SETTINGS
    });
    for (mode, family) in [("-4", 0), ("-4o", 0), ("-6", 1), ("-6o", 1)] {
        let counts = |module: &mut Module| {
            let state = module.state().unwrap().expect("it runs");
            [state.ipv4, state.ipv6][family]
        };
        // Each mode uses the same identifiers. A duplicate that came after its datagram was complete is the first fragment of
        // another, and a fragment of the next mode could complete that.
        assert_eq!(eventually(|| rig.held().datagrams, |&datagrams| datagrams == 0), 0);
        let before = rig.module(counts);
        rig.receiver().run(debug::IP_DEFRAG, &[mode]).unwrap();
        let after = rig.module(counts);
        println!("{mode}: {after:?}");
        assert!(
            after.fragments > before.fragments + 10,
            "{mode}: they came to the module"
        );
        assert_eq!(after.passed, before.passed, "{mode}");
        let [completed, discarded] = [
            after.completed - before.completed,
            after.overlap + after.bad_length + after.bad_end - before.overlap - before.bad_length - before.bad_end,
        ];
        if mode.len() == 2 {
            assert!(completed > 10, "{mode}");
        } else {
            // Where the additional fragment begins at 0 by chance (the program draws the place), it is in the first one's place, which
            // then counts as a duplicate, as in the stock kernel. Such a datagram has no UDP header: the program asserts that none arrives.
            assert!(
                completed * 10 < discarded,
                "{mode}: {completed} completed, {discarded} discarded"
            );
        }
    }
}
