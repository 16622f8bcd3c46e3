//! Clients that are not ours: h2load and dnsperf, and tcpdump to see what they do not say.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::scene::{DIRECTORY, Scene, client_address, server_address};
use super::servers::Kind;
use crate::proof::scene::{TARGETS, end_program};
use tarn_lab::experiment::sign_of_life;
use tarn_lab::topology::Namespace;

/// How long a query of DNS waits for its answer, in s.
const PATIENCE: &str = "1";
/// Connections of HTTP/2 that each class has.
const CONNECTIONS: u32 = 4;
/// Requests that the capacity is measured with, and how many at a time.
const CAPACITY: (u32, u32) = (96, 16);

/// A request as its client saw it.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// When it began, in s.
    pub begin: f64,
    /// How long its answer took, in s; `None` where there was no good one.
    pub took: Option<f64>,
    /// The same of the server's first data, for connections: then they were let in.
    pub let_in: Option<f64>,
}

impl Seen {
    /// When it was answered, in s.
    pub fn end(&self) -> Option<f64> {
        Some(self.begin + self.took?)
    }
}

/// How often a long load says that it goes on.
const SIGNS: Duration = Duration::from_secs(30);

/// Equal loads of all classes, a request at a time, at equal distances.
pub struct Load {
    pub kind: Kind,
    /// Of each class, in requests a second.
    pub rate: f64,
    pub length: Duration,
}

impl Load {
    /// Makes the load, and returns what each class has seen. `during` is called so long after it began; its result comes back, too.
    ///
    /// # Errors
    /// A program that is not there, or fails; those of `during`.
    pub fn run<T>(
        &self,
        scene: &Scene,
        after: Duration,
        during: impl FnOnce() -> Result<T>,
    ) -> Result<(Vec<Vec<Seen>>, T)> {
        let mut watchers = Vec::new();
        if self.kind.is_connection() {
            for class in 0..TARGETS.len() {
                watchers.push(watch(scene.clients(class)?, class)?);
            }
        }
        let began = Instant::now();
        let mut clients = Vec::new();
        for class in 0..TARGETS.len() {
            clients.push(self.start(scene.clients(class)?, class)?);
            // The classes take turns.
            let apart = f64::from(self.kind.at_once()) / self.rate;
            std::thread::sleep(Duration::from_secs_f64(apart / TARGETS.len() as f64));
        }
        std::thread::sleep(after.saturating_sub(began.elapsed()));
        let noted = during()?;
        while let left = self.length.saturating_sub(began.elapsed())
            && left > SIGNS
        {
            std::thread::sleep(SIGNS);
            sign_of_life(&format!("{} s to go", (left - SIGNS).as_secs()));
        }
        for client in &mut clients {
            if !client.wait().context("cannot wait for a client")?.success() {
                bail!("a client failed: see what it printed");
            }
        }
        watchers.iter_mut().try_for_each(end_program)?;
        let read = |class: usize| {
            let text = |name: &str| {
                let file = file(name, class);
                fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))
            };
            match self.kind {
                Kind::Tls | Kind::Visits => connections(&text("packets")?, &server_address(class)),
                Kind::Dns => queries(&text("queries")?, self.rate.round()),
                Kind::Http | Kind::Http2 => requests(&text("requests")?),
            }
        };
        let seen = (0..TARGETS.len()).map(read).collect::<Result<_>>()?;
        Ok((seen, noted))
    }

    /// Requests of each class, or connections of some requests.
    fn count(&self) -> u32 {
        (self.rate * self.length.as_secs_f64() / f64::from(self.kind.at_once())).round() as u32
    }

    fn start(&self, clients: &Namespace, class: usize) -> Result<Child> {
        match self.kind {
            Kind::Dns => self.dnsperf(clients, class),
            _ => self.h2load(clients, class),
        }
    }

    /// Requests at equal distances, whether answers come or not: by HTTP/1 on a connection each, as one whose earlier request is not
    /// answered yet can carry no other; by HTTP/2 on connections that take turns, or on one for each visit.
    fn h2load(&self, clients: &Namespace, class: usize) -> Result<Child> {
        let count = self.count();
        let connections = match self.kind {
            Kind::Http2 => CONNECTIONS,
            _ => count,
        };
        // A connection's own rate; all of them have begun when the first has its second turn.
        let rate = self.rate / f64::from(connections);
        let at_once = self.kind.at_once();
        let apart = Duration::from_secs_f64(f64::from(at_once) / self.rate);
        let log = file("requests", class);
        // It adds to what is there.
        let _ = fs::remove_file(&log);
        let mut arguments: Vec<String> = [
            ("-c", connections.to_string()),
            ("-n", (count * at_once).to_string()),
            ("--rate", "1".into()),
            ("--rate-period", format!("{}ms", apart.as_millis())),
            ("--log-file", log),
        ]
        .into_iter()
        .map(|(option, value)| option_of(option, &value))
        .collect();
        match self.kind {
            Kind::Http2 => arguments.extend([option_of("-m", "1000"), format!("--rps={rate}")]),
            Kind::Visits => arguments.push(option_of("-m", &at_once.to_string())),
            _ => arguments.push("--h1".into()),
        }
        arguments.push(url(self.kind, class));
        let mut command = clients.command("h2load");
        command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().context("cannot start h2load")
    }

    fn dnsperf(&self, clients: &Namespace, class: usize) -> Result<Child> {
        let (rate, length) = (self.rate.round().to_string(), self.length.as_secs().to_string());
        let said = File::create(file("queries", class))?;
        let mut command = clients.command("dnsperf");
        command.args(["-s", &server_address(class), "-d", &questions()?, "-v"]);
        command.args(["-Q", &rate, "-l", &length, "-t", PATIENCE, "-q", "100000"]);
        command.stdin(Stdio::null()).stdout(said);
        command.spawn().context("cannot start dnsperf")
    }
}

