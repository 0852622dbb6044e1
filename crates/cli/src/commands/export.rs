//! `schedlab export`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::progress::Progress;
use crate::stdin;
use anyhow::{Context as _, bail};
use schedlab_study::rtapp;
use schedlab_trace::export::output::{ExportOutput, ExportedFile, SCHEMA};
use schedlab_trace::export::{self, Exported, Pseudonyms, anonymous};
use schedlab_trace::{Recording, TraceError};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// `schedlab export`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab export a.slt --perfetto a.pftrace      open it in https://ui.perfetto.dev
  schedlab export a.slt --csv tables              tables/events.csv, tasks.csv, waits.csv
  schedlab export a.slt --parquet tables          tables/events.parquet and five others
  schedlab export a.slt --ftrace a.txt --perf-script a.perf.txt
  schedlab export a.slt --systrace a.html --trace-cmd a.report.txt --lttng a.lttng.txt
  schedlab export a.slt --rt-app a.json           what its tasks wanted, for rt-app
  schedlab export a.slt --anonymous b.slt         the same without names, to be passed on
  perf script | schedlab export - --perfetto a.pftrace

Files are written whole or not at all; `-` is standard output. docs/exchange-formats.md says what \
each format carries.")]
pub(crate) struct ExportArgs {
    /// Read this recording (.slt) or trace of another tool; `-` is standard input
    input: String,
    /// Write a Perfetto trace (protobuf)
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Write the text of ftrace
    #[arg(long, value_name = "FILE")]
    ftrace: Option<PathBuf>,
    /// Write what `perf script` would print
    #[arg(long, value_name = "FILE")]
    perf_script: Option<PathBuf>,
    /// Write what `trace-cmd report -t` would print
    #[arg(long, value_name = "FILE")]
    trace_cmd: Option<PathBuf>,
    /// Write a page of systrace (HTML)
    #[arg(long, value_name = "FILE")]
    systrace: Option<PathBuf>,
    /// Write what babeltrace prints of an LTTng trace
    #[arg(long, value_name = "FILE")]
    lttng: Option<PathBuf>,
    /// Write an rt-app workload (JSON)
    #[arg(long, value_name = "FILE")]
    rt_app: Option<PathBuf>,
    /// Write a recording (.slt) that a stranger may have: names of tasks, groups and hosts are
    /// pseudonyms, ids are other numbers, command, note and date are gone; times stay
    #[arg(long, value_name = "FILE")]
    anonymous: Option<PathBuf>,
    /// Make the pseudonyms from this file's bytes, so that recordings fit together [default: a
    /// random key, which is kept nowhere]
    #[arg(long, value_name = "FILE", requires = "anonymous")]
    key: Option<PathBuf>,
    /// Write events.csv, tasks.csv and waits.csv into this folder
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Write each table of docs/tables.md into this folder: events.parquet, tasks.parquet,
    /// latencies.parquet, slices.parquet, migrations.parquet and blame.parquet
    #[cfg(feature = "parquet")]
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

impl ExportArgs {
    /// The folder of Parquet files.
    fn parquet(&self) -> Option<&Path> {
        #[cfg(feature = "parquet")]
        return self.parquet.as_deref();
        #[cfg(not(feature = "parquet"))]
        None
    }
}

/// Returns the key of the pseudonyms.
fn key(file: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let Some(file) = file else {
        let mut random = vec![0; 32];
        let mut source = std::fs::File::open("/dev/urandom").context("/dev/urandom")?;
        source.read_exact(&mut random).context("/dev/urandom")?;
        return Ok(random);
    };
    let key = std::fs::read(file).with_context(|| format!("--key {}", file.display()))?;
    if key.is_empty() {
        bail!("--key {}: the file is empty, and names could be tried out", file.display());
    }
    Ok(key)
}

type Write = fn(&Recording, &mut dyn std::io::Write) -> std::io::Result<Exported>;

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<Exit> {
    let files: [(&str, &Option<PathBuf>, Write); 6] = [
        ("perfetto", &args.perfetto, export::perfetto),
        ("ftrace", &args.ftrace, export::ftrace),
        ("perf-script", &args.perf_script, export::perf_script),
        ("trace-cmd", &args.trace_cmd, export::trace_cmd),
        ("systrace", &args.systrace, export::systrace),
        ("lttng", &args.lttng, export::lttng),
    ];
    let folders = [args.csv.as_deref(), args.parquet()];
    if files.iter().all(|(_, path, _)| path.is_none())
        && folders == [None, None]
        && args.rt_app.is_none()
        && args.anonymous.is_none()
    {
        let options: Vec<String> =
            files.iter().map(|(name, ..)| format!("--{name} FILE")).collect();
        bail!(
            "say what to write: {}, --rt-app FILE, --anonymous FILE, --csv DIR or --parquet DIR",
            options.join(", ")
        );
    }
    let paths =
        || files.iter().filter_map(|(_, path, _)| path.as_deref()).chain(args.rt_app.as_deref());
    if paths().filter(|path| output::is_stdout(path)).count() > 1 {
        bail!("only one of the files can be standard output (`-`)");
    }
    for path in paths().chain(args.anonymous.as_deref()) {
        output::check(path)?;
    }
    if args.anonymous.as_deref().is_some_and(output::is_stdout) {
        bail!("--anonymous -: a recording is written to a file");
    }
    let _progress = Progress::with_verb(&format!("exporting {}", args.input));
    let mut recording = open(&args.input)?;
    let tables = tables(args, &recording)?;
    // Tables say what `show` says. A trace is read back as it is written: nothing is left in it to
    // repair.
    if files.iter().any(|(_, path, _)| path.is_some()) {
        recording = recording.settled();
    }
    let mut made: Vec<(&str, &Path, Exported)> = Vec::new();
    for (format, path, write) in files {
        if let Some(path) = path {
            let exported: Result<_, TraceError> =
                export::whole_file(path, |out| write(&recording, out));
            made.push((format, path, exported?));
        }
    }
    made.extend(tables);
    if let Some(path) = &args.anonymous {
        anonymous(&mut recording, &Pseudonyms::new(&key(args.key.as_deref())?));
        schedlab_trace::save(&recording, path)?;
        made.push(("slt", path, Exported::default()));
    }
    let text =
        args.format.print(None, || json(&recording, &made), |_| as_text(&recording, &made))?;
    // One of the files may be standard output.
    match made.iter().find(|(_, path, _)| output::is_stdout(path)) {
        Some((_, path, _)) => output::say(path, &text)?,
        None => output::write(None, &text)?,
    }
    Ok(Exit::Done)
}

/// Writes what says what `show` says, as the recording is.
fn tables<'a>(
    args: &'a ExportArgs,
    recording: &Recording,
) -> anyhow::Result<Vec<(&'static str, &'a Path, Exported)>> {
    let mut tables: Vec<(&str, &Path, Exported)> = Vec::new();
    if let Some(path) = &args.rt_app {
        let workload = rtapp::export(recording)?;
        output::write(Some(path), &workload.json)?;
        let notes = workload.notes;
        tables.push(("rt-app", path, Exported { notes, ..Exported::default() }));
    }
    if let Some(folder) = &args.csv {
        tables.push(("csv", folder, export::csv(recording, folder)?));
    }
    if let Some(folder) = args.parquet() {
        tables.push(("parquet", folder, parquet(recording, folder)?));
    }
    Ok(tables)
}

