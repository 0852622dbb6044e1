//! `cargo xtask docs`: the parts of `docs/` that are made from code. `xtask tidy` fails when they are stale.

use crate::finding::Finding;
use crate::tree;
use anyhow::{Context, Result, bail};
use schedlab_scheduler::registry::{self, Entry};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

/// The generated file.
const SCHEDULERS: &str = "docs/schedulers.md";

/// Writes the generated files anew.
pub(crate) fn command(args: &[String]) -> Result<ExitCode> {
    if let Some(extra) = args.first() {
        bail!("docs takes no argument, but got `{extra}`");
    }
    let root = tree::root();
    std::fs::create_dir_all(root.join("docs"))?;
    std::fs::write(root.join(SCHEDULERS), schedulers(registry::all())).context(SCHEDULERS)?;
    println!("wrote {SCHEDULERS}");
    Ok(ExitCode::SUCCESS)
}

/// A finding for each generated file that is not what the code says now.
pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) {
    let there = std::fs::read_to_string(root.join(SCHEDULERS)).unwrap_or_default();
    if there != schedulers(registry::all()) {
        findings.push(Finding::new(SCHEDULERS, 0, "is stale: run `cargo xtask docs` and commit the result"));
    }
}

/// Every scheduler with its knobs, as Markdown.
fn schedulers(all: &[Entry]) -> String {
    let mut text = String::from(
        "# Schedulers and their knobs\n\n\
         Made by `cargo xtask docs` from the registry (`crates/scheduler/src/registry.rs`): do not edit by \
         hand.\nSet a knob after the name: `--scheduler linux-6.1:latency_ns=6ms,wakeup_granularity_ns=1ms`.\n\
         Knobs have the names and defaults of the real system.\n",
    );
    for entry in all {
        let _ = write!(text, "\n## {}\n{}\n", entry.name, entry.summary);
        let knobs = (entry.knobs)();
        if knobs.is_empty() {
            text.push_str("\nNo knobs.\n");
            continue;
        }
        text.push_str("\n| knob | default | allowed | what it does |\n|---|---|---|---|\n");
        for knob in knobs {
            let cell = |part: &str| part.replace('|', "\\|").replace('\n', " ");
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                knob.name,
                cell(knob.default),
                cell(knob.kind.to_string().split(", such as").next().unwrap_or_default()),
                cell(knob.doc)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::Ns;
    use schedlab_scheduler::{Knob, KnobKind};

    #[test]
    fn a_knob_becomes_a_row() {
        fn knobs() -> Vec<Knob> {
            let kind = KnobKind::Time(Ns::from_us(1), Ns::from_s(1));
            vec![Knob { name: "slice_ns", kind, default: "4ms", doc: "Length of a | slice." }]
        }
        let entry = Entry {
            name: "novel",
            summary: "For a test.",
            knobs,
            build: |_, _| unreachable!("nobody builds it"),
        };
        let text = schedulers(&[entry]);
        assert!(text.contains("## novel\nFor a test.\n"), "{text}");
        assert!(text.contains("| `slice_ns` | 4ms | a time from 1.00us to 1.00s"), "{text}");
        assert!(text.contains("a \\| slice"), "{text}");
    }
}
