//! `schedlab import`

use crate::exit::Exit;
use crate::output;
use anyhow::{Context, anyhow, bail};
use schedlab_study::rtapp;
use schedlab_trace::import::{self, ImportOptions};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// `schedlab import`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  perf sched record -- sleep 5 && perf script | schedlab import - -o mine.slt
  trace-cmd report | schedlab import - -o mine.slt
  schedlab import perf.txt -o mine.slt
  schedlab import trace.pftrace -o mine.slt              a Perfetto trace with sched events
  schedlab import workload.json -o mine.toml             an rt-app workload becomes a scenario

Lossy or misordered input is repaired; the last line says how much was.")]
pub(crate) struct ImportArgs {
    /// Read this Perfetto trace, text of `perf script` or of ftrace with sched events, or rt-app workload (.json); `-` is standard
    /// input
    input: String,
    /// Write this recording (.slt) or scenario (.toml); `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Treat the running task as the waker even where the text does not show whether an interrupt was
    #[arg(long)]
    current_is_waker: bool,
}

pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<Exit> {
    output::check(&args.output)?;
    if is_rtapp(args) {
        return rtapp(args);
    }
    let options = ImportOptions { current_is_waker: args.current_is_waker };
    let imported = if args.input == "-" {
        import::any(std::io::stdin().lock(), options)
    } else {
        let file = std::fs::File::open(&args.input).with_context(|| args.input.clone())?;
        import::any(BufReader::new(file), options)
    };
    let imported = imported.map_err(|error| anyhow!("{}: {error}", args.input))?;
    schedlab_trace::save(&imported.recording, &args.output)?;
    let recording = &imported.recording;
    let mut text = format!(
        "{}: {} events of {} tasks on {} CPUs, {}\n",
        args.output.display(),
        recording.events.len(),
        recording.header.tasks.len(),
        recording.header.topology.cpus(),
        recording.duration
    );
    if !imported.ignored.is_empty() {
        let ignored: Vec<String> =
            imported.ignored.iter().map(|(name, count)| format!("{name} ({count})")).collect();
        text += &format!(
            "left out, because these events say nothing about the schedule: {}\n",
            ignored.join(", ")
        );
    }
    text += &format!("repairs: {}\n", recording.repairs);
    output::say(&args.output, &text)?;
    Ok(Exit::Done)
}

/// Returns whether the input is an rt-app workload: a `.json` file, or standard input that becomes a scenario.
fn is_rtapp(args: &ImportArgs) -> bool {
    let ends = |path: &Path, with: &str| path.extension().is_some_and(|extension| extension == with);
    ends(Path::new(&args.input), "json") || (args.input == "-" && ends(&args.output, "toml"))
}

fn rtapp(args: &ImportArgs) -> anyhow::Result<Exit> {
    if args.current_is_waker {
        bail!(
            "--current-is-waker has a meaning only for recordings, and {} is an rt-app workload",
            args.input
        );
    }
    let imported = if args.input == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("standard input")?;
        rtapp::parse("rt-app", "standard input", &text)
    } else {
        rtapp::load(Path::new(&args.input))
    }?;
    output::write(Some(&args.output), &imported.toml)?;
    let workload = &imported.scenario.workload;
    let mut text = format!("{}: a scenario with {} tasks\n", args.output.display(), workload.tasks.len());
    for note in &imported.notes {
        text += &format!("  {note}\n");
    }
    output::say(&args.output, &text)?;
    Ok(Exit::Done)
}
