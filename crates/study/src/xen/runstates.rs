//! Time by run state, as Xen keeps it and xenalyze sums it up.

use schedlab_model::{CpuId, Ns, TaskId};
use schedlab_trace::analysis::Durations;
use schedlab_trace::analysis::follow::{Follower, Listener, Span, ThreadState};
use schemars::JsonSchema;
use serde::Serialize;

/// How often and for how long a vCPU was in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
pub struct Tally {
    /// Number of stays.
    pub times: u64,
    /// All of them together.
    pub total_ns: Ns,
    /// Their mean.
    pub mean_ns: Ns,
    /// One of twenty is no longer.
    pub p5_ns: Ns,
    /// The median.
    pub p50_ns: Ns,
    /// One of twenty is longer.
    pub p95_ns: Ns,
}

impl Tally {
    fn from_stays(stays: &Durations) -> Tally {
        Tally {
            times: stays.count(),
            total_ns: stays.sum(),
            mean_ns: stays.mean(),
            p5_ns: stays.quantile(50_000),
            p50_ns: stays.p50(),
            p95_ns: stays.quantile(950_000),
        }
    }
}

/// The run states of a vCPU.
#[derive(Clone, PartialEq, Debug, Default, JsonSchema, Serialize)]
pub struct Runstates {
    /// On a pCPU.
    pub running: Tally,
    /// Waiting for one: the two below together.
    pub runnable: Tally,
    /// Waiting since a wakeup.
    pub wake: Tally,
    /// Waiting since it lost its pCPU (a yield included).
    pub preempt: Tally,
    /// Waiting for an event.
    pub blocked: Tally,
    /// Held back by the cap of its domain.
    pub offline: Tally,
    /// Where it ran, by pCPU.
    pub pcpus: Vec<PcpuRuns>,
}

/// What a vCPU ran on one pCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct PcpuRuns {
    /// The pCPU.
    pub cpu: u32,
    /// How often.
    pub times: u64,
    /// How long in all.
    pub total_ns: Ns,
}

/// States that are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum VcpuState {
    Running,
    Wake,
    Preempt,
    Blocked,
    Offline,
}

impl VcpuState {
    fn from_thread_state(state: ThreadState) -> Option<VcpuState> {
        match state {
            ThreadState::Running => Some(VcpuState::Running),
            ThreadState::Runnable => Some(VcpuState::Wake),
            ThreadState::Preempted => Some(VcpuState::Preempt),
            ThreadState::Throttled => Some(VcpuState::Offline),
            ThreadState::Sleeping
            | ThreadState::DiskSleep
            | ThreadState::Stopped
            | ThreadState::Blocked => Some(VcpuState::Blocked),
            ThreadState::Dead | ThreadState::Unknown => None,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Life {
    /// A stay that may go on: a wait is one stay, however often it is moved to another run queue.
    open: Option<(VcpuState, Ns, Ns)>,
    stays: [Durations; 5],
    pcpus: Vec<PcpuRuns>,
    last: Option<(char, CpuId)>,
}

impl Life {
    fn close(&mut self) {
        if let Some((state, from, to)) = self.open.take() {
            self.stays[state as usize].add(to.saturating_sub(from));
        }
    }
}

/// Watches the vCPUs of a run.
#[derive(Clone, Debug)]
pub(super) struct RunstateListener {
    lives: Vec<Life>,
}

impl RunstateListener {
    pub(super) fn new(vcpus: usize) -> RunstateListener {
        RunstateListener { lives: vec![Life::default(); vcpus] }
    }

    /// State (in xl's letters) and pCPU at the end.
    pub(super) fn last(&self, vcpu: usize) -> (char, CpuId) {
        self.lives[vcpu].last.unwrap_or(('b', CpuId(0)))
    }

    pub(super) fn runstates(&self, vcpu: usize) -> Runstates {
        let life = &self.lives[vcpu];
        let stays = |state: VcpuState| &life.stays[state as usize];
        let tally = |state: VcpuState| Tally::from_stays(stays(state));
        let mut runnable = stays(VcpuState::Wake).clone();
        runnable.merge(stays(VcpuState::Preempt));
        Runstates {
            running: tally(VcpuState::Running),
            runnable: Tally::from_stays(&runnable),
            wake: tally(VcpuState::Wake),
            preempt: tally(VcpuState::Preempt),
            blocked: tally(VcpuState::Blocked),
            offline: tally(VcpuState::Offline),
            pcpus: life.pcpus.clone(),
        }
    }
}

impl Listener for RunstateListener {
    fn span(&mut self, span: &Span) {
        let Some(life) = self.lives.get_mut(span.task.index()) else { return };
        let state = VcpuState::from_thread_state(span.state);
        match (&mut life.open, state) {
            (Some((open, _, to)), Some(state)) if *open == state && *to == span.from => {
                *to = span.to
            }
            (_, state) => {
                life.close();
                life.open = state.map(|state| (state, span.from, span.to));
            }
        }
        if state == Some(VcpuState::Running) {
            let (cpu, length) = (span.cpu.0, span.length());
            let at = life.pcpus.binary_search_by_key(&cpu, |runs| runs.cpu);
            let at = at.unwrap_or_else(|at| {
                life.pcpus.insert(at, PcpuRuns { cpu, times: 0, total_ns: Ns::ZERO });
                at
            });
            life.pcpus[at].times += 1;
            life.pcpus[at].total_ns += length;
        }
    }

    fn finished(&mut self, follower: &Follower) {
        for (index, life) in self.lives.iter_mut().enumerate() {
            life.close();
            let task = TaskId::from(index);
            let state = match follower.state(task).0 {
                ThreadState::Running => 'r',
                state if state.waits() => '-',
                _ => 'b',
            };
            life.last = Some((state, follower.cpu_of(task)));
        }
    }
}
