//! What all servers have in common: a socket in a namespace, a thread that serves it, and an end.

use std::net::{self, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use nix::sys::socket::{Shutdown, shutdown};

use crate::topology::{Namespace, join};

/// A server that reports `R` when it is stopped; dropping it stops it, too.
pub struct Server<S: AsFd, R> {
    socket: Arc<S>,
    thread: Option<JoinHandle<Result<R>>>,
}

impl<S: AsFd, R> Server<S, R> {
    /// Opens a socket in the namespace and has a thread serve it until it is shut down.
    pub(super) fn serving(
        namespace: &Namespace,
        thread_name: &str,
        open: impl FnOnce() -> Result<S> + Send,
        serve: impl FnOnce(&S) -> Result<R> + Send + 'static,
    ) -> Result<Self>
    where
        S: Send + Sync + 'static,
        R: Send + 'static,
    {
        let socket = Arc::new(namespace.enter(open)?);
        let served = socket.clone();
        let thread = namespace.spawn(thread_name, move || serve(&served))?;
        Ok(Self {
            socket,
            thread: Some(thread),
        })
    }

    /// Ends it with all its connections, and returns what it has seen.
    pub fn stop(mut self) -> Result<R> {
        self.end().context("the server has ended before")?
    }

    fn end(&mut self) -> Option<Result<R>> {
        // Wakes the thread. A UDP socket is not connected, hence the error, which means nothing.
        let _ = shutdown(self.socket.as_fd().as_raw_fd(), Shutdown::Both);
        self.thread.take().map(|thread| join(thread.join()))
    }
}

impl<S: AsFd, R> Drop for Server<S, R> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves every connection on a thread of its own until the listener is shut down; what each thread returned, in the
/// order of their connections.
pub(super) fn accept_all<T: Send>(
    listener: &TcpListener,
    thread_name: &str,
    serve: impl Fn(TcpStream) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let serve = &serve;
    thread::scope(|scope| {
        let (mut streams, mut threads) = (Vec::new(), Vec::new());
        while let Ok((stream, _)) = listener.accept() {
            stream
                .set_nodelay(true)
                .context("cannot switch Nagle's algorithm off")?;
            streams.push(stream.try_clone().context("cannot use a connection twice")?);
            let thread = thread::Builder::new().name(thread_name.to_owned());
            let thread = thread.spawn_scoped(scope, move || serve(stream));
            threads.push(thread.context("cannot start a thread")?);
        }
        for stream in streams {
            // One that the client has closed is not connected any more, and that is as good.
            let _ = stream.shutdown(net::Shutdown::Both);
        }
        threads.into_iter().map(|thread| join(thread.join())).collect()
    })
}
