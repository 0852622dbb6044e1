//! What may ask. A page of another site that is open in the same browser can send requests here,
//! and can give its own name this address (DNS rebinding); other users of the machine can connect.

use rustix::rand::{GetRandomFlags, getrandom};
use schedlab_http::Request;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Bytes of a token: as many as cannot be guessed.
const TOKEN: usize = 24;

/// The tokens of a server.
pub(crate) struct Guard {
    /// The port; `None`: a socket of the file system, which `ssh -L` gives any port.
    port: Option<u16>,
    token: String,
    /// Is exchanged for the token once: the command line of a browser, which has it, can be read by
    /// other users.
    key: Mutex<Option<String>>,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// It is for another host.
    Host,
    /// A page of another site sent it.
    Origin,
    /// It has no token, or another.
    Token,
}

impl Refusal {
    /// The status of HTTP, and what to do.
    pub(crate) const fn words(self) -> (u16, &'static str) {
        match self {
            Refusal::Host => (421, "this server answers to 127.0.0.1 and localhost only"),
            Refusal::Origin => (403, "a page of another site may not ask here"),
            Refusal::Token => (
                401,
                "the token is missing or that of another run: open the address that `schedlab ui` \
                 printed, or send the header `Authorization: Bearer TOKEN`",
            ),
        }
    }
}

impl Guard {
    /// For a server at this port, or without one at a socket of the file system.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub(crate) fn new(port: Option<u16>) -> io::Result<Guard> {
        Ok(Guard { port, token: random()?, key: Mutex::new(Some(random()?)) })
    }

    /// The token.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The key that is exchanged for the token; `None` when it was used.
    pub(crate) fn key(&self) -> Option<String> {
        self.key.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives the token for the key, once.
    pub(crate) fn exchange(&self, key: &str) -> Option<&str> {
        let mut own = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        own.take_if(|own| same(own, key)).map(|_| self.token.as_str())
    }

    /// Whether a request for this host is for this server.
    fn is_own(&self, host: &str) -> bool {
        let (name, port) = match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        };
        let port = match (self.port, port) {
            (Some(own), Some(port)) => port.parse() == Ok(own) && !port.starts_with(['+', '0']),
            (Some(_), None) => false,
            (None, port) => port.is_none_or(|port| port.parse::<u16>().is_ok()),
        };
        port && ["127.0.0.1", "localhost"].contains(&name)
    }

    /// Refuses requests for other hosts, and of pages of other sites.
    pub(crate) fn check_place(&self, request: &Request) -> Result<(), Refusal> {
        let mut hosts = request.headers("Host");
        let host = hosts.next().filter(|host| self.is_own(host));
        let Some(host) = host.filter(|_| hosts.next().is_none()) else {
            return Err(Refusal::Host);
        };
        let is_own = |origin: &str| {
            origin.strip_prefix("http://").is_some_and(|from| match self.port {
                Some(_) => self.is_own(from),
                // Each port of the other end of a tunnel is a site of its own.
                None => from == host,
            })
        };
        let site = |site: &str| ["same-origin", "none"].contains(&site);
        match request.headers("Origin").all(is_own) && request.headers("Sec-Fetch-Site").all(site) {
            true => Ok(()),
            false => Err(Refusal::Origin),
        }
    }

    /// Refuses requests without the token.
    pub(crate) fn check_token(&self, request: &Request) -> Result<(), Refusal> {
        let bearer = |value: &str| {
            value.split_once(' ').is_some_and(|(scheme, token)| {
                scheme.eq_ignore_ascii_case("bearer") && same(token.trim(), &self.token)
            })
        };
        match request.headers("Authorization").next().is_some_and(bearer) {
            true => Ok(()),
            false => Err(Refusal::Token),
        }
    }
}

/// Compares in a time that does not tell where two texts differ.
fn same(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differs == 0
}

fn random() -> io::Result<String> {
    let mut bytes = [0; TOKEN];
    let got = getrandom(&mut bytes, GetRandomFlags::empty())?;
    match got == TOKEN {
        true => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        false => Err(io::Error::other("fewer random bytes than were asked for")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_once() {
        let guard = Guard::new(Some(1)).unwrap();
        let key = guard.key().unwrap();
        assert_eq!(guard.exchange("x"), None);
        assert_eq!(guard.exchange(&key).map(str::len), Some(2 * TOKEN));
        assert_eq!((guard.exchange(&key), guard.key()), (None, None));
        assert!(guard.token() != Guard::new(Some(1)).unwrap().token() && guard.token() != key);
    }

    #[test]
    fn a_host_is_this_one_at_this_port() {
        let (at, socket) = (Guard::new(Some(80)).unwrap(), Guard::new(None).unwrap());
        for (host, own, of_socket) in [
            ("127.0.0.1:80", true, true),
            ("localhost:80", true, true),
            ("localhost:8080", false, true),
            ("localhost", false, true),
            ("localhost:+80", false, true),
            ("localhost:x", false, false),
            ("evil.example:80", false, false),
            ("evil.example", false, false),
            ("127.0.0.1.evil.example:80", false, false),
            ("", false, false),
        ] {
            assert_eq!((at.is_own(host), socket.is_own(host)), (own, of_socket), "{host}");
        }
    }

    #[test]
    fn a_part_of_a_token_is_not_the_token() {
        assert!(same("abc", "abc"));
        for other in ["", "ab", "abcd", "abd", "ABC"] {
            assert!(!same("abc", other), "{other}");
        }
    }
}
