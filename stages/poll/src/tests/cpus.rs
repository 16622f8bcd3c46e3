//! Where the threads that receive run. With two CPUs (`tarn lab test --cpus 2`) there is something to choose.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use tarn_kernel::netdev;
use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

use super::life::seen;
use super::{is_left_alone, wait_until};
use crate::proof::rig::Rig;

/// The CPUs on which each thread of the card may run.
fn held(host: &Namespace) -> Vec<Vec<usize>> {
    let look = || {
        let index = tarn_kernel::links::all()?
            .iter()
            .find(|link| link.name == "eth0")
            .unwrap()
            .index;
        let napis = netdev::napis(index)?.unwrap_or_default();
        Ok(napis.iter().filter_map(|napi| napi.thread).map(allowed).collect())
    };
    host.enter(look).unwrap()
}

fn allowed(thread: i32) -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(thread)).unwrap();
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap()).collect()
}

/// Who keeps a CPU for something else would find the threads there.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_two_cpus_threads_run_where_they_are_configured_to() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    let online = allowed(0);
    let on = |cpus: &str| format!("[poll]\nthreads = \"on\"\ncpus = \"{cpus}\"\n");
    let program = Program::new(host, &on("7"));
    let complaint = program.complaint("up");
    assert!(
        complaint.contains("cpus = \"7\": none of them is online"),
        "{complaint}"
    );
    assert_eq!(seen(host).threaded, "0");

    let patience = Duration::from_secs(5);
    // A queue for each CPU has a thread each.
    let all_on = |cpus: &[usize]| !held(host).is_empty() && held(host).iter().all(|held| held == cpus);
    // New kernels end the threads of a device that is not threaded any more.
    let are_free = || held(host).iter().all(|held| *held == online);
    for cpu in &online {
        program.configure(&on(&format!("{cpu},9")));
        program.run("up");
        wait_until("threads run there", patience, || all_on(&[*cpu]));
    }
    program.run("down");
    assert!(are_free(), "they run anywhere again");
    program.run("up");
    let last = *online.last().unwrap();
    wait_until("threads run there", patience, || all_on(&[last]));
    program.kill_agent();
    wait_until("softirqs receive", patience, || seen(host).threaded == "0");
    program.run("down");
    assert!(are_free(), "after a crash as well");
}

/// A program has a CPU to itself (cpuset.cpus.partition = isolated). The kernel starts new threads of its own there nevertheless: who
/// names the other CPUs keeps those that receive away. The kernel refuses to hold them on that CPU, which the log says; they receive
/// elsewhere then.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_two_cpus_threads_stay_away_from_isolated_ones() {
    if is_left_alone() {
        return;
    }
    let online = allowed(0);
    let [common, isolated] = online[..] else {
        return; // nothing is left for others
    };
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    let _group = Partition::isolate(isolated);
    let program = Program::new(host, "");
    let patience = Duration::from_secs(5);
    let is_received_from = || seen(host).threaded == "1" && !held(host).is_empty();
    for cpu in [common, isolated] {
        program.configure(&format!("[poll]\nthreads = \"on\"\ncpus = \"{cpu}\"\n"));
        program.run("up");
        wait_until("threads receive", patience, is_received_from);
        match cpu == common {
            true => wait_until("they run there", patience, || {
                held(host).iter().all(|held| *held == [cpu])
            }),
            false => wait_until("the log says that they cannot be held there", patience, || {
                log_of(&program).contains("cannot be held on the CPUs")
            }),
        }
        program.run("down");
        assert_eq!(seen(host).threaded, "0");
    }
}

fn log_of(program: &Program<'_>) -> String {
    fs::read_to_string(program.state().path().join("log")).unwrap_or_default()
}

/// A control group that has a CPU to itself; the CPU is everybody's again when it is dropped.
struct Partition(PathBuf);

impl Partition {
    fn isolate(cpu: usize) -> Self {
        let root = Path::new("/sys/fs/cgroup");
        fs::write(root.join("cgroup.subtree_control"), "+cpuset").unwrap();
        let group = root.join("isolated");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cpuset.cpus"), cpu.to_string()).unwrap();
        fs::write(group.join("cpuset.cpus.partition"), "isolated").unwrap();
        let partition = fs::read_to_string(group.join("cpuset.cpus.partition")).unwrap();
        assert_eq!(partition.trim(), "isolated");
        Self(group)
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
