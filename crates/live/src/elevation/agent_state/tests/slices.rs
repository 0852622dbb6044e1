//! Slices and quanta on the clock.

use super::*;

/// docs/live-safety.md, 15: slices are counted on the clock. An agent that was kept away (by the
/// host of a virtual machine) finds one slice over, not several, and the next one begins when it
/// decides.
#[test]
fn an_agent_that_comes_late_owes_no_slices() {
    let mut play = Play::with("rr:slice_ns=5ms", 1, &["other"; 2]);
    play.wake(0, 0);
    play.wake(1, 0);
    assert_eq!(play.currents(), [Some(0)]);
    let decided = play.state.counts.decisions;
    lock(&play.world).now += 17_000_000;
    play.settle();
    assert_eq!((play.currents(), play.state.counts.decisions), (vec![Some(1)], decided + 1));
    play.pass(4_900);
    assert_eq!(play.currents(), [Some(1)]);
    play.pass(200);
    assert_eq!(play.currents(), [Some(0)]);
}

/// A quantum below the cost of a decision: the threads have the CPU for as long as the agent all
/// the same.
#[test]
fn timers_leave_the_threads_as_long_as_a_round_took() {
    let mut play = Play::with("shinjuku:quantum=50us", 1, &["other", "other"]);
    (0..2).for_each(|task| play.wake(task, 0));
    play.settle();
    // The agent alone uses the CPU while its round lasts.
    let world = play.world.clone();
    play.state.rules.used = Box::new(move || Ns(lock(&world).now));
    let mut round = |took_us: u64| {
        play.state.enter(0);
        lock(&play.world).now += took_us * 1_000;
        let wakes = play.state.leave(0);
        ((wakes.0 - lock(&play.world).now) / 1_000, play.state.counts.postponed)
    };
    assert_eq!(round(20), (30, 0), "the rest of the quantum");
    assert_eq!(round(40), (40, 1), "as long as the round, though the quantum is over in 0 us");
    assert_eq!(round(9_000), (1_000, 2), "a round that was disturbed is no measure");
}
