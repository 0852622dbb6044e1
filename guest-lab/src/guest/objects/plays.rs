//! What is played under each object, in the guest and in the simulator: one table for both.

use anyhow::{Context, Result};
use schedlab_model::{Amount, CpuId, Nice, Ns, Op, Program, Start, TaskId, TaskSpec};
use std::fmt::Write;

/// Where objects are played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// One CPU.
    One,
    /// Four cores below one cache.
    Four,
    /// Two cores of two hardware threads.
    Smt,
}

impl Shape {
    pub(super) const ALL: [Shape; 3] = [Shape::One, Shape::Four, Shape::Smt];

    pub(super) fn cpus(self) -> usize {
        if self == Shape::One { 1 } else { 4 }
    }
    /// As tables and files have it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Shape::One => "1 CPU",
            Shape::Four => "4 CPUs",
            Shape::Smt => "2x2 SMT",
        }
    }
}

/// An object and what its user half sets, on any machine; `smt`: on one with SMT beside that.
pub(super) struct Subject {
    /// File without `.bpf.o`.
    pub(super) name: &'static str,
    pub(super) settings: &'static [&'static str],
    pub(super) smt: &'static [&'static str],
    /// `syscall` programs that are run before it attaches, with SMT.
    pub(super) calls: &'static [&'static str],
    /// Machines on which it is not played, with the reason.
    pub(super) not_on: Option<(Shape, &'static str)>,
}

const fn plain(name: &'static str, settings: &'static [&'static str]) -> Subject {
    Subject { name, settings, smt: &[], calls: &[], not_on: None }
}

/// `enable_sibling_cpu(cpu, sibling)` for the guest's cores (0, 1) and (2, 3), as scx's user halves
/// call it: each CPU with the other of its core.
const SIBLINGS: &[&str] = &[
    "enable_sibling_cpu()=0,1",
    "enable_sibling_cpu()=1,0",
    "enable_sibling_cpu()=2,3",
    "enable_sibling_cpu()=3,2",
];

/// What is tried. Values are those of each user half without options: tools/sched_ext/NAME.c of the
/// kernel, src/main.rs of the crates. 0x36 is ENQ_EXITING, ENQ_LAST, ENQ_MIGRATION_DISABLED and
/// ALLOW_QUEUED_WAKEUP.
pub(super) const SUBJECTS: &[Subject] = &[
    plain(LOG, &[]),
    plain("scx_simple", &[]),
    plain("scx_cpu0", &[]),
    Subject {
        not_on: Some((
            Shape::One,
            "on one CPU no timer of it ends a turn: kernel threads do, which are not simulated",
        )),
        ..plain("scx_central", &["slice_ns=20000000"])
    },
    plain("scx_qmap", &["slice_ns=20000000", "max_tasks=16384"]),
    plain("scx_sdt", &[]),
    Subject {
        name: "scx_bpfland",
        settings: &[
            "numa_enabled=0",
            "smt_enabled=0",
            "slice_max=1000000",
            "slice_lag=40000000",
            "primary_all=1",
            "ops.flags=0x36",
        ],
        smt: &["smt_enabled=1"],
        calls: SIBLINGS,
        not_on: None,
    },
    Subject {
        name: "scx_cosmos",
        settings: &[
            "numa_enabled=0",
            "smt_enabled=0",
            "nr_node_ids=1",
            "slice_ns=1000000",
            "slice_lag=20000000",
            "cpufreq_enabled=1",
            "busy_threshold=0",
            "overload_thresh_ns=1000000",
            "all_cpus_same_capacity=1",
            "primary_all=1",
            "ops.flags=0x36",
        ],
        smt: &["smt_enabled=1"],
        calls: SIBLINGS,
        not_on: None,
    },
    Subject {
        name: "scx_flash",
        settings: &[
            "numa_disabled=1",
            "smt_enabled=0",
            "slice_max=700000",
            "slice_lag=20000000",
            "primary_all=1",
            "ops.flags=0x36",
        ],
        smt: &["smt_enabled=1"],
        calls: &[
            "enable_sibling_cpu()=0,0,1",
            "enable_sibling_cpu()=0,1,0",
            "enable_sibling_cpu()=0,2,3",
            "enable_sibling_cpu()=0,3,2",
        ],
        not_on: None,
    },
    Subject {
        name: "scx_beerland",
        settings: &[
            "numa_enabled=0",
            "smt_enabled=0",
            "slice_ns=1000000",
            "slice_lag=20000000",
            "primary_all=1",
            "ops.flags=0xb6",
        ],
        smt: &["smt_enabled=1"],
        calls: SIBLINGS,
        not_on: None,
    },
];

/// Returns the settings of an object on a machine, as both sides take them.
pub(super) fn settings(subject: &Subject, shape: Shape) -> Vec<&'static str> {
    let mut all = subject.settings.to_vec();
    if shape == Shape::Smt {
        for more in subject.smt {
            let name = more.split('=').next().unwrap_or_default();
            all.retain(|one| one.split('=').next() != Some(name));
            all.push(more);
        }
    }
    all
}

