//! Threads whose affinity changes while they are managed: what others, or they themselves, asked
//! for holds.

use super::*;

/// Another process sends a running thread away: the next one runs, and it stays where it was sent.
#[test]
fn a_thread_that_others_send_away_is_let_go() {
    let mut play = Play::with("rr:slice_ns=5ms", 2, &["other"; 4]);
    (0..4).for_each(|tid| play.wake(tid, 0));
    let on_one = play.currents()[1].expect("four want two CPUs");
    lock(&play.world).threads[on_one as usize].interference = Interference::Cpus;
    // It is looked at in one of the next rounds.
    play.pass(300_000);
    assert_eq!(play.state.counts.changed_by_others, 1);
    assert!(!lock(&play.world).threads[on_one as usize].managed);
    assert_eq!(play.currents().iter().flatten().count(), 2);
}

/// A parked thread narrows its own affinity, and is chosen for another CPU before a look finds
/// that: it is not sent there, and the CPU goes to the next one.
#[test]
fn a_thread_that_confined_itself_is_let_go_when_it_is_chosen_elsewhere() {
    let mut play = Play::with("fifo-centralized", 2, &["other"; 4]);
    (0..4).for_each(|tid| play.wake(tid, 0));
    assert_eq!(play.currents(), [Some(0), Some(1)]);
    lock(&play.world).threads[2].interference = Interference::Cpus;
    play.changes();
    play.block(1, None);
    play.settle();
    assert_eq!(play.currents(), [Some(0), Some(3)]);
    assert_eq!(play.state.counts.changed_by_others, 1);
    let changes = play.changes();
    assert!(
        !changes.iter().any(|(tid, change)| *tid == 2 && *change != Change::To(Class::Own)),
        "{changes:?}"
    );
    assert!(!lock(&play.world).threads[2].managed);
}
