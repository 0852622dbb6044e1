//! What must hold of the events, wherever they come from.

use crate::cases::Case;
use schedlab_model::{EventKind, Ns, PrevState, SchedEvent, TaskId};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions, run};

/// The events of the workload in the simulator, on one free CPU.
pub(crate) fn simulate(case: &Case, scheduler: &str) -> Vec<SchedEvent> {
    let scheduler =
        registry::build(&scheduler.parse().expect("a scheduler"), 1).expect("it exists");
    let mut events = Vec::new();
    let options = RunOptions::for_time(Ns::from_ms(200));
    run(&Machine::flat(1), &case.workload(), &*scheduler, &options, &mut events)
        .expect("a clean run");
    events
}

/// Which thread ran after which, by letters. A foreign task in between does not end a turn.
pub(crate) fn order(events: &[SchedEvent], names: &[&str]) -> String {
    let mut turns: Vec<&str> = Vec::new();
    for event in events {
        if let EventKind::Switch { next: Some(next), .. } = event.kind
            && turns.last() != Some(&names[next.index()])
        {
            turns.push(names[next.index()]);
        }
    }
    turns.join(" ")
}

/// How much longer the tasks were on the CPU than they computed: interrupts had it meanwhile, or a
/// hypervisor, whose steal is told in ticks of 10 ms only.
pub(crate) fn overrun(case: &Case, events: &[SchedEvent]) -> Ns {
    let (mut since, mut sum) = (None, Ns::ZERO);
    for event in events {
        if let EventKind::Switch { next, .. } = event.kind {
            sum += since.take().map_or(Ns::ZERO, |since| event.at.saturating_sub(since));
            since = next.map(|_| event.at);
        }
    }
    sum.saturating_sub(case.demand())
}

/// The invariants, and the bound of waits.
pub(crate) fn check(
    case: &Case,
    scheduler: &str,
    events: &[SchedEvent],
    slack: Ns,
) -> Result<(), String> {
    let names = case.names();
    let mut on_cpu: Vec<Option<u32>> = vec![None; names.len()];
    let mut dead = vec![false; names.len()];
    let mut waits_since: Vec<Option<Ns>> = vec![None; names.len()];
    let mut longest = (Ns::ZERO, "");
    for event in events {
        match event.kind {
            EventKind::Wake { task, .. } | EventKind::New { task, .. } => {
                let slot = &mut waits_since[task.index()];
                if on_cpu[task.index()].is_none() {
                    slot.get_or_insert(event.at);
                }
            }
            EventKind::Switch { prev, prev_state, next } => {
                if let Some(prev) = prev.map(TaskId::index) {
                    on_cpu[prev] = None;
                    dead[prev] |= prev_state == PrevState::Dead;
                    let goes_on = prev_state.is_runnable() == Some(true);
                    waits_since[prev] = goes_on.then_some(event.at);
                }
                let Some(next) = next.map(TaskId::index) else { continue };
                let name = names[next];
                if dead[next] {
                    return Err(format!("{name} runs after its end, at {}", event.at));
                }
                if let Some(cpu) = on_cpu[next] {
                    return Err(format!(
                        "{name} runs on CPU {cpu} and on CPU {} at {}",
                        event.cpu.0, event.at
                    ));
                }
                if let Some(other) = on_cpu.iter().position(Option::is_some) {
                    return Err(format!(
                        "{name} and {} run at once, at {}",
                        names[other], event.at
                    ));
                }
                on_cpu[next] = Some(event.cpu.0);
                if let Some(since) = waits_since[next].take() {
                    longest = longest.max((event.at.saturating_sub(since), name));
                }
            }
            _ => {}
        }
    }
    bound(case, scheduler, longest, slack)
}

fn bound(case: &Case, scheduler: &str, longest: (Ns, &str), slack: Ns) -> Result<(), String> {
    let Some((_, most)) = case.bounds.iter().find(|(prefix, _)| scheduler.starts_with(prefix))
    else {
        return Ok(());
    };
    match longest.0 <= Ns::from_ms(*most) + slack {
        true => Ok(()),
        false => {
            Err(format!("{} waited for {}; at most {most} ms is allowed", longest.1, longest.0))
        }
    }
}
