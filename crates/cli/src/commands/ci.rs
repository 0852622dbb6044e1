//! `schedlab ci`

use super::compare::request::{RequestArgs, Which};
use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::progress::Progress;
use crate::render;
use anyhow::{Context as _, anyhow};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use schedlab_scheduler::{SchedulerSpec, registry};
use schedlab_study::compare::RowGate;
use schedlab_study::compare::request::CompareOption;
use schedlab_study::corpus::{self, CorpusFile, CorpusRequest, CorpusResult, FileOutcome};
use schedlab_study::gate::GateOutcome;
use schedlab_study::result::Gated;
use std::path::{Path, PathBuf};

/// `schedlab ci`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum CiCommand {
    /// Play every recording and scenario of a folder under two schedulers, and fail when a
    /// condition is met
    Run(CiRunArgs),
}

/// `schedlab ci run`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab ci run corpus/ --scheduler linux-7.2 --against linux-6.12 \\
                          --fail-if 'redis-server latency p99 > +20%' --fail-if '* share < -5%'
  schedlab ci run corpus/ --scheduler linux-6.18:base_slice_ns=6ms --against linux-6.18 \\
                          --fail-if 'server response p99 > +10%' --junit junit.xml
  schedlab ci run corpus/ ... --by pod --fail-if 'shop/cart* latency p99 > +20%'
  schedlab ci run corpus/ ... --format markdown >> \"$GITHUB_STEP_SUMMARY\"

Gates are those of `compare`. One that names no row is about --scheduler, and a change is counted \
from --against. A gate holds where its subject is; one that is about nothing in any file is an \
error. --by makes pods, units, ... the subjects of recordings; a scenario's tasks have their names. Lines for GitHub and GitLab are in docs/exchange-formats.md.

Exit codes: 0 no gate failed, 1 a gate failed, 2 a file could not be read or compared, 3 the data \
cannot carry a gate.")]
pub(crate) struct CiRunArgs {
    /// The folder; recordings (.slt) and scenarios (.toml) in it and below it are taken
    folder: PathBuf,
    /// The scheduler that is judged, with its knobs
    #[arg(long, value_name = "NAME")]
    scheduler: String,
    /// The scheduler that changes are counted from
    #[arg(long, value_name = "NAME")]
    against: String,
    /// Fail when this holds: 'redis-server latency p99 > +20%' (may be given several times)
    #[arg(long = "fail-if", value_name = "EXPR", required = true)]
    fail_if: Vec<String>,
    #[command(flatten)]
    request: RequestArgs<Runs>,
    /// Write what CI servers read to this file too: JUnit's XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How often and how long every file is run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Runs;

impl Which for Runs {
    fn has(option: &CompareOption) -> bool {
        ["seed", "seeds", "duration", "replay", "jobs", "kernel_btf", "by"].contains(&option.name)
    }
}

pub(crate) fn run(CiCommand::Run(args): &CiCommand) -> anyhow::Result<Exit> {
    output::check_both(args.output.as_deref(), args.junit.as_deref())?;
    let gate = |text: &String| RowGate::parse(text).map_err(|error| anyhow!("--fail-if {error}"));
    let request = CorpusRequest {
        scheduler: scheduler("--scheduler", &args.scheduler)?,
        against: scheduler("--against", &args.against)?,
        gates: args.fail_if.iter().map(gate).collect::<anyhow::Result<_>>()?,
        compare: (*args.request.0).clone(),
    };
    let progress = Progress::with_verb("comparing");
    let found = corpus::run(&args.folder, &request, &|done, all| progress.set(done, all))?;
    drop(progress);
    if let Some(path) = &args.junit {
        let text = junit(&args.folder, &found).to_string().context("JUnit's XML")?;
        output::write(Some(path), &text)?;
    }
    let text = args.format.print(
        args.output.as_deref(),
        || Ok(&found),
        |style| render::corpus(&found, style),
    )?;
    output::write(args.output.as_deref(), &text)?;
    Ok(match found.count(FileOutcome::Error) {
        _ if found.count(FileOutcome::Failed) > 0 => Exit::ExpectationFailed,
        0 if found.count(FileOutcome::CannotSay) > 0 => Exit::Untrusted,
        0 => Exit::Done,
        wrong => anyhow::bail!("{wrong} files could not be compared; what came of them is above"),
    })
}

fn scheduler(option: &str, text: &str) -> anyhow::Result<SchedulerSpec> {
    let spec: SchedulerSpec = text.parse().with_context(|| option.to_owned())?;
    registry::check(&spec).with_context(|| option.to_owned())?;
    Ok(spec)
}

/// Returns a test case for each gate and subject of each file. What cannot be judged is skipped,
/// with the reason: it is no failure of the scheduler.
fn junit(folder: &Path, found: &CorpusResult) -> Report {
    let mut report = Report::new("schedlab");
    for file in &found.files {
        let mut suite = TestSuite::new(file.file.clone());
        if file.outcome == FileOutcome::Error {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_message(file.message.clone());
            suite.add_test_case(TestCase::new("compared", status));
        }
        let cases = file.gates.iter().map(|gated| case(folder, file, gated));
        suite.add_test_cases(cases);
        report.add_test_suite(suite);
    }
    report
}

fn case(folder: &Path, file: &CorpusFile, gated: &Gated) -> TestCase {
    let mut status = match gated.outcome {
        GateOutcome::Not => TestCaseStatus::success(),
        GateOutcome::Met => TestCaseStatus::non_success(NonSuccessKind::Failure),
        GateOutcome::CannotSay => TestCaseStatus::skipped(),
    };
    status.set_message(gated.got.clone());
    let name = format!("{} ({})", gated.gate, gated.subject);
    let mut case = TestCase::new(name, status);
    case.set_classname(folder.join(&file.file).display().to_string());
    case
}
