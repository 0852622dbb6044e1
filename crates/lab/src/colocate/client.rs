//! schedlab's own client beside a trial. In an open loop every request that a stall of the server
//! hits measures it.

use super::error::ColocateError;
use super::samples::needed;
use schedlab_host::threads;
use schedlab_measure::{Ladder, LoadReport, LoadRequest, LoopKind, run};
use schedlab_model::{CpuSet, Ns, Policy};
use schedlab_study::metric::{Metric, Stat};
use schemars::JsonSchema;
use serde::Serialize;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A client: which server it asks what, and how often.
#[derive(Clone, PartialEq, Debug)]
pub struct Client {
    /// The server's address. It speaks Redis's protocol (RESP).
    pub address: SocketAddr,
    /// Requests a second, at the times of a Poisson process; `None`: closed loop, each connection
    /// waits for its reply.
    pub rate_per_s: Option<f64>,
    /// Connections; in an open loop used in turn.
    pub connections: usize,
    /// The words of a request, such as `["PING"]`.
    pub words: Vec<String>,
}

/// What the client measured in one round.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ClientMeasurements {
    /// Response times: to the reply, from the intended send time (in a closed loop from the send).
    pub response: Ladder,
    /// Replies a second.
    pub throughput_per_s: f64,
    /// Why the numbers should not be trusted.
    pub doubts: Vec<String>,
}

/// How long a server that was just started has to listen.
const LISTENS: Duration = Duration::from_secs(5);

impl Client {
    /// Waits until a server listens at the address.
    pub(super) fn wait(&self, stop: &dyn Fn() -> bool) -> Result<(), ColocateError> {
        let begun = Instant::now();
        loop {
            let error = match TcpStream::connect_timeout(&self.address, LISTENS) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if stop() {
                return Err(ColocateError::Interrupted);
            }
            if begun.elapsed() > LISTENS {
                return Err(ColocateError::Input(format!(
                    "--client {}: {error}. Does the server listen there?",
                    self.address
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Measures one round of `length`, on `cpus` where that is allowed. The same `seed` sends at
    /// the same times.
    pub(super) fn round(
        &self,
        length: Ns,
        cpus: Option<CpuSet>,
        seed: u64,
    ) -> Result<ClientMeasurements, ColocateError> {
        if let Some(cpus) = cpus {
            // Where that is refused the client shares the CPU with the server: its doubts say when
            // it was too slow.
            let _ = threads::set_affinity(0, &cpus);
        }
        // Other work on the client's CPU would look like a delay of the server. The client sleeps
        // between replies, and its thread ends with the round; where the kernel refuses the policy,
        // the client's lag and doubts show it.
        if let Ok(now) = threads::scheduling(0) {
            let _ = threads::set_scheduling(0, &now.with_policy(Policy::Fifo(1)));
        }
        let request = LoadRequest {
            address: self.address,
            kind: self
                .rate_per_s
                .map_or(LoopKind::Closed, |rate_per_s| LoopKind::Open { rate_per_s, seed }),
            connections: self.connections,
            duration: length,
            warmup: Ns::ZERO,
            words: self.words.clone(),
            prepare: Vec::new(),
        };
        let failed = |error| ColocateError::Input(format!("--client {}: {error}", self.address));
        let LoadReport { latency, throughput_per_s, doubts, .. } = run(&request).map_err(failed)?;
        Ok(ClientMeasurements { response: latency, throughput_per_s, doubts })
    }
}

impl ClientMeasurements {
    /// Returns the value of `metric`; `None`: a client does not know it.
    pub(super) fn value(&self, metric: Metric) -> Option<f64> {
        let ladder = &self.response;
        let stat = match metric {
            Metric::Throughput => return Some(self.throughput_per_s),
            Metric::Response(_) if ladder.count == 0 => return None,
            Metric::Response(stat) => stat,
            _ => return None,
        };
        let ns = match stat {
            Stat::Mean => ladder.mean_ns,
            Stat::Max => ladder.max_ns,
            Stat::Percentile(50_000) => ladder.p50_ns,
            Stat::Percentile(90_000) => ladder.p90_ns,
            Stat::Percentile(95_000) => ladder.p95_ns,
            Stat::Percentile(99_000) => ladder.p99_ns,
            Stat::Percentile(99_500) => ladder.p99_5_ns,
            Stat::Percentile(99_900) => ladder.p99_9_ns,
            Stat::Percentile(99_990) => ladder.p99_99_ns,
            _ => return None,
        };
        Some(ns as f64)
    }

    /// Returns why the value of `metric` says nothing.
    pub(super) fn lacks(&self, metric: Metric) -> Option<String> {
        if self.value(metric).is_none() {
            return Some(
                "a client knows its throughput and `response` with p50, p90, p95, p99, p99.5, \
                 p99.9, p99.99, \
                 mean and max"
                    .to_owned(),
            );
        }
        let needed = match metric {
            Metric::Response(stat) => needed(stat),
            _ => 10,
        };
        let count = self.response.count;
        (count < needed).then(|| format!("{count} replies came and {needed} are needed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(count: u64) -> ClientMeasurements {
        let response = Ladder { count, p99_ns: 700, max_ns: 900, ..Ladder::default() };
        ClientMeasurements { response, throughput_per_s: 50.0, doubts: Vec::new() }
    }

    #[test]
    fn a_client_knows_its_responses_and_its_throughput() {
        let metric = |text: &str| text.parse::<Metric>().unwrap();
        assert_eq!(seen(100).value(metric("response p99")), Some(700.0));
        assert_eq!(seen(100).value(metric("throughput")), Some(50.0));
        assert_eq!(seen(100).lacks(metric("response p99")), None);
        assert!(seen(99).lacks(metric("response p99")).unwrap().contains("100 are needed"));
        assert_eq!(seen(0).value(metric("response p99")), None);
        assert!(seen(100).lacks(metric("latency p99")).unwrap().contains("response"));
    }
}
