//! `schedlab confirm`: what `compare` predicts beside what really comes, for the same variants and schedulers.
//!
//! The command is started anew for every round: as the host has it, with each variant's settings made on its real threads,
//! and under each scheduler by `schedlab run`. Rounds are interleaved, all are recorded by the same recorder over the same
//! length, and all confine the command to the same CPUs. The prediction plays the base recording: the one that was given,
//! or the first round under the host's default. What runs under `schedlab run` is predicted behind a simulated agent with the
//! costs that the driver has on this machine ([`DriverCosts`]).

mod price;
mod round;
mod settings;

use crate::record::RecordError;
pub use price::DriverCosts;
use price::Plays;
use round::{Live, Rounds};
use schedlab_live::{LiveError, RunDir};
use schedlab_model::{CpuSet, Ns};
use schedlab_scheduler::SchedulerSpec;
use schedlab_stats::Estimate;
use schedlab_study::StudyError;
use schedlab_study::compare::{Options, Progress, RecordedInput, compare_recording};
use schedlab_study::measurements::Kind;
use schedlab_study::metric::{Metric, Stat, Unit};
use schedlab_study::result::{Row, Study};
use serde::Serialize;
use settings::Settings;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Version of the JSON (docs/live-schema.md).
pub const SCHEMA: &str = "schedlab-confirm/1";

/// What is compared.
pub const METRICS: [Metric; 5] = [
    Metric::Share,
    Metric::Latency(Stat::Percentile(50_000)),
    Metric::Latency(Stat::Percentile(99_000)),
    Metric::Run(Stat::Percentile(50_000)),
    Metric::Switches,
];
/// Tasks with less of a CPU than this, whose prediction nobody asked for, are left out.
const WORTH_A_ROW: f64 = 0.005;

/// Why there is no answer. Nothing is left changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// A prediction cannot be made.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// The cost preset of this machine cannot be read.
    #[error(transparent)]
    Preset(#[from] schedlab_study::preset::PresetError),
    /// A thread cannot be changed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Nothing can be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Something that was given cannot be done to living threads.
    #[error("{0}")]
    Input(String),
    /// `schedlab run` ended before its time.
    #[error("{said}")]
    Driver {
        /// What it said.
        said: String,
        /// It got SIGKILL, from its guardian or from somebody else.
        killed: bool,
    },
    /// The user ended it.
    #[error("ended before there was an answer; everything is as before")]
    Interrupted,
}

/// What to confirm.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The recording that predictions are made from; `None`: the first round under the host's default.
    pub base: Option<PathBuf>,
    /// Schedulers, run by `schedlab run`.
    pub schedulers: Vec<SchedulerSpec>,
    /// Variants as `compare` has them.
    pub variants: Vec<String>,
    /// The workload.
    pub command: Vec<String>,
    /// Where it runs, in every round. With schedulers: one CPU.
    pub cpus: CpuSet,
    /// Rounds of each.
    pub rounds: usize,
    /// Length of a round.
    pub round: Ns,
    /// The scheduler that stands for this kernel in the simulator; `None`: by its version.
    pub recorded_under: Option<SchedulerSpec>,
    /// Where journals go.
    pub run_dir: RunDir,
    /// This program: guardian, and `run` for schedulers.
    pub program: PathBuf,
}

/// The answer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Confirmed {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// The workload.
    pub command: Vec<String>,
    /// Where it ran.
    pub cpus: CpuSet,
    /// Kernel.
    pub kernel: String,
    /// What predictions were made from.
    pub base: String,
    /// Rounds of each setting, and the length of each.
    pub rounds: usize,
    /// Length of a round.
    pub round_ns: u64,
    /// The scheduler that stood for the host's.
    pub simulated_as: String,
    /// Whether the simulator repeats the base recording well enough for predictions to mean something.
    pub trusted: bool,
    /// Why not.
    pub distrust: Vec<String>,
    /// What the driver costs here, which predictions under schedulers pay; `None`: no scheduler was asked for.
    pub driver: Option<DriverCosts>,
    /// The host's default first.
    pub settings: Vec<Setting>,
}

