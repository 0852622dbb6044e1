//! `cargo xtask guest-oracle`: recordings of real kernels on several CPUs beside their replays and
//! predictions.
//!
//! `oracles/guest/KERNEL/SCENARIO_NAME.slt`: one recording before any change (`A`) and one after
//! each change, made under the virtual clock of docs/guests.md. A share is compared task by task.

mod places;

use crate::root;
use anyhow::{Context, Result, bail};
use schedlab_model::Ns;
use schedlab_study::compare::{Options, RecordedInput, compare_recording};
use schedlab_study::measurements::Kind;
use schedlab_study::metric::Metric;
use schedlab_study::published::Check;
use schedlab_study::result::{Replayed, Row, Study};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The recordings that ship.
const SHIPPED: &str = "oracles/guest";
/// Tasks with less of a CPU than this, recorded and simulated, are left out.
const MATTERS: f64 = 0.001;

/// Seeds of each replay. The range of so many runs holds the next one with a probability of (n - 1)
/// / (n + 1), if all are drawn alike: 90 % with 19, which is what is demanded of the intervals. A
/// range of eleven could not hold more than 83 % of the recordings, were the model exact.
const SEEDS: u32 = 19;

/// A workload, what was changed in it, and the names of the tasks that are compared begin with one
/// of these letters.
struct Scenario {
    letter: &'static str,
    name: &'static str,
    tasks: &'static [char],
    changes: &'static [(&'static str, &'static str)],
}

const SCENARIOS: [Scenario; 4] = [
    Scenario {
        letter: "a",
        name: "six hogs",
        tasks: &['h'],
        changes: &[
            ("nice", "h1 nice=10"),
            ("idle", "h5 policy=idle ; h6 policy=idle"),
            ("aff", "h1 cpus=0 ; h2 cpus=0"),
        ],
    },
    Scenario {
        letter: "b",
        name: "hogs, sleepers",
        tasks: &['h', 's'],
        changes: &[
            ("nice", "h1 nice=10 ; h2 nice=10 ; h3 nice=10"),
            ("idle", "h1 policy=idle ; h2 policy=idle ; h3 policy=idle"),
            (
                "aff",
                "s1 cpus=0-1 ; s2 cpus=0-1 ; s3 cpus=0-1 ; s4 cpus=0-1 ; s5 cpus=0-1 ; s6 \
                 cpus=0-1 ; s7 cpus=0-1 ; s8 \
                 cpus=0-1",
            ),
        ],
    },
    Scenario {
        letter: "c",
        name: "pipes, hogs",
        tasks: &['h', 'p'],
        changes: &[
            ("nice", "h1 nice=10 ; h2 nice=10"),
            ("idle", "h1 policy=idle ; h2 policy=idle"),
            ("aff", "h1 cpus=0 ; h2 cpus=0"),
        ],
    },
    Scenario {
        letter: "d",
        name: "groups",
        tasks: &['x', 'y'],
        changes: &[("weight", "/g1 cpu.weight=900"), ("max", "/g2 cpu.max=100ms/100ms")],
    },
];

/// Compares recordings of real kernels on four CPUs with their replays and predictions: errors of
/// each task's share
#[derive(clap::Args, Clone, PartialEq, Debug)]
pub struct GuestOracleArgs {
    /// Look into this folder [default: oracles/guest]
    #[arg(value_name = "FOLDER")]
    path: Option<PathBuf>,
    /// Only kernels and scenarios with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Show which tasks ran on which CPU of this recording, and in its replay
    #[arg(long, value_name = "FILE")]
    places: Option<PathBuf>,
    /// Begin the replays of --places with this seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Replay with so many seeds
    #[arg(long, value_name = "N", default_value_t = SEEDS, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
    /// Show every task
    #[arg(long)]
    each: bool,
    /// Fail when fewer of the recorded shares are inside the stated interval, such as 90%
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percent)]
    pass: u64,
    /// Simulations at once [default: one a CPU]
    #[arg(long, value_name = "N", default_value_t = crate::jobs(), value_parser = crate::from_one)]
    jobs: usize,
}

impl Default for GuestOracleArgs {
    fn default() -> GuestOracleArgs {
        let (path, only, places) = (None, None, None);
        GuestOracleArgs {
            path,
            only,
            places,
            seed: 1,
            seeds: SEEDS,
            each: false,
            pass: 0,
            jobs: crate::jobs(),
        }
    }
}

fn percent(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches('%').parse().ok();
    number.filter(|number| *number <= 100).ok_or_else(|| "0% to 100%".to_owned())
}

/// One task of one comparison.
#[derive(Clone, PartialEq, Debug)]
struct Share {
    task: String,
    recorded: f64,
    simulated: f64,
    /// Range over the seeds.
    range: (f64, f64),
    /// Half width of the interval that the result states beside a prediction.
    stated: Option<f64>,
}

