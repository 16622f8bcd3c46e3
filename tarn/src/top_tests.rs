//! `tarn top` on a host with every stage up, at a terminal of its own: what somebody sees there, and what it costs.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use tarn_frame::agent;
use tarn_lab::testing::Program;
use vt100::Parser;

use super::host_tests::{network, up};

const LINES: u16 = 24;
const COLUMNS: u16 = 80;
/// What `tarn top` and the agent may take: each a hundredth of a CPU, and 16 MB.
const CPU_SHARE_MOST: f64 = 0.01;
const MEMORY_MOST_KIB: u64 = 16 << 10;
/// How long it is measured.
const WATCHED: Duration = Duration::from_secs(30);

/// `tarn top` as somebody has it in a terminal.
struct Session {
    top: Child,
    /// The terminal's other end, where keys go in.
    keys: File,
    /// The terminal itself, whose modes are looked at.
    terminal: OwnedFd,
    /// Its modes before.
    modes: Termios,
    drawn: Arc<Mutex<Parser>>,
}

impl Session {
    fn of(program: &Program<'_>) -> Self {
        let size = Winsize {
            ws_row: LINES,
            ws_col: COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(Some(&size), None).unwrap();
        let modes = tcgetattr(&pty.slave).unwrap();
        let terminal = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut top = program.host.command(program.path());
        top.arg("top").env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        // As a shell does: what stops it stops its group.
        top.process_group(0);
        let top = top.stdin(terminal()).stdout(terminal()).spawn().unwrap();
        let keys = File::from(pty.master);
        let mut output = keys.try_clone().unwrap();
        let drawn = Arc::new(Mutex::new(Parser::new(LINES, COLUMNS, 0)));
        let parser = Arc::clone(&drawn);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                parser.lock().unwrap().process(&bytes[..length]);
            }
        });
        Self {
            top,
            keys,
            terminal: pty.slave,
            modes,
            drawn,
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn screen(&self) -> String {
        self.drawn.lock().unwrap().screen().contents()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.top.id()).unwrap()), signal).unwrap();
    }

    /// It ends well, and the terminal is as it was before.
    #[track_caller]
    fn assert_ends(&mut self, why: &str) {
        assert!(self.top.wait().unwrap().success(), "{why}");
        self.assert_given_back(why);
    }

    #[track_caller]
    fn assert_given_back(&self, why: &str) {
        thread::sleep(Duration::from_millis(100));
        assert_eq!(tcgetattr(&self.terminal).unwrap(), self.modes, "{why}");
        let hidden = self.drawn.lock().unwrap().screen().hide_cursor();
        let screen = self.screen();
        assert!(!hidden && screen.trim().is_empty(), "{why}: {screen}");
    }

    /// Waits until the screen shows what is wanted, and returns it.
    #[track_caller]
    fn await_screen(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{what}: not on the screen:\n{}", self.screen());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // It has ended, or a test has failed.
        let _ = self.top.kill();
        let _ = self.top.wait();
    }
}

/// Whether a line begins with one text, marked or not, and has another in it.
fn has_line(screen: &str, begin: &str, text: &str) -> bool {
    let of = |line: &&str| line.trim_start_matches(['>', ' ']).starts_with(begin);
    screen.lines().filter(of).any(|line| line.contains(text))
}

/// As `^Z` and `fg` do.
fn stops_and_goes_on(program: &Program<'_>) {
    let mut session = Session::of(program);
    let is_shown = |screen: &str| has_line(screen, "poll", " up ");
    session.await_screen("a stage", is_shown);
    session.signal(Signal::SIGTSTP);
    session.await_screen("the shell's screen", |screen| screen.trim().is_empty());
    session.assert_given_back("stopped");
    session.signal(Signal::SIGCONT);
    session.await_screen("the stage again", is_shown);
    session.press("q");
    session.assert_ends("q after a stop");
}

/// How long all threads of a process have run.
fn cpu_time(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let ran_ns = threads.map(|thread| -> u64 {
        let text = fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    });
    Duration::from_nanos(ran_ns.sum())
}

/// The memory that a process has to itself. Pages of the program's file are shared by all that run it.
fn memory_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Somebody sees a flood, who sends it, and an uplink that dies, and gets the terminal back as it was.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_top_shows_what_happens_and_costs_little() {
    let rig = network();
    let program = up(&rig);
    let agent = agent::information(&program.state()).expect("an agent lives").pid;
    let mut session = Session::of(&program);
    let stages = ["poll", "redirect", "reassembly", "classes", "pace", "paths"];
    let screen = session.await_screen("every stage", |screen| {
        stages.iter().all(|stage| has_line(screen, stage, " up "))
    });
    println!("{screen}");

    let processes = [("top", session.top.id()), ("agent", agent)];
    let before = processes.map(|(_, process)| cpu_time(process));
    thread::sleep(WATCHED);
    for ((name, process), before) in processes.iter().zip(before) {
        let share = (cpu_time(*process) - before).as_secs_f64() / WATCHED.as_secs_f64();
        let memory = memory_kib(*process);
        println!("{name}: {:.2} % of the CPU, {memory} KiB", 100.0 * share);
        assert!(share < CPU_SHARE_MOST && memory < MEMORY_MOST_KIB, "{name}");
    }

    rig.begin(21, 9999).unwrap();
    rig.flood(true).unwrap();
    println!(
        "{}",
        session.await_screen("the flood", |screen| has_line(screen, "poll", "dropped/s"))
    );
    session.press("\r");
    println!(
        "{}",
        session.await_screen("who sends", |screen| screen.contains("10.2.3."))
    );
    rig.flood(false).unwrap();
    session.press("\x1b");
    rig.server().unwrap().ip("link set eth0 down").unwrap();
    session.press("d");
    println!(
        "{}",
        session.await_screen("the dead uplink", |screen| {
            // It may have been in use or not, after the flood.
            let is_it = |line: &str| line.contains("right: state: ") && line.contains(" -> gone");
            screen.lines().any(is_it)
        })
    );

    session.press("q");
    session.assert_ends("q");
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        let mut session = Session::of(&program);
        session.await_screen("a stage", |screen| has_line(screen, "poll", " up "));
        session.signal(signal);
        session.assert_ends(signal.as_str());
    }
    stops_and_goes_on(&program);
    program.run("down");
}
