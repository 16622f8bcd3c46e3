//! The token that a client must have.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;

/// The shortest, in characters.
const LENGTH_LEAST: usize = 16;
/// Bytes of the file that are read at most.
const FILE_MOST: u64 = 4096;

/// Reads the token in a file that only root can read.
///
/// # Errors
/// There is no such file, others can read or change it, or what it has is no token.
pub fn read_token(path: &Path) -> Result<String> {
    let shown = path.display();
    let context = || format!("cannot read the token {shown}");
    // A FIFO would keep the agent waiting.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.with_context(context)?;
    let metadata = file.metadata().with_context(context)?;
    if !metadata.is_file() {
        bail!("the token {shown} is not a regular file: `(umask 077; openssl rand -hex 16 >FILE)` writes one");
    }
    if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
        bail!(
            "others than root may read the token {shown}: write another one, as in `(umask 077; openssl rand -hex 16 >{shown})`"
        );
    }
    let mut text = String::new();
    file.take(FILE_MOST).read_to_string(&mut text).with_context(context)?;
    let token = text.trim();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if token.len() < LENGTH_LEAST || !token.bytes().all(is_plain) {
        bail!(
            "the token in {shown} is not one of at least {LENGTH_LEAST} letters and digits: \
             `(umask 077; openssl rand -hex 16 >{shown})` writes one"
        );
    }
    Ok(token.to_owned())
}
