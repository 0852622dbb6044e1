//! The engine's own records of CPUs, tasks, channels and sources.

use super::ops::Place;
use super::slots::NEVER;
use crate::CpuMetrics;
use crate::metrics::{Counts, Kind, Waited};
use crate::rng::Stream;
use schedlab_model::{ChannelId, CpuId, CpuSet, PrevState, Program, TaskId, Waker};
use schedlab_scheduler::TaskView;
use std::collections::VecDeque;

/// Where a task is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskState {
    /// Not created yet.
    Absent,
    /// Waits for something.
    Blocked,
    /// Runnable, in the scheduler's hands.
    Ready,
    /// It is its CPU's current task (its context may still be on the way in).
    Running,
    /// On its CPU, but its program wants to block; the decision is to come.
    Blocking,
    /// On its CPU, its program has ended; the decision is to come.
    Exiting,
    /// Blocked by a decision, its context not saved yet: a wakeup has to wait.
    Leaving,
    /// Taken off by `Displace`, its context not saved yet.
    Moving,
    /// Gone, its context not given up yet.
    Dying,
    /// Gone.
    Dead,
}

/// What a task's time counts as. The first three are indices into [`Task::sums`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Bucket {
    /// Blocked.
    Sleep,
    /// Waits for a CPU.
    Wait,
    /// Runs, from switch record to switch record.
    Run,
    /// Would wait, but may not run.
    Throttled,
    /// It does not exist.
    Out,
}

/// What a blocked task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    Nothing,
    Timer,
    Channel(u32),
    /// For any channel of its program's branches.
    Select,
    Room(u32),
    Lock(u32),
    /// For a message at an object, or room there.
    Object(u32),
    /// For work of its executor.
    Executor(u32),
    /// For an interrupt of its CPU.
    Interrupts,
}

/// How many tokens a receiver takes at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    /// So many, at least one.
    Count(u32),
    /// Whatever is there, at least one.
    All,
}

impl Want {
    /// With fewer tokens in its channel it waits.
    pub(crate) const fn least(self) -> u32 {
        match self {
            Want::Count(count) => count,
            Want::All => 1,
        }
    }
}

/// How a ready task came to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Since {
    Wakeup,
    /// A wakeup, and a limit held the task back in between: what it waited before is in
    /// [`Extra::held_back`].
    LimitedWakeup,
    Preemption,
    Yield,
}

impl Since {
    /// As what a wait is recorded; after a yield it is not, and one of which a limit was a part is
    /// recorded apart.
    #[inline]
    pub(crate) fn recorded_as(self) -> Option<Kind> {
        match self {
            Since::Wakeup => Some(Kind::WakeLatency),
            Since::Preemption => Some(Kind::PreemptWait),
            Since::LimitedWakeup | Since::Yield => None,
        }
    }
}

/// The hot part of a task: two cache lines side by side, which a processor that reads lines in
/// pairs brings at once. What is in the way here costs more than what is computed.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Task {
    pub(crate) state: TaskState,
    pub(crate) bucket: Bucket,
    pub(crate) since: Since,
    pub(crate) throttled: bool,
    /// Nothing was done yet in this activation.
    pub(crate) fresh: bool,
    /// Its next switch-in starts an activation.
    pub(crate) entering: bool,
    /// The cost of the blocking call has been paid; the operation is tried again.
    pub(crate) exit_paid: bool,
    /// Why it was switched out last while runnable.
    pub(crate) preempted_by: Cause,
    /// The CPU on which it is or was current last, or where it was placed first: events about it
    /// happen there unless something else is said.
    pub(crate) cpu: u32,
    /// The CPU of its run queue, for the event stream.
    pub(crate) home: u32,
    /// The CPU on which it ran last, `u32::MAX` before the first time.
    pub(crate) last_ran_on: u32,
    /// Next operation.
    pub(crate) pc: u32,
    /// Of the first 32 CPUs, those on which it may run; all bits: it may run everywhere.
    pub(crate) allowed: u32,
    /// Where the program goes on behind its end, so that it need not be looked at; `u32::MAX`: it
    /// exits.
    pub(crate) repeat_from: u32,
    /// CPU time that the present operation still needs.
    pub(crate) left: u64,
    /// Since when its time counts as `bucket`.
    pub(crate) bucket_from: u64,
    /// The operations of its program.
    pub(crate) ops: Place,
    // Second line.
    /// Time slept, waited and run since the metrics were brought up to date.
    pub(crate) sums: [u64; 3],
    pub(crate) counts: Counts,
    /// While it runs: how long it waited before, for the log when it stops.
    pub(crate) waited: Waited,
    /// Release of the present activation; while blocked that of the next one, if it is known (else
    /// `u64::MAX`).
    pub(crate) released: u64,
    /// Next job of `NextPeriod`.
    pub(crate) job: u64,
    /// What it waits for while blocked.
    pub(crate) waits: Waits,
}

const _: () = assert!(size_of::<Task>() == 2 * 64, "what every event touches are two lines");

