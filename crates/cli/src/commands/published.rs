//! `schedlab published`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::origin::origin;
use crate::output;
use crate::progress::Working;
use crate::render;
use schedlab_study::published::{self, Gallery};
use std::path::PathBuf;

/// `schedlab published`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab published                         how many published figures are inside 10 %
  schedlab published elevation cyclictest    of these scenarios
  schedlab published --report figures.html   as a page

Each figure is listed once, under one of three kinds: papers, articles and talks; real code that \
the project ran; inputs that were fitted to \
it, which are no evidence. The simulated figures are medians over the scenario's seeds. Printed \
beside each that is farther off than \
10 % (shares: half a point): why, and whether a single simulated run may give it, since many a \
published figure is of one run. At the \
end: what was checked against recordings of the real systems. Exit code 1: a simulated figure is \
not what its scenario expects (a \
figure that is off may be as expected).")]
pub(crate) struct PublishedArgs {
    /// Print these scenarios [default: all of the gallery that have published figures]
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Use this many worker threads; 0 = one per CPU. The result does not depend on it
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    jobs: usize,
    /// Write a page to this file too: one HTML file without other files
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &PublishedArgs) -> anyhow::Result<Exit> {
    output::check_both(None, args.report.as_deref())?;
    let scenarios = published::scenarios(&args.scenarios)?;
    let mut all = Vec::new();
    for (index, scenario) in scenarios.iter().enumerate() {
        let (name, number) = (&scenario.name, index + 1);
        let what = format!("running {name} ({number} of {})", scenarios.len());
        let working = Working::new(what, true);
        all.push(published::figures(scenario, args.jobs)?);
        drop(working);
    }
    let gallery = Gallery::new(all);
    let text = |style: &render::Style| render::published(&gallery, style);
    let text = args.format.print(None, || Ok(&gallery), text)?;
    if let Some(path) = &args.report {
        output::write(Some(path), &published::page(&gallery, &origin(None)?).render()?)?;
    }
    output::write(None, &text)?;
    Ok(if gallery.holds() { Exit::Done } else { Exit::ExpectationFailed })
}
