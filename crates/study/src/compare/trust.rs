//! How far a simulation of a recording can be believed: the self-replay, the second reading, and
//! the error that follows.

use super::Errors;
use super::constants::{RATE_OF_WAITS, REACTION_OF_MESSAGES, STEADY_MESSAGES};
use super::course::Beside;
use super::elasticity::MATTERS;
use super::percentile::Found;
use super::recorded::RecordedInput;
use super::room::Room;
use super::row_errors::OfRow;
use super::serve::{Served, Wrong};
use super::verdict::{FELT_TIME, TAIL};
use crate::change::MethodError;
use crate::error_parts::Possible;
use crate::measurements::{Kind, Measured, SubjectData};
use crate::metric::{Metric, Stat, Unit};
use crate::result::{Alone, Replayed, ReplayedCell, SecondHalf, SelfReplay};
use crate::run::{RowPlan, Run};
use crate::view;
use schedlab_scheduler::{SchedulerSpec, registry};
use schedlab_stats::Estimate;
use schedlab_trace::{Capability, too_much_lost};
use std::collections::{BTreeMap, BTreeSet};

/// Off by more than this part of one CPU, or of the CPUs that a program has where it has more than
/// one, the simulation is not trusted; where tasks move, by more than two recordings differ.
pub(super) const TRUSTED_SHARE: f64 = 0.05;

/// By how much a share may be off and still be trusted, as a part of one CPU.
pub(super) const fn allowed(share: f64) -> f64 {
    TRUSTED_SHARE * share.max(1.0)
}

/// Off by more than this factor in its p99, the run-queue latency of the server that was asked
/// about is not simulated: what competes with it is not in the recording (control groups, allowed
/// CPUs) or not understood. Fitted: in the 66 files of recordings/ whose replay is believed a
/// server is off by 4.3 at most (haproxy of pairs/changes, 1.2 ms for 5.2 ms); in two files of perf
/// whose programs were pinned or in a group of nice -20, which perf does not record, by 32 and 95.
const TRUSTED_LATENCY: f64 = 5.0;

/// Activations of a class are requests when this part of them is (in per cent).
const REQUESTS_PERCENT: u64 = 90;
/// If the recording does not show whether threads hand work over when preempted, or how a class
/// without competition follows requests of another task (activations merge and split), the error is
/// half of the predicted change.
const UNDECIDED: f64 = 0.5;
/// What the same work costs changes by so much from one recording to the next (2 standard
/// deviations). Fitted to the pairs of recordings/pairs in which nothing was changed.
const DRIFT_OF_COSTS: f64 = 0.45;
/// And so do the rates of activations.
const DRIFT_OF_RATES: f64 = 0.3;
/// And percentiles of times.
const DRIFT_OF_TIMES: f64 = 0.5;
/// On a machine that is as steady as can be so much of that is left, which is the model's own
/// error. Fitted to pairs of servers in guests under a virtual clock, where the same work costs the
/// same within 0.2 %.
const OF_STEADY: f64 = 0.5;
/// From this spread on, a machine is as unsteady as those of recordings/pairs, whose least is 1.3
/// %.
const UNSTEADY: f64 = 0.01;

/// The first row, which changes nothing.
pub(super) struct FirstRow<'a> {
    runs: &'a [Run],
    /// The recording's course beside its own.
    beside: Beside<'a>,
    room: Room,
}

impl<'a> FirstRow<'a> {
    pub(super) fn new(input: &'a RecordedInput, plan: &RowPlan, runs: &'a [Run]) -> FirstRow<'a> {
        let cpus = input.replay.topology.cpus();
        let courses = runs.iter().filter_map(|run| run.course.as_deref());
        FirstRow {
            runs,
            beside: Beside::new(&input.course, courses),
            room: Room::of_row(plan, &input.classes, cpus),
        }
    }
}

