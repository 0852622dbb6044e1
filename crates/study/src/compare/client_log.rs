//! The client's own count: what a load generator printed while its server was recorded.
//!
//! Where a server takes several requests in one activation, a recording does not show how many it
//! answered. The client knows. What one request costs the server in CPU time follows from both, and
//! a prediction of the server's share is one of requests a second, as far as a request costs the
//! same. A replay by messages has the requests themselves: then the count changes as they do.

use super::clients::client_count;
use super::recorded::RecordedInput;
use super::trust::drift;
use super::{Errors, values};
use crate::StudyError;
use crate::change::MethodError;
use crate::measurements::{Kind, Measured};
use crate::metric::Metric;
use crate::run::Run;
use schedlab_stats::Estimate;
use schedlab_trace::Capability;
use std::path::{Path, PathBuf};

/// What the client's count is called in tables and gates.
pub const SUBJECT: &str = "client-log";
/// A server that has less of a CPU says nothing about its requests.
const MATTERS: f64 = 0.01;
/// The largest report of a load generator that is read.
const LOG_MAX: u64 = 64 << 20;

/// `[CLASS=]FILE` of `--client-log`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientLogSpec {
    /// The server; `None`: the program that answers most requests where messages were recorded,
    /// else the class with the largest share that has an end and is not the client.
    pub server: Option<String>,
    /// What the client printed.
    pub file: PathBuf,
}

impl ClientLogSpec {
    /// Reads `[CLASS=]FILE`: what is before the first `=` is the server, unless the whole text is
    /// the name of a file.
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
    program: String,
    server: String,
    requests_per_s: f64,
    /// What the server had of a CPU meanwhile.
    share: f64,
    /// Where a replay knows requests: the port or path over which most were answered, and how many
    /// a second.
    answered: Option<(String, f64)>,
}

impl ClientLog {
    /// Reads the log, and finds the server in the recording.
    pub(super) fn open(
        spec: &ClientLogSpec,
        input: &RecordedInput,
    ) -> Result<ClientLog, StudyError> {
        let fail = |what: String| {
            StudyError::Option(format!("--client-log {}: {what}", spec.file.display()))
        };
        let bytes =
            schedlab_files::read(&spec.file, LOG_MAX).map_err(|error| fail(error.to_string()))?;
        let counted = client_count(&String::from_utf8_lossy(&bytes)).map_err(&fail)?;
        let (program, requests_per_s) = (program(counted.programs, input), counted.per_s);
        let measured = input.measured();
        let share = |name: &str| measured.find(Kind::Class, name)?.value(Metric::Share);
        let server = match &spec.server {
            Some(name) if share(name).is_some() => name.clone(),
            Some(name) => return Err(fail(format!("nothing in the recording is called `{name}`"))),
            None => {
                let found = server_of(input, counted.programs, &share);
                found.ok_or_else(|| {
                    fail("the recording has no server: name it, CLASS=FILE".to_owned())
                })?
            }
        };
        match share(&server) {
            Some(share) if share >= MATTERS => {
                let answered = answered(&measured);
                Ok(ClientLog { program, server, requests_per_s, share, answered })
            }
            _ => Err(fail(format!(
                "{server} has less than 1 % of a CPU, too little to say what a request costs it"
            ))),
        }
    }

    /// Adds the count to what was simulated.
    pub(super) fn add_to(&self, runs: &mut [Vec<Run>]) {
        for run in runs.iter_mut().flatten() {
            let value = |kind, name: &str, metric| {
                run.measured.find(kind, name).and_then(|of| of.value(metric)).unwrap_or_default()
            };
            let part = match &self.answered {
                Some((over, rate)) => value(Kind::Channel, over, Metric::Throughput) / rate,
                None => value(Kind::Class, &self.server, Metric::Share) / self.share,
            };
            run.measured.count(SUBJECT, self.requests_per_s * part);
        }
    }

    /// Adds the error of the method: that of the server's share (or of the requests that it
    /// answers), and what the same request costs more or less another time.
    pub(super) fn add_error(&self, base: &[Run], input: &RecordedInput, errors: &mut Errors) {
        let of = match &self.answered {
            Some((over, _)) => (over.clone(), Metric::Throughput),
            None => (self.server.clone(), Metric::Share),
        };
        let of_server = errors.get(&of).copied().unwrap_or_default();
        let simulated =
            Estimate::from_values(values(base, Kind::Source, SUBJECT, Metric::Throughput));
        let Some(simulated) = simulated.map(|of| of.median) else { return };
        // As a part of what it counts.
        let spread = match of.1 {
            Metric::Share => of_server.spread / self.share,
            _ => of_server.spread,
        };
        let error = MethodError {
            apart: of_server.apart,
            drift: drift(Metric::Throughput, input),
            spread,
            anchor: Some((self.requests_per_s, simulated)),
            ..MethodError::between(self.requests_per_s, simulated)
        };
        errors.insert((SUBJECT.to_owned(), Metric::Throughput), error);
    }

    /// What a reader has to know of it.
    pub(super) fn note(&self) -> String {
        let each = self.share / self.requests_per_s * 1e6;
        let (program, server) = (&self.program, &self.server);
        let counted = format!(
            "{SUBJECT}: {program} counted {:.0} requests/s, {each:.1} us of {server} each",
            self.requests_per_s
        );
        match &self.answered {
            Some((over, _)) => format!("{counted}; predicted by the requests answered over {over}"),
            None => format!("{counted}; predicted as if a request cost the same"),
        }
    }
}

/// Returns over which port or path most requests were answered, and how many a second.
fn answered(measured: &Measured) -> Option<(String, f64)> {
    let channels = measured.subjects.iter().filter(|subject| subject.kind == Kind::Channel);
    let rates = channels.filter_map(|of| Some((of.name.clone(), of.value(Metric::Throughput)?)));
    rates.filter(|(_, rate)| *rate > 0.0).max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
}

/// A task's name has 15 letters.
fn is(program: &str, class: &str) -> bool {
    program == class || (class.len() == 15 && program.starts_with(class))
}

/// Which of the programs that print alike it was: the one that is in the recording, if one is.
fn program(programs: &[&str], input: &RecordedInput) -> String {
    let recorded =
        programs.iter().find(|program| input.classes.iter().any(|class| is(program, class)));
    recorded.map_or_else(|| programs.join(" or "), |program| (*program).to_owned())
}

/// The program that answers most requests, where messages were recorded; else the class with the
/// largest share among those that have an end and are not the client.
fn server_of(
    input: &RecordedInput,
    programs: &[&str],
    share: &dyn Fn(&str) -> Option<f64>,
) -> Option<String> {
    let endless = |name: &str| {
        let mut hogs = input.replay.report.hogs.iter();
        hogs.any(|task| input.classes.get(task.index()).is_some_and(|class| class == name))
    };
    let client = |name: &str| programs.iter().any(|program| is(program, name));
    let mut names: Vec<&String> =
        input.classes.iter().filter(|name| !endless(name) && !client(name)).collect();
    names.sort_unstable();
    names.dedup();
    let by_messages = input.header.capabilities.has(Capability::Messages);
    if let Some(guess) = input.guess.as_ref().filter(|_| by_messages)
        && let Some(&name) = names.iter().find(|name| ***name == guess.name)
    {
        return Some(name.clone());
    }
    let shares = names.into_iter().filter_map(|name| Some((name, share(name)?)));
    shares.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

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
