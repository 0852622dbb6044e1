//! What a run measures, online.

mod conservation;
mod distribution;
mod pending;

pub(crate) use conservation::ConservationMeter;
pub use distribution::Distribution;
pub(crate) use pending::{Counts, Kind, PendingValues, Waited};

use schedlab_model::{GroupId, Nice, Ns, Policy, TaskId};

/// Everything measured between the end of the warm-up and the end of the run.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// From here …
    pub from: Ns,
    /// … to here.
    pub to: Ns,
    /// By task id.
    pub tasks: Vec<TaskMetrics>,
    /// By CPU id.
    pub cpus: Vec<CpuMetrics>,
    /// By source id.
    pub sources: Vec<SourceMetrics>,
    /// By channel id.
    pub channels: Vec<ChannelMetrics>,
    /// By object id.
    pub objects: Vec<ObjectMetrics>,
    /// Idle CPUs while tasks wait that may run there.
    pub work_conservation: WorkConservation,
    /// What the scheduler's decisions cost; all 0 where work has no price.
    pub decisions: DecisionMetrics,
    /// What agents did; `None` where the kernel decides.
    pub delegation: Option<Box<crate::DelegationMetrics>>,
    /// Decisions that had to wait for the end of a kernel section; all 0 where programs have none.
    pub held: Held,
}

/// Decisions that were asked for while the current task could not be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Their number.
    pub count: u64,
    /// How long they waited together.
    pub total_ns: Ns,
    /// The longest of these waits.
    pub longest_ns: Ns,
}

impl Held {
    pub(crate) fn count(&mut self, ns: u64) {
        self.count += 1;
        self.total_ns += Ns(ns);
        self.longest_ns = self.longest_ns.max(Ns(ns));
    }
}

/// What decisions cost, where the machine's costs price them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionMetrics {
    /// Calls of the decision.
    pub calls: u64,
    /// Time from entry to return, the wait for the lock and the end of the switch included.
    pub cost_ns: Ns,
    /// The part of it in which the shared lock was waited for.
    pub wait_ns: Ns,
    /// Entries of run queues that were looked at.
    pub scanned: u64,
    /// Of those, how many were not in the CPU's cache.
    pub missed: u64,
    /// Holds of the shared lock, wakeups included.
    pub locks: u64,
    /// How many of those had to wait.
    pub contended: u64,
    /// How long the shared lock was held, hand-offs included.
    pub held_ns: Ns,
    /// Waits for the shared lock, wakeups included.
    pub spun_ns: Ns,
}

/// One task.
#[derive(Clone, Debug, Default)]
pub struct TaskMetrics {
    /// Name of the task.
    pub name: String,
    /// CPU time from switch record to switch record: program work and what the kernel does
    /// meanwhile.
    pub cpu_ns: Ns,
    /// The part of the CPU time in which its program advanced.
    pub work_ns: Ns,
    /// It ran according to its guest, but the hypervisor had taken the vCPU away (nested machines).
    pub stolen_ns: Ns,
    /// Runnable, allowed to run, not running.
    pub wait_ns: Ns,
    /// Runnable, but throttled.
    pub throttled_ns: Ns,
    /// Blocked.
    pub sleep_ns: Ns,
    /// From its creation (or the start of the measurement) to its exit (or the end).
    pub lifetime_ns: Ns,
    /// Times it was woken from sleep (its creation included).
    pub wakeups: u64,
    /// Times it was switched in.
    pub switches: u64,
    /// Times it was switched out against its will.
    pub preemptions: u64,
    /// Times it gave up the CPU by `sched_yield` and another ran.
    pub yields: u64,
    /// Times it was switched in on another CPU than the last time.
    pub migrations: u64,
    /// From the wakeup to the switch-in, as the task sees it: a time in which a limit (RT
    /// throttling, `cpu.max`, a cap) holds the task back is in it.
    pub wake_latency: Distribution,
    /// The same without the time in which a limit held the task back; `None`: no limit did.
    pub(crate) limited_latency: Option<Box<Distribution>>,
    /// From a switch-out while runnable to the next switch-in.
    pub preempt_wait: Distribution,
    /// Per activation: from the wakeup (for a periodic job its due time) to the moment of blocking,
    /// of exiting, or of starting the next job.
    pub response: Distribution,
    /// From switch-in to switch-out.
    pub run_length: Distribution,
}

