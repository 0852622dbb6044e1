//! What `confirm` answers: predicted beside measured.

use super::driver_costs::DriverCosts;
use super::measured::{METRICS, RoundMeasurements};
use super::plan::LiveDriver;
use super::predict::BY_AGENTS;
use super::settings::{RoundSetting, SettingKind};
use schedlab_model::CpuSet;
use schedlab_stats::Estimate;
use schedlab_study::compare::Served;
use schedlab_study::error_parts::ErrorBar;
use schedlab_study::measurements::Kind;
use schedlab_study::metric::{Metric, Stat, Unit};
use schedlab_study::result::{Row, Study};
use schedlab_study::serve::Guess;
use schedlab_study::view::ratio;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// Version of the JSON (docs/live-schema.md).
pub const SCHEMA: &str = "schedlab-confirm/1";
/// Tasks below this part of a CPU, predicted and measured, are left out.
const WORTH_A_ROW: f64 = 0.005;

/// The result of `schedlab confirm`: what the simulator predicts beside what real threads did.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Confirmed {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The command that was run, with its arguments.
    pub command: Vec<String>,
    /// The CPUs that it ran on.
    pub cpus: CpuSet,
    /// Release of the kernel (`uname -r`).
    pub kernel: String,
    /// The recording that predictions were made from: a file, or `the first round`.
    pub base: String,
    /// Rounds of each setting.
    pub rounds: usize,
    /// Whether the user ended it before all rounds were measured.
    pub partial: bool,
    /// Length of a round, nanoseconds.
    pub round_ns: u64,
    /// The scheduler that represented the host's.
    pub simulated_as: String,
    /// What the base recording was replayed from: `messages` or `wakeups`.
    pub replay: &'static str,
    /// Whether the simulator repeats the base recording well enough for predictions to mean
    /// something.
    pub trusted: bool,
    /// Why the simulator does not repeat it well enough (exit code 3).
    pub distrust: Vec<String>,
    /// What it comes to: for the server that was named, a sentence for each setting; where none
    /// was named, how many predictions were right, and the worst of them.
    pub verdict: Vec<String>,
    /// The program that schedlab takes for the server, where none was named: its rows come first.
    /// Nothing else follows from it.
    pub guess: Option<Guess>,
    /// Costs of the elevation driver on this machine, which predictions under schedulers contain;
    /// `None`: no scheduler was asked for under it.
    pub driver: Option<DriverCosts>,
    /// The same of the sched_ext driver.
    pub driver_sched_ext: Option<DriverCosts>,
    /// The host's default first, then the variants and the schedulers.
    pub settings: Vec<SettingAnswer>,
}

/// One variant or scheduler.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct SettingAnswer {
    /// Its name.
    pub name: String,
    /// How the command was run.
    pub how: SettingKind,
    /// CPU time of agents, as a part of a CPU, over the rounds; under a scheduler only.
    pub agents: Option<Estimate>,
    /// Threads that the driver gave back before the end; under a scheduler only.
    pub given_back: u64,
    /// Rounds that were begun again because the driver had been killed, mostly by its guardian;
    /// under a scheduler only.
    pub repeated: u64,
    /// CPU time of other programs on the CPUs of the rounds, as a part of one CPU.
    pub others: Option<Estimate>,
    /// The command's tasks by name; under a scheduler with CPU shares and latencies only.
    pub tasks: Vec<TaskAnswer>,
}

/// All tasks of a name.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct TaskAnswer {
    /// The name.
    pub name: String,
    /// The metrics that prediction and measurement both have.
    pub cells: Vec<MetricAnswer>,
}

/// One metric: shares as a part of one CPU, times in nanoseconds, the rest per second.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize)]
pub struct MetricAnswer {
    /// The metric.
    pub metric: Metric,
    /// As predicted, over the seeds.
    pub predicted: Estimate,
    /// As measured, over the rounds.
    pub live: Estimate,
    /// Between which values the prediction claims that a second recording lies, and what its error
    /// is made of; missing where it claims nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_bar: Option<ErrorBar>,
    /// Predicted minus live, of the medians.
    pub error: f64,
    /// The error as a part of the measured median; `None` where that is 0.
    pub relative: Option<f64>,
    /// Whether the intervals of `predicted` and `live` overlap.
    pub overlap: bool,
    /// The change against the host's default, predicted and measured: ratios of medians, for shares
    /// differences.
    pub change: Option<(f64, f64)>,
}