/// Recorded (`was`) against simulated.
pub(super) fn self_replay(
    input: &RecordedInput,
    recorded: &SchedulerSpec,
    why: String,
    row: &FirstRow<'_>,
    alone: &BTreeMap<String, f64>,
    was: &Measured,
    served: &mut Option<Served>,
) -> SelfReplay {
    let subjects = against(was, row.runs, None);
    let mut distrust = Vec::new();
    // A class that was never held back has shown nothing of how it reacts.
    let held = input.readings.iter().filter(|(_, reading)| reading.held >= MATTERS);
    let alone = held.filter_map(|(name, reading)| {
        let simulated = *alone.get(name)?;
        let (low, likely, high) = reading.free();
        Some(Alone { name: name.clone(), low, likely, high, simulated, recorded: reading.share })
    });
    let alone: Vec<Alone> = alone.collect();
    for subject in &subjects {
        distrust.extend(of_share(input, row, was, subject, served));
        distrust.extend(served.as_ref().and_then(|server| of_latency(input, subject, server)));
    }
    let lost = input.repairs.lost + input.repairs.inconsistent_switches;
    if too_much_lost(lost, input.events as u64) {
        distrust.push(format!("{lost} of {} events were lost or made no sense", input.events));
    }
    distrust.extend(input.without_facts());
    // What a client misses is missed of its server, whatever that waits behind.
    distrust.extend(input.stalled());
    for alone in &alone {
        let of = Wrong { class: &alone.name, was: alone.likely, is: alone.simulated };
        distrust.extend(alone.disagreement().and_then(|why| counted(served, of, why)));
    }
    distrust.extend(input.header.ext_scheduler().map(|name| without_model(name, &recorded.name)));
    distrust.extend(input.header.ext_change());
    let report = &input.replay.report;
    SelfReplay {
        kernel: input.header.kernel.clone(),
        scheduler: recorded.to_string(),
        why,
        replay: input.replayed_from().name().to_owned(),
        rules: input
            .by_messages
            .as_ref()
            .map(|messages| messages.report.rules())
            .unwrap_or_default(),
        wakes_by_tasks: report.wakes_by_tasks,
        wakes_by_softirq: report.wakes_by_softirq,
        wakes_by_hardirq: report.wakes_by_hardirq,
        wakes_unknown: report.wakes_unknown,
        outside_permille: report.outside_permille(),
        subjects,
        alone,
        second_half: Vec::new(),
        assumptions: match &input.by_messages {
            Some(messages) => format!("{}\n{}", messages.report, about_drift(input)),
            None => format!("{report}\n{}", about_drift(input)),
        },
        left_out: Vec::new(),
        trusted: distrust.is_empty(),
        distrust,
    }
}

/// Why the simulation is not to be believed about a share; `None`: it has it.
fn of_share(
    input: &RecordedInput,
    row: &FirstRow<'_>,
    was: &Measured,
    subject: &Replayed,
    served: &mut Option<Served>,
) -> Option<String> {
    let cell = subject.cell(Metric::Share)?;
    // Where tasks move, two recordings of one setting differ by that.
    let differ = match was.find(Kind::Class, &subject.name).filter(|_| input.spread.moves) {
        Some(class) => {
            let possible = row.room.possible(class, cell.metric);
            let drift = drift(cell.metric, input);
            let error = MethodError { drift, possible, ..MethodError::default() };
            error.drift_of_share(cell.recorded).hypot(spread_of(
                input,
                row,
                Kind::Class,
                &subject.name,
                cell.metric,
            ))
        }
        None => 0.0,
    };
    if cell.difference.abs() <= allowed(cell.recorded).max(differ) {
        return None;
    }
    let (was, is) = (cell.metric.show(cell.recorded), cell.metric.show(cell.simulated));
    let why = format!("{}: {was} of a CPU recorded, {is} simulated", subject.name);
    let class = &input.class_of(&subject.name);
    counted(served, Wrong { class, was: cell.recorded, is: cell.simulated }, why)
}

