//! A test of a replay by a half of its recording that it was not made from.
//!
//! A self-replay repeats what it was made from, and a replay that plays arrivals at their recorded
//! times does that best. So the first half of a recording is replayed for the whole of its time: in
//! the second half all that was recorded of its loops is done, and they go on by themselves, beside
//! what the scheduler lets the others have then. That is what a prediction does wherever it makes a
//! loop faster. What each class has there, against what was recorded there, is an error that
//! nothing was fitted to.
//!
//! Skipped if arrivals from outside or one-shot commands use a relevant share: the first half
//! cannot predict them. Skipped, too, if a class begins or ends within the second half, if anything
//! beside the loops did more in one half than in the other, or if a half is too short to show what
//! the whole shows: which threads are one runtime, or which tasks are endless.

use super::Errors;
use super::elasticity::MATTERS;
use super::recorded::RecordedInput;
use super::trust::{allowed, least_drift_of_costs};
use crate::StudyError;
use crate::change::MethodError;
use crate::measurements::{Kind, Measured};
use crate::metric::{Metric, Unit};
use crate::result::SecondHalf;
use crate::run::{Bench, Measures, RowPlan, Run};
use crate::variant::Variant;
use schedlab_model::{Act, ChannelId, EventSink, Ns, ObjectId, Op, SourceKind, Start, Workload};
use schedlab_scheduler::SchedulerSpec;
use schedlab_trace::Recording;
use schedlab_trace::analysis::Summary;
use schedlab_trace::replay::ReplayReport;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// Arrivals from outside that are this part of the activations of a task (in per cent) are what it
/// lives by.
const BY_ARRIVALS_PERCENT: u64 = 20;
/// The end of a recording, in which a class must still be there: one part in so many.
const END_OF: u64 = 10;

/// The first half of a recording, ready to be replayed through the second.
#[derive(Debug)]
pub(super) struct FirstHalf {
    half: RecordedInput,
    whole: Ns,
    /// What was recorded in the second half, and at its end.
    late: Measured,
    last: Measured,
    /// What it gave when it was asked first, and for which scheduler and seed: a search asks many
    /// times.
    asked: OnceLock<(SchedulerSpec, u64, Vec<SecondHalf>)>,
}

impl FirstHalf {
    /// Cuts a recording; `None`: the halves say nothing. `input`: the whole.
    pub(super) fn cut(input: &RecordedInput, mut recording: Recording) -> Option<FirstHalf> {
        let (whole, middle) = (recording.duration, Ns(recording.duration.0 / 2));
        let [late, last] = since(&recording, [middle, Ns(whole.0 - whole.0 / END_OF)]);
        recording.events.truncate(recording.events.partition_point(|event| event.at < middle));
        recording
            .facts
            .list
            .truncate(recording.facts.list.partition_point(|fact| fact.at < middle));
        recording.duration = middle;
        // What can be read as a whole and not in half shows nothing.
        let from = input.replayed_from();
        let half = RecordedInput::from_recording(input.path(), &recording, from, input.by)
            .ok()
            .filter(|half| half.events > 0)?;
        let lost: Ns = not_going_on(&half).into_iter().map(|task| late.tasks[task].run).sum();
        let matters = lost.0 as f64 > MATTERS * late.window.0 as f64;
        let of = |summary: &Summary| Measured::of_summary(summary, &input.classes, &|_| None);
        let (late, last) = (of(&late), of(&last));
        (!matters && is_read_alike(&half, input)).then(|| FirstHalf {
            half,
            whole,
            late,
            last,
            asked: OnceLock::new(),
        })
    }

