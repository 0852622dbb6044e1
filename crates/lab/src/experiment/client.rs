//! A running client of Redis; schedlab's own runs in a process of its own.

use super::client_kind::ClientKind;
use super::plan::ExperimentError;
use super::testbed::{Networks, Testbed, scheduling};
use schedlab_host::program::{Program, Running};
use schedlab_measure::{LoadReport, LoopKind};
use schedlab_model::{Ns, Policy};
use std::io::{BufRead, BufReader, Read, Write};

/// How much a client sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    /// Connections, which are open all the time.
    pub(super) connections: usize,
    /// Time after the warm-up, for schedlab's own client.
    pub(super) time: Ns,
    /// Requests in all, for redis-benchmark.
    pub(super) requests: u64,
}

/// Where Redis listens, in its own network namespace.
pub(super) const PORT: u16 = 7777;
/// A client that waits for a CPU measures its own wait: it runs before everything but the guardian.
const CLIENT_PRIORITY: u8 = 2;
/// How long schedlab's own client sends requests that are not counted.
pub(super) const WARM_UP: Ns = Ns::from_ms(500);

/// What a client measured. Times in nanoseconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct ClientFigures {
    pub(super) throughput: f64,
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    pub(super) p99_9: Option<f64>,
    pub(super) max: f64,
    /// 99 % of the requests left at most this much after their intended time.
    pub(super) lag_p99: Option<f64>,
    pub(super) doubts: Vec<String>,
}

/// A running client.
pub(super) struct Client {
    running: Running,
    kind: ClientKind,
    what: String,
    /// The output of schedlab's own client after its first line.
    out: Option<BufReader<std::process::ChildStdout>>,
}

impl Client {
    /// Starts a client; schedlab's own is connected and waits for [`Client::go`].
    pub(super) fn start(
        testbed: &Testbed<'_>,
        networks: &Networks,
        kind: ClientKind,
        Amount { connections, time, requests }: Amount,
        seed: u64,
    ) -> Result<Client, ExperimentError> {
        let program = match kind {
            ClientKind::RedisBenchmark => Program::new(benchmark_command(
                networks.address,
                connections,
                testbed.others.count(),
                requests,
            )),
            _ => testbed.own(&own_command(networks.address, kind, connections, time, seed)),
        };
        let program = Program {
            network: networks.client,
            piped: true,
            cpus: Some(testbed.others),
            ..program
        };
        let what = program.command.join(" ");
        let mut running = testbed.launch(program, scheduling(Policy::Fifo(CLIENT_PRIORITY), 0))?;
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

    /// Lets it begin to send.
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

    /// Returns whether it has ended.
    pub(super) fn ended(&mut self) -> bool {
        !matches!(self.running.ended(), Ok(None))
    }

    /// Waits for its end. Returns what it measured.
    pub(super) fn finish(
        mut self,
        testbed: &Testbed<'_>,
    ) -> Result<ClientFigures, ExperimentError> {
        let what = self.what.clone();
        let odd = |happened: String| ExperimentError::Program { what: what.clone(), happened };
        let Some(mut out) = self.out.take() else {
            let text = testbed.finish(self.running, &what)?;
            return from_csv(&text).ok_or_else(|| odd(format!("says `{}`", text.trim())));
        };
        testbed.finish(self.running, &what)?;
        let mut text = String::new();
        out.read_to_string(&mut text).map_err(|error| odd(error.to_string()))?;
        let report: LoadReport = serde_json::from_str(&text)
            .map_err(|error| odd(format!("says something odd: {error}")))?;
        Ok(from_report(&report))
    }

    fn failed(&self, happened: String) -> ExperimentError {
        ExperimentError::Program { what: self.what.clone(), happened }
    }
}

/// The line that a helper process writes when it is ready.
pub const READY: &str = "ready\n";

fn own_command(
    address: &str,
    kind: ClientKind,
    connections: usize,
    time: Ns,
    seed: u64,
) -> Vec<String> {
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

fn benchmark_command(
    address: &str,
    connections: usize,
    threads: usize,
    requests: u64,
) -> Vec<String> {
    let text = format!(
        "redis-benchmark -h {address} -p {PORT} -c {connections} -t get --threads {threads} -n \
         {requests} --csv"
    );
    text.split(' ').map(str::to_owned).collect()
}

/// Reads the line of `redis-benchmark --csv`: rps, mean, min, p50, p95, p99, max; times in
/// milliseconds.
fn from_csv(text: &str) -> Option<ClientFigures> {
    let line = text.lines().rev().find(|line| line.starts_with("\"GET\""))?;
    let values: Vec<f64> = line
        .split(',')
        .skip(1)
        .map(|field| field.trim_matches('"').parse())
        .collect::<Result<_, _>>()
        .ok()?;
    let [throughput, mean, _, p50, p95, p99, max] = values[..] else { return None };
    let ns = |ms: f64| ms * 1e6;
    Some(ClientFigures {
        throughput,
        mean: ns(mean),
        p50: ns(p50),
        p95: ns(p95),
        p99: ns(p99),
        max: ns(max),
        ..ClientFigures::default()
    })
}

fn from_report(report: &LoadReport) -> ClientFigures {
    let ladder = &report.latency;
    let enough = ladder.count >= schedlab_stats::samples_needed(0.999);
    let open = matches!(report.request.kind, LoopKind::Open { .. });
    ClientFigures {
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
    fn the_benchmark_line_is_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                    \"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"GET\",\"87719.30\",\"0.311\",\"0.080\",\"0.271\",\
                    \"0.423\",\"1.991\",\"10.831\"\n";
        let figures = from_csv(text).unwrap();
        let said = (figures.throughput, figures.mean, figures.p50, figures.max);
        assert_eq!(said, (87_719.3, 311_000.0, 271_000.0, 10_831_000.0));
        assert_eq!(from_csv("Could not connect"), None);
    }
}
