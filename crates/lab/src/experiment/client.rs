//! Who sends requests to Redis: the article's `redis-benchmark`, or our own client, which measures from the intended send
//! time and runs in a process of its own.

use super::ExperimentError;
use super::stage::{Stage, Wires, scheduling};
use schedlab_host::program::{Program, Running};
use schedlab_measure::{LoadReport, LoadRequest, LoopKind};
use schedlab_model::{Ns, Policy};
use serde::Serialize;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::str::FromStr;

/// How much a client asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    /// Open all the time.
    pub(super) connections: usize,
    /// After the warm-up, by our own.
    pub(super) time: Ns,
    /// In all, by redis-benchmark.
    pub(super) requests: u64,
}

/// Connections of the article's client.
pub const ARTICLE_CONNECTIONS: usize = 32;
/// Where Redis listens, in its own network namespace.
pub(super) const PORT: u16 = 7777;
/// A client that is not served at once measures itself: it goes before everything that is not the guardian.
const CLIENT_PRIORITY: u8 = 2;
/// Requests of our client that are sent and not counted.
pub(super) const WARM_UP: Ns = Ns::from_ms(500);

/// A kind of client.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientKind {
    /// `redis-benchmark -t get --threads N`: closed loop.
    RedisBenchmark,
    /// Our own, closed loop.
    Closed,
    /// Our own, closed loop, with a request that costs the server much and the client little: the server is
    /// what limits, also where a client has no more than one CPU.
    Bitcount,
    /// Our own, open loop: so many requests a second, whatever the server does.
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
            Some(("open", number)) => rate(number)
                .map(ClientKind::Open)
                .ok_or_else(|| format!("`{text}`: a rate is a number from 1 to 1000000 requests a second")),
            _ => Err(format!(
                "there is no client `{text}`: use redis-benchmark, closed, bitcount, or open:RATE such as open:10000"
            )),
        }
    }
}

/// The key that BITCOUNT counts is this long: some 30 us of Redis' time, and an answer of ten bytes.
const BITS: usize = 128 << 10;

impl ClientKind {
    /// Those of `redis-batch`: the article's, one under which Redis is never idle, and one that misses no stall.
    pub const USUAL: [ClientKind; 3] =
        [ClientKind::RedisBenchmark, ClientKind::Bitcount, ClientKind::Open(10_000.0)];

    /// Whether a connection waits for its reply before it sends again.
    pub const fn closed(self) -> bool {
        !matches!(self, ClientKind::Open(_))
    }

    /// Whether it asks what the article's client asked, over as many connections.
    pub(super) const fn as_published(self, connections: usize) -> bool {
        matches!(self, ClientKind::RedisBenchmark | ClientKind::Closed) && connections == ARTICLE_CONNECTIONS
    }

