//! The recordings with facts that the project ships, played again: whatever was exchanged often
//! goes on, round after round.

use schedlab_model::{Act, EventKind, FactKind, Ns, Outcome, TaskId, Workload};
use schedlab_replay::Runtime;
use schedlab_scheduler::{SchedulerSpec, registry};
use schedlab_sim::{Machine, Outcome as Ran, RunOptions, run};
use schedlab_trace::replay::{ReplayOptions, replay};
use schedlab_trace::{Capability, Recording};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Fewer receives than this say nothing about a rate.
const OFTEN: u64 = 100;

/// All recordings.
fn ours() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    let mut folders = vec![root];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "slt") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the workload of a recording, with what its wakeups say of runtimes, as `compare` makes
/// it.
fn replayed(recording: &Recording) -> Workload {
    let by_wakeups = replay(recording, &ReplayOptions::default()).unwrap();
    let runtimes = by_wakeups.report.runtimes.iter().zip(&by_wakeups.workload.handoffs);
    let runtimes: Vec<Runtime> = runtimes
        .map(|(fit, handoff)| Runtime { lanes: fit.lanes, handoff: handoff.clone() })
        .collect();
    schedlab_replay::replay(
        recording,
        by_wakeups.report.recorder,
        by_wakeups.report.beside(),
        &runtimes,
    )
    .unwrap()
    .workload
}

/// How often each object was received from that was in use in the first half already. A connection
/// that a client opened shortly before the end is opened a little later, or not at all.
fn received(recording: &Recording) -> Vec<u64> {
    let mut times = vec![(Ns::MAX, 0); recording.facts.objects.len()];
    for fact in &recording.facts.list {
        if let FactKind::Receive(of) = fact.kind
            && of.outcome == Outcome::Done
        {
            let (first, times) = &mut times[of.object.index()];
            *first = (*first).min(fact.at);
            *times += 1;
        }
    }
    let early =
        |(first, times): (Ns, u64)| if first.0 < recording.duration.0 / 2 { times } else { 0 };
    times.into_iter().map(early).collect()
}

/// The objects at which a program receives: datagrams for several sockets of one reader are in one.
fn read(workload: &Workload) -> BTreeSet<usize> {
    let scripts = workload.exchange.scripts.iter().flat_map(|script| &script.steps);
    let coroutines = workload.exchange.executors.iter().flat_map(|of| &of.coroutines);
    let steps = coroutines.flat_map(|coroutine| &coroutine.steps).map(|step| &step.step);
    let read = scripts.chain(steps).filter_map(|step| match step.act {
        Act::Receive { object, .. } => Some(object.index()),
        _ => None,
    });
    read.collect()
}

/// The objects of tasks that ended in the recording: their exchange is over with them.
fn over(recording: &Recording) -> BTreeSet<usize> {
    let ends = recording.events.iter().filter_map(|event| match event.kind {
        EventKind::Exit { task } => Some(task),
        _ => None,
    });
    let ended: BTreeSet<TaskId> = ends.collect();
    let facts = recording.facts.list.iter();
    let of_ended = facts.filter(|fact| fact.task.is_some_and(|task| ended.contains(&task)));
    let used = of_ended.filter_map(|fact| match fact.kind {
        FactKind::Send(of) | FactKind::Receive(of) => Some(of.object.index()),
        _ => None,
    });
    used.collect()
}

fn play(recording: &Recording, workload: &Workload, rounds: u64) -> Ran {
    let topology = recording.header.topology.clone();
    let scheduler = registry::build(&SchedulerSpec::named("linux-6.12"), topology.cpus()).unwrap();
    let options = RunOptions::for_time(recording.duration * rounds);
    let machine = Machine { topology, hz: recording.header.hz, ..Machine::flat(1) };
    run(&machine, workload, &*scheduler, &options, &mut ()).unwrap()
}

#[test]
fn recordings_of_ours_go_on_for_three_rounds() {
    let (mut played, mut wrong) = (0, Vec::new());
    for path in ours() {
        let recording = Recording::open(&path).unwrap();
        if !recording.header.capabilities.has(Capability::Messages) {
            continue;
        }
        let replayed = replayed(&recording);
        let recorded = received(&recording);
        let once = play(&recording, &replayed, 1);
        let thrice = play(&recording, &replayed, 3);
        played += 1;
        let (over, read) = (over(&recording), read(&replayed));
        let several = recording.header.topology.cpus() > 1;
        let often = recorded.iter().enumerate().filter(|(_, times)| **times >= OFTEN);
        for (number, &times) in often.filter(|(number, _)| read.contains(number)) {
            let of = |outcome: &Ran| outcome.metrics.objects[number].receives;
            let (one, three) = (of(&once), of(&thrice));
            let goes_on = over.contains(&number) || three >= one * 2;
            // On several CPUs tasks may share them otherwise than they did, and for long.
            let [took, least] = if several { [three, times] } else { [one * 2, times] };
            if took < least || !goes_on {
                wrong.push(format!(
                    "{} {}: {times} recorded, {one} in one round, {three} in three",
                    path.display(),
                    replayed.exchange.objects[number].name
                ));
            }
        }
    }
    assert!(played >= 60, "{played}");
    assert!(wrong.is_empty(), "of {played}:\n{}", wrong.join("\n"));
}
