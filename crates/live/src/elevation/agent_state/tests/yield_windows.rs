//! Yield windows on CPUs that do not exist.

use super::*;

/// Two CPUs have a yield window at once, of different lengths because one of them idled before: the
/// end of one window leaves the threads of the other CPU as they are.
#[test]
fn the_end_of_a_yield_window_is_the_end_of_one() {
    let mut play = Play::with("fifo-per-cpu", 2, &["other"; 4]);
    for tid in [0, 1, 2] {
        play.wake(tid, 0);
    }
    // No thread wants CPU 1 for some milliseconds; then its thread and one more do.
    play.block(1, None);
    play.pass(3_000);
    play.wake(1, 1);
    play.wake(3, 1);
    play.pass(97_000);
    // Something wakes both agents, which see that it is time.
    lock(&play.world).cpus.iter_mut().for_each(|cpu| cpu.rung = true);
    play.settle();
    let given_away =
        |play: &Play| [0, 1].map(|slot: usize| play.state.slots[slot].window.is_some());
    assert_eq!(given_away(&play), [true, true]);
    let classes = |play: &Play| [0, 2, 1, 3].map(|tid: usize| lock(&play.world).threads[tid].class);
    assert_eq!(classes(&play), [Class::Own, Class::Behind, Class::Own, Class::Behind]);
    play.pass(4_500);
    assert_eq!(given_away(&play), [true, false]);
    assert_eq!(classes(&play), [Class::Own, Class::Behind, Class::Running, Class::Parked]);
    play.pass(4_000);
    assert_eq!(given_away(&play), [false, false]);
    assert_eq!(classes(&play), [Class::Running, Class::Parked, Class::Running, Class::Parked]);
}

/// In a yield window EEVDF gives a SCHED_IDLE thread a tick now and then although a thread of
/// another policy is there (p99 of Redis beside sysbench under `layers` was 1.26 ms, its median 89
/// us): a thread that wakes then and is chosen is raised, and the fair class gets its time
/// afterwards.
#[test]
fn a_thread_that_wakes_in_a_yield_window_and_is_chosen_is_raised_and_extends_it() {
    let mut play = Play::with("layers", 1, &["idle", "other"]);
    let classes = |play: &Play| [0, 1].map(|tid: usize| lock(&play.world).threads[tid].class);
    let given_away = |play: &Play| play.state.slots[0].window.is_some();
    play.wake(0, 0);
    play.pass(100_000);
    assert_eq!((given_away(&play), classes(&play)), (true, [Class::Own, Class::Parked]));
    play.pass(2_000);
    play.changes();
    play.wake(1, 0);
    play.pass(1_500);
    // Nothing is done to the other one.
    assert_eq!(classes(&play), [Class::Own, Class::Running]);
    play.block(0, None);
    assert_eq!(classes(&play), [Class::Own, Class::Parked]);
    assert_eq!(play.changes(), [(1, Change::To(Class::Running)), (1, Change::To(Class::Parked))]);
    // 7 ms and the 1.5 that it ran.
    play.pass(4_990);
    assert!(given_away(&play));
    play.pass(20);
    assert_eq!((given_away(&play), classes(&play)), (false, [Class::Running, Class::Parked]));
}

/// A thread that wakes in a yield window, or just before, and goes on and on is above the fair
/// class for the length of a window only.
#[test]
fn a_thread_that_is_raised_in_a_yield_window_is_lowered_again() {
    let mut play = Play::with("layers", 1, &["idle", "other", "other"]);
    let classes = |play: &Play| [0, 1, 2].map(|tid: usize| lock(&play.world).threads[tid].class);
    play.wake(0, 0);
    play.pass(98_000);
    play.wake(1, 0);
    play.pass(2_000);
    lock(&play.world).cpus[0].rung = true;
    play.settle();
    assert!(play.state.slots[0].window.is_some());
    assert_eq!(classes(&play), [Class::Parked, Class::Running, Class::Parked]);
    // Another one of its layer waits meanwhile.
    play.wake(2, 0);
    play.pass(7_100);
    assert_eq!(classes(&play), [Class::Behind, Class::Own, Class::Behind]);
}

