//! How long fragments are held, what the kernel's own counters say, and what is refused.

use std::time::{Duration, Instant};

use super::packet::{ETHERNET, ICMP, ICMPV6, payload};
use super::rig::{FAMILIES, Family, IPV4, IPV6, Rig, counter, load, module_of, unload};
use crate::module::tests::SETTINGS;
use crate::module::{Datagrams, Module, Settings};
use tarn_kernel::genl::refusal;
use tarn_lab::topology::Namespace;

/// Shorter than any waiting of ours, and different, so that a family's time is its own.
const SHORT: Settings = Settings {
    timeout4: Duration::from_millis(1000),
    timeout6: Duration::from_millis(2000),
    ..SETTINGS
};
/// How late a timeout may be.
const LATE: Duration = Duration::from_millis(500);

fn timeout(family: Family) -> Duration {
    if family.is_second {
        SHORT.timeout6
    } else {
        SHORT.timeout4
    }
}

/// Which of the kernel's messages a frame has: that the time to reassemble is over. The packet that it quotes.
fn time_exceeded(frame: &[u8]) -> Option<&[u8]> {
    let packet = &frame[ETHERNET..];
    match packet[0] >> 4 {
        4 if packet[9] == ICMP && packet[20..22] == [11, 1] => Some(&packet[28..]),
        6 if packet[6] == ICMPV6 && packet[40..42] == [3, 1] => Some(&packet[48..]),
        _ => None,
    }
}

/// A datagram that never completes would take its memory for ever; one that is slow would be lost too early. The sender hears of it
/// when the first fragment is there, as RFC 792 and RFC 8200 ask.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_datagram_is_given_up_in_time_and_its_sender_told() {
    let rig = Rig::with(&SHORT);
    for family in FAMILIES {
        rig.wire.drain(Duration::ZERO);
        let (names, datagram) = (counters(family), family.udp(&payload(2000, 1)));
        let before = names.map(|name| counter(rig.receiver(), &name));
        let (with_first, without_first) = (rig.ip(family), rig.ip(family));
        let first = with_first.fragments(&datagram, 800).remove(0);
        let began = Instant::now();
        rig.send(&first);
        rig.send(&without_first.fragments(&datagram, 800)[1]);
        // A fragment that comes later gives them no further time.
        std::thread::sleep(timeout(family) / 2);
        rig.send(&with_first.fragments(&datagram, 800)[1]);
        std::thread::sleep((timeout(family) - Duration::from_millis(50)).saturating_sub(began.elapsed()));
        assert_eq!(rig.held().datagrams, 2, "{}", family.name());
        std::thread::sleep((timeout(family) + LATE).saturating_sub(began.elapsed()));
        rig.expect_empty();
        assert_eq!(rig.counted(family), [("fragments", 3), ("timeout", 2)]);
        // REASMREQDS, REASMOKS, REASMFAILS, REASMTIMEOUT
        let after = counters(family).map(|name| counter(rig.receiver(), &name));
        let counted: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(counted, [3, 0, 2, 2], "{}", family.name());
        let frames = rig.wire.drain(Duration::from_millis(100));
        let quoted: Vec<_> = frames.iter().filter_map(|frame| time_exceeded(frame)).collect();
        assert_eq!(quoted.len(), 1, "{}: one message", family.name());
        let length = quoted[0].len().min(48);
        assert!(
            first.starts_with(&quoted[0][..length]),
            "{}: it quotes the first",
            family.name()
        );
    }
}

/// The kernel's counters of a family.
pub fn counters(family: Family) -> [String; 4] {
    let prefix = if family.is_second { "Ip6" } else { "Ip" };
    ["ReasmReqds", "ReasmOKs", "ReasmFails", "ReasmTimeout"].map(|name| format!("{prefix}{name}"))
}

/// Whoever watches a host by the kernel's counters would see nothing, or what did not happen.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_the_kernels_counters_go_on() {
    let rig = Rig::new();
    for family in FAMILIES {
        let read = || counters(family).map(|name| counter(rig.receiver(), &name));
        let datagram = family.udp(&payload(2000, 1));
        let before = read();
        rig.send_all(&rig.ip(family).fragments(&datagram, 800));
        rig.settle();
        let complete = read();
        let spoiled = rig.ip(family);
        rig.send(&spoiled.fragment(0, true, &datagram[..800]));
        rig.send(&spoiled.fragment(400, true, &datagram[..800]));
        rig.settle();
        let after = read();
        let difference = |from: [u64; 4], to: [u64; 4]| [0, 1, 2, 3].map(|index: usize| to[index] - from[index]);
        assert_eq!(difference(before, complete), [3, 1, 0, 0], "{}", family.name());
        assert_eq!(difference(complete, after), [2, 0, 1, 0], "{}", family.name());
    }
}

/// `down` gives everything back; the stack takes what comes then.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_ends_with_fragments_held_and_the_stack_goes_on() {
    let rig = Rig::new();
    for family in FAMILIES {
        let datagram = family.udp(&payload(2000, 1));
        for _ in 0..50 {
            rig.send(&rig.ip(family).fragments(&datagram, 800)[1]);
        }
    }
    assert_eq!(rig.held().datagrams, 100);
    assert!(rig.module(Module::stop).unwrap());
    assert!(!rig.module(Module::stop).unwrap(), "it has ended");
    for family in FAMILIES {
        let content = payload(2000, 2);
        rig.send_all(&rig.ip(family).fragments(&family.udp(&content), 800));
        rig.expect_by_stack(family, &content);
    }
    rig.module(|module| module.set(&SETTINGS)).unwrap();
    rig.expect_empty();
    assert_eq!(rig.held().memory_max, 0);
    rig.module(Module::stop).unwrap();
    unload();
}

