//! Replay: a recording becomes a workload. What the tasks wanted (CPU time per activation, who
//! wakes whom, when the outside world woke them) is kept; what the scheduler did to them (where
//! they ran, how long they waited) is not.
//!
//! # Rules
//! * An *activation* is the CPU time from a wakeup to the next block. Preemptions inside it are the
//!   scheduler's doing and vanish.
//! * A wakeup by a task, or by a softirq inside its system call, becomes a `Send` at the same CPU
//!   progress of the waker, and the sleep that it ended a `Receive`. One channel per task: tokens
//!   count wakeups.
//! * A wakeup of a task that is running or runnable released nothing, so it is no token.
//! * A task of a closed loop that hardly ever sleeps goes on when those who work for it have done
//!   what they had; see `prompt` and `silent`.
//! * A sleep that an interrupt, ksoftirqd or an unknown task ended is either absolute (the wakeup
//!   comes at its recorded time) or relative (the sleep keeps its length); see `classify`. Sleeps
//!   in state `D` are a device's service time: relative. Its interrupt comes on the CPU on which it
//!   came, and wakes all whom it woke; see `devices`.
//! * The first wakeup of each task that slept when the recording began stays at its time.
//! * Where hardware threads share a core, demand is what was done, not how long that took: time
//!   beside a busy thread counts as much less as the recording shows ([`crate::siblings`]), and the
//!   simulated threads slow each other again.
//! * Stolen time is taken out of the demand, and so is what the recorder itself cost, event by
//!   event (`recorder`). Time in interrupts and the kernel's part of a context switch after the
//!   switch record are in it.
//! * A task whose demand was cut off by the end of the recording, was most of what it did, had gone
//!   on for at least half of the recording and had got a tenth of it has no end of demand; nor has
//!   one that never blocked at all. What was starved (long wait, little CPU time; every kernel
//!   thread) stops when it has done what it did: what it still wanted is unknown. So does what was
//!   created later: it may have been a command of some milliseconds that did not get them. All
//!   others begin again from their first activation when they run out, so that a closed loop that a
//!   scheduler lets run faster stays closed (what began its first round is made up for, see
//!   `rounds`); a task of a closed loop that created others at its start begins again behind that,
//!   and other tasks that did do not. A task of a loop that ended in the last fifth of the
//!   recording after 100 or more activations is taken for a load generator whose time was over: it
//!   goes on too.

mod build;
mod classify;
mod devices;
mod makers;
mod parts;
mod prompt;
mod recorder;
mod report_text;
mod rounds;
mod runtime;
mod silent;
mod starts;
mod steady;
mod ticks;
mod timeline;
mod units;
mod wakes;
mod weave;

pub use build::END;
pub use recorder::RecorderCost;
pub use steady::spread;
pub use ticks::TickFit;
pub use timeline::MachineDelays;

use crate::analysis::Analysis;
use crate::siblings::{self, SiblingSpeed, Speed};
use crate::{Capability, Recording, TaskInfo, TraceError};
use schedlab_model::{Ns, TaskId, Topology, Workload};
use std::str::FromStr;
use timeline::{End, Origin};

/// How to convert.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReplayOptions {
    /// What-if: tasks that need more or less CPU time than they did.
    pub demand: Vec<DemandChange>,
    /// Convert although the recording does not say when tasks woke or who woke them: every such
    /// activation is taken to begin, at an absolute time, when the task was seen running.
    pub without_wakes: bool,
}

/// `NAME xFACTOR`: every task of this name needs this much more CPU time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DemandChange {
    /// Name of the tasks.
    pub task: String,
    /// Factor in thousandths.
    pub times_permille: u64,
}

/// Reads `redis-server x2`, `cc1 x0.5`.
impl FromStr for DemandChange {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<DemandChange, TraceError> {
        let error = || {
            TraceError::Option(format!(
                "`{text}` is not a change of demand: write a task's name and a factor from 0.001 \
                 to 1000, such \
                 as \"redis-server x2\""
            ))
        };
        let (task, factor) = text.trim().rsplit_once(" x").ok_or_else(error)?;
        let (whole, part) = factor.split_once('.').unwrap_or((factor, ""));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if task.trim().is_empty()
            || whole.is_empty()
            || part.len() > 3
            || !digits(whole)
            || !digits(part)
        {
            return Err(error());
        }
        let permille = format!("{whole}{part:0<3}").parse::<u64>().map_err(|_| error())?;
        if !(1..=1_000_000).contains(&permille) {
            return Err(error());
        }
        Ok(DemandChange { task: task.trim().to_owned(), times_permille: permille })
    }
}

