//! What clients and operators would lose when `up` meets what an earlier one left.

use std::time::Duration;

use super::*;
use crate::config::tests::{BY_NETWORK, config};
use crate::module::State;
use crate::verbs;

fn client(network: &str, class: usize, origin: Origin) -> Client {
    Client {
        network: network.parse().unwrap(),
        class,
        origin,
        timeout: None,
    }
}

fn known() -> Known {
    Known {
        config: config(BY_NETWORK),
        stopped: false,
        names_clients: true,
        resets: 0,
    }
}

fn entries(clients: &[Client]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = clients.iter().flat_map(Client::entries).collect();
    entries.sort_unstable_by_key(|entry| entry.prefix);
    entries
}

/// What [`BY_NETWORK`] names.
fn of_file() -> Vec<Client> {
    config(BY_NETWORK).networks().map(Client::of_file).collect()
}

/// What is done, with these clients.
fn done(text: &str, now: &[Client]) -> Vec<Entry> {
    let now = entries(now);
    let mut change = difference(Some(&known()), &config(text), &now);
    change.against(&now);
    change.into_entries()
}

#[test]
fn the_first_up_adds_what_the_file_names() {
    let change = difference(None, &config(BY_NETWORK), &[]);
    assert_eq!(change.into_entries(), entries(&of_file()));
}

#[test]
fn the_same_file_again_changes_nothing() {
    let mut now = of_file();
    now.push(client("198.51.100.1", 1, Origin::Command));
    assert_eq!(done(BY_NETWORK, &now), []);
}

#[test]
fn a_network_that_moves_to_another_class_is_never_without_one() {
    let text = BY_NETWORK.replace("220.0.0.0/8", "210.0.0.0/8").replacen(
        "[\"210.0.0.0/8\"]\n\n[[classes.class]]\nname = \"D\"",
        "[]\n\n[[classes.class]]\nname = \"D\"",
        1,
    );
    let expected = [
        entries(&[client("210.0.0.0/8", 0, Origin::File)]),
        vec![Entry::none("220.0.0.0/8".parse().unwrap())],
    ];
    assert_eq!(done(&text, &of_file()), expected.concat());
}

/// Who changed a network of the file by a verb meant it until the file is read again.
#[test]
fn the_file_decides_on_its_networks_again() {
    let mut now = of_file();
    now[0].origin = Origin::Command;
    now[0].class = 2;
    assert_eq!(done(BY_NETWORK, &now), entries(&of_file()[..1]));
}

/// A class that is put before all others must not hand its name's clients to its neighbour.
#[test]
fn clients_added_by_command_keep_their_class_by_its_name() {
    let text = BY_NETWORK
        .replace("name = \"A\"", "name = \"first\"")
        .replace("name = \"B\"", "name = \"A\"");
    let mut now = of_file();
    now.extend([
        client("198.51.100.1", 0, Origin::Command),
        client("198.51.100.2", 1, Origin::Command),
        client("198.51.100.3", 3, Origin::Command),
    ]);
    let expected = [
        entries(&[client("198.51.100.1", 1, Origin::Command)]),
        vec![Entry::none("198.51.100.2/32".parse().unwrap())],
    ];
    assert_eq!(
        done(&text, &now),
        expected.concat(),
        "class B is no more, D stays where it was"
    );
}

/// On a host that loads no modules nothing is tried.
#[test]
fn the_plan_names_what_the_module_is_told() {
    let lines = described(&config(BY_NETWORK));
    assert!(lines.iter().all(|line| line.starts_with("# ")), "{lines:?}");
    for words in [
        "service tcp/80: deadlines: A 4ms, B 4ms, C 4ms, D 4ms",
        "class A: 90 % of answers in time, at most 1024 packets wait",
    ] {
        assert!(lines.iter().any(|line| line.contains(words)), "{words}: {lines:?}");
    }
}

