//! What `schedlab bpf snapshot` wrote in the guest, beside what the loader had set there.

use super::plays::{self, SUBJECTS, Shape};
use crate::guest::catalogue::Verdict;
use anyhow::{Context, Result};
use schedlab_scheduler::SchedulerSpec;
use std::path::Path;

/// The scheduler that the script takes a snapshot of, and the file.
const OF: &str = "scx_bpfland";
const FILE: &str = "snapshot.toml";

/// Judges the snapshot; `None`: this machine has none.
pub(super) fn judge(folder: &Path, shape: Shape) -> Result<Option<Verdict>> {
    let path = folder.join(FILE);
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
    let subject = SUBJECTS.iter().find(|subject| subject.name == OF).context("no subject")?;
    let missing: Vec<&str> = plays::settings(subject, shape)
        .into_iter()
        .filter(|setting| !says(&text, setting))
        .collect();
    // It is taken as any profile is.
    let object = folder.join(format!("{OF}.bpf.o"));
    let spec = format!("bpf:{}?profile={}", object.display(), path.display());
    let specs: [SchedulerSpec; 1] = [spec.parse()?];
    let read = schedlab_study::objects::read(specs.iter(), Some(&folder.join("vmlinux.btf")));
    let mut text = format!("snapshot of {OF} on {}: its settings are in it", shape.word());
    if !missing.is_empty() {
        text = format!("snapshot of {OF}: {} are missing or other", missing.join(", "));
    }
    if let Err(error) = &read {
        text += &format!("; it is no profile: {error}");
    }
    Ok(Some(Verdict { good: missing.is_empty() && read.is_ok(), text }))
}

/// Whether a line of the profile has this setting (`name=5`, `ops.flags=0x36`).
fn says(profile: &str, setting: &str) -> bool {
    let Some((name, value)) = setting.split_once('=') else { return false };
    let value = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or(0).to_string(),
        None => value.to_owned(),
    };
    let line = format!("\"{name}\" = {value}");
    profile.lines().any(|own| own == line)
}

#[cfg(test)]
mod tests {
    use super::says;

    #[test]
    fn a_setting_is_looked_for_as_a_line() {
        let profile = "[options]\n\"ops.flags\" = 54\n\"slice_max\" = 1000000\n";
        assert!(says(profile, "ops.flags=0x36") && says(profile, "slice_max=1000000"));
        assert!(!says(profile, "slice_max=1") && !says(profile, "slice=1000000"));
    }
}
