//! Whatever threads do, in whichever order.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Act {
    Wake(u32, usize),
    Block(usize, Option<usize>),
    Exit(usize),
    Release(u32),
    Pass(u64),
    LockUp(u32),
    LetOut(u32),
}

fn acts(cpus: usize, threads: u32) -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..threads, 0..cpus).prop_map(|(tid, cpu)| Act::Wake(tid, cpu)),
        4 => (0..cpus, proptest::option::of(0..cpus)).prop_map(|(cpu, anew)| Act::Block(cpu, anew)),
        1 => (0..cpus).prop_map(Act::Exit),
        1 => (0..threads).prop_map(Act::Release),
        3 => (1..20_000_u64).prop_map(Act::Pass),
        1 => (0..threads).prop_map(Act::LockUp),
        1 => (0..threads).prop_map(Act::LetOut),
    ];
    proptest::collection::vec(act, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(schedlab_testing::cases(512)))]

    /// Whatever threads do, on one to four managed CPUs: every round of every agent is checked by
    /// `go_round`, every rest by `check`. A log of it replays.
    #[test]
    fn agents_keep_one_task_on_each_cpu(
        which in 0..SCHEDULERS.len(),
        (cpus, acts) in (1..5_usize).prop_flat_map(|cpus| (Just(cpus), acts(cpus, 7))),
    ) {
        let policies = ["other", "batch", "other", "idle", "other", "batch", "other"];
        let scheduler = SCHEDULERS[which];
        let policies = policies.map(|policy| if scheduler == "edf" { "other" } else { policy });
        let mut play = Play::with(scheduler, cpus, &policies);
        for act in acts {
            match act {
                Act::Wake(tid, cpu) => play.wake(tid, cpu),
                Act::Block(cpu, anew) => play.block(cpu, anew),
                Act::Exit(cpu) => play.exit(cpu),
                Act::Release(tid) => {
                    play.state.enter(0);
                    play.state.release(tid);
                    play.settle();
                }
                Act::Pass(us) => play.pass(us),
                Act::LockUp(tid) => play.lock_up(tid),
                Act::LetOut(tid) => play.let_out(tid),
            }
            let waits = |task: u32| {
                play.state.core.runnable(task) && play.state.core.on_cpu(task).is_none()
            };
            if scheduler == "fifo-centralized" && play.currents().contains(&None) {
                prop_assert!(!(0..7).any(waits), "a CPU idles while a task waits");
            }
        }
        let mut again = LoggedCore::new(&options(scheduler, cpus)).expect("it was made before");
        for line in &play.state.log {
            prop_assert_eq!(again.step(&line.step).expect("it was played before").decision, line.decision);
        }
    }
}
