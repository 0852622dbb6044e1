//! What `colocate` is asked: the server and the batch work, the goals, and what may be tried.

use super::client::Client;
use super::workload::WorkloadSource;
use schedlab_live::RunDir;
use schedlab_live::actuators::{Actuator, LADDER, Side};
use schedlab_model::{CpuSet, Ns};
use schedlab_study::gate::{Against, Bound, Gate, Op};
use schedlab_study::metric::{Metric, Stat};
use std::path::PathBuf;

/// A condition that has to hold: a [`Gate`] with the opposite verdict. A gate fails a build when
/// its condition is true; a goal is met when its condition is true.
#[derive(Clone, PartialEq, Debug)]
pub struct Goal(pub Gate);

impl Goal {
    /// Returns whether a single stall of the server of this length misses the goal, whatever else
    /// is measured.
    fn forbids(&self, stall: Ns) -> bool {
        let of_server = self.0.subject.as_deref() != Some("batch");
        let longest = matches!(
            self.0.metric,
            Metric::Latency(Stat::Max) | Metric::Wait(Stat::Max) | Metric::Response(Stat::Max)
        );
        let allows = matches!(self.0.bound, Bound::Value(value) if value > stall.0 as f64);
        of_server && longest && !allows && matches!(self.0.op, Op::Below | Op::AtMost)
    }

    /// Returns whether the goal compares the server with itself without the batch work.
    pub(super) fn is_against_alone(&self) -> bool {
        self.0.against == Against::Alone
    }
}

/// What to try.
#[derive(Clone, Debug)]
pub struct ColocatePlan {
    /// The server, which the goals are about.
    pub serve: WorkloadSource,
    /// The batch work, which gets the rest of the CPU time.
    pub batch: WorkloadSource,
    /// A client that keeps the server busy meanwhile; its threads are not changed.
    pub load: Option<String>,
    /// schedlab's own client, which measures as well.
    pub client: Option<Client>,
    /// Server and batch work run on these CPUs only; `None`: on those that they may use anyway.
    pub cpus: Option<CpuSet>,
    /// All of them must be met.
    pub goals: Vec<Goal>,
    /// Length of a round.
    pub round: Ns,
    /// Rounds with and without the chosen actuator; goals against the server alone get up to
    /// [`MOST_TIMES`](super::MOST_TIMES) times as many.
    pub rounds: usize,
    /// Only these actuators; empty: all.
    pub only: Vec<Actuator>,
    /// How long to keep the chosen actuator, and measure.
    pub keep_for: Option<Ns>,
    /// The folder of the journals.
    pub run_dir: RunDir,
    /// The program that becomes the guardian.
    pub program: PathBuf,
}

impl ColocatePlan {
    /// Returns whether a goal compares the server with itself without the batch work.
    pub(super) fn needs_alone(&self) -> bool {
        self.goals.iter().any(Goal::is_against_alone)
    }

    /// Returns how long the rounds take: when the host's default meets the goals, and when each
    /// setting is tried and the last one is confirmed.
    pub fn takes(&self) -> (Ns, Ns) {
        let pair = 1 + usize::from(self.needs_alone());
        let settings = LADDER.into_iter().filter(|how| self.rules_out(*how).is_none()).count();
        let rounds = |count: usize| Ns(self.round.0.saturating_mul(count as u64));
        let shortest = pair * (1 + self.rounds);
        (rounds(shortest), rounds(pair * settings + (1 + pair) * self.rounds).max(rounds(shortest)))
    }

    /// Returns why `how` need not be tried.
    pub(super) fn rules_out(&self, how: Actuator) -> Option<String> {
        if how != Actuator::Default && !self.only.is_empty() && !self.only.contains(&how) {
            return Some("--try does not name it".to_owned());
        }
        if how.acts_on_group() && !matches!(self.batch, WorkloadSource::Group(_)) {
            return Some("needs --batch-cgroup".to_owned());
        }
        let stall = how.stall()?;
        let goal = self.goals.iter().find(|goal| goal.forbids(stall))?;
        Some(format!(
            "the kernel stops the server for {stall} at times then, which '{}' does not allow",
            goal.0
        ))
    }

    /// Returns why the server cannot be measured alone: a goal about the batch work, or a process
    /// that belongs to both.
    pub(super) fn refuses_alone(&self, server: &Side, batch: &Side) -> Option<String> {
        if !self.needs_alone() {
            return None;
        }
        let of_batch =
            |goal: &&Goal| goal.is_against_alone() && goal.0.subject.as_deref() == Some("batch");
        if let Some(goal) = self.goals.iter().find(of_batch) {
            return Some(format!(
                "--goal '{}': `alone` is about the server; the batch work is stopped while the \
                 server is measured alone",
                goal.0
            ));
        }
        let (server, batch) = (server.pids(), batch.pids());
        if batch.contains(&std::process::id()) {
            return Some(
                "the batch work would be stopped to measure the server alone, and schedlab itself \
                 is part of it: start schedlab \
                 elsewhere, or name fewer processes"
                    .to_owned(),
            );
        }
        let both = server.iter().find(|pid| batch.contains(pid))?;
        Some(format!(
            "process {both} belongs to the server and to the batch work, which is stopped to \
             measure the server alone"
        ))
    }
}

/// Returns why `how` would change nothing on this machine.
pub(super) fn changes_nothing(how: Actuator, server: &Side, cpus: &CpuSet) -> Option<&'static str> {
    match how {
        Actuator::QuotaOff => {
            server.limits().is_empty().then_some("no control group of the server has a cpu.max")
        }
        Actuator::Apart => {
            how.batch_cpus(cpus).is_none().then_some("needs two managed CPUs or more")
        }
        _ => None,
    }
}
