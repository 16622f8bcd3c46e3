//! Which requests are answered.

use hyper::header::{AUTHORIZATION, HOST, HeaderMap};

/// What a request needs: the token, or a name of loopback where there is none.
#[derive(Debug)]
pub struct Access {
    token: Option<String>,
}

impl Access {
    /// With a token, or without one: on an address of loopback, or a socket, to which a tunnel or a proxy may lead.
    pub fn of(token: Option<String>) -> Self {
        Self { token }
    }

    /// Whether a request was meant for this server: a browser may have been led here by a name of somebody else.
    pub fn has_expected_host(&self, headers: &HeaderMap) -> bool {
        let host = || headers.get(HOST)?.to_str().ok();
        self.token.is_some() || host().is_some_and(is_loopback)
    }

    /// Whether a request may see what is of this host.
    pub fn is_granted(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = || headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ");
        given().is_some_and(|given| is_equal(given.as_bytes(), token.as_bytes()))
    }
}

/// Whether `Host` names this host itself, with or without a port.
fn is_loopback(host: &str) -> bool {
    let without_port = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(address, _)| address),
        None => host.split(':').next(),
    };
    let Some(name) = without_port else { return false };
    let address: Option<std::net::IpAddr> = name.parse().ok();
    address.map_or(name.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

/// Takes as long wherever they differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(hyper::header::HeaderName, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect()
    }

    /// A site whose name leads to 127.0.0.1 would read the page with the browser of whoever visits it.
    #[test]
    fn a_foreign_name_is_turned_away_where_there_is_no_token() {
        let access = Access::of(None);
        for host in [
            "localhost",
            "LOCALHOST:9780",
            "127.0.0.1:9780",
            "127.3.2.1",
            "[::1]:9780",
            "[::1]",
        ] {
            assert!(access.has_expected_host(&headers(&[(HOST, host)])), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1:9780",
            "[::1",
            "[2001:db8::1]",
            "",
        ] {
            assert!(!access.has_expected_host(&headers(&[(HOST, host)])), "{host}");
        }
        assert!(!access.has_expected_host(&headers(&[])));
        let token = Some("0123456789abcdef".to_owned());
        assert!(Access::of(token).has_expected_host(&headers(&[(HOST, "router.example")])));
    }

    #[test]
    fn only_the_whole_token_opens() {
        let access = Access::of(Some("0123456789abcdef".to_owned()));
        assert!(access.is_granted(&headers(&[(AUTHORIZATION, "Bearer 0123456789abcdef")])));
        for given in [
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdeg",
            "Bearer ",
            "0123456789abcdef",
            "Basic 0123456789abcdef",
        ] {
            assert!(!access.is_granted(&headers(&[(AUTHORIZATION, given)])), "{given}");
        }
        assert!(!access.is_granted(&headers(&[])));
        assert!(Access::of(None).is_granted(&headers(&[])));
    }
}
