//! The client's own count: what a load generator printed while its server was recorded.
//!
//! Where a server takes several requests in one activation, a recording does not show how many it answered. The client knows. What one
//! request costs the server in CPU time follows from both, and a prediction of the server's share is one of requests a second, as
//! far as a request costs the same.

use super::recorded::RecordedInput;
use super::trust::DRIFT_OF_RATES;
use super::{Errors, values};
use crate::StudyError;
use crate::change::MethodError;
use crate::measurements::Kind;
use crate::metric::Metric;
use crate::run::Run;
use schedlab_stats::Estimate;
use std::path::{Path, PathBuf};

/// What the client's count is called in tables and gates.
pub const SUBJECT: &str = "client-log";
/// A server that has less of a CPU says nothing about its requests.
const MATTERS: f64 = 0.01;

/// `[CLASS=]FILE` of `--client-log`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientLogSpec {
    /// The server; `None`: the class with the largest share that has an end and is not the client.
    pub server: Option<String>,
    /// What the client printed.
    pub file: PathBuf,
}

impl ClientLogSpec {
    /// Reads `[CLASS=]FILE`: what is before the first `=` is the server, unless the whole text is the name of a file.
    pub fn parse(text: &str) -> ClientLogSpec {
        match text.split_once('=') {
            Some((server, file)) if !server.is_empty() && !Path::new(text).exists() => {
                ClientLogSpec { server: Some(server.to_owned()), file: file.into() }
            }
            _ => ClientLogSpec { server: None, file: text.into() },
        }
    }
}

/// A client's count, and the server that did the work.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ClientLog {
    /// The load generator.
    program: &'static str,
    server: String,
    requests_per_s: f64,
    /// What the server had of a CPU meanwhile.
    share: f64,
}

impl ClientLog {
    /// Reads the log, and finds the server in the recording.
    pub(super) fn open(spec: &ClientLogSpec, input: &RecordedInput) -> Result<ClientLog, StudyError> {
        let fail = |what: String| StudyError::Option(format!("--client-log {}: {what}", spec.file.display()));
        let bytes = std::fs::read(&spec.file).map_err(|error| fail(error.to_string()))?;
        let (program, requests_per_s) = client_count(&String::from_utf8_lossy(&bytes)).map_err(&fail)?;
        let measured = input.measured();
        let share = |name: &str| measured.find(Kind::Class, name)?.value(Metric::Share);
        let server = match &spec.server {
            Some(name) if share(name).is_some() => name.clone(),
            Some(name) => return Err(fail(format!("nothing in the recording is called `{name}`"))),
            None => {
                let found = server_of(input, program, &share);
                found.ok_or_else(|| fail("the recording has no server: name it, CLASS=FILE".to_owned()))?
            }
        };
        match share(&server) {
            Some(share) if share >= MATTERS => Ok(ClientLog { program, server, requests_per_s, share }),
            _ => Err(fail(format!(
                "{server} has less than 1 % of a CPU, too little to say what a request costs it"
            ))),
        }
    }

    /// Adds the count to what was simulated.
    pub(super) fn add_to(&self, runs: &mut [Vec<Run>]) {
        for run in runs.iter_mut().flatten() {
            let share = run.measured.find(Kind::Class, &self.server).and_then(|of| of.value(Metric::Share));
            let rate = self.requests_per_s * share.unwrap_or_default() / self.share;
            run.measured.count(SUBJECT, rate);
        }
    }

    /// Adds the error of the method: that of the server's share, and what the same request costs more or less another time.
    pub(super) fn add_error(&self, base: &[Run], errors: &mut Errors) {
        let of_share = errors.get(&(self.server.clone(), Metric::Share)).copied().unwrap_or_default();
        let simulated = Estimate::from_values(values(base, Kind::Source, SUBJECT, Metric::Throughput));
        let Some(simulated) = simulated.map(|of| of.median) else { return };
        let error = MethodError {
            apart: of_share.apart,
            drift: DRIFT_OF_RATES,
            anchor: Some((self.requests_per_s, simulated)),
            ..MethodError::between(self.requests_per_s, simulated)
        };
        errors.insert((SUBJECT.to_owned(), Metric::Throughput), error);
    }

    /// What a reader has to know of it.
    pub(super) fn note(&self) -> String {
        format!(
            "{SUBJECT}: {} counted {:.0} requests/s, {:.1} us of {} each; predicted as if a request cost the same",
            self.program,
            self.requests_per_s,
            self.share / self.requests_per_s * 1e6,
            self.server
        )
    }
}

/// The class with the largest share among those that have an end and are not the client.
fn server_of(input: &RecordedInput, program: &str, share: &dyn Fn(&str) -> Option<f64>) -> Option<String> {
    let endless = |name: &str| {
        let mut hogs = input.replay.report.hogs.iter();
        hogs.any(|task| input.classes.get(task.index()).is_some_and(|class| class == name))
    };
    // A task's name has 15 letters.
    let client = |name: &str| !name.is_empty() && program.starts_with(name);
    let mut names: Vec<&String> =
        input.classes.iter().filter(|name| !endless(name) && !client(name)).collect();
    names.sort_unstable();
    names.dedup();
    let shares = names.into_iter().filter_map(|name| Some((name, share(name)?)));
    shares.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name.clone())
}

