//! Other settings for the loop, from a verb in the same process: that of a program that has called the agent.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::config::Config;
use tarn_base::output::Beginning;

/// How long the loop may take to look for an order. It does every second, unless it has failed and is to be started again. It is
/// less than `tarn paths set` waits for the agent.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 3 });

/// What the loop is to do.
pub struct Order {
    /// The configuration to use.
    pub config: Config,
    /// Begins the answer to a program, before anything changes.
    pub beginning: Option<Beginning>,
}

/// An order, and where its outcome is waited for.
type Given = (Order, Sender<Result<()>>);

/// The order that was given, once the loop is in this process. There is at most one: who gives one holds the state directory's lock.
static GIVEN: OnceLock<Mutex<Option<Given>>> = OnceLock::new();

/// The loop is in this process from now on.
pub fn open() {
    GIVEN.get_or_init(Mutex::default);
}

fn given() -> Option<MutexGuard<'static, Option<Given>>> {
    let given = GIVEN.get()?.lock();
    Some(given.unwrap_or_else(PoisonError::into_inner))
}

fn take() -> Option<Given> {
    given()?.take()
}

/// Has the loop carry an order out. It has when this returns; after an error it goes on as before.
///
/// # Errors
/// Why it cannot, or that it is not in this process.
pub fn give(order: Order) -> Result<()> {
    let (answer, answered) = channel();
    *given().context("no agent runs that could use it: `tarn up` starts one, which uses the file")? =
        Some((order, answer));
    let outcome = answered.recv_timeout(PATIENCE);
    if outcome.is_err() && take().is_some() {
        let seconds = PATIENCE.as_secs();
        bail!("the agent does not take it within {seconds} s: its log says why");
    }
    // One that was taken in the last moment is being carried out, or the loop has ended over it.
    let outcome = outcome.or_else(|_| answered.recv());
    outcome
        .context("the agent has failed: its log says why")?
        .context("the agent cannot use it")
}

/// Carries out the order that was given, if there is one.
pub fn carry_out(set: impl FnOnce(Order) -> Result<()>) {
    if let Some((order, answer)) = take() {
        // Whoever has given it waits, or the process ends.
        let _ = answer.send(set(order));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use tarn_base::config::testing;

    /// Who was refused must not find it in force later, and who was not must find it in force.
    #[test]
    fn an_order_is_carried_out_once_or_taken_back() {
        const GROUP: &str =
            "[[paths.group]]\nto = \"default\"\nuplink = [{ device = \"wan0\" }, { device = \"wan1\" }]\n";
        let order = || Order {
            config: testing::section("paths", GROUP, super::super::config::read).unwrap(),
            beginning: None,
        };
        let refused = give(order()).unwrap_err();
        assert!(refused.to_string().contains("no agent runs"), "{refused}");
        open();
        let refused = give(order()).unwrap_err();
        assert!(refused.to_string().contains("does not take it"), "{refused}");
        carry_out(|_| panic!("it was taken back"));

        let carried_out = AtomicU32::new(0);
        let set = |_| match carried_out.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(()),
            _ => bail!("no BPF"),
        };
        std::thread::scope(|scope| {
            let loops = scope.spawn(|| {
                while carried_out.load(Ordering::Relaxed) < 2 {
                    carry_out(set);
                }
            });
            give(order()).unwrap();
            let refused = give(order()).unwrap_err();
            assert_eq!(format!("{refused:#}"), "the agent cannot use it: no BPF");
            loops.join().unwrap();
        });
    }
}
