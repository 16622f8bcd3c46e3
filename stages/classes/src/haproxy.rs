//! Services behind HAProxy: its queue holds the requests, and tarn gives it the rule.
//!
//! ```text
//!   clients ──> HAProxy: class by address ──> priority of the class ──> queue ──> server, maxconn
//!                 │ counts, by class: requests, answers in time              ▲
//!                 ▼                                                          │
//!               tarn: shares over a window ── order of the classes, several times a second
//! ```
//!
//! HAProxy sees requests one by one where the kernel sees an encrypted connection. Its queue has priorities, which a request gets when it
//! arrives: the class that is furthest behind its target has the highest, and tarn says which one that is, over the runtime socket.

pub mod report;
pub mod rule;
pub mod runtime;
pub mod snippet;
pub mod steer;
pub mod steering;
#[cfg(test)]
mod tests;
