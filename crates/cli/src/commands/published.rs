//! `schedlab published`

use crate::ending::{Ending, nothing_yet};
use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::origin::origin;
use crate::output;
use crate::progress::Progress;
use crate::render;
use schedlab_study::StudyError;
use schedlab_study::compare::Options;
use schedlab_study::published::{self, Gallery, Published};
use schedlab_study::scenario::Scenario;
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
figure that is off may be as expected). Exit code 3: Ctrl-C or TERM ended it, and the answer is \
that of the scenarios that are finished.")]
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
    let done = of(&scenarios, args.jobs)?;
    if done.is_empty() {
        return Ok(nothing_yet("the first scenario"));
    }
    let gallery = Gallery::new(done, scenarios.len());
    let text = |style: &render::Style| render::published(&gallery, style);
    let text = args.format.print(None, || Ok(&gallery), text)?;
    if let Some(path) = &args.report {
        output::write(Some(path), &published::page(&gallery, &origin(None)?).render()?)?;
    }
    output::write(None, &text)?;
    Ok(match gallery.holds() {
        false => Exit::ExpectationFailed,
        true if gallery.partial_of.is_some() => Exit::Untrusted,
        true => Exit::Done,
    })
}

/// Runs the scenarios one after the other, until all of them are done or a signal comes.
fn of(scenarios: &[Scenario], jobs: usize) -> anyhow::Result<Vec<Published>> {
    let runs = scenarios.iter().map(published::runs).collect::<Result<Vec<_>, _>>()?;
    let all: usize = runs.iter().sum();
    let ending = Ending::install()?;
    let options = Options { jobs, stop: ending.flag(), ..Options::default() };
    let progress = Progress::of_uneven_runs("simulating");
    progress.set(0, all);
    let (mut done, mut before) = (Vec::new(), 0);
    for (scenario, runs) in scenarios.iter().zip(runs) {
        let report = |of_this: usize, _: usize| progress.set(before + of_this, all);
        match published::figures(scenario, &options, &report) {
            Err(StudyError::Stopped) => break,
            figures => done.push(figures?),
        }
        before += runs;
        let [how_many, _] = published::answer(&done);
        progress.so_far(&format!("{} of {}: {how_many}", done.len(), scenarios.len()));
    }
    Ok(done)
}
