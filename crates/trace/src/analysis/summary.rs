//! What every task and CPU got: CPU time, waiting, response, switches.

mod log;
mod spans;
mod task;
mod track;

pub use spans::{Activation, Wait, WakeCause};
pub use task::TaskSummary;

use super::Analysis;
use crate::{Capability, Header, Recording, TraceError};
use log::{Kind, Log};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId};
use track::{Track, TrackState};

/// What one CPU did within the window.
#[derive(Clone, Debug, Default)]
pub struct CpuSummary {
    /// Time with a task on it.
    pub busy: Ns,
    /// Time in the idle task.
    pub idle: Ns,
    /// Time before its first switch, or after lost events: it is not known who ran.
    pub unknown: Ns,
    /// Time that the hypervisor took (part of `busy` or `idle` on the clock, but no task's CPU
    /// time).
    pub stolen: Ns,
    /// Context switches.
    pub switches: u64,
}

/// The window up to some moment.
#[derive(Clone, Copy)]
struct Clip {
    from: Ns,
    now: Ns,
}

impl Clip {
    /// The part of `since .. now` that lies in the window.
    fn span(self, since: Ns) -> Ns {
        self.now.saturating_sub(since.max(self.from))
    }
}

/// Per task: CPU time, run-queue latency, response per activation, run lengths, switches,
/// migrations. Per CPU: busy and idle time. Feed it events, then [`finish`](Summary::finish).
#[derive(Clone, Debug)]
pub struct Summary {
    /// By [`TaskId`].
    pub tasks: Vec<TaskSummary>,
    /// By [`CpuId`].
    pub cpus: Vec<CpuSummary>,
    /// Length of the measured window.
    pub window: Ns,
    tracks: Vec<Track>,
    /// Durations that are not in their distributions yet: all are when a window is closed.
    log: Log,
    current: Vec<(Option<Option<TaskId>>, Ns)>,
    /// CPUs of which nothing was seen yet.
    fresh: Vec<bool>,
    from: Ns,
    now: Ns,
    /// By [`TaskId`]: it runs a virtual CPU. Empty: none does.
    vcpus: Vec<bool>,
    /// Distributions are counted.
    distributes: bool,
    /// So are lengths of runs.
    of_runs: bool,
    /// Every wait, where the caller wants them.
    waits: Option<Vec<Wait>>,
    /// Every activation, where the caller wants them.
    activations: Option<Vec<Activation>>,
}

impl Analysis for Summary {
    const NAME: &'static str = "the summary of tasks";
    const NEEDS: &'static [Capability] = &[Capability::Preempted];
}

impl Summary {
    /// For `tasks` tasks and `cpus` CPUs (both grow as needed); what ends before `from` is not
    /// counted.
    pub fn new(tasks: usize, cpus: usize, from: Ns) -> Summary {
        let mut summary = Summary {
            tasks: Vec::new(),
            cpus: Vec::new(),
            window: Ns::ZERO,
            tracks: Vec::new(),
            log: Log::default(),
            current: Vec::new(),
            fresh: Vec::new(),
            from,
            now: Ns::ZERO,
            vcpus: Vec::new(),
            distributes: true,
            of_runs: true,
            waits: None,
            activations: None,
        };
        summary.grow_tasks(tasks);
        summary.grow_cpus(cpus);
        summary
    }

    /// What there is to a recording with this header, from then on; with the steal of its guests.
    pub fn of_header(header: &Header, from: Ns) -> Summary {
        Summary::new(header.tasks.len(), header.topology.cpus(), from).of_vcpus(&header.vcpus())
    }

    /// Measures the steal time of these tasks, by [`TaskId`].
    #[must_use]
    pub fn of_vcpus(mut self, vcpus: &[bool]) -> Summary {
        self.vcpus = vcpus.to_vec();
        self
    }

    /// Counts sums only: what [`Durations`] tell stays empty, which is most of the work.
    #[must_use]
    pub fn sums_only(mut self) -> Summary {
        self.distributes = false;
        self
    }

    /// Leaves [`TaskSummary::run_length`] empty, for readers who do not show it: of the values of
    /// a task a third are such.
    #[must_use]
    pub fn without_run_lengths(mut self) -> Summary {
        self.of_runs = false;
        self
    }

    /// Keeps every single wait (56 bytes each) for [`waits`](Summary::waits).
    #[must_use]
    pub fn keep_waits(mut self) -> Summary {
        self.waits = Some(Vec::new());
        self
    }

    /// Every wait that ended in the window, in the order of their ends; empty without
    /// [`keep_waits`](Summary::keep_waits).
    pub fn waits(&self) -> &[Wait] {
        self.waits.as_deref().unwrap_or_default()
    }

