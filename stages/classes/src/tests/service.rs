//! Services that work on so many requests at a time and spend the time asleep, as one that waits for its database.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tarn_lab::topology::Namespace;

/// How often a thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of a request and of an answer over TCP.
const MESSAGE: usize = 64;

/// Answers each request with itself, `time` after it has taken it up.
pub struct Sleeper {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Sleeper {
    /// Datagrams, by so many workers.
    pub fn udp(namespace: &Namespace, address: SocketAddr, workers: usize, time: Duration) -> Self {
        let socket = namespace.enter(|| Ok(UdpSocket::bind(address)?)).unwrap();
        socket.set_read_timeout(Some(LOOK)).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let worker = |_| {
            let (socket, ended) = (socket.try_clone().unwrap(), Arc::clone(&ended));
            std::thread::spawn(move || {
                exact_timers();
                let mut buffer = [0; 65_536];
                while !ended.load(Ordering::Relaxed) {
                    if let Ok((length, client)) = socket.recv_from(&mut buffer) {
                        std::thread::sleep(time);
                        let _ = socket.send_to(&buffer[..length], client);
                    }
                }
            })
        };
        Self {
            threads: (0..workers).map(worker).collect(),
            ended,
        }
    }

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