/// A recording as a workload, with the machine that it ran on.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Tasks have the ids and names of the recording.
    pub workload: Workload,
    /// The recorded machine.
    pub topology: Topology,
    /// Its ticks per second; 0 when the recording does not say.
    pub hz: u32,
    /// How long to run: the length of the recording.
    pub duration: Ns,
    /// What was found and what had to be assumed.
    pub report: ReplayReport,
}

/// What the conversion found and assumed.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// Activations in all.
    pub activations: u64,
    /// Wakeups by a task or by a softirq inside its system call.
    pub wakes_by_tasks: u64,
    /// Wakeups by softirqs at the exit of an interrupt, or by ksoftirqd.
    pub wakes_by_softirq: u64,
    /// Wakeups by interrupts and timers.
    pub wakes_by_hardirq: u64,
    /// Activations of which nobody knows who began them.
    pub wakes_unknown: u64,
    /// Wakeups of tasks that were running or runnable: no token.
    pub absorbed: u64,
    /// Wakeups attributed to a task that was not running (part of `wakes_unknown`).
    pub waker_not_running: u64,
    /// Dependencies in the workload: a task's progress wakes another.
    pub dependencies: u64,
    /// First wakeups of sleeping tasks by others: kept at their times.
    pub first_wakes: u64,
    /// Wakeups from outside at their recorded times.
    pub absolute_wakes: u64,
    /// Sleeps in state D that no task ended: a device's service time, relative.
    pub device_sleeps: u64,
    /// Sleeps of equal length at no regular time: relative timers.
    pub timer_sleeps: u64,
    /// Sleeps of tasks that want the CPU nearly always: relative.
    pub hungry_sleeps: u64,
    /// Sleeps inside closed loops that no task ended: relative.
    pub loop_sleeps: u64,
    /// Tasks created by others.
    pub forks: u64,
    /// Activations that the end of the recording cut off.
    pub cut: u64,
    /// Tasks without end of demand.
    pub hogs: Vec<TaskId>,
    /// Tasks of loops that ended near the end of the recording, like a load generator whose time is
    /// over: they are taken to go on.
    pub stopped_by_clock: Vec<TaskId>,
    /// Tasks that were created late, and kernel threads, that were still at their first work when
    /// the recording ended: they stop when they have done what they did then.
    pub unfinished: Vec<TaskId>,
    /// Tasks that waited for the CPU until the end and hardly got it: what they still wanted is
    /// unknown, they stop when they have done what they did.
    pub starved: Vec<TaskId>,
    /// Tasks that start one command after the other, to the end of the recording: they go on.
    pub makers: Vec<TaskId>,
    /// Tasks that stop when their recorded work is done (they created others, and not only at the
    /// start of a closed loop).
    pub finite: Vec<TaskId>,
    /// Tasks that wake each other in a circle with nothing else driving them.
    pub closed_loops: Vec<Vec<TaskId>>,
    /// Such circles that are driven from outside (an open loop with replies).
    pub driven_loops: Vec<Vec<TaskId>>,
    /// Tasks that both other tasks and the outside wake: what they do depends on who woke them.
    pub event_loops: u64,
    /// Servers that hardly ever sleep, and the client that each answers: they need its next request
    /// behind each answer.
    pub prompt: Vec<(TaskId, TaskId)>,
    /// Tasks that hardly ever sleep because what they wait for is there when they look: they need
    /// what those who work for them had done behind each of their messages.
    pub silent: Vec<SilentTask>,
    /// Tasks of which an activation is a request.
    pub requests: Vec<TaskId>,
    /// Threads of one process that do the same for others, of which the recording does not show
    /// whether they take over from each other when one loses its CPU: hardly any did.
    pub undecided: Vec<TaskId>,
    /// Threads over which a runtime multiplexes its work.
    pub runtimes: Vec<RuntimeFit>,
    /// What the machine added between wakeup and switch where nobody was in the way.
    pub delays: MachineDelays,
    /// What the recorder cost, and how much of the demand that was.
    pub recorder: RecorderCost,
    /// When the ticks of each CPU came, fitted to the tasks that lost their CPU; `None` where
    /// nothing shows it.
    pub ticks: Vec<Option<TickFit>>,
    /// How fast hardware threads ran beside busy ones of their cores; `None`: no core has two, or
    /// the recording does not show it.
    pub siblings: Option<SiblingSpeed>,
    /// Activations recorded per task, by [`TaskId`]: a replay that completes more began again from
    /// the start.
    pub recorded: Vec<u64>,
    /// By how much the CPU time of the same work differs between the eighths of the recording:
    /// standard deviation of the medians of the task where it is least, in millionths of their
    /// mean. `None`: no task has 30 activations in each eighth.
    pub spread_of_costs: Option<u64>,
}

