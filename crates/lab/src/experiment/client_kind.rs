//! Which client sends requests to Redis: `redis-benchmark`, or schedlab's own, which measures from
//! the intended send time.

use schedlab_measure::{LoadRequest, LoopKind};
use schedlab_model::Ns;
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Connections of the published client (docs/sources/experiments.md, section 1).
pub const PUBLISHED_CONNECTIONS: usize = 32;

/// A client that sends requests to Redis.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientKind {
    /// `redis-benchmark -t get --threads N`: closed loop.
    RedisBenchmark,
    /// schedlab's own, closed loop.
    Closed,
    /// schedlab's own, closed loop, with a request that costs the server much and the client
    /// little: the server is the bottleneck, also where the client has one CPU only.
    Bitcount,
    /// schedlab's own, open loop: so many requests a second, whatever the server does.
    Open(f64),
}

impl fmt::Display for ClientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientKind::RedisBenchmark => f.write_str("redis-benchmark"),
            ClientKind::Closed => f.write_str("closed"),
            ClientKind::Bitcount => f.write_str("bitcount"),
            ClientKind::Open(rate) => write!(f, "open:{rate}"),
        }
    }
}

impl FromStr for ClientKind {
    type Err = String;

    fn from_str(text: &str) -> Result<ClientKind, String> {
        let rate = |rate: &str| rate.parse::<f64>().ok().filter(|rate| (1.0..=1e6).contains(rate));
        match text.split_once(':') {
            None if text == "redis-benchmark" => Ok(ClientKind::RedisBenchmark),
            None if text == "closed" => Ok(ClientKind::Closed),
            None if text == "bitcount" => Ok(ClientKind::Bitcount),
            None if text == "open" => Ok(ClientKind::Open(10_000.0)),
            Some(("open", number)) => rate(number).map(ClientKind::Open).ok_or_else(|| {
                format!("`{text}`: a rate is a number from 1 to 1000000 requests a second")
            }),
            _ => Err(format!(
                "there is no client `{text}`: use redis-benchmark, closed, bitcount, or open:RATE \
                 such as open:10000"
            )),
        }
    }
}

/// Bytes of the key that BITCOUNT counts: some 30 us of Redis' CPU time, and an answer of ten
/// bytes.
const BITS: usize = 128 << 10;

impl ClientKind {
    /// The clients of `redis-batch` by default: the published one, one under which Redis is never
    /// idle, and one that misses no stall.
    pub const USUAL: [ClientKind; 3] =
        [ClientKind::RedisBenchmark, ClientKind::Bitcount, ClientKind::Open(10_000.0)];

    /// Returns whether a connection waits for its reply before it sends again.
    pub const fn closed(self) -> bool {
        !matches!(self, ClientKind::Open(_))
    }

    /// Returns whether it sends what the published client sent, over as many connections.
    pub(super) const fn as_published(self, connections: usize) -> bool {
        matches!(self, ClientKind::RedisBenchmark | ClientKind::Closed)
            && connections == PUBLISHED_CONNECTIONS
    }

    /// Returns the load of schedlab's own client at `address`, with `time` as warm-up and duration.
    pub fn load(
        self,
        address: SocketAddr,
        connections: usize,
        time: (Ns, Ns),
        seed: u64,
    ) -> LoadRequest {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (warmup, duration) = time;
        let (request, prepare) = match self {
            ClientKind::Bitcount => {
                ("BITCOUNT bits", vec![words(&format!("SETRANGE bits {} x", BITS - 1))])
            }
            _ => ("GET key:1", Vec::new()),
        };
        LoadRequest {
            address,
            kind: match self {
                ClientKind::Open(rate_per_s) => LoopKind::Open { rate_per_s, seed },
                _ => LoopKind::Closed,
            },
            connections,
            duration,
            warmup,
            words: words(request),
            prepare,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_names() {
        for kind in
            ClientKind::USUAL.into_iter().chain([ClientKind::Closed, ClientKind::Open(25_000.0)])
        {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("open:0".parse::<ClientKind>().unwrap_err().contains("rate"));
        assert!("wrk".parse::<ClientKind>().unwrap_err().contains("redis-benchmark"));
    }

    #[test]
    fn the_costly_request_has_its_key_made_first() {
        let load = |kind: ClientKind| {
            kind.load("127.0.0.1:7777".parse().unwrap(), 32, (Ns::from_ms(1), Ns::from_ms(2)), 1)
        };
        let costly = load(ClientKind::Bitcount);
        assert_eq!(
            (costly.kind, costly.words),
            (LoopKind::Closed, vec!["BITCOUNT".to_owned(), "bits".to_owned()])
        );
        assert_eq!(costly.prepare, [["SETRANGE", "bits", "131071", "x"].map(str::to_owned)]);
        assert_eq!((costly.warmup, costly.duration), (Ns::from_ms(1), Ns::from_ms(2)));
        assert!(load(ClientKind::Open(5.0)).prepare.is_empty());
    }
}
