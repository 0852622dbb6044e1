//! The state beside a kernel that does not exist: it keeps the rules of `bpf/ext.bpf.c` and of the
//! kernel's sched_ext class as far as the driver sees them, has CPUs that other classes take, tells
//! events before they are true, and loses some.

mod fake;

use super::*;
use fake::{Fake, Known};
use proptest::prelude::*;
use schedlab_live::logged_core::CoreOptions;

/// Schedulers with one queue for all CPUs, which keep none idle while a thread could run there;
/// then those in which every thread has turns, which shinjuku is, too.
const SCHEDULERS: [&str; 5] =
    ["fifo-centralized", "layers", "shinjuku:quantum=1ms", "rr:slice_ns=1ms", "linux-6.12"];
const CONSERVING: usize = 3;
const TURNS: usize = 2;

/// A driver's state beside its kernel.
struct Play {
    state: AgentState<Known>,
    kernel: Fake,
    options: CoreOptions,
    lost: u64,
}

impl Play {
    fn new(scheduler: &str, cpus: usize) -> Play {
        let options =
            CoreOptions { scheduler: scheduler.to_owned(), cpus, tasks: 64, hz: 250, seed: 1 };
        let core = LoggedCore::new(&options).expect("a scheduler of the registry");
        let rules = Rules {
            hz: 250,
            starve_after: Ns::from_s(3_600),
            log_steps: 1 << 20,
            start: Ns::from_s(9),
        };
        // CPU 0 is the agent's.
        let managed: CpuSet = (1..=cpus as u32).map(CpuId).collect();
        let kernel = Fake::new(cpus + 1, rules.start);
        let state = AgentState::new(core, rules, &managed, kernel.known());
        Play { state, kernel, options, lost: 0 }
    }

    fn take(&mut self, tids: &[u32]) {
        for tid in tids {
            self.kernel.add(*tid);
            self.state.take(*tid);
        }
        self.round();
    }

    /// Wakes threads one after the other; the agent hears of each before the next.
    fn wake(&mut self, tids: &[u32]) {
        for tid in tids {
            self.kernel.wake(*tid);
            self.rounds(1, Ns::from_us(50));
        }
    }

    /// One round of the agent, as `agent.rs` makes it.
    fn round(&mut self) {
        for event in self.kernel.drain() {
            self.state.hear(&event);
        }
        let now = self.kernel.now.saturating_sub(self.state.rules.start);
        self.state.advance(now);
        if self.kernel.lost > self.lost {
            self.state.lost(self.kernel.lost - self.lost);
            self.lost = self.kernel.lost;
        }
        self.state.fire();
        for _ in 0..17 {
            self.state.settle();
            let mut due = self.state.due_decisions();
            self.kernel.commit(&mut due);
            if self.state.answered(&due) || due.is_empty() {
                break;
            }
        }
        for notice in std::mem::take(&mut self.state.notices) {
            if let Notice::Release(tid) = notice {
                self.kernel.give_back(tid);
            }
        }
        assert_eq!(self.state.breach, None, "{}", self.options.scheduler);
    }

    fn rounds(&mut self, count: usize, step: Ns) {
        for _ in 0..count {
            self.kernel.now += step;
            self.kernel.put_in();
            self.round();
        }
    }

    /// The log, played into a new core, gives the same decisions.
    fn verify(&self) {
        let mut core = LoggedCore::new(&self.options).expect("as before");
        for line in &self.state.log {
            let answer = core.step(&line.step).expect("as before");
            assert_eq!(answer.decision, line.decision, "{:?}", line.step);
        }
    }
}