/// Why the simulation is not to be believed about the server's run-queue latency; `None`: it has
/// it, there were too few of them, or this is another program.
fn of_latency(input: &RecordedInput, subject: &Replayed, server: &Served) -> Option<String> {
    let p99 = Metric::Latency(Stat::Percentile(TAIL));
    let (latency, rate) = (subject.cell(p99)?, subject.cell(Metric::Throughput)?);
    let times = rate.recorded * input.replay.duration.0 as f64 / 1e9;
    let [was, is] = [latency.recorded, latency.simulated].map(|time| time.max(FELT_TIME));
    let close = (was / is).max(is / was) <= TRUSTED_LATENCY;
    if close || view::few_for(TAIL, times) || !server.classes.contains(&subject.name) {
        return None;
    }
    let (was, is) = (p99.show(latency.recorded), p99.show(latency.simulated));
    // What competes with it depends on facts that a trace of another tool does not hold.
    let unknown = match input.header.tasks.iter().any(|task| task.known) {
        true => "",
        false => {
            "; affinity and control groups are not in this trace, which `schedlab record` writes down"
        }
    };
    Some(format!(
        "{}: run-queue latency p99 {was} recorded, {is} simulated, which is believed up to a factor \
         of {TRUSTED_LATENCY}{unknown}",
        subject.name
    ))
}

impl SelfReplay {
    /// Adds what the half that it was not made from says, and what speaks against it there, given
    /// the errors that are stated.
    pub(super) fn doubt(
        &mut self,
        second_half: Vec<SecondHalf>,
        errors: &Errors,
        served: &mut Option<Served>,
    ) {
        for half in &second_half {
            let why = half.disagreement(errors);
            let of = Wrong { class: &half.name, was: half.recorded, is: half.simulated };
            self.distrust.extend(why.and_then(|why| counted(served, of, why)));
        }
        self.second_half = second_half;
        self.trusted = self.distrust.is_empty();
    }
}

/// Returns a doubt about a program if it counts; else it is kept with the server, for which it does
/// not, or as an error of what the server waits for.
fn counted(served: &mut Option<Served>, wrong: Wrong<'_>, why: String) -> Option<String> {
    match served {
        Some(server) if !server.is_one(wrong.class) => {
            server.doubt(wrong, why);
            None
        }
        _ => Some(why),
    }
}

/// Why the self-replay of a recording of another program's scheduler is none, and what can be asked
/// of the recording all the same.
fn without_model(name: &str, simulated: &str) -> String {
    let proposed = registry::all().iter().filter(|entry| entry.proposed_live);
    let own: Vec<String> = proposed.map(|entry| format!("--scheduler {}", entry.name)).collect();
    format!(
        "it was recorded under the sched_ext scheduler {name}, for which there is no model: what \
         is simulated is {simulated}, the \
         kernel's own, so that what differs is {name} and the error of the method together. `{}` \
         asks what schedlab's own \
         policies would give; two recordings, one of them without {name}, and `schedlab diff` say \
         what {name} does",
        own.join(" ")
    )
}

/// What was recorded against what the runs of one row gave, class by class.
/// `errors`: of predictions, which start from what was recorded.
pub(super) fn against(was: &Measured, runs: &[Run], errors: Option<OfRow<'_>>) -> Vec<Replayed> {
    let subject = |subject: &SubjectData| {
        let (was, found) = (
            Found::new(std::iter::once(subject)),
            Found::of_runs(runs, subject.kind, &subject.name),
        );
        let cell = |metric: Metric| {
            let method =
                errors.map_or_else(MethodError::default, |errors| errors.method(subject, metric));
            let values = found.values(metric).into_iter();
            let values = values.map(|value| method.anchored(metric, value)).collect();
            let Estimate { median: simulated, low, high } = Estimate::from_values(values)?;
            let recorded = subject.value(metric)?;
            Some(ReplayedCell {
                metric,
                recorded,
                simulated,
                difference: simulated - recorded,
                low,
                high,
                recorded_interval: was.interval(metric),
                simulated_interval: found.anchored(metric, method),
            })
        };
        let cells = Metric::all_reported().filter_map(cell).collect();
        Replayed { name: subject.name.clone(), tasks: subject.tasks, cells }
    };
    was.subjects.iter().chain(&was.tasks).map(subject).collect()
}

