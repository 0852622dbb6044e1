//! `schedlab published`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::progress::Working;
use crate::render::{Style, wrap};
use schedlab_study::deviation::Deviation;
use schedlab_study::published::{self, Published, Tally};
use std::fmt::Write as _;

/// `schedlab published`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab published                       every published figure beside the simulated one
  schedlab published elevation cyclictest  of these scenarios

The published figures are those of papers, articles and talks, or were measured with the real schedulers' code; the scenarios' \
expectations name them as `published`. The simulated ones are medians over the scenario's seeds. Printed after each: how far it \
is off (FAR above 10 %, of shares above 0.5 points), and the range of the seeds, since many a published figure is of one run. \
Exit code 1: a simulated figure is not what the scenario expects (a figure that is far off may be as expected).")]
pub(crate) struct PublishedArgs {
    /// Print these scenarios [default: all of the gallery that have published figures]
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Use this many worker threads; 0 = one per CPU. The result does not depend on it
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    jobs: usize,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &PublishedArgs) -> anyhow::Result<Exit> {
    let scenarios = published::scenarios(&args.scenarios)?;
    let mut all = Vec::new();
    for scenario in &scenarios {
        let working = Working::new(format!("running {}", scenario.name), true);
        all.push(published::figures(scenario, args.jobs)?);
        drop(working);
    }
    let value = || Ok(serde_json::json!({ "schema": published::SCHEMA, "scenarios": all }));
    let text = |style: &Style| {
        let each: Vec<String> = all.iter().map(|one| render(one, style)).collect();
        let sum = all.iter().fold(Tally::default(), |sum, one| sum.and(one.tally));
        format!("{}\n{}\n", each.join("\n"), style.bold(&format!("all: {}", tally(sum))))
    };
    output::write(None, &args.format.print(None, value, text)?)?;
    let well = all.iter().flat_map(|one| &one.figures).all(|figure| figure.holds);
    Ok(if well { Exit::Done } else { Exit::ExpectationFailed })
}

fn render(one: &Published, style: &Style) -> String {
    let mut text = format!("{}  {}\n", style.bold(&one.scenario), one.title);
    for figure in &one.figures {
        let what = figure.expectation.split(" is ").next().unwrap_or_default();
        let mark = if figure.holds { "" } else { "   NOT as expected" };
        let published = figure.published.as_deref().unwrap_or_default();
        let off = figure.deviation.map(|one| off(&one, style)).unwrap_or_default();
        let _ = writeln!(text, "  {}, {}: {what}", figure.scheduler, figure.variant);
        let _ = writeln!(text, "      published {published:>12}   here {:>12}{off}{mark}", figure.got);
        if let Some(differs) = &figure.differs {
            let _ = writeln!(text, "{}", wrap(differs, style.width, 6));
        }
    }
    for fitted in &one.fitted {
        let _ = writeln!(text, "{}", wrap(&format!("fitted: {fitted}"), style.width, 2));
    }
    let seeds = match one.seeds {
        1 => "one seed".to_owned(),
        seeds => format!("medians of {seeds} seeds"),
    };
    let _ = writeln!(text, "  {}: {}", seeds, tally(one.tally));
    text
}

/// Returns how far a simulated figure is off, and whether a single simulated run may give the published one.
fn off(deviation: &Deviation, style: &Style) -> String {
    let off = format!("   {:>11}", deviation.show());
    if deviation.near {
        return off;
    }
    let one_run = if deviation.seeds[0] == deviation.seeds[1] {
        ""
    } else if deviation.between_seeds() {
        ", inside the range of the seeds"
    } else {
        ", outside the range of the seeds"
    };
    format!("{off}   {}{one_run}", style.bad("FAR"))
}

fn tally(tally: Tally) -> String {
    let Tally { near, explained, unexplained, words } = tally;
    let numbers = near + explained + unexplained;
    let mut text = format!("{near} of {numbers} published numbers within 10 % (shares: 0.5 points)");
    if explained > 0 {
        let _ = write!(text, ", {explained} farther off with a reason");
    }
    if unexplained > 0 {
        let _ = write!(text, ", {unexplained} farther off WITHOUT a reason");
    }
    if words > 0 {
        let _ = write!(text, "; {words} in words");
    }
    text
}
