//! `schedlab calibrate`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::options::stop_signal;
use crate::output;
use crate::progress::Progress;
use crate::render::Style;
use anyhow::{Context, anyhow};
use schedlab_lab::calibrate::{file_text, preset};
use schedlab_measure::calibrate::{CalibrateRequest, Calibration, Cost, calibrate};
use schedlab_model::Ns;
use schedlab_study::preset::{self, Preset};
use std::fmt::Write as _;
use std::path::PathBuf;

/// `schedlab calibrate`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab calibrate                             measure, and keep it as the preset this-machine
  schedlab calibrate --for 1m                    narrower intervals
  schedlab calibrate -o vm.toml --json           into another file, and as JSON to standard output
  schedlab compare two-hogs --costs this-machine

The file is $XDG_DATA_HOME/schedlab/this-machine.toml (by default in ~/.local/share); \
docs/calibration.md \
describes it. Policies and affinities change on threads only that end with the measurement. A \
quiet machine gives better \
numbers; the share of the CPUs that other programs had is printed and kept.")]
pub(crate) struct CalibrateArgs {
    /// Write to this file instead of the preset's place
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Measure for about this long, 500ms or more
    #[arg(long = "for", value_name = "TIME", default_value = "10s", allow_hyphen_values = true)]
    duration: Ns,
    /// Repeat every measurement this many times
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(3..=100))]
    rounds: u32,
    /// Seed the order of measurements
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<Exit> {
    let path = match &args.output {
        Some(path) => path.clone(),
        None => {
            let path = preset::path().ok_or_else(|| {
                anyhow!("the preset has no folder: set HOME or XDG_DATA_HOME, or use -o FILE")
            })?;
            let folder = path.parent().unwrap_or(&path);
            schedlab_files::make_folder(folder)
                .with_context(|| format!("{} cannot be made: use -o FILE", folder.display()))?;
            path
        }
    };
    output::check(&path)?;
    let signal = stop_signal()?;
    let progress = Progress::with_verb("measuring");
    let request =
        CalibrateRequest { duration: args.duration, rounds: args.rounds, seed: args.seed };
    let result =
        calibrate(&request, &mut |done, all| progress.set(done, all), &|| signal.requested())?;
    drop(progress);
    let command: Vec<String> = std::env::args().collect();
    let machine = schedlab_host::machine();
    let preset = preset(&result, &machine, command.join(" "), env!("CARGO_PKG_VERSION"));
    output::write(Some(&path), &file_text(&preset))?;
    let text = |style: &Style| {
        render(&result, &preset, style) + &format!("\nwritten to {}\n", path.display())
    };
    let text = args.format.print(None, || Ok(&preset), text)?;
    output::write(None, &text)?;
    Ok(Exit::Done)
}

fn render(result: &Calibration, preset: &Preset, style: &Style) -> String {
    let mut text = format!(
        "{:24} {:>11}  {:>23} {:>11} {:>9}\n",
        "cost (ns)", "median", "95 % interval", "p99", "samples"
    );
    for Cost { name, what, spread, lacks } in &result.costs {
        match spread {
            Some(s) => {
                let interval = format!("{:.1} to {:.1}", s.low_ns, s.high_ns);
                let _ = writeln!(
                    text,
                    "{name:24} {:>11.1}  {interval:>23} {:>11.1} {:>9}",
                    s.median_ns, s.p99_ns, s.count
                );
            }
            None => {
                let _ = writeln!(
                    text,
                    "{name:24} not measured: {}",
                    lacks.as_deref().unwrap_or("no samples")
                );
            }
        }
        let _ = writeln!(text, "  {}", style.dim(what));
    }
    let p = &preset.provenance;
    let _ = writeln!(
        text,
        "\n{} on {} ({} CPUs{}), HZ={}; {} s; other programs had {:.1} % of the measured CPUs",
        p.kernel,
        p.cpu,
        p.cpus,
        if p.virtual_machine { ", virtual" } else { "" },
        p.hz,
        p.seconds,
        p.foreign * 100.0
    );
    if p.foreign > 0.1 {
        text += &style.bad(
            "the machine was not quiet: wakeups and timers across CPUs are longer than on a quiet \
             one\n",
        );
    }
    text += "prices of the simulator that follow from these (ns):\n";
    for (name, ns) in &preset.simulator {
        let _ = writeln!(text, "  {name} = {ns}");
    }
    text
}