/// Opens the recording. An error names it.
fn open(input: &str) -> anyhow::Result<Recording> {
    Recording::open(stdin::given(input)?).map_err(|error| match error {
        // This error names the file itself.
        TraceError::File { .. } => error.into(),
        _ => anyhow::Error::from(error).context(input.to_owned()),
    })
}

/// Writes every table that the recording has.
#[cfg(feature = "parquet")]
fn parquet(recording: &Recording, folder: &Path) -> anyhow::Result<Exported> {
    use schedlab_tables::{parquet, recorded};
    let (mut notes, mut failed, mut files) = (Vec::new(), None, Vec::new());
    for name in recorded() {
        let file = format!("{name}.parquet");
        match schedlab_tables::check(recording, name) {
            Ok(()) => files.push((name, file)),
            Err(why) => notes.push(format!("without {file}: {why}")),
        }
    }
    export::whole_folder(
        folder,
        &files,
        |(_, file)| file,
        |(name, file), out| {
            match parquet::of_recording(recording, name, out) {
                Ok(rows) => notes.push(format!("{file}: {rows} rows")),
                Err(error) => failed = Some(error),
            }
            Ok(failed
                .as_ref()
                .map_or(Ok(()), |error| Err(std::io::Error::other(error.to_string()))))
        },
    )?;
    Ok(Exported { notes, ..Exported::counted(recording) })
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: &Recording, _: &Path) -> anyhow::Result<Exported> {
    Ok(Exported::default())
}

fn as_text(recording: &Recording, made: &[(&str, &Path, Exported)]) -> String {
    let mut text = String::new();
    for (format, path, exported) in made {
        let Exported { switches, wakes, .. } = exported;
        text += &match *format {
            "rt-app" => format!("{} ({format}): a workload\n", path.display()),
            _ => format!("{} ({format}): {switches} switches, {wakes} wakeups\n", path.display()),
        };
        for (what, count) in &exported.left_out {
            text += &format!("  left out, because the format cannot express it: {count} {what}\n");
        }
        for note in &exported.notes {
            text += &format!("  {note}\n");
        }
    }
    if !recording.repairs.is_clean() {
        text += &format!("the recording was repaired when it was read: {}\n", recording.repairs);
    }
    text
}

fn json(
    recording: &Recording,
    made: &[(&str, &Path, Exported)],
) -> anyhow::Result<serde_json::Value> {
    let files = made
        .iter()
        .map(|(format, path, exported)| ExportedFile::new(format, path, exported))
        .collect();
    Ok(serde_json::to_value(ExportOutput { schema: SCHEMA, files, repairs: &recording.repairs })?)
}
