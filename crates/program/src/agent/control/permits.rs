//! How many of something there may be at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bounded number of permits.
#[derive(Debug)]
pub struct Permits {
    taken: Arc<AtomicUsize>,
    limit: usize,
}

/// A permit, given back when this is dropped, by whichever way a thread ends.
#[derive(Debug)]
pub struct Permit(Arc<AtomicUsize>);

impl Permits {
    /// So many permits.
    pub fn new(limit: usize) -> Self {
        Self {
            taken: Arc::default(),
            limit,
        }
    }

    /// Takes a permit; `None` when all are taken.
    pub fn take(&self) -> Option<Permit> {
        let permit = Permit(Arc::clone(&self.taken));
        (self.taken.fetch_add(1, Ordering::SeqCst) < self.limit).then_some(permit)
    }

    /// Whether any is taken.
    pub fn any_taken(&self) -> bool {
        self.taken.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_there_again_when_its_holder_has_gone() {
        let permits = Permits::new(2);
        let (one, two) = (permits.take(), permits.take());
        assert!(one.is_some() && two.is_some() && permits.take().is_none());
        drop(one);
        assert!(permits.take().is_some() && permits.any_taken());
        drop(two);
        assert!(!permits.any_taken());
    }
}
