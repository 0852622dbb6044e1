//! The workloads, and which task must run after which.

use schedlab_model::{Amount, Ns, Op, Policy, Program, Start, TaskId, TaskSpec, Workload};

/// One workload, and the order of the tasks' turns under each scheduler. Times are ms; a task keeps
/// its letter.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Letter, start (`None`: another task spawns it), operations, policy as the scheduler takes
    /// it.
    tasks: &'static [(&'static str, Option<u64>, &'static [Do], &'static str)],
    /// No wait for the CPU may be longer under schedulers that begin so.
    pub(crate) bounds: &'static [(&'static str, u64)],
    /// Scheduler and order.
    pub(crate) expected: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy)]
pub(crate) enum Do {
    Run(u64),
    Sleep(u64),
    Spawn(u32),
}
use Do::{Run, Sleep, Spawn};

const OTHER: &str = "other";
const BATCH: &str = "batch";
// Deadlines after the wakeup: 20, 40, 100 and 200 ms.
const D20: &str = "deadline:1ms/20ms/20ms";
const D40: &str = "deadline:1ms/40ms/40ms";
const D100: &str = "deadline:1ms/100ms/100ms";
const D200: &str = "deadline:1ms/200ms/200ms";

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "wake_order",
        tasks: &[
            ("h", Some(0), &[Run(20)], OTHER),
            ("a", Some(3), &[Run(2)], OTHER),
            ("b", Some(6), &[Run(2)], OTHER),
            ("c", Some(9), &[Run(2)], OTHER),
        ],
        bounds: &[("fifo", 22), ("layers", 22), ("rr:slice_ns=30ms", 22)],
        expected: &[
            ("fifo-per-cpu", "h a b c"),
            ("fifo-centralized", "h a b c"),
            ("layers", "h a b c"),
            ("rr:slice_ns=30ms", "h a b c"),
            ("edf", "h a b c"),
            ("shinjuku:quantum=30ms", "h a b c"),
        ],
    },
    Case {
        name: "turns",
        tasks: &[
            ("a", Some(0), &[Run(11)], BATCH),
            ("b", Some(1), &[Run(11)], BATCH),
            ("c", Some(2), &[Run(11)], BATCH),
        ],
        bounds: &[("rr", 10), ("shinjuku", 10), ("layers", 10), ("fifo", 22)],
        expected: &[
            ("rr:slice_ns=5ms", "a b c a b c a b c"),
            ("shinjuku:batch_slice_ns=5ms", "a b c a b c a b c"),
            ("layers:batch_slice_ns=5ms", "a b c a b c a b c"),
            ("fifo-per-cpu", "a b c"),
        ],
    },
    Case {
        name: "preemption",
        tasks: &[("x", Some(0), &[Run(16)], BATCH), ("l", Some(5), &[Run(4)], OTHER)],
        bounds: &[("layers", 5), ("shinjuku", 5)],
        expected: &[
            ("layers", "x l x"),
            ("shinjuku", "x l x"),
            ("rr:slice_ns=8ms", "x l x"),
            ("fifo-per-cpu", "x l"),
        ],
    },
    Case {
        name: "quantum",
        tasks: &[("s", Some(0), &[Run(12)], OTHER), ("g", Some(2), &[Run(2)], OTHER)],
        bounds: &[("shinjuku", 8)],
        expected: &[
            ("shinjuku:quantum=6ms", "s g s"),
            ("fifo-centralized:slice_ns=6ms", "s g s"),
            ("layers", "s g"),
        ],
    },
    Case {
        name: "deadlines",
        tasks: &[
            ("h", Some(0), &[Run(12)], D200),
            ("a", Some(3), &[Run(6)], D100),
            ("b", Some(5), &[Run(2)], D20),
            ("c", Some(6), &[Run(2)], D40),
        ],
        bounds: &[("edf", 12)],
        expected: &[("edf", "h a b c a h")],
    },
    Case {
        name: "block",
        tasks: &[
            ("a", Some(0), &[Run(4), Sleep(5), Run(4)], D20),
            ("b", Some(1), &[Run(14)], D200),
        ],
        bounds: &[("edf", 8), ("fifo", 14)],
        expected: &[("fifo-per-cpu", "a b a"), ("rr:slice_ns=30ms", "a b a"), ("edf", "a b a b")],
    },
    Case {
        name: "block_of_other_policies",
        tasks: &[
            ("a", Some(0), &[Run(4), Sleep(5), Run(4)], OTHER),
            ("b", Some(1), &[Run(14)], OTHER),
        ],
        bounds: &[("layers", 14), ("shinjuku", 14)],
        expected: &[
            ("layers", "a b a"),
            ("shinjuku:quantum=30ms", "a b a"),
            ("shinjuku:quantum=7ms", "a b a b"),
        ],
    },
    Case {
        name: "exit",
        tasks: &[
            ("a", Some(0), &[Run(4)], OTHER),
            ("b", Some(1), &[Run(4)], OTHER),
            ("c", Some(20), &[Run(2)], OTHER),
        ],
        bounds: &[("", 5)],
        expected: &[
            ("fifo-per-cpu", "a b c"),
            ("rr:slice_ns=10ms", "a b c"),
            ("edf", "a b c"),
            ("shinjuku:quantum=10ms", "a b c"),
            ("layers", "a b c"),
        ],
    },
    Case {
        name: "fork",
        tasks: &[
            ("p", Some(0), &[Run(3), Spawn(1), Run(6)], OTHER),
            ("k", None, &[Run(4), Sleep(15), Run(2)], OTHER),
        ],
        // Until it is taken on, a new thread is the kernel's, and waits as long as that lets it.
        bounds: &[],
        expected: &[
            ("fifo-per-cpu", "p k"),
            ("rr:slice_ns=30ms", "p k"),
            ("edf", "p k"),
            ("shinjuku:quantum=30ms", "p k"),
            ("layers", "p k"),
        ],
    },
];

/// A hog, and one that would wait for its end.
pub(crate) const STARVED: Case = Case {
    name: "starved",
    tasks: &[("h", Some(0), &[Run(900)], OTHER), ("w", Some(5), &[Run(100)], OTHER)],
    bounds: &[],
    expected: &[],
};

impl Case {
    /// What all tasks compute together.
    pub(crate) fn demand(&self) -> Ns {
        let runs = self.tasks.iter().flat_map(|(_, _, steps, _)| *steps);
        Ns::from_ms(runs.map(|step| if let Run(ms) = step { *ms } else { 0 }).sum())
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.tasks.iter().map(|(name, ..)| *name).collect()
    }

    /// What each is to count as, as `--task` has it.
    pub(crate) fn declared(&self) -> Vec<String> {
        self.tasks.iter().map(|(name, _, _, policy)| format!("{name}={policy}")).collect()
    }

    pub(crate) fn workload(&self) -> Workload {
        let op = |one: &Do| match one {
            Run(ms) => Op::Run(Amount::Fixed(Ns::from_ms(*ms))),
            Sleep(ms) => Op::Sleep(Amount::Fixed(Ns::from_ms(*ms))),
            Spawn(task) => Op::Spawn(TaskId(*task)),
        };
        let task = |(name, start, ops, policy): &(&str, Option<u64>, &[Do], &str)| {
            let mut task = TaskSpec::new(*name, Program::once(ops.iter().map(op)));
            task.start = start.map_or(Start::Spawned, |ms| Start::At(Ns::from_ms(ms)));
            task.policy = policy.parse::<Policy>().expect("a policy");
            task
        };
        Workload { tasks: self.tasks.iter().map(task).collect(), ..Workload::default() }
    }
}
