//! `cargo xtask oracle FILE`: compares the presets with what real kernels did (`oracles/linux/README.md`).
//!
//! Two modes. *Replay* feeds a scheduler the recorded wakeups and switches and compares every choice with the
//! recorded one; it needs no simulator and is the sharper test. *Run* executes each scenario in the simulator
//! and compares shares, waits and run lengths.

mod data;
mod options;
mod preset;
mod replay;

use anyhow::{Context, Result};
use data::Record;
use options::Options;
use preset::Preset;
use replay::{Offsets, Replayed};
use std::process::ExitCode;

/// Runs the chore; exit code 1 when too little agrees.
pub(crate) fn command(args: &[String]) -> Result<ExitCode> {
    let Some(options) = options::parse(args)? else {
        print!("{}", options::HELP);
        return Ok(ExitCode::SUCCESS);
    };
    let mut passed = true;
    for file in &options.files {
        let mut records = data::read(file)?;
        if !options.only.is_empty() {
            records.retain(|record| options.only.contains(&record.id));
            anyhow::ensure!(
                !records.is_empty(),
                "{} has none of the scenarios given with --only",
                file.display()
            );
        }
        println!("{}: {} scenarios, kernel {}", file.display(), records.len(), records[0].kernel);
        passed &= replay_all(&records, &options)?;
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn replay_all(records: &[Record], options: &Options) -> Result<bool> {
    let mut sum = Replayed::default();
    println!(
        "{:12} {:>8} {:>8} {:>9} {:>9} {:>9}",
        "scenario", "switches", "equal", "different", ">20us", "uncalled"
    );
    for record in records {
        let preset = Preset::of(record, options.scheduler.as_deref())?;
        let scheduler = preset.build()?;
        let replayed = replay::replay(record, &*scheduler, Offsets::of(preset.eevdf))
            .with_context(|| format!("scenario {}", record.id))?;
        print_replay(&record.id, &replayed);
        if options.verbose {
            for (kind, list) in [("differs", &replayed.different), ("uncalled", &replayed.uncalled)] {
                for d in list {
                    let margin = d.margin.map_or("class".to_owned(), |m| format!("{:.1}us", m as f64 / 1e3));
                    println!("    {kind} at {:.1} us, margin {margin}: {}", d.at.0 as f64 / 1e3, d.text);
                }
            }
        }
        sum.switches += replayed.switches;
        sum.different.extend(replayed.different);
        sum.uncalled.extend(replayed.uncalled);
    }
    print_replay("all", &sum);
    let pass = options.pass.unwrap_or(0.97);
    let ok = sum.equal() >= pass;
    println!(
        "{}: {:.2} % of the choices are equal, {:.2} % wanted",
        if ok { "inside" } else { "OUTSIDE" },
        sum.equal() * 100.0,
        pass * 100.0
    );
    Ok(ok)
}

fn print_replay(id: &str, r: &Replayed) {
    let far = r.different.iter().filter(|d| d.margin.is_none_or(|m| m > 20_000)).count();
    println!(
        "{id:12} {:8} {:7.2}% {:9} {:9} {:9}",
        r.switches,
        r.equal() * 100.0,
        r.different.len(),
        far,
        r.uncalled.len()
    );
}
