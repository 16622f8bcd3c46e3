//! What the module refuses, it says so of, and changes nothing.

use std::time::Duration;

use super::scene::{Scene, load, settings};
use crate::module::{Entry, Module, Origin, Ports, Settings, Target};
use tarn_base::network::Prefix;
use tarn_kernel::genl::{Family, refusal};

const DEADLINE: Duration = Duration::from_millis(20);

/// The kernel's words.
fn refused(scene: &Scene, settings: &Settings) -> String {
    format!("{:#}", scene.module(|module| module.set(settings)).unwrap_err())
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_wrong_configuration_is_refused_in_words() {
    let scene = Scene::new();
    let good = settings(DEADLINE);
    let target = good.classes.as_ref().unwrap()[0];
    let with = |change: &dyn Fn(&mut Target)| {
        let mut wrong = target;
        change(&mut wrong);
        Settings {
            classes: Some(vec![wrong]),
            ..good.clone()
        }
    };
    let ports = |first, last, protocol| Settings {
        ports: Some(vec![Ports {
            first,
            last,
            protocol,
            padding: [0; 3],
        }]),
        ..good.clone()
    };
    let wrong = [
        (with(&|target| target.target = 0), "a target must be 1 to 10000"),
        (with(&|target| target.target = 10_001), "a target must be 1 to 10000"),
        (with(&|target| target.deadline = 0), "a deadline must be"),
        (with(&|target| target.cap = 0), "a cap must be"),
        (ports(80, 79, 6), "a range must lead"),
        (ports(0, 79, 6), "a range must lead"),
        (ports(80, 80, 1), "the protocol must be"),
        (
            Settings {
                classes: Some(vec![target; 65]),
                ..good.clone()
            },
            "ERANGE",
        ),
        (
            Settings {
                window: Some(Duration::from_millis(1)),
                ..good.clone()
            },
            "ERANGE",
        ),
        (Settings::default(), "ports and classes must be given"),
    ];
    for (settings, words) in &wrong {
        let told = refused(&scene, settings);
        assert!(told.contains(words), "{told} is not about {words}");
        assert!(scene.module(Module::state).unwrap().is_none(), "{words}");
    }
    scene.set(&good);
    let another = refused(&scene, &with(&|_| {}));
    assert!(another.contains("stop first"), "{another}");
    assert_eq!(scene.counts().len(), 5);
    assert!(scene.module(|module| module.times(5)).is_err());
    assert_eq!(scene.module(|module| module.times(4)).unwrap().len(), 400);
}

/// Messages that no program of ours sends, each a few bytes wrong.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_malformed_messages_change_nothing() {
    let scene = Scene::new();
    scene.set(&settings(DEADLINE));
    let family = || {
        scene
            .node("server")
            .enter(|| Family::find("tarn_classes", 1))
            .unwrap()
            .unwrap()
    };
    let mut random = tarn_lab::random::Random::new(1, "malformed");
    for round in 0..2000 {
        let length = random.below(64) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        if round % 2 == 0 && bytes.len() >= 4 {
            // An attribute's header that fits, with anything in it.
            bytes[..2].copy_from_slice(&(length as u16).to_ne_bytes());
            bytes[2..4].copy_from_slice(&(random.below(20) as u16).to_ne_bytes());
        }
        let _ = family().request((random.below(8)) as u8, &bytes);
    }
    // STOP and SET may have been among them, well formed by chance: what is there is whole.
    if let Some(state) = scene.module(Module::state).unwrap() {
        assert_eq!((state.counts.len(), state.settings.classes.unwrap().len()), (5, 5));
    }
}

/// A module that an alias names is loaded by whoever asks for its family: any user could bring it into the kernel.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_nobody_has_the_module_loaded_by_asking_for_its_family() {
    let printed = std::process::Command::new("modinfo")
        .args(["--field", "alias", "/tarn/modules/tarn_classes.ko"])
        .output()
        .unwrap();
    assert!(printed.status.success(), "{printed:?}");
    assert_eq!(String::from_utf8_lossy(&printed.stdout), "");
}