/// A task of a play.
#[derive(Clone, Copy)]
pub(super) struct Actor {
    /// Its name begins with `c_`.
    pub(super) name: &'static str,
    pub(super) nice: i8,
    /// It begins so long after the moment.
    at_us: u64,
    pub(super) does: Does,
}

/// What a task does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    /// Computes to the end.
    Hog,
    /// Uses `work` of CPU time, then sleeps.
    Beat { work_us: u64, sleep_us: u64 },
    /// Forks a task of its name and a `k`; both use so much CPU time and end.
    Family { work_us: u64 },
    /// Gives itself nice 5, and with `cpus` confines itself to CPU 1 and then to CPU 2; uses CPU
    /// time before, between and after, and ends.
    Changes { work_us: u64, cpus: bool },
}

const fn hog(name: &'static str, nice: i8, at_us: u64) -> Actor {
    Actor { name, nice, at_us, does: Does::Hog }
}

const fn beat(name: &'static str, at_us: u64, work_us: u64, sleep_us: u64) -> Actor {
    Actor { name, nice: 0, at_us, does: Does::Beat { work_us, sleep_us } }
}

/// The task that changes what the scheduler is told of, in the middle of a second.
const fn changes(cpus: bool) -> Actor {
    let does = Does::Changes { work_us: 30_000, cpus };
    Actor { name: "c_n", nice: 0, at_us: 500_000, does }
}

/// A task of nice 0 that is there from the beginning.
pub(super) const fn actor(name: &'static str, does: Does) -> Actor {
    Actor { name, nice: 0, at_us: 0, does }
}

/// Tasks that run together.
pub(super) struct Play {
    /// Only with the object that prints its callbacks, and only for those.
    pub(super) calls: bool,
    pub(super) name: &'static str,
    pub(super) shapes: &'static [Shape],
    pub(super) seconds: u64,
    pub(super) actors: &'static [Actor],
}

