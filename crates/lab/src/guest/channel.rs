//! The way from the guest to the host: bytes written to the debug console's I/O port.

use std::arch::asm;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

use crate::busy::monotonic_ns;
use crate::protocol::{DEBUG_CONSOLE_PORT, Message};

/// One message at a time, whichever thread it comes from.
static SENDING: Mutex<()> = Mutex::new(());

/// Permission to write to the debug console. Children and threads inherit it from the process that opened it.
#[derive(Clone)]
pub struct Channel(());

impl Channel {
    /// Asks the kernel for the port.
    ///
    /// # Errors
    /// Without CAP_SYS_RAWIO, or on a kernel in lockdown.
    pub fn open() -> Result<Self> {
        // SAFETY: ioperm has no memory arguments.
        if unsafe { libc::ioperm(DEBUG_CONSOLE_PORT.into(), 1, 1) } != 0 {
            bail!(
                "no access to I/O port {DEBUG_CONSOLE_PORT:#x}: {}",
                std::io::Error::last_os_error()
            );
        }
        Ok(Self(()))
    }

    /// Sends one message; it has left the guest when this returns.
    pub fn send(&self, message: &Message) {
        let mut line = serde_json::to_vec(message).unwrap_or_else(|error| {
            let error = format!("a message of the guest cannot be written as JSON: {error}");
            serde_json::json!({ "ended": { "error": error } })
                .to_string()
                .into_bytes()
        });
        line.push(b'\n');
        let _one_at_a_time = SENDING.lock().unwrap_or_else(PoisonError::into_inner);
        write_port(&line);
    }

    /// Tells what runs now and how much is done, in 0..=1.
    pub fn progress(&self, step: &str, fraction: f64) {
        self.send(&Message::Progress {
            step: step.to_owned(),
            fraction,
            time_ns: monotonic_ns(),
        });
    }
}

/// Writes every byte to the debug console.
fn write_port(bytes: &[u8]) {
    // SAFETY: reads exactly `bytes`; the port was opened by `Channel::open`, and nothing but the debug console
    // listens on it. The direction flag is clear at every function boundary by the ABI.
    unsafe {
        asm!("rep outsb", in("dx") DEBUG_CONSOLE_PORT, inout("rsi") bytes.as_ptr() => _,
             inout("rcx") bytes.len() => _, options(readonly, nostack, preserves_flags));
    }
}
