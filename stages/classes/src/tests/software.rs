//! Programs that are not ours: nginx with TLS before an application, and ApacheBench from five networks, a connection a request.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::scene::{PORT, SERVICE, Scene, TARGETS, client, eventually, settings};
use crate::module::{Counts, Settings};
use crate::proof::scene::end_program;
use crate::proof::service::{Service, Work};
use tarn_lab::topology::bring_loopback_up;

/// What the application, of one worker, needs for a request.
const TIME: Duration = Duration::from_millis(60);
/// From the first packet of a request to its answer: far less than all clients together make it take.
const DEADLINE: Duration = Duration::from_millis(1200);
/// Clients of a class, each of which asks again when it has its answer.
const CLIENTS: &str = "8";
/// Seconds for which they ask. It begins with all of them at once, and no limit.
const LENGTH: u64 = 60;
const BEHIND: &str = "127.0.0.1:8080";
const DIRECTORY: &str = "/tmp/nginx";
/// A certificate that nobody trusts, with its key.
const CERTIFICATE: &str = include_str!("software/lab-only.pem");

/// nginx, as in its manual, without what Debian's package sets up; it ends when dropped.
struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = end_program(&mut self.0);
    }
}

fn nginx(scene: &Scene) -> Nginx {
    let configuration = format!(
        "daemon off;\nuser root;\npid {DIRECTORY}/pid;\nerror_log {DIRECTORY}/errors;\nevents {{ worker_connections 4096; }}\n\
         http {{\n access_log off;\n ssl_certificate {DIRECTORY}/pem;\n ssl_certificate_key {DIRECTORY}/pem;\n\
         server {{ listen {SERVICE}:{PORT} ssl; location / {{ proxy_pass http://{BEHIND}; }} }}\n}}\n"
    );
    fs::create_dir_all(DIRECTORY).unwrap();
    fs::write(format!("{DIRECTORY}/pem"), CERTIFICATE).unwrap();
    let file = format!("{DIRECTORY}/configuration");
    fs::write(&file, configuration).unwrap();
    let mut command = scene.node("server").command("nginx");
    command.args(["-e", &format!("{DIRECTORY}/errors"), "-c", &file]);
    let program = Nginx(command.spawn().unwrap());
    let listens = || scene.node("server").run("ss", &["-Hltn", "sport = :80"]).unwrap();
    assert!(eventually(listens, |text| text.contains("LISTEN")).contains("LISTEN"));
    program
}

/// What ApacheBench has measured: the times of each class's requests, in ms.
fn benched(scene: &Scene) -> Vec<Vec<u64>> {
    let length = LENGTH.to_string();
    let file = |class: usize| format!("/tmp/ab-{class}");
    let start = |class: usize| {
        let mut command = scene.node("clients").command("ab");
        command.args(["-q", "-t", &length, "-n", "100000", "-c", CLIENTS]);
        command.args([
            "-B",
            &client(class),
            "-g",
            &file(class),
            &format!("https://{SERVICE}:{PORT}/"),
        ]);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let all: Vec<_> = (0..TARGETS.len()).map(start).collect();
    for mut program in all {
        assert!(program.wait().unwrap().success());
    }
    let text = |class: usize| fs::read_to_string(file(class)).unwrap();
    (0..TARGETS.len()).map(|class| times(&text(class))).collect()
}

/// Its lines: when the request began, as text and in seconds, then the times to connect, to wait, in total, all in ms.
fn times(text: &str) -> Vec<u64> {
    let total = |line: &str| line.split('\t').nth(4).unwrap().parse().unwrap();
    text.lines().skip(1).map(total).collect()
}

/// Of all classes, what a run of [`benched`] saw: the share in time, and the answers.
fn seen(scene: &Scene) -> (Vec<f64>, Vec<usize>) {
    let share = |times: &Vec<u64>| {
        let in_time = times.iter().filter(|time| u128::from(**time) <= DEADLINE.as_millis());
        in_time.count() as f64 / times.len().max(1) as f64
    };
    let times = benched(scene);
    (times.iter().map(share).collect(), times.iter().map(Vec::len).collect())
}

/// Whoever has customers behind TLS would see figures that say one thing, while the customers get another.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_nginx_with_tls_serves_by_class_and_the_figures_are_true() {
    let scene = Scene::new();
    scene.node("server").enter(|| Ok(bring_loopback_up()?)).unwrap();
    let behind = BEHIND.parse().unwrap();
    let _service = Service::http(scene.node("server"), behind, Work::Sleep(TIME)).unwrap();
    let _nginx = nginx(&scene);
    let (stock, answers) = seen(&scene);
    let all: usize = answers.iter().sum();
    assert!(stock.iter().all(|share| *share < 0.2), "{stock:.3?}");
    scene.set(&Settings {
        limit: Some(0),
        overdue: Some(Duration::ZERO),
        patience: Some(5 * DEADLINE),
        ..settings(DEADLINE)
    });
    let (ours, answers) = seen(&scene);
    let said = |counts: &Counts| counts.in_time as f64 / counts.requests as f64;
    let said: Vec<f64> = scene.counts().iter().map(said).collect();
    let report = format!("{stock:.3?} of {all}, then {ours:.3?} of {answers:?}, it is said {said:.3?}");
    println!("{report}");
    assert!(ours[0] > 0.8 && ours[1] > 0.6 && ours[0] > ours[4] + 0.2, "{report}");
    assert!(
        (ours[0] - said[0]).abs() < 0.05 && (ours[1] - said[1]).abs() < 0.1,
        "{report}"
    );
    // Nobody starves, and the service is busy.
    assert!(answers.iter().all(|count| *count >= 20), "{report}");
    assert!(answers.iter().sum::<usize>() * 100 > all * 90, "{report}");
    let counts = scene.counts();
    assert!(
        counts.iter().all(|counts| counts.connections == counts.requests),
        "{counts:?}"
    );
}
