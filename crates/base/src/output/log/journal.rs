//! systemd's journal, with fields: `journalctl TARN_STAGE=paths`.

use std::os::unix::net::UnixDatagram;
use std::path::Path;

use super::Priority;

/// Where the journal takes entries (systemd.io/JOURNAL_NATIVE_PROTOCOL).
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// Sends an entry to the journal at `socket`. `message` has no line breaks.
///
/// # Errors
/// The journal does not listen there, or has no room now: it is not waited for.
pub fn send(socket: &Path, priority: Priority, stage: &str, message: &str) -> std::io::Result<()> {
    let entry = format!(
        "MESSAGE={stage}: {message}\nPRIORITY={}\nSYSLOG_IDENTIFIER=tarn\nTARN_STAGE={stage}\n",
        priority as u8
    );
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.send_to(entry.as_bytes(), socket).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_can_be_asked_for_by_its_stage() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        assert!(send(&socket, Priority::Notice, "paths", "nobody listens").is_err());
        let journal = UnixDatagram::bind(&socket).unwrap();
        send(&socket, Priority::Warning, "paths", "wan0 is gone").unwrap();
        let mut entry = [0; 1000];
        let length = journal.recv(&mut entry).unwrap();
        assert_eq!(
            std::str::from_utf8(&entry[..length]).unwrap(),
            "MESSAGE=paths: wan0 is gone\nPRIORITY=4\nSYSLOG_IDENTIFIER=tarn\nTARN_STAGE=paths\n"
        );
    }
}
