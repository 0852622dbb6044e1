//! `schedlab compare`

use crate::args::Compare;
use crate::origin::origin;
use crate::progress::Progress;
use crate::render::{self, Style};
use crate::{Done, output};
use anyhow::{Context, anyhow, bail};
use schedlab_scheduler::registry;
use schedlab_study::compare::{Options, RecordedInput, RowGate, compare_recording, compare_scenario};
use schedlab_study::gallery::{self, Found};
use schedlab_study::generate::{self, Verdict};
use schedlab_study::page;
use schedlab_study::result::Study;
use std::io::Write;
use std::path::PathBuf;

pub(crate) fn run(args: &Compare) -> anyhow::Result<Done> {
    if let Some(path) = &args.output {
        output::check(path)?;
    }
    if let Some(path) = &args.report {
        if args.output.as_ref() == Some(path) {
            bail!("--report and -o both write {}: give each a file of its own", path.display());
        }
        output::check(path)?;
    }
    if args.assert && !holds(args)? {
        return Ok(Done::Untrusted);
    }
    let study = study(args)?;
    let text = if args.json {
        serde_json::to_string_pretty(&study).context("the result cannot be written as JSON")? + "\n"
    } else {
        let style = if args.output.is_some() { Style::plain() } else { Style::of_stdout() };
        render::study(&study, &style, args.all_tasks, args.explain)
    };
    if let Some(path) = &args.report {
        output::write(Some(path), &page(args, &study)?)?;
    }
    output::write(args.output.as_deref(), &text)?;
    Ok(if !study.holds() || study.failed() {
        Done::ExpectationFailed
    } else if !study.trusted() || study.cannot_say() {
        Done::Untrusted
    } else {
        Done::Well
    })
}

/// Runs every scheduler under all assertions; says on standard error what does not hold.
fn holds(args: &Compare) -> anyhow::Result<bool> {
    let scenario = match gallery::find(&args.input)? {
        Found::Scenario(scenario) => scenario,
        Found::Recording(_) => {
            bail!("--assert has a meaning only for scenarios, and {} is a recording", args.input)
        }
    };
    let schedulers = if args.schedulers.is_empty() { &scenario.schedulers } else { &args.schedulers };
    let mut all = true;
    for scheduler in schedulers {
        match generate::assertions(&scenario, scheduler, &registry::build) {
            Verdict::Ran(_) => {}
            Verdict::Refused(why) => {
                let _ = writeln!(std::io::stderr(), "--assert: {scheduler} was not checked: {why}");
            }
            Verdict::Failed(fault, what) => {
                all = false;
                let _ = writeln!(std::io::stderr(), "--assert: {scheduler}: {}: {what}", fault.name());
            }
        }
    }
    Ok(all)
}

fn study(args: &Compare) -> anyhow::Result<Study> {
    let options = Options {
        schedulers: args.schedulers.clone(),
        variants: args.variants.clone(),
        seed: args.seed,
        repetitions: args.seeds,
        duration: args.duration,
        jobs: args.jobs,
        detail: args.report.is_some(),
        gates: args.fail_if.iter().map(|text| gate(text)).collect::<anyhow::Result<_>>()?,
        checks: args.checks.iter().map(|text| check(text)).collect::<anyhow::Result<_>>()?,
    };
    let progress = Progress::new();
    let report = |done, all| progress.set(done, all);
    match gallery::find(&args.input)? {
        Found::Scenario(mut scenario) => {
            if let Some(name) = &args.costs {
                scenario.machine.costs = schedlab_study::preset::costs(name).context("--costs")?;
            }
            if args.recorded_under.is_some() {
                bail!("--recorded-under has a meaning only for recordings, and {} is a scenario", args.input);
            }
            if !args.checks.is_empty() {
                bail!("--check has a meaning only for recordings, and {} is a scenario", args.input);
            }
            Ok(compare_scenario(&scenario, &options, &report)?)
        }
        Found::Recording(path) => {
            if args.costs.is_some() {
                bail!(
                    "--costs has a meaning only for scenarios: the delays of the recorded machine are in {}",
                    args.input
                );
            }
            let input = RecordedInput::open(&path)?;
            Ok(compare_recording(&input, args.recorded_under.as_ref(), &options, &report)?)
        }
    }
}

fn page(args: &Compare, study: &Study) -> anyhow::Result<String> {
    let recording = match gallery::find(&args.input)? {
        Found::Scenario(_) => None,
        Found::Recording(path) => Some(path),
    };
    Ok(page::of_study(study, &origin(recording.as_deref())?).render()?)
}

fn gate(text: &str) -> anyhow::Result<RowGate> {
    RowGate::parse(text).map_err(|error| anyhow!("--fail-if {error}"))
}

/// `VARIANT=FILE`; the file's name has no `=`, a variant's name may.
fn check(text: &str) -> anyhow::Result<(String, PathBuf)> {
    match text.rsplit_once('=') {
        Some((variant, file)) if !variant.trim().is_empty() && !file.is_empty() => {
            Ok((variant.trim().to_owned(), PathBuf::from(file)))
        }
        _ => bail!("--check '{text}': write 'VARIANT=FILE', such as 'batch idle=redis-idle.slt'"),
    }
}