/// The classes of which nearly all activations are requests.
fn of_requests(input: &RecordedInput) -> BTreeSet<String> {
    let report = &input.replay.report;
    let mut counts: BTreeMap<&String, (u64, u64)> = BTreeMap::new();
    for (task, class) in input.classes.iter().enumerate() {
        let recorded = report.recorded.get(task).copied().unwrap_or_default();
        let of = counts.entry(class).or_default();
        of.0 += recorded;
        of.1 += if report.requests.binary_search(&task.into()).is_ok() { recorded } else { 0 };
    }
    let nearly =
        counts.into_iter().filter(|(_, (all, requests))| requests * 100 >= all * REQUESTS_PERCENT);
    nearly.map(|(class, _)| class.clone()).collect()
}

/// By what part of a change of this class it may be wrong, as far as two readings of how the
/// classes react say.
fn apart(replay: &SelfReplay, input: &RecordedInput, class: &str) -> f64 {
    let report = &input.replay.report;
    // What the recorder writes follows from how much the others do, which nothing in the recording
    // ties together.
    if view::is_own(class) {
        return 1.0;
    }
    if !report.undecided.is_empty() {
        return UNDECIDED;
    }
    if spreads(input) {
        return if report.hogs.is_empty() { 0.0 } else { REACTION_OF_MESSAGES.value };
    }
    let alone = replay.alone.iter();
    match alone.clone().find(|alone| alone.name == class) {
        Some(alone) => alone.apart(),
        // What is left for it is what the others do not take.
        None if !replay.alone.is_empty()
            && report.hogs.iter().any(|task| input.classes[task.index()] == class) =>
        {
            alone.map(Alone::apart).fold(0.0, f64::max)
        }
        // Nothing competes for CPUs without end: there is nothing to be held back by.
        None if report.hogs.is_empty() => 0.0,
        None => undecided(input),
    }
}

/// The same of how long its virtual CPUs wait; 1 where the recording has no second reading.
fn apart_of_steal(replay: &SelfReplay, class: &str) -> f64 {
    let alone = replay.alone.iter().find(|alone| alone.name == class);
    alone.map_or(1.0, Alone::apart_of_steal)
}

/// Whether tasks spread over CPUs when those without end are not there, which the second reading
/// does not know: it takes out what holds a class back, and leaves it where it was. It is the least
/// that the class would have. (Eleven programs of servers beside four hogs on four CPUs of a guest
/// had 0.9 to 2.6 times as much when the hogs became SCHED_IDLE as this reading has, 1.6 in the
/// median, and 0.5 to 1.7 times as much as the replay by messages, 1.0 in the median.)
fn spreads(input: &RecordedInput) -> bool {
    input.by_messages.is_some() && input.spread.moves
}

/// The same where the recording has no second reading.
fn undecided(input: &RecordedInput) -> f64 {
    if input.by_messages.is_some() { REACTION_OF_MESSAGES.value } else { UNDECIDED }
}

/// The same of the requests that are answered: tasks of several classes work for each of them, and
/// the one of which the two readings differ most may be the one that holds them up.
fn apart_of_requests(replay: &SelfReplay, input: &RecordedInput) -> f64 {
    let of_alone = replay.alone.iter().filter(|_| !spreads(input));
    match of_alone.map(Alone::apart).reduce(f64::max) {
        Some(apart) => apart,
        None if input.replay.report.hogs.is_empty() => 0.0,
        None => undecided(input),
    }
}

/// What two recordings of one setting differ by. A loop on one CPU whose work costs more takes that
/// CPU from others; where tasks move, all of that is missing in how often it turns.
pub(super) fn drift(metric: Metric, input: &RecordedInput) -> f64 {
    let most = match metric.unit() {
        Unit::PerSecond if input.spread.moves => DRIFT_OF_COSTS,
        _ => most_drift(metric),
    };
    let of_steady = match (&input.by_messages, metric.unit()) {
        (Some(_), Unit::Share) => STEADY_MESSAGES.value,
        _ => OF_STEADY,
    };
    most * unsteady(input, of_steady)
}

/// The same on a machine that is not steady.
pub(super) fn most_drift(metric: Metric) -> f64 {
    match metric {
        // What a virtual CPU does not get it waits for.
        Metric::Share | Metric::Steal => DRIFT_OF_COSTS,
        _ if metric.unit() == Unit::Time => DRIFT_OF_TIMES,
        _ => DRIFT_OF_RATES,
    }
}

