//! `cargo xtask pairs`: predictions beside what was recorded, for every pair of a file.

use super::{Pair, PairFile, PairResult, Summary, beside, page};
use crate::root;
use anyhow::{Context, Result, bail};
use schedlab_study::compare::ReplayFrom;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The pairs that ship.
const SHIPPED: &str = "recordings/pairs";
/// Of the intervals so many must hold what came (in per cent).
const HOLD_PERCENT: usize = 90;

/// Predicts every pair of recordings of a file, prints prediction, interval and claim beside what
/// was recorded, and fails when a certain claim is wrong
#[derive(clap::Args, PartialEq, Debug)]
pub struct PairsArgs {
    /// A file of pairs, or the folder of a pairs.toml [default: recordings/pairs]
    #[arg(value_name = "FILE")]
    path: Option<PathBuf>,
    /// Only pairs with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the figures of the recording FILE, as a file of pairs keeps them
    #[arg(long, requires = "path")]
    figures: bool,
    /// Replay recordings from this: messages, wakeups, auto, or both, beside each other
    #[arg(long, value_name = "FROM", value_parser = replays, default_value = "auto")]
    replay: Replays,
    /// Print a line for each pair and figure, or one for each server or number of CPUs
    #[arg(long, value_name = "WHAT", default_value = "pair")]
    by: By,
    /// Write the tables of docs/predictions.md from the pairs that ship
    #[arg(long, conflicts_with_all = ["path", "only", "figures"])]
    write: bool,
    /// Simulations at once [default: one a CPU]
    #[arg(long, value_name = "N", default_value_t = crate::jobs(), value_parser = crate::from_one)]
    jobs: usize,
}

/// What has a line of the table.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Debug)]
enum By {
    Pair,
    Server,
    /// By the number of CPUs, with what errors are made of
    Cpus,
}

/// One replay, or several.
#[derive(Clone, PartialEq, Debug)]
struct Replays(Vec<ReplayFrom>);

fn replays(text: &str) -> Result<Replays, String> {
    match text {
        "both" => Ok(Replays(ReplayFrom::ALL.to_vec())),
        one => Ok(Replays(vec![one.parse().map_err(|error| format!("{error}; or both"))?])),
    }
}

/// Predicts each pair, and prints the table; fails when a certain claim is wrong, or too few
/// intervals hold.
///
/// # Errors
/// What cannot be read or predicted.
pub fn command(asked: PairsArgs) -> Result<ExitCode> {
    if asked.figures {
        print!("{}", figures(asked.path.as_deref().context("--figures needs a recording")?)?);
        return Ok(ExitCode::SUCCESS);
    }
    if asked.write {
        return write(asked.jobs);
    }
    let given = asked.path.unwrap_or_else(|| root().join(SHIPPED));
    let path = if given.is_dir() { given.join("pairs.toml") } else { given };
    let file = PairFile::open(&path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let wanted = |name: &str| asked.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let chosen: Vec<&Pair> = file.pairs.iter().filter(|pair| wanted(&pair.name)).collect();
    if chosen.is_empty() {
        bail!("{}: no pair is asked for", path.display());
    }
    let judged = |from: ReplayFrom| -> Result<Vec<PairResult>> {
        let one = |pair: &&Pair| {
            eprintln!("{} ...", pair.name);
            super::judge(folder, pair, from, asked.jobs)
                .with_context(|| format!("pair {:?}", pair.name))
        };
        chosen.iter().map(one).collect()
    };
    let all =
        asked.replay.0.iter().map(|&from| Ok((from, judged(from)?))).collect::<Result<Vec<_>>>()?;
    let [(_, results)] = &all[..] else {
        let table = match asked.by {
            By::Pair => beside::side_by_side(&all),
            By::Server => beside::by_server(&all),
            By::Cpus => by_cpus_each(&all),
        };
        print!("{table}");
        return Ok(ExitCode::SUCCESS);
    };
    let table = match asked.by {
        By::Pair => super::table(results),
        By::Server => page::by_server(results),
        By::Cpus => super::cpus::by_cpus(results) + &page::sentences(results),
    };
    print!("{table}");
    Ok(if is_good(&Summary::from_results(results)) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The tables by the number of CPUs, of each replay.
fn by_cpus_each(all: &[(ReplayFrom, Vec<PairResult>)]) -> String {
    all.iter().map(|(from, of)| format!("{from}:\n{}", super::cpus::by_cpus(of))).collect()
}

/// Writes the tables of the page; fails when they show a wrong claim.
fn write(jobs: usize) -> Result<ExitCode> {
    let path = root().join(page::PAGE);
    let mut text = std::fs::read_to_string(&path).context(page::PAGE)?;
    let mut good = true;
    for (begin, folder) in page::TABLES {
        let results = super::judge_all(&root().join(folder), jobs, |_| true)?;
        good &= is_good(&Summary::from_results(&results));
        text = page::with_table(&text, begin, &page::table(begin, &results))?;
    }
    text = page::with_table(&text, page::BESIDE.0, &page::beside(jobs)?)?;
    text = page::with_table(&text, page::TOLD, &page::told(&text)?)?;
    std::fs::write(&path, &text).context(page::PAGE)?;
    print!("{}", page::told(&text)?);
    println!("wrote {}", page::PAGE);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// No certain claim is wrong, and the intervals hold as often as they must.
fn is_good(summary: &Summary) -> bool {
    summary.claims.1 == 0 && summary.held.1 * 100 >= summary.held.0 * HOLD_PERCENT
}

/// The figures of a recording, as a file of pairs has them.
fn figures(path: &Path) -> Result<String> {
    let figures = super::figures(path)?;
    let line = |(class, of): (&String, &std::collections::BTreeMap<_, f64>)| {
        let of: Vec<String> = of
            .iter()
            .map(|(metric, value): (&schedlab_study::metric::Metric, _)| {
                format!("\"{metric}\" = {value:?}")
            })
            .collect();
        format!("{class:?} = {{ {} }}\n", of.join(", "))
    };
    Ok(figures.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(args: &[&str]) -> Result<PairsArgs, clap::Error> {
        crate::parsed(args)
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let all = asked(&["some/dir", "--only", "idle", "--jobs", "3"]).unwrap();
        let expected = PairsArgs {
            path: Some("some/dir".into()),
            only: Some("idle".to_owned()),
            figures: false,
            write: false,
            replay: Replays(vec![ReplayFrom::Auto]),
            by: By::Pair,
            jobs: 3,
        };
        assert_eq!(all, expected);
        assert!(asked(&["--figures", "a.slt"]).unwrap().figures);
        assert_eq!(asked(&["--by", "server"]).unwrap().by, By::Server);
        for wrong in [&["a", "b"][..], &["--jobs", "0"], &["--only"], &["--what"], &["--figures"]] {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn one_wrong_claim_is_too_many() {
        let good = Summary { pairs: (3, 3), held: (20, 18), claims: (9, 0), ..Summary::default() };
        assert!(is_good(&good));
        assert!(!is_good(&Summary { claims: (9, 1), ..good.clone() }));
        assert!(!is_good(&Summary { held: (20, 17), ..good }));
    }
}
