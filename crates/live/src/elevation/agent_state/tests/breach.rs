//! Schedulers that break their contract behind live agents.

use super::*;
use schedlab_model::TaskId;
use schedlab_scheduler::{Cmd, Cx, Pick, Prev, Scheduler, registry};

/// Round robin that also asks, in each decision, for what `asks` says.
struct Asks {
    inner: Box<dyn Scheduler + Send>,
    asks: Cmd,
}

impl Scheduler for Asks {
    schedlab_scheduler::forward!(inner: needs, init, wake, leave, yielded, saved, tick, timer, changed, resync);

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        cx.push(self.asks);
        self.inner.schedule(cx, cpu, prev, why)
    }
}

fn breach_of(asks: Cmd) -> Option<Breach> {
    let inner = registry::build_to_send(&"rr".parse().expect("a scheduler"), 1).expect("it exists");
    let core = LoggedCore::with(Box::new(Asks { inner, asks }), &options("asks", 1));
    let mut play = Play::under(core, 1);
    play.join(Policy::Other);
    lock(&play.world).threads[0].runnable = true;
    play.state.enter(0);
    play.state.heard_wake(0, WokenBy::Unknown);
    play.state.settle(0);
    let (steps, switches) = (play.state.log.len(), play.state.counts.switches);
    // Nothing is played or decided any more.
    play.state.decide(0, Fate::Runnable);
    assert_eq!((play.state.log.len(), play.state.counts.switches), (steps, switches));
    play.state.breach
}

#[test]
fn a_scheduler_that_breaks_its_contract_decides_no_more() {
    let nowhere = CpuId(7);
    assert_eq!(breach_of(Cmd::Resched(nowhere)), Some(Breach::NoSuchCpu(nowhere)));
    assert_eq!(breach_of(Cmd::Throttled(TaskId(99))), Some(Breach::NoSuchTask(TaskId(99))));
}

#[test]
fn decisions_that_never_end_are_a_breach_with_a_name() {
    let breach = breach_of(Cmd::Resched(CpuId(0)));
    assert_eq!(breach, Some(Breach::EndlessDecisions { cpu: CpuId(0), limit: DECISIONS_MAX }));
    let told = crate::LiveError::Contract {
        scheduler: "asks".to_owned(),
        breach: breach.expect("it is one"),
    };
    let words = ["asks broke", "cpu0 after 64", "put back"];
    assert!(words.iter().all(|word| told.to_string().contains(word)), "{told}");
}