    /// Keeps every single activation (64 bytes each) for [`activations`](Summary::activations).
    #[must_use]
    pub fn keep_activations(mut self) -> Summary {
        self.activations = Some(Vec::new());
        self
    }

    /// Every activation whose beginning was seen and that ended in the window, in the order of
    /// their ends; empty without [`keep_activations`](Summary::keep_activations).
    pub fn activations(&self) -> &[Activation] {
        self.activations.as_deref().unwrap_or_default()
    }

    /// Ends a window at `end` and begins the next one there: what every task got since the last
    /// cut. What began in a window and ends in a later one (a wait, an activation) counts where it
    /// ends; CPU time is divided.
    pub fn cut(&mut self, end: Ns) -> Vec<TaskSummary> {
        self.finish(end);
        self.from = self.now;
        let fresh = vec![TaskSummary::default(); self.tasks.len()];
        std::mem::replace(&mut self.tasks, fresh)
    }

    /// As [`cut`](Summary::cut) for those who look at the tasks after [`finish`](Summary::finish),
    /// which ended the window: begins the next one there.
    pub fn begin_next(&mut self) {
        self.from = self.now;
        self.tasks.iter_mut().for_each(TaskSummary::clear);
    }

    /// The summary of a whole recording; refuses when it cannot tell preemption from blocking.
    pub fn from_recording(recording: &Recording) -> Result<Summary, TraceError> {
        Summary::check(&recording.header)?;
        let header = &recording.header;
        let mut summary = Summary::of_header(header, Ns::ZERO);
        recording.events.iter().for_each(|event| summary.event(event));
        summary.finish(recording.duration);
        Ok(summary)
    }

    /// Closes the window at `end`. Waits that are still open are not counted as latencies.
    pub fn finish(&mut self, end: Ns) {
        let end = end.max(self.now);
        self.now = end;
        self.window = end.saturating_sub(self.from);
        self.log.move_all(&mut self.tasks);
        let clip = self.clip();
        for index in 0..self.tracks.len() {
            match self.tracks[index].state {
                TrackState::Running { since } => {
                    self.tasks[index].run += clip.span(since);
                    self.tracks[index].demand += end.saturating_sub(since);
                    self.tracks[index].state = TrackState::Running { since: end };
                }
                TrackState::Blocked { since } => {
                    self.tasks[index].slept += clip.span(since);
                    self.tracks[index].state = TrackState::Blocked { since: end };
                }
                // It goes on: what lies behind `end` is of the next window.
                TrackState::Waiting { since, .. } => self.waited(index, since),
                TrackState::Unseen | TrackState::Unknown => {}
            }
            self.tasks[index].vcpus = u32::from(self.is_vcpu(index));
            if let Some(since) = self.tracks[index].throttled() {
                self.tasks[index].throttled += clip.span(since);
            }
        }
        for cpu in 0..self.cpus.len() {
            self.cpu_span(cpu);
        }
    }

    /// One task's part of the CPU time of one CPU within the window, in millionths.
    pub fn share_per_million(&self, task: TaskId) -> u64 {
        let run = self.tasks.get(task.index()).map_or(0, |t| t.run.0);
        (u128::from(run) * 1_000_000 / u128::from(self.window.0.max(1))) as u64
    }

    /// Activations per second, in thousandths.
    pub fn activations_per_1000_s(&self, task: &TaskSummary) -> u64 {
        let per = u128::from(task.activations) * 1_000_000_000_000;
        (per / u128::from(self.window.0.max(1))) as u64
    }

    /// The tasks of one name together, in order of first appearance. `names` is by [`TaskId`].
    pub fn by_name<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Vec<(&'a str, TaskSummary)> {
        let mut out: Vec<(&str, TaskSummary)> = Vec::new();
        let mut index = std::collections::BTreeMap::new();
        for (name, task) in names.into_iter().zip(&self.tasks) {
            let at = *index.entry(name).or_insert_with(|| {
                out.push((name, TaskSummary::default()));
                out.len() - 1
            });
            out[at].1.merge(task);
        }
        out
    }

    #[inline]
    fn grow_tasks(&mut self, count: usize) {
        if count > self.tasks.len() {
            self.resize_tasks(count);
        }
    }

    #[cold]
    fn resize_tasks(&mut self, count: usize) {
        self.tasks.resize_with(count, TaskSummary::default);
        self.tracks.resize(count, Track::UNSEEN);
    }

    #[inline]
    fn grow_cpus(&mut self, count: usize) {
        if count > self.cpus.len() {
            self.resize_cpus(count);
        }
    }

