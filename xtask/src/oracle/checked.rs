//! `cargo xtask checked`: what the oracles compare, with how many decisions, as
//! `schedlab published` prints it.

use super::{OracleArgs, Preset, Replayed, data, replay_one, run_one, xen};
use crate::tree;
use anyhow::{Context, Result};
use guest_lab::guest_oracle;
use schedlab_study::published::Check;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The file that is made.
const FILE: &str = "oracles/checked.json";

/// Writes the file anew. Takes some minutes: every oracle runs.
pub(crate) fn command() -> Result<ExitCode> {
    let mut checks = xen_logs()?;
    checks.extend(kernels_on_one_cpu("")?);
    checks.extend(guest_oracle::checks()?);
    let path = tree::root().join(FILE);
    let text = serde_json::to_string_pretty(&checks)? + "\n";
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    println!("wrote {FILE}: {} comparisons", checks.len());
    Ok(ExitCode::SUCCESS)
}

/// The files of a folder of `oracles/`, by name, relative to the root.
fn files(folder: &str) -> Result<Vec<(String, PathBuf)>> {
    let whole = tree::root().join(folder);
    let mut files: Vec<(String, PathBuf)> = std::fs::read_dir(&whole)
        .with_context(|| whole.display().to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "zst"))
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (format!("{folder}/{name}"), path)
        })
        .collect();
    files.sort();
    Ok(files)
}

/// Decision logs of Xen's own code: how many decisions lie in scenarios that are identical to the
/// last one.
fn xen_logs() -> Result<Vec<Check>> {
    files("oracles/xen")?.iter().map(|(name, path)| xen_log(name, path)).collect()
}

fn xen_log(name: &str, path: &Path) -> Result<Check> {
    let counted = xen::count(path)?;
    let stem = name.rsplit('/').next().unwrap_or_default();
    let system =
        stem.trim_end_matches(".jsonl.zst").trim_start_matches("xen-").replacen('-', " ", 1);
    Ok(Check {
        system: format!("Xen's code: {system}"),
        compared: "every decision: time, pCPU, from, to, slice, credit".to_owned(),
        inside: counted.same,
        all: counted.decisions,
        unit: "decisions".to_owned(),
        scenarios: counted.scenarios,
        command: format!("cargo xtask oracle {name}"),
    })
}

/// Recorded kernels on one CPU, of files with this in their name: choices in replays, and whole
/// scenarios.
fn kernels_on_one_cpu(only: &str) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for (name, path) in files("oracles/linux")?.into_iter().filter(|(name, _)| name.contains(only))
    {
        let records = data::read(&path)?;
        let (mut sum, mut inside) = (Replayed::default(), 0);
        for record in &records {
            let preset = Preset::for_record(record, None)?;
            sum.add(replay_one(record, &preset)?);
            inside += u64::from(run_one(record, &preset, &OracleArgs::default())?.inside());
        }
        let scenarios = records.len() as u64;
        let knobs = if name.contains("knobs8cpu") { ", knobs of 8 CPUs" } else { "" };
        let system = format!("Linux {}, one CPU{knobs}", records[0].kernel);
        checks.push(Check {
            system: system.clone(),
            compared: "every choice, with the recorded wakeups".to_owned(),
            inside: sum.switches - sum.different.len() as u64,
            all: sum.switches,
            unit: "choices".to_owned(),
            scenarios,
            command: format!("cargo xtask oracle {name} --replay"),
        });
        checks.push(Check {
            system,
            compared: "shares within 0.5 points and mean waits within 15 % of every task"
                .to_owned(),
            inside,
            all: scenarios,
            unit: "scenarios".to_owned(),
            scenarios,
            command: format!("cargo xtask oracle {name}"),
        });
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_study::published;

    /// Xen's logs and one kernel: the others take minutes, and `cargo xtask checked` runs them all.
    #[test]
    fn what_published_says_was_checked_is_so() {
        let mut now = xen_logs().expect("shipped files");
        now.extend(kernels_on_one_cpu("6.12.95.jsonl").expect("shipped files"));
        for check in &now {
            assert!(published::checks().contains(check), "run `cargo xtask checked`: {check:?}");
        }
        assert_eq!(now.len(), 6);
    }
}