/// A task of a closed loop that hardly ever sleeps, and that others never wake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SilentTask {
    /// The task.
    pub task: TaskId,
    /// How many tasks work for it alone.
    pub others: usize,
    /// How many of its messages woke one of them.
    pub messages: u64,
}

/// Threads of a runtime that take over from each other, with what was fitted for that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuntimeFit {
    /// The threads.
    pub threads: Vec<TaskId>,
    /// How many of them work at a time.
    pub lanes: usize,
    /// Takeovers from threads that waited for their CPU.
    pub takeovers: usize,
    /// How often that happens to a thread that waits for long, in thousandths.
    pub permille: u32,
    /// How long the thread had waited, at the median.
    pub after: Ns,
    /// What it still ran, at the median.
    pub rest: Ns,
}

impl RuntimeFit {
    fn from_runtime(runtime: &runtime::Runtime) -> RuntimeFit {
        let median = |values: &[Ns]| values.get(values.len() / 2).copied().unwrap_or_default();
        RuntimeFit {
            threads: runtime.threads.iter().copied().map(TaskId::from).collect(),
            lanes: runtime.lanes.len(),
            takeovers: runtime.after.len(),
            permille: runtime.permille(),
            after: median(&runtime.after),
            rest: median(&runtime.rest),
        }
    }
}

impl ReplayReport {
    /// Returns the speed of a hardware thread beside a busy one with which the recording is
    /// replayed.
    pub fn beside(&self) -> Speed {
        self.siblings.map_or(Speed::FULL, |found| found.speed())
    }

    /// Wakeups from outside, in thousandths of all.
    pub fn outside_permille(&self) -> u64 {
        let outside = self.wakes_by_softirq + self.wakes_by_hardirq + self.wakes_unknown;
        outside * 1_000 / (outside + self.wakes_by_tasks).max(1)
    }
}

struct ReplayNeeds;

/// What messages call it.
pub(crate) const NAME: &str = "replay";

impl Analysis for ReplayNeeds {
    const NAME: &'static str = NAME;
    const NEEDS: &'static [Capability] =
        &[Capability::WakeTimes, Capability::Waker, Capability::IrqContext, Capability::Preempted];
}

/// Converts a recording into a workload.
pub fn replay(recording: &Recording, options: &ReplayOptions) -> Result<Replay, TraceError> {
    check_needs(recording, options.without_wakes)?;
    check_demand(recording, &options.demand)?;
    let siblings = siblings::sibling_speed(recording);
    let beside = siblings.map_or(Speed::FULL, |found| found.speed());
    let mut timeline = timeline::timeline(recording, beside);
    let mut report = count(&timeline, recording.duration);
    report.requests = units::requests(&timeline.lines);
    let processes: Vec<u32> = recording.header.tasks.iter().map(|task| task.pid).collect();
    let (runtimes, undecided) = runtime::merge(&mut timeline.lines, &processes, recording.duration);
    runtime::cut_monitors(&mut timeline.lines, &processes);
    report.undecided = undecided.into_iter().map(TaskId::from).collect();
    report.runtimes = runtimes.iter().map(RuntimeFit::from_runtime).collect();
    let monitors: Vec<usize> =
        runtimes.iter().flat_map(|runtime| runtime.monitors.iter().copied()).collect();
    let mut classes = classify::classify(&timeline.lines, recording.duration, &monitors);
    classify::ask_sleeps(&mut classes.outside, &timeline.lines, recording.facts.list.iter());
    let prompt = report.seldom_asleep(&timeline.lines, &recording.header.tasks, &mut classes);
    report.note_loops(&classes.loops);
    prompt::fill(&mut timeline.lines, &prompt);
    let names: Vec<&str> = recording.header.tasks.iter().map(|task| task.comm.as_str()).collect();
    let makers = makers::find(&timeline.lines, &processes, &names, recording.duration);
    report.makers = makers.named();
    let devices = devices::find(&timeline.lines, &classes.loops);
    let workload = build::Builder {
        header: &recording.header,
        lines: &timeline.lines,
        classes: &classes,
        prompt: &prompt,
        devices: &devices,
        runtimes: &runtimes,
        makers: &makers,
        demand: &options.demand,
        duration: recording.duration,
        report: &mut report,
        starts: Default::default(),
    }
    .build();
    report.siblings = siblings;
    report.delays = timeline.delays;
    report.recorder = timeline.recorder;
    report.ticks = ticks::fit(recording);
    Ok(Replay {
        workload,
        topology: recording.header.topology.clone(),
        hz: recording.header.hz,
        duration: recording.duration,
        report,
    })
}

