//! The live page, and metrics for Prometheus, by HTTP from the agent: off unless `tarn.toml` has a section `[page]`.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the page, with `/page.css` and `/page.js`: nothing in them is of this host |
//! | `/now` | what it shows, as JSON ([`document`]); `?stage=NAME` adds a stage's tables |
//! | `/metrics` | what `tarn metrics` prints |
//!
//! Where a token is configured, the last two want it as `Authorization: Bearer TOKEN`. The page has it from its address behind `#`,
//! which browsers keep to themselves. Without a token, the name that a browser asked for has to be one of loopback, so that no site in
//! the web can have its name lead here, or to the end of a tunnel, and read the page (DNS rebinding).
//!
//! Figures are read only while a client asks for them, on a thread of their own ([`tarn_watch::reader`]), which ends when none has asked
//! for a while. No stage waits for the page. A panic here would end the agent, as one anywhere in it; what is up in the kernel would stay.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tarn_base::output::{Priority, log, log_at};
use tarn_frame::configuration::{Listen, Page};
use tarn_watch::Frame;

mod access;
mod document;
mod server;
mod socket;
#[cfg(test)]
mod tests;
mod token;
mod viewed;

use access::Access;
use server::{Listener, Place};
use socket::SocketFile;
use token::read_token;
use viewed::Viewed;

/// The source of its log lines.
const SELF: &str = "page";

/// An agent that this one replaces may listen for a moment longer.
const FIRST_TRIES: u32 = 10;
const FIRST_RETRY: Duration = Duration::from_millis(200);
/// How long it waits before it tries again where the address is not there yet, or is another program's.
const RETRY: Duration = Duration::from_secs(10);

/// The page of an agent. Its thread ends with the process: nobody waits for clients.
pub struct PageThread {
    socket: Option<Arc<SocketFile>>,
}

impl Drop for PageThread {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            socket.remove();
        }
    }
}

/// Refuses what would keep the page from being shown, before anything changes.
///
/// # Errors
/// A token that cannot be read, or is none.
pub fn check(page: &Page) -> Result<()> {
    page.token_file
        .as_deref()
        .map_or(Ok(()), |file| read_token(file).map(drop))
}

/// Shows the page from now on.
///
/// # Errors
/// A token that cannot be read, or no thread.
pub fn start(page: &Page, frame: Frame) -> Result<PageThread> {
    let token = page.token_file.as_deref().map(read_token).transpose()?;
    let place = match &page.listen {
        Listen::Socket(path) => Place::Socket(Arc::new(SocketFile::at(path))),
        Listen::Address(address) => Place::Address(*address),
    };
    let socket = match &place {
        Place::Socket(socket) => Some(Arc::clone(socket)),
        Place::Address(_) => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("cannot prepare to answer")?;
    let (access, viewed) = (Arc::new(Access::of(token)), Arc::new(Viewed::of(frame)));
    let run = move || runtime.block_on(show(&place, access, viewed));
    let thread = std::thread::Builder::new().name(SELF.to_owned()).spawn(run);
    thread.context("cannot start a thread")?;
    Ok(PageThread { socket })
}

/// Listens as soon as that is possible, and answers for ever.
async fn show(place: &Place, access: Arc<Access>, viewed: Arc<Viewed>) {
    let mut tries = 0;
    let listener = loop {
        let error = match Listener::open(place) {
            Ok(listener) => break listener,
            Err(error) => error,
        };
        tries += 1;
        if tries == FIRST_TRIES {
            let message = format!("{error:#}; trying again every {} s", RETRY.as_secs());
            log_at(Priority::Warning, SELF, message);
        }
        tokio::time::sleep(if tries < FIRST_TRIES { FIRST_RETRY } else { RETRY }).await;
    };
    log(SELF, format!("shows what tarn does at {listener}"));
    server::serve(listener, access, viewed).await;
}