#[test]
fn two_hogs_take_turns_of_a_slice() {
    let mut play = Play::new("rr:slice_ns=5ms", 1);
    play.take(&[10, 11]);
    for tid in [10, 11] {
        play.kernel.wake(tid);
    }
    let mut turns = Vec::new();
    for _ in 0..400 {
        play.rounds(1, Ns::from_us(100));
        let runs = play.kernel.running(1).expect("a hog");
        match turns.last_mut() {
            Some((tid, rounds)) if *tid == runs => *rounds += 1,
            _ => turns.push((runs, 1)),
        }
    }
    assert!(turns.len() >= 7, "{turns:?}");
    for pair in turns.windows(2) {
        assert_ne!(pair[0].0, pair[1].0);
    }
    assert!(
        turns[1..turns.len() - 1].iter().all(|(_, rounds)| (49..=51).contains(rounds)),
        "{turns:?}"
    );
    assert_eq!((play.state.counts.stale, play.state.ext.displaced), (0, 0));
    play.verify();
}

#[test]
fn a_decision_that_comes_too_early_is_made_again() {
    let mut play = Play::new("fifo-centralized", 1);
    play.take(&[10]);
    play.kernel.early = true;
    play.kernel.wake(10);
    for _ in 0..3 {
        play.round();
        assert_eq!(play.kernel.running(1), None, "the kernel has not put it into the queue");
    }
    play.kernel.put_in();
    play.round();
    assert_eq!(play.kernel.running(1), Some(10));
    assert_eq!(play.state.ext.early, 3);
    play.verify();
}

#[test]
fn a_stale_decision_waits_for_the_event_that_explains_it() {
    let mut play = Play::new("fifo-centralized", 1);
    play.take(&[10]);
    play.kernel.wake(10);
    // The event is on its way; meanwhile a CPU takes the thread by itself, and it blocks and wakes.
    let early = play.kernel.drain();
    play.kernel.take_alone(1);
    play.kernel.block(10);
    play.kernel.wake(10);
    early.iter().for_each(|event| play.state.hear(event));
    let mut due = play.state_due();
    play.kernel.commit(&mut due);
    play.state.answered(&due);
    assert_eq!((play.state.counts.stale, play.kernel.running(1)), (1, None));
    play.rounds(2, Ns::from_us(50));
    assert_eq!(play.kernel.running(1), Some(10));
    play.verify();
}

impl Play {
    fn state_due(&mut self) -> Vec<Decision> {
        self.state.settle();
        self.state.due_decisions()
    }
}

#[test]
fn a_thread_that_ran_without_a_decision_goes_back() {
    let mut play = Play::new("fifo-centralized", 1);
    play.take(&[10, 11]);
    play.kernel.wake(10);
    play.rounds(1, Ns::from_us(50));
    play.kernel.wake(11);
    play.rounds(1, Ns::from_us(50));
    // The agent was silent: the CPU gave both a turn, and 11, which has to wait, is there now.
    play.kernel.fall_back(1);
    assert_eq!(play.kernel.running(1), Some(11));
    play.rounds(4, Ns::from_us(50));
    assert_eq!(play.kernel.running(1), Some(10), "first come, first served");
    play.verify();
}

#[test]
fn a_chosen_thread_that_another_class_keeps_from_its_cpu_is_counted() {
    let mut play = Play::new("rr:slice_ns=5ms", 1);
    play.take(&[10]);
    play.kernel.wake(10);
    play.rounds(1, Ns::from_us(50));
    play.kernel.take_by_others(1, true);
    play.rounds(40, Ns::from_us(100));
    play.kernel.take_by_others(1, false);
    play.rounds(1, Ns::from_us(50));
    assert_eq!(play.kernel.running(1), Some(10));
    let kept = play.state.ext.kept_by_others_ns;
    assert!((3_900_000..4_200_000).contains(&kept), "{kept}");
}

#[test]
fn what_a_child_is_and_what_becomes_of_threads_is_heard() {
    let mut play = Play::new("rr:slice_ns=1ms", 2);
    play.take(&[10]);
    play.kernel.wake(10);
    play.rounds(1, Ns::from_us(50));
    let child = play.kernel.fork(10);
    play.rounds(2, Ns::from_us(50));
    assert_eq!(
        [play.kernel.running(1), play.kernel.running(2)].iter().flatten().count(),
        2,
        "both run"
    );
    play.kernel.exit(child);
    play.rounds(1, Ns::from_us(50));
    assert_eq!(play.state.managed(), [10]);
    // It narrows itself to a CPU that is not managed: it is not kept.
    play.kernel.set_affinity(10, CpuSet::single(CpuId(0)));
    play.rounds(2, Ns::from_us(50));
    assert_eq!(play.state.managed(), [] as [u32; 0]);
    play.verify();
}