    /// What each class that matters has in the second half, recorded and simulated; empty where one
    /// of them begins or ends there.
    pub(super) fn second_half(
        &self,
        recorded: &SchedulerSpec,
        bench: &Bench<'_>,
    ) -> Result<Vec<SecondHalf>, StudyError> {
        let seed = bench.seeds.first().copied().unwrap_or_default();
        if let Some((_, _, halves)) =
            self.asked.get().filter(|(spec, of, _)| spec == recorded && *of == seed)
        {
            return Ok(halves.clone());
        }
        let simulated = self.simulate(recorded, seed, bench)?;
        let share = |measured: &Measured, name: &str| {
            measured
                .find(Kind::Class, name)
                .and_then(|class| class.value(Metric::Share))
                .unwrap_or_default()
        };
        let halves = self.late.subjects.iter().map(|subject| SecondHalf {
            name: subject.name.clone(),
            recorded: share(&self.late, &subject.name),
            simulated: simulated.as_ref().map_or(0.0, |run| share(&run.measured, &subject.name)),
        });
        let matters = |half: &SecondHalf| half.recorded.max(half.simulated) >= MATTERS;
        let halves: Vec<SecondHalf> = halves.filter(matters).collect();
        // What one of them leaves when it ends, the others get.
        let there = |half: &SecondHalf| share(&self.last, &half.name) * 2.0 >= half.recorded;
        let as_before = |half: &SecondHalf| {
            self.is_tied(&half.name)
                || (half.simulated - half.recorded).abs() <= allowed(half.recorded)
        };
        let alike = simulated.is_some() && halves.iter().all(|half| there(half) && as_before(half));
        let halves = if alike { halves } else { Vec::new() };
        let _ = self.asked.set((recorded.clone(), seed, halves.clone()));
        Ok(halves)
    }

    /// Whether tasks of this class belong to a closed loop, have no end, or start commands: what
    /// they do follows from what they get. What others do, a script or a compiler of a runtime, may
    /// be over in the first half.
    fn is_tied(&self, name: &str) -> bool {
        let report = &self.half.replay.report;
        let mut tied =
            report.closed_loops.iter().flatten().chain(&report.hogs).chain(&report.makers);
        tied.any(|task| self.half.classes[task.index()] == name)
    }

    /// Replays the first half for the whole time; measured is the second half.
    fn simulate(
        &self,
        recorded: &SchedulerSpec,
        seed: u64,
        bench: &Bench<'_>,
    ) -> Result<Option<Run>, StudyError> {
        let plan = RowPlan::new(recorded, &Variant::as_recorded(), &self.half.subject())?;
        let bench = Bench {
            machine: &|seed| self.half.machine(seed),
            seeds: &[seed],
            duration: self.whole,
            warmup: self.half.replay.duration,
            keep: None,
            requests: None,
            measures: Measures::Sums,
            known: None,
            progress: &|_, _| {},
            ..*bench
        };
        let runs = bench.run(&mut vec![plan])?.runs;
        Ok(runs.into_iter().next().and_then(|runs| runs.into_iter().next()))
    }
}

/// The sums of a recording from each of these moments on. Distributions are not asked for.
fn since(recording: &Recording, from: [Ns; 2]) -> [Summary; 2] {
    let header = &recording.header;
    let mut summaries = from.map(|from| Summary::of_header(header, from).sums_only());
    // One reading for both: the events of a large recording are far larger than the caches.
    for event in &recording.events {
        summaries.iter_mut().for_each(|summary| summary.event(event));
    }
    summaries.iter_mut().for_each(|summary| summary.finish(recording.duration));
    summaries
}

/// Whether the half shows the same runtimes and tasks without end as the whole.
fn is_read_alike(half: &RecordedInput, whole: &RecordedInput) -> bool {
    let [half, whole] = [half, whole].map(|input| &input.replay.report);
    let lanes = |report: &ReplayReport| {
        report.runtimes.iter().map(|runtime| runtime.lanes).collect::<Vec<_>>()
    };
    half.hogs == whole.hogs && lanes(half) == lanes(whole)
}

/// The tasks of which the second half shows what the first cannot: those that arrivals drive, those
/// that are done, and those that begin then, unless others of their class go on (a runtime creates
/// threads when it needs them, and what they do is what the class does).
fn not_going_on(half: &RecordedInput) -> Vec<usize> {
    let replay = &half.replay;
    let workload = &replay.workload;
    let driven = driven(workload, &replay.report.recorded);
    let endless = |task: usize| replay.report.hogs.iter().any(|hog| hog.index() == task);
    let again = |task: usize| {
        let program = &workload.tasks[task].program;
        let exchanges = program.ops.iter().any(|op| match *op {
            Op::Play(script) => workload.exchange.scripts[script.index()].repeat_from.is_some(),
            Op::Attend(_) => true,
            _ => false,
        });
        let command =
            !replay.report.makers.is_empty() && workload.tasks[task].start == Start::Spawned;
        exchanges || program.repeat_from.is_some() || !program.branches.is_empty() || command
    };
    let begun = |task: usize| replay.report.recorded[task] > 0;
    let goes_on =
        |task: usize| endless(task) || begun(task) && again(task) && !driven.contains(&task);
    let tasks = 0..workload.tasks.len();
    let going: BTreeSet<&str> = tasks
        .clone()
        .filter(|&task| goes_on(task))
        .map(|task| half.classes[task].as_str())
        .collect();
    let joins = |task: usize| !begun(task) && going.contains(half.classes[task].as_str());
    tasks.filter(|&task| !goes_on(task) && !joins(task)).collect()
}

