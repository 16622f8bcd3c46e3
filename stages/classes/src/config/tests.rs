//! What an operator would lose if a mistake were accepted, or told in the wrong place.

use std::fs;

use super::*;
use tarn_base::config::testing;

/// The section as read, or every error, as the user sees them.
fn section(text: &str) -> Result<Config, Vec<String>> {
    testing::section("classes", text, read)
}

/// A valid section, for tests of other files.
pub fn config(text: &str) -> Config {
    section(text).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn errors(text: &str) -> Vec<String> {
    section(text).expect_err("errors")
}

/// The thesis's third table: 220.x.x.x A, 192.x.x.x B, 210.x.x.x C, the rest D.
pub const BY_NETWORK: &str = "\
[classes]
ports = [\"tcp/80\"]
deadline = \"4ms\"

[[classes.class]]
name = \"A\"
target = 90
networks = [\"220.0.0.0/8\"]

[[classes.class]]
name = \"B\"
target = 80
networks = [\"192.0.0.0/8\"]

[[classes.class]]
name = \"C\"
target = 70
networks = [\"210.0.0.0/8\"]

[[classes.class]]
name = \"D\"
target = 60
";

#[test]
fn customers_by_their_network() {
    let config = config(BY_NETWORK);
    let networks: Vec<(String, usize)> = config
        .networks()
        .map(|(network, class)| (network.to_string(), class))
        .collect();
    let expected = [("220.0.0.0/8", 0), ("192.0.0.0/8", 1), ("210.0.0.0/8", 2)];
    assert_eq!(networks, expected.map(|(network, class)| (network.to_owned(), class)));
    assert_eq!(
        (config.class("B"), config.class("3"), config.class("4")),
        (Some(1), Some(3), None)
    );
}

/// A customer at work: the address has its own class, whatever the office's network has.
#[test]
fn an_address_may_have_another_class_than_its_network() {
    let text = BY_NETWORK.replace("210.0.0.0/8\"", "220.0.0.0\", \"220.1.2.3\"");
    assert_eq!(config(&text).networks().count(), 4);
}

#[test]
fn what_is_left_out_has_a_safe_default() {
    let config = config(BY_NETWORK);
    let service = &config.services[0];
    assert_eq!((config.rule, service.limit, config.hold_rounds), (Rule::Ratio, 0, 0));
    assert_eq!((service.name.as_str(), config.shares_limit), ("tcp/80", false));
    assert_eq!(
        (config.window, service.patience, service.overdue),
        (Duration::from_secs(10), Duration::from_secs(2), Duration::ZERO)
    );
    assert_eq!((config.memory, config.max_clients), (64 << 20, 2_097_152));
    // Who promises answers within minutes waits for them.
    let slow = self::config(&BY_NETWORK.replace("deadline = \"4ms\"", "deadline = \"2m\""));
    assert_eq!(slow.services[0].patience, Duration::from_secs(600));
    let class = &config.classes[0];
    assert_eq!(
        (class.cap, service.deadlines[0], class.target),
        (1024, Duration::from_millis(4), 9000)
    );
    assert_eq!(config.import, None);
}

#[test]
fn everything_can_be_said() {
    let config = config(
        "[classes]\nports = [\"tcp/80\", \"udp/53\", \"tcp/8000-8100\"]\nrule = \"published\"\nlimit = 8\nwindow = \"1m\"\n\
         hold = \"200us\"\nhold_rounds = 3\npatience = \"5s\"\noverdue = \"80ms\"\nmemory = \"1GiB\"\nmax_clients = 100\n\
         [[classes.class]]\nname = \"gold\"\ntarget = 99.95\ndeadline = \"1.5ms\"\ncap = 7\n\
         networks = [\"2001:db8::/32\", \"192.0.2.1\"]\n\
         [[classes.class]]\nname = \"rest\"\ntarget = 50\ndeadline = \"1s\"\n\
         [classes.import]\nby = \"spending\"\nthresholds = [1000]\n",
    );
    let service = &config.services[0];
    assert_eq!(
        (config.rule, service.limit, config.memory),
        (Rule::Published, 8, 1 << 30)
    );
    assert_eq!((config.hold, config.hold_rounds), (Duration::from_micros(200), 3));
    assert_eq!(service.overdue, Duration::from_millis(80));
    assert_eq!((config.classes[0].target, config.classes[0].cap), (9995, 7));
    assert_eq!(service.deadlines[0], Duration::from_micros(1500));
    assert_eq!(service.ports[2].to_string(), "tcp/8000-8100");
    assert!(config.shares_limit);
    let import = config.import.as_ref().unwrap();
    assert_eq!(
        (import.by, import.thresholds.as_slice()),
        (Column::Spending, &[1000][..])
    );
    let text = serde_json::to_string(&config).unwrap();
    let mut kept = config.clone();
    kept.classes.iter_mut().for_each(|class| class.networks.clear());
    assert_eq!(
        serde_json::from_str::<Config>(&text).unwrap(),
        kept,
        "what `start` begins with"
    );
    let settings = config.settings(service);
    assert_eq!(settings.ports.unwrap()[2].last, 8100);
    assert_eq!(settings.classes.unwrap()[0].deadline, 1_500_000);
}

#[test]
fn every_mistake_is_told_with_its_place_and_what_would_be_right() {
    let text = "\
[classes]
ports = [\"tcp/80\", \"sctp/80\", \"tcp/70-90\", \"udp/9-1\"]
limit = 0
window = \"1ms\"
hold = \"2s\"
memory = \"1KiB\"
max_clients = 0
[[classes.class]]
name = \"gold\"
target = 101
networks = [\"10.0.0.0/8\", \"10.0.0.1/8\"]
[[classes.class]]
name = \"gold\"
target = 0
deadline = \"soon\"
cap = 0
networks = [\"10.1.0.0/16\", \"10.0.0.0-10.255.255.255\"]
[[classes.class]]
name = \"1\"
target = 50
deadline = \"2h\"
[classes.import]
by = \"months\"
thresholds = [3, 6, 9]
";
    let expected = [
        "t:2:20: classes.ports: 'sctp/80' is no port; write \"tcp/80\", \"udp/53\" or \"tcp/8000-8100\"",
        "t:2:31: classes.ports: 'tcp/70-90' and 'tcp/80' have ports in common; name each port once",
        "t:2:44: classes.ports: the range 9-1 runs backwards; write 1-9",
        "t:3:9: classes.limit: 0 is out of range; write \"auto\", or 1 to 16384",
        "t:4:10: classes.window: 1ms is out of range; write 10ms to 1h",
        "t:5:8: classes.hold: 2s is out of range; write 0ms to 1s",
        "t:6:10: classes.memory: 1KiB is out of range; write \"64KiB\" to \"4GiB\", or the bytes as a number",
        "t:7:15: classes.max_clients: 0 is out of range; write 1 to 16777216",
        "t:9:8: classes.class.deadline: class 'gold' has no deadline; add one, as in deadline = \"40ms\", here or below \
         [classes] for every class",
        "t:10:10: classes.class.target: 101 is out of range; write the percent of answers to be in time: 0.01 to 100",
        "t:11:27: classes.class.networks: 10.0.0.1/8 has bits set after the first 8; write 10.0.0.0/8, or 10.0.0.1 for \
         that one address",
        "t:13:8: classes.class.name: there are two classes 'gold'; give each a name of its own",
        "t:14:10: classes.class.target: 0 is out of range; write the percent of answers to be in time: 0.01 to 100",
        "t:15:12: classes.class.deadline: 'soon' is no time; write a number and its unit: 500us, 4ms, 10s, 30m, 12h or 7d",
        "t:16:7: classes.class.cap: 0 is out of range; write 1 to 1048576",
        "t:17:28: classes.class.networks: 10.0.0.0/8 is named on line 11 already; name each network once",
        "t:19:8: classes.class.name: '1' cannot be a class's name; write letters, digits, - and _, at most 32, and not \
         digits alone",
        "t:21:12: classes.class.deadline: 2h is out of range; write 1us to 1h",
        "t:24:14: classes.import.thresholds: 3 thresholds do not part 3 classes; write one for each class but the last, \
         which takes the rest",
        "t:24:14: classes.import.thresholds: thresholds must fall, and not below 0; write the least value of each class, \
         falling: [36, 12, 6, 3]",
    ];
    let found = errors(text);
    assert_eq!(found, expected, "\n{}", found.join("\n"));
}

/// An answer that comes after it is not seen, so none would be in time.
#[test]
fn patience_is_no_shorter_than_a_deadline() {
    let found = errors(&BY_NETWORK.replace("[classes]\n", "[classes]\npatience = \"3ms\"\n"));
    let expected = "classes.patience: 3ms is shorter than the longest deadline; write at least 4ms, or leave it out";
    assert!(found.len() == 1 && found[0].ends_with(expected), "{found:?}");
    assert_eq!(
        config(&BY_NETWORK.replace("[classes]\n", "[classes]\npatience = \"4ms\"\n")).services[0]
            .patience
            .as_millis(),
        4
    );
}

/// A stuck DNS server would block the web, if both had one limit.
#[test]
fn each_service_has_its_own_limit_and_deadline() {
    let text = BY_NETWORK.replace("ports = [\"tcp/80\"]\n", "limit = 5\noverdue = \"1s\"\n")
        + "[[classes.service]]\nname = \"web\"\nports = [\"tcp/80\", \"tcp/443\"]\nlimit = \"auto\"\noverdue = \"auto\"\n\
           [[classes.service]]\nports = [\"udp/53\"]\ndeadline = \"1s\"\npatience = \"3s\"\n";
    let config = config(&text.replace("name = \"D\"", "deadline = \"8ms\"\nname = \"D\""));
    let [web, dns] = config.services.as_slice() else {
        panic!("{config:?}")
    };
    assert_eq!((web.name.as_str(), dns.name.as_str()), ("web", "udp/53"));
    assert_eq!((web.limit, dns.limit), (0, 5));
    assert_eq!((web.overdue.as_secs(), dns.overdue.as_secs()), (0, 1));
    assert_eq!((web.patience.as_secs(), dns.patience.as_secs()), (2, 3));
    assert_eq!(
        web.deadlines.iter().map(Duration::as_millis).collect::<Vec<_>>(),
        [4, 4, 4, 8]
    );
    assert_eq!(dns.deadlines, [Duration::from_secs(1); 4]);
    let settings = config.settings(dns);
    assert_eq!(settings.classes.unwrap()[3].deadline, 1_000_000_000);
    assert_eq!((config.ports().count(), config.shares_limit), (3, false));
    assert_eq!(config.service_names().collect::<Vec<_>>(), ["web", "udp/53"]);
}

/// A configuration whose only service is one behind HAProxy, with these lines.
fn behind(lines: &str) -> String {
    let service = format!("[[classes.service]]\nname = \"shop\"\nthrough = \"haproxy\"\n{lines}\n");
    let ports = "ports = [\"tcp/80\"]\n";
    BY_NETWORK.replace(ports, "") + &service
}

/// Who names a port for HAProxy's service would wait for the kernel to schedule it.
#[test]
fn what_haproxy_decides_is_refused() {
    let found = errors(&behind(
        "ports = [\"tcp/443\"]\nlimit = 5\nsocket = \"admin.sock\"\nmaps = \"/etc/my maps\"",
    ));
    let expected = [
        "HAProxy decides that",
        "HAProxy decides that",
        "'admin.sock' cannot be used",
        "'/etc/my maps' cannot be used",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (error, expected) in found.iter().zip(expected) {
        assert!(error.contains(expected), "{error}");
    }
    let found = errors(&behind("").replace("through = \"haproxy\"", "through = \"nginx\""));
    assert!(
        found[0].contains("'nginx' is no program that tarn works through"),
        "{found:#?}"
    );
    let found = errors(&behind("").replace("shop", "caf\u{e9}"));
    assert!(found[0].contains("is no name that HAProxy takes"), "{found:#?}");
    let found = errors(&behind("").replace("name = \"shop\"\n", ""));
    assert!(found[0].contains("the service has no name"), "{found:#?}");
    let found = errors(&behind("").replace("through = \"haproxy\"", "socket = \"/run/haproxy/admin.sock\""));
    assert!(
        found[0].contains("has no ports") && found[1].contains("it is HAProxy's"),
        "{found:#?}"
    );
}

#[test]
fn a_service_behind_haproxy_has_a_deadline_and_nothing_of_the_kernel() {
    let config = config(&behind("deadline = \"1s\""));
    let [shop] = &config.proxied[..] else {
        panic!("{config:?}")
    };
    assert_eq!(
        (config.services.len(), shop.deadlines.as_slice()),
        (0, &[Duration::from_secs(1); 4][..])
    );
    assert_eq!(
        (shop.socket.to_str(), shop.maps.to_str()),
        (Some("/run/haproxy/admin.sock"), Some("/etc/haproxy/tarn"))
    );
}

#[test]
fn mistakes_in_services_are_told_with_their_place() {
    let text = "\
[classes]
ports = [\"tcp/80\"]
patience = \"1ms\"
[[classes.class]]
name = \"all\"
target = 50
[[classes.service]]
name = \"a/b\"
ports = [\"tcp/80\", \"tcp/81\"]
limit = \"all\"
[[classes.service]]
name = \"web\"
ports = [\"tcp/81-90\"]
deadline = \"2s\"
[[classes.service]]
name = \"web\"
ports = []
deadline = \"1s\"
patience = \"10ms\"
overdue = \"0ms\"
";
    let expected = [
        "t:2:9: classes.ports: each service has its own ports; move them into a [[classes.service]]",
        "t:3:12: classes.patience: 1ms is shorter than the longest deadline; write at least 1h, or leave it out",
        "t:5:8: classes.class.deadline: class 'all' has no deadline; add one, as in deadline = \"40ms\", here or below \
         [classes] for every class",
        "t:8:8: classes.service.name: 'a/b' cannot be a service's name; write letters, digits, - and _, at most 32, and not \
         digits alone",
        "t:10:9: classes.service.limit: 'all' is no limit; write \"auto\", or how many requests the service works on at a time",
        "t:13:10: classes.service.ports: 'tcp/81-90' and 'tcp/81' have ports in common; name each port once",
        "t:16:8: classes.service.name: there are two services 'web'; give each a name of its own",
        "t:17:9: classes.service.ports: no port is named; write \"tcp/80\", \"udp/53\" or \"tcp/8000-8100\"",
        "t:19:12: classes.service.patience: 10ms is shorter than the longest deadline; write at least 1s, or leave it out",
        "t:20:11: classes.service.overdue: 0ms is out of range; write 1ms to 1h",
    ];
    let found = errors(text);
    assert_eq!(found, expected, "\n{}", found.join("\n"));
    let service = |port: usize| format!("[[classes.service]]\nports = [\"tcp/{port}\"]\n");
    let many = |count: usize| {
        let services: String = (1..=count).map(service).collect();
        BY_NETWORK.replace("ports = [\"tcp/80\"]\n", "") + &services
    };
    assert_eq!(config(&many(16)).services.len(), 16);
    let found = errors(&many(17));
    assert!(
        found.len() == 1 && found[0].contains("17 services are more than 16"),
        "{found:?}"
    );
    let found = errors(&many(0));
    assert!(
        found.len() == 1 && found[0].contains("there is no service"),
        "{found:?}"
    );
}

#[test]
fn no_class_and_too_many_are_refused() {
    let none = errors("[classes]\nports = [\"tcp/80\"]\n");
    assert!(
        none.len() == 1 && none[0].contains("there is no class; add [[classes.class]]"),
        "{none:?}"
    );
    let class = |index: usize| format!("[[classes.class]]\nname = \"c{index}\"\ntarget = 50\ndeadline = \"1ms\"\n");
    let many = |count: usize| {
        format!(
            "[classes]\nports = [\"tcp/80\"]\n{}",
            (0..count).map(class).collect::<String>()
        )
    };
    assert_eq!(config(&many(64)).classes.len(), 64);
    let found = errors(&many(65));
    assert!(
        found.len() == 1 && found[0].contains("65 classes are more than 64"),
        "{found:?}"
    );
    let ports = errors("[classes]\nports = []\n[[classes.class]]\nname = \"a\"\ntarget = 1\ndeadline = \"1ms\"\n");
    assert!(ports.len() == 1 && ports[0].contains("no port is named"), "{ports:?}");
}

#[test]
fn keys_that_are_not_known_are_told_apart() {
    let found = errors(
        "[classes]\nports = [\"tcp/80\"]\ndeadlin = \"4ms\"\n[[classes.class]]\nname = \"a\"\ntarget = \"90\"\n",
    );
    assert!(
        found.iter().any(|error| error.contains("did you mean `deadline`?")),
        "{found:?}"
    );
    assert!(
        found.iter().any(|error| error.contains("classes.class.target")),
        "{found:?}"
    );
}

/// Gold's list of a million networks, as another program writes it, would have to be made TOML.
#[test]
fn networks_of_a_file_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gold.txt");
    let bytes = b"\xef\xbb\xbf198.51.100.0/24\n# gold\n\n 2001:db8::/32 # the caf\xe9\n192.0.2.1-192.0.2.2";
    fs::write(&path, bytes).unwrap();
    let written = format!("networks_file = {path:?}\nnetworks = [\"220.0.0.0/8\"]");
    let text = BY_NETWORK.replace("networks = [\"220.0.0.0/8\"]", &written);
    let networks: Vec<String> = config(&text).classes[0]
        .networks
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = ["220.0.0.0/8", "198.51.100.0/24", "2001:db8::/32", "192.0.2.1-192.0.2.2"];
    assert_eq!(networks, expected);
}

/// Which of a million lines is wrong, nobody would find by himself.
#[test]
fn mistakes_in_a_file_of_networks_are_told_by_their_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gold.txt");
    fs::write(&path, "198.51.100.0/24\n192.0.0.0/8\nnobody\n198.51.100.0/24\n").unwrap();
    let text = BY_NETWORK.replace("networks = [\"220.0.0.0/8\"]", &format!("networks_file = {path:?}"));
    let found = errors(&text).join("\n");
    let shown = path.display();
    for expected in [
        format!("{shown}:3:1: 'nobody' is no address"),
        format!("{shown}:4:1: 198.51.100.0/24 is named on line 1 of {shown} already; name each network once"),
        format!("{shown}:2:1: 192.0.0.0/8 is named on line 13 already; name each network once"),
    ] {
        assert!(found.contains(&expected), "{expected}\n{found}");
    }
    fs::remove_file(&path).unwrap();
    let found = errors(&text).join("\n");
    assert!(
        found.contains(&format!("t:8:17: classes.class.networks_file: cannot read {shown}")),
        "{found}"
    );
}

/// A file that cannot come up after the next start of the host is refused while its administrator is there.
#[test]
fn more_networks_than_there_may_be_are_refused() {
    let found = errors(&BY_NETWORK.replace("[classes]\n", "[classes]\nmax_clients = 2\n"));
    let expected = "t:2:15: classes.max_clients: 3 networks of clients are named, and there may be 2; raise it";
    assert_eq!(found, [expected]);
}
