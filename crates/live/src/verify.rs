//! Plays the log of a live run into a new scheduler: the same steps must give the same decisions.

use crate::driver::LogLine;
use crate::logged_core::{CoreOptions, Decision, LoggedCore};
use schedlab_scheduler::KnobError;
use schedlab_scheduler::decision_core::Breach;
use schemars::JsonSchema;
use serde::Serialize;

/// Why a log cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// A line that is not of a log.
    #[error("line {line} is not of a log that `schedlab run --log` wrote: {fault}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        fault: String,
    },
    /// More CPUs or threads than any run has.
    #[error(
        "line 1 asks for {cpus} CPUs and {tasks} threads; at most 512 and 1,000,000 are possible"
    )]
    Size {
        /// CPUs.
        cpus: usize,
        /// Threads.
        tasks: usize,
    },
    /// The scheduler broke its contract.
    #[error("line {line}: {scheduler} broke the contract of a scheduler: {breach}")]
    Contract {
        /// Counted from 1.
        line: usize,
        /// The scheduler.
        scheduler: String,
        /// What it did.
        breach: Breach,
    },
    /// The scheduler of the log is not one of this program.
    #[error(transparent)]
    Scheduler(#[from] KnobError),
}

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-verify/1";

/// The JSON of `verify`: whether the log of a live run gives the same decisions again.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct VerifyOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// How the log was played.
    #[serde(flatten)]
    pub verdict: &'a Verdict,
}

/// How the log was played.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Verdict {
    /// The scheduler with its knobs.
    pub scheduler: String,
    /// Steps played.
    pub steps: usize,
    /// Decisions among them.
    pub decisions: usize,
    /// The first decision that differs; `None`: all are the same.
    pub differs: Option<Difference>,
}

/// A decision that came out otherwise.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Difference {
    /// Line of the log, counted from 1.
    pub line: usize,
    /// The logged and the played decision.
    pub what: String,
}

/// Plays a log.
///
/// # Errors
/// When a line is not of a log, the scheduler does not exist, or it breaks its contract.
pub fn verify(text: &str) -> Result<Verdict, VerifyError> {
    let bad = |line: usize, fault: serde_json::Error| VerifyError::Line {
        line,
        fault: fault.to_string(),
    };
    let mut lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
    let (_, first) = lines.next().unwrap_or((1, ""));
    let options: CoreOptions = serde_json::from_str(first).map_err(|fault| bad(1, fault))?;
    if options.cpus == 0 || options.cpus > 512 || options.tasks > 1_000_000 {
        return Err(VerifyError::Size { cpus: options.cpus, tasks: options.tasks });
    }
    let mut core = LoggedCore::new(&options)?;
    let mut verdict =
        Verdict { scheduler: options.scheduler, steps: 0, decisions: 0, differs: None };
    for (number, line) in lines {
        let logged: LogLine = serde_json::from_str(line).map_err(|fault| bad(number, fault))?;
        let played = core.step(&logged.step).map_err(|breach| VerifyError::Contract {
            line: number,
            scheduler: verdict.scheduler.clone(),
            breach,
        })?;
        let played = played.decision;
        verdict.steps += 1;
        verdict.decisions += usize::from(played.is_some());
        if played != logged.decision && verdict.differs.is_none() {
            let what = format!("logged {}, played {}", as_text(logged.decision), as_text(played));
            verdict.differs = Some(Difference { line: number, what });
        }
    }
    Ok(verdict)
}

fn as_text(decision: Option<Decision>) -> String {
    match decision {
        None => "no decision".to_owned(),
        Some(Decision { task: None, .. }) => "no task".to_owned(),
        Some(Decision { task: Some(task), slice: None }) => format!("task {task}"),
        Some(Decision { task: Some(task), slice: Some(slice) }) => {
            format!("task {task} for {slice}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"{"scheduler":"fifo-centralized","cpus":1,"tasks":4,"hz":250,"seed":1}
{"step":{"at":0,"what":{"join":{"task":0,"policy":"other","nice":0,"affinity":"0","process":7}}}}
{"step":{"at":5,"what":{"wake":{"task":0}}}}
{"step":{"at":6,"what":{"decide":{"cpu":0,"prev":"idle"}}},"decision":{"task":0,"slice":null}}
{"step":{"at":9,"what":{"decide":{"cpu":0,"prev":"blocked"}}},"decision":{"task":null,"slice":null}}
"#;

    #[test]
    fn a_true_log_is_confirmed_and_a_false_one_is_caught() {
        let good = verify(LOG).unwrap();
        assert_eq!((good.steps, good.decisions, good.differs), (4, 2, None));
        let bad = verify(&LOG.replace(r#""prev":"blocked""#, r#""prev":"runnable""#)).unwrap();
        assert_eq!(bad.differs.unwrap().line, 5);
    }

    /// Logs that earlier versions wrote (also what `cargo xtask fuzz` begins with).
    #[test]
    fn logs_of_earlier_versions_are_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/calls");
        let logs = std::fs::read_dir(folder).expect("the corpus of the fuzzer");
        let mut read = 0;
        for log in logs {
            let text = std::fs::read_to_string(log.expect("a file").path()).expect("text");
            let verdict = verify(&text).expect("a log");
            assert_eq!((verdict.steps, verdict.decisions), (6, 2), "{}", verdict.scheduler);
            read += 1;
        }
        assert_eq!(read, 3);
    }

    #[test]
    fn what_is_no_log_is_refused_with_its_line() {
        assert!(matches!(verify(""), Err(VerifyError::Line { line: 1, .. })));
        assert!(matches!(
            verify(&LOG.replace("wake", "awake")),
            Err(VerifyError::Line { line: 3, .. })
        ));
        assert!(matches!(
            verify(&LOG.replace("\"tasks\":4", "\"tasks\":4000000000")),
            Err(VerifyError::Size { .. })
        ));
        assert!(matches!(verify(&LOG.replace("fifo-c", "lifo-c")), Err(VerifyError::Scheduler(_))));
    }
}
