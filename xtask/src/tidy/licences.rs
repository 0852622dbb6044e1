//! Permissive licences only. The list is that of deny.toml; this check needs no cargo-deny and no
//! network.

use crate::finding::Finding;
use crate::tree;
use anyhow::{Context, Result, bail};
use std::path::Path;

const DENY: &str = "deny.toml";

/// A finding for each dependency whose licence does not allow what the list allows.
pub(super) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    let allowed = allow_list(&std::fs::read_to_string(root.join(DENY)).context(DENY)?)?;
    for package in tree::everything(root)?.packages {
        let expression = package.license.as_deref().unwrap_or("");
        if !permitted(expression, &allowed) {
            let text = format!(
                "dependency {} has the licence `{expression}`, which the allow list does not \
                 cover: choose \
                 another crate",
                package.name
            );
            findings.push(Finding::new(DENY, 0, text));
        }
    }
    Ok(())
}

/// The entries of `allow = [...]`.
fn allow_list(text: &str) -> Result<Vec<String>> {
    let Some((_, rest)) = text.split_once("allow = [") else {
        bail!("{DENY}: no `allow = [` list")
    };
    let list = rest.split(']').next().unwrap_or_default();
    Ok(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Whether an SPDX expression (`OR`, `AND`, `WITH`, parentheses; `/` as old crates write OR) is
/// satisfied.
fn permitted(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let answer = any(&words, &mut at, allowed);
    answer && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut answer = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        answer |= all(words, at, allowed);
    }
    answer
}

fn all(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut answer = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        answer &= one(words, at, allowed);
    }
    answer
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let answer = any(words, at, allowed);
        *at += 1;
        return answer;
    }
    let mut name = (*word).to_owned();
    if words.get(*at) == Some(&"WITH")
        && let Some(exception) = words.get(*at + 1)
    {
        name = format!("{name} WITH {exception}");
        *at += 2;
    }
    allowed.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_understood() {
        let allowed = allow_list(
            "[licenses]\nallow = [\n  \"MIT\",\n  \"Apache-2.0 WITH LLVM-exception\",\n]\n",
        )
        .unwrap();
        for good in ["MIT", "MIT/Apache-2.0", "GPL-2.0 OR MIT", "(MIT OR GPL-3.0) AND MIT"] {
            assert!(permitted(good, &allowed), "{good}");
        }
        assert!(permitted("Apache-2.0 WITH LLVM-exception", &allowed));
        for bad in [
            "",
            "GPL-2.0-only",
            "MIT AND GPL-2.0",
            "Apache-2.0",
            "(MIT OR GPL-3.0) AND GPL-3.0",
            "MIT )",
        ] {
            assert!(!permitted(bad, &allowed), "{bad}");
        }
    }
}
