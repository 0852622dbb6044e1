//! `schedlab status`: which threads schedlab manages now.

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::render::Style;
use schedlab_live::RunDir;
use schedlab_live::status::{Managed, ManagedThread, SCHEMA, StatusOutput, status};
use std::fmt::Write as _;

/// `schedlab status`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab status                  which process manages which threads, with their policies
  schedlab status --json | jq '.managed[].threads[].tid'

Journals of what was before lie in /run/schedlab (root) or $XDG_RUNTIME_DIR/schedlab; \
SCHEDLAB_RUN_DIR names another folder.")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Exit> {
    let managed = status(&RunDir::standard()?)?;
    let text = |style: &Style| {
        let mut text = String::new();
        managed.iter().for_each(|one| show(&mut text, one, style));
        if text.is_empty() { "nothing is managed\n".to_owned() } else { text }
    };
    let value = || Ok(serde_json::to_value(StatusOutput { schema: SCHEMA, managed: &managed })?);
    output::write(None, &args.format.print(None, value, text)?)?;
    Ok(Exit::Done)
}

fn show(text: &mut String, managed: &Managed, style: &Style) {
    let state = if managed.stale {
        style.dim("from an earlier boot: `schedlab restore` removes the file")
    } else if managed.owner_lives {
        style.good("lives; `schedlab detach` ends it")
    } else {
        style.bad("is dead: `schedlab restore` puts back what it left")
    };
    let _ = writeln!(text, "{} (process {} {state})", style.bold(&managed.purpose), managed.owner);
    for thread in &managed.threads {
        let _ = writeln!(text, "  {:>7}  {:<16} {}", thread.tid, thread.comm, change(thread));
    }
    for file in &managed.files {
        let _ = writeln!(text, "  {}", file.display());
    }
}

/// `other -> fifo:3, CPUs 0-1 -> 0`
fn change(thread: &ManagedThread) -> String {
    let mut parts = Vec::new();
    if let (Some(before), Some(now)) = (&thread.before, &thread.now) {
        let mut part = format!("{} -> {}", before.policy_name(), now.policy_name());
        if before.nice != now.nice {
            let _ = write!(part, ", nice {} -> {}", before.nice, now.nice);
        }
        parts.push(part);
    }
    if let (Some(before), Some(now)) = (&thread.affinity_before, &thread.affinity_now) {
        parts.push(format!("CPUs {before} -> {now}"));
    }
    parts.join(", ")
}
