//! Tasks are small programs. What a task does is separate from what a scheduler does to it.

use crate::{ChannelId, CpuId, CpuSet, ExecutorId, LockId, Nice, Ns, ScriptId, TaskId};
use serde::{Deserialize, Serialize};

/// One step of a task's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Op {
    /// Needs this much CPU time.
    Run(Amount),
    /// Sleeps on a timer for this long, counted from the moment of blocking.
    Sleep(Amount),
    /// Sets a device to work and goes on at once. After this long it interrupts a CPU, and a
    /// softirq there puts tokens into the channel: the task that waits for the device takes one. A
    /// task has one such work under way: its next one takes its place.
    Device {
        /// How long the device takes.
        length: Amount,
        /// Which CPU it interrupts; where that CPU is not there, the one to which the task belongs.
        cpu: CpuId,
        /// Where those wait who need it.
        channel: ChannelId,
        /// How many do.
        count: u32,
    },
    /// Sleeps until the next job of a periodic task: job `k` is due at `offset + k * period`. A job
    /// that is already due starts at once; none is skipped.
    NextPeriod {
        /// Period.
        period: Ns,
        /// Due time of job 0.
        offset: Ns,
    },
    /// Drops the jobs of a periodic task that are overdue: the next `NextPeriod` with the same
    /// period waits for the first one that is not (cyclictest, timers that count overruns).
    SkipMissed {
        /// Period.
        period: Ns,
        /// Due time of job 0.
        offset: Ns,
    },
    /// Sleeps until this absolute time of the run; no effect when it has passed.
    SleepUntil(Ns),
    /// Takes one token from the channel, or blocks until there is one. Wait/wake and receive/send
    /// are the same thing: a channel is a counted queue (futex, pipe, socket, condition).
    Receive(ChannelId),
    /// Takes every token that is there (at least one; blocks until there is one): an epoll loop.
    ReceiveAll(ChannelId),
    /// Takes `count` tokens at once, or blocks until so many are there: a reader that needs the
    /// whole of something, or who makes them does not matter, only how far they all got together.
    ReceiveCount {
        /// Where from.
        channel: ChannelId,
        /// How many; at least one, and no more than the channel has room for.
        count: u32,
    },
    /// An event loop: takes one token from the first of [`Program::branches`] whose channel has one
    /// (blocks until any has), and goes on in that branch where it stopped the last time. A branch
    /// stops at the next `Select` that it meets and begins again after its last operation. What a
    /// token makes the task do so depends on the channel that it came through, not on the order of
    /// tokens.
    Select,
    /// Puts tokens into the channel, waking its waiters, first come first served. Blocks while a
    /// bounded channel is full.
    Send {
        /// Where to.
        channel: ChannelId,
        /// How many tokens.
        count: u32,
    },
    /// Finishes the oldest unfinished request that was received from this channel: its response
    /// time ends here, and a closed-loop client may send its next one.
    Done(ChannelId),
    /// Runs for `per_request` for each request taken by the last `ReceiveAll`, finishing each as
    /// `Done` does.
    Serve {
        /// Where the requests came from.
        channel: ChannelId,
        /// CPU time of each.
        per_request: Amount,
    },
    /// Locks a mutex (sleeping lock, first come first served).
    Lock(LockId),
    /// Unlocks it; the first waiter owns it and wakes.
    Unlock(LockId),
    /// Needs this much CPU time inside the kernel, on the task's behalf. The machine's preemption
    /// model says what a wakeup can do meanwhile. Neighbouring kernel operations are one stay in
    /// the kernel: it ends with the next `Run` or `Serve`, when the task blocks, or at the end of
    /// the program.
    Kernel {
        /// What the kernel forbids meanwhile.
        section: Section,
        /// How long.
        length: Amount,
    },
    /// A point of a stay in the kernel at which it offers to give the CPU up (Linux `cond_resched`,
    /// `might_resched`).
    CondResched,
    /// The body of a CPU's interrupt thread: sleeps until interrupts came in, works for this long
    /// (as preemptible kernel code), then wakes all tasks for which they came.
    Interrupts(Amount),
    /// `sched_yield`.
    Yield,
    /// `setpriority` of the task itself; no effect when its nice value is that already.
    SetNice(Nice),
    /// `sched_setaffinity` of the task itself: the CPUs from the first to the last, as far as its
    /// control groups allow. No effect where it may run there already, or nowhere (`EINVAL`).
    SetCpus {
        /// The first one.
        first: CpuId,
        /// The last one; not before the first.
        last: CpuId,
    },
    /// `execve`: the task becomes another program. The scheduler may move it first, since it leaves
    /// nothing behind in its CPU's caches.
    Exec,
    /// Starts the task (its [`Start`](crate::Start) must be `Spawned`); no effect when it already
    /// lives.
    Spawn(TaskId),
    /// Jumps back to operation `to`, `times` times (so the body runs `times + 1` times), then goes
    /// on. Loops may be nested.
    Repeat {
        /// Index of the first operation of the body.
        to: u32,
        /// How often to go back.
        times: u32,
    },
    /// Plays a script of operations at objects, for as long as it lasts.
    Play(ScriptId),
    /// Is a lane of an executor: takes what is ready there, and sleeps while nothing is. It does
    /// not end.
    Attend(ExecutorId),
    /// Ends the task. Falling off the end of the program does the same.
    Exit,
}