impl Task {
    pub(crate) fn new(program: &Program, ops: Place, view: &TaskView, all: &CpuSet) -> Task {
        let mut task = Task {
            state: TaskState::Absent,
            bucket: Bucket::Out,
            since: Since::Wakeup,
            throttled: false,
            fresh: true,
            entering: true,
            exit_paid: false,
            preempted_by: Cause::Other,
            cpu: view.last_cpu().0,
            home: view.last_cpu().0,
            last_ran_on: u32::MAX,
            pc: 0,
            allowed: u32::MAX,
            left: 0,
            bucket_from: 0,
            sums: [0; 3],
            counts: Counts::default(),
            waited: Waited::NOTHING,
            ops,
            waits: Waits::Nothing,
            repeat_from: program.repeat_from.unwrap_or(u32::MAX),
            released: 0,
            job: 0,
        };
        task.set_allowed(&view.affinity, all);
        task
    }
    /// Notes where the task may run, of all CPUs.
    pub(crate) fn set_allowed(&mut self, affinity: &CpuSet, all: &CpuSet) {
        let first = affinity.first_word() as u32;
        let everywhere = affinity.and(all) == *all;
        // One bit less for those that may run on the first 32 CPUs, but not on all: they are asked
        // for.
        self.allowed = if everywhere { u32::MAX } else { first & !(u32::from(first == u32::MAX)) };
    }
    /// Each goes on with the other's program, where that was.
    pub(crate) fn swap_programs(&mut self, other: &mut Task) {
        std::mem::swap(&mut self.ops, &mut other.ops);
        std::mem::swap(&mut self.pc, &mut other.pc);
        std::mem::swap(&mut self.repeat_from, &mut other.repeat_from);
        std::mem::swap(&mut self.left, &mut other.left);
        std::mem::swap(&mut self.job, &mut other.job);
    }
    /// Whether it is its CPU's current task.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        matches!(self.state, TaskState::Running | TaskState::Blocking | TaskState::Exiting)
    }
}

/// The cold part of a task. Its first line is what a run asks for where the machine's work costs
/// time; the stream is asked for every length that is drawn.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Extra<'a> {
    /// Kernel work that goes before what the present operation still needs.
    pub(crate) debt: u64,
    /// Program work since the metrics were brought up to date; where nothing costs time it is the
    /// time run.
    pub(crate) worked: u64,
    /// When its context is saved, if it was decided off already.
    pub(crate) saving_until: u64,
    pub(crate) program: &'a Program,
    /// What the device does that it set to work: CPU, channel and number of tokens.
    pub(crate) device: Option<(CpuId, ChannelId, u32)>,
    /// Real-time policy (for the costs of an activation).
    pub(crate) realtime: bool,
    /// A `Serve` has this request's work done when the task comes back.
    pub(crate) serving: bool,
    pub(crate) stream: Stream,
    /// Its lifetime is counted from here, and what was counted before.
    pub(crate) born: u64,
    pub(crate) lived: u64,
    pub(crate) yields: u64,
    /// How often it came back after a yield since the metrics begin.
    pub(crate) came_back: u64,
    /// Of a wait since a wakeup in which a limit held the task back, what lies before its present
    /// part: all of it, and the part without the limit.
    pub(crate) held_back: (u64, u64),
    /// Requests left to serve of the last `ReceiveAll`.
    pub(crate) batch: u64,
    /// How often each `Repeat` of the program went back; empty when there is none.
    pub(crate) loops: Vec<u32>,
    /// Where each branch of the program goes on.
    pub(crate) cursors: Vec<u32>,
    /// Time in which it ran according to its guest, but its vCPU did not; not yet in the metrics.
    pub(crate) stolen: u64,
    /// A wakeup that came while the context was being saved.
    pub(crate) deferred: Option<(u32, Waker, bool)>,
}

impl<'a> Extra<'a> {
    /// As [`Task::swap_programs`].
    pub(crate) fn swap_programs(&mut self, other: &mut Extra<'a>) {
        std::mem::swap(&mut self.stream, &mut other.stream);
        std::mem::swap(&mut self.program, &mut other.program);
        std::mem::swap(&mut self.batch, &mut other.batch);
        std::mem::swap(&mut self.loops, &mut other.loops);
        std::mem::swap(&mut self.cursors, &mut other.cursors);
        std::mem::swap(&mut self.serving, &mut other.serving);
        std::mem::swap(&mut self.device, &mut other.device);
    }
}

/// Why a decision was asked for; selects the costs on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    Wakeup,
    Tick,
    Block,
    Other,
}

/// A switch that was decided and is not recorded yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingSwitch {
    pub(crate) prev: Option<TaskId>,
    pub(crate) prev_state: PrevState,
    pub(crate) yielded: bool,
    pub(crate) next: Option<TaskId>,
}

