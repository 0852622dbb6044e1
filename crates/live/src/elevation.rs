//! Runs real threads under a schedlab scheduler, on a stock kernel, by SCHED_FIFO priorities.
//!
//! The kernel always runs the thread of the highest real-time priority. So the thread that the
//! scheduler chose is raised above the other managed threads, and everything below it waits: the
//! priority elevation trick of Yasukata and Ishiguro (APSys 2024, doi 10.1145/3678015.3680481;
//! their code is in yasukata/priority-elevation-trick, b34af9f2).
//!
//! | priority | threads |
//! |---|---|
//! | 5 | the [guardian](crate::guardian), and the [heartbeat] that it hears, on unmanaged CPUs, and on PREEMPT_RT the [senders]: sleep |
//! | 4 | the [agent](agent) on each managed CPU; the supervisor on an unmanaged one: sleep, decide, sleep |
//! | 3 | the thread that runs |
//! | 2 | the [block detector](block_detector): gets the CPU at the moment when the running thread blocks, and tells the agent |
//! | 1 | managed threads that wait their turn, or sleep |
//!
//! Every SCHED_OTHER thread of the system is below: that is why one CPU must stay unmanaged, and
//! why each managed CPU is given to the fair class now and then ([`YieldWindows`]), so that the
//! kernel's own throttling never strikes.
//!
//! | rule | source | state |
//! |---|---|---|
//! | raise the next thread before lowering the previous one | `trick.c` of the trick's repository | done |
//! | the fact of a block comes from a thread below the running one | its dispatcher (`main.c`), which also decides there | done; here that thread only tells the agent ([block_detector]) |
//! | wakeups of threads that may not run yet | tracepoint `sched_waking` (include/trace/events/sched.h) | done |
//! | `sched_yield` | sched_yield(2): a thread that is alone at its priority goes on | not seen: the yielding thread goes on |
//! | several managed CPUs: an agent each, one scheduler, migration while parked | per-CPU agents of ghOSt (SOSP 2021, section 3) | done; tested with CPUs that do not exist ([agent_state]): the project's machine can only spare one |
//! | a waiting thread that is not served within `starve_after` is released | `runnable_timeout` of ghOSt (google/ghost-userspace, 9ca0a1fb) | done; that thread only, not the enclave |
//! | threads whose policy others changed meanwhile | | left alone from then on; another nice value is told to the scheduler |
//! | a declared policy follows the name through exec | | done |
//! | the thread that woke a task | tracepoint `sched_waking`, its current thread | told where that is a managed thread; interrupts as such |
//! | capabilities that are not needed any more | capabilities(7) | given up once the driver runs ([`schedlab_host::privileges`]) |
//!
//! Every known pitfall, and what answers it: docs/live-safety.md.

mod agent;
mod agent_state;
mod arrivals;
pub mod baseline;
mod block_detector;
mod control;
mod event_threads;
mod fair_lock;
mod hearing;
pub mod ping_pong;
mod senders;
mod supervisor;
mod threads;
mod yield_window;

pub use supervisor::manage;
pub use yield_window::YieldWindows;

use crate::driver::{AGENT, Counts, DriverOptions, DriverReport, HEARTBEAT, LogLine, ThreadReport};
use schedlab_host::follow::Follower;
use schedlab_model::CpuSet;

/// Priority of the thread that runs.
pub const RUNNING: u8 = 3;
/// Priority of the block detectors.
pub const BLOCK_DETECTOR: u8 = 2;
/// Priority of managed threads that wait.
pub const PARKED: u8 = 1;

/// What the live driver can give a scheduler on this machine, with these permissions. Ticks, exact
/// slices and timers it always gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveSupport {
    /// Wakeups as they happen, and the thread that did them: tracepoints of all threads of the
    /// machine.
    pub events: bool,
}

impl LiveSupport {
    /// Tries whether the kernel gives the events.
    pub fn probe() -> LiveSupport {
        let none = CpuSet::EMPTY;
        LiveSupport {
            events: Follower::open(&schedlab_host::threads::affinity(0).unwrap_or(none)).is_ok(),
        }
    }

    /// Returns the need of a scheduler that cannot be served; `None`: it can run live.
    pub fn missing(self, needs: schedlab_scheduler::Needs) -> Option<&'static str> {
        match self.events {
            true => None,
            false if needs.wakers => Some("to know when tasks wake and who woke them"),
            // The driver learns that a sleeping thread wants the CPU by its wakeup only.
            false => Some("to know when tasks wake"),
        }
    }
}