/// How the command was run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// As the host has it.
    Default,
    /// Settings of the host's scheduler.
    Soft,
    /// By the elevation driver.
    Elevation,
}

/// One variant or scheduler.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// How it was made.
    pub how: How,
    /// CPU time of agents, as a part of a CPU; elevation only.
    pub agents: Option<Estimate>,
    /// Threads that the driver gave back before their time; elevation only.
    pub given_back: u64,
    /// How often a round was begun again because the driver had been killed, mostly by its guardian; elevation only.
    pub repeated: u64,
    /// What others took of the CPUs in the rounds, as a part of one CPU.
    pub others: Option<Estimate>,
    /// By name of the command's tasks.
    pub tasks: Vec<TaskAnswer>,
}

/// All tasks of a name.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TaskAnswer {
    /// The name.
    pub name: String,
    /// The measurements that both have.
    pub cells: Vec<Answer>,
}

/// One measurement: shares as a part of one CPU, times in nanoseconds, the rest per second.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Answer {
    /// What.
    pub metric: Metric,
    /// Over the seeds.
    pub predicted: Estimate,
    /// Over the rounds.
    pub live: Estimate,
    /// Predicted minus live, of the medians.
    pub error: f64,
    /// The same as a part of live; `None` where that is 0.
    pub relative: Option<f64>,
    /// The intervals of both overlap.
    pub overlap: bool,
    /// Against the host's default, as it was predicted and as it came: ratios of medians, for shares differences.
    pub change: Option<(f64, f64)>,
}

/// Hears how it goes: setting, round, rounds in all.
pub type Watch<'a> = &'a mut dyn FnMut(&str, usize, usize);