/// Any user is root in a user namespace of its own, and what waits takes the host's memory.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_the_root_of_a_user_namespace_is_refused() {
    load();
    // SAFETY: the child has this thread only; it makes system calls, and ends without any of the parent's destructors.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let refused = || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER | nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let mut module = Module::find().unwrap().unwrap();
            let errors = [module.set(&settings(DEADLINE)).err(), module.state().err()];
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

/// Without CAP_NET_ADMIN nobody sees or changes anything.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_others_than_the_administrator_are_refused() {
    let scene = Scene::new();
    scene.set(&settings(DEADLINE));
    let attempt = || {
        let mut module = Module::find()?.expect("the module is loaded");
        // SAFETY: only this thread, which ends afterwards, is another user then.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        assert_eq!(result, 0);
        Ok([
            module.stop().err(),
            module.reset().err(),
            module.set(&settings(DEADLINE)).err(),
        ])
    };
    let errors = scene.node("server").enter(attempt).unwrap();
    for error in errors {
        let error = error.expect("a refusal");
        assert_eq!(refusal(&error), Some(nix::errno::Errno::EPERM), "{error:#}");
    }
    assert_eq!(scene.counts().len(), 5);
}

/// Tries each command that reads or changes clients. Returns whether every one was refused for want of a right.
fn clients_are_refused(module: &mut Module) -> bool {
    let prefix: Prefix = "10.0.0.0/8".parse().unwrap();
    let stolen = Entry {
        prefix,
        class: Some(4),
        origin: Origin::Command,
        timeout: None,
    };
    let errors = [
        module.change_clients(&[stolen], 1).err(),
        module.change_clients(&[Entry::none(prefix)], 1).err(),
        module.begin_change(&[stolen]).err(),
        module.end_change(&[]).err(),
        module.find_client(prefix).err(),
        module.clients().err(),
        module.clear_clients().err(),
    ];
    errors
        .iter()
        .all(|error| error.as_ref().and_then(refusal) == Some(nix::errno::Errno::EPERM))
}

/// An ordinary user is root in namespaces of its own. Neither there nor in the host's network does that give it the table of clients: who
/// is of which class is the customers' business, and the table takes the host's memory.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_user_s_own_root_neither_reads_nor_changes_clients() {
    const NOBODY: libc::uid_t = 65_534;
    let scene = Scene::new();
    scene.set(&settings(DEADLINE));
    let gold = Entry {
        prefix: "10.0.0.0/8".parse().unwrap(),
        class: Some(0),
        origin: Origin::Command,
        timeout: None,
    };
    scene.module(|module| module.change_clients(&[gold], 100)).unwrap();
    let generation = || scene.module(Module::clients_generation).unwrap();
    let before = generation();
    let attempt = || {
        // SAFETY: the child has this thread only; it makes system calls, and ends without any of the parent's destructors.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let refused = || {
                // SAFETY: the child has one thread, which is another user from here on. First the groups, for which it has to be root.
                let is_nobody = unsafe {
                    libc::setgroups(0, std::ptr::null()) == 0
                        && libc::setresgid(NOBODY, NOBODY, NOBODY) == 0
                        && libc::setresuid(NOBODY, NOBODY, NOBODY) == 0
                };
                assert!(is_nobody);
                let mut servers = Module::find().unwrap().unwrap();
                assert!(clients_are_refused(&mut servers), "an ordinary user");
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER | nix::sched::CloneFlags::CLONE_NEWNET)
                    .unwrap();
                assert!(
                    clients_are_refused(&mut servers),
                    "its own root, by a socket of the server's network"
                );
                let mut own = Module::find().unwrap().unwrap();
                assert!(clients_are_refused(&mut own), "its own root, in a network of its own");
            };
            let status = i32::from(std::panic::catch_unwind(refused).is_err());
            // SAFETY: it does not return.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: the status is written to a place of its size.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        Ok(status)
    };
    assert_eq!(scene.node("server").enter(attempt).unwrap(), 0, "it was not refused");
    assert_eq!(generation(), before);
    assert_eq!(scene.module(Module::clients).unwrap(), [gold]);
}
