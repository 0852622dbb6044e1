//! `cargo xtask pairs`: predictions beside what was recorded, for every pair of a file.

use crate::{arguments, tree};
use anyhow::{Context, Result, bail};
use schedlab_study::compare::ReplayFrom;
use schedlab_study::pairs::{self, Pair, PairFile, PairResult, Summary};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The pairs that ship.
const SHIPPED: &str = "recordings/pairs";
/// Of the intervals so many must hold what came (in per cent).
const HOLD_PERCENT: usize = 90;

/// What the user asked for.
#[derive(PartialEq, Debug, Default)]
struct Asked {
    path: Option<PathBuf>,
    only: Option<String>,
    figures: bool,
    /// With each of these replays; none: with the default.
    replays: Vec<ReplayFrom>,
    jobs: usize,
}

fn parse(args: &[String]) -> Result<Asked> {
    let mut asked = Asked { jobs: arguments::jobs(), ..Asked::default() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--only" => asked.only = Some(value()?.clone()),
            "--figures" => asked.figures = true,
            "--replay" => {
                asked.replays = match value()?.as_str() {
                    "both" => vec![ReplayFrom::Wakeups, ReplayFrom::Messages],
                    one => vec![one.parse()?],
                }
            }
            "--jobs" => asked.jobs = arguments::from_one(arg, value()?)?,
            option if option.starts_with('-') => {
                bail!("pairs has no option `{option}` (--only, --figures, --replay, --jobs)")
            }
            path if asked.path.is_none() => asked.path = Some(path.into()),
            extra => bail!("pairs takes one file or folder, and got `{extra}` too"),
        }
    }
    Ok(asked)
}

/// Predicts each pair, and prints the table; fails when a certain claim is wrong, or too few intervals hold.
pub(crate) fn command(args: &[String]) -> Result<ExitCode> {
    let asked = parse(args)?;
    if asked.figures {
        print!("{}", figures(asked.path.as_deref().context("--figures needs a recording")?)?);
        return Ok(ExitCode::SUCCESS);
    }
    let given = asked.path.unwrap_or_else(|| tree::root().join(SHIPPED));
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
            pairs::judge(folder, pair, from, asked.jobs).with_context(|| format!("pair {:?}", pair.name))
        };
        chosen.iter().map(one).collect()
    };
    if asked.replays.len() > 1 {
        let all = asked.replays.iter().map(|&from| Ok((from, judged(from)?))).collect::<Result<Vec<_>>>()?;
        print!("{}", pairs::side_by_side(&all));
        return Ok(ExitCode::SUCCESS);
    }
    let results = judged(asked.replays.first().copied().unwrap_or_default())?;
    print!("{}", pairs::table(&results));
    Ok(if is_good(&Summary::of(&results)) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// No certain claim is wrong, and the intervals hold as often as they must.
fn is_good(summary: &Summary) -> bool {
    summary.claims.1 == 0 && summary.held.1 * 100 >= summary.held.0 * HOLD_PERCENT
}

/// The figures of a recording, as a file of pairs has them.
fn figures(path: &Path) -> Result<String> {
    let figures = pairs::figures(path)?;
    let line = |(class, of): (&String, &std::collections::BTreeMap<_, f64>)| {
        let of: Vec<String> = of
            .iter()
            .map(|(metric, value): (&schedlab_study::metric::Metric, _)| format!("\"{metric}\" = {value:?}"))
            .collect();
        format!("{class:?} = {{ {} }}\n", of.join(", "))
    };
    Ok(figures.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(args: &[&str]) -> Result<Asked> {
        parse(&arguments::owned(args))
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let all = asked(&["some/dir", "--only", "idle", "--jobs", "3"]).unwrap();
        let expected = Asked {
            path: Some("some/dir".into()),
            only: Some("idle".to_owned()),
            figures: false,
            jobs: 3,
            ..Asked::default()
        };
        assert_eq!(all, expected);
        assert!(asked(&["--figures", "a.slt"]).unwrap().figures);
        for wrong in [&["a", "b"][..], &["--jobs", "0"], &["--only"], &["--what"]] {
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