impl Op {
    /// The CPUs that the task asks for; `None` for other operations.
    pub fn cpus(&self) -> Option<CpuSet> {
        let Op::SetCpus { first, last } = *self else { return None };
        let last = last.0.min(crate::MAX_CPUS as u32 - 1);
        Some((first.0..=last).map(CpuId).collect())
    }
}

/// What is forbidden while a task is in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// Nothing: plain kernel code.
    Preemptible,
    /// A spinlock is held: preemption is off, except where spinlocks are sleeping locks
    /// (PREEMPT_RT).
    Spinlock,
    /// Preemption is off under every model (raw spinlock, per-CPU data).
    PreemptOff,
    /// Interrupts are off: not even a wakeup can happen on this CPU.
    IrqsOff,
}

impl Section {
    /// All of them.
    pub const ALL: [Section; 4] =
        [Section::Preemptible, Section::Spinlock, Section::PreemptOff, Section::IrqsOff];

    /// Its name in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Section::Preemptible => "preemptible",
            Section::Spinlock => "spinlock",
            Section::PreemptOff => "preempt-off",
            Section::IrqsOff => "irqs-off",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Section> {
        Section::ALL.into_iter().find(|section| section.name() == name)
    }
}

/// A fixed length or a random draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Amount {
    /// Always this long.
    Fixed(Ns),
    /// Drawn anew each time from [`Program::draws`] at this index, out of the task's own random
    /// stream.
    Draw(u16),
}

/// What a task does, from its first wakeup to its exit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// The operations, in order.
    pub ops: Vec<Op>,
    /// After the last operation: go on at this index (`None`: exit).
    pub repeat_from: Option<u32>,
    /// The distributions that [`Amount::Draw`] names.
    pub draws: Vec<Draw>,
    /// What [`Op::Select`] chooses from, first come first served in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<Branch>,
}

/// A part of a program that belongs to one channel; see [`Op::Select`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Branch {
    /// Whose tokens it serves.
    pub channel: ChannelId,
    /// Its first operation.
    pub from: u32,
    /// The operation after its last one, which must be a `Select`.
    pub to: u32,
}

impl Program {
    /// Runs for ever.
    pub fn hog() -> Program {
        Program::forever([Op::Run(Amount::Fixed(Ns::from_s(1)))])
    }
    /// Repeats `ops` for ever.
    pub fn forever(ops: impl IntoIterator<Item = Op>) -> Program {
        Program { ops: ops.into_iter().collect(), repeat_from: Some(0), ..Program::default() }
    }
    /// Runs `ops` once, then exits.
    pub fn once(ops: impl IntoIterator<Item = Op>) -> Program {
        Program { ops: ops.into_iter().collect(), ..Program::default() }
    }
    /// Receives from this channel, for ever.
    pub fn parked(channel: ChannelId) -> Program {
        Program::forever([Op::Receive(channel)])
    }
    /// Whether it does nothing but receive from this channel.
    pub fn receives_only(&self, channel: ChannelId) -> bool {
        self.ops == [Op::Receive(channel)]
    }
    /// Works for `work`, sleeps for `sleep`, repeats; starts with work.
    pub fn closed(work: Ns, sleep: Ns) -> Program {
        Program::forever([Op::Run(Amount::Fixed(work)), Op::Sleep(Amount::Fixed(sleep))])
    }
    /// A job of `work` every `period`, the first at `offset`; late jobs queue up.
    pub fn periodic(period: Ns, work: Ns, offset: Ns) -> Program {
        Program::forever([Op::NextPeriod { period, offset }, Op::Run(Amount::Fixed(work))])
    }
    /// Adds a distribution and gives the [`Amount`] that draws from it.
    pub fn draw(&mut self, draw: Draw) -> Amount {
        let index =
            u16::try_from(self.draws.len()).expect("fewer than 65536 distributions in a program");
        self.draws.push(draw);
        Amount::Draw(index)
    }
}

/// A distribution of lengths. Draws are integers; the same seed gives the same ones on every
/// machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Draw {
    /// Always the same.
    Fixed(Ns),
    /// Every whole nanosecond from `low` to `high`, both included, equally likely.
    Uniform {
        /// Smallest.
        low: Ns,
        /// Largest.
        high: Ns,
    },
    /// Exponential: the gaps of a Poisson process.
    Exponential {
        /// Mean.
        mean: Ns,
    },
    /// Log-normal.
    LogNormal {
        /// Median.
        median: Ns,
        /// Standard deviation of the natural logarithm, in thousandths.
        sigma_permille: u32,
    },
    /// One of several, chosen by weight.
    Mix(Vec<(u32, Draw)>),
    /// These values in turn, from the first again after the last.
    Cycle(Vec<Ns>),
    /// One of these values, each equally likely (a measured distribution).
    Empirical(Vec<Ns>),
    /// `1 ms + splitmix64 mod span` style uniform draw with a generator of its own, seeded with the
    /// task number: `low + splitmix64() % span`. It exists so that workload W2 of the published
    /// comparison gives the very same totals as the other simulators.
    SplitMix {
        /// Smallest value.
        low: Ns,
        /// Number of possible values.
        span: Ns,
    },
}