/// What the same work costs may differ by so much between the halves of a recording, however steady
/// the machine is and whatever it is replayed from.
pub(super) fn least_drift_of_costs() -> f64 {
    DRIFT_OF_COSTS * OF_STEADY
}

/// Which part of the drift a machine as steady as this one has. `least`: one that is as steady as
/// can be.
fn unsteady(input: &RecordedInput, least: f64) -> f64 {
    let spread = spread_of_costs(input).map_or(1.0, |spread| spread / UNSTEADY);
    least + (1.0 - least) * spread.min(1.0)
}

/// By what part the same work costs more or less in the course of the recording. `None` where that
/// is not shown, or is not what decides: where tasks move between CPUs, which of them share one
/// differs from one recording to the next, however steady the machine is (nginx beside four hogs on
/// four CPUs of a guest: 471 and 711 requests/s in two recordings of one setting).
fn spread_of_costs(input: &RecordedInput) -> Option<f64> {
    let shown =
        input.header.topology.cpus() == 1 || input.header.capabilities.has(Capability::Migrations);
    if !shown || input.spread.moves {
        return None;
    }
    input.replay.report.spread_of_costs.map(|millionths| millionths as f64 / 1e6)
}

/// The drift in words, with where its numbers come from.
fn about_drift(input: &RecordedInput) -> String {
    let (what, least) = match input.by_messages {
        Some(_) => ("message", "half (of costs: a fifth)"),
        None => ("activation", "half"),
    };
    let steady = match spread_of_costs(input) {
        Some(spread) => format!(
            "the median {what} of the steadiest task differs by {:.2} % from one eighth of \
             the recording to the next",
            spread * 100.0
        ),
        None => "how steady the machine was is not shown (tasks moved between CPUs, or none has \
                 30 activations in each eighth of the recording)"
            .to_owned(),
    };
    format!(
        "{steady}: two recordings of one setting are taken to differ by {:.0} % in rates, {:.0} % \
         in times and {:.0} % in what the same work \
         costs (2 standard deviations; fitted: {:.0}, {:.0} and {:.0} % to live pairs, {least} of \
         that to guests under a virtual clock; \
         another scheduler: always the former){}",
        drift(Metric::Throughput, input) * 100.0,
        drift(Metric::Latency(Stat::Percentile(50_000)), input) * 100.0,
        drift(Metric::Share, input) * 100.0,
        DRIFT_OF_RATES * 100.0,
        DRIFT_OF_TIMES * 100.0,
        DRIFT_OF_COSTS * 100.0,
        about_siblings(input)
    )
}

/// What the recording shows of hardware threads that slow each other; empty where none do.
fn about_siblings(input: &RecordedInput) -> String {
    let Some(error) = input.error_of_siblings() else { return String::new() };
    let shown = match &input.replay.report.siblings {
        Some(shown) => shown.to_string(),
        None => {
            "how fast a hardware thread is beside a busy one of its core is not shown (no equal \
                 activations began beside a busy and beside an idle one)"
                .to_owned()
        }
    };
    format!(
        "\n{shown}; work that a change puts beside a busy thread, or beside an idle one, may cost \
         {:.0} % more or less than that says",
        error * 100.0
    )
}

/// Returns the largest relative error of a metric among all classes.
fn largest(replay: &SelfReplay, metric: Metric) -> f64 {
    let all = replay.subjects.iter().flat_map(|subject| &subject.cells);
    let same = all.filter(|cell| cell.metric == metric);
    let relative =
        |cell: &ReplayedCell| MethodError::between(cell.recorded, cell.simulated).relative;
    same.map(relative).fold(0.0, f64::max)
}

/// Returns by how much two recordings of one setting differ in a share or a rate because tasks are
/// placed on other CPUs, judging from windows of this one, in the metric's unit; 0 where none of
/// them moved.
fn spread_of(
    input: &RecordedInput,
    row: &FirstRow<'_>,
    kind: Kind,
    name: &str,
    metric: Metric,
) -> f64 {
    row.beside.of_mean(kind, name, metric, input.tasks_of(name))
}

