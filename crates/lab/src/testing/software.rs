//! Programs that we did not write, as tests use them: nginx, ApacheBench, ping, WireGuard.

use std::fs::{self, File};
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::topology::Namespace;

/// How long a program may take to listen, or to end when it is asked to, in looks and the time between them.
const LOOKS: u32 = 500;
const LOOK: Duration = Duration::from_millis(10);

/// A running program, ended when it is dropped, even if the test fails: it would keep its network namespace, and the card in it.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Asked first: a server ends its own processes, and writes down what it has to.
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        for _ in 0..LOOKS {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(LOOK);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts a program whose output is wanted: its name and its arguments, separated by single spaces.
    pub fn start(node: &Namespace, line: &str) -> Self {
        let mut words = line.split(' ');
        let mut command = node.command(words.next().unwrap());
        command.args(words).stdin(Stdio::null());
        Self(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Starts a server. Its output goes to `/tmp/NODE-PROGRAM.log`.
    pub fn serve(node: &Namespace, program: &str, arguments: &[&str]) -> Self {
        let name = program.rsplit('/').next().unwrap();
        let output = File::create(format!("/tmp/{}-{name}.log", node.name())).unwrap();
        let mut command = node.command(program);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        Self(command.spawn().unwrap())
    }

    /// The same server, once something listens at this port, over TCP or UDP.
    pub fn once_listening(mut self, node: &Namespace, port: u16) -> Self {
        let filter = format!("sport = :{port}");
        for _ in 0..LOOKS {
            if !node.run("ss", &["-Hlntu", &filter]).unwrap().is_empty() {
                return self;
            }
            assert!(!self.has_ended(), "it ended before it listened at port {port}");
            std::thread::sleep(LOOK);
        }
        panic!("nothing listens at port {port}");
    }

    /// nginx at port 80 of all addresses, of one process, that answers any request with this page.
    pub fn nginx(node: &Namespace, page: &str) -> Self {
        let directory = format!("/tmp/{}-nginx", node.name());
        let places: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|place| format!("{place}_temp_path {directory}/{place};\n"))
            .collect();
        let configuration = format!(
            "daemon off;\nmaster_process off;\npid {directory}/pid;\nerror_log stderr;\nevents {{ worker_connections 512; }}\nhttp {{\n\
             access_log off;\n{places}server {{ listen 80; root {directory}; location / {{ try_files /page =404; }} }}\n}}\n"
        );
        fs::create_dir_all(&directory).unwrap();
        fs::write(format!("{directory}/page"), page).unwrap();
        let file = format!("{directory}/configuration");
        fs::write(&file, configuration).unwrap();
        Self::serve(node, "nginx", &["-e", "stderr", "-c", &file]).once_listening(node, 80)
    }

    /// Starts ApacheBench, with these arguments, for [`Self::pages`].
    pub fn ab(node: &Namespace, arguments: &str) -> Self {
        Self::start(node, &format!("ab -q -s 10 {arguments}"))
    }

    /// Starts ping, with these arguments, for [`Self::answered`].
    pub fn ping(node: &Namespace, arguments: &str) -> Self {
        Self::start(node, &format!("ping -q -W 1 {arguments}"))
    }

    /// What it printed, once it has ended by itself.
    pub fn printed(mut self) -> String {
        let mut text = String::new();
        let output = self.0.stdout.as_mut().expect("started with start()");
        output.read_to_string(&mut text).unwrap();
        text
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// What ApacheBench reports at its end.
    pub fn pages(self) -> Pages {
        Pages::read(&self.printed())
    }

    /// Waits for ApacheBench's end: all of its requests have to be answered with a page.
    pub fn assert_served(self, requests: u64) {
        let text = self.printed();
        assert_eq!(Pages::read(&text).served, requests, "{text}");
    }

    /// How many of ping's requests were answered.
    pub fn answered(self) -> u64 {
        let text = self.printed();
        let count = text.split(", ").find_map(|part| part.strip_suffix(" received"));
        count
            .and_then(|count| count.parse().ok())
            .unwrap_or_else(|| panic!("{text}"))
    }
}

/// What ApacheBench saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// Requests that were answered with a page, all of it; fewer are counted where one failed in two ways.
    pub served: u64,
    /// From the request for a connection to the end of the page, the longest. ms; the greatest number where none was answered.
    pub slowest_ms: u64,
}

impl Pages {
    /// From what it prints: nothing, where it gave up.
    fn read(text: &str) -> Self {
        let figure = |name: &str| -> Option<u64> {
            let rest = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
            rest.split_whitespace().next()?.parse().ok()
        };
        let count = |name| figure(name).unwrap_or_else(|| panic!("no {name:?} in:\n{text}"));
        let served = match text.trim().is_empty() {
            true => 0,
            false => {
                let failed = count("Failed requests:") + figure("Non-2xx responses:").unwrap_or_default();
                count("Complete requests:").saturating_sub(failed)
            }
        };
        Self {
            served,
            slowest_ms: figure("100%").unwrap_or(u64::MAX),
        }
    }
}

/// Joins two hosts by WireGuard, as 10.9.0.1 and 10.9.0.2. Each end comes with the address of the other, if it knows it.
pub fn tunnel(ends: [(&Namespace, Option<&str>); 2]) {
    let keys = ends.map(|(end, _)| {
        let private = end.run("wg", &["genkey"]).unwrap();
        fs::write(key_file(end), &private).unwrap();
        let public = end.run_with_input("wg", &["pubkey"], &private).unwrap();
        public.trim().to_owned()
    });
    for (number, ((end, other), key)) in ends.iter().zip(keys.iter().rev()).enumerate() {
        end.ip("link add wg0 type wireguard").unwrap();
        end.ip(&format!("address add 10.9.0.{}/24 dev wg0", number + 1))
            .unwrap();
        let file = key_file(end);
        let mut line = format!("set wg0 listen-port 51820 private-key {file} peer {key} allowed-ips 10.9.0.0/24");
        if let Some(other) = other {
            line += &format!(" endpoint {other}:51820");
        }
        end.run("wg", &line.split(' ').collect::<Vec<_>>()).unwrap();
        end.ip("link set wg0 up").unwrap();
    }
}

fn key_file(end: &Namespace) -> String {
    format!("/tmp/{}.key", end.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failed page that counted as one would hide what a stage does to its users.
    #[test]
    fn pages_count_where_they_came_whole() {
        let text = "Complete requests:      200\nFailed requests:        3\nNon-2xx responses:      2\n\n 100%     12 (longest request)\n";
        let (served, slowest_ms) = (195, 12);
        assert_eq!(Pages::read(text), Pages { served, slowest_ms });
        let (served, slowest_ms) = (0, u64::MAX);
        assert_eq!(Pages::read(""), Pages { served, slowest_ms });
    }
}
