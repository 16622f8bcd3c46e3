//! Requests, a line each, from a client that may be slow, silent, endless or gone.

use std::io::Read;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use tarn_base::error::Usage;
use tarn_base::runtime::{Stop, readable};

/// The longest request, in bytes, its line break included: `tarn paths set` with 4,096 costs has about
/// 100,000. All clients and sessions together can make the agent keep 32 times as many.
pub const REQUEST_LIMIT: usize = 256 << 10;

/// As many bytes are read at once.
const READ_SIZE: usize = 4096;

/// The lines of a client.
#[derive(Debug)]
pub struct Lines<'a> {
    stream: &'a UnixStream,
    stop: &'a Stop,
    /// What came behind the last line, at most [`REQUEST_LIMIT`] bytes.
    buffered: Vec<u8>,
}

impl<'a> Lines<'a> {
    /// Nothing is read yet.
    pub fn of(stream: &'a UnixStream, stop: &'a Stop) -> Self {
        Self {
            stream,
            stop,
            buffered: Vec::new(),
        }
    }

    /// The next line, which has to begin within `silence`, and to be whole within `whole` from then on. `None` when the
    /// client has hung up between two lines. When the agent ends, nothing more is let in, and what has been sent before is read.
    ///
    /// # Errors
    /// A client that is too slow, a line that is too long or has no end. There is no next line then.
    pub fn next(&mut self, silence: Duration, whole: Duration) -> Result<Option<Vec<u8>>> {
        let patience = if self.buffered.is_empty() { silence } else { whole };
        let mut end = Instant::now() + patience;
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffered[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffered.split_off(searched + at + 1);
                return Ok(Some(std::mem::replace(&mut self.buffered, rest)));
            }
            searched = self.buffered.len();
            if searched >= REQUEST_LIMIT {
                return Err(too_long());
            }
            let began = !self.buffered.is_empty();
            match self.read_more(end)? {
                0 if self.stop.fired() || !began => return Ok(None),
                0 => return Err(no_end()),
                _ if began => {}
                _ => end = Instant::now() + whole,
            }
        }
    }

    /// Reads what is there, or comes until `end`. Returns how many bytes; 0 at the end of the stream.
    fn read_more(&mut self, end: Instant) -> Result<usize> {
        let left = end.saturating_duration_since(Instant::now());
        let ready = readable(&[self.stream.as_fd(), self.stop.as_fd()], left);
        if self.stop.fired() {
            // From now on the kernel refuses what the client sends, so that it knows; the stream ends behind what is there.
            self.stream.shutdown(Shutdown::Read).context("cannot end the session")?;
        } else if ready.first() != Some(&true) {
            anyhow::bail!("no request has come in time: the agent hangs up");
        }
        let mut bytes = [0; READ_SIZE];
        let room = READ_SIZE.min(REQUEST_LIMIT - self.buffered.len());
        let count = self
            .stream
            .read(&mut bytes[..room])
            .context("cannot read the request")?;
        self.buffered.extend_from_slice(&bytes[..count]);
        Ok(count)
    }
}

fn too_long() -> anyhow::Error {
    Usage(format!(
        "the request is too long: it may have {REQUEST_LIMIT} bytes, its line break included"
    ))
    .into()
}

/// It may be half of one, however whole it looks.
fn no_end() -> anyhow::Error {
    let text = "the request has no line end, and was not carried out: end each request with a line break (\"\\n\")";
    Usage(text.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(50);

    /// Reads all lines that come of what a client writes before it hangs up, and what is wrong in the end.
    fn read(written: &[u8]) -> (Vec<Vec<u8>>, Option<String>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let written = written.to_vec();
        let writer = std::thread::spawn(move || {
            let _ = theirs.write_all(&written);
        });
        let stop = Stop::new().unwrap();
        let mut lines = Lines::of(&ours, &stop);
        let mut all = Vec::new();
        let end = loop {
            match lines.next(LONG, LONG) {
                Ok(Some(line)) => all.push(line),
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        drop(ours);
        writer.join().unwrap();
        (all, end)
    }

    #[test]
    fn requests_that_are_sent_at_once_are_taken_one_by_one() {
        assert_eq!(
            read(b"one\n\ntwo\n"),
            (vec![b"one\n".to_vec(), b"\n".to_vec(), b"two\n".to_vec()], None)
        );
        assert_eq!(read(b""), (vec![], None));
    }

    /// Half a request is not carried out.
    #[test]
    fn a_client_that_dies_in_the_middle_of_a_request_has_sent_none() {
        let (lines, end) = read(b"one\ntw");
        assert_eq!(lines, [b"one\n"]);
        assert!(end.unwrap().contains("the request has no line end"));
    }

    #[test]
    fn a_line_may_have_so_many_bytes_and_no_more() {
        let line = |length: usize| [vec![b'x'; length - 1], b"\n".to_vec()].concat();
        let (lines, end) = read(&[line(REQUEST_LIMIT), line(REQUEST_LIMIT)].concat());
        assert_eq!((lines.len(), end), (2, None));
        let (lines, end) = read(&line(REQUEST_LIMIT + 1));
        assert!(lines.is_empty() && end.unwrap().contains("too long: it may have 262144 bytes"));
        let (_, end) = read(&vec![b'x'; 1 << 20]);
        assert!(end.is_some());
    }

    #[test]
    fn who_says_nothing_is_not_waited_for() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let stop = Stop::new().unwrap();
        let told = Lines::of(&ours, &stop).next(SHORT, LONG).unwrap_err().to_string();
        assert!(told.contains("no request has come in time"), "{told}");
    }

    #[test]
    fn who_speaks_a_byte_at_a_time_is_not_waited_for() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let dribble = std::thread::spawn(move || {
            while theirs.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let stop = Stop::new().unwrap();
        assert!(Lines::of(&ours, &stop).next(LONG, SHORT).is_err());
        drop(ours);
        dribble.join().unwrap();
    }

    /// `tarn down` does not wait for programs that keep a session, and what a program has sent is answered or refused, never lost.
    #[test]
    fn an_agent_that_ends_reads_what_was_sent_and_lets_nothing_more_in() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stop = Stop::new().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(SHORT);
                stop.fire();
            });
            let mut lines = Lines::of(&ours, &stop);
            assert_eq!(lines.next(LONG, LONG).unwrap(), None);
        });
        assert!(theirs.write_all(b"one\n").is_err());

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"one\ntwo\nthr").unwrap();
        let mut lines = Lines::of(&ours, &stop);
        assert_eq!(lines.next(LONG, LONG).unwrap(), Some(b"one\n".to_vec()));
        assert_eq!(lines.next(LONG, LONG).unwrap(), Some(b"two\n".to_vec()));
        assert_eq!(lines.next(LONG, LONG).unwrap(), None, "half a request is none");
    }
}