    /// What our own client does at `address`. redis-benchmark has no such thing.
    pub fn load(self, address: SocketAddr, connections: usize, time: (Ns, Ns), seed: u64) -> LoadRequest {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (warmup, duration) = time;
        let (request, prepare) = match self {
            ClientKind::Bitcount => ("BITCOUNT bits", vec![words(&format!("SETRANGE bits {} x", BITS - 1))]),
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

/// What a client saw. Times in nanoseconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Outcome {
    pub(super) throughput: f64,
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    pub(super) p99_9: Option<f64>,
    pub(super) max: f64,
    /// 99 % of the requests left no later than this after their time.
    pub(super) lag_p99: Option<f64>,
    pub(super) doubts: Vec<String>,
}

/// A client that was started.
pub(super) struct Client {
    running: Running,
    kind: ClientKind,
    what: String,
    /// What our own client writes after its first line.
    out: Option<BufReader<std::process::ChildStdout>>,
}

impl Client {
    /// Starts one; our own is connected and waits for [`Client::go`].
    pub(super) fn start(
        stage: &Stage<'_>,
        wires: &Wires,
        kind: ClientKind,
        Amount { connections, time, requests }: Amount,
        seed: u64,
    ) -> Result<Client, ExperimentError> {
        let program = match kind {
            ClientKind::RedisBenchmark => {
                Program::new(benchmark(wires.address, connections, stage.others.count(), requests))
            }
            _ => stage.own(&own(wires.address, kind, connections, time, seed)),
        };
        let program = Program { network: wires.client, piped: true, cpus: Some(stage.others), ..program };
        let what = program.command.join(" ");
        let mut running = stage.launch(program, scheduling(Policy::Fifo(CLIENT_PRIORITY), 0))?;
        let mut out = None;
        if kind != ClientKind::RedisBenchmark {
            let mut reader = running.stdout().map(BufReader::new);
            let mut line = String::new();
            let heard = reader.as_mut().map(|reader| reader.read_line(&mut line));
            if !matches!(heard, Some(Ok(_))) || line != READY {
                let happened = format!("did not connect to Redis ({})", line.trim());
                return Err(ExperimentError::Program { what, happened });
            }
            out = reader;
        }
        Ok(Client { running, kind, what, out })
    }

    /// Lets it begin.
    pub(super) fn go(&mut self) -> Result<(), ExperimentError> {
        if self.kind == ClientKind::RedisBenchmark {
            return Ok(());
        }
        let told = self.running.stdin().map(|mut input| input.write_all(b"go\n"));
        match told {
            Some(Ok(())) => Ok(()),
            _ => Err(self.failed("does not listen".to_owned())),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Whether it has ended.
    pub(super) fn ended(&mut self) -> bool {
        !matches!(self.running.ended(), Ok(None))
    }

    /// Waits for its end and reads what it saw.
    pub(super) fn finish(mut self, stage: &Stage<'_>) -> Result<Outcome, ExperimentError> {
        let what = self.what.clone();
        let odd = |happened: String| ExperimentError::Program { what: what.clone(), happened };
        let Some(mut out) = self.out.take() else {
            let text = stage.finish(self.running, &what)?;
            return csv(&text).ok_or_else(|| odd(format!("says `{}`", text.trim())));
        };
        stage.finish(self.running, &what)?;
        let mut text = String::new();
        out.read_to_string(&mut text).map_err(|error| odd(error.to_string()))?;
        let report: LoadReport =
            serde_json::from_str(&text).map_err(|error| odd(format!("says something odd: {error}")))?;
        Ok(outcome(&report))
    }

    fn failed(&self, happened: String) -> ExperimentError {
        ExperimentError::Program { what: self.what.clone(), happened }
    }
}

/// What our own client says when it is connected.
pub const READY: &str = "ready\n";

fn own(address: &str, kind: ClientKind, connections: usize, time: Ns, seed: u64) -> Vec<String> {
    let text = ["helper", "load-client", "--address"].map(str::to_owned).into_iter();
    let rest = [
        format!("{address}:{PORT}"),
        "--client".to_owned(),
        kind.to_string(),
        "--connections".to_owned(),
        connections.to_string(),
        "--warmup".to_owned(),
        WARM_UP.to_string(),
        "--for".to_owned(),
        time.to_string(),
        "--seed".to_owned(),
        seed.to_string(),
    ];
    text.chain(rest).collect()
}

fn benchmark(address: &str, connections: usize, threads: usize, requests: u64) -> Vec<String> {
    let text = format!(
        "redis-benchmark -h {address} -p {PORT} -c {connections} -t get --threads {threads} -n {requests} --csv"
    );
    text.split(' ').map(str::to_owned).collect()
}

/// The line of `redis-benchmark --csv`: rps, mean, min, p50, p95, p99, max; times in milliseconds.
fn csv(text: &str) -> Option<Outcome> {
    let line = text.lines().rev().find(|line| line.starts_with("\"GET\""))?;
    let values: Vec<f64> = line
        .split(',')
        .skip(1)
        .map(|field| field.trim_matches('"').parse())
        .collect::<Result<_, _>>()
        .ok()?;
    let [throughput, mean, _, p50, p95, p99, max] = values[..] else { return None };
    let ns = |ms: f64| ms * 1e6;
    Some(Outcome {
        throughput,
        mean: ns(mean),
        p50: ns(p50),
        p95: ns(p95),
        p99: ns(p99),
        max: ns(max),
        ..Outcome::default()
    })
}

fn outcome(report: &LoadReport) -> Outcome {
    let ladder = &report.latency;
    let enough = ladder.count >= schedlab_stats::samples_needed(0.999);
    let open = matches!(report.request.kind, LoopKind::Open { .. });
    Outcome {
        throughput: report.throughput_per_s,
        mean: ladder.mean_ns as f64,
        p50: ladder.p50_ns as f64,
        p95: ladder.p95_ns as f64,
        p99: ladder.p99_ns as f64,
        p99_9: enough.then_some(ladder.p99_9_ns as f64),
        max: ladder.max_ns as f64,
        lag_p99: open.then_some(report.send_lag.p99_ns as f64),
        doubts: report.doubts.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_names() {
        for kind in ClientKind::USUAL.into_iter().chain([ClientKind::Closed, ClientKind::Open(25_000.0)]) {
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

    #[test]
    fn the_benchmark_line_is_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                    \"p99_latency_ms\",\"max_latency_ms\"\n\"GET\",\"87719.30\",\"0.311\",\"0.080\",\"0.271\",\
                    \"0.423\",\"1.991\",\"10.831\"\n";
        let outcome = csv(text).unwrap();
        let said = (outcome.throughput, outcome.mean, outcome.p50, outcome.max);
        assert_eq!(said, (87_719.3, 311_000.0, 271_000.0, 10_831_000.0));
        assert_eq!(csv("Could not connect"), None);
    }
}