/// The questions that dnsperf asks, in a file.
fn questions() -> Result<String> {
    let file = format!("{DIRECTORY}/questions");
    fs::write(&file, "shop.lab A\n").with_context(|| format!("cannot write {file}"))?;
    Ok(file)
}

/// Has the first class's clients ask a name server. Returns what dnsperf says.
///
/// # Errors
/// It is not there, or fails.
pub fn query(scene: &Scene, options: &[&str]) -> Result<String> {
    let (server, questions) = (server_address(0), questions()?);
    let arguments = [&["-s", &server, "-d", &questions], options].concat();
    scene.clients(0)?.run("dnsperf", &arguments)
}

/// Answers a second of a service that always has something to do.
///
/// # Errors
/// A program that is not there, or fails.
pub fn capacity(scene: &Scene, kind: Kind) -> Result<f64> {
    let clients = scene.clients(0)?;
    if kind == Kind::Dns {
        let said = query(scene, &["-l", "2", "-q", "40"])?;
        let line = said
            .lines()
            .find_map(|line| line.trim().strip_prefix("Queries per second:"));
        return line
            .and_then(|rate| rate.trim().parse().ok())
            .with_context(|| format!("dnsperf does not say how many queries a second it made:\n{said}"));
    }
    let log = file("requests", 0);
    let _ = fs::remove_file(&log);
    let (count, at_a_time) = (CAPACITY.0.to_string(), CAPACITY.1.to_string());
    clients.run(
        "h2load",
        &[
            "--h1",
            "-c",
            &at_a_time,
            "-n",
            &count,
            "--log-file",
            &log,
            &url(kind, 0),
        ],
    )?;
    let ends = requests(&fs::read_to_string(&log)?)?;
    let mut ends: Vec<f64> = ends.iter().filter_map(Seen::end).collect();
    ends.sort_by(f64::total_cmp);
    // Its threads end nearly together: from the last of some round to the last of the last.
    let ends = &ends[ends.len().min(CAPACITY.1 as usize - 1)..];
    match ends {
        [first, .., last] => Ok((ends.len() - 1) as f64 / (last - first)),
        _ => bail!("the service has answered too little"),
    }
}

fn option_of(option: &str, value: &str) -> String {
    match option.starts_with("--") {
        true => format!("{option}={value}"),
        false => format!("{option}{value}"),
    }
}

fn url(kind: Kind, class: usize) -> String {
    let scheme = if kind == Kind::Http { "http" } else { "https" };
    format!("{scheme}://{}/", server_address(class))
}

fn file(name: &str, class: usize) -> String {
    format!("{DIRECTORY}/{name}-{class}")
}

/// A log of h2load: when a request was sent, its status, and how long it took, in us.
fn requests(log: &str) -> Result<Vec<Seen>> {
    let seen = |line: &str| -> Result<Seen> {
        let mut fields = line.split('\t').map(str::parse::<i64>);
        let mut next = || -> Result<i64> { fields.next().context("a field is missing")?.context("no number") };
        let (begin, status, took) = (next()?, next()?, next()?);
        Ok(Seen {
            begin: begin as f64 / 1e6,
            took: (status == 200).then_some(took as f64 / 1e6),
            let_in: None,
        })
    };
    log.lines()
        .map(|line| seen(line).with_context(|| format!("h2load wrote {line:?}")))
        .collect()
}

/// Each query that dnsperf reports, when it has ended: `NOERROR`, its name and type, and how long it took. It does not say when: they
/// come at a rate, and those that get no answer end a second late.
fn queries(said: &str, rate: f64) -> Result<Vec<Seen>> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("> "));
    let seen = |(number, line): (usize, &str)| -> Result<Seen> {
        let took = line.strip_prefix("NOERROR ").and_then(|rest| rest.split(' ').nth(2));
        let took = took.map(|took| took.parse::<f64>().with_context(|| format!("dnsperf printed {line:?}")));
        Ok(Seen {
            begin: number as f64 / rate,
            took: took.transpose()?,
            let_in: None,
        })
    };
    lines.enumerate().map(seen).collect()
}