/// Returns what was predicted beside what was measured, by setting. `measured` has the rounds of
/// each setting.
pub(super) fn answers(
    settings: &[RoundSetting],
    measured: &[Vec<RoundMeasurements>],
    soft: &Study,
    driven: &[(LiveDriver, Study)],
    (names, server): (&BTreeSet<String>, &[String]),
) -> Vec<SettingAnswer> {
    // Its rows come first.
    let (own, others): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| server.contains(name));
    let base = (soft.rows.first(), &measured[0]);
    let row = |setting: &RoundSetting| match setting {
        RoundSetting::Default => soft.rows.first(),
        RoundSetting::Soft(variant) => soft.rows.iter().find(|row| row.variant == variant.name),
        RoundSetting::Live(driver, spec) => {
            let of = |study: &'_ Study, variant: &str| {
                let label = spec.to_string();
                study.rows.iter().position(|row| row.scheduler == label && row.variant == variant)
            };
            let (_, study) = driven.iter().find(|(by, _)| by == driver)?;
            let found = of(study, BY_AGENTS)?;
            study.rows.get(found)
        }
    };
    let one = |(setting, rounds): (&RoundSetting, &Vec<RoundMeasurements>)| {
        let predicted = row(setting);
        let task = |name: &String| {
            // A real agent interrupts the run of a task while it works, a simulated one does not:
            // runs and switches of both cannot be compared.
            let same = |metric: &&Metric| match setting {
                RoundSetting::Live(..) => matches!(metric, Metric::Share | Metric::Latency(_)),
                _ => true,
            };
            let metrics = METRICS.iter().filter(same);
            let cells: Vec<MetricAnswer> = metrics
                .filter_map(|metric| answer(*metric, name, predicted?, rounds, base))
                .collect();
            let share = cells.iter().find(|cell| cell.metric == Metric::Share);
            let worth = share
                .is_some_and(|cell| cell.live.median.max(cell.predicted.median) >= WORTH_A_ROW);
            worth.then(|| TaskAnswer { name: name.clone(), cells })
        };
        SettingAnswer {
            name: setting.name(),
            how: setting.kind(),
            agents: Estimate::from_values(rounds.iter().filter_map(|live| live.agents).collect()),
            others: Estimate::from_values(rounds.iter().map(|live| live.others).collect()),
            given_back: rounds.iter().map(|live| live.given_back).sum(),
            repeated: rounds.iter().map(|live| live.repeated).sum(),
            tasks: own.iter().chain(&others).copied().filter_map(task).collect(),
        }
    };
    settings.iter().zip(measured).map(one).collect()
}

/// Returns what each setting does to the server, predicted and measured: its run-queue latency
/// where both have it, else its CPU share. Without a server: how many predictions are right.
pub(super) fn verdict(settings: &[SettingAnswer], served: Option<&Served>) -> Vec<String> {
    let Some(served) = served else { return of_all(settings) };
    let figure = |setting: &SettingAnswer| {
        let own = setting.tasks.iter().filter(|task| served.classes.contains(&task.name));
        let cells: Vec<&MetricAnswer> = own.flat_map(|task| &task.cells).collect();
        let wanted = [Metric::Latency(Stat::Percentile(99_000)), Metric::Share];
        wanted
            .iter()
            .find_map(|metric| cells.iter().find(|cell| cell.metric == *metric).copied().copied())
    };
    let sentence = |setting: &SettingAnswer| {
        let (server, name) = (served.name(), &setting.name);
        let Some(cell) = figure(setting) else {
            return format!("{name}: no round has {server} both predicted and measured.");
        };
        let show = |value: f64| cell.metric.show(value);
        let what = match cell.metric {
            Metric::Latency(stat) => format!("run-queue latency ({stat})"),
            metric => metric.heading(),
        };
        let times = |(predicted, live): (f64, f64)| match cell.metric.unit() {
            Unit::Share => String::new(),
            _ => {
                let (predicted, live) = (ratio(predicted), ratio(live));
                format!(": {predicted} and {live} times that without a change")
            }
        };
        let agree = if cell.overlap { "" } else { "; the ranges are apart" };
        format!(
            "{name}: {what} of {server} is {} predicted, {} measured{}{agree}.",
            show(cell.predicted.median),
            show(cell.live.median),
            cell.change.map_or_else(String::new, times),
        )
    };
    settings.iter().map(sentence).collect()
}

/// Returns how many of all predictions are right, and the worst of those that are not.
fn of_all(settings: &[SettingAnswer]) -> Vec<String> {
    let of_setting = |setting: &'_ SettingAnswer| {
        let name = setting.name.clone();
        let tasks = setting.tasks.iter();
        let cells = tasks.flat_map(|task| task.cells.iter().map(|cell| (task.name.clone(), *cell)));
        cells.map(|(task, cell)| (name.clone(), task, cell)).collect::<Vec<_>>()
    };
    let all: Vec<(String, String, MetricAnswer)> = settings.iter().flat_map(of_setting).collect();
    if all.is_empty() {
        return vec!["No task of the command is both predicted and measured.".to_owned()];
    }
    let right = all.iter().filter(|(_, _, cell)| cell.overlap).count();
    let mut said = format!(
        "{right} of {} predictions are right: their range and the measured one overlap.",
        all.len()
    );
    let far = |cell: &MetricAnswer| {
        let factor = cell.predicted.median / cell.live.median;
        if factor > 0.0 && factor.is_finite() { factor.ln().abs() } else { 0.0 }
    };
    let apart = all.iter().filter(|(_, _, cell)| !cell.overlap);
    if let Some((setting, task, cell)) = apart.max_by(|a, b| far(&a.2).total_cmp(&far(&b.2))) {
        let show = |value: f64| cell.metric.show(value);
        said += &format!(
            " The one that is furthest off: {} of {task}, {setting}, is {} predicted and {} \
             measured.",
            cell.metric,
            show(cell.predicted.median),
            show(cell.live.median)
        );
    }
    vec![said]
}

