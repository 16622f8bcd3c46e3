//! sd_notify(3) without a library: a datagram to the socket that systemd names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tarn_base::output::{Priority, log_at};

/// Tells systemd how the service fares; does nothing where nobody asked for it.
#[derive(Debug, Default)]
pub struct Notifier {
    address: Option<SocketAddr>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// From `$NOTIFY_SOCKET`, `$WATCHDOG_USEC` and `$WATCHDOG_PID`.
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        Self::new(
            variable("NOTIFY_SOCKET"),
            variable("WATCHDOG_USEC"),
            variable("WATCHDOG_PID"),
        )
    }

    fn new(socket: Option<String>, watchdog_usec: Option<String>, watchdog_pid: Option<String>) -> Self {
        let address = socket.and_then(|socket| match socket.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(socket).ok(),
        });
        let ours = watchdog_pid.is_none_or(|pid| pid == std::process::id().to_string());
        let limit = watchdog_usec
            .and_then(|limit| limit.parse().ok())
            .filter(|limit| ours && *limit > 0);
        Self {
            address,
            watchdog: limit.map(Duration::from_micros),
        }
    }

    /// How often systemd's watchdog wants a sign of life: twice in its limit, as sd_watchdog_enabled(3) advises.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    /// Sends a state, for example `READY=1`.
    pub fn send(&self, state: &str) {
        let Some(address) = &self.address else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(state.as_bytes(), address));
        if let Err(error) = sent {
            log_at(
                Priority::Warning,
                "agent",
                format!("cannot tell systemd {state}: {error}"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_hears_that_the_service_is_ready() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path.display().to_string()), None, None);
        notifier.send("READY=1");
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
    }

    #[test]
    fn an_abstract_socket_is_understood_too() {
        let name = format!("tarn-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notifier::new(Some(format!("@{name}")), None, None).send("STOPPING=1");
        let mut buffer = [0; 64];
        assert_eq!(socket.recv(&mut buffer).unwrap(), 10);
    }

    #[test]
    fn the_watchdog_is_fed_twice_in_its_limit_and_only_if_it_is_ours() {
        let interval =
            |limit: &str, pid: Option<String>| Notifier::new(None, Some(limit.to_string()), pid).watchdog_interval();
        assert_eq!(interval("10000000", None), Some(Duration::from_secs(5)));
        assert_eq!(
            interval("10000000", Some(std::process::id().to_string())),
            Some(Duration::from_secs(5))
        );
        assert_eq!(interval("10000000", Some("1".into())), None);
        assert_eq!(interval("0", None), None);
        assert_eq!(interval("soon", None), None);
        Notifier::default().send("READY=1");
    }
}
