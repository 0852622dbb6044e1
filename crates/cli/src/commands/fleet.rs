//! `schedlab show FOLDER` and `schedlab compare FOLDER`: the recordings of many machines.

use super::show::{ShowArgs, by};
use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::progress::Progress;
use crate::render;
use anyhow::bail;
use schedlab_study::compare::request::CompareRequest;
use schedlab_study::fleet;
use schedlab_study::together::Together;
use schedlab_trace::analysis::By;
use std::path::Path;

/// Whether an input is a folder.
pub(crate) fn is_folder(input: &str) -> bool {
    Path::new(input).is_dir()
}

/// Refuses options that a folder has no meaning for. Each with whether it was given.
fn refuse(folder: &str, given: &[(&str, bool)], takes: &str) -> anyhow::Result<()> {
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => bail!(
            "{option} is for one recording, and {folder} is a folder, of which every recording is \
             taken: {takes}"
        ),
    }
}

/// Prints a table of the recordings below a folder.
pub(crate) fn show(args: &ShowArgs) -> anyhow::Result<Exit> {
    let given = [
        ("an analysis", args.has_analyses()),
        ("--task", args.task.is_some()),
        ("--cgroup", args.cgroup.is_some()),
        ("--cpu", args.cpu.is_some()),
        ("--from", args.from.is_some()),
        ("--to", args.to.is_some()),
        ("--around", args.around.is_some()),
        ("--absolute", args.absolute),
        ("--scheduler", args.scheduler.is_some()),
        ("--variant", args.variant.is_some()),
        ("--xl", args.xl),
        ("--xenalyze", args.xenalyze),
        ("--report", args.report.is_some()),
        ("--format parquet", args.format.is_parquet()),
    ];
    refuse(
        &args.input,
        &given,
        "give --serve NAME (also unit, group, pod:NAME), --by, --top or --format",
    )?;
    let by = args.by.map(by);
    if let Some(By::Thread | By::Process) = by {
        bail!(
            "--by thread and --by process are for one recording: their numbers mean nothing on \
             another machine; {} may be taken together by name, cgroup, unit, container or pod",
            args.input
        );
    }
    let asked = fleet::Asked { tasks: args.serve.serve(), by: by.and_then(Together::new) };
    let progress = Progress::with_verb("reading");
    let found =
        fleet::show(Path::new(&args.input), asked, 0, &|done, all| progress.set(done, all))?;
    drop(progress);
    let text = |style: &render::Style| render::fleet(&found, args.top, style);
    output::write(None, &args.format.print(None, || Ok(&found), text)?)?;
    match found.unread() {
        0 => Ok(Exit::Done),
        some => bail!("{some} of {} recordings could not be read", found.recordings.len()),
    }
}

/// What `compare` was given beside its request.
pub(crate) struct Asked<'a> {
    pub(crate) input: &'a str,
    pub(crate) request: &'a CompareRequest,
    /// Options that are for one recording, with whether they were given.
    pub(crate) for_one: &'a [(&'a str, bool)],
    pub(crate) all: bool,
    pub(crate) format: &'a FormatArgs,
    pub(crate) output: Option<&'a Path>,
}

/// Compares every recording below a folder.
pub(crate) fn compare(asked: &Asked<'_>) -> anyhow::Result<Exit> {
    let options = &asked.request.options;
    let of_request = [
        ("--fail-if", !options.gates.is_empty()),
        ("--check", !options.checks.is_empty()),
        ("--client-log", options.client_log.is_some()),
    ];
    let takes = "`schedlab ci run` judges gates over a folder";
    refuse(asked.input, &[asked.for_one, &of_request].concat(), takes)?;
    if options.variants.is_empty()
        && options.schedulers.is_empty()
        && asked.request.scans.is_empty()
    {
        bail!(
            "{}: nothing would be compared: give --variant 'NAME: TARGET SETTING...' or --scheduler",
            asked.input
        );
    }
    let progress = Progress::with_verb("comparing");
    let found = fleet::compare::compare(Path::new(asked.input), asked.request, &|done, all| {
        progress.set(done, all);
    })?;
    drop(progress);
    let text = |style: &render::Style| render::fleet_study(&found, asked.all, style);
    output::write(asked.output, &asked.format.print(asked.output, || Ok(&found), text)?)?;
    match (found.failed(), found.machines) {
        (0, 0) => Ok(Exit::Untrusted),
        (0, _) => Ok(Exit::Done),
        (some, _) => {
            bail!("{some} of {} recordings could not be compared", found.recordings.len())
        }
    }
}