/// Runs, records, predicts. `stop` is asked every 20 ms.
///
/// # Errors
/// See [`ConfirmError`].
pub fn confirm(
    plan: &Plan,
    watch: Watch<'_>,
    simulating: Progress<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<Confirmed, ConfirmError> {
    let settings = settings::all(plan)?;
    schedlab_host::OwnCommand::check(&plan.command)
        .map_err(|error| ConfirmError::Input(error.to_string()))?;
    let elevates = !plan.schedulers.is_empty();
    let mut plays = Plays::default();
    let base = plan.base.as_deref().map(RecordedInput::open).transpose()?;
    let mut rounds = Rounds::new(plan, stop);
    let mut seen: Vec<Vec<Live>> = settings.iter().map(|_| Vec::new()).collect();
    for round in 0..plan.rounds {
        if elevates {
            watch("what the driver costs here", round * settings.len(), plan.rounds * settings.len());
            plays.play(plan)?;
        }
        for (index, setting) in settings.iter().enumerate() {
            watch(&setting.name(), round * settings.len() + index, plan.rounds * settings.len());
            let keep = base.is_none() && round == 0 && index == 0;
            seen[index].push(rounds.run(setting, keep)?);
        }
    }
    let base = match base {
        Some(base) => base,
        None => RecordedInput::open(rounds.kept())?,
    };
    let driver = elevates.then(|| plays.costs(plan)).transpose()?;
    let names: BTreeSet<String> = seen.iter().flatten().flat_map(|live| live.names()).collect();
    let (soft, elevated) = predict(plan, &base, &names, driver, simulating)?;
    let replay = soft.self_replay.as_ref();
    Ok(Confirmed {
        schema: SCHEMA,
        command: plan.command.clone(),
        cpus: plan.cpus,
        kernel: schedlab_host::machine().kernel,
        base: plan.base.as_ref().map_or("the first round".to_owned(), |path| path.display().to_string()),
        rounds: plan.rounds,
        round_ns: plan.round.0,
        simulated_as: replay.map_or_else(String::new, |replay| replay.scheduler.clone()),
        trusted: soft.trusted(),
        distrust: replay.map(|replay| replay.distrust.clone()).unwrap_or_default(),
        driver,
        settings: answers(&settings, &seen, &soft, elevated.as_ref(), &names),
    })
}

/// The variants under the host's scheduler, and the schedulers.
fn predict(
    plan: &Plan,
    base: &RecordedInput,
    names: &BTreeSet<String>,
    driver: Option<DriverCosts>,
    simulating: Progress<'_>,
) -> Result<(Study, Option<Study>), ConfirmError> {
    let options = |schedulers: &[SchedulerSpec], variants: Vec<String>| Options {
        schedulers: schedulers.to_vec(),
        variants,
        ..Options::default()
    };
    let under = plan.recorded_under.as_ref();
    let soft = compare_recording(base, under, &options(&[], plan.variants.clone()), simulating)?;
    let Some(driver) = driver else { return Ok((soft, None)) };
    let variants = vec![behind_agents(plan, base, names, driver, &soft)];
    let elevated = compare_recording(base, under, &options(&plan.schedulers, variants), simulating)?;
    Ok((soft, Some(elevated)))
}

/// Name of the variant in which an agent schedules the command, and everybody else runs on other CPUs.
const BY_AGENTS: &str = "by schedlab run";

/// Under elevation nobody else gets the managed CPU, apart from what the agent gives away: others are elsewhere, outside of
/// what the agents schedule.
fn behind_agents(
    plan: &Plan,
    base: &RecordedInput,
    names: &BTreeSet<String>,
    driver: DriverCosts,
    soft: &Study,
) -> String {
    let others = schedlab_host::machine().online.without(&plan.cpus);
    let foreign: BTreeSet<&str> =
        base.classes().filter(|name| !names.contains(*name) && !name.is_empty()).collect();
    // What separates in a variant's grammar is any letter in a pattern.
    let pattern = |name: &str| -> String {
        let special = |letter: char| letter.is_whitespace() || matches!(letter, '"' | ';' | ',' | '=' | '*');
        let text: String = name.chars().map(|letter| if special(letter) { '?' } else { letter }).collect();
        // Words with a meaning of their own there, and paths of groups.
        let taken = ["scheduler", "delegation", "machine"].contains(&text.as_str()) || text.starts_with('/');
        if taken {
            text.chars().enumerate().map(|(at, letter)| if at == 0 { '?' } else { letter }).collect()
        } else {
            text
        }
    };
    let patterns: BTreeSet<String> = foreign.into_iter().map(pattern).collect();
    let mut text = format!("{BY_AGENTS}: delegation {}", driver.settings());
    // The kernel's own scheduler, beside the agents.
    if let Some(replay) = soft.self_replay.as_ref().filter(|replay| {
        let name = &replay.scheduler;
        name.starts_with("linux-6.") || name.starts_with("linux-7.")
    }) {
        text += &format!(" fallback={}", replay.scheduler);
    }
    if !patterns.is_empty() {
        text += &format!(" outside={}", patterns.iter().cloned().collect::<Vec<_>>().join(","));
    }
    if !others.is_empty() {
        text.extend(patterns.iter().map(|name| format!(" ; \"{name}\" cpus={others}")));
    }
    text
}

fn answers(
    settings: &[Settings],
    seen: &[Vec<Live>],
    soft: &Study,
    elevated: Option<&Study>,
    names: &BTreeSet<String>,
) -> Vec<Setting> {
    let base = (soft.rows.first(), &seen[0]);
    let row = |setting: &Settings| match setting {
        Settings::Default => soft.rows.first(),
        Settings::Soft(variant) => soft.rows.iter().find(|row| row.variant == variant.name),
        Settings::Elevation(spec) => {
            let of = |study: &'_ Study, variant: &str| {
                let label = spec.to_string();
                study.rows.iter().position(|row| row.scheduler == label && row.variant == variant)
            };
            let study = elevated?;
            let found = of(study, BY_AGENTS)?;
            study.rows.get(found)
        }
    };
    let one = |(setting, lives): (&Settings, &Vec<Live>)| {
        let predicted = row(setting);
        let task = |name: &String| {
            // A real agent ends the run of a task for as long as it works, which a simulated one does not: its runs and
            // switches are other things.
            let same = |metric: &&Metric| match setting {
                Settings::Elevation(_) => matches!(metric, Metric::Share | Metric::Latency(_)),
                _ => true,
            };
            let metrics = METRICS.iter().filter(same);
            let cells: Vec<Answer> =
                metrics.filter_map(|metric| answer(*metric, name, predicted?, lives, base)).collect();
            let share = cells.iter().find(|cell| cell.metric == Metric::Share);
            let worth = share.is_some_and(|cell| cell.live.median.max(cell.predicted.median) >= WORTH_A_ROW);
            worth.then(|| TaskAnswer { name: name.clone(), cells })
        };
        Setting {
            name: setting.name(),
            how: setting.how(),
            agents: Estimate::from_values(lives.iter().filter_map(|live| live.agents).collect()),
            others: Estimate::from_values(lives.iter().map(|live| live.others).collect()),
            given_back: lives.iter().map(|live| live.given_back).sum(),
            repeated: lives.iter().map(|live| live.repeated).sum(),
            tasks: names.iter().filter_map(task).collect(),
        }
    };
    settings.iter().zip(seen).map(one).collect()
}

