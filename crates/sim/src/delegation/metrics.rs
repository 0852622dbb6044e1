//! What delegation did and cost.

use crate::Distribution;
use schedlab_model::{CpuId, Ns};

/// Why a transaction failed; the names are ghOSt's states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Failed {
    /// TARGET_STALE: the agent had not read all messages about the task.
    Stale,
    /// AGENT_STALE: a message for the agent itself was unread (commits for its own CPU only).
    AgentStale,
    /// CPU_UNAVAIL: a task of the kernel's own scheduler has the CPU.
    Busy,
    /// TARGET_NOT_FOUND: the task is gone.
    Gone,
    /// TARGET_ONCPU: the task still runs on another CPU.
    OnCpu,
    /// The task may not run there.
    Affinity,
}

impl Failed {
    /// Number of reasons.
    pub const COUNT: usize = 6;
    /// Every reason with its name in results.
    pub const ALL: [(Failed, &'static str); Failed::COUNT] = [
        (Failed::Stale, "stale"),
        (Failed::AgentStale, "agent-stale"),
        (Failed::Busy, "busy"),
        (Failed::Gone, "gone"),
        (Failed::OnCpu, "on-cpu"),
        (Failed::Affinity, "affinity"),
    ];
}

/// What delegation did between the end of the warm-up and the end of the run.
#[derive(Clone, Debug, Default)]
pub struct DelegationMetrics {
    /// Messages that agents read, timers and ticks included.
    pub messages: u64,
    /// From the event in the kernel to the moment in which the agent has read the message.
    pub delivery: Distribution,
    /// Transactions that were committed, failed ones included.
    pub transactions: u64,
    /// Of those, how many failed, by [`Failed`].
    pub failed: [u64; Failed::COUNT],
    /// Commits (system calls).
    pub commits: u64,
    /// The agent's time for one commit.
    pub commit: Distribution,
    /// From the start of a commit to the switch to the last of its tasks.
    pub end_to_end: Distribution,
    /// The agents.
    pub agents: Vec<AgentMetrics>,
    /// When the agents died or stopped.
    pub agents_lost_at: Option<Ns>,
    /// When the kernel's own scheduler took the tasks over.
    pub fell_back_at: Option<Ns>,
}

/// One agent.
#[derive(Clone, Debug)]
pub struct AgentMetrics {
    /// Where it runs.
    pub cpu: CpuId,
    /// CPU time: of a spinning agent all of its life, of a sleeping one what it worked.
    pub cpu_ns: Ns,
    /// The part of it in which it did something: messages, decisions, commits, its switches.
    pub busy_ns: Ns,
    /// Times it was woken (a spinning agent: 0).
    pub activations: u64,
}

impl DelegationMetrics {
    /// Transactions that failed for any reason.
    pub fn failed_in_all(&self) -> u64 {
        self.failed.iter().sum()
    }
    /// CPU time of all agents.
    pub fn agents_cpu_ns(&self) -> Ns {
        self.agents.iter().map(|agent| agent.cpu_ns).sum()
    }
    pub(super) fn restart(&mut self) {
        for agent in &mut self.agents {
            (agent.cpu_ns, agent.busy_ns, agent.activations) = (Ns::ZERO, Ns::ZERO, 0);
        }
        *self = DelegationMetrics {
            agents: std::mem::take(&mut self.agents),
            agents_lost_at: self.agents_lost_at,
            fell_back_at: self.fell_back_at,
            ..DelegationMetrics::default()
        };
    }
}
