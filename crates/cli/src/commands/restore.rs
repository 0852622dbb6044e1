//! `schedlab detach` and `schedlab restore`: everything is given back.

use super::status::SCHEMA;
use crate::render::Style;
use crate::{Done, output};
use schedlab_live::RunDir;
use schedlab_live::detach::{Detached, Owners, detach as give_back, detach_process};
use schedlab_live::restore::{ItemOutcome, Report};
use std::fmt::Write as _;

/// `schedlab detach`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab detach                  whatever schedlab manages is as before
  schedlab detach --pid 957        this process and its children are; the rest is managed on

An owner that does not give back within two seconds is killed, and everything is put back from its journal.")]
pub(crate) struct Detach {
    /// Give back this process with its children only
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// `schedlab restore`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab restore                 all as before, after a crash of schedlab and its guardian

What a living schedlab manages is left alone (`schedlab detach` ends that). Doing it twice does no harm. Threads that \
ended, and what others changed meanwhile, are left as they are.")]
pub(crate) struct Restore {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn detach(args: &Detach) -> anyhow::Result<Done> {
    let run_dir = RunDir::standard()?;
    match args.pid {
        Some(process) => finish(&[detach_process(&run_dir, process)?], args.json),
        None => finish(&give_back(&run_dir, Owners::All)?, args.json),
    }
}

pub(crate) fn restore(args: &Restore) -> anyhow::Result<Done> {
    finish(&give_back(&RunDir::standard()?, Owners::Dead)?, args.json)
}

fn finish(done: &[Detached], json: bool) -> anyhow::Result<Done> {
    let text = if json { as_json(done)? } else { as_text(done, &Style::of_stdout()) };
    output::write(None, &text)?;
    let complete = done.iter().all(|one| match one {
        Detached::ByOwner { .. } | Detached::Part { .. } => true,
        Detached::BySchedlab { report, .. } => report.complete(),
    });
    Ok(if complete { Done::Well } else { Done::Untrusted })
}

fn as_json(done: &[Detached]) -> anyhow::Result<String> {
    let nothing = Report::default();
    let one = |one: &Detached| {
        let (owner, by, report) = match one {
            Detached::ByOwner { owner } | Detached::Part { owner, .. } => (owner, "owner", &nothing),
            Detached::BySchedlab { owner, report, .. } => (owner, "schedlab", report),
        };
        serde_json::json!({ "owner": owner, "by": by, "items": report.items })
    };
    let all: Vec<_> = done.iter().map(one).collect();
    Ok(serde_json::to_string_pretty(&serde_json::json!({ "schema": SCHEMA, "given_back": all }))? + "\n")
}

fn as_text(done: &[Detached], style: &Style) -> String {
    let mut text = String::new();
    for one in done {
        match one {
            Detached::Part { owner, process } => {
                let _ =
                    writeln!(text, "process {owner} gave process {process} back, and manages the rest on");
            }
            Detached::ByOwner { owner } => {
                let _ = writeln!(text, "process {owner} gave everything back");
            }
            Detached::BySchedlab { owner, report, journal } => {
                let _ = writeln!(text, "left behind by process {owner} (dead now):");
                for item in &report.items {
                    let _ = writeln!(text, "  {}: {}", item.what, words(&item.outcome, style));
                }
                if report.items.is_empty() {
                    let _ = writeln!(text, "  nothing was changed");
                }
                if !report.complete() {
                    let _ = writeln!(text, "  the journal stays: {}", journal.display());
                }
            }
        }
    }
    if text.is_empty() { "there is nothing to give back\n".to_owned() } else { text }
}

fn words(outcome: &ItemOutcome, style: &Style) -> String {
    match outcome {
        ItemOutcome::Restored => style.good("as before again"),
        ItemOutcome::AsBefore => "was as before".to_owned(),
        ItemOutcome::Gone => "gone".to_owned(),
        ItemOutcome::ChangedByOthers => "changed by somebody else meanwhile; left as it is".to_owned(),
        ItemOutcome::Failed(reason) => style.bad(&format!("cannot be put back: {reason}")),
    }
}