/// A host's way through the stage: every step leaves what the step before set up, or puts it back.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_come_up_change_and_go_without_a_trace() {
    let host = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        if !tarn_kernel::features::Host::this().module_loading().is_present() {
            println!("SKIP: this kernel loads no modules");
            return;
        }
        assert_eq!(config(BY_NETWORK).missing().len(), 0);
        let plan = config(BY_NETWORK).plan().unwrap();
        assert!(plan[0].contains("tarn_classes"), "{plan:?}");
        let state = StateDirectory::of_this_namespace().unwrap();
        let lock = state.lock_for("test").unwrap();
        up(&state, BY_NETWORK);
        assert_eq!(running().settings.classes.unwrap().len(), 4);
        assert_eq!(clients(), 3);
        drop(lock);
        commands(&state);
        let lock = state.lock_for("test").unwrap();
        adopts(&state);
        drop(lock);
        several_services(&state);
        let lock = state.lock_for("test").unwrap();

        Journal::open(&state).unwrap().undo(None).unwrap();
        tarn_frame::Stage::clean_up(&crate::Classes, &state).unwrap();
        assert!(!modules::is_loaded("tarn_classes"));
        assert_eq!(Known::load(&state).unwrap(), None);
        state.remove(&lock).unwrap();
    };
    std::thread::scope(|scope| scope.spawn(host).join().unwrap());
}

fn up(state: &StateDirectory, text: &str) {
    let mut journal = Journal::open(state).unwrap();
    journal.begin().unwrap();
    config(text).up(state, &mut journal).unwrap();
    journal.complete().unwrap();
}

fn clients() -> usize {
    Module::loaded().unwrap().clients().unwrap().len()
}

fn running() -> State {
    Module::loaded().unwrap().state().unwrap().expect("classes run")
}

/// A command line, as `tarn classes` takes it, and what it prints.
fn tarn(line: &str) -> Result<String> {
    let (mut output, written) = tarn_base::output::testing::output(None);
    let matches = verbs::command().try_get_matches_from(line.split(' '))?;
    let (verb, matches) = matches.subcommand().unwrap();
    verbs::execute(verb, matches, &mut output).map(|()| written.text())
}

fn commands(state: &StateDirectory) {
    assert!(tarn("classes set-target A 95").unwrap().contains("95 %"));
    assert!(tarn("classes set-deadline 7ms").unwrap().contains("7ms"));
    tarn("classes set-hold --rounds 3").unwrap();
    let settings = running().settings;
    let class = settings.classes.unwrap()[0];
    assert_eq!(
        (class.target, class.deadline, settings.hold_rounds),
        (9500, 7_000_000, Some(3))
    );
    for time in ["0s", "1us", "999ms", "4000d"] {
        let refused = tarn(&format!("classes add 198.51.100.1 B --for {time}")).unwrap_err();
        assert!(format!("{refused:#}").contains("write 1s to"), "{refused:#}");
    }
    tarn("classes add 198.51.100.1 B --for 30m").unwrap();
    tarn("classes add 198.51.100.1 C --for 30m").unwrap();
    tarn("classes add 220.1.0.0/16 B").unwrap();
    assert!(
        tarn("classes delete 220.1.0.0/17")
            .unwrap_err()
            .to_string()
            .contains("has no class of its own: that of its network, 220.1.0.0/16, is B")
    );
    tarn("classes delete 220.1.0.0/16").unwrap();
    assert!(tarn("classes list").unwrap().contains("198.51.100.1  C"));
    assert!(
        tarn("classes delete 198.51.100.2")
            .unwrap_err()
            .to_string()
            .contains("no class of its own")
    );
    assert!(tarn("classes stop").unwrap().contains("gone on"));
    assert!(tarn("classes status").unwrap().contains("stopped"));
    tarn("classes start").unwrap();
    assert_eq!(
        running().settings.classes.unwrap()[0].target,
        9500,
        "what was set by command is kept"
    );
    tarn("classes reset").unwrap();
    let text = tarn("classes status").unwrap();
    assert!(text.contains("How the classes do"), "{text}");
    assert_eq!(crate::figures::read(state).unwrap().unwrap().tables[1].rows.len(), 4);
}

