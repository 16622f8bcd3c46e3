//! Programs that are not ours: nginx with TLS before an application, and ApacheBench from five networks, a connection a request.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use super::scene::{PORT, SERVICE, Scene, TARGETS, client, settings};
use crate::module::Settings;
use crate::proof::service::{Service, Work};
use tarn_lab::testing::software::Running;
use tarn_lab::topology::bring_loopback_up;

/// What the application, of one worker, needs for a request.
const TIME: Duration = Duration::from_millis(60);
/// From the first packet of a request to its answer: far less than all clients together make it take.
const DEADLINE: Duration = Duration::from_millis(1200);
/// Clients of a class, each of which asks again when it has its answer.
const CLIENTS: usize = 8;
/// Seconds for which they ask of the stock kernel, and of the module until it has found the limit: it begins with all at once.
const BEFORE: u64 = 20;
/// Seconds for which they ask when it has.
const LENGTH: u64 = 40;
const BEHIND: &str = "127.0.0.1:8080";
const DIRECTORY: &str = "/tmp/nginx";
/// A certificate that nobody trusts, with its key.
pub const CERTIFICATE: &str = include_str!("software/lab-only.pem");

/// nginx, as in its manual, without what Debian's package sets up.
fn nginx(scene: &Scene) -> Running {
    let configuration = format!(
        "daemon off;\nuser root;\npid {DIRECTORY}/pid;\nerror_log {DIRECTORY}/errors;\nevents {{ worker_connections 4096; }}\n\
         http {{\n access_log off;\n ssl_certificate {DIRECTORY}/pem;\n ssl_certificate_key {DIRECTORY}/pem;\n\
         server {{ listen {SERVICE}:{PORT} ssl; location / {{ proxy_pass http://{BEHIND}; }} }}\n}}\n"
    );
    fs::create_dir_all(DIRECTORY).unwrap();
    fs::write(format!("{DIRECTORY}/pem"), CERTIFICATE).unwrap();
    let file = format!("{DIRECTORY}/configuration");
    fs::write(&file, configuration).unwrap();
    let arguments = ["-e", &format!("{DIRECTORY}/errors"), "-c", &file];
    let server = scene.node("server");
    Running::serve(server, "nginx", &arguments).once_listening(server, PORT)
}

/// What ApacheBench measures in `seconds`: the times of each class's requests, in ms.
fn benched(scene: &Scene, seconds: u64) -> Vec<Vec<u64>> {
    let seconds = seconds.to_string();
    let clients = CLIENTS.to_string();
    let file = |class: usize| format!("/tmp/ab-{class}");
    let start = |class: usize| {
        let mut command = scene.node("clients").command("ab");
        command.args(["-q", "-t", &seconds, "-n", "100000", "-c", &clients]);
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

/// Of a class's requests, how many were answered in time.
fn in_time(times: &[u64]) -> usize {
    times
        .iter()
        .filter(|time| u128::from(**time) <= DEADLINE.as_millis())
        .count()
}

/// Of each class, how many of how many answers were in time.
fn seen(scene: &Scene, seconds: u64) -> Vec<(usize, usize)> {
    let times = benched(scene, seconds);
    times.iter().map(|times| (in_time(times), times.len())).collect()
}

/// Of each class, how many requests were answered in time, as the module counts them.
fn said(scene: &Scene) -> Vec<usize> {
    scene.counts().iter().map(|counts| counts.in_time as usize).collect()
}

/// Whoever has customers behind TLS would see figures that say one thing, while the customers get another.
#[test]
#[ignore = "needs the lab"]
fn lab_long_classes_nginx_with_tls_serves_by_class_and_the_figures_are_true() {
    let scene = Scene::new();
    scene.node("server").enter(|| Ok(bring_loopback_up()?)).unwrap();
    let behind = BEHIND.parse().unwrap();
    let _service = Service::http(scene.node("server"), behind, Work::Sleep(TIME)).unwrap();
    let _nginx = nginx(&scene);
    let stock = seen(&scene, BEFORE);
    scene.set(&Settings {
        limit: Some(0),
        overdue: Some(Duration::ZERO),
        patience: Some(5 * DEADLINE),
        ..settings(DEADLINE)
    });
    let cold = seen(&scene, BEFORE);
    let before = said(&scene);
    let ours = seen(&scene, LENGTH);
    let said: Vec<usize> = said(&scene)
        .iter()
        .zip(&before)
        .map(|(all, before)| all - before)
        .collect();
    let report = format!("in time, of answers: {stock:?}, {cold:?}, then {ours:?}, and in time as is said: {said:?}");
    println!("{report}");
    let share = |(in_time, answers): &(usize, usize)| *in_time as f64 / (*answers).max(1) as f64;
    assert!(stock.iter().all(|of| share(of) < 0.2), "{report}");
    // From the cold start on, those who were promised more are ahead.
    let both: Vec<(usize, usize)> = cold.iter().zip(&ours).map(|(a, b)| (a.0 + b.0, a.1 + b.1)).collect();
    let [gold, silver, .., last] = &both[..] else {
        panic!("{report}")
    };
    assert!(
        share(gold) > 0.8 && share(silver) > 0.6 && share(gold) > share(last) + 0.2,
        "{report}"
    );
    // Once the limit is found, each class gets what it was promised.
    for (of, target) in ours.iter().zip(TARGETS) {
        assert!(share(of) >= f64::from(target) / 10_000.0, "{report}");
    }
    // ApacheBench leaves connections behind when its time is over, one for each client, and does not count them.
    for ((in_time, answers), said) in ours.iter().zip(&said) {
        assert!(said.abs_diff(*in_time) <= CLIENTS + answers / 40, "{report}");
    }
    // Nobody starves, and the service is busy.
    assert!(both.iter().all(|(_, answers)| *answers >= 20), "{report}");
    let answers = |all: &[(usize, usize)]| all.iter().map(|(_, answers)| *answers as u64).sum::<u64>();
    assert!(
        answers(&ours) * BEFORE * 100 > answers(&stock) * LENGTH * 90,
        "{report}"
    );
    let counts = scene.counts();
    assert!(
        counts.iter().all(|counts| counts.connections == counts.requests),
        "{counts:?}"
    );
}
