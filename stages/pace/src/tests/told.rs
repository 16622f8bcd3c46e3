//! The figures of connections, and how programs get them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};
use tarn_lab::load::{Flow, TcpBulk, TcpSink};
use tarn_lab::testing::Program;
use tarn_lab::topology::{End, Namespace, Network, Node, Shape, Topology};

/// A sender behind a link of 5 Mbit/s and 40 ms, with a queue of 200 ms.
fn network() -> Network {
    Topology::new()
        .node(Node::new("sender"))
        .node(Node::new("receiver"))
        .link(
            End::new("sender", "eth")
                .address("10.8.1.1/24")
                .address("fd08::1/64")
                .shape(slow(5)),
            End::new("receiver", "eth")
                .address("10.8.1.2/24")
                .address("fd08::2/64")
                .shape(Shape::new().delay(Duration::from_millis(40))),
        )
        .permanent_neighbours()
        .build()
        .unwrap()
}

fn slow(mbits: u64) -> Shape {
    Shape::new().rate(mbits * 1_000_000).limit(80)
}

fn json_of(program: &Program, line: &str) -> Value {
    let (code, text) = program.command_line(&format!("tarn pace {line} --json"));
    assert_eq!(code, 0, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"))
}

/// An operator who is asked why a transfer is slow looks here.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_pace_reports_the_figures_of_connections() {
    let network = network();
    let [sender, receiver] = ["sender", "receiver"].map(|name| network.namespace(name).unwrap());
    let program = Program::new(sender, "[pace]\nfor = [\"10.8.1.0/24\"]\n");
    program.run("up");
    let sinks =
        ["10.8.1.2:5001", "[fd08::2]:5001"].map(|address| TcpSink::start(receiver, address.parse().unwrap()).unwrap());
    let bulk = |address: &str, congestion: Option<&str>| TcpBulk {
        flow: Flow::to(address.parse().unwrap()),
        duration: Duration::from_secs(6),
        congestion: congestion.map(str::to_owned),
    };
    let (named, other) = (bulk("10.8.1.2:5001", None), bulk("[fd08::2]:5001", Some("tarn_pace")));
    let running = [named, other].map(|bulk| sender.spawn("bulk", move || bulk.run()).unwrap());
    std::thread::sleep(Duration::from_secs(3));
    sender.shape("eth", &slow(2)).unwrap();
    let (code, watched) = program.command_line("tarn pace watch --count 2");
    let (status, top) = (json_of(&program, "status"), json_of(&program, "top"));
    for running in running {
        running.join().unwrap().unwrap();
    }
    assert_eq!(code, 0, "{watched}");
    check_watch(&watched);
    check_status(&status);
    check_top(&top);
    check_alike(&status, &top);
    drop(sinks);
    program.run("down");
}

fn check_watch(text: &str) {
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((lines.len(), lines[0][0]), (3, "time"), "{text}");
    for line in &lines[1..] {
        assert_eq!((line.len(), line[1]), (9, "2"), "{text}");
        // A link of 2 Mbit/s carries 0.25 MB a second.
        let acked: f64 = line[8].parse().unwrap();
        assert!((0.1..0.6).contains(&acked), "{text}");
    }
}

