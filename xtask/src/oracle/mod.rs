//! `cargo xtask oracle FILE`: compares the presets with what real kernels did
//! (`oracles/linux/README.md`).
//!
//! Two modes. *Run* executes each scenario in the simulator and compares shares, waits and run
//! lengths. *Replay* feeds a scheduler the recorded wakeups and switches and compares every choice
//! with the recorded one; it needs no simulator, and it is the sharper test: in a run, a tie below
//! a microsecond decides about everything after it.

pub(crate) mod checked;
mod data;
mod judge;
mod measure;
mod options;
mod preset;
mod replay;
mod report;
mod simulate;
#[cfg(test)]
mod tests;
mod xen;

use anyhow::{Context, Result, ensure};
use data::Record;
use judge::Judgement;
pub(crate) use options::OracleArgs;
use preset::Preset;
use replay::{Offsets, Replayed};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// Runs the chore; exit code 1 when too little agrees.
pub(crate) fn command(options: &OracleArgs) -> Result<ExitCode> {
    let mut passed = true;
    for file in &options.files {
        if xen::is_one(file) {
            passed &= xen::compare(file, options.verbose)?;
            continue;
        }
        let mut records = data::read(file)?;
        if !options.only.is_empty() {
            records.retain(|record| options.only.contains(&record.id));
            ensure!(!records.is_empty(), "{}: has none of the scenarios of --only", file.display());
        }
        if !options.json {
            show(&format!(
                "{}: {} scenarios, kernel {}\n",
                file.display(),
                records.len(),
                records[0].kernel
            ));
        }
        passed &= if options.replay {
            replay_all(&records, options)?
        } else {
            run_all(&records, options)?
        };
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Prints; a reader that goes away is no error.
fn show(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn replay_one(record: &Record, preset: &Preset) -> Result<Replayed> {
    let scheduler = preset.build()?;
    replay::replay(record, &*scheduler, Offsets::for_preset(preset))
        .with_context(|| format!("scenario {}", record.id))
}

fn replay_all(records: &[Record], options: &OracleArgs) -> Result<bool> {
    let mut sum = Replayed::default();
    let mut out = String::new();
    report::replay_heading(&mut out);
    for record in records {
        let replayed =
            replay_one(record, &Preset::for_record(record, options.scheduler.as_deref())?)?;
        if options.json {
            show(&format!("{}\n", report::replay_json(&record.id, &replayed)));
        }
        report::replay_line(&mut out, &record.id, &replayed);
        if options.verbose {
            report::differences(&mut out, &replayed);
        }
        sum.add(replayed);
    }
    report::replay_line(&mut out, "all", &sum);
    report::replay_causes(&mut out, &sum);
    let wanted = options.pass.unwrap_or(0.97);
    let passed = sum.equal() >= wanted;
    let verdict = if passed { "inside" } else { "OUTSIDE" };
    let _ = writeln!(
        out,
        "{verdict}: {:.2} % of {} choices are equal, {:.2} % wanted",
        sum.equal() * 100.0,
        sum.switches,
        wanted * 100.0
    );
    if !options.json {
        show(&out);
    }
    Ok(passed)
}

fn run_one(record: &Record, preset: &Preset, options: &OracleArgs) -> Result<Judgement> {
    let model = simulate::simulate(record, preset, options.jitter)
        .with_context(|| format!("scenario {}", record.id))?;
    Ok(judge::judge(record, &model, options.tolerance))
}

fn run_all(records: &[Record], options: &OracleArgs) -> Result<bool> {
    let mut out = String::new();
    report::run_heading(&mut out);
    let (mut judgements, mut outside) = (Vec::new(), String::new());
    for record in records {
        let preset = Preset::for_record(record, options.scheduler.as_deref())?;
        let judgement = run_one(record, &preset, options)?;
        report::run_line(&mut out, &judgement);
        if options.verbose {
            report::task_lines(&mut out, &judgement);
        }
        if options.json {
            show(&format!("{}\n", report::run_json(&judgement)));
        }
        if !judgement.inside() {
            let replayed = replay_one(record, &preset)?;
            let suspect = judge::suspect(record, &judgement, preset.eevdf, &replayed);
            let _ = writeln!(outside, "  {}: {suspect}", record.id);
        }
        judgements.push(judgement);
    }
    let _ = writeln!(out, "errors over all tasks (waits: of tasks with 30 wakeups or more):");
    report::run_sum(&mut out, &judgements);
    if !outside.is_empty() {
        let _ = writeln!(out, "outside, with the rule suspected:\n{}", outside.trim_end());
    }
    let passed = verdict(&mut out, &judgements, options);
    if !options.json {
        show(&out);
    }
    Ok(passed)
}

fn verdict(out: &mut String, judgements: &[Judgement], options: &OracleArgs) -> bool {
    let all = judgements.len();
    let mut line = |what: &str, inside: &dyn Fn(&Judgement) -> bool, wanted: Option<f64>| {
        let count = judgements.iter().filter(|judgement| inside(judgement)).count();
        let passed = wanted.is_none_or(|wanted| count as f64 >= wanted * all as f64);
        let verdict = if passed { "" } else { "  OUTSIDE" };
        let wanted =
            wanted.map_or(String::new(), |wanted| format!(", {:.0} % wanted", wanted * 100.0));
        let part = 100.0 * count as f64 / all as f64;
        let _ = writeln!(
            out,
            "{what}: {count} of {all} scenarios inside for every task ({part:.1} \
             %{wanted}){verdict}"
        );
        passed
    };
    let shares = line("shares", &Judgement::shares_inside, Some(options.pass_shares));
    line("mean waits", &Judgement::waits_inside, None);
    let both = line("both", &Judgement::inside, Some(options.pass.unwrap_or(0.85)));
    shares && both
}
