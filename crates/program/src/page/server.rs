//! The HTTP side: connections, and what is answered.

use std::convert::Infallible;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use super::SELF;
use super::access::Access;
use super::socket::SocketFile;
use super::viewed::Viewed;
use tarn_base::output::{Priority, log_at};

/// As many connections are served at once; others wait in the kernel's queue.
const CONNECTIONS_MOST: usize = 128;
/// As many threads read at once; other requests wait.
static READERS: Semaphore = Semaphore::const_new(2);
/// How long a request and its answer may take: each has a connection of its own.
pub const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// How long its head may take: who says nothing keeps others out.
const HEAD_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 2_000 });
/// The most that a request may have before its body, in bytes. Bodies are not read.
const HEAD_MOST: usize = 16 << 10;
/// How often it is checked whether clients still ask.
const IDLE_CHECK: Duration = Duration::from_secs(5);
/// After an error of accept(2), such as no descriptor left.
const PAUSE: Duration = Duration::from_secs(1);

const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Nothing is loaded from elsewhere, and nobody else's page has this one in it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Where to listen.
pub enum Place {
    Address(SocketAddr),
    Socket(Arc<SocketFile>),
}

/// Where connections come from.
pub enum Listener {
    Address(TcpListener),
    Socket(UnixListener, Arc<SocketFile>),
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(listener) => match listener.local_addr() {
                Ok(address) => write!(f, "http://{address}/"),
                Err(_) => f.write_str("an address"),
            },
            Self::Socket(_, file) => write!(f, "{}", file.path().display()),
        }
    }
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// The address is not this host's or is another program's, or the socket cannot be made.
    pub fn open(place: &Place) -> Result<Self> {
        match place {
            Place::Address(address) => {
                let open = || {
                    let listener = std::net::TcpListener::bind(address)?;
                    listener.set_nonblocking(true)?;
                    TcpListener::from_std(listener)
                };
                open().map(Self::Address).map_err(|error| match error.kind() {
                    ErrorKind::PermissionDenied => anyhow::Error::new(error).context(format!(
                        "cannot listen on {address}: the service may not use ports below 1024; choose another one"
                    )),
                    _ => anyhow::Error::new(error).context(format!("cannot listen on {address}")),
                })
            }
            Place::Socket(file) => {
                let listener = file.listen().and_then(UnixListener::from_std);
                listener
                    .map(|listener| Self::Socket(listener, Arc::clone(file)))
                    .with_context(|| format!("cannot listen on {}", file.path().display()))
            }
        }
    }

    async fn accept(&self) -> std::io::Result<Box<dyn Connection>> {
        match self {
            Self::Address(listener) => Ok(Box::new(listener.accept().await?.0)),
            Self::Socket(listener, _) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

/// A connection of either sort.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Answers for ever.
pub async fn serve(listener: Listener, access: Arc<Access>, viewed: Arc<Viewed>) {
    tokio::spawn(stop_idle(Arc::clone(&viewed)));
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MOST));
    let mut is_logged = false;
    loop {
        // It is never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok(connection) => {
                is_logged = false;
                let (access, viewed) = (Arc::clone(&access), Arc::clone(&viewed));
                tokio::spawn(serve_connection(connection, access, viewed, permit));
            }
            Err(error) => {
                if !std::mem::replace(&mut is_logged, true) {
                    log_at(Priority::Warning, SELF, format!("cannot accept a connection: {error}"));
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn stop_idle(viewed: Arc<Viewed>) {
    loop {
        tokio::time::sleep(IDLE_CHECK).await;
        viewed.stop_idle();
    }
}

/// One request and its answer.
async fn serve_connection(
    connection: Box<dyn Connection>,
    access: Arc<Access>,
    viewed: Arc<Viewed>,
    _permit: OwnedSemaphorePermit,
) {
    let service = service_fn(|request| {
        let (access, viewed) = (Arc::clone(&access), Arc::clone(&viewed));
        async move { Ok::<_, Infallible>(answer(&request, &access, viewed).await) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false)
        .max_buf_size(HEAD_MOST)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE);
    // A client that hangs up or is slow is not worth a line in the log.
    let _ = timeout(PATIENCE, http.serve_connection(TokioIo::new(connection), service)).await;
}

type Answer = Response<Full<Bytes>>;

async fn answer(request: &Request<Incoming>, access: &Access, viewed: Arc<Viewed>) -> Answer {
    let headers = request.headers();
    if !access.has_expected_host(headers) {
        let why = "this page answers only to localhost or 127.0.0.1: open it by that name, or configure a token_file";
        return refusal(StatusCode::MISDIRECTED_REQUEST, why);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported");
        let allowed = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(header::ALLOW, allowed);
        return refused;
    }
    let path = request.uri().path();
    // A link on another site may lead to the page, and nothing else may come from there.
    if path != "/" && headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return refusal(StatusCode::FORBIDDEN, "another site has asked for this");
    }
    match path {
        "/" => file("text/html; charset=utf-8", include_str!("page.html")),
        "/page.css" => file("text/css; charset=utf-8", include_str!("page.css")),
        "/page.js" => file("text/javascript; charset=utf-8", include_str!("page.js")),
        "/now" | "/metrics" if !access.is_granted(headers) => {
            let mut refused = refusal(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
            let challenge = HeaderValue::from_static("Bearer realm=\"tarn\"");
            refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            refused
        }
        "/now" => {
            let name = request.uri().query().and_then(|query| query.strip_prefix("stage="));
            let stage = name.and_then(|name| viewed.place_of(name));
            read("application/json", move || viewed.now(stage)).await
        }
        "/metrics" => read(METRICS, move || viewed.metrics()).await,
        _ => refusal(StatusCode::NOT_FOUND, "there is no such page"),
    }
}

/// Has a thread read what takes a while: others are answered meanwhile. A client that goes while it waits for one has no more of it.
///
/// The runtime's own threads for this would end the agent where none can be started.
async fn read(kind: &'static str, read: impl FnOnce() -> Result<Bytes> + Send + 'static) -> Answer {
    let bytes = async {
        let turn = READERS.acquire().await.context("the page ends")?;
        let (done, bytes) = oneshot::channel();
        let work = move || {
            // The client may have gone.
            let _ = done.send(read());
            drop(turn);
        };
        let thread = thread::Builder::new().name("page-read".to_owned()).spawn(work);
        thread.context("cannot start a thread")?;
        bytes.await.context("cannot read the figures")?
    };
    match bytes.await {
        Ok(bytes) => response(StatusCode::OK, kind, bytes),
        Err(error) => refusal(StatusCode::SERVICE_UNAVAILABLE, &format!("{error:#}")),
    }
}

fn file(kind: &'static str, text: &'static str) -> Answer {
    response(StatusCode::OK, kind, Bytes::from_static(text.as_bytes()))
}

fn refusal(status: StatusCode, why: &str) -> Answer {
    response(status, "text/plain; charset=utf-8", format!("{why}\n").into())
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
