//! What an administrator adds to HAProxy's configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::Proxied;

/// What HAProxy knows a service by.
#[derive(Debug, Clone)]
pub struct Names {
    /// The stick table, which is also a backend's name.
    pub table: String,
    /// The map of clients' networks to numbers of classes.
    pub clients: PathBuf,
    /// The map of what each class has: `p`, with its number, is its priority, and `d` its deadline in microseconds.
    pub classes: PathBuf,
}

impl Names {
    /// For the service of this name, with its maps in `directory`.
    pub fn new(service: &str, directory: &Path) -> Self {
        Self {
            table: format!("tarn-{service}"),
            clients: directory.join(format!("{service}.clients")),
            classes: directory.join(format!("{service}.classes")),
        }
    }
}

/// The entries of the map of classes. HAProxy serves the lowest priority first.
pub fn entries(places: &[usize], deadlines: &[Duration]) -> Vec<(String, String)> {
    let deadlines = deadlines.iter().enumerate();
    let deadlines = deadlines.map(|(class, deadline)| (format!("d{class}"), deadline.as_micros().to_string()));
    priorities(places).chain(deadlines).collect()
}

/// Those of them that change as the shares do.
pub fn priorities(places: &[usize]) -> impl Iterator<Item = (String, String)> + '_ {
    let entry = |(class, place): (usize, &usize)| (format!("p{class}"), (place + 1).to_string());
    places.iter().enumerate().map(entry)
}

/// The backend whose table counts.
pub fn counters(service: &Proxied) -> String {
    let Names { table, .. } = Names::new(&service.name, &service.maps);
    format!("backend {table}\n    stick-table type integer size 64 store http_req_cnt,gpc0,gpc1\n")
}

/// The lines of the backend with the servers: they classify, order and count. A client in no network, or without an address, is of the last
/// of the classes. While the maps are empty all are served alike, and nobody counts. What HAProxy refuses by itself, for its time in the
/// queue, is no answer of the service.
pub fn rules(service: &Proxied) -> String {
    let Names {
        table,
        clients,
        classes,
    } = Names::new(&service.name, &service.maps);
    let (clients, classes) = (clients.display(), classes.display());
    let last = service.deadlines.len().saturating_sub(1);
    let has = |letter: char, otherwise: usize| {
        format!("str({letter}),concat(,txn.tarn_class),map_str_int({classes},{otherwise})")
    };
    let longest = service.deadlines.iter().max().copied().unwrap_or_default();
    let queue = (longest * 4 / 5).as_millis().max(1);
    format!(
        "    timeout queue {queue}ms
    http-request set-var(txn.tarn_began) date(0,us)
    http-request set-var(txn.tarn_class) int({last})
    http-request set-var(txn.tarn_class) src,map_ip_int({clients},{last})
    http-request set-var(txn.tarn_most) {}
    http-request set-priority-class {}
    http-request track-sc2 var(txn.tarn_class) table {table} if {{ var(txn.tarn_most) -m int gt 0 }}
    http-response set-var(txn.tarn_late) date(0,us),sub(txn.tarn_began),sub(txn.tarn_most)
    http-response sc-inc-gpc0(2) if {{ var(txn.tarn_late) -m int le 0 }}
    http-response sc-inc-gpc1(2) if {{ var(txn.tarn_late) -m int gt 0 }}
",
        has('d', 0),
        has('p', last + 1)
    )
}

/// All of it, with what an administrator has to know and decide.
pub fn text(service: &Proxied) -> String {
    format!(
        "\
# HAProxy does not start without these files. They stay empty: tarn fills the maps in
# HAProxy's memory, and again when it was started again.
#   install -d {directory}
#   touch {directory}/{name}.clients {directory}/{name}.classes

# In its section global, for tarn's commands:
#   stats socket {socket} level admin

{counters}
# In the backend with the servers of {name}. How many requests a server has at a time is
# its maxconn: as many as it works on, and one more. What has waited for most of the
# longest deadline is refused, for it would be late. sc2 must not be used otherwise.
{rules}",
        directory = service.maps.display(),
        socket = service.socket.display(),
        counters = counters(service),
        name = service.name,
        rules = rules(service)
    )
}
