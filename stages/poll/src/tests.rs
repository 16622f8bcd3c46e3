//! What a user would lose if the programs or the agent did not work in a kernel.

mod away;
mod changes;
mod cpus;
mod devices;
mod handover;
mod hostile;
mod life;
mod sketch;
mod software;
mod stand_in;
mod verified;
mod weights;

use std::time::{Duration, Instant};

use serde_json::Value;
use tarn_kernel::{links, netdev};
use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

use crate::proof::rig::Rig;
use crate::{config, probe};

/// Whether this kernel is left alone: it serves on under overload.
fn is_left_alone() -> bool {
    let config = tarn_base::config::testing::section("poll", "[poll]\n", config::read).unwrap();
    probe::nothing_to_do(config.always_threads).is_some()
}

/// The host's card: its index, its NAPI, and the thread that receives from it.
fn card(host: &Namespace) -> (u32, u32, Option<i32>) {
    let look = || {
        let index = links::all()?.iter().find(|link| link.name == "eth0").unwrap().index;
        let napi = netdev::napis(index)?.unwrap()[0];
        Ok((index, napi.id, napi.thread))
    };
    host.enter(look).unwrap()
}

/// Waits for so long of the guest's time.
fn wait_until(what: &str, patience: Duration, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    loop {
        let has = happened();
        assert!(Instant::now() < end, "{what}: it has not happened in time");
        if has {
            return;
        }
        // To look may take a program's start, which keeps the guest busy.
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Brings a calm host up, and then floods it: 420,000 packets a second, to a port where nobody listens.
fn flooded(rig: &Rig) -> Program<'_> {
    let program = Program::new(rig.host().unwrap(), "[poll]\n");
    program.run("up");
    flood(rig, || rig.begin(21, 9).unwrap());
    program
}

/// Floods a host that has just come up, and waits until something was done about it.
fn flood(rig: &Rig, begin: impl FnOnce()) {
    rig.flood(false).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    begin();
    rig.flood(true).unwrap();
    std::thread::sleep(Duration::from_millis(700));
}

fn status(program: &Program<'_>) -> Value {
    let (_, status) = program.command_line("tarn poll status --json");
    serde_json::from_str(&status).unwrap()
}