/// One CPU; the fields that every switch touches come first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Cpu {
    /// The task that was decided to run.
    pub(crate) current: Option<TaskId>,
    /// The task that runs according to the last switch record.
    pub(crate) occupant: Option<TaskId>,
    /// In the queue of reschedule requests.
    pub(crate) queued: bool,
    pub(crate) cause: Cause,
    /// The current task is to be displaced.
    pub(crate) displace: bool,
    /// The current task's program pauses until the next decision (yield, absorbed wakeup).
    pub(crate) stopped: bool,
    pub(crate) yielded: bool,
    /// In the queue of programs to go on.
    pub(crate) starting: bool,
    pub(crate) slice_armed: bool,
    /// A request came during a switch.
    pub(crate) again: bool,
    /// Accounted up to here.
    pub(crate) accounted: u64,
    /// Kernel work that goes before the task.
    pub(crate) debt: u64,
    /// Last decision that put `current` on.
    pub(crate) decided_at: u64,
    /// Last switch record.
    pub(crate) recorded_at: u64,
    /// When the present tick slot was armed for.
    pub(crate) tick_at: u64,
    /// The first tick edge after the time at which it was asked for last.
    pub(crate) next_edge: u64,
    /// The scheduler said that the tick slot's edge matters; else it is asked when the edge comes.
    pub(crate) tick_sure: bool,
    /// How often asking was put off since the last edge, and how often the next calls ask at once.
    pub(crate) put_off: u8,
    pub(crate) ask_at_once: u8,
    /// What was counted since the metrics were brought up to date.
    pub(crate) counted: CpuMetrics,
    /// A request that is under way arrives then.
    pub(crate) resched_at: u64,
    pub(crate) switching: Option<PendingSwitch>,
    /// No tick edge lies between `accounted` and this time, if it is later: the next one may be
    /// then.
    pub(crate) quiet_until: u64,
}

impl Cpu {
    pub(crate) fn new() -> Cpu {
        Cpu {
            current: None,
            occupant: None,
            switching: None,
            queued: false,
            resched_at: NEVER,
            again: false,
            cause: Cause::Other,
            displace: false,
            stopped: false,
            yielded: false,
            starting: false,
            slice_armed: false,
            accounted: 0,
            debt: 0,
            decided_at: 0,
            recorded_at: 0,
            tick_at: NEVER,
            next_edge: 0,
            tick_sure: true,
            put_off: 0,
            ask_at_once: 0,
            quiet_until: 0,
            counted: CpuMetrics::default(),
        }
    }
}

/// First in, first out. The memory is used again from the start whenever it is empty.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    items: Vec<T>,
    /// Index of the first one.
    at: usize,
}

impl<T: Copy> Fifo<T> {
    pub(crate) fn new(room: usize) -> Fifo<T> {
        Fifo { items: Vec::with_capacity(room), at: 0 }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        self.items.push(item);
    }
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let item = *self.items.get(self.at)?;
        self.at += 1;
        if self.at == self.items.len() {
            self.items.clear();
            self.at = 0;
        }
        Some(item)
    }
}

/// The sender of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A task, or it was there at the start.
    Inside,
    /// An open-loop source.
    Open(u32),
    /// A client of a closed-loop source: source and index into the clients.
    Client(u32, u32),
}

/// `count` tokens of one send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) origin: Origin,
    /// When the client meant to send it.
    pub(crate) sent: u64,
    /// When it came into the channel.
    pub(crate) entered: u64,
    pub(crate) count: u32,
}

/// One channel.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Channel {
    /// Tokens that wait.
    pub(crate) len: u64,
    /// Tokens that were put in since the metrics were brought up to date.
    pub(crate) sent: u64,
    pub(crate) capacity: Option<u32>,
    /// Some task finishes requests of this channel, so tokens are kept apart.
    pub(crate) tracked: bool,
    /// Blocked receivers; true = receive all.
    pub(crate) waiters: VecDeque<(u32, Want)>,
    /// Blocked senders, with how many tokens they still have.
    pub(crate) senders: VecDeque<(u32, u32)>,
    /// The tokens, one by one, when `tracked`.
    pub(crate) queue: VecDeque<Token>,
    /// Received and not finished yet, with the receiver.
    pub(crate) taken: VecDeque<(u32, Token)>,
}

/// One mutex.
#[derive(Debug, Default)]
pub(crate) struct Mutex {
    pub(crate) owner: Option<u32>,
    pub(crate) waiters: VecDeque<u32>,
    /// Its owner runs at the priority of its highest waiter.
    pub(crate) inherits: bool,
}

/// One source.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) stream: Stream,
    /// Intended time of the next send (open loop), `NEVER` when there is none.
    pub(crate) next_send: u64,
    /// Next index of a recorded list.
    pub(crate) next_index: usize,
    /// Requests on the wire: (arrival, order, intended send), a heap.
    pub(crate) flying: std::collections::BinaryHeap<std::cmp::Reverse<(u64, u64, u64)>>,
    pub(crate) sends: u64,
}

/// One client of a closed-loop source.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) source: u32,
    pub(crate) stream: Stream,
    /// Intended send time of the request under way.
    pub(crate) sent: u64,
}
