//! The README's quick start, word for word, on a server whose nginx is set up as Debian's package does it, with pages in TLS, too.
//!
//! ```text
//!   clients                           server
//!   203.0.113.7  ─────────── 203.0.113.1     ports 80 and 443
//!   198.51.100.7 eth0   eth0 198.51.100.1
//! ```

use std::fs;

use serde_json::Value;
use tarn_lab::testing::software::Running;
use tarn_lab::testing::{Program, is_in_guest};
use tarn_lab::topology::{End, Network, Node, Topology};

use super::scene::{are_measured, counter};
use super::software::CERTIFICATE;
use crate::proof::scene::add_web_user;

const README: &[u8] = include_bytes!("../../README.md");
const START: usize = position(HEADING, 0) + HEADING.len();
const END: usize = position(b"\n## ", START);
const HEADING: &[u8] = b"\n## Quick start\n";
/// The section without the rest of the file: tables of figures elsewhere in it make no other program of this one, whose tests would run again.
static QUICK_START: [u8; END - START] = {
    let mut section = [0; END - START];
    let mut at = 0;
    while at < section.len() {
        section[at] = README[START + at];
        at += 1;
    }
    section
};
/// Pages that each client asks for at each port.
const PAGES: u64 = 300;
/// Connections at a time on which a client asks for pages without TLS, one after another.
const KEPT: u64 = 2;
/// A client of each class in the README.
const CLIENTS: [&str; 2] = ["203.0.113.7", "198.51.100.7"];
/// Where nginx looks for sites: the package's installation makes a link there.
const ENABLED: &str = "/etc/nginx/sites-enabled/default";
/// Comments of that site which an administrator makes lines, to have TLS.
const TLS: [&str; 2] = ["listen 443 ssl default_server;", "include snippets/snakeoil.conf;"];

/// Where `what` next is in the README, in bytes.
const fn position(what: &[u8], from: usize) -> usize {
    let (mut at, mut equal) = (from, 0);
    while equal < what.len() {
        if README[at + equal] == what[equal] {
            equal += 1;
        } else {
            (at, equal) = (at + 1, 0);
        }
    }
    at
}

/// The lines of the README's quick start, without what indents them.
fn quick_start() -> Vec<&'static str> {
    let section = std::str::from_utf8(&QUICK_START).unwrap();
    section.lines().map(str::trim).collect()
}

/// The `tarn.toml` in it.
fn configuration() -> String {
    let lines = quick_start().into_iter().skip_while(|line| *line != "```toml").skip(1);
    let text: Vec<_> = lines.take_while(|line| *line != "```").collect();
    text.join("\n")
}

/// The commands in it, without `sudo`.
fn commands() -> Vec<&'static str> {
    let lines = quick_start().into_iter();
    lines.filter_map(|line| line.strip_prefix("sudo ")).collect()
}

fn network() -> Network {
    let clients = End::new("clients", "eth0").address("203.0.113.7/24");
    let server = End::new("server", "eth0").address("203.0.113.1/24");
    Topology::new()
        .node(Node::new("clients"))
        .node(Node::new("server"))
        .link(clients.address("198.51.100.7/24"), server.address("198.51.100.1/24"))
        .build()
        .unwrap()
}

/// Debian's nginx, with the default site on port 443, too.
fn nginx(network: &Network) -> Running {
    add_web_user().unwrap();
    let mut site = fs::read_to_string("/etc/nginx/sites-available/default").unwrap();
    for line in TLS {
        let comment = format!("# {line}");
        assert!(site.contains(&comment), "{line}");
        site = site.replace(&comment, line);
    }
    fs::write(ENABLED, site).unwrap();
    let page = "<html>a page</html>\n".repeat(40);
    for (directory, file, text) in [
        ("/etc/ssl/certs", "ssl-cert-snakeoil.pem", CERTIFICATE),
        ("/etc/ssl/private", "ssl-cert-snakeoil.key", CERTIFICATE),
        ("/var/www/html", "index.nginx-debian.html", &page),
    ] {
        fs::create_dir_all(directory).unwrap();
        fs::write(format!("{directory}/{file}"), text).unwrap();
    }
    let server = network.namespace("server").unwrap();
    Running::serve(server, "nginx", &["-g", "daemon off;"]).once_listening(server, 443)
}

/// Each client asks for pages at each port, in TLS on a connection a page, while `meanwhile` runs. All of them have to come.
fn ask(network: &Network, meanwhile: impl FnOnce()) {
    let clients = network.namespace("clients").unwrap();
    let ask = |client: &str, how: &str, scheme: &str| {
        let server = client.replace(".7", ".1");
        Running::ab(clients, &format!("-n {PAGES} {how} -B {client} {scheme}://{server}/"))
    };
    let kept = CLIENTS.map(|client| ask(client, &format!("-k -c {KEPT}"), "http"));
    let each = CLIENTS.map(|client| ask(client, "-c 1", "https"));
    let mut all: Vec<_> = kept.into_iter().chain(each).collect();
    meanwhile();
    assert!(!all.iter_mut().any(Running::has_ended));
    all.into_iter().for_each(|asking| asking.assert_served(PAGES));
}

/// Of the rows of `tarn classes status`, the sum of a figure for each class.
fn sums(status: &Value, name: &str) -> [u64; 2] {
    ["gold", "rest"].map(|class| {
        let rows = status["requests"].as_array().unwrap().iter();
        let of_class = rows.filter(|row| row["class"] == class);
        of_class.map(|row| row[name].as_u64().unwrap()).sum()
    })
}

/// Whoever tries the stage for the first time types this.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_classes_the_quick_start_works_with_nginx_and_tls_of_debian() {
    assert!(is_in_guest(), "it replaces files below /etc");
    let network = network();
    let host = network.namespace("server").unwrap();
    let server = nginx(&network);
    let tarn = Program::new(host, "");
    let run = |line: &str| {
        let (code, printed) = tarn.command_line(line);
        println!("$ {line}\n{printed}");
        assert_eq!(code, 0, "{line}: {printed}");
        printed
    };
    fs::create_dir_all("/etc/tarn").unwrap();
    fs::write("/etc/tarn/tarn.toml", configuration()).unwrap();
    assert!(quick_start().join(" ").contains("`sudo tarn check classes`"));
    run("tarn check classes");
    let commands = commands();
    assert!(commands.contains(&"tarn up"), "{commands:?}");
    ask(&network, || commands.into_iter().for_each(|line| drop(run(line))));

    run("tarn classes reset");
    let opened = || counter(host, "TcpPassiveOpens");
    let before = opened();
    ask(&network, || ());
    let opened = opened() - before;
    let status = serde_json::from_str(&run("tarn classes status --json")).unwrap();
    run("tarn down");
    drop(server);
    for path in ["/etc/tarn/tarn.toml", ENABLED] {
        fs::remove_file(path).unwrap();
    }
    let [requests, connections] = ["requests", "connections"].map(|name| sums(&status, name));
    println!("{opened} connections; by tarn: {requests:?} requests, of which {connections:?} are connections in TLS");
    assert_eq!(opened, CLIENTS.len() as u64 * (PAGES + KEPT));
    assert_eq!((requests, connections), ([2 * PAGES; 2], [PAGES; 2]));
    let [gold, rest] = sums(&status, "in_time").map(|count| 100 * count / (2 * PAGES));
    println!("in time: gold {gold} %, rest {rest} %");
    assert!(!are_measured() || gold >= 90 && rest >= 50, "{gold} % {rest} %");
}
