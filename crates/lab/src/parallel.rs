//! Several things at a time, with results in the order that they were asked for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::Result;

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
    in_parallel(tasks, processors(), work, |_, result| results.push(result));
    results.into_iter().collect()
}

/// Works off `tasks` with `workers` threads, and hands the results to `take` in the order of the tasks, each as soon
/// as those before it are there.
pub fn in_parallel<T: Sync, R: Send>(
    tasks: &[T],
    workers: usize,
    work: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(&T, R),
) {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers.clamp(1, tasks.len().max(1)) {
            let sender = sender.clone();
            let (next, work) = (&next, &work);
            scope.spawn(move || {
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
}
