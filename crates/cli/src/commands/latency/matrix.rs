//! `schedlab latency --matrix` and `schedlab latency merge`.

use super::cyclictest;
use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::options::stop_signal;
use crate::origin::origin;
use crate::output;
use crate::progress::{Lines, takes};
use crate::render::matrix as render;
use anyhow::anyhow;
use schedlab_lab::latency::{
    Matrix, MatrixOutput, MatrixRequest, Quantity, ResultFile, System, kernel, of_matrix,
};
use schedlab_measure::LatencyLine;
use schedlab_model::Policy;
use std::path::{Path, PathBuf};

/// `schedlab latency merge`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab latency merge standard=a.json rt=b.json --report kernels.html
  schedlab latency merge laptop=a.json server=b.json server=c.json --json -o both.json
  schedlab latency merge cyclictest=c1.json cyclictest=c2.json schedlab=s1.json schedlab=s2.json
  schedlab latency merge schedlab=a.json timerlat=rtla.txt cyclictest=hist.txt --policy fifo:80

Files are those that `schedlab latency --json`, `--matrix --json`, `merge --json` and `cyclictest \
-h 100000 --json=FILE` write, and the histograms that `cyclictest -h`, `rtla timerlat hist` and \
`rtla osnoise hist` print. Several files of one name are rounds; the n-th of each name are a pair. The other names are \
compared with the first.")]
pub(super) struct MergeArgs {
    /// Merge these results; a system without a name is called by its kernel
    #[arg(value_name = "[NAME=]FILE", required = true)]
    files: Vec<String>,
    /// The policy of the measuring threads, where a histogram does not state it
    #[arg(long, value_name = "POLICY")]
    policy: Option<Policy>,
    /// Write a page (HTML) to this file too
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn merge(args: &MergeArgs) -> anyhow::Result<Exit> {
    let file = |name: Option<&str>, path: &str| ResultFile {
        name: name.map(str::to_owned),
        path: path.into(),
        policy: args.policy,
    };
    let source = |text: &String| match text.split_once('=') {
        Some(("", _)) => Err(anyhow!("{text}: a name is missing before `=`")),
        Some((name, path)) => Ok(file(Some(name), path)),
        None => Ok(file(None, text)),
    };
    let sources = args.files.iter().map(source).collect::<anyhow::Result<Vec<_>>>()?;
    output::check_both(args.output.as_deref(), args.report.as_deref())?;
    let matrix = schedlab_lab::latency::merge(&sources)?;
    write(&matrix, &args.format, args.output.as_deref(), args.report.as_deref())
}

/// Measures the table.
pub(super) fn run(
    request: &MatrixRequest,
    format: &FormatArgs,
    output: Option<&Path>,
    report: Option<&Path>,
) -> anyhow::Result<Exit> {
    let machine = schedlab_host::machine();
    let kernel = kernel();
    let system = System {
        realtime: machine.is_realtime(),
        name: machine.kernel,
        kernel,
        virtual_machine: Some(machine.virtual_machine),
        emulated: schedlab_host::is_emulated(),
        tool: "schedlab latency --matrix".to_owned(),
        quantity: Quantity::Wakeup,
        notes: Vec::new(),
    };
    let signal = stop_signal()?;
    // Idle and loaded.
    let rows = 2 * request.policies.len() as u64 * u64::from(request.rounds);
    takes(&format!("{rows} runs of {} take at least {}", request.each, request.each * rows));
    let mut live = Lines::new();
    let mut show = |done: usize, all: usize, what: &str, lines: &[LatencyLine]| {
        let policy = if what.contains("fifo") { Policy::Fifo(49) } else { Policy::Other };
        live.set(|| {
            format!("run {} of {all}: {what}\n{}", done + 1, cyclictest::lines(lines, policy))
        });
    };
    let matrix = schedlab_lab::latency::matrix(request, system, &mut show, &|| signal.requested())?;
    drop(live);
    write(&matrix, format, output, report)
}

fn write(
    matrix: &Matrix,
    format: &FormatArgs,
    to: Option<&Path>,
    report: Option<&Path>,
) -> anyhow::Result<Exit> {
    let value = || Ok(serde_json::to_value(MatrixOutput::new(matrix))?);
    let text = format.print(to, value, |style| render(matrix, style))?;
    if let Some(path) = report {
        output::write(Some(path), &of_matrix(matrix, &origin(None)?).render()?)?;
    }
    output::write(to, &text)?;
    Ok(if matrix.stopped { Exit::Untrusted } else { Exit::Done })
}
