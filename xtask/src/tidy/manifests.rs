//! Manifests: shared lints, dependencies named once and with a reason.

use crate::finding::Finding;
use crate::tree::{Metadata, relative};
use anyhow::{Context, Result};
use std::path::Path;

/// Checks the workspace manifest and that of each crate.
pub(super) fn check(
    root: &Path,
    metadata: &Metadata,
    files: &[String],
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let read =
        |file: &str| std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned());
    reasons("Cargo.toml", &read("Cargo.toml")?, findings);
    for package in &metadata.packages {
        let manifest = relative(root, &package.manifest_path);
        member(&manifest, &read(&manifest)?, findings);
    }
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        if !files.iter().any(|file| file == licence) {
            findings.push(Finding::new(
                licence,
                0,
                "is missing, but Cargo.toml says MIT OR Apache-2.0",
            ));
        }
    }
    Ok(())
}

/// In `[workspace.dependencies]`, each block of lines starts with a comment that says why.
fn reasons(file: &str, content: &str, findings: &mut Vec<Finding>) {
    let mut inside = false;
    let mut explained = false;
    for (at, line) in content.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
            explained = false;
        } else if line.is_empty() {
            explained = false;
        } else if line.starts_with('#') {
            explained = true;
        } else if inside && !explained && !line.starts_with("schedlab") && line.contains('=') {
            let name = line.split(['=', '.']).next().unwrap_or(line).trim();
            let text =
                format!("dependency `{name}` has no comment above it that says what it is for");
            findings.push(Finding::new(file, at + 1, text));
        }
    }
}

/// A crate takes lints and versions from the workspace.
fn member(file: &str, content: &str, findings: &mut Vec<Finding>) {
    let mut section = String::new();
    let mut lints = false;
    for (at, line) in content.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
        } else if section == "lints" {
            lints |= line.replace(' ', "") == "workspace=true";
        } else if section.ends_with("dependencies") && line.contains('=') {
            let shared = line.contains(".workspace = true") || line.contains("workspace = true");
            if !shared {
                let text =
                    "versions live in the workspace Cargo.toml: write `name.workspace = true` here";
                findings.push(Finding::new(file, at + 1, text));
            }
        }
    }
    if !lints {
        findings.push(Finding::new(
            file,
            0,
            "does not share the lints: add `[lints]` with `workspace = true`",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_needs_a_reason() {
        let mut findings = Vec::new();
        let text = "[workspace.dependencies]\n# Errors.\nthiserror = \"2\"\nanyhow = \"1\"\n\n\
                    rand = \"1\"\n";
        reasons("Cargo.toml", text, &mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 6);
    }

    #[test]
    fn a_crate_shares_lints_and_versions() {
        let mut findings = Vec::new();
        let good = "[lints]\nworkspace = true\n[dependencies]\na.workspace = true\n";
        member("a/Cargo.toml", good, &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
        member("a/Cargo.toml", "[dependencies]\na = \"1\"\n", &mut findings);
        assert_eq!(findings.len(), 2);
    }
}