/// The tasks that live by what comes from outside.
fn driven(workload: &Workload, activations: &[u64]) -> BTreeSet<usize> {
    let mut arrivals: BTreeMap<ChannelId, u64> = BTreeMap::new();
    for source in &workload.sources {
        if let SourceKind::Recorded { at } = &source.kind {
            *arrivals.entry(source.into).or_default() += at.len() as u64;
        }
    }
    let messages = by_messages(workload);
    let lives = |task: &usize| {
        if messages[*task].saturating_mul(100)
            >= activations[*task].max(1).saturating_mul(BY_ARRIVALS_PERCENT)
        {
            return true;
        }
        let program = &workload.tasks[*task].program;
        let received = program.ops.iter().filter_map(|op| match op {
            Op::Receive(channel) => Some(*channel),
            _ => None,
        });
        let channels: BTreeSet<ChannelId> =
            received.chain(program.branches.iter().map(|branch| branch.channel)).collect();
        let came: u64 = channels.iter().filter_map(|channel| arrivals.get(channel)).sum();
        came.saturating_mul(100) >= activations[*task].max(1).saturating_mul(BY_ARRIVALS_PERCENT)
    };
    (0..workload.tasks.len()).filter(lives).collect()
}

/// Returns by task how much comes from outside into the objects that it reads.
fn by_messages(workload: &Workload) -> Vec<u64> {
    let exchange = &workload.exchange;
    let mut came = vec![0u64; exchange.objects.len()];
    exchange.arrivals.iter().for_each(|arrival| came[arrival.object.index()] += 1);
    let of = |acts: &mut dyn Iterator<Item = Act>| {
        let read = acts.filter_map(|act| match act {
            Act::Receive { object, .. } => Some(object),
            _ => None,
        });
        let read: BTreeSet<ObjectId> = read.collect();
        read.iter().map(|object| came[object.index()]).sum::<u64>()
    };
    let of_op = |op: &Op| match *op {
        Op::Play(script) => {
            of(&mut exchange.scripts[script.index()].steps.iter().map(|step| step.act))
        }
        Op::Attend(executor) => {
            let coroutines = exchange.executors[executor.index()].coroutines.iter();
            of(&mut coroutines.flat_map(|coroutine| &coroutine.steps).map(|step| step.step.act))
        }
        _ => 0,
    };
    workload.tasks.iter().map(|task| task.program.ops.iter().map(of_op).sum()).collect()
}

/// Adds to the errors of each class by how much its second half differs from what the first half
/// makes of it: two recordings of one setting may differ by as much. Where tasks move between CPUs
/// windows say more of that, and what is fitted to replays by wakeups has it.
pub(super) fn widen(errors: &mut Errors, halves: &[SecondHalf], input: &RecordedInput) {
    let counts = !input.spread.moves && input.by_messages.is_some();
    for half in halves.iter().filter(|_| counts) {
        let apart = (half.simulated - half.recorded).abs();
        for ((_, metric), error) in errors.iter_mut().filter(|((name, _), _)| *name == half.name) {
            let spread = match metric.unit() {
                Unit::Share => apart,
                Unit::PerSecond if half.recorded > 0.0 => apart / half.recorded,
                _ => continue,
            };
            error.spread = error.spread.max(spread);
        }
    }
}

impl SecondHalf {
    /// Why the simulation is not to be believed about this class; `None`: what came is within the
    /// error that is stated.
    pub(super) fn disagreement(&self, errors: &Errors) -> Option<String> {
        let error = *errors.get(&(self.name.clone(), Metric::Share))?;
        // Of windows there are half as many on either side.
        let spread = error.spread * std::f64::consts::SQRT_2;
        let error = MethodError { spread, drift: error.drift.max(least_drift_of_costs()), ..error };
        let parts = error.parts(Metric::Share, self.simulated, self.simulated);
        let stated = parts.half_width().max(allowed(self.recorded));
        if (self.simulated - self.recorded).abs() <= stated {
            return None;
        }
        let show = |share: f64| Metric::Share.show(share);
        Some(format!(
            "{}: {} of a CPU in the second half of the recording, and {} as the replay of the \
             first half has it there",
            self.name,
            show(self.recorded),
            show(self.simulated)
        ))
    }
}
