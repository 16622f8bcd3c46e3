//! Keeps the kernel's allocator out of the figures: whether it gives back an empty slab, or has to make a new one, depends
//! on what it happens to hold, and costs more than what is measured.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The allocator's caches.
const CACHES: &str = "/sys/kernel/slab";
/// Empty slabs that a cache keeps from now on: more than there will be.
const KEPT: &str = "10000";

/// Has every cache keep its empty slabs, as those of a host under load are not empty.
///
/// # Errors
/// The kernel has no such parameters.
pub fn keep() -> Result<()> {
    let caches = fs::read_dir(CACHES).with_context(|| format!("cannot list {CACHES}"))?;
    for cache in caches {
        let cache = cache.with_context(|| format!("cannot list {CACHES}"))?.path();
        // Names of the same cache are links to it.
        if cache.is_symlink() {
            continue;
        }
        set(&cache)?;
    }
    Ok(())
}

fn set(cache: &Path) -> Result<()> {
    let parameter = cache.join("min_partial");
    fs::write(&parameter, KEPT).with_context(|| format!("cannot write {}", parameter.display()))
}