#[test]
fn a_cpu_that_goes_and_comes() {
    let mut play = Play::new("linux-6.12", 2);
    play.take(&[10, 11, 12, 13]);
    for tid in 10..14 {
        play.kernel.wake(tid);
    }
    play.rounds(20, Ns::from_ms(1));
    play.kernel.set_online(2, false);
    let before = play.kernel.served();
    play.rounds(200, Ns::from_ms(1));
    let after = play.kernel.served();
    assert!(
        (10..14).all(|tid| after[&tid] > before[&tid]),
        "{before:?} {after:?}: all have turns on the other CPU"
    );
    play.kernel.set_online(2, true);
    play.rounds(50, Ns::from_ms(1));
    assert!(play.kernel.running(2).is_some(), "it is used again");
    play.verify();
}

#[test]
fn the_next_thread_runs_before_the_agent_hears_that_its_cpu_is_free() {
    for scheduler in
        ["fifo-centralized", "shinjuku:quantum=1ms", "layers", "rr:slice_ns=1ms", "edf", "search"]
    {
        let mut play = Play::new(scheduler, 1);
        play.take(&[10, 11, 12]);
        play.wake(&[10, 11, 12]);
        let first = play.kernel.running(1).expect("one runs");
        play.kernel.block(first);
        let second = play.kernel.running(1);
        assert!(
            second.is_some_and(|second| second != first),
            "{scheduler}: {second:?} after {first}"
        );
        play.rounds(2, Ns::from_us(50));
        assert_eq!(play.kernel.running(1), second, "{scheduler}: the decision is the same");
        // And the one behind it, which was named meanwhile.
        play.kernel.exit(second.expect("it runs"));
        assert!(play.kernel.running(1).is_some(), "{scheduler}");
        play.rounds(2, Ns::from_us(50));
        let counts = (play.state.ext.ahead, play.state.counts.stale, play.state.ext.displaced);
        assert_eq!(counts, (2, 0, 0), "{scheduler}");
        play.verify();
    }
}

#[test]
fn a_thread_that_was_named_too_long_ago_gives_way_to_the_decision() {
    let mut play = Play::new("layers", 1);
    play.take(&[10, 11, 12]);
    play.wake(&[10, 11]);
    let policy = schedlab_model::Policy::Batch;
    [10, 11].into_iter().for_each(|tid| play.state.take_for(tid, policy));
    play.rounds(1, Ns::from_us(50));
    // 12 goes first, but wakes at the moment in which 10 blocks: the CPU takes what it was told.
    assert_eq!(play.kernel.running(1), Some(10));
    play.kernel.wake(12);
    play.kernel.block(10);
    assert_eq!(play.kernel.running(1), Some(11));
    play.rounds(2, Ns::from_us(50));
    assert_eq!(play.kernel.running(1), Some(12));
    play.kernel.block(12);
    assert_eq!(play.kernel.running(1), Some(11), "it is the next again");
    play.verify();
}

#[test]
fn a_scheduler_that_cannot_tell_names_nobody() {
    let mut play = Play::new("linux-6.12", 1);
    play.take(&[10, 11]);
    play.wake(&[10, 11]);
    let first = play.kernel.running(1).expect("one runs");
    play.kernel.block(first);
    assert_eq!(play.kernel.running(1), None, "the CPU waits for the agent");
    play.rounds(1, Ns::from_us(50));
    assert!(play.kernel.running(1).is_some());
    play.verify();
}

/// What may happen.
#[derive(Clone, Debug)]
enum Happens {
    Wake(u32),
    Block(u32),
    Yield(u32),
    Exit(u32),
    Fork(u32),
    Others(u32, bool),
    Affinity(u32, u64),
    Online(u32, bool),
    Alone(u32),
    Early(bool),
    Lose(u8),
    Round(u32),
}