/// Returns what an error of a metric is a part of: of rates what was recorded.
fn size_of(metric: Metric, recorded: Option<&SubjectData>) -> f64 {
    let recorded = recorded.and_then(|was| was.value(metric)).filter(|rate| *rate > 0.0);
    recorded.filter(|_| metric.unit() == Unit::PerSecond).unwrap_or(1.0)
}

/// The error of the method for every class and metric. Where a class has no recorded value (no
/// wakeup was seen, say), the largest relative error of the same metric among all classes is taken.
pub(super) fn method_errors(
    replay: &SelfReplay,
    input: &RecordedInput,
    was: &Measured,
    row: &FirstRow<'_>,
) -> Errors {
    let requests = of_requests(input);
    let machine = input.replay.report.delays.spread();
    let mut errors = BTreeMap::new();
    let reported: Vec<(Metric, f64)> =
        Metric::all_reported().map(|metric| (metric, largest(replay, metric))).collect();
    for subject in &replay.subjects {
        let is_of_requests = was.find(Kind::Channel, &subject.name).is_some();
        let apart = match is_of_requests {
            true => apart_of_requests(replay, input),
            false => apart(replay, input, &subject.name),
        };
        let noise = input.readings.iter().find(|(name, _)| *name == subject.name);
        let noise = noise.map_or(0.0, |(_, reading)| reading.noise);
        let kind = if is_of_requests { Kind::Channel } else { Kind::Class };
        let recorded = was.find(kind, &subject.name);
        let tails = input.spread.tails(kind, &subject.name);
        let own_values = Found::new(recorded.into_iter());
        let of_steal = apart.min(apart_of_steal(replay, &subject.name));
        for &(metric, relative) in &reported {
            let own = subject.cell(metric);
            let error = match own {
                Some(cell) => MethodError::between(cell.recorded, cell.simulated),
                None => MethodError { relative, ..MethodError::default() },
            };
            let merges = !is_of_requests
                && !requests.contains(&subject.name)
                && matches!(metric, Metric::Throughput | Metric::Response(_));
            let anchor = own.map(|cell| (cell.recorded, cell.simulated));
            // The messages say which requests wait behind each other.
            let is_of_loop = input.by_messages.is_none()
                && !requests.contains(&subject.name)
                && matches!(metric, Metric::Latency(_));
            let (apart, drift) = match merges {
                true => (1.0, 1.0),
                false if metric == Metric::Steal => (of_steal, drift(metric, input)),
                // What the recorder does is not predicted, and so is not known better on a machine
                // that is steady.
                false if view::is_own(&subject.name) => (apart, most_drift(metric)),
                false => (apart, drift(metric, input)),
            };
            let spread = spread_of(input, row, kind, &subject.name, metric);
            let spread = spread / size_of(metric, recorded);
            let rate = tails.rate(metric).unwrap_or(RATE_OF_WAITS.value);
            let recorded_tail = own_values.tail(metric, rate);
            let error = MethodError {
                apart,
                noise,
                spread,
                machine,
                recorded_tail,
                rate,
                is_of_loop,
                drift,
                merges,
                anchor,
                possible: recorded
                    .map_or_else(Possible::default, |of| row.room.possible(of, metric)),
                ..error
            };
            errors.insert((subject.name.clone(), metric), error);
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_is_one_in_the_second_half() {
        let half = |recorded: f64, simulated: f64| SecondHalf {
            name: "server".to_owned(),
            recorded,
            simulated,
        };
        let exact = [(("server".to_owned(), Metric::Share), MethodError::default())];
        let errors: Errors = exact.into_iter().collect();
        assert_eq!(half(2.29, 2.20).disagreement(&errors), None);
        // Costs that drift within a recording move 2.1 CPUs by 0.14.
        assert_eq!(half(2.29, 2.16).disagreement(&errors), None);
        assert!(half(2.29, 2.05).disagreement(&errors).is_some());
        assert!(half(0.29, 0.20).disagreement(&errors).is_some());
    }
}
