//! Several things at a time, with results in the order that they were asked for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::Result;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The processors that this process may use.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Works off `tasks` with a thread a processor.
///
/// # Errors
/// The first task's that failed; the others are worked off all the same.
pub fn all<T: Sync, R: Send>(tasks: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let mut results = Vec::new();
    with_workers(tasks, processors(), |_| {}, work, |_, result| results.push(result));
    results.into_iter().collect()
}

/// Works off `tasks` with `workers` threads, and hands the results to `take` in the order of the tasks, each as soon
/// as those before it are there.
///
/// With a worker a CPU, each stays on one, and so does what it starts. QEMU's threads take turns, at each timer of an
/// idle guest: waking one on another CPU costs more than the turn itself, a quarter of a sleeping test's CPU time.
pub fn in_parallel<T: Sync, R: Send>(
    tasks: &[T],
    workers: usize,
    work: impl Fn(&T) -> R + Sync,
    take: impl FnMut(&T, R),
) {
    let cpus = allowed_cpus();
    let everywhere = workers.clamp(1, tasks.len().max(1)) == cpus.len();
    let stay = |worker: usize| {
        if let (true, Some(cpu)) = (everywhere, cpus.get(worker)) {
            stay_on(*cpu);
        }
    };
    with_workers(tasks, workers, stay, work, take);
}

/// The CPUs that this thread may use; none if it cannot be told.
fn allowed_cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu).unwrap_or_default();
    (0..CpuSet::count()).filter(is_allowed).collect()
}

/// Has the calling thread, and what it starts, use one CPU only. It may as well not: that only takes longer.
fn stay_on(cpu: usize) {
    let mut only = CpuSet::new();
    let _ = only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
}

/// As [`in_parallel`]; each worker first calls `prepare` with its number.
fn with_workers<T: Sync, R: Send>(
    tasks: &[T],
    workers: usize,
    prepare: impl Fn(usize) + Sync,
    work: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(&T, R),
) {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for worker in 0..workers.clamp(1, tasks.len().max(1)) {
            let sender = sender.clone();
            let (next, prepare, work) = (&next, &prepare, &work);
            scope.spawn(move || {
                prepare(worker);
                while let Some((index, task)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, tasks.get(at)?)))
                {
                    // The receiver lives as long as this scope.
                    let _ = sender.send((index, work(task)));
                }
            });
        }
        drop(sender);
        let mut waiting: Vec<Option<R>> = tasks.iter().map(|_| None).collect();
        let mut taken = 0;
        for (index, result) in receiver {
            waiting[index] = Some(result);
            while let Some(result) = waiting.get_mut(taken).and_then(Option::take) {
                take(&tasks[taken], result);
                taken += 1;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// With tables in the order of their ends, the output of two runs would differ.
    #[test]
    fn results_come_in_the_order_of_the_tasks() {
        let tasks = [30, 1, 20, 0, 10];
        let mut taken = Vec::new();
        let work = |task: &u64| {
            thread::sleep(Duration::from_millis(*task));
            *task * 2
        };
        in_parallel(&tasks, 3, work, |task, result| taken.push((*task, result)));
        assert_eq!(taken, tasks.map(|task| (task, task * 2)));
        in_parallel(&[], 3, work, |_, _| panic!("there is no task"));
    }

    /// What is compiled or fetched would otherwise have to do with one CPU.
    #[test]
    fn guests_stay_on_a_cpu_each_where_there_is_one_for_each_and_nothing_else_does() {
        let cpus = allowed_cpus();
        let mut seen = Vec::new();
        in_parallel(&cpus, cpus.len(), |_| allowed_cpus(), |_, allowed| seen.push(allowed));
        assert!(seen.iter().all(|allowed| allowed.len() == 1), "{seen:?}");
        assert_eq!(
            all(&cpus, |_| Ok(allowed_cpus())).unwrap(),
            vec![cpus.clone(); cpus.len()]
        );
        assert_eq!(allowed_cpus(), cpus);
    }
}
