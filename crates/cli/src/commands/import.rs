//! `schedlab import`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::progress::Progress;
use crate::render::Style;
use anyhow::{Context, anyhow, bail};
use schedlab_files::NewFile;
use schedlab_model::text::quoted;
use schedlab_study::{gallery, rtapp};
use schedlab_trace::Recording;
use schedlab_trace::import::output::{ImportOutput, ImportedTrace, ImportedWorkload, SCHEMA};
use schedlab_trace::import::{
    self, ImportOptions, Input, KernelVersion, Loss, OddLines, Summary, Written, formats,
};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;
/// zstd level of the recording: 3 is what `record` uses.
const LEVEL: i32 = 3;
/// Losses that are listed.
const LISTED: usize = 5;

/// `schedlab import`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  perf script | schedlab import - -o mine.slt
  trace-cmd report | schedlab import - -o mine.slt
  schedlab import perf.data -o mine.slt                  also .gz and .zst of any kind
  schedlab import trace.pftrace -o mine.slt              a Perfetto trace with sched events
  schedlab import systrace.html -o mine.slt
  schedlab import workload.json -o mine.toml             an rt-app workload becomes a scenario

The kind of the file is told by its content. What is lost, odd or repaired is counted; the last \
line says how much was repaired. \
docs/exchange-formats.md lists every kind of file and what is kept of it.")]
pub(crate) struct ImportArgs {
    /// Read this trace (perf.data, a Perfetto trace, or the text of perf, ftrace, trace-cmd,
    /// atrace, systrace or LTTng) or rt-app workload; `-` is standard input
    input: String,
    /// Write this recording (.slt) or scenario (.toml); `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Treat the running task as the waker even where the trace does not show whether an interrupt
    /// was
    #[arg(long)]
    current_is_waker: bool,
    /// Refuse the first line that is not understood, instead of counting such lines
    #[arg(long)]
    strict: bool,
    /// Read time stamps that are whole numbers (trace_clock x86-tsc, counter) as ticks of a clock
    /// of this frequency
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    clock_hz: Option<u64>,
    /// Read task states that are numbers as those of this kernel release, such as 4.9
    #[arg(long, value_name = "VERSION")]
    kernel: Option<KernelVersion>,
    /// Read this machine of a Perfetto trace of several
    #[arg(long, value_name = "ID")]
    machine: Option<u32>,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<Exit> {
    output::check(&args.output)?;
    if is_rtapp(args) {
        return rtapp(args);
    }
    let options = ImportOptions {
        current_is_waker: args.current_is_waker,
        strict: args.strict,
        clock_hz: args.clock_hz,
        kernel: args.kernel,
        machine: args.machine,
        ..ImportOptions::default()
    };
    if Path::new(&args.input).is_dir() {
        bail!("{}: {}", args.input, formats::folder(Path::new(&args.input)));
    }
    let input = match args.input.as_str() {
        "-" => Input::Stream(Box::new(BufReader::with_capacity(CHUNK, crate::stdin::input()?))),
        path => {
            Input::File(schedlab_files::open(Path::new(path)).with_context(|| path.to_owned())?)
        }
    };
    let progress = Progress::with_verb(&format!("reading {}", args.input));
    let (summary, recording) = write(input, &args.output, options)
        .map_err(|error| anyhow!("{}: {error:#}", args.input))?;
    drop(progress);
    let Some(recording) = recording else {
        // What went into a pipe cannot be read again.
        let text = |_: &Style| {
            let mut text = String::new();
            about(&mut text, &summary);
            text
        };
        output::say(&args.output, &args.format.print(None, || json(args, &summary, None), text)?)?;
        return Ok(Exit::Done);
    };
    let value = || json(args, &summary, Some(&recording));
    output::write(
        None,
        &args.format.print(None, value, |_| told(&args.output, &recording, &summary))?,
    )?;
    Ok(Exit::Done)
}

/// Returns what was read; `recording` is what it became without its events, and how many it has,
/// unless that went into a pipe.
fn json(
    args: &ImportArgs,
    summary: &Summary,
    recording: Option<&(Recording, usize)>,
) -> anyhow::Result<Value> {
    let trace = ImportedTrace::new(&args.output, summary, recording);
    Ok(serde_json::to_value(ImportOutput::Trace(trace))?)
}

/// Writes beside the file and renames: what was there before is there until everything is written,
/// and was read back where that is possible. Returns what was imported, and the recording without
/// its events, and how many it has.
fn write(
    input: Input<'_>,
    path: &Path,
    options: ImportOptions,
) -> anyhow::Result<(Summary, Option<(Recording, usize)>)> {
    let place = || path.display().to_string();
    let mut out = BufWriter::with_capacity(CHUNK, NewFile::create(path).with_context(place)?);
    let Written { summary, recording } = import::write(input, &mut out, LEVEL, options)?;
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(place)?;
    let recording = match recording {
        _ if !file.can_be_read_back() => None,
        Some(recording) => Some(recording),
        // What is repaired is repaired whenever a recording is read: reading it says how much.
        None => {
            let listed = schedlab_study::show::checked(file.path())?;
            Some((listed.about, listed.events))
        }
    };
    file.commit().with_context(place)?;
    Ok((summary, recording))
}

fn told(output: &Path, (recording, events): &(Recording, usize), summary: &Summary) -> String {
    let mut text = format!(
        "{}: {} events of {} tasks on {} CPUs, {}\n",
        output.display(),
        events,
        recording.header.tasks.len(),
        recording.header.topology.cpus(),
        recording.duration
    );
    about(&mut text, summary);
    let _ = writeln!(text, "repairs: {}", recording.repairs);
    text
}

/// Adds what was left out, lost or odd in the input.
fn about(text: &mut String, summary: &Summary) {
    if !summary.ignored.is_empty() {
        let ignored: Vec<String> =
            summary.ignored.iter().map(|(name, count)| format!("{name} ({count})")).collect();
        let _ = writeln!(
            text,
            "left out, because they say nothing about the schedule: {}",
            ignored.join(", ")
        );
    }
    losses(text, summary);
    odd(text, "lines skipped that are no events", &summary.odd);
    odd(text, "scheduling events damaged (each is a loss in the recording)", &summary.damaged);
    for note in &summary.notes {
        let _ = writeln!(text, "note: {note}");
    }
}

fn losses(text: &mut String, summary: &Summary) {
    for Loss { cpu, count, from, to } in summary.losses.iter().take(LISTED) {
        let until = to.map_or("the end".to_owned(), |to| to.to_string());
        let events = if *count == 1 { "event is" } else { "events are" };
        let _ = writeln!(
            text,
            "lost: {count} {events} missing on CPU {cpu} between {from} and {until}"
        );
    }
    let more = summary.losses_in_all.saturating_sub(LISTED as u64);
    if more > 0 {
        let _ = writeln!(text, "lost: and events at {more} more places");
    }
}

fn odd(text: &mut String, what: &str, lines: &OddLines) {
    if lines.count == 0 {
        return;
    }
    let _ = writeln!(text, "{}: {what} (--strict refuses them); the first:", lines.count);
    for line in &lines.first {
        let _ = writeln!(text, "  line {}: {}: {}", line.line, quoted(line.text.trim()), line.why);
    }
}

/// An rt-app workload: by its content, or standard input that is to become a scenario.
fn is_rtapp(args: &ImportArgs) -> bool {
    let to_scenario = args.output.extension().is_some_and(|extension| extension == "toml");
    if args.input == "-" { to_scenario } else { gallery::is_rtapp(Path::new(&args.input)) }
}

fn rtapp(args: &ImportArgs) -> anyhow::Result<Exit> {
    for (given, option) in [
        (args.current_is_waker, "--current-is-waker"),
        (args.strict, "--strict"),
        (args.clock_hz.is_some(), "--clock-hz"),
        (args.kernel.is_some(), "--kernel"),
        (args.machine.is_some(), "--machine"),
    ] {
        if given {
            bail!(
                "{option} has a meaning only for recordings, and {} is an rt-app workload",
                args.input
            );
        }
    }
    let imported = if args.input == "-" {
        let mut text = String::new();
        crate::stdin::input()?.read_to_string(&mut text).context("standard input")?;
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        rtapp::parse("rt-app", "standard input", &text, cpus)
    } else {
        rtapp::load(Path::new(&args.input))
    }?;
    output::write(Some(&args.output), &imported.toml)?;
    let tasks = imported.scenario.workload.tasks.len();
    let value = || {
        let file = args.output.display().to_string();
        let (format, notes) = ("rt-app", &imported.notes[..]);
        let workload = ImportedWorkload { schema: SCHEMA, file, format, tasks, notes };
        Ok(serde_json::to_value(ImportOutput::Workload(workload))?)
    };
    let text = |_: &Style| {
        let notes: String = imported.notes.iter().map(|note| format!("  {note}\n")).collect();
        format!("{}: a scenario with {tasks} tasks\n{notes}", args.output.display())
    };
    output::say(&args.output, &args.format.print(None, value, text)?)?;
    Ok(Exit::Done)
}