fn answer(
    metric: Metric,
    name: &str,
    row: &Row,
    lives: &[Live],
    base: (Option<&Row>, &Vec<Live>),
) -> Option<Answer> {
    let predicted = |row: &Row| Some(row.find(Kind::Class, name)?.cell(metric)?.value);
    let live = |lives: &[Live]| {
        Estimate::from_values(lives.iter().filter_map(|live| live.value(name, metric)).collect())
    };
    let (ours, came) = (predicted(row)?, live(lives)?);
    let (ours_before, came_before) = (base.0.and_then(predicted), live(base.1));
    let change = |now: Estimate, before: Estimate| match metric.unit() {
        Unit::Share => Some(now.median - before.median),
        _ => (before.median != 0.0).then(|| now.median / before.median),
    };
    let changes = ours_before.zip(came_before).and_then(|(a, b)| change(ours, a).zip(change(came, b)));
    let error = ours.median - came.median;
    Some(Answer {
        metric,
        predicted: ours,
        live: came,
        error,
        relative: (came.median != 0.0).then(|| error / came.median),
        overlap: ours.low <= came.high && came.low <= ours.high,
        change: changes.filter(|_| !std::ptr::eq(lives, base.1.as_slice())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(value: f64) -> Live {
        Live::of_values("hog", &[(Metric::Share, value)])
    }

    fn row(low: f64, median: f64, high: f64) -> Row {
        let cell = schedlab_study::result::Cell {
            metric: Metric::Share,
            value: Estimate { median, low, high },
            error: None,
            change: None,
        };
        let subject = schedlab_study::result::Subject {
            kind: Kind::Class,
            name: "hog".to_owned(),
            tasks: 1,
            changed: false,
            merges: false,
            cells: vec![cell],
        };
        Row {
            scheduler: "linux-6.18".to_owned(),
            variant: "v".to_owned(),
            subjects: vec![subject],
            event_hashes: Vec::new(),
            notes: Vec::new(),
            delegation: None,
        }
    }

    #[test]
    fn errors_and_changes_are_of_medians() {
        let (before, after) = (row(0.5, 0.5, 0.5), row(0.2, 0.3, 0.35));
        let base = vec![live(0.48), live(0.52), live(0.5)];
        let came = vec![live(0.4), live(0.42), live(0.36)];
        let answer = answer(Metric::Share, "hog", &after, &came, (Some(&before), &base)).unwrap();
        assert!((answer.error + 0.1).abs() < 1e-9 && !answer.overlap, "{answer:?}");
        assert!((answer.relative.unwrap() + 0.25).abs() < 1e-9);
        let (predicted, live) = answer.change.unwrap();
        assert!((predicted + 0.2).abs() < 1e-9 && (live + 0.1).abs() < 1e-9);
        assert!(super::answer(Metric::Share, "nobody", &after, &came, (None, &base)).is_none());
    }
}
