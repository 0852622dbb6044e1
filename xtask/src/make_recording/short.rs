//! Threads that live briefly, as those of a build or of a shell script: a few others make one after
//! the other, and wait for its end.

use schedlab_model::{
    ChannelId, ChannelSpec, Draw, EventKind, Ns, Op, Program, Start, TaskId, TaskSpec, Workload,
};
use schedlab_trace::Recording;

/// What the short threads are called: all of them are one program.
const NAME: &str = "short";
/// What makes them.
const MAKER: &str = "maker";
/// Makers for each CPU: a build with twice as many jobs as CPUs.
const MAKERS_PER_CPU: u32 = 2;

/// Adds `count` threads that live for about a millisecond (chosen: 0.4 ms of CPU time, and one
/// sleep), and what makes them.
pub(super) fn add(workload: &mut Workload, classes: &mut Vec<String>, cpus: u32, count: u32) {
    let makers = (cpus * MAKERS_PER_CPU).min(count);
    let first = workload.tasks.len() as u32 + makers;
    for maker in 0..makers {
        let ended = ended(workload, maker);
        let own = (maker..count).step_by(makers as usize).map(|short| TaskId(first + short));
        workload.tasks.push(TaskSpec::new(MAKER, made(own, ended)));
        classes.push(MAKER.to_owned());
    }
    let channels = workload.channels.len() as u32 - makers;
    for short in 0..count {
        let program = life(ChannelId(channels + short % makers));
        workload.tasks.push(TaskSpec { start: Start::Spawned, ..TaskSpec::new(NAME, program) });
        classes.push(NAME.to_owned());
    }
}

/// Adds the channel by which a maker learns of ends.
fn ended(workload: &mut Workload, maker: u32) -> ChannelId {
    let name = format!("ended-{maker}");
    workload.channels.push(ChannelSpec { name, ..ChannelSpec::default() });
    ChannelId(workload.channels.len() as u32 - 1)
}

/// The program of a maker: it makes each of `own`, waits for its end, and goes on.
fn made(own: impl Iterator<Item = TaskId>, ended: ChannelId) -> Program {
    let mut program = Program::default();
    let between = program.draw(Draw::Exponential { mean: Ns::from_us(100) });
    for short in own {
        program.ops.extend([Op::Run(between), Op::Spawn(short), Op::Receive(ended)]);
    }
    program
}

/// The program of a short thread.
fn life(ended: ChannelId) -> Program {
    let mut program = Program::default();
    let work = program.draw(Draw::Exponential { mean: Ns::from_us(200) });
    let wait = program.draw(Draw::Exponential { mean: Ns::from_us(400) });
    let end = Op::Send { channel: ended, count: 1 };
    program.ops.extend([Op::Run(work), Op::Sleep(wait), Op::Run(work), end, Op::Exit]);
    program
}

/// Returns how many of the short threads have ended.
pub(super) fn ends(recording: &Recording) -> u64 {
    recording.events.iter().filter(|event| is_end(recording, &event.kind)).count() as u64
}

/// Returns how many events there are until the last short thread has ended.
pub(super) fn last_end(recording: &Recording) -> usize {
    let last = recording.events.iter().rposition(|event| is_end(recording, &event.kind));
    last.map_or(0, |last| last + 1)
}

fn is_end(recording: &Recording, kind: &EventKind) -> bool {
    matches!(kind, EventKind::Exit { task } if recording.header.tasks[task.index()].comm == NAME)
}