impl TaskMetrics {
    /// Returns how long it waited from the wakeup to the switch-in, without the time in which a
    /// limit held it back.
    pub fn queue_latency(&self) -> &Distribution {
        self.limited_latency.as_deref().unwrap_or(&self.wake_latency)
    }

    /// Adds the latencies of another task.
    pub fn merge_latency(&mut self, other: &TaskMetrics) {
        if other.limited_latency.is_some() || self.limited_latency.is_some() {
            let own = || Box::new(self.wake_latency.clone());
            let mut queued = self.limited_latency.take().unwrap_or_else(own);
            queued.merge(other.queue_latency());
            self.limited_latency = Some(queued);
        }
        self.wake_latency.merge(&other.wake_latency);
    }

    /// Counts a wakeup after which a limit held the task back: the whole latency, and the part
    /// without the limit.
    pub(crate) fn count_limited_wakeup(&mut self, all: Ns, queued: Ns) {
        let own = || Box::new(self.wake_latency.clone());
        self.limited_latency.get_or_insert_with(own).record(queued);
        self.wake_latency.record(all);
    }
}

/// One CPU. The four times add up to the measured time.
#[derive(Clone, Debug, Default)]
pub struct CpuMetrics {
    /// Programs advanced.
    pub busy_ns: Ns,
    /// Switches, interrupts, calls, cache refill.
    pub overhead_ns: Ns,
    /// Idle.
    pub idle_ns: Ns,
    /// The vCPU was runnable, but did not run (nested machines; 0 on a real CPU).
    pub steal_ns: Ns,
    /// Context switches, to and from idle included.
    pub switches: u64,
    /// Tick edges that were delivered (others were left out because they could not matter).
    pub ticks_delivered: u64,
}

/// One source of requests.
#[derive(Clone, Debug, Default)]
pub struct SourceMetrics {
    /// Name of the source.
    pub name: String,
    /// Requests whose intended send time lies in the measured time.
    pub sent: u64,
    /// Replies sent back in the measured time.
    pub completed: u64,
    /// The client's view: from the intended send time to the arrival of the reply, the wire both
    /// ways included.
    pub response: Distribution,
}

/// One channel.
#[derive(Clone, Debug, Default)]
pub struct ChannelMetrics {
    /// Name of the channel.
    pub name: String,
    /// Tokens that were put in.
    pub sent: u64,
    /// Requests that were finished (`Done`, `Serve`).
    pub done: u64,
    /// From a token's entry into the channel to its `Done` or `Serve`, whatever sent it.
    pub response: Distribution,
}

/// One object at which tasks exchange messages.
#[derive(Clone, Debug, Default)]
pub struct ObjectMetrics {
    /// Name of the object.
    pub name: String,
    /// Sends to it.
    pub messages: u64,
    /// Bytes or tokens that they brought.
    pub amount: u64,
    /// Receives from it.
    pub receives: u64,
    /// From the first message after an answer to the next answer, where the object has one in which
    /// it is answered.
    pub response: Distribution,
}

/// A CPU idles while a task waits that is allowed there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkConservation {
    /// Number of uninterrupted spells of that (longer than 0 ns).
    pub violations: u64,
    /// Their length in all.
    pub violated_ns: Ns,
    /// The longest.
    pub longest_ns: Ns,
    /// CPU time that was idle meanwhile, on CPUs where one of the waiting tasks may run.
    pub idle_ns: Ns,
    /// CPU time that was idle while throttled tasks (a cap, a bandwidth limit) would have run: at
    /// each instant one CPU for each throttled task that may run there.
    pub capped_idle_ns: Ns,
}

/// How evenly tasks of one weight were served.
#[derive(Clone, Debug, PartialEq)]
pub struct Fairness {
    /// Policy of these tasks.
    pub policy: Policy,
    /// Their nice value.
    pub nice: Nice,
    /// Their group.
    pub group: GroupId,
    /// Their number.
    pub tasks: usize,
    /// Jain index of their CPU time: 1 = all equal, `1 / tasks` = one got all.
    pub jain: f64,
}