/// All plays.
pub(super) const PLAYS: &[Play] = &[
    Play {
        calls: true,
        name: "calls",
        shapes: &Shape::ALL,
        seconds: 2,
        actors: &[
            hog("c_a", 0, 10_000),
            hog("c_b", 5, 20_000),
            beat("c_s", 33_000, 1_000, 13_000),
            Actor { name: "c_f", nice: 0, at_us: 500_000, does: Does::Family { work_us: 30_000 } },
        ],
    },
    Play {
        calls: true,
        name: "changes",
        shapes: &[Shape::One],
        seconds: 2,
        actors: &[hog("c_a", 0, 10_000), hog("c_b", 5, 20_000), changes(false)],
    },
    Play {
        calls: true,
        name: "changes",
        shapes: &[Shape::Four, Shape::Smt],
        seconds: 2,
        actors: &[hog("c_a", 0, 10_000), hog("c_b", 5, 20_000), changes(true)],
    },
    Play {
        calls: false,
        name: "two",
        shapes: &[Shape::One],
        seconds: 4,
        actors: &[hog("c_a", 0, 10_000), hog("c_b", 5, 20_000)],
    },
    Play {
        calls: false,
        name: "three",
        shapes: &[Shape::One],
        seconds: 4,
        actors: &[hog("c_a", 0, 10_000), hog("c_b", 0, 20_000), hog("c_c", 5, 30_000)],
    },
    Play {
        calls: false,
        name: "sleepers",
        shapes: &[Shape::One],
        seconds: 4,
        actors: &[
            hog("c_a", 0, 10_000),
            hog("c_b", 0, 20_000),
            beat("c_s", 33_000, 1_000, 13_000),
            beat("c_t", 45_000, 500, 29_000),
        ],
    },
    Play {
        calls: false,
        name: "eight",
        shapes: &[Shape::Four, Shape::Smt],
        seconds: 4,
        actors: &[
            hog("c_a", 0, 10_000),
            hog("c_b", 0, 12_000),
            hog("c_c", 0, 14_000),
            hog("c_d", 0, 16_000),
            hog("c_e", 5, 18_000),
            hog("c_f", 5, 20_000),
            hog("c_g", 5, 22_000),
            hog("c_h", 5, 24_000),
            beat("c_s", 33_000, 1_000, 13_000),
            beat("c_t", 45_000, 500, 29_000),
        ],
    },
    Play {
        calls: false,
        name: "idle",
        shapes: &[Shape::Four, Shape::Smt],
        seconds: 4,
        actors: &[
            hog("c_a", 0, 10_000),
            beat("c_s", 33_000, 3_000, 11_000),
            beat("c_t", 45_000, 2_000, 17_000),
            beat("c_u", 51_000, 1_000, 5_000),
        ],
    },
];

/// The object that prints its callbacks; it is schedlab's (`bpf/sim`).
pub(super) const LOG: &str = "log";

/// The object that does what it must not; it is schedlab's.
pub(super) const FAULTS: &str = "faults";

/// A fault that the verifier lets through (`bpf/sim/faults.bpf.c`).
pub(super) struct Ending {
    /// The option.
    pub(super) set: &'static str,
    pub(super) what: &'static str,
    /// Where it is tried. On one CPU no kernel asks for a CPU, so that a wrong one has no effect.
    shape: Shape,
}

const ENDINGS: &[Ending] = &[
    Ending { set: "fault=3", what: "a dispatch into a queue that is not there", shape: Shape::One },
    Ending { set: "fault=4", what: "a task that is lost", shape: Shape::One },
    Ending { set: "fault=5", what: "an error of its own (scx_bpf_error)", shape: Shape::One },
    Ending { set: "fault=7", what: "a CPU that is not there", shape: Shape::Four },
];

/// The faults that are tried on a machine.
pub(super) fn endings(shape: Shape) -> impl Iterator<Item = &'static Ending> {
    ENDINGS.iter().filter(move |ending| ending.shape == shape)
}

/// The plays of an object on a machine.
pub(super) fn on(subject: &Subject, shape: Shape) -> impl Iterator<Item = &'static Play> {
    let calls = subject.name == LOG;
    let out = subject.not_on.is_some_and(|(other, _)| other == shape);
    let fits = move |play: &&Play| play.shapes.contains(&shape) && play.calls == calls && !out;
    PLAYS.iter().filter(fits)
}

/// Plays in which a kernel is known to differ, with the mechanism: object, play, what.
const KNOWN: &[(&str, &str, &str)] = &[
    (
        "scx_simple",
        "two",
        "a kernel thread between two turns: the task that ran before it is in the queue again when \
         the next one is chosen, so virtual time decides instead of the turn",
    ),
    (
        "scx_central",
        "eight",
        "each wakeup preempts CPU 0's hog: without other threads the turns lock into a cycle in \
         which single hogs have 41 to 58; one more thread that wakes each 10 ms gives 46 to 52 \
         and sleepers 4.4 here, too",
    ),
];

/// The mechanism by which a kernel is known to differ there.
pub(super) fn known(object: &str, play: &str) -> Option<&'static str> {
    let known = KNOWN.iter().find(|(one, other, _)| (*one, *other) == (object, play));
    known.map(|(_, _, why)| *why)
}