    #[cold]
    fn resize_cpus(&mut self, count: usize) {
        self.cpus.resize_with(count, CpuSummary::default);
        self.current.resize(count, (None, Ns::ZERO));
        self.fresh.resize(count, true);
    }

    /// The window up to now, by value.
    fn clip(&self) -> Clip {
        Clip { from: self.from, now: self.now }
    }

    fn is_vcpu(&self, task: usize) -> bool {
        self.vcpus.get(task).copied().unwrap_or_default()
    }

    /// Counts a wait since this moment as steal time of a virtual CPU.
    fn waited(&mut self, task: usize, since: Ns) {
        let span = self.clip().span(since);
        if self.is_vcpu(task) {
            self.tasks[task].stolen += span;
        }
    }

    fn counts(&self) -> bool {
        self.now >= self.from
    }

    fn woke(&mut self, task: TaskId, cause: WakeCause) {
        let (clip, now, counts) = (self.clip(), self.now, self.counts());
        let index = task.index();
        let track = &mut self.tracks[index];
        match track.state {
            // A wakeup of a task that did not block yet changes nothing.
            TrackState::Running { .. } | TrackState::Waiting { .. } => return,
            TrackState::Blocked { since } => self.tasks[index].slept += clip.span(since),
            TrackState::Unseen | TrackState::Unknown => {}
        }
        let track = &mut self.tracks[index];
        track.state = TrackState::Waiting { since: now, preempted: false };
        track.woken = Some((now, cause));
        track.demand = Ns::ZERO;
        track.excused = Ns::ZERO;
        self.tasks[index].wakeups += u64::from(counts);
    }

    fn stop(&mut self, task: TaskId, state: PrevState) {
        let (clip, now, counts) = (self.clip(), self.now, self.counts());
        let index = task.index();
        if let TrackState::Running { since } = self.tracks[index].state {
            let ran = now.saturating_sub(since);
            self.tasks[index].run += clip.span(since);
            self.tracks[index].demand += ran;
            if counts && self.distributes && self.of_runs {
                self.log.add(&mut self.tasks, index, Kind::Run, ran);
            }
        }
        let track = &mut self.tracks[index];
        track.state = match state.is_runnable() {
            Some(true) => {
                self.tasks[index].preemptions += u64::from(counts);
                TrackState::Waiting { since: now, preempted: true }
            }
            Some(false) => {
                if let (Some((woke, cause)), true) = (track.woken.take(), counts) {
                    if self.distributes {
                        let response = now.saturating_sub(woke);
                        self.log.add(&mut self.tasks, index, Kind::Response, response);
                    }
                    self.tasks[index].activations += 1;
                    let (blocked, demand) = (now, track.demand);
                    if let Some(all) = &mut self.activations {
                        all.push(Activation { task, woke, blocked, demand, cause, state });
                    }
                }
                TrackState::Blocked { since: now }
            }
            None => {
                track.woken = None;
                TrackState::Unknown
            }
        };
        track.excused = Ns::ZERO;
    }

    fn start(&mut self, task: TaskId, cpu: CpuId) {
        let (clip, now, counts) = (self.clip(), self.now, self.counts());
        let index = task.index();
        if let TrackState::Waiting { since, .. } = self.tracks[index].state {
            self.waited(index, since);
        }
        let track = &mut self.tracks[index];
        match track.state {
            TrackState::Waiting { since, preempted } if counts => {
                let all = now.saturating_sub(since);
                let wait = all.saturating_sub(track.excused);
                match preempted {
                    _ if !self.distributes => {}
                    true => self.log.add(&mut self.tasks, index, Kind::Preempted, wait),
                    false if track.excused == Ns::ZERO => {
                        self.log.add(&mut self.tasks, index, Kind::Wakeup, all);
                    }
                    // What came before counts as not throttled.
                    false => {
                        self.log.move_one(&mut self.tasks, index);
                        self.tasks[index].count_wakeup(all, track.excused);
                    }
                }
                if let Some(waits) = &mut self.waits {
                    waits.push(Wait { task, cpu, began: since, ended: now, wait, preempted });
                }
            }
            TrackState::Blocked { since } => {
                self.tasks[index].unknown_wakes += u64::from(counts);
                self.tasks[index].slept += clip.span(since);
                track.woken = None;
            }
            _ => {}
        }
        track.state = TrackState::Running { since: now };
        self.tasks[index].switches += u64::from(counts);
    }

