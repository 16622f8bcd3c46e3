//! Services that spend the time asleep, as one that waits for its database.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::proof::service::Service;
use tarn_lab::topology::Namespace;

/// Bytes of a request and of an answer over TCP.
const MESSAGE: usize = 64;

/// Returns datagrams, so many at a time, each after so long.
pub fn sleepers(namespace: &Namespace, address: SocketAddr, workers: usize, time: Duration) -> Service {
    let time = Arc::new(AtomicU64::new(time.as_nanos() as u64));
    Service::sleepers(namespace, address, workers, &time).unwrap()
}

/// Answers each request with itself, `time` after it has taken it up.
pub struct Sleeper {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Sleeper {
    /// Connections with messages of [`MESSAGE`] bytes, one at a time of all of them.
    pub fn tcp(namespace: &Namespace, address: SocketAddr, time: Duration) -> Self {
        let listener = namespace.enter(|| Ok(TcpListener::bind(address)?)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ended);
        let turn = Arc::new(Mutex::new(()));
        let accept = move || {
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let (over, turn) = (Arc::clone(&over), Arc::clone(&turn));
                        std::thread::spawn(move || serve(stream, &turn, time, &over));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        };
        Self {
            threads: vec![std::thread::spawn(accept)],
            ended,
        }
    }
}

fn serve(mut stream: TcpStream, turn: &Mutex<()>, time: Duration, ended: &AtomicBool) {
    exact_timers();
    stream.set_nonblocking(false).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut message = [0; MESSAGE];
    while !ended.load(Ordering::Relaxed) && stream.read_exact(&mut message).is_ok() {
        let turn = turn.lock();
        std::thread::sleep(time);
        drop(turn);
        if stream.write_all(&message).is_err() {
            return;
        }
    }
}

/// The kernel may wake a sleeper 50 us late, to spare itself an interrupt; this thread's it wakes in time.
fn exact_timers() {
    nix::sys::prctl::set_timerslack(1).unwrap();
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
