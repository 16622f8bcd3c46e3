//! Other settings for the loop, from a verb in the same process: that of a program that has called the agent.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::config::Config;

/// How long the loop may take to look for an order. It does every second, unless it has failed and is to be started again.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// A configuration to go by, and where the outcome is waited for.
type Order = (Config, Sender<Result<()>>);

/// The order that was given, once the loop is in this process. There is at most one: who gives one holds the state directory's lock.
static GIVEN: OnceLock<Mutex<Option<Order>>> = OnceLock::new();

/// The loop is in this process from now on.
pub fn open() {
    GIVEN.get_or_init(Mutex::default);
}

/// Whether the loop is in this process.
pub fn is_open() -> bool {
    GIVEN.get().is_some()
}

fn given() -> MutexGuard<'static, Option<Order>> {
    let given = GIVEN.get_or_init(Mutex::default);
    given.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the loop go by a configuration. It does when this returns; after an error it goes on as before.
///
/// # Errors
/// Why it cannot.
pub fn give(config: Config) -> Result<()> {
    let (answer, answered) = channel();
    *given() = Some((config, answer));
    let outcome = answered.recv_timeout(PATIENCE);
    if outcome.is_err() && given().take().is_some() {
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
pub fn carry_out(go_by: impl FnOnce(Config) -> Result<()>) {
    let order = given().take();
    if let Some((config, answer)) = order {
        // Whoever has given it waits, or the process ends.
        let _ = answer.send(go_by(config));
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
        let config = testing::section("paths", GROUP, super::super::config::read).unwrap();
        let refused = give(config.clone()).unwrap_err();
        assert!(refused.to_string().contains("does not take it"), "{refused}");
        carry_out(|_| panic!("it was taken back"));

        let carried_out = AtomicU32::new(0);
        let go_by = |_| match carried_out.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(()),
            _ => bail!("no BPF"),
        };
        std::thread::scope(|scope| {
            let loops = scope.spawn(|| {
                while carried_out.load(Ordering::Relaxed) < 2 {
                    carry_out(go_by);
                }
            });
            give(config.clone()).unwrap();
            let refused = give(config).unwrap_err();
            assert_eq!(format!("{refused:#}"), "the agent cannot use it: no BPF");
            loops.join().unwrap();
        });
    }
}
