//! `cargo xtask reach PART -- COMMAND`: runs a part of the tests, unless no file that counts for it
//! has changed since it passed. Which files count is said in `.ci/reach.toml`; when in doubt, the
//! part runs.

use crate::tree;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const RULES: &str = ".ci/reach.toml";
const PASSED: &str = ".ci/passed.toml";

/// The head of `.ci/passed.toml`.
const ABOUT: &str = "\
# Parts of the tests that passed, and a hash of every file that counts for each (.ci/reach.toml). \
Written by
# `cargo xtask reach PART` when the part passes; commit it with the change that it tested.
";

/// What is said about one part.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// Pathspecs of files that cannot matter to the part.
    cannot: Vec<String>,
    /// Arguments of `cargo xtask`: what that prints counts, too.
    #[serde(default)]
    asks: Vec<String>,
}

/// The hash of one part.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
struct Pass {
    hash: String,
}

/// Runs a part of the tests, unless no file that counts for it (.ci/reach.toml) has changed since
/// it passed; alone: prints which parts would run, and why
#[derive(clap::Args, Debug)]
pub(crate) struct ReachArgs {
    /// The part
    #[arg(requires = "command")]
    part: Option<String>,
    /// Run it whatever changed
    #[arg(long)]
    always: bool,
    /// What runs it
    #[arg(last = true)]
    command: Vec<String>,
}