fn check_status(status: &Value) {
    let alone = ["congestion_control", "response", "default", "prefixes", "cgroups"].map(|key| &status[key]);
    let expected: [Value; 5] = ["tarn_pace".into(), "tarn".into(), "cubic".into(), 1.into(), 0.into()];
    assert_eq!(alone, expected.each_ref());
    let rows = status["destinations"].as_array().unwrap();
    assert_eq!(
        (&rows[0]["destination"], &rows[1]["destination"]),
        (&"10.8.1.0/24".into(), &"other".into())
    );
    for row in rows {
        let counts = ["connections", "idle", "receiver_limited", "starting"].map(|key| &row[key]);
        assert_eq!(counts, [1, 0, 0, 0], "{row}");
        // The second one may not have seen the queue empty.
        assert!((40.0..120.0).contains(&number(row, "min_rtt_ms")), "{row}");
        assert!(number(row, "rtt_ms") >= number(row, "min_rtt_ms"), "{row}");
        assert!(number(row, "pacing_mbit_s") > 0.0, "{row}");
    }
    let rate: f64 = rows.iter().map(|row| number(row, "rate_mbit_s")).sum();
    assert!((1.0..4.0).contains(&rate), "of 2 Mbit/s: {status}");
    let answered: Vec<&Value> = rows.iter().filter(|row| row["responses"] != 0).collect();
    assert!(!answered.is_empty(), "the rate has fallen by more than half: {status}");
    for row in answered {
        // To 40 %, or further if the other one was slower to answer.
        assert!((10.0..95.0).contains(&number(row, "depth_percent")), "{row}");
        assert!(number(row, "drained_ms") > 10.0, "{row}");
    }
}

fn check_top(top: &Value) {
    let rows = top["connections"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{top}");
    for row in rows {
        let [local, peer] = ["local", "peer"].map(|key| row[key].as_str().unwrap());
        let ends = [("10.8.1.1:", "10.8.1.2:5001"), ("[fd08::1]:", "[fd08::2]:5001")];
        assert!(
            ends.iter()
                .any(|(ours, other)| local.starts_with(ours) && peer == *other),
            "{row}"
        );
        assert!(
            ["pace", "window"].contains(&row["limited_by"].as_str().unwrap()),
            "{row}"
        );
        assert!(number(row, "acked_mb") > 0.2 && number(row, "window") > 0.0, "{row}");
    }
    assert!(number(&rows[0], "acked_mb") >= number(&rows[1], "acked_mb"), "{top}");
}

/// Both were read within a moment.
fn check_alike(status: &Value, top: &Value) {
    for key in ["retransmitted", "responses"] {
        let sum = |rows: &Value| -> f64 { rows.as_array().unwrap().iter().map(|row| number(row, key)).sum() };
        let (by_destination, by_connection) = (sum(&status["destinations"]), sum(&top["connections"]));
        assert!(
            (by_destination..=by_destination + 2.0).contains(&by_connection),
            "{key}: {status} {top}"
        );
    }
}

/// A program that controls tarn without a process for each command.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_is_set_by_a_program_on_the_control_socket() {
    let host = Namespace::new("host").unwrap();
    let program = Program::new(&host, "[pace]\n");
    program.run("up");
    let stream = UnixStream::connect(program.state().path().join("control.sock")).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut call = |verb: &str, arguments: Value| -> Value {
        let call = json!({"stage": "pace", "verb": verb, "arguments": arguments});
        (&stream).write_all(format!("{call}\n").as_bytes()).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let set = call("set", json!({"settings": ["window_gain=150", "response=off"]}));
    assert_eq!(
        set["result"],
        json!({"set": {"window_gain": 150, "response": "off"}}),
        "{set}"
    );
    assert_eq!(call("set", json!({"settings": "loss_share=0"}))["ok"], true);
    let refused = call("set", json!({"settings": ["window_gain=140", "loss_share=-1"]}));
    assert_eq!(refused["code"], 2, "{refused}");
    let status = &call("status", json!({}))["result"];
    let parameters = status["parameters"].as_array().unwrap();
    let value = |name: &str| &parameters.iter().find(|row| row["parameter"] == name).unwrap()["value"];
    assert_eq!(
        (value("window_gain"), value("loss_share")),
        (&150.into(), &0.into()),
        "{status}"
    );
    assert_eq!(call("top", json!({"count": 3}))["result"], json!({"connections": []}));
    let watch = call("watch", json!({}));
    assert_eq!(
        watch["error"], "there is no verb `watch`: known are status, top, set",
        "it has no end"
    );
    program.run("down");
}