impl Share {
    fn off(&self) -> f64 {
        (self.simulated - self.recorded).abs() * 100.0
    }
    fn in_range(&self) -> bool {
        (self.range.0..=self.range.1).contains(&self.recorded)
    }
    /// Whether what was recorded is inside the stated interval; of a self-replay, of the seeds'
    /// range.
    fn holds(&self) -> bool {
        match self.stated {
            Some(error) => (self.simulated - self.recorded).abs() <= error,
            None => self.in_range(),
        }
    }
}

/// All tasks of one comparison.
struct Comparison {
    kernel: String,
    scenario: &'static str,
    what: String,
    shares: Vec<Share>,
}

/// Prints the table; fails when fewer intervals hold than `--pass` says.
pub fn command(asked: &GuestOracleArgs) -> Result<ExitCode> {
    if let Some(recording) = &asked.places {
        print!("{}", places::show(recording, asked.seed, Ns::from_ms(250))?);
        return Ok(ExitCode::SUCCESS);
    }
    let folder = asked.path.clone().unwrap_or_else(|| root().join(SHIPPED));
    let mut lines = Vec::new();
    for kernel in &kernels(&folder)? {
        let name = name_of(kernel);
        for scenario in &SCENARIOS {
            let wanted =
                |only: &String| format!("{name} {}", scenario.name).contains(only.as_str());
            if asked.only.as_ref().is_none_or(wanted) {
                lines.extend(compare(kernel, &name, scenario, asked)?);
            }
        }
    }
    if lines.is_empty() {
        bail!("{}: no recording that is asked for", folder.display());
    }
    print!("{}", table(&lines, asked.each));
    let (all, held) = held(&lines);
    Ok(if held as u64 * 100 >= asked.pass * all as u64 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// What the shipped recordings say, kernel by kernel, for `cargo xtask checked`.
///
/// # Errors
/// What cannot be read.
pub fn checks() -> Result<Vec<Check>> {
    let asked = GuestOracleArgs::default();
    let mut checks = Vec::new();
    for kernel in kernels(&root().join(SHIPPED))? {
        let name = name_of(&kernel);
        let mut lines = Vec::new();
        for scenario in &SCENARIOS {
            lines.extend(compare(&kernel, &name, scenario, &asked)?);
        }
        let (all, inside) = held(&lines);
        checks.push(Check {
            system: format!("Linux {name}, four CPUs"),
            compared:
                "each task's share, after the same or another setting, inside the stated interval"
                    .to_owned(),
            inside: inside as u64,
            all: all as u64,
            unit: "shares".to_owned(),
            scenarios: lines.len() as u64,
            command: format!("cargo xtask guest-oracle --only {name}"),
        });
    }
    Ok(checks)
}

/// The folders of the kernels.
fn kernels(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut kernels: Vec<PathBuf> = std::fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    kernels.sort();
    Ok(kernels)
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Compares every recording of one scenario under one kernel; nothing where there is none.
fn compare(
    folder: &Path,
    kernel: &str,
    scenario: &'static Scenario,
    asked: &GuestOracleArgs,
) -> Result<Vec<Comparison>> {
    let file = |name: &str| folder.join(format!("{}_{name}.slt", scenario.letter));
    let base = file("A");
    if !base.exists() {
        return Ok(Vec::new());
    }
    let changes = scenario.changes.iter().filter(|(name, _)| file(name).exists());
    let changes: Vec<&(&str, &str)> = changes.collect();
    let options = Options {
        variants: changes.iter().map(|(name, set)| format!("{name}: {set}")).collect(),
        checks: changes.iter().map(|(name, _)| ((*name).to_owned(), file(name))).collect(),
        repetitions: Some(asked.seeds),
        jobs: asked.jobs,
        ..Options::default()
    };
    let study = compare_recording(&RecordedInput::open(&base)?, None, &options, &|_, _| {})?;
    let line = |what: &str, shares| Comparison {
        kernel: kernel.to_owned(),
        scenario: scenario.name,
        what: what.to_owned(),
        shares,
    };
    let own = study.self_replay.as_ref().map(|replay| shares(&replay.subjects, None, scenario));
    let mut lines: Vec<Comparison> =
        own.map(|shares| line("self-replay", shares)).into_iter().collect();
    for prediction in &study.predictions {
        let row = row(&study, &prediction.variant);
        lines.push(line(&prediction.variant, shares(&prediction.subjects, row, scenario)));
    }
    Ok(lines)
}

fn row<'a>(study: &'a Study, variant: &str) -> Option<&'a Row> {
    study.rows.iter().find(|row| row.variant == variant)
}

fn shares(subjects: &[Replayed], row: Option<&Row>, scenario: &Scenario) -> Vec<Share> {
    let of = |subject: &Replayed| {
        let cell = subject.cells.iter().find(|cell| cell.metric == Metric::Share)?;
        let stated =
            row.and_then(|row| row.find(Kind::Class, &subject.name)?.cell(Metric::Share)?.error);
        Some(Share {
            task: subject.name.clone(),
            recorded: cell.recorded,
            simulated: cell.simulated,
            range: (cell.low, cell.high),
            stated,
        })
    };
    let compared = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|first| scenario.tasks.contains(&first))
            && letters.next().is_some_and(|second| second.is_ascii_digit() || second == 's')
    };
    let chosen = subjects.iter().filter(|subject| compared(&subject.name)).filter_map(of);
    chosen.filter(|share| share.recorded.max(share.simulated) > MATTERS).collect()
}

