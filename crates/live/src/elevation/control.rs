//! What the agents can do to threads and CPUs, and ask of them.

use super::senders::Sent;
use schedlab_model::{CpuId, Nice};

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ThreadActivity {
    Runnable,
    Sleeping,
    Gone,
}

/// What another process did to a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Interference {
    None,
    /// It gave it another policy.
    Policy,
    /// It sent it to other CPUs.
    Cpus,
}

/// What the agents can do to a thread, and ask the kernel about it. Each is some system calls
/// without allocation.
pub(super) trait ThreadControl {
    /// Returns the thread id.
    fn tid(&self) -> u32;
    /// Asks the kernel what the thread does.
    fn state(&self) -> ThreadActivity;
    /// Raises the thread above the other managed threads of its CPU. False: the kernel refused.
    fn raise(&self) -> bool;
    /// Lowers the thread to those that wait.
    fn park(&self) -> bool;
    /// Gives the thread its own policy, not its affinity: the chosen thread in a yield window.
    fn set_own(&self) -> bool;
    /// Puts the thread behind the chosen one in a yield window.
    fn set_behind(&self) -> bool;
    /// Sends the thread to another CPU. `No`: the kernel refused, or the thread is not where it was
    /// sent before: it, or another process, changed its affinity.
    fn send_to(&mut self, cpu: CpuId) -> Sent;
    /// Returns the CPU that the thread has not left yet, though it was sent away from it.
    fn leaves(&self) -> Option<CpuId>;
    /// Asks what another process did to the thread. `None` for a thread that is gone: its end is
    /// seen elsewhere.
    fn interference(&self) -> Interference;
    /// Asks whether the thread has a policy of a yield window, or a priority of the band. True for
    /// a thread that is gone.
    fn is_as_in_window(&self) -> bool;
    /// Returns a nice value that another process gave the thread. It stays with the thread when it
    /// is given back.
    fn new_nice(&mut self) -> Option<Nice>;
    /// Gives the thread back as it was before.
    fn give_back(&mut self);
    /// Gives the thread back as it was before, apart from what another process changed.
    fn let_go(&self, interference: Interference);
}

/// What the agents can do to a CPU, and hear of it.
pub(super) trait CpuControl {
    /// Asks to be told of the moment in which no managed thread wants the CPU.
    fn arm(&mut self);
    /// Returns whether that moment came since.
    fn fired(&mut self) -> bool;
    /// Wakes the CPU's agent.
    fn wake_agent(&self);
}
