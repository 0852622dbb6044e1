//! `cargo xtask same-results OLD NEW`: a change that must change no result is held to that. Both
//! programs do the same things with the same inputs, and every number and every name that OLD
//! prints must be in what NEW prints.

mod cases;
mod json;

use anyhow::{Context, Result, bail, ensure};
use cases::Case;
use json::Comparison;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Differences of one case that are printed.
const SHOWN: usize = 5;

/// Where the programs of one state are.
#[derive(Clone, Debug)]
struct Programs {
    schedlab: PathBuf,
    /// Only of a checkout: runs the oracles.
    xtask: Option<PathBuf>,
}

impl Programs {
    /// Returns the programs of `path`: a `schedlab`, or a checkout in which it is built for
    /// release.
    fn at(path: &str) -> Result<Programs> {
        let path = std::fs::canonicalize(path)
            .with_context(|| format!("{path}: neither a program nor a checkout"))?;
        if path.is_file() {
            return Ok(Programs { schedlab: path, xtask: None });
        }
        let [schedlab, xtask] =
            ["schedlab", "xtask"].map(|name| path.join("target/release").join(name));
        ensure!(
            schedlab.is_file(),
            "{} does not exist: build it with `cargo build --release -p schedlab-cli -p xtask`",
            schedlab.display()
        );
        Ok(Programs { schedlab, xtask: Some(xtask).filter(|program| program.is_file()) })
    }

    fn run(&self, case: &Case, root: &Path, scratch: &Path) -> Result<Output> {
        let program = match (&self.xtask, case.oracle) {
            (_, false) => &self.schedlab,
            (Some(xtask), true) => xtask,
            (None, true) => bail!("no xtask beside {}", self.schedlab.display()),
        };
        std::fs::create_dir_all(scratch)?;
        let arguments = case
            .arguments
            .iter()
            .map(|text| text.replace(cases::OUT, &scratch.display().to_string()));
        Command::new(program)
            .args(arguments)
            .current_dir(root)
            // A terminal's width, a home's preset or a colour must not tell the two apart.
            .env_remove("COLUMNS")
            .env("XDG_DATA_HOME", scratch)
            .env("NO_COLOR", "1")
            .output()
            .with_context(|| program.display().to_string())
    }
}

/// Runs two programs with the same inputs: every number, name and key that OLD gives must be in
/// what NEW gives; sentences may differ
#[derive(clap::Args, Debug)]
pub(crate) struct SameResultsArgs {
    /// The program before a change, or a checkout with what it built for release
    old: String,
    /// The program after it
    new: String,
    /// Only cases that contain this
    #[arg(value_name = "CASE")]
    only: Vec<String>,
}

/// Runs the chore.
pub(crate) fn command(args: &SameResultsArgs) -> Result<ExitCode> {
    let SameResultsArgs { old, new, only } = args;
    let (old, new) = (Programs::at(old)?, Programs::at(new)?);
    let root = crate::tree::root();
    let oracles = old.xtask.is_some() && new.xtask.is_some();
    let mut cases = cases::all(&root, oracles)?;
    if !only.is_empty() {
        cases.retain(|case| only.iter().any(|part| case.name().contains(part.as_str())));
        ensure!(!cases.is_empty(), "no case contains {}", only.join(" or "));
    }
    if !oracles {
        println!("without the oracles: name two checkouts in which xtask is built for release too");
    }
    let found = compare_all(&cases, &old, &new, &root)?;
    let failed = found.iter().filter(|(_, comparison)| !comparison.differences.is_empty()).count();
    for (case, comparison) in &found {
        report(case, comparison);
    }
    let sum = |of: fn(&Comparison) -> usize| {
        found.iter().map(|(_, comparison)| of(comparison)).sum::<usize>()
    };
    println!(
        "same-results: {} cases, {failed} differ; {} values the same, {} keys new, {} sentences \
         read differently",
        found.len(),
        sum(|c| c.same),
        sum(|c| c.added),
        sum(|c| c.sentences.len())
    );
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs every case with both programs, two at a time for each CPU pair, and keeps the order of the
/// cases.
fn compare_all<'a>(
    cases: &'a [Case],
    old: &Programs,
    new: &Programs,
    root: &Path,
) -> Result<Vec<(&'a Case, Comparison)>> {
    let folder = tempfile::tempdir()?;
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { return Ok(()) };
            let of = |programs: &Programs, name: &str| -> Result<Said> {
                let scratch = folder.path().join(format!("{index}-{name}"));
                let output = programs.run(case, root, &scratch)?;
                let said = Said::of_run(output, case, &scratch);
                let _ = std::fs::remove_dir_all(&scratch);
                said
            };
            let comparison = of(old, "old")?.compare(&of(new, "new")?);
            let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            done.push((index, comparison));
            if std::io::stderr().is_terminal() {
                eprint!("\r{}/{} ", done.len(), cases.len());
            }
        }
    };
    let threads = guest_lab::jobs();
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        handles
            .into_iter()
            .try_for_each(|handle| handle.join().unwrap_or_else(|_| bail!("a thread panicked")))
    })?;
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(index, comparison)| (&cases[index], comparison)).collect())
}

/// What a program said: its exit code, what it printed and the files that it wrote.
struct Said {
    code: Option<i32>,
    printed: Vec<u8>,
    errors: String,
    files: Vec<(String, Vec<u8>)>,
}

impl Said {
    fn of_run(output: Output, case: &Case, scratch: &Path) -> Result<Said> {
        let mut files = Vec::new();
        for name in &case.files {
            // A program that refuses writes nothing: the exit code tells.
            files.push((name.clone(), std::fs::read(scratch.join(name)).unwrap_or_default()));
        }
        let errors = String::from_utf8_lossy(&output.stderr)
            .replace(&scratch.display().to_string(), cases::OUT);
        let printed = String::from_utf8_lossy(&output.stdout)
            .replace(&scratch.display().to_string(), cases::OUT);
        Ok(Said { code: output.status.code(), printed: printed.into_bytes(), errors, files })
    }

    fn compare(&self, new: &Said) -> Comparison {
        let mut comparison = Comparison::default();
        if self.code != new.code {
            let code = |said: &Said| {
                format!("{:?} {}", said.code, said.errors.lines().next().unwrap_or_default())
            };
            comparison.differences.push(format!("exit code: {} -> {}", code(self), code(new)));
        }
        comparison.texts("", &self.printed, &new.printed);
        for ((name, old), (_, new)) in self.files.iter().zip(&new.files) {
            comparison.texts(name, old, new);
        }
        comparison
    }
}

fn report(case: &Case, comparison: &Comparison) {
    for line in comparison.differences.iter().take(SHOWN) {
        println!("{}: {line}", case.name());
    }
    let more = comparison.differences.len().saturating_sub(SHOWN);
    if more > 0 {
        println!("{}: and {more} more", case.name());
    }
    for line in comparison.sentences.iter().take(1) {
        println!("{} reads: {line}", case.name());
    }
}
