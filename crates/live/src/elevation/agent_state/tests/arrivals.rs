//! Threads inside of a lock of the pretended kernel, which do not leave their CPU when they are
//! sent.

use super::*;

impl World {
    /// A raised thread inside of a lock gets out of it when no other raised thread wants its CPU.
    pub(super) fn let_out_alone(&mut self, cpu: u32) {
        let raised = |one: &&Pretended| one.runnable;
        if self.raised(cpu).filter(raised).any(|one| one.leaves.is_none()) {
            return;
        }
        for one in &mut self.threads {
            let runs = one.alive && one.runnable && one.class == Class::Running;
            if runs && one.leaves == Some(cpu) {
                (one.locked, one.leaves) = (false, None);
                self.cpus[one.cpu as usize].rung = true;
            }
        }
    }
}

impl Play {
    /// A thread that is parked goes into a lock of the kernel.
    pub(super) fn lock_up(&mut self, tid: u32) {
        let one = &mut lock(&self.world).threads[tid as usize];
        one.locked |= one.alive && one.class == Class::Parked;
    }

    /// It comes out of it, and arrives where it was sent.
    pub(super) fn let_out(&mut self, tid: u32) {
        {
            let mut world = lock(&self.world);
            let one = &mut world.threads[tid as usize];
            one.locked = false;
            if one.leaves.take().is_some() {
                let to = one.cpu as usize;
                world.cpus[to].rung = true;
            }
        }
        self.settle();
    }
}

/// PREEMPT_RT: a thread inside of a lock of the kernel does not leave its CPU. It is let out by the
/// raised thread there, and what the block detector tells of its new CPU counts only when it is
/// there.
#[test]
fn a_thread_inside_of_a_lock_is_let_out_and_awaited() {
    let mut play = Play::with("fifo-centralized", 2, &["other"; 3]);
    for tid in 0..3 {
        play.wake(tid, 1);
    }
    play.lock_up(2);
    play.changes();
    play.block(1, None);
    assert_eq!(play.currents(), [Some(0), Some(2)]);
    // It is raised on CPU 0, where it still is, and the first one there goes behind it.
    let to = |tid, class| (tid, Change::To(class));
    let order = [
        (2, Change::Sent(1)),
        to(2, Class::Running),
        to(0, Class::Parked),
        to(0, Class::Running),
        to(1, Class::Parked),
    ];
    assert_eq!(play.changes(), order);
    assert!(!lock(&play.world).cpus[1].armed, "nothing of CPU 1 is the thread's yet");
    play.pass(10);
    let decided = play.state.counts.decisions;
    play.let_out(2);
    assert!(lock(&play.world).cpus[1].armed);
    assert_eq!((play.currents(), play.changes()), (vec![Some(0), Some(2)], vec![]));
    assert_eq!(play.state.counts.decisions, decided);
    play.block(1, None);
    assert_eq!(play.currents(), [Some(0), None]);
}
