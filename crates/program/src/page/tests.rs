//! What a browser, Prometheus and somebody hostile get from the page.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;
use std::path::{Path, PathBuf};

use crate::testing::{Host, wait_until};
use tarn_base::error::exit_code;

const TOKEN: &str = "0123456789abcdef";

/// A server on loopback, and where it is.
fn shown(host: &Host, token_file: Option<PathBuf>) -> SocketAddr {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let page = Page {
        listen: Listen::Address(address),
        token_file,
    };
    // It is not a socket: its end removes nothing.
    drop(start(&page, host.frame()).unwrap());
    wait_until("it listens", || TcpStream::connect(address).is_ok());
    address
}

fn token_file(host: &Host, text: &str, mode: u32) -> PathBuf {
    let path = host.path().join("token");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// What a connection answers to this.
fn answer(mut connection: impl Read + Write, request: &str) -> String {
    // It may have refused before it has read all.
    let _ = connection.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn get(address: SocketAddr, path: &str, headers: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
    answer(TcpStream::connect(address).unwrap(), &request)
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or(answer)
}

#[test]
fn the_page_and_what_it_shows_are_served() {
    let host = Host::new();
    let address = shown(&host, None);
    for (path, has) in [
        ("/", "<title>tarn</title>"),
        ("/page.css", "prefers-color-scheme"),
        ("/page.js", "fetch("),
        ("/now", "\"stages\":"),
        ("/now?stage=first", "\"troubles\":"),
        ("/metrics", "tarn_build_info{"),
    ] {
        let answer = get(address, path, "");
        assert_eq!(status(&answer), "200", "{path}: {answer}");
        assert!(answer.contains(has), "{path}: {answer}");
        assert!(
            answer.contains("content-security-policy: default-src 'none'"),
            "{path}: {answer}"
        );
    }
    let now = || -> serde_json::Value {
        let answer = get(address, "/now?stage=first", "");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    wait_until("figures are read", || !now()["at"].is_null());
    assert_eq!(now()["opened"]["name"], "first");
}

/// A page of somebody else's, or a program that guesses, must not get anything of this host, nor change anything.
#[test]
fn what_was_not_meant_for_it_is_refused() {
    let host = Host::new();
    let address = shown(&host, None);
    let of = |request: &str| answer(TcpStream::connect(address).unwrap(), request);
    assert_eq!(status(&of("GET /now HTTP/1.1\r\nHost: evil.example\r\n\r\n")), "421");
    assert_eq!(status(&of("GET / HTTP/1.1\r\n\r\n")), "421");
    assert_eq!(
        status(&of(
            "POST /now HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        )),
        "405"
    );
    assert_eq!(status(&get(address, "/../etc/passwd", "")), "404");
    let from_elsewhere = "Sec-Fetch-Site: cross-site\r\n";
    assert_eq!(status(&get(address, "/page.js", from_elsewhere)), "403");
    assert_eq!(status(&get(address, "/", from_elsewhere)), "200", "a link");
    assert_eq!(status(&of("GARBAGE\r\n\r\n")), "400");
    let long = format!("X: {}\r\n", "x".repeat(100_000));
    assert_eq!(status(&get(address, "/now", &long)), "431");
    assert_eq!(status(&get(address, "/now", "")), "200", "it goes on");
}

#[test]
fn figures_need_the_token_and_the_page_itself_does_not() {
    let host = Host::new();
    let address = shown(&host, Some(token_file(&host, &format!("{TOKEN}\n"), 0o600)));
    for path in ["/now", "/metrics"] {
        assert_eq!(status(&get(address, path, "")), "401");
        assert_eq!(
            status(&get(address, path, "Authorization: Bearer 0123456789abcdeg\r\n")),
            "401"
        );
        let right = format!("Authorization: Bearer {TOKEN}\r\n");
        assert_eq!(status(&get(address, path, &right)), "200");
    }
    assert_eq!(status(&get(address, "/", "")), "200");
}

#[test]
fn a_token_that_others_know_or_guess_is_refused() {
    let host = Host::new();
    let read = |text: &str, mode| read_token(&token_file(&host, text, mode)).map_err(|error| format!("{error:#}"));
    assert_eq!(read(TOKEN, 0o600), Ok(TOKEN.to_owned()));
    assert!(read(TOKEN, 0o644).unwrap_err().contains("others than root may read"));
    for weak in [
        "",
        "short",
        "with a blank in it",
        "0123456789\u{e4}bcdef",
        "%41123456789abcdef",
    ] {
        assert!(read(weak, 0o600).unwrap_err().contains("at least 16"), "{weak}");
    }
    assert!(read_token(Path::new("/nowhere/token")).is_err());
    assert!(
        read_token(Path::new("/dev/null"))
            .unwrap_err()
            .to_string()
            .contains("is not a regular file")
    );
    let page = |file: &Path| Page {
        listen: Listen::Address("127.0.0.1:9780".parse().unwrap()),
        token_file: Some(file.to_owned()),
    };
    assert!(check(&page(Path::new("/nowhere/token"))).is_err());
    assert!(check(&page(&token_file(&host, TOKEN, 0o600))).is_ok());
}

/// A token may come later than the network: the network does not wait for it. Who types `tarn up` is told.
#[test]
fn a_service_comes_up_without_its_token() {
    let host = Host::new();
    host.configure(
        "[first]\nset = [{ path = \"@/a\", value = 1 }]\n[page]\nlisten = \"@/page.sock\"\ntoken_file = \"@/token\"\n",
    );
    let refused = host.up().unwrap_err();
    assert_eq!(exit_code(&refused), 2, "{refused:#}");
    assert!(format!("{refused:#}").contains("cannot read the token"), "{refused:#}");
    host.assert_untouched();
    let mut agent = host.spawn("foreground");
    wait_until("the stage is up", || host.values() == "1 0 0 0");
    host.down().unwrap();
    agent.wait().unwrap();
    host.assert_untouched();
}

/// A client that connects and says nothing keeps others out for no longer than the head of a request may take.
#[test]
fn silent_clients_do_not_keep_others_out() {
    let host = Host::new();
    let address = shown(&host, None);
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    let began = Instant::now();
    assert_eq!(status(&get(address, "/now", "")), "200");
    assert!(began.elapsed() < server::PATIENCE * 3, "{:?}", began.elapsed());
    drop(silent);
}

#[test]
fn a_socket_is_for_root_alone_and_removed() {
    let host = Host::new();
    let path = host.path().join("page.sock");
    let page = Page {
        listen: Listen::Socket(path.clone()),
        token_file: None,
    };
    let thread = start(&page, host.frame()).unwrap();
    wait_until("it listens", || UnixStream::connect(&path).is_ok());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let answer = answer(
        UnixStream::connect(&path).unwrap(),
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    assert!(status(&answer) == "200" && answer.contains("tarn_agent_up"), "{answer}");
    drop(thread);
    assert!(!path.exists());
}

/// Figures are not read for nobody.
#[test]
fn nothing_is_read_before_somebody_looks() {
    let viewed = Viewed::of(Host::new().frame());
    assert!(!viewed.is_reading());
    viewed.now(None).unwrap();
    assert!(viewed.is_reading());
    viewed.stop_idle();
    assert!(viewed.is_reading(), "somebody has just looked");
}

/// Clients that open and close a connection at once would have a queue of readings grow without end.
#[test]
fn a_client_that_has_gone_counts_until_its_answer_is_there() {
    let host = Host::new();
    let address = shown(&host, None);
    for _ in 0..500 {
        let mut connection = TcpStream::connect(address).unwrap();
        let request = format!(
            "GET /now?stage={} HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "x".repeat(8_000)
        );
        let _ = connection.write_all(request.as_bytes());
    }
    assert_eq!(status(&get(address, "/now", "")), "200");
}