/// What the stack holds when the module begins is completed there, for a second: `tarn up` would lose it.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_what_the_stack_has_begun_it_completes() {
    let rig = Rig::new();
    for family in FAMILIES {
        rig.module(Module::stop).unwrap();
        let content = payload(2000, 1);
        let fragments = rig.ip(family).fragments(&family.udp(&content), 800);
        rig.send(&fragments[0]);
        rig.settle();
        rig.module(|module| module.set(&SETTINGS)).unwrap();
        rig.send_all(&fragments[1..]);
        rig.expect_by_stack(family, &content);
        // What begins now is ours.
        rig.send_all(&rig.ip(family).fragments(&family.udp(&content), 800));
        rig.expect_by_stack(family, &content);
        let state = rig.module(Module::state).unwrap().unwrap();
        let counts = if family.is_second { state.ipv6 } else { state.ipv4 };
        assert_eq!((counts.passed, counts.completed), (2, 1), "{}", family.name());
    }
}

/// A mistyped value would take all of the host's memory, or none.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_settings_out_of_bounds_are_refused_and_change_nothing() {
    load();
    let namespace = Namespace::new("receiver").unwrap();
    let mut module = module_of(&namespace);
    assert!(module.state().unwrap().is_none(), "nothing runs");
    assert!(module.sources().unwrap().is_empty());
    let second = Duration::from_secs(1);
    let wrong = [
        Settings {
            memory: (256 << 10) - 1,
            ..SETTINGS
        },
        Settings {
            memory: (256 << 20) + 1,
            ..SETTINGS
        },
        Settings { memory: 0, ..SETTINGS },
        Settings { share: 1, ..SETTINGS },
        Settings { share: 65, ..SETTINGS },
        Settings {
            timeout4: Duration::from_millis(99),
            ..SETTINGS
        },
        Settings {
            timeout4: second * 121,
            ..SETTINGS
        },
        Settings {
            timeout6: Duration::ZERO,
            ..SETTINGS
        },
        Settings {
            timeout6: second * 121,
            ..SETTINGS
        },
    ];
    for settings in &wrong {
        assert!(module.set(settings).is_err(), "{settings:?}");
        assert!(module.state().unwrap().is_none(), "{settings:?}");
    }
    let right = [
        Settings {
            memory: 256 << 10,
            share: 2,
            timeout4: second / 10,
            timeout6: second / 10,
            datagrams: Datagrams::Host,
        },
        Settings {
            memory: 256 << 20,
            share: 64,
            timeout4: second * 120,
            timeout6: second * 120,
            datagrams: Datagrams::All,
        },
    ];
    for settings in &right {
        module.set(settings).unwrap();
        for wrong in &wrong {
            assert!(module.set(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(&module.state().unwrap().unwrap().settings, settings);
    }
    module.stop().unwrap();
}

/// Does something as another user on a thread of its own.
fn as_nobody<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    let become_nobody = || {
        // SAFETY: only this thread, which ends afterwards, is another user then.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        assert_eq!(result, 0);
        Ok(work())
    };
    namespace.enter(become_nobody).unwrap()
}

/// Everybody on the host could end it, or see who sends what.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_others_than_the_administrator_are_refused() {
    let rig = Rig::new();
    let errors = as_nobody(rig.receiver(), || {
        let mut module = Module::find().unwrap().unwrap();
        [
            module.set(&SETTINGS).err(),
            module.stop().err(),
            module.state().err(),
            module.sources().err(),
        ]
    });
    for error in errors {
        let error = error.expect("a refusal");
        assert_eq!(refusal(&error), Some(nix::errno::Errno::EPERM), "{error:#}");
    }
    rig.expect_empty();
}

/// In a container's own namespaces its root may do what it likes; the memory is the host's.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_the_root_of_a_user_namespace_is_refused() {
    load();
    // SAFETY: the child has this thread only; it makes system calls, and ends without any of the parent's destructors.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let refused = || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER | nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let mut module = Module::find().unwrap().unwrap();
            let errors = [module.set(&SETTINGS).err(), module.state().err()];
            errors
                .iter()
                .all(|error| error.as_ref().and_then(refusal) == Some(nix::errno::Errno::EPERM))
        };
        let status = std::panic::catch_unwind(refused).map_or(2, |refused| i32::from(!refused));
        // SAFETY: it does not return.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: the status is written to a place of its size.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "1 << 8: it was not refused");
}

/// Values change while datagrams are under way: none is lost, and the new ones hold at once.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_values_change_while_fragments_are_held() {
    let rig = Rig::new();
    for family in FAMILIES {
        let content = payload(5000, 1);
        for round in 0..20_u32 {
            let fragments = rig.ip(family).fragments(&family.udp(&content), 800);
            let (first, rest) = fragments.split_at(3);
            rig.send_all(first);
            let settings = Settings {
                memory: (256 << 10) << (round % 10),
                share: 2 + round,
                timeout4: Duration::from_secs(1 + u64::from(round)),
                timeout6: Duration::from_secs(1 + u64::from(round)),
                datagrams: Datagrams::CHOICES[round as usize % 3],
            };
            rig.module(|module| module.set(&settings)).unwrap();
            rig.send_all(rest);
            rig.expect(family, &content, &format!("{settings:?}"));
        }
    }
    // A shorter time is one for those that are there already.
    rig.send(&rig.ip(IPV4).fragment(0, true, &[0; 8]));
    rig.send(&rig.ip(IPV6).fragment(0, true, &[0; 8]));
    rig.module(|module| module.set(&SHORT)).unwrap();
    std::thread::sleep(SHORT.timeout6 + LATE);
    rig.expect_empty();
}
