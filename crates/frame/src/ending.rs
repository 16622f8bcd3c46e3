//! An agent that ends while it carries out verbs for programs.
//!
//! Whoever ends it, a `tarn up` or `tarn down`, holds the lock that these verbs wait for.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::Result;
use tarn_base::error::Ending;
use tarn_base::runtime::Stop;

thread_local! {
    /// What ends the agent that this thread works for.
    static STOP: RefCell<Option<Arc<Stop>>> = const { RefCell::new(None) };
}

/// Has this thread give up waiting for its turn once `stop` has fired.
pub fn on(stop: &Arc<Stop>) {
    STOP.set(Some(Arc::clone(stop)));
}

/// Asked while nothing has changed yet.
///
/// # Errors
/// [`Ending`] when the agent that this thread works for is ending.
pub fn check() -> Result<(), Ending> {
    let is_ending = STOP.with_borrow(|stop| stop.as_ref().is_some_and(|stop| stop.fired()));
    if is_ending { Err(Ending) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::state::StateDirectory;

    /// `tarn up`, which holds the lock, would wait for the agent, and the agent for the lock.
    #[test]
    fn a_verb_of_an_agent_that_ends_does_not_wait_for_its_turn() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(&directory.path().join("run"), "netns-test");
        let held = state.lock_for("up").unwrap();
        let stop = Arc::new(Stop::new().unwrap());
        let ends = std::thread::spawn({
            let (state, stop) = (state.clone(), Arc::clone(&stop));
            move || {
                on(&stop);
                state.lock_for("classes add").map(drop)
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!ends.is_finished());
        let start = Instant::now();
        stop.fire();
        let error = ends.join().unwrap().unwrap_err();
        assert!(
            error.is::<Ending>() && start.elapsed() < Duration::from_secs(5),
            "{error:#}"
        );
        drop(held);
        assert!(state.lock_for("classes add").is_ok(), "other threads are not concerned");
    }
}