/// How many shares there are, and how many of their intervals hold.
fn held(lines: &[Comparison]) -> (usize, usize) {
    let all = lines.iter().flat_map(|line| &line.shares);
    (all.clone().count(), all.filter(|share| share.holds()).count())
}

/// The table in Markdown. `each`: every task too.
fn table(lines: &[Comparison], each: bool) -> String {
    let mut text =
        "| kernel | scenario | | tasks | mean error | largest | sum | in seeds' range | in \
         interval |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for line in lines {
        let count = line.shares.len();
        let mean = line.shares.iter().map(Share::off).sum::<f64>() / count.max(1) as f64;
        let most = line.shares.iter().map(Share::off).fold(0.0, f64::max);
        let sum: f64 = line.shares.iter().map(|share| share.simulated - share.recorded).sum();
        let ranges = line.shares.iter().filter(|share| share.in_range()).count();
        let held = line.shares.iter().filter(|share| share.holds()).count();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {count} | {mean:.1} | {most:.1} | {:+.1} | {ranges} | {held} |",
            line.kernel,
            line.scenario,
            line.what,
            sum * 100.0
        );
        for share in line.shares.iter().filter(|_| each) {
            let [recorded, simulated, low, high] =
                [share.recorded, share.simulated, share.range.0, share.range.1]
                    .map(|part| part * 100.0);
            let stated =
                share.stated.map_or("-".to_owned(), |error| format!("± {:.1}", error * 100.0));
            let _ = writeln!(
                text,
                "|  |  | {} | {recorded:.1} | {simulated:.1} | {low:.1} to {high:.1} | {stated} | \
                 | {} |",
                share.task,
                if share.holds() { "" } else { "outside" }
            );
        }
    }
    let means = |own: bool| {
        let shares = lines
            .iter()
            .filter(|line| (line.what == "self-replay") == own)
            .flat_map(|line| &line.shares);
        shares.clone().map(Share::off).sum::<f64>() / shares.count().max(1) as f64
    };
    let (all, held) = held(lines);
    let ranges =
        lines.iter().flat_map(|line| &line.shares).filter(|share| share.in_range()).count();
    text + &format!(
        "\nMean error of a task's share: {:.1} points in self-replay, {:.1} in prediction.\n\
         Inside the range of the seeds: {ranges} of {all}. Inside the stated interval \
         (self-replay: the range): {held} of \
         {all}.\n",
        means(true),
        means(false)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(args: &[&str]) -> Result<GuestOracleArgs, clap::Error> {
        crate::parsed(args)
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let all = asked(&[
            "dir", "--only", "6.1", "--seeds", "3", "--pass", "90%", "--each", "--jobs", "2",
        ]);
        let all = all.unwrap();
        assert_eq!((all.seeds, all.pass, all.each, all.jobs), (3, 90, true, 2));
        assert_eq!((all.path, all.only), (Some("dir".into()), Some("6.1".to_owned())));
        assert_eq!(asked(&[]).unwrap(), GuestOracleArgs::default());
        for wrong in
            [&["a", "b"][..], &["--jobs", "0"], &["--only"], &["--pass", "101%"], &["--what"]]
        {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_outside_is_counted() {
        let share = |simulated: f64, stated| Share {
            task: "h1".to_owned(),
            recorded: 0.5,
            simulated,
            range: (simulated - 0.01, simulated + 0.01),
            stated,
        };
        let line = |what: &str, shares| Comparison {
            kernel: "6.1".to_owned(),
            scenario: "six hogs",
            what: what.to_owned(),
            shares,
        };
        let own = line("self-replay", vec![share(0.505, None), share(0.605, None)]);
        let other = line("nice", vec![share(0.6, Some(0.2)), share(0.8, Some(0.2))]);
        let lines = [own, other];
        assert_eq!(held(&lines), (4, 2));
        let text = table(&lines, true);
        assert!(text.contains("5.5 points in self-replay, 20.0 in prediction"), "{text}");
        assert!(text.contains("Inside the range of the seeds: 1 of 4"), "{text}");
        assert_eq!(text.matches("outside").count(), 2, "{text}");
    }
}