fn happens() -> impl Strategy<Value = Happens> {
    let (tid, cpu) = (10_u32..16, 0_u32..4);
    prop_oneof![
        6 => tid.clone().prop_map(Happens::Wake),
        4 => tid.clone().prop_map(Happens::Block),
        1 => tid.clone().prop_map(Happens::Yield),
        1 => tid.clone().prop_map(Happens::Exit),
        1 => tid.clone().prop_map(Happens::Fork),
        1 => (cpu.clone(), any::<bool>()).prop_map(|(cpu, on)| Happens::Others(cpu, on)),
        1 => (tid, 1_u64..16).prop_map(|(tid, mask)| Happens::Affinity(tid, mask)),
        1 => (2_u32..4, any::<bool>()).prop_map(|(cpu, on)| Happens::Online(cpu, on)),
        1 => cpu.prop_map(Happens::Alone),
        1 => any::<bool>().prop_map(Happens::Early),
        1 => (1_u8..9).prop_map(Happens::Lose),
        8 => (1_u32..3_000).prop_map(Happens::Round),
    ]
}

impl Play {
    fn happen(&mut self, what: &Happens) {
        let kernel = &mut self.kernel;
        match *what {
            Happens::Wake(tid) => kernel.wake(tid),
            Happens::Block(tid) => kernel.block(tid),
            Happens::Yield(tid) => kernel.sched_yield(tid),
            Happens::Exit(tid) => kernel.exit(tid),
            Happens::Fork(tid) => {
                if kernel.is_running(tid) {
                    kernel.fork(tid);
                }
            }
            Happens::Others(cpu, on) => kernel.take_by_others(cpu, on),
            Happens::Affinity(tid, mask) => {
                let cpus = (0..4).filter(|cpu| mask >> cpu & 1 == 1).map(CpuId).collect();
                kernel.set_affinity(tid, cpus);
            }
            Happens::Online(cpu, on) => kernel.set_online(cpu, on),
            Happens::Alone(cpu) => kernel.fall_back(cpu),
            Happens::Early(early) => kernel.early = early,
            Happens::Lose(events) => kernel.lose = events,
            Happens::Round(us) => {
                kernel.now += Ns::from_us(u64::from(us));
                self.round();
            }
        }
    }

    /// Nothing more happens but time.
    fn calm_down(&mut self) {
        self.kernel.early = false;
        self.kernel.lose = 0;
        for cpu in 0..4 {
            self.kernel.take_by_others(cpu, false);
            self.kernel.set_online(cpu, true);
        }
        // The supervisor finds in /proc the children whose births were not told.
        let (all, known) = (self.kernel.wanting(), self.state.managed());
        for tid in all.into_iter().filter(|tid| !known.contains(tid)) {
            self.state.take(tid);
        }
        self.rounds(100, Ns::from_ms(1));
        // Not in the middle of a change of turns.
        self.rounds(20, Ns::from_us(20));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(schedlab_testing::cases(400)))]

    /// Whatever happens: no CPU that a thread could have stays idle, the scheduler keeps its
    /// contract, and the log repeats.
    #[test]
    fn no_thread_is_lost(
        which in 0..SCHEDULERS.len(),
        all in prop::collection::vec(happens(), 0..120),
    ) {
        let mut play = Play::new(SCHEDULERS[which], 3);
        play.take(&[10, 11, 12, 13, 14, 15]);
        all.iter().for_each(|one| play.happen(one));
        play.calm_down();
        if which < CONSERVING {
            prop_assert_eq!(play.kernel.idle_beside_a_waiting_thread(), None);
        }
        if which >= TURNS {
            let before = play.kernel.served();
            play.rounds(200, Ns::from_ms(1));
            let after = play.kernel.served();
            for tid in play.kernel.wanting() {
                prop_assert!(after[&tid] > before[&tid], "thread {} gets nothing", tid);
            }
        }
        play.verify();
    }
}
