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
//! Simulated with one exponential server and a deadline of 20 mean service times, an order that is given every 5, 20 and 100 service times
//! meets targets of .9 .8 .7 .6 .5 alike at 130 and 140 % of the capacity, where the choice at each request would.

pub mod report;
pub mod rule;
pub mod runtime;
pub mod snippet;
pub mod steer;
pub mod steering;
#[cfg(test)]
mod tests;
