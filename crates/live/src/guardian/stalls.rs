//! Tells a silent agent from a CPU that is stalled: where the host of a virtual machine keeps a
//! CPU to itself, or a thread of a higher real-time priority does, nothing of the owner runs there,
//! and its agent is not to blame. A thread of the guardian's priority, above the agent's, is sent
//! to each CPU of the owner's threads: where it answers, the agent could run, too.

use super::become_fifo;
use crate::journal::Record;
use schedlab_host::threads;
use schedlab_model::{CpuId, CpuSet, OwnThread};
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// No stall is forgiven for longer: until then an agent that hangs keeps its CPU.
pub(crate) const LONGEST: Duration = Duration::from_secs(3);
/// A thread of that priority is on a CPU that runs within some microseconds.
const ANSWERS: Duration = Duration::from_millis(5);
/// It does next to nothing, and its stack is locked in memory.
const STACK: usize = 128 << 10;

/// What was asked in one silence.
#[derive(Default)]
pub(super) struct Stalls {
    since: Option<Instant>,
    asked: Vec<Asked>,
    /// CPUs that was stalled, for the message.
    met: BTreeSet<CpuId>,
}

/// A thread that was sent to a CPU and has not told that it is there.
struct Asked {
    cpu: CpuId,
    answer: Receiver<()>,
}

impl Stalls {
    /// Returns whether a silence of the owner of `record` is its CPUs', or was until now: its
    /// agents have not had the time to beat then.
    pub(super) fn excuse(&mut self, record: &Record, priority: u8) -> bool {
        if self.since.get_or_insert_with(Instant::now).elapsed() > LONGEST {
            return false;
        }
        let was_stalled = !self.asked.is_empty();
        for cpu in cpus_of(record) {
            if self.asked.iter().all(|one| one.cpu != cpu) {
                self.asked.extend(Asked::send(cpu, priority));
            }
        }
        let deadline = Instant::now() + ANSWERS;
        self.asked.retain(|one| !one.answers_until(deadline));
        self.met.extend(self.asked.iter().map(|one| one.cpu));
        was_stalled || !self.asked.is_empty()
    }

    /// Returns, for the message about a silence, which CPUs was stalled in it.
    pub(super) fn text(&self) -> String {
        let met: Vec<String> = self.met.iter().map(CpuId::to_string).collect();
        match (met.is_empty(), self.since) {
            (false, Some(since)) => format!(
                "; it was waited for {:.1} s longer because CPU {} was stalled",
                since.elapsed().as_secs_f64(),
                met.join(", ")
            ),
            _ => String::new(),
        }
    }
}

impl Asked {
    /// `None`: no thread can be started, and nothing is known.
    fn send(cpu: CpuId, priority: u8) -> Option<Asked> {
        let (tell, answer) = channel();
        let visit = move || {
            // Where it may not go, it is not kept from going either.
            let _ = become_fifo("a visit", priority, &CpuSet::single(cpu));
            let _ = tell.send(());
        };
        std::thread::Builder::new().stack_size(STACK).spawn(visit).ok()?;
        Some(Asked { cpu, answer })
    }

    fn answers_until(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        self.answer.recv_timeout(left) != Err(RecvTimeoutError::Timeout)
    }
}

/// Returns the CPUs on which the threads of schedlab's own are that the owner has.
fn cpus_of(record: &Record) -> BTreeSet<CpuId> {
    threads::of_process(record.head.owner.process)
        .into_iter()
        .filter(|&tid| {
            threads::identity(tid).is_some_and(|known| OwnThread::is_called(&known.comm))
        })
        .filter_map(threads::last_cpu)
        .map(CpuId)
        .collect()
}