/// Services that begin, change and end while others run on.
fn several_services(state: &StateDirectory) {
    let service = |name: &str, port: &str| format!("[[classes.service]]\nname = \"{name}\"\nports = [\"{port}\"]\n");
    let bare = BY_NETWORK.replace("ports = [\"tcp/80\"]\n", "");
    let (web, dns, mail) = (
        service("web", "tcp/80"),
        service("dns", "udp/53"),
        service("mail", "tcp/25"),
    );
    let ports = |number: usize| {
        let state = Module::loaded().unwrap().service(number).state().unwrap();
        state.map(|state| state.settings.ports.unwrap()[0].first)
    };
    let deadline = |number: usize| {
        let state = Module::loaded().unwrap().service(number).state().unwrap().unwrap();
        state.settings.classes.unwrap()[1].deadline
    };
    up(state, &format!("{bare}{web}{dns}{mail}"));
    assert_eq!([0, 1, 2].map(ports), [Some(80), Some(53), Some(25)]);
    assert!(
        tarn("classes set-deadline B 3ms --service dns")
            .unwrap()
            .contains("class B at dns")
    );
    assert_eq!([0, 1, 2].map(deadline), [4_000_000, 3_000_000, 4_000_000]);
    let unknown = tarn("classes set-deadline 3ms --service ftp").unwrap_err();
    assert!(unknown.to_string().contains("there are web, dns, mail"), "{unknown}");
    tarn("classes stop").unwrap();
    assert_eq!([0, 1, 2].map(ports), [None; 3]);
    tarn("classes start").unwrap();
    assert_eq!(deadline(1), 3_000_000);
    // A port goes to another service, and one service goes.
    up(state, &format!("{bare}{mail}{web}"));
    assert_eq!([0, 1, 2].map(ports), [Some(25), Some(80), None]);
    // Where a service cannot change, the others are as they were before.
    let mut refused = config(&format!("{bare}{mail}{dns}"));
    refused.services[1].deadlines[0] = Duration::ZERO;
    let mut journal = Journal::open(state).unwrap();
    assert!(refused.up(state, &mut journal).is_err());
    assert_eq!([0, 1, 2].map(ports), [Some(25), Some(80), None]);
    up(
        state,
        &format!("{BY_NETWORK}[[classes.class]]\nname = \"E\"\ntarget = 50\n"),
    );
    assert_eq!([0, 1].map(ports), [Some(80), None]);
}

fn adopts(state: &StateDirectory) {
    up(state, &BY_NETWORK.replace("target = 90", "target = 91"));
    assert_eq!(running().settings.classes.unwrap()[0].target, 9100);
    assert_eq!(clients(), 4, "the client that was added by command stays");
    let more = format!("{BY_NETWORK}[[classes.class]]\nname = \"E\"\ntarget = 50\nnetworks = [\"2001:db8::/32\"]\n");
    up(state, &more);
    assert_eq!(running().settings.classes.unwrap().len(), 5);
    assert_eq!(clients(), 5);
    // What an `up` that fails has changed is as it was.
    let mut refused = config(&more.replace("192.0.0.0/8", "193.0.0.0/8"));
    refused.services[0].deadlines[0] = Duration::ZERO;
    let mut journal = Journal::open(state).unwrap();
    let before = Module::loaded().unwrap().clients().unwrap();
    assert!(refused.up(state, &mut journal).is_err());
    assert_eq!(running().settings.classes.unwrap().len(), 5);
    let left = |entries: Vec<Entry>| -> Vec<_> { entries.iter().map(|entry| (entry.prefix, entry.class)).collect() };
    assert_eq!(left(Module::loaded().unwrap().clients().unwrap()), left(before));
    // To HAProxy and back: clients come along.
    let behind = more.replace("ports = [\"tcp/80\"]\n", "")
        + "[[classes.service]]\nname = \"shop\"\nthrough = \"haproxy\"\nsocket = \"/nowhere\"\n";
    up(state, &behind);
    assert_eq!(
        (clients(), Module::loaded().unwrap().state().unwrap().is_none()),
        (0, true)
    );
    let list = tarn("classes list").unwrap();
    assert!(
        list.lines()
            .any(|line| line.split_whitespace().take(2).eq(["198.51.100.1", "C"])),
        "{list}"
    );
    up(state, &more);
    assert_eq!(clients(), 5);
    // As many as are there may stay.
    up(state, &more.replace("[classes]\n", "[classes]\nmax_clients = 4\n"));
    assert_eq!(clients(), 5);
    up(state, &more);
}
