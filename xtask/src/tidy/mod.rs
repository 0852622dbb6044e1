//! `cargo xtask tidy`: what the compiler and clippy do not check. Also a test of this crate, so
//! that `cargo test` fails where the tree is untidy.

mod cited;
mod dead;
mod floors;
mod licences;
mod manifests;
mod source;
mod text;
mod words;
pub(crate) mod writers;

use source::Parsed;

use crate::finding::Finding;
use crate::{docs, tree};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// Runs every check on the tree this was built from.
pub(crate) fn command() -> Result<ExitCode> {
    let findings = check(&tree::root())?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!("tidy: nothing to complain about"),
        n => println!("tidy: {n} finding{}", if n == 1 { "" } else { "s" }),
    }
    Ok(ExitCode::from(u8::from(!findings.is_empty())))
}

/// Every finding in the tree at `root`, sorted by place.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let files = tree::files(root)?;
    let metadata = tree::metadata(root)?;
    let (mut findings, mut sources) = (Vec::new(), BTreeMap::new());
    floors::check(root, &metadata, &mut findings);
    manifests::check(root, &metadata, &files, &mut findings)?;
    licences::check(root, &mut findings)?;
    docs::check(root, &mut findings);
    let known = cited::Known::read(root, &files);
    for file in &files {
        if !text::is_checked(file) {
            continue;
        }
        let bytes = std::fs::read(root.join(file)).with_context(|| file.clone())?;
        let Ok(content) = String::from_utf8(bytes) else {
            findings.push(Finding::new(file, 0, "is not UTF-8"));
            continue;
        };
        text::check(file, &content, &mut findings);
        known.check(file, &content, &mut findings);
        let parsed = file.ends_with(".rs").then(|| Parsed::read(&content)).transpose();
        let parsed = parsed.unwrap_or_else(|error| {
            findings.push(source::unparsed(file, &error));
            None
        });
        words::check(file, &content, parsed.as_ref(), &mut findings);
        if let Some(parsed) = parsed {
            source::check(file, &parsed, &mut findings);
            sources.insert(file.clone(), parsed);
        }
    }
    dead::check(root, &metadata, &files, &sources, &mut findings)?;
    writers::check(&sources, &mut findings);
    findings.sort();
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let findings = check(&tree::root()).expect("the tree can be read");
        let listed: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(listed.is_empty(), "cargo xtask tidy found:\n{}", listed.join("\n"));
    }
}