/// The load generator that printed this, and the requests a second that it counted; else what is wrong with the text.
pub fn client_count(text: &str) -> Result<(&'static str, f64), String> {
    let lines = || text.split(['\n', '\r']).map(str::trim);
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let after = |begin: &str| {
        lines()
            .filter_map(|line| {
                number(line.strip_prefix(begin)?.split_whitespace().next()?.trim_end_matches(','))
            })
            .next_back()
    };
    let found = if let Some(rate) = after("Requests/sec:") {
        Some(("wrk", rate))
    } else if let Some(rate) = after("tps =") {
        // The last line is the one without the time to connect.
        Some(("pgbench", rate))
    } else if let Some(rate) = after("\"throughput_per_s\":") {
        Some(("schedlab", rate))
    } else if let Some(rate) = lines().filter_map(memcaslap).next_back() {
        Some(("memcaslap", rate))
    } else {
        // Its tests do the same number of requests, one test after the other.
        let rates: Vec<f64> = lines()
            .filter_map(|line| {
                number(line.split_once(" requests per second")?.0.split_whitespace().next_back()?)
            })
            .collect();
        let seconds: f64 = rates.iter().map(|rate| 1.0 / rate).sum();
        (!rates.is_empty()).then(|| ("redis-benchmark", rates.len() as f64 / seconds))
    };
    match found {
        Some((program, rate)) if rate.is_finite() && rate > 0.0 => Ok((program, rate)),
        Some((program, rate)) => {
            Err(format!("{program} counted {rate} requests a second: a number above 0 is needed"))
        }
        None => {
            Err("no count of requests is in it; what wrk, redis-benchmark, pgbench and memcaslap print is \
                     read (lines `Requests/sec:`, `... requests per second`, `tps =`, `Run time: ... TPS:`)"
                .to_owned())
        }
    }
}

/// The count in the last line of memcaslap: `Run time: 2.0s Ops: 112609 TPS: 56214 Net_rate: 62.9M/s`.
fn memcaslap(line: &str) -> Option<f64> {
    let mut words = line.strip_prefix("Run time:")?.split_whitespace();
    words.find(|word| *word == "TPS:")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_client_prints_is_read() {
        let wrk = "Running 3s test @ http://127.0.0.1:8080\n  1 threads and 4 connections\n  Thread Stats   Avg      Stdev\n\
                   \x20   Latency   186.50us  410.12us\n  78123 requests in 3.00s, 12.30MB read\nRequests/sec:  26040.71\n\
                   Transfer/sec:      4.10MB\n";
        let pgbench = "transaction type: <builtin: select only>\nnumber of clients: 4\nlatency average = 0.240 ms\n\
                       initial connection time = 8.1 ms\ntps = 16644.231905 (without initial connection time)\n";
        let quiet = "SET: rps=0.0 (overall: nan)\rSET: 60000.00 requests per second, p50=0.263 msec\n\
                     GET: 30000.00 requests per second, p50=0.27 msec\n";
        let long = "====== SET ======\n  100000 requests completed in 1.06 seconds\n  50 parallel clients\n\nSummary:\n\
                    \x20 throughput summary: 94339.62 requests per second\n  latency summary (msec):\n";
        let own = "{\n  \"sent\": 26556,\n  \"throughput_per_s\": 5218.5,\n  \"latency\": {}\n}\n";
        let memcached = "get_misses: 0\n\nRun time: 2.0s Ops: 112609 TPS: 56214 Net_rate: 62.9M/s\n";
        for (text, program, rate) in [
            (memcached, "memcaslap", 56214.0),
            (wrk, "wrk", 26040.71),
            (pgbench, "pgbench", 16644.231905),
            (quiet, "redis-benchmark", 40000.0),
            (long, "redis-benchmark", 94339.62),
            (own, "schedlab", 5218.5),
        ] {
            let (found, read) = client_count(text).unwrap();
            assert_eq!(found, program);
            assert!((read - rate).abs() < 0.01, "{program}: {read}");
        }
    }

    #[test]
    fn what_is_no_count_is_refused() {
        for text in [
            "",
            "hello",
            "Requests/sec: many",
            "Requests/sec: 0",
            "Requests/sec: nan",
            "x requests per second",
        ] {
            assert!(client_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_server_may_be_named() {
        let spec = |text: &str| ClientLogSpec::parse(text);
        assert_eq!(spec("wrk.txt"), ClientLogSpec { server: None, file: "wrk.txt".into() });
        assert_eq!(
            spec("nginx=out/wrk.txt"),
            ClientLogSpec { server: Some("nginx".to_owned()), file: "out/wrk.txt".into() }
        );
    }
}
