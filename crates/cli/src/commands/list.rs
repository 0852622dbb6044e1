//! `schedlab list`

use crate::exit::Exit;
use crate::output;
use crate::render::{Style, wrap};
use clap::{ArgAction, ValueEnum};
use schedlab_live::elevation::LiveSupport;
use schedlab_scheduler::{Knobs, registry};
use schedlab_study::gallery;
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
    #[arg(long)]
    live: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
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
    let style = Style::of_stdout();
    let text = match (args.what, args.json) {
        (What::Schedulers, _) if args.live => live(args.json, &style)?,
        (What::Schedulers, false) => schedulers(args.verbose, &style),
        (What::Schedulers, true) => schedulers_json()?,
        (What::Scenarios, json) => scenarios(args.verbose, json, &style)?,
    };
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
            let _ = writeln!(text, "    {} = {}  ({})", style.bold(knob.name), knob.default, knob.allowed());
            let _ = writeln!(text, "{}", wrap(&format!("{} [{}]", knob.doc, knob.source), style.width, 8));
        }
    }
    if !verbose {
        text += "\nKnobs: `schedlab list schedulers -v`. Set one with NAME:KNOB=VALUE, such as \
                 linux-6.18:base_slice_ns=6ms\n";
    }
    text
}

/// Returns which schedulers `run` and `attach` can drive over real threads.
fn live(json: bool, style: &Style) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut list = Vec::new();
    let given = LiveSupport::probe();
    for entry in registry::all() {
        let scheduler = (entry.build)(1, &Knobs::default());
        let needs = scheduler.needs();
        let missing = given.missing(needs);
        if json {
            list.push(serde_json::json!({
                "name": entry.name, "live": missing.is_none(), "missing": missing,
                "needs": { "wakeups": needs.wakeups, "ticks": needs.ticks, "wakers": needs.wakers,
                           "exact_slices": needs.exact_slices },
            }));
            continue;
        }
        let verdict = match missing {
            None => style.good("runs"),
            Some(what) => format!("{}: {what}", style.bad("no")),
        };
        let needed = needs.words();
        let _ = writeln!(text, "{:18}  needs {:40}  {verdict}", entry.name, needed.join(", "));
    }
    if json {
        return listed("schedulers", list);
    }
    if !given.events {
        text += "\nWakeups cannot be seen here: run as root; `schedlab doctor` shows each limit.\n";
    }
    text += "\nFor `schedlab run --scheduler NAME -- COMMAND` and `attach`. Yields are not seen; groups and caps are not applied.\n";
    Ok(text)
}

fn schedulers_json() -> anyhow::Result<String> {
    let all: Vec<_> = registry::all()
        .iter()
        .map(|entry| {
            let knobs: Vec<_> = (entry.knobs)()
                .iter()
                .map(|knob| {
                    serde_json::json!({ "name": knob.name, "default": knob.default, "allowed": knob.allowed(), "unit": knob.unit,
                                        "doc": knob.doc, "source": knob.source })
                })
                .collect();
            serde_json::json!({ "name": entry.name, "summary": entry.summary, "knobs": knobs,
                                "capabilities": entry.capabilities() })
        })
        .collect();
    listed("schedulers", all)
}

/// Returns a list as JSON, under its name.
fn listed(name: &str, list: Vec<serde_json::Value>) -> anyhow::Result<String> {
    let value = serde_json::json!({ "schema": "schedlab-list/1", name: list });
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

fn scenarios(verbose: bool, json: bool, style: &Style) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut list = Vec::new();
    let width = gallery::built_in().iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, _) in gallery::built_in() {
        let Some(scenario) = gallery::load(name) else { continue };
        let scenario = scenario?;
        let specs: Vec<String> = scenario.schedulers.iter().map(ToString::to_string).collect();
        let variants: Vec<&str> = scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
        if json {
            list.push(serde_json::json!({
                "name": name, "title": scenario.title, "about": scenario.about, "schedulers": specs,
                "baseline": scenario.baseline, "variants": variants,
                "expectations": scenario.expectations.len(),
            }));
            continue;
        }
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
    if json {
        return listed("scenarios", list);
    }
    text += "\nRun one with `schedlab compare NAME`; write your own as docs/scenario-format.md says.\n";
    Ok(text)
}