/// The agent's own time is above the fair class: the window is as long as promised without it.
#[test]
fn agents_take_nothing_of_a_yield_window() {
    let mut play = Play::with("layers", 1, &["idle", "other"]);
    play.wake(0, 0);
    play.pass(100_000);
    play.round_ns = 100_000;
    for _ in 0..50 {
        play.wake(1, 0);
        play.block(0, None);
        play.pass(100);
    }
    // 5 ms for the fair class and 10 for the agent.
    assert!(play.state.slots[0].window.is_some());
    play.pass(2_500);
    assert!(play.state.slots[0].window.is_none());
}

/// However many threads wake, half of a period after its beginning (50 ms less a turn of 7) the
/// window is strict.
#[test]
fn a_yield_window_is_not_put_off_for_ever() {
    let mut play = Play::with("layers", 1, &["idle", "other"]);
    play.wake(0, 0);
    play.pass(100_000);
    for _ in 0..42 {
        play.wake(1, 0);
        play.pass(1_000);
        play.block(0, None);
        play.pass(20);
    }
    play.pass(2_000);
    play.wake(1, 0);
    let classes = [0, 1].map(|tid: usize| lock(&play.world).threads[tid].class);
    assert_eq!(classes, [Class::Behind, Class::Own]);
    assert!(play.state.slots[0].window.is_some());
    play.pass(5_000);
    assert!(play.state.slots[0].window.is_none());
}

/// When an agent must wake before the next tick, each of its sleeps programs the CPU's timer, there
/// and back: the turns of the last 4 ms before the limit of raised threads took 31 us from a block
/// to the next instead of 19.
#[test]
fn no_raised_turn_begins_just_before_the_limit() {
    let mut play = Play::with("layers", 1, &["idle", "other"]);
    play.wake(0, 0);
    play.pass(100_000);
    let (began, YieldWindows { period, length }) = (play.state.now(), play.state.rules.windows);
    let mut raised = 0;
    for _ in 0..50 {
        play.wake(1, 0);
        if play.state.slots[0].window.is_some() && !play.state.is_yielded(0) {
            let (now, due) = (play.state.now(), play.state.due(0));
            assert!(due >= now + length, "{} of a turn are left", due.saturating_sub(now));
            assert!(due <= began + Ns(period.0 / 2), "half of a period is the limit");
            raised += 1;
        }
        play.pass(1_000);
        play.block(0, None);
        play.pass(20);
    }
    assert!(raised > 30, "{raised} were raised");
}

/// A thread that blocked in a yield window wakes with its own policy. Where another thread's wakeup
/// has asked for a decision on its CPU, that decision is to place it; when another CPU picks it
/// first, it must not go there while it may run (found by `agents_keep_one_task_on_each_cpu`,
/// linux-6.18: an agent changed its class on a CPU without a window).
#[test]
fn a_thread_that_blocked_in_a_yield_window_does_not_run_while_it_is_sent_to_another_cpu() {
    for (scheduler, order, heard) in SCHEDULERS
        .iter()
        .flat_map(|scheduler| [[0, 2], [2, 0]].map(|order| (scheduler, order)))
        .flat_map(|(scheduler, order)| [0, 1].map(|heard| (scheduler, order, heard)))
    {
        let mut play = Play::with(scheduler, 2, &["other"; 3]);
        play.wake(0, 0);
        play.pass(101_000);
        lock(&play.world).cpus.iter_mut().for_each(|cpu| cpu.rung = true);
        play.settle();
        let cpu = lock(&play.world).threads[0].cpu as usize;
        assert!(play.state.slots[cpu].window.is_some(), "{scheduler}");
        play.block(cpu, None);
        {
            let mut world = lock(&play.world);
            for tid in order {
                world.threads[tid as usize].runnable = true;
                world.events[heard].push(tid);
            }
        }
        play.settle();
    }
}
