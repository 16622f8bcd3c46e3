//! The module in a guest, with real clients and services.
//!
//! ```text
//!   clients                                 server (tarn_classes)
//!   10.0.0.1 ... 10.0.0.5 ─── eth0 ─ eth0 ─── 10.0.0.100, a service on port 80
//!   fd00::1 ... fd00::5                        fd00::100
//! ```

mod borrowed;
mod choice;
mod clients;
mod connections;
mod counts;
mod datagrams;
mod finding;
mod haproxy;
mod headers;
mod hostile;
mod import;
mod life;
mod limits;
mod load;
mod login;
mod notices;
mod offload;
mod overdue;
mod program;
mod protocols;
mod quick_start;
mod real;
mod refusals;
mod scene;
mod segments;
mod selftest;
mod service;
mod services;
mod socket;
mod software;
mod spans;
mod targets;
mod waiting;
