//! `schedlab restore`: gives back what a crashed schedlab left behind. Also the report that
//! `detach` has in common with it.

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::render::Style;
use schedlab_live::RunDir;
use schedlab_live::detach::{Detached, Owners, RestoreOutput, detach};
use schedlab_live::restore::ItemOutcome;
use std::fmt::Write as _;

/// `schedlab restore`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab restore                 all as before, after a crash of schedlab and its guardian

Threads that a running schedlab manages are left alone (`schedlab detach` gives those back). \
Running it twice does no harm. Threads \
that ended, and settings that other programs changed meanwhile, are left as they are.")]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &RestoreArgs) -> anyhow::Result<Exit> {
    finish(&detach(&RunDir::standard()?, Owners::Dead)?, &args.format)
}

/// Prints what was given back. Returns [`Exit::Untrusted`] when something could not be.
pub(super) fn finish(done: &[Detached], format: &FormatArgs) -> anyhow::Result<Exit> {
    let text = format.print(
        None,
        || Ok(serde_json::to_value(RestoreOutput::new(done))?),
        |style| as_text(done, style),
    )?;
    output::write(None, &text)?;
    let complete = done.iter().all(|one| match one {
        Detached::ByOwner { .. } | Detached::Part { .. } => true,
        Detached::BySchedlab { report, .. } => report.complete(),
    });
    Ok(if complete { Exit::Done } else { Exit::Untrusted })
}

fn as_text(done: &[Detached], style: &Style) -> String {
    let mut text = String::new();
    for one in done {
        match one {
            Detached::Part { owner, process } => {
                let _ = writeln!(
                    text,
                    "process {owner} gave process {process} back, and still manages the rest"
                );
            }
            Detached::ByOwner { owner } => {
                let _ = writeln!(text, "process {owner} gave everything back");
            }
            Detached::BySchedlab { owner, report, journal } => {
                let _ = writeln!(text, "left behind by process {owner}, which is dead:");
                for item in &report.items {
                    let _ =
                        writeln!(text, "  {}: {}", item.what, outcome_text(&item.outcome, style));
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
    if text.is_empty() { "nothing has to be given back\n".to_owned() } else { text }
}

fn outcome_text(outcome: &ItemOutcome, style: &Style) -> String {
    match outcome {
        ItemOutcome::Restored => style.good("as before again"),
        ItemOutcome::AsBefore => "was as before".to_owned(),
        ItemOutcome::Gone => "gone".to_owned(),
        ItemOutcome::ChangedByOthers => {
            "changed by another program meanwhile; left as it is".to_owned()
        }
        ItemOutcome::Failed(reason) => style.bad(&format!("cannot be put back: {reason}")),
    }
}
