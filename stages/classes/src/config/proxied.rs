//! Judges what a section says of a service behind HAProxy.

use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use super::services::{Found, check_name};
use super::written::WrittenService;
use super::{HAPROXY_SOCKET, Proxied};
use tarn_base::config::Reader;

const MAPS: &str = "/etc/haproxy/tarn";

/// The service; `None` when it is wrong.
pub(super) fn service(
    reader: &mut Reader<'_>,
    written: &WrittenService,
    through: &Spanned<String>,
    deadlines: Vec<Duration>,
    before: &Found,
) -> Option<Proxied> {
    if through.get_ref() != "haproxy" {
        let message = format!("'{}' is no program that tarn works through", through.get_ref());
        let remedy = "write \"haproxy\", or leave it out and name ports";
        reader.error(through.span(), "service.through", message, remedy);
        return None;
    }
    let others = [
        ("service.ports", written.ports.as_ref().map(Spanned::span)),
        ("service.protocol", written.protocol.as_ref().map(Spanned::span)),
        ("service.limit", written.limit.as_ref().map(Spanned::span)),
        ("service.patience", written.patience.as_ref().map(Spanned::span)),
        ("service.overdue", written.overdue.as_ref().map(Spanned::span)),
    ];
    for (key, span) in others {
        if let Some(span) = span {
            let remedy = "leave it out: HAProxy's configuration has its ports, and maxconn is the limit";
            reader.error(span, key, "HAProxy decides that", remedy);
        }
    }
    let Some(name) = &written.name else {
        let remedy = "add one, as in name = \"web\": names in HAProxy's configuration have it in them";
        reader.error(through.span(), "service.name", "the service has no name", remedy);
        return None;
    };
    check_name(reader, name, before);
    if !name.get_ref().is_ascii() {
        let remedy = "write it in ASCII: names in HAProxy's configuration have it in them";
        let message = format!("'{}' is no name that HAProxy takes", name.get_ref());
        reader.error(name.span(), "service.name", message, remedy);
    }
    Some(Proxied {
        name: name.get_ref().clone(),
        socket: path(reader, "service.socket", written.socket.as_ref(), HAPROXY_SOCKET),
        maps: path(reader, "service.maps", written.maps.as_ref(), MAPS),
        deadlines,
    })
}

/// One that HAProxy's configuration and commands can have in them as it is.
fn path(reader: &mut Reader<'_>, key: &str, written: Option<&Spanned<String>>, default: &str) -> PathBuf {
    let Some(written) = written else { return default.into() };
    let text = written.get_ref();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    if !text.starts_with('/') || !text.chars().all(is_plain) {
        let remedy = "write a full path of letters, digits, /, -, _ and .";
        reader.error(written.span(), key, format!("'{text}' cannot be used"), remedy);
    }
    text.into()
}
