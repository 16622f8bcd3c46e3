//! How many of something there may be at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bounded number of places.
#[derive(Debug)]
pub struct Places {
    taken: Arc<AtomicUsize>,
    limit: usize,
}

/// A place, given back when this is dropped, by whichever way a thread ends.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Places {
    /// So many places.
    pub fn new(limit: usize) -> Self {
        Self {
            taken: Arc::default(),
            limit,
        }
    }

    /// Takes a place; `None` when all are taken.
    pub fn take(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.taken));
        (self.taken.fetch_add(1, Ordering::SeqCst) < self.limit).then_some(place)
    }

    /// Whether any is taken.
    pub fn any_taken(&self) -> bool {
        self.taken.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_there_again_when_its_holder_has_gone() {
        let places = Places::new(2);
        let (one, two) = (places.take(), places.take());
        assert!(one.is_some() && two.is_some() && places.take().is_none());
        drop(one);
        assert!(places.take().is_some() && places.any_taken());
        drop(two);
        assert!(!places.any_taken());
    }
}
