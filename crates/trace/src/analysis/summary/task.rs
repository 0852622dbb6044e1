//! What one task got.

use super::log::Kind;
use crate::analysis::Durations;
use schedlab_model::Ns;

/// What one task got within the window. The first line of a cache is what events count.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub struct TaskSummary {
    /// CPU time, without stolen time.
    pub run: Ns,
    /// Time for which it slept.
    pub slept: Ns,
    /// Times it was put on a CPU.
    pub switches: u64,
    /// Times it was taken off a CPU although it could go on.
    pub preemptions: u64,
    /// Moves to another CPU's run queue.
    pub migrations: u64,
    /// Times it woke (or was created).
    pub wakeups: u64,
    /// Activations (wakeup to block) that ended: divided by the window it is the throughput of a
    /// closed loop.
    pub activations: u64,
    /// Times it ran after blocking although no wakeup was seen; no latency is counted for them.
    pub unknown_wakes: u64,
    /// Time for which it was throttled.
    pub throttled: Ns,
    /// Of a thread that runs a virtual CPU ([`Summary::of_vcpus`](super::Summary::of_vcpus)): time
    /// for which it was runnable and not running, throttled or not. So much Linux adds to its
    /// `run_delay`, which KVM copies to the guest as steal time (arch/x86/kvm/x86.c
    /// record_steal_time, 6.18).
    pub stolen: Ns,
    /// How many such threads these are.
    pub vcpus: u32,
    /// The next one without throttled time; `None`: no limit held the task back after a wakeup.
    limited_latency: Option<Box<Durations>>,
    /// Wakeup to running, throttled time included: what the task sees, and what a recording says
    /// that does not know of limits.
    pub wake_latency: Durations,
    /// Preempted to running again. A yield counts as a preemption (recorders cannot tell).
    pub preempt_wait: Durations,
    /// Response per activation: wakeup to the next block.
    pub response: Durations,
    /// On the CPU without a break.
    pub run_length: Durations,
}

impl TaskSummary {
    /// Adds what `other` got (all threads of one name, say).
    pub fn merge(&mut self, other: &TaskSummary) {
        self.run = self.run.saturating_add(other.run);
        if self.limited_latency.is_some() || other.limited_latency.is_some() {
            let own = || Box::new(self.wake_latency.clone());
            let mut queued = self.limited_latency.take().unwrap_or_else(own);
            queued.merge(other.queue_latency());
            self.limited_latency = Some(queued);
        }
        self.wake_latency.merge(&other.wake_latency);
        self.preempt_wait.merge(&other.preempt_wait);
        self.response.merge(&other.response);
        self.run_length.merge(&other.run_length);
        self.throttled = self.throttled.saturating_add(other.throttled);
        self.stolen = self.stolen.saturating_add(other.stolen);
        self.vcpus += other.vcpus;
        self.slept = self.slept.saturating_add(other.slept);
        self.switches += other.switches;
        self.preemptions += other.preemptions;
        self.migrations += other.migrations;
        self.wakeups += other.wakeups;
        self.activations += other.activations;
        self.unknown_wakes += other.unknown_wakes;
    }

    /// Prepares its distributions for many questions; see [`Durations::settle`].
    pub fn settle(&mut self) {
        let all = [&mut self.wake_latency, &mut self.preempt_wait, &mut self.response];
        all.into_iter().for_each(Durations::settle);
        self.run_length.settle();
        self.limited_latency.iter_mut().for_each(|limited| limited.settle());
    }

    /// Forgets all that it got, in place.
    pub(super) fn clear(&mut self) {
        let all = [&self.wake_latency, &self.preempt_wait, &self.response, &self.run_length];
        if self.limited_latency.is_some() || all.iter().any(|one| one.count() > 0) {
            *self = TaskSummary::default();
            return;
        }
        // Most tasks of a short window did nothing in it, and distributions are most of a summary.
        let TaskSummary {
            run,
            throttled,
            stolen,
            vcpus,
            slept,
            switches,
            preemptions,
            migrations,
            wakeups,
            activations,
            unknown_wakes,
            wake_latency: _,
            limited_latency: _,
            preempt_wait: _,
            response: _,
            run_length: _,
        } = self;
        [run, throttled, stolen, slept].into_iter().for_each(|time| *time = Ns::ZERO);
        [switches, preemptions, migrations, wakeups, activations, unknown_wakes]
            .into_iter()
            .for_each(|count| *count = 0);
        *vcpus = 0;
    }

    /// Returns wakeup to running without throttled time.
    pub fn queue_latency(&self) -> &Durations {
        self.limited_latency.as_deref().unwrap_or(&self.wake_latency)
    }

    /// Adds a duration to one of the distributions.
    pub(super) fn add(&mut self, kind: Kind, length: Ns) {
        match kind {
            Kind::Wakeup => self.count_wakeup(length, Ns::ZERO),
            Kind::Preempted => self.preempt_wait.add(length),
            Kind::Response => self.response.add(length),
            Kind::Run => self.run_length.add(length),
        }
    }

    /// Counts a wait after a wakeup: all of it, and for how long of it the task was throttled.
    pub(super) fn count_wakeup(&mut self, wait: Ns, throttled: Ns) {
        if throttled > Ns::ZERO && self.limited_latency.is_none() {
            self.limited_latency = Some(Box::new(self.wake_latency.clone()));
        }
        if let Some(queued) = &mut self.limited_latency {
            queued.add(wait.saturating_sub(throttled));
        }
        self.wake_latency.add(wait);
    }

    /// Every wait for the CPU, after a wakeup or a preemption, without throttled time.
    pub fn run_queue_latency(&self) -> Durations {
        let mut all = self.queue_latency().clone();
        all.merge(&self.preempt_wait);
        all
    }
}