pub(crate) fn command(args: &ReachArgs) -> Result<ExitCode> {
    let tree = tree::root();
    let rules = rules(&tree)?;
    let Some(part) = &args.part else {
        for (part, rule) in &rules {
            println!(
                "{part}: {}",
                why(&tree, part, rule).unwrap_or("left out, unchanged since it passed".to_owned())
            );
        }
        return Ok(ExitCode::SUCCESS);
    };
    let rule = rules.get(part).with_context(|| {
        let known: Vec<&str> = rules.keys().map(String::as_str).collect();
        format!("{RULES} has no part {part}; it has {}", known.join(", "))
    })?;
    let program = &args.command;
    match why(&tree, part, rule) {
        None if !args.always => {
            println!(
                "{part}: left out, no file that counts for it has changed since it passed ({RULES})"
            );
            return Ok(ExitCode::SUCCESS);
        }
        reason => println!("{part}: {}", reason.unwrap_or("runs, as asked".to_owned())),
    }
    let before = hash(&tree, rule);
    let status = Command::new(&program[0])
        .args(&program[1..])
        .status()
        .with_context(|| program[0].clone())?;
    if !status.success() {
        return Ok(ExitCode::from(
            status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
        ));
    }
    // What changed meanwhile was not tested.
    if let (Ok(before), Ok(after)) = (before, hash(&tree, rule))
        && before == after
    {
        keep(&tree, part, after)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn rules(tree: &Path) -> Result<BTreeMap<String, Rule>> {
    let text = std::fs::read_to_string(tree.join(RULES)).context(RULES)?;
    toml::from_str(&text).context(RULES)
}

/// Returns why a part runs; `None`: every file that counts for it is as it was when it passed.
fn why(tree: &Path, part: &str, rule: &Rule) -> Option<String> {
    let hash = match hash(tree, rule) {
        Ok(hash) => hash,
        Err(error) => return Some(format!("runs, its files cannot be compared: {error:#}")),
    };
    match passed(tree).get(part) {
        Some(pass) if pass.hash == hash => None,
        Some(_) => Some("runs, a file that counts for it has changed since it passed".to_owned()),
        None => Some(format!("runs, {PASSED} does not say that it passed")),
    }
}

/// Returns the parts that passed: none when the file is missing or cannot be read.
fn passed(tree: &Path) -> BTreeMap<String, Pass> {
    let text = std::fs::read_to_string(tree.join(PASSED)).unwrap_or_default();
    toml::from_str(&text).unwrap_or_default()
}

fn keep(tree: &Path, part: &str, hash: String) -> Result<()> {
    let mut parts = passed(tree);
    let pass = Pass { hash };
    if parts.insert(part.to_owned(), pass.clone()).as_ref() != Some(&pass) {
        std::fs::write(tree.join(PASSED), format!("{ABOUT}\n{}", toml::to_string(&parts)?))
            .context(PASSED)?;
        println!("{part}: passed, noted in {PASSED}");
    }
    Ok(())
}

/// Returns the files that count for a part, sorted.
fn counted(tree: &Path, rule: &Rule) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "."]);
    git.args(rule.cannot.iter().map(|spec| format!(":(exclude){spec}"))).current_dir(tree);
    let output = git.output().context("git")?;
    ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = String::from_utf8(output.stdout).context("names of files")?;
    let mut files: Vec<String> = text.split('\0').map(str::to_owned).collect();
    files.retain(|file| !file.is_empty() && tree.join(file).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

/// Returns what this program prints when it is asked this; nothing is asked: nothing.
fn ask(tree: &Path, question: &[String]) -> Result<String> {
    if question.is_empty() {
        return Ok(String::new());
    }
    let program = std::env::current_exe().context("this program")?;
    let output =
        Command::new(program).args(question).current_dir(tree).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo xtask {}: {}", question.join(" "), said.trim());
    String::from_utf8(output.stdout).context("its answer")
}

/// Returns a hash of the names and contents of the files that count for a part, and of the answer
/// that does.
fn hash(tree: &Path, rule: &Rule) -> Result<String> {
    let files = counted(tree, rule)?;
    ensure!(!files.is_empty(), "no file counts");
    let list = files.join("\n");
    let contents = hash_object(tree, &["--no-filters", "--stdin-paths"], &list)?;
    ensure!(contents.lines().count() == files.len(), "git hash-object left out a file");
    let answer = ask(tree, &rule.asks)?;
    Ok(hash_object(tree, &["--stdin"], &(list + "\n" + &contents + &answer))?.trim().to_owned())
}

fn hash_object(tree: &Path, options: &[&str], input: &str) -> Result<String> {
    let mut git = Command::new("git");
    git.arg("hash-object")
        .args(options)
        .current_dir(tree)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = git.spawn().context("git")?;
    let mut stdin = child.stdin.take().context("git has a standard input")?;
    let input = input.to_owned();
    // It answers while it reads: both pipes would fill.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    writer.join().expect("the thread only writes")?;
    ensure!(output.status.success(), "git hash-object failed");
    String::from_utf8(output.stdout).context("hashes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_changed_path_makes_run() {
        let tree = tree::root();
        let rules = rules(&tree).unwrap();
        let counted: BTreeMap<&str, Vec<String>> = rules
            .iter()
            .map(|(part, rule)| (part.as_str(), super::counted(&tree, rule).unwrap()))
            .collect();
        for (path, runs) in [
            ("Cargo.lock", &["guests-short", "python"][..]),
            ("README.md", &[]),
            ("bpf/sched.bpf.c", &["guests-short"]),
            ("crates/cli/src/main.rs", &["guests-short", "python"]),
            ("crates/host/src/lib.rs", &["guests-short"]),
            ("crates/sim/src/lib.rs", &["python"]),
            ("crates/sim/tests/it/main.rs", &[]),
            ("crates/trace/src/lib.rs", &["guests-short", "python"]),
            ("docs/guests.md", &[]),
            ("python/tests/test_schedlab.py", &["python"]),
            ("scenarios/two-hogs.toml", &["python"]),
            ("guest-lab/guest/tests/attach.sh", &["guests-short"]),
            ("guest-lab/tests/pairs.rs", &[]),
        ] {
            assert!(tree.join(path).is_file(), "{path} is not there any more");
            let counts = counted.iter().filter(|(_, files)| files.iter().any(|file| file == path));
            assert_eq!(counts.map(|(part, _)| *part).collect::<Vec<_>>(), runs, "{path}");
        }
    }

    /// A repository with one file that counts and one that does not.
    #[test]
    fn only_what_counts_changes_the_hash() {
        let tree =
            schedlab_testing::temp_dir().join(format!("schedlab-reach-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&tree);
        std::fs::create_dir_all(tree.join("docs")).unwrap();
        let write = |file: &str, text: &str| std::fs::write(tree.join(file), text).unwrap();
        let rule = Rule { cannot: vec!["docs".to_owned()], asks: Vec::new() };
        write("a.rs", "1");
        write("docs/README.md", "1");
        assert!(hash(&tree, &rule).is_err(), "without git nothing is left out");
        assert!(
            Command::new("git").args(["init", "-q"]).current_dir(&tree).status().unwrap().success()
        );
        let first = hash(&tree, &rule).unwrap();
        write("docs/README.md", "2");
        assert_eq!(hash(&tree, &rule).unwrap(), first);
        write("b.rs", "1");
        let second = hash(&tree, &rule).unwrap();
        assert_ne!(second, first);
        std::fs::remove_file(tree.join("b.rs")).unwrap();
        assert_eq!(hash(&tree, &rule).unwrap(), first);
        write("a.rs", "2");
        assert_ne!(hash(&tree, &rule).unwrap(), first);
        std::fs::remove_dir_all(tree).unwrap();
    }

    #[test]
    fn what_is_asked_and_not_answered_makes_a_part_run() {
        let rule = Rule { cannot: Vec::new(), asks: vec!["--no-such-option".to_owned()] };
        let reason = why(&tree::root(), "x", &rule).unwrap();
        assert!(
            reason.starts_with("runs, its files cannot be compared: cargo xtask --no-such-option"),
            "{reason}"
        );
    }

    #[test]
    fn a_part_that_passed_is_left_out_until_something_changes() {
        let tree =
            schedlab_testing::temp_dir().join(format!("schedlab-passed-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&tree);
        std::fs::create_dir_all(tree.join(".ci")).unwrap();
        assert!(
            Command::new("git").args(["init", "-q"]).current_dir(&tree).status().unwrap().success()
        );
        std::fs::write(tree.join("a.rs"), "1").unwrap();
        let rule = Rule { cannot: vec![PASSED.to_owned()], asks: Vec::new() };
        assert!(why(&tree, "x", &rule).unwrap().contains("does not say"));
        keep(&tree, "x", hash(&tree, &rule).unwrap()).unwrap();
        assert_eq!(why(&tree, "x", &rule), None);
        keep(&tree, "y", "other".to_owned()).unwrap();
        assert_eq!(why(&tree, "x", &rule), None);
        assert!(why(&tree, "y", &rule).unwrap().contains("has changed"));
        std::fs::write(tree.join(PASSED), "damaged").unwrap();
        assert!(why(&tree, "x", &rule).is_some());
        std::fs::remove_dir_all(tree).unwrap();
    }
}
