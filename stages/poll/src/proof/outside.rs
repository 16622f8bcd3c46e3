//! Who asks a flooded host from outside and does not flood it.

use std::net::{IpAddr, SocketAddr};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_lab::load::{Arrivals, Exchange, Exchanges, Flow, Law, TcpAnswerer, TcpRequests, UdpEcho, UdpRequests};

use super::rig::{HOST, Rig};

/// The ports of those who answer.
const ECHO: u16 = 9001;
const SHELL: u16 = 9022;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bytes of what is typed and of what comes back: an encrypted packet of SSH.
const TYPED: usize = 36;
/// Of those who ask: they run as if on another machine.
const CLIENT: i32 = 80;

/// How often somebody asks.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The time between two pings, in the mean.
    pub ping: Duration,
    /// The same between two letters.
    pub letter: Duration,
}

/// Where softirqs end.
pub const OFTEN: Pace = Pace {
    ping: Duration::from_millis(2),
    letter: Duration::from_millis(10),
};

/// Where they may not: who asks shares the CPU with the flooded host here, and whoever enables softirqs again runs those that wait, for
/// milliseconds. A client that asked often would do nothing else, before all others, which one on another machine does not.
pub const RARELY: Pace = Pace {
    ping: Duration::from_millis(75),
    letter: Duration::from_millis(150),
};

/// Those on the host who answer.
pub struct Answerers {
    echo: UdpEcho,
    shell: TcpAnswerer,
}

impl Answerers {
    /// Starts them.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start(rig: &Rig) -> Result<Self> {
        Ok(Self {
            echo: UdpEcho::start(rig.host()?, at(ECHO))?,
            shell: TcpAnswerer::start(rig.host()?, at(SHELL), TYPED, TYPED)?,
        })
    }

    /// Ends them.
    ///
    /// # Errors
    /// One has failed.
    pub fn stop(self) -> Result<()> {
        self.shell.stop()?;
        self.echo.stop().map(drop)
    }
}

/// Somebody who asks.
type Asking = JoinHandle<Result<Exchanges>>;

/// A datagram and its answer, again and again: `arrivals` of the mean time between two.
///
/// # Errors
/// It cannot be started.
pub fn ping_pong(
    rig: &Rig,
    length: Duration,
    every: Duration,
    arrivals: impl FnOnce(Duration) -> Law,
) -> Result<Asking> {
    let requests = UdpRequests {
        arrivals: Arrivals::Open(arrivals(every)),
        timeout: PATIENCE,
        ..UdpRequests::new(Flow::to(at(ECHO)), count(length, every))
    };
    rig.client()?.spawn("client", move || {
        set_policy(0, Policy::Fifo(CLIENT))?;
        requests.run()
    })
}

/// Somebody who types over a TCP connection that is made first and idle for a while, and sees each letter come back.
///
/// # Errors
/// It cannot be started.
pub fn typing(rig: &Rig, idle: Duration, length: Duration, every: Duration, seed: u64) -> Result<Asking> {
    let requests = TcpRequests {
        request: TYPED,
        answer: TYPED,
        arrivals: Arrivals::Open(Law::Poisson { mean: every, seed }),
        timeout: PATIENCE,
        idle,
        ..TcpRequests::new(Flow::to(at(SHELL)), count(length, every))
    };
    rig.client()?.spawn("typing", move || {
        set_policy(0, Policy::Fifo(CLIENT))?;
        requests.run()
    })
}

/// How long an answer was waited for, in us. Who waits in vain waits as long as there is patience.
pub fn waited_us(exchange: &Exchange) -> f64 {
    let patience = PATIENCE.as_nanos() as u64;
    exchange.round_trip_ns().unwrap_or(patience) as f64 / 1e3
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(HOST), port)
}

fn count(length: Duration, every: Duration) -> u32 {
    (length.as_micros() / every.as_micros()) as u32
}
