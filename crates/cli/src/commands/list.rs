//! `schedlab list`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::render::{Style, wrap};
use clap::{ArgAction, ValueEnum};
#[cfg(feature = "machine")]
use schedlab_live::elevation::LiveSupport;
#[cfg(feature = "machine")]
use schedlab_scheduler::Knobs;
use schedlab_scheduler::registry;
use schedlab_study::gallery;
use schedlab_study::listing::{
    ListOutput, ListedScenario, SCHEMA, ScenariosOutput, SchedulersOutput,
};
#[cfg(feature = "machine")]
use schedlab_study::listing::{LiveOutput, LiveScheduler};
use schedlab_study::scenario::Scenario;
use serde_json::Value;
use std::fmt::Write as _;

/// `schedlab list`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab list schedulers
  schedlab list schedulers -v          with every knob
  schedlab list scenarios")]
pub(crate) struct ListArgs {
    /// List these
    what: What,
    /// Show knobs (schedulers) or the description (scenarios)
    #[arg(short, long, action = ArgAction::SetTrue)]
    verbose: bool,
    /// Say which schedulers can run real threads (`schedlab run`), and what they need
    #[cfg(feature = "machine")]
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    format: FormatArgs,
}

/// The lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum What {
    /// Schedulers and their knobs
    Schedulers,
    /// The scenarios of the gallery
    Scenarios,
}

pub(crate) fn run(args: &ListArgs) -> anyhow::Result<Exit> {
    let text = match args.what {
        #[cfg(feature = "machine")]
        What::Schedulers if args.live => {
            let given = LiveSupport::probe();
            args.format.print(
                None,
                || json(&ListOutput::Live(live_output(&given))),
                |style| live(&given, style),
            )
        }
        What::Schedulers => {
            let text = |style: &Style| schedulers(args.verbose, style);
            args.format.print(None, || json(&ListOutput::Schedulers(SchedulersOutput::all())), text)
        }
        What::Scenarios => {
            let all = built_in()?;
            let text = |style: &Style| scenarios(&all, args.verbose, style);
            args.format.print(None, || json(&ListOutput::Scenarios(scenarios_output(&all))), text)
        }
    }?;
    output::write(None, &text)?;
    Ok(Exit::Done)
}

fn schedulers(verbose: bool, style: &Style) -> String {
    let width = registry::all().iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for entry in registry::all() {
        let name = style.bold(&format!("{:width$}", entry.name));
        let _ = writeln!(text, "{name}  {}", entry.summary);
        if verbose {
            for line in entry.capabilities() {
                let _ = writeln!(text, "{}", wrap(&line, style.width, 4));
            }
        }
        for knob in if verbose { (entry.knobs)() } else { Vec::new() } {
            let _ = writeln!(
                text,
                "    {} = {}  ({})",
                style.bold(knob.name),
                knob.default,
                knob.allowed()
            );
            let _ = writeln!(
                text,
                "{}",
                wrap(&format!("{} [{}]", knob.doc, knob.source), style.width, 8)
            );
        }
    }
    if !verbose {
        text += "\nKnobs: `schedlab list schedulers -v`. Set one with NAME:KNOB=VALUE, such as \
                 linux-6.18:base_slice_ns=6ms\n";
    }
    text
}

/// Returns which schedulers `run` and `attach` can drive over real threads.
#[cfg(feature = "machine")]
fn live(given: &LiveSupport, style: &Style) -> String {
    let mut text = String::new();
    for entry in registry::all() {
        let scheduler = (entry.build)(1, &Knobs::default());
        let needs = scheduler.needs();
        let missing = given.missing(needs);
        let verdict = match missing {
            None => style.good("runs"),
            Some(what) => format!("{}: {what}", style.bad("no")),
        };
        let needed = needs.words();
        let _ = writeln!(text, "{:18}  needs {:40}  {verdict}", entry.name, needed.join(", "));
    }
    if !given.events {
        text += "\nWakeups cannot be seen here: run as root; `schedlab doctor` shows each limit.\n";
    }
    text += "\nFor `schedlab run --scheduler NAME -- COMMAND` and `attach`. Yields are not seen; \
             groups and caps are not applied.\n";
    text
}

#[cfg(feature = "machine")]
fn live_output(given: &LiveSupport) -> LiveOutput {
    let one = |entry: &registry::Entry| {
        let needs = (entry.build)(1, &Knobs::default()).needs();
        LiveScheduler::new(entry.name, needs, given.missing(needs))
    };
    LiveOutput { schema: SCHEMA, schedulers: registry::all().iter().map(one).collect() }
}

/// Returns a list as JSON.
fn json(list: &ListOutput<'_>) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(list)?)
}

/// Returns every scenario of the gallery, by name.
fn built_in() -> anyhow::Result<Vec<(&'static str, Scenario)>> {
    let mut all = Vec::new();
    for (name, _) in gallery::built_in() {
        if let Some(scenario) = gallery::load(name) {
            all.push((*name, scenario?));
        }
    }
    Ok(all)
}

fn specs(scenario: &Scenario) -> Vec<String> {
    scenario.schedulers.iter().map(ToString::to_string).collect()
}

fn variants(scenario: &Scenario) -> Vec<&str> {
    scenario.variants.iter().map(|variant| variant.name.as_str()).collect()
}

fn scenarios_output<'a>(all: &'a [(&str, Scenario)]) -> ScenariosOutput<'a> {
    let scenarios =
        all.iter().map(|(name, scenario)| ListedScenario::new(name, scenario)).collect();
    ScenariosOutput { schema: SCHEMA, scenarios }
}

fn scenarios(all: &[(&str, Scenario)], verbose: bool, style: &Style) -> String {
    let mut text = String::new();
    let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, scenario) in all {
        let (specs, variants) = (specs(scenario), variants(scenario));
        let _ = writeln!(text, "{}  {}", style.bold(&format!("{name:width$}")), scenario.title);
        if verbose {
            let _ = writeln!(text, "{}", wrap(&scenario.about, style.width, 4));
            let _ = writeln!(text, "    schedulers: {}", specs.join(", "));
            let _ = writeln!(
                text,
                "    variants:   {}",
                [&[scenario.baseline.as_str()][..], &variants].concat().join(", ")
            );
            let _ = writeln!(text, "    expects:    {} things\n", scenario.expectations.len());
        }
    }
    text +=
        "\nRun one with `schedlab compare NAME`; write your own as docs/scenario-format.md says.\n";
    text
}