/// Sees a class's connections on its own wire.
fn watch(clients: &Namespace, class: usize) -> Result<Child> {
    let said = File::create(file("packets", class))?;
    let mut command = clients.command("tcpdump");
    command.args([
        "-i",
        "eth0",
        "-n",
        "-tt",
        "-l",
        "--immediate-mode",
        "-s",
        "96",
        // Debian's would become another user, whom the guest need not have.
        "-Z",
        "root",
        // Of the class's own client, a connection's beginning, and what the server sends.
        &format!(
            "host {} and tcp port 443 and (tcp[tcpflags] & tcp-syn != 0 or src port 443 and len > 70)",
            client_address(class)
        ),
    ]);
    command.stdin(Stdio::null()).stdout(said).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start tcpdump")?;
    // It says when it listens.
    let mut heard = [0; 1];
    let stderr = child.stderr.as_mut().context("tcpdump has no errors")?;
    std::io::Read::read_exact(stderr, &mut heard).context("tcpdump does not listen")?;
    Ok(child)
}

/// Connections that tcpdump has seen, each of what is asked for at once: from their first packet to the last data of the server.
fn connections(packets: &str, server: &str) -> Result<Vec<Seen>> {
    let mut connections: BTreeMap<(u64, String), Seen> = BTreeMap::new();
    let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
    let server = format!("{server}.443");
    for line in packets.lines().filter(|line| !line.is_empty()) {
        // 1767225600.123456 IP 10.0.1.1.40000 > 10.0.1.100.443: Flags [P.], seq 1:518, ack 1, win 502, length 517
        let words: Vec<&str> = line.split(' ').collect();
        let [time, "IP", from, ">", to, ..] = words[..] else {
            bail!("tcpdump printed {line:?}");
        };
        let time: f64 = time.parse().with_context(|| format!("tcpdump printed {line:?}"))?;
        let to = to.trim_end_matches(':');
        let is_first = line.contains("Flags [S],");
        let has_data = !line.ends_with("length 0");
        let client = if from == server { to } else { from };
        if is_first {
            let number = numbers.len() as u64;
            numbers.entry(client.to_owned()).or_insert(number);
        }
        let Some(&number) = numbers.get(client) else { continue };
        let seen = connections.entry((number, client.to_owned())).or_insert(Seen {
            begin: time,
            took: None,
            let_in: None,
        });
        if from == server && has_data {
            let took = time - seen.begin;
            seen.let_in = seen.let_in.or(Some(took));
            seen.took = Some(took);
        }
    }
    Ok(connections.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_programs_print_is_read() {
        let seen = requests("1767225600123456\t200\t104321\n1767225600223456\t-1\t5\n").unwrap();
        assert_eq!(seen.len(), 2);
        assert!((seen[0].took.unwrap() - 0.104_321).abs() < 1e-9 && seen[1].took.is_none());
        let seen = queries("DNS Performance\n> NOERROR shop.lab A 0.000123\n> T shop.lab A\n", 4.0).unwrap();
        assert_eq!(seen.len(), 2);
        assert!((seen[0].took.unwrap() - 0.000_123).abs() < 1e-9 && seen[1].took.is_none());
        assert_eq!(seen[1].begin, 0.25);
        assert!(requests("1767225600123456 200\n").is_err());
    }

    /// A connection's time ends with the answer, not with its farewell.
    #[test]
    fn connections_are_read_from_packets() {
        let packets = "\
1.000000 IP 10.0.1.1.40000 > 10.0.1.100.443: Flags [S], seq 1, win 64240, length 0
1.000100 IP 10.0.1.100.443 > 10.0.1.1.40000: Flags [S.], seq 7, ack 2, win 65160, length 0
1.000200 IP 10.0.1.1.40000 > 10.0.1.100.443: Flags [P.], seq 1:518, ack 1, win 502, length 517
1.500000 IP 10.0.1.100.443 > 10.0.1.1.40000: Flags [P.], seq 1:9, ack 518, win 501, length 8
1.700000 IP 10.0.1.100.443 > 10.0.1.1.40000: Flags [P.], seq 9:17, ack 518, win 501, length 8
1.800000 IP 10.0.1.1.40000 > 10.0.1.100.443: Flags [F.], seq 518, ack 9, win 501, length 0
2.000000 IP 10.0.1.1.40001 > 10.0.1.100.443: Flags [S], seq 1, win 64240, length 0
";
        let seen = connections(packets, "10.0.1.100").unwrap();
        assert_eq!(seen.len(), 2);
        assert!((seen[0].took.unwrap() - 0.7).abs() < 1e-9);
        assert!((seen[0].let_in.unwrap() - 0.5).abs() < 1e-9);
        assert!(seen[1].took.is_none() && seen[1].let_in.is_none());
    }
}