impl CpuMetrics {
    /// Adds what was counted since.
    pub(crate) fn add(&mut self, counted: CpuMetrics) {
        self.busy_ns += counted.busy_ns;
        self.overhead_ns += counted.overhead_ns;
        self.idle_ns += counted.idle_ns;
        self.switches += counted.switches;
        self.ticks_delivered += counted.ticks_delivered;
    }
}

impl Metrics {
    /// Returns the length of the measured time.
    pub fn elapsed(&self) -> Ns {
        self.to.saturating_sub(self.from)
    }
    /// Returns the task's CPU time as a part of the measured time (1 = one CPU).
    pub fn share(&self, task: TaskId) -> f64 {
        self.tasks[task.index()].cpu_ns.0 as f64 / (self.elapsed().0.max(1)) as f64
    }
    /// Returns the Jain index over the CPU time of some tasks: `(sum x)^2 / (n * sum x^2)`; 1 when
    /// none ran.
    pub fn jain(&self, tasks: &[TaskId]) -> f64 {
        let cpu = |t: &TaskId| self.tasks[t.index()].cpu_ns.0 as f64;
        let sum: f64 = tasks.iter().map(cpu).sum();
        let squares: f64 = tasks.iter().map(|t| cpu(t) * cpu(t)).sum();
        if squares == 0.0 { 1.0 } else { sum * sum / (tasks.len() as f64 * squares) }
    }
    /// Returns the Jain index of every set of two or more tasks that have policy, nice value and
    /// group in common.
    pub fn fairness(&self, workload: &schedlab_model::Workload) -> Vec<Fairness> {
        let mut sets: Vec<(Policy, Nice, GroupId, Vec<TaskId>)> = Vec::new();
        for (i, spec) in workload.tasks.iter().enumerate() {
            let key = (spec.policy, spec.nice, spec.group);
            match sets.iter_mut().find(|s| (s.0, s.1, s.2) == key) {
                Some(set) => set.3.push(i.into()),
                None => sets.push((spec.policy, spec.nice, spec.group, vec![i.into()])),
            }
        }
        sets.retain(|set| set.3.len() > 1);
        sets.iter()
            .map(|(policy, nice, group, tasks)| Fairness {
                policy: *policy,
                nice: *nice,
                group: *group,
                tasks: tasks.len(),
                jain: self.jain(tasks),
            })
            .collect()
    }
    /// Returns the context switches of all CPUs.
    pub fn switches(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.switches).sum()
    }
    /// Returns the preemptions of all tasks.
    pub fn preemptions(&self) -> u64 {
        self.tasks.iter().map(|task| task.preemptions).sum()
    }
    /// Returns the migrations of all tasks.
    pub fn migrations(&self) -> u64 {
        self.tasks.iter().map(|task| task.migrations).sum()
    }

    /// Starts again at `now` (end of the warm-up), keeping names and memory.
    pub(crate) fn restart(&mut self, now: Ns) {
        self.from = now;
        for task in &mut self.tasks {
            let mut fresh =
                TaskMetrics { name: std::mem::take(&mut task.name), ..TaskMetrics::default() };
            for (old, new) in [
                (&mut task.wake_latency, &mut fresh.wake_latency),
                (&mut task.preempt_wait, &mut fresh.preempt_wait),
                (&mut task.response, &mut fresh.response),
                (&mut task.run_length, &mut fresh.run_length),
            ] {
                old.clear();
                std::mem::swap(old, new);
            }
            *task = fresh;
        }
        self.cpus.iter_mut().for_each(|cpu| *cpu = CpuMetrics::default());
        for source in &mut self.sources {
            (source.sent, source.completed) = (0, 0);
            source.response.clear();
        }
        for channel in &mut self.channels {
            (channel.sent, channel.done) = (0, 0);
            channel.response.clear();
        }
        for object in &mut self.objects {
            (object.messages, object.amount, object.receives) = (0, 0, 0);
            object.response.clear();
        }
        self.work_conservation = WorkConservation::default();
        self.decisions = DecisionMetrics::default();
        self.held = Held::default();
    }
}
