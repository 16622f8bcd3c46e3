//! The section `[page]` of `tarn.toml`.
//!
//! ```toml
//! [page]
//! listen = "127.0.0.1:9780"             # an address and port, or the path of a socket: "/run/tarn.sock"
//! token_file = "/etc/tarn/page.token"   # whoever has it may look; needed where others than this host can connect
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use tarn_base::config::{ConfigError, Section};
use toml::Spanned;

/// The section's name.
pub const SECTION: &str = "page";

/// Where the agent shows its live page and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Where it listens.
    pub listen: Listen,
    /// The file with the token that a client must have.
    pub token_file: Option<PathBuf>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address.
    Address(SocketAddr),
    /// A socket in the file system, by its absolute path.
    Socket(PathBuf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    listen: Spanned<String>,
    token_file: Option<Spanned<PathBuf>>,
}

/// Reads the section.
///
/// # Errors
/// Every error found.
pub fn read(section: &Section<'_>) -> Result<Page, Vec<ConfigError>> {
    let written: Written = section.deserialize_whole()?;
    let refused = |message: &str, remedy: &str| {
        let (message, remedy) = (message.to_owned(), remedy.to_owned());
        vec![section.error(written.listen.span(), "listen", message, remedy)]
    };
    let text = written.listen.get_ref();
    let listen = match text.parse() {
        Ok(address) => Listen::Address(address),
        Err(_) if text.starts_with('/') => Listen::Socket(PathBuf::from(text)),
        Err(_) => {
            let remedy =
                "write an address with a port, such as \"127.0.0.1:9780\" or \"[::1]:9780\", or the path of a socket";
            return Err(refused(
                "is neither an address with a port nor an absolute path",
                remedy,
            ));
        }
    };
    if let Some(file) = written.token_file.as_ref().filter(|file| !file.get_ref().is_absolute()) {
        let (message, remedy) = ("is no absolute path", "begin it with /");
        return Err(vec![section.error(
            file.span(),
            "token_file",
            message.to_owned(),
            remedy.to_owned(),
        )]);
    }
    let token_file = written.token_file.map(Spanned::into_inner);
    match &listen {
        Listen::Address(address) if address.port() == 0 => Err(refused("has no port", "name one, such as 9780")),
        Listen::Address(address) if !address.ip().is_loopback() && token_file.is_none() => Err(refused(
            "is no loopback address: everybody who can reach it would see the page",
            "use 127.0.0.1, or name a token_file",
        )),
        _ => Ok(Page { listen, token_file }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(text: &str) -> Result<Option<Page>, String> {
        let read = super::super::parse(text, Path::new("tarn.toml"), &[]);
        read.map(|configuration| configuration.page)
            .map_err(|errors| errors.to_string())
    }

    #[test]
    fn the_page_is_off_unless_asked_for() {
        assert_eq!(parse(""), Ok(None));
        let page = parse("[page]\nlisten = \"[::1]:9780\"\n").unwrap().unwrap();
        assert_eq!(page.listen, Listen::Address("[::1]:9780".parse().unwrap()));
        let page = parse("[page]\nlisten = \"/run/tarn.sock\"\n").unwrap().unwrap();
        assert_eq!(page.listen, Listen::Socket("/run/tarn.sock".into()));
        let page = parse("[page]\nlisten = \"0.0.0.0:9780\"\ntoken_file = \"/etc/token\"\n").unwrap();
        assert_eq!(page.unwrap().token_file, Some("/etc/token".into()));
    }

    /// A mistake would show the host's clients and connections to a whole network.
    #[test]
    fn the_page_is_not_shown_to_others_without_a_token() {
        for (wrong, said) in [
            ("[page]\n", "listen"),
            ("[page]\nlisten = \"0.0.0.0:9780\"\n", "no loopback address"),
            ("[page]\nlisten = \"[2001:db8::1]:9780\"\n", "no loopback address"),
            ("[page]\nlisten = \"127.0.0.1\"\n", "neither an address"),
            ("[page]\nlisten = \"127.0.0.1:0\"\n", "no port"),
            ("[page]\nlisten = \"tarn.sock\"\n", "neither an address"),
            (
                "[page]\nlisten = \"127.0.0.1:9780\"\ntoken_file = \"token\"\n",
                "absolute",
            ),
            ("[page]\nlisten = \"127.0.0.1:9780\"\ntoken = \"secret\"\n", "token"),
            ("[pages]\n", "page"),
        ] {
            let errors = parse(wrong).unwrap_err();
            assert!(errors.contains(said), "{wrong}: {errors}");
        }
    }
}
