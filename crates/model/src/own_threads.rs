//! The threads that schedlab itself starts beside those that it manages, by name.

/// A thread of schedlab's own, which guardians, status and verdicts tell from the threads of
/// others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnThread {
    /// Decides who runs on a CPU.
    Agent,
    /// Looks after the agents and carries out orders.
    Supervisor,
    /// Tells the guardian that the agents live.
    Heartbeat,
    /// Learns on a CPU that a managed thread blocked there.
    Detector,
    /// Is woken to find out whether wakeups are heard of.
    Probe,
    /// Moves threads to other CPUs for an agent.
    Sender,
    /// Looks for fair load on the CPUs of a sched_ext driver.
    FairWatch,
    /// Beats while `colocate` changes a group.
    Pulse,
}

impl OwnThread {
    /// The name of the recorder's threads, and of every other that has no work of its own: that of
    /// the program.
    pub const PROGRAM: &str = "schedlab";

    /// Every one.
    pub const ALL: [OwnThread; 8] = [
        OwnThread::Agent,
        OwnThread::Supervisor,
        OwnThread::Heartbeat,
        OwnThread::Detector,
        OwnThread::Probe,
        OwnThread::Sender,
        OwnThread::FairWatch,
        OwnThread::Pulse,
    ];

    /// Returns its name, of at most 15 letters: longer ones the kernel cuts off.
    pub const fn name(self) -> &'static str {
        match self {
            OwnThread::Agent => "sched-agent",
            OwnThread::Supervisor => "sched-supervise",
            OwnThread::Heartbeat => "sched-heartbeat",
            OwnThread::Detector => "sched-detector",
            OwnThread::Probe => "sched-probe",
            OwnThread::Sender => "sched-sender",
            OwnThread::FairWatch => "sched-watch",
            OwnThread::Pulse => "colocate-pulse",
        }
    }

    /// Returns whether a thread of this name is one of them.
    pub fn is_called(name: &str) -> bool {
        OwnThread::ALL.into_iter().any(|thread| thread.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_keeps_each_name_whole() {
        for thread in OwnThread::ALL {
            assert!(thread.name().len() <= 15, "{}", thread.name());
            assert!(OwnThread::is_called(thread.name()));
        }
        assert!(!OwnThread::is_called("sched-messaging"), "a program of perf bench");
    }
}
