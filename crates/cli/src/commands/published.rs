//! `schedlab published`

use crate::progress::Working;
use crate::render::{Style, wrap};
use crate::{Done, output};
use schedlab_lab::published::{self, Published};
use std::fmt::Write as _;

/// `schedlab published`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab published                       every published figure of the gallery beside ours (half a minute)
  schedlab published elevation cyclictest  of these scenarios

The figures are those of papers, articles and talks, or were measured with the real schedulers' code; they stand as
`published` in the scenarios' expectations. Exit code 1: one of ours is not what the scenario expects.")]
pub(crate) struct Args {
    /// Scenarios [default: all of the gallery that have published figures]
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Worker threads; 0 = one per CPU. The result does not depend on it
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    jobs: usize,
    /// Print as JSON (docs/result-schema.md)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Done> {
    let scenarios = published::scenarios(&args.scenarios)?;
    let mut all = Vec::new();
    for scenario in &scenarios {
        let working = Working::new(format!("running {}", scenario.name), true);
        all.push(published::figures(scenario, args.jobs)?);
        drop(working);
    }
    let text = match args.json {
        true => {
            let value = serde_json::json!({ "schema": published::SCHEMA, "scenarios": all });
            serde_json::to_string_pretty(&value)? + "\n"
        }
        false => all.iter().map(|one| render(one, &Style::of_stdout())).collect::<Vec<_>>().join("\n"),
    };
    output::write(None, &text)?;
    let well = all.iter().flat_map(|one| &one.figures).all(|figure| figure.holds);
    Ok(if well { Done::Well } else { Done::ExpectationFailed })
}

fn render(one: &Published, style: &Style) -> String {
    let mut text = format!("{}  {}\n", style.bold(&one.scenario), one.title);
    for figure in &one.figures {
        let what = figure.expectation.split(" is ").next().unwrap_or_default();
        let mark = if figure.holds { "" } else { "   NOT as expected" };
        let published = figure.published.as_deref().unwrap_or_default();
        let _ = writeln!(text, "  {}, {}: {what}", figure.scheduler, figure.variant);
        let _ = writeln!(text, "      published {published:>12}   here {:>12}{mark}", figure.got);
        if let Some(differs) = &figure.differs {
            let _ = writeln!(text, "{}", wrap(differs, style.width, 6));
        }
    }
    for fitted in &one.fitted {
        let _ = writeln!(text, "{}", wrap(&format!("fitted: {fitted}"), style.width, 2));
    }
    text
}