fn answer(
    metric: Metric,
    name: &str,
    row: &Row,
    rounds: &[RoundMeasurements],
    base: (Option<&Row>, &Vec<RoundMeasurements>),
) -> Option<MetricAnswer> {
    let cell = |row: &Row| row.find(Kind::Class, name)?.cell(metric).copied();
    let predicted = |row: &Row| Some(cell(row)?.value);
    let live = |rounds: &[RoundMeasurements]| {
        Estimate::from_values(rounds.iter().filter_map(|live| live.value(name, metric)).collect())
    };
    let (predicted_now, live_now) = (predicted(row)?, live(rounds)?);
    let (predicted_before, live_before) = (base.0.and_then(predicted), live(base.1));
    let change = |now: Estimate, before: Estimate| match metric.unit() {
        Unit::Share => Some(now.median - before.median),
        _ => (before.median != 0.0).then(|| now.median / before.median),
    };
    let changes = predicted_before
        .zip(live_before)
        .and_then(|(a, b)| change(predicted_now, a).zip(change(live_now, b)));
    let error = predicted_now.median - live_now.median;
    Some(MetricAnswer {
        metric,
        predicted: predicted_now,
        live: live_now,
        error_bar: cell(row)?.error_bar,
        error,
        relative: (live_now.median != 0.0).then(|| error / live_now.median),
        overlap: predicted_now.low <= live_now.high && live_now.low <= predicted_now.high,
        change: changes.filter(|_| !std::ptr::eq(rounds, base.1.as_slice())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(value: f64) -> RoundMeasurements {
        RoundMeasurements::from_values("hog", &[(Metric::Share, value)])
    }

    fn row(low: f64, median: f64, high: f64) -> Row {
        let cell = schedlab_study::result::Cell {
            metric: Metric::Share,
            value: Estimate { median, low, high },
            error: None,
            error_bar: None,
            interval: None,
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
            bound: None,
            load: None,
            first_of_load: None,
            timing: Vec::new(),
            mildness: 0,
            deploy: None,
            scheduler: "linux-6.18".to_owned(),
            variant: "v".to_owned(),
            subjects: vec![subject],
            places: Default::default(),
            event_hashes: Vec::new(),
            no_effect: Vec::new(),
            notes: Vec::new(),
            delegation: None,
        }
    }

    #[test]
    fn the_verdict_is_about_the_server() {
        let estimate = |median: f64| Estimate { median, low: median, high: median };
        let p99 = Metric::Latency(Stat::Percentile(99_000));
        let cell = MetricAnswer {
            metric: p99,
            predicted: estimate(58_000.0),
            live: estimate(292_000.0),
            error_bar: None,
            error: 0.0,
            relative: None,
            overlap: false,
            change: Some((0.0124, 0.0625)),
        };
        let task = |name: &str| TaskAnswer { name: name.to_owned(), cells: vec![cell] };
        let idle = SettingAnswer {
            name: "idle".to_owned(),
            how: SettingKind::Soft,
            agents: None,
            given_back: 0,
            repeated: 0,
            others: None,
            tasks: vec![task("redis-server")],
        };
        let served = |name: &str| Served {
            asked: name.to_owned(),
            classes: vec![name.to_owned()],
            ..Served::default()
        };
        let settings = [idle];
        assert_eq!(
            verdict(&settings, Some(&served("redis-server"))),
            ["idle: run-queue latency (p99) of redis-server is 58.0us predicted, 292us measured: \
              0.012 and 0.062 times that without a change; the ranges are apart."]
        );
        let other = verdict(&settings, Some(&served("nginx")));
        assert_eq!(other, ["idle: no round has nginx both predicted and measured."]);
        assert_eq!(
            verdict(&settings, None),
            [
                "0 of 1 predictions are right: their range and the measured one overlap. The one that \
              is furthest off: latency p99 of redis-server, idle, is 58.0us predicted and 292us \
              measured."
            ]
        );
        assert_eq!(verdict(&[], None), ["No task of the command is both predicted and measured."]);
    }

    #[test]
    fn errors_and_changes_are_of_medians() {
        let (before, after) = (row(0.5, 0.5, 0.5), row(0.2, 0.3, 0.35));
        let base = vec![live(0.48), live(0.52), live(0.5)];
        let measured = vec![live(0.4), live(0.42), live(0.36)];
        let answer =
            answer(Metric::Share, "hog", &after, &measured, (Some(&before), &base)).unwrap();
        assert!((answer.error + 0.1).abs() < 1e-9 && !answer.overlap, "{answer:?}");
        assert!((answer.relative.unwrap() + 0.25).abs() < 1e-9);
        let (predicted, live) = answer.change.unwrap();
        assert!((predicted + 0.2).abs() < 1e-9 && (live + 0.1).abs() < 1e-9);
        assert!(
            super::answer(Metric::Share, "no such task", &after, &measured, (None, &base))
                .is_none()
        );
    }
}
