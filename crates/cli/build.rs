//! Tells the program which commit it is built from, for the provenance of its results, and with
//! which features.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    // `git status` would write the index that cargo watches below, and the next build would begin
    // here again.
    command.args(arguments).env("GIT_OPTIONAL_LOCKS", "0");
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    // Files that git does not know do not end up in the program.
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|text| !text.is_empty());
    println!(
        "cargo::rustc-env=SCHEDLAB_COMMIT={commit}{}",
        if changed { " with changes" } else { "" }
    );
    println!("cargo::rustc-env=SCHEDLAB_FEATURES={}", features());
    for name in ["HEAD", "logs/HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", name])
            && std::path::Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// Returns the features of this build, without the name of those that are there by default.
fn features() -> String {
    let named = std::env::vars().filter_map(|(name, _)| {
        let feature = name.strip_prefix("CARGO_FEATURE_")?.to_lowercase().replace('_', "-");
        (feature != "default").then_some(feature)
    });
    let mut named: Vec<String> = named.collect();
    named.sort();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}