    /// A task that leaves a CPU at its first switch was on it from the start: any earlier switch
    /// would be recorded.
    fn first_switch(&mut self, cpu: usize, prev: Option<TaskId>) {
        if std::mem::take(&mut self.fresh[cpu]) {
            self.current[cpu] = (Some(prev), Ns::ZERO);
            if let Some(prev) = prev
                && matches!(self.tracks[prev.index()].state, TrackState::Unseen)
            {
                self.tracks[prev.index()].state = TrackState::Running { since: Ns::ZERO };
            }
        }
    }

    fn cpu_span(&mut self, cpu: usize) {
        let (who, since) = self.current[cpu];
        let span = self.clip().span(since);
        let sums = &mut self.cpus[cpu];
        match who {
            Some(Some(_)) => sums.busy += span,
            Some(None) => sums.idle += span,
            None => sums.unknown += span,
        }
        self.current[cpu].1 = self.now;
    }

    fn throttle(&mut self, task: TaskId, begins: bool) {
        let now = self.now;
        let from = self.from;
        let (track, sums) = (&mut self.tracks[task.index()], &mut self.tasks[task.index()]);
        match (begins, track.throttled()) {
            (true, None) => track.throttle(Some(now)),
            (false, Some(since)) => {
                track.throttle(None);
                sums.throttled += now.saturating_sub(since.max(from));
                if let TrackState::Waiting { since: waiting, .. } = track.state {
                    track.excused += now.saturating_sub(since.max(waiting));
                }
            }
            _ => {}
        }
    }

    fn steal(&mut self, cpu: CpuId, ns: Ns) {
        if !self.counts() {
            return;
        }
        let stolen = &mut self.cpus[cpu.index()].stolen;
        *stolen = stolen.saturating_add(ns);
        if let Some(Some(task)) = self.current[cpu.index()].0
            && let TrackState::Running { since } = &mut self.tracks[task.index()].state
        {
            // Moving the start forward takes the stolen time out of both run time and run length.
            *since = since.saturating_add(ns).min(self.now);
        }
    }

    fn lost(&mut self, cpu: CpuId) {
        self.cpu_span(cpu.index());
        self.current[cpu.index()].0 = None;
        self.fresh[cpu.index()] = false;
        let clip = self.clip();
        for index in 0..self.tracks.len() {
            match self.tracks[index].state {
                TrackState::Running { since } => {
                    self.tasks[index].run += clip.span(since);
                    self.tracks[index].demand += self.now.saturating_sub(since);
                }
                TrackState::Blocked { since } => self.tasks[index].slept += clip.span(since),
                _ => {}
            }
            let (state, woken) = match self.tracks[index].state {
                // Other CPUs' switches were not lost.
                TrackState::Running { .. } if self.runs_elsewhere(index, cpu) => {
                    (TrackState::Running { since: self.now }, self.tracks[index].woken)
                }
                TrackState::Unseen => (TrackState::Unseen, None),
                _ => (TrackState::Unknown, None),
            };
            self.tracks[index].state = state;
            self.tracks[index].woken = woken;
        }
    }

    fn runs_elsewhere(&self, task: usize, cpu: CpuId) -> bool {
        let is = |(i, (who, _)): (usize, &(Option<Option<TaskId>>, Ns))| {
            i != cpu.index() && *who == Some(Some(TaskId::from(task)))
        };
        self.current.iter().enumerate().any(is)
    }
}

impl EventSink for Summary {
    fn event(&mut self, event: &SchedEvent) {
        self.now = self.now.max(event.at);
        self.grow_cpus(event.cpu.index() + 1);
        let behind = |task: Option<TaskId>| task.map_or(0, |task| task.index() + 1);
        let [one, other] = crate::format::tasks_of(&event.kind).map(behind);
        self.grow_tasks(one.max(other));
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                let cpu = event.cpu.index();
                self.first_switch(cpu, prev);
                for task in [prev, next].into_iter().flatten() {
                    self.tracks[task.index()].see();
                }
                self.cpu_span(cpu);
                self.cpus[cpu].switches += u64::from(self.counts());
                self.current[cpu].0 = Some(next);
                if let Some(prev) = prev {
                    self.stop(prev, prev_state);
                }
                if let Some(next) = next {
                    self.start(next, event.cpu);
                }
            }
            EventKind::Wake { task, waker } => self.woke(task, WakeCause::Woken(waker)),
            EventKind::New { task, parent } => self.woke(task, WakeCause::Created(parent)),
            EventKind::Migrate { task, .. } => {
                self.tasks[task.index()].migrations += u64::from(self.counts());
            }
            EventKind::Throttle { task } => self.throttle(task, true),
            EventKind::Unthrottle { task } => self.throttle(task, false),
            EventKind::Steal { ns } => self.steal(event.cpu, ns),
            EventKind::Lost { .. } => self.lost(event.cpu),
            _ => {}
        }
    }
}