/// The part of the script that says what is played: a call of `play` for each object and play.
pub(super) fn script(shape: Shape) -> String {
    let mut text = String::new();
    for subject in SUBJECTS {
        for play in on(subject, shape) {
            let mut set = settings(subject, shape);
            if shape == Shape::Smt {
                set.extend(subject.calls);
            }
            let _ = write!(
                text,
                "play {}.{} {} '{}' {}",
                subject.name,
                play.name,
                subject.name,
                set.join(" "),
                play.seconds
            );
            for actor in play.actors {
                let _ = write!(text, " \\\n    'load {}'", words(actor, play.seconds));
            }
            text.push('\n');
        }
    }
    text
}

/// The part of the script with the faults.
pub(super) fn faults(shape: Shape) -> String {
    endings(shape).map(|Ending { set, .. }| format!("fault {FAULTS}.{set} {set}\n")).collect()
}

/// The arguments of `load` for a task.
fn words(actor: &Actor, seconds: u64) -> String {
    let Actor { name, nice, at_us, does } = actor;
    match does {
        Does::Hog => format!("at:{at_us}:hog {name} {nice} - other {seconds}"),
        Does::Beat { work_us, sleep_us } => {
            format!("at:{at_us}:beat {name} {nice} - other {seconds} {work_us} {sleep_us}")
        }
        Does::Family { work_us } => {
            format!("family {name} {nice} - other {seconds} {work_us} {at_us}")
        }
        Does::Changes { work_us, cpus } => {
            let cpus = u8::from(*cpus);
            format!("at:{at_us}:changes {name} {nice} - other {seconds} {work_us} {cpus}")
        }
    }
}

/// Two threads that wake 17 and 21 times a second for 20 us each: that they do is what matters.
pub(super) fn threads() -> [TaskSpec; 2] {
    [47, 59].map(|ms| {
        let program = Program::closed(Ns::from_us(20), Ns::from_ms(ms));
        TaskSpec { start: Start::AsleepUntil(Ns::from_ms(ms)), ..TaskSpec::new("k", program) }
    })
}

/// What `load changes` does.
fn changing(work: Op, cpus: bool) -> Program {
    let cpu = |cpu| Op::SetCpus { first: CpuId(cpu), last: CpuId(cpu) };
    let nice = |value| Nice::new(value).map(Op::SetNice);
    let confined = [cpu(1), work, cpu(2), work].into_iter().filter(|_| cpus);
    let all = [work].into_iter().chain(nice(5)).chain([work]).chain(confined);
    Program::once(all.collect::<Vec<_>>())
}

/// The same tasks in the simulator, whose time begins at the moment. `spread`: 1, or tasks begin so
/// many times as late as in the guest, and apart.
pub(super) fn tasks(play: &Play, spread: u64) -> Result<Vec<TaskSpec>> {
    let us = |us: u64| Ns::from_us(us);
    let mut tasks = Vec::new();
    let mut children = Vec::new();
    for (index, actor) in play.actors.iter().enumerate() {
        let program = match actor.does {
            Does::Hog => Program::hog(),
            Does::Beat { work_us, sleep_us } => Program::closed(us(work_us), us(sleep_us)),
            Does::Family { work_us } => {
                let child = TaskId((play.actors.len() + children.len()) as u32);
                let work = Op::Run(Amount::Fixed(us(work_us)));
                let mut task = TaskSpec::new(format!("{}k", actor.name), Program::once([work]));
                task.start = Start::Spawned;
                children.push(task);
                Program::once([Op::Spawn(child), work])
            }
            Does::Changes { work_us, cpus } => changing(Op::Run(Amount::Fixed(us(work_us))), cpus),
        };
        let mut task = TaskSpec::new(actor.name, program);
        // Other moments of a tick of 4 ms, too, and another order.
        let apart = if spread > 1 { index as u64 * spread * spread * 1_709 % 59_000 } else { 0 };
        task.start = Start::AsleepUntil(us(spread * actor.at_us + apart));
        task.nice = Nice::new(actor.nice).context("a nice value")?;
        tasks.push(task);
    }
    tasks.extend(children);
    Ok(tasks)
}
