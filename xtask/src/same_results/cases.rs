//! What both programs are asked.

use anyhow::{Context, Result};
use std::path::Path;

/// In arguments it means a folder that is empty before each run.
pub(super) const OUT: &str = "{out}";

/// One thing to do.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) arguments: Vec<String>,
    /// Files that it writes into [`OUT`].
    pub(super) files: Vec<String>,
    /// Run `xtask` and not `schedlab`.
    pub(super) oracle: bool,
}

impl Case {
    /// Returns the command line, for messages and for choosing.
    pub(super) fn name(&self) -> String {
        self.arguments.join(" ")
    }
}

/// The analyses of `schedlab show`, with what they need.
const ANALYSES: [&[&str]; 14] = [
    &["--worst", "20"],
    &["--latency"],
    &["--timehist"],
    &["--slices"],
    &["--blame"],
    &["--tasks"],
    &["--throttle"],
    &["--states"],
    &["--runqueue"],
    &["--conservation"],
    &["--wakes"],
    &["--migrations"],
    &["--stream"],
    &["--syscalls"],
];

/// Changes that are tried on every recording: one of policy, one of nice, one of the scheduler.
const VARIANTS: [&str; 3] = ["idle: * policy=idle", "nicer: * nice=5", "half: * demand=50%"];

/// Returns every case, `oracles` included where both sides can run them.
pub(super) fn all(root: &Path, oracles: bool) -> Result<Vec<Case>> {
    let recordings = files(root, "recordings", "slt")?;
    let scenarios = files(root, "scenarios", "toml")?;
    let mut cases = Vec::new();
    let mut add = |arguments: &[&str], files: &[&str]| {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        cases.push(Case { arguments: owned(arguments), files: owned(files), oracle: false });
    };
    // The longest first: nothing waits for them at the end.
    add(&["published", "--json"], &[]);
    for scenario in &scenarios {
        add(&["compare", scenario, "--json"], &[]);
        let (one, tasks) = (
            &["show", scenario, "--tasks", "--json"],
            &["show", scenario, "--timehist", "--top", "500"],
        );
        add(one, &[]);
        add(tasks, &[]);
    }
    for recording in &recordings {
        add(&["compare", recording, "--json"], &[]);
        for variant in VARIANTS {
            add(
                &["compare", recording, "--variant", variant, "--scheduler", "linux-6.1", "--json"],
                &[],
            );
        }
        for analysis in ANALYSES {
            let arguments: Vec<&str> =
                ["show", recording].into_iter().chain(analysis.iter().copied()).collect();
            add(&[&arguments[..], &["--json"]].concat(), &[]);
        }
        export(recording, &mut add);
    }
    add(&["diff", &recordings[0], &recordings[0], "--json"], &[]);
    add(&["list", "schedulers", "--json"], &[]);
    add(&["list", "scenarios", "--json"], &[]);
    for text in files(root, "fuzz/corpus/import", "txt")? {
        add(&["import", &text, "-o", "{out}/a.slt", "--json"], &["a.slt"]);
    }
    for text in files(root, "fuzz/corpus/rtapp", "json")? {
        add(&["import", &text, "-o", "{out}/a.toml", "--json"], &["a.toml"]);
    }
    if oracles {
        cases.extend(of_oracles(root)?);
    }
    Ok(cases)
}

fn export(recording: &str, add: &mut impl FnMut(&[&str], &[&str])) {
    add(&["export", recording, "--perfetto", "{out}/a.pftrace"], &["a.pftrace"]);
    add(
        &["export", recording, "--ftrace", "{out}/a.txt", "--perf-script", "{out}/b.txt"],
        &["a.txt", "b.txt"],
    );
    add(
        &["export", recording, "--csv", "{out}/csv"],
        &["csv/events.csv", "csv/tasks.csv", "csv/waits.csv"],
    );
}

/// Real decisions of Xen and of Linux against the models.
fn of_oracles(root: &Path) -> Result<Vec<Case>> {
    let case = |file: &str, more: &[&str]| {
        let arguments = ["oracle", file, "--json"].into_iter().chain(more.iter().copied());
        Case { arguments: arguments.map(str::to_owned).collect(), files: Vec::new(), oracle: true }
    };
    let mut cases = Vec::new();
    for file in files(root, "oracles/xen", "zst")? {
        cases.push(case(&file, &[]));
    }
    for file in files(root, "oracles/linux", "zst")? {
        cases.push(case(&file, &[]));
        cases.push(case(&file, &["--replay"]));
    }
    Ok(cases)
}

/// Returns the files of a folder with this ending, sorted, as paths from the root.
fn files(root: &Path, folder: &str, ending: &str) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())?;
    let mut found: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.rsplit('.').next() == Some(ending))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recording_and_scenario_is_asked() {
        let cases = all(&crate::tree::root(), true).unwrap();
        let with = |part: &str| cases.iter().filter(|case| case.name().contains(part)).count();
        assert!(
            with("compare scenarios/two-hogs.toml") == 1
                && with("compare recordings/two-yes.slt") == 4
        );
        assert!(with("show recordings/two-yes.slt") == ANALYSES.len() && with("oracle ") >= 14);
    }
}