impl ReplayReport {
    /// Finds the tasks of closed loops that hardly ever sleep, and makes them a part of their
    /// loops: what they need, and when.
    fn seldom_asleep(
        &mut self,
        lines: &[timeline::TaskTimeline],
        tasks: &[TaskInfo],
        classes: &mut classify::Classes,
    ) -> Vec<prompt::Prompt> {
        let names: Vec<&str> = tasks.iter().map(|task| task.comm.as_str()).collect();
        let mut prompt = prompt::find(lines, classes, &names);
        prompt::join(classes, &prompt);
        let pair =
            |of: &prompt::Prompt| (TaskId::from(of.link.consumer), TaskId::from(of.link.producer));
        self.prompt = prompt.iter().map(pair).collect();
        let home = |task: &TaskInfo| silent::Home { process: task.pid, kernel: task.kernel };
        let homes: Vec<silent::Home> = tasks.iter().map(home).collect();
        let silent = silent::find(lines, classes, &homes);
        silent::join(classes, &silent);
        self.silent = silent.iter().map(|of| of.described(lines)).collect();
        prompt.extend(silent::needs(&silent));
        prompt
    }

    fn note_loops(&mut self, loops: &[classify::Loop]) {
        for circle in loops {
            let tasks = circle.tasks.iter().map(|&t| TaskId::from(t)).collect();
            if circle.closed { &mut self.closed_loops } else { &mut self.driven_loops }.push(tasks);
        }
    }
}

/// Refuses a recording that does not say what a replay needs.
fn check_needs(recording: &Recording, without_wakes: bool) -> Result<(), TraceError> {
    if !without_wakes {
        ReplayNeeds::check(&recording.header)?;
    } else if !recording.header.capabilities.has(Capability::Preempted) {
        let (missing, backend) =
            (vec![Capability::Preempted.name()], recording.header.backend.clone());
        return Err(TraceError::Lacks { analysis: ReplayNeeds::NAME, missing, backend });
    }
    Ok(())
}

fn check_demand(recording: &Recording, demand: &[DemandChange]) -> Result<(), TraceError> {
    let names: std::collections::BTreeSet<&str> =
        recording.header.tasks.iter().map(|t| t.comm.as_str()).collect();
    match demand.iter().find(|change| !names.contains(change.task.as_str())) {
        None => Ok(()),
        Some(change) => {
            let some: Vec<&str> = names.iter().copied().take(20).collect();
            Err(TraceError::Option(format!(
                "no task of the recording is called `{}`; its tasks are {}{}",
                change.task,
                some.join(", "),
                if names.len() > some.len() { ", …" } else { "" }
            )))
        }
    }
}

fn count(timeline: &timeline::Timeline, duration: Ns) -> ReplayReport {
    let mut report = ReplayReport {
        waker_not_running: timeline.waker_not_running,
        spread_of_costs: steady::spread_of_costs(&timeline.lines, duration),
        ..ReplayReport::default()
    };
    for line in &timeline.lines {
        report.absorbed += line.absorbed;
        report.recorded.push(line.activations.len() as u64);
        for activation in &line.activations {
            report.activations += 1;
            report.cut += u64::from(activation.end == End::Cut);
            match activation.origin {
                Origin::Task(_) => report.wakes_by_tasks += 1,
                Origin::SoftIrq => report.wakes_by_softirq += 1,
                Origin::HardIrq => report.wakes_by_hardirq += 1,
                Origin::Unknown => report.wakes_unknown += 1,
                Origin::Initial | Origin::Forked(_) => {}
            }
        }
    }
    report
}
