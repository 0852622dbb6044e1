//! What tasks exchange: objects that hold bytes or tokens, scripts of operations at them, and
//! executors whose threads serve many objects. Waiting is nowhere in here: a task waits when an
//! object has nothing for it.

use crate::{Ns, ObjectId, ScriptId, TaskId, Workload, WorkloadError};
use serde::{Deserialize, Serialize};

/// Everything that the tasks of a workload exchange beside its channels.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Exchange {
    /// The objects, by [`ObjectId`].
    pub objects: Vec<ObjectSpec>,
    /// The scripts, by [`ScriptId`]: what a thread does that serves no other object meanwhile.
    pub scripts: Vec<Script>,
    /// The executors, by index.
    pub executors: Vec<Executor>,
    /// What comes from outside, in order of time.
    pub arrivals: Vec<Arrival>,
}

/// Something that comes into an object from outside the workload, whatever its tasks do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Arrival {
    /// When.
    pub at: Ns,
    /// Into this object.
    pub object: ObjectId,
    /// Bytes or tokens.
    pub amount: u64,
}

impl Exchange {
    /// Returns whether the workload exchanges nothing in this way.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.scripts.is_empty() && self.executors.is_empty()
    }
}

/// One direction of a connection, a pipe, a counter, a futex.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObjectSpec {
    /// What it is, in reports.
    pub name: String,
    /// What it holds.
    pub holds: Holds,
    /// Bytes, messages or tokens in it at the start.
    pub initial: u64,
    /// When a sender has to wait; `None`: never.
    pub room: Option<Room>,
    /// Whether a send wakes its receiver as one that is about to sleep does (`WF_SYNC`): pipes and
    /// sockets do (Linux 6.12: `pipe_write` in fs/pipe.c, `sock_def_readable` in net/core/sock.c),
    /// futexes and eventfds do not.
    pub sync: bool,
    /// The object in which the answers to its messages go back: a request lasts from its arrival
    /// here to the first send there.
    pub answered_in: Option<ObjectId>,
}

/// What an object holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Holds {
    /// Bytes of a stream: a receive takes the bytes that it took when it was recorded, however they
    /// were sent.
    Stream,
    /// Messages: several tasks read it, and a receive takes from the first message only.
    Queue,
    /// Tokens: an event counter, a futex that carries events, an exit that a parent waits for.
    Tokens,
    /// A futex that guards something: a wake that finds no waiter is forgotten, and a wait ends
    /// when no task that could wake it is awake (the owner of an uncontended lock leaves no
    /// record).
    Lock {
        /// The tasks that wake here.
        wakers: Vec<TaskId>,
    },
}

/// How much an object takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Room {
    /// A send that would exceed this much waits, unless the object is empty.
    pub capacity: u64,
    /// A sender that waits goes on when no more than this is left.
    pub resume_at: u64,
}

/// Operations of one thread, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Script {
    /// The operations.
    pub steps: Vec<Step>,
    /// From where it goes on after its last operation; `None`: the task ends.
    pub repeat_from: Option<u32>,
    /// What is added to objects (or taken, where negative) whenever it begins again: what was in
    /// flight when the recording began is not what was in flight when it ended.
    pub balance: Vec<(ObjectId, i64)>,
    /// The length of a round, by which absolute times grow from one round to the next. The first
    /// round of a task begins when the task is created; of one that is there from the start, at 0.
    pub round: Ns,
    /// How long it is played, from the creation of its task; `None`: to its end.
    #[serde(default)]
    pub life: Option<Ns>,
    /// How much more a send costs that ends the wait of another task.
    #[serde(default)]
    pub wake: Ns,
}

/// One operation with the CPU time around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// CPU time before the operation takes effect.
    pub before: Ns,
    /// What it does.
    pub act: Act,
    /// CPU time of the operation after it took effect.
    pub after: Ns,
    /// A send that ended the wait of another task when it was recorded: the price of that is in its
    /// CPU time.
    #[serde(default)]
    pub woke: bool,
}

impl Step {
    /// Returns an operation that ended no wait when it was recorded.
    pub fn new(before: Ns, act: Act, after: Ns) -> Step {
        Step { before, act, after, woke: false }
    }
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Act {
    /// Takes `amount` bytes (or one message, or tokens), and waits until they are there.
    Receive {
        /// Where from.
        object: ObjectId,
        /// How much.
        amount: u64,
        /// It ended with a message: it takes what is left of one, however long.
        whole: bool,
    },
    /// Puts `amount` in; waits while the object is full.
    Send {
        /// Where to.
        object: ObjectId,
        /// How much.
        amount: u64,
    },
    /// Sleeps on a timer for this long.
    Sleep(Ns),
    /// Sleeps until this time of its round.
    SleepUntil(Ns),
    /// Waits for a device that takes this long: no timer, so neither slack nor lateness.
    Device(Ns),
    /// Starts a task whose start is `Spawned`. Where that task still lives, it plays its script
    /// once more when it comes to the end: none of its lives is left out.
    Spawn(TaskId),
    /// A recorder of the run takes what was told since it did so last: the CPU time after it is
    /// that of so many records, and grows and shrinks with their number.
    Drain {
        /// Events and facts for which the CPU time after the operation is enough.
        records: u64,
    },
    /// Nothing but CPU time.
    Nothing,
}

impl Act {
    /// Returns the object at which the operation is made.
    pub fn object(&self) -> Option<ObjectId> {
        match *self {
            Act::Receive { object, .. } | Act::Send { object, .. } => Some(object),
            _ => None,
        }
    }
}

/// Threads that wait for many objects at once (an event loop, or a pool that shares its
/// connections), and what each object makes them do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Executor {
    /// What its threads are called in reports.
    pub name: String,
    /// One for each object that is read, and one without an object for timers.
    pub coroutines: Vec<Coroutine>,
    /// CPU time of a look that finds something at once, in the recorded order, without what
    /// [`Prices`] has for it.
    pub looks_awake: Vec<Ns>,
    /// CPU time before and after the sleep of a look that finds nothing, in the recorded order,
    /// without what [`Prices`] has for it.
    pub looks_asleep: Vec<(Ns, Ns)>,
    /// When its threads came into being: its first timer counts from then.
    pub since: Ns,
    /// How long a thread of it attends, from its creation; `None`: to the end.
    #[serde(default)]
    pub life: Option<Ns>,
    /// What an operation costs more because of the activation that it is in.
    #[serde(default)]
    pub prices: Prices,
}

/// What operations of an executor cost more because of the activation in which they are made: the
/// time from one look to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Prices {
    /// How much more the first receive of an activation costs than the others, by how many objects
    /// the look found.
    pub first_receive: Price,
    /// How much more the first send costs than the others, by how many receives came before it.
    pub first_send: Price,
    /// As [`Script::wake`]: of a send that is not the first of its activation, and of the first.
    pub wake: [Ns; 2],
    /// What each message of an activation adds to the look that ends it.
    pub look_behind: Ns,
    /// What each object that a look finds adds to it.
    pub look_found: Ns,
}

impl Prices {
    /// Multiplies all of them by `permille` / 1000.
    pub fn scale(&mut self, permille: u64) {
        let scaled = |ns: &mut Ns| ns.0 = ns.0.saturating_mul(permille) / 1000;
        for first in [&mut self.first_receive, &mut self.first_send] {
            first.fixed = first.fixed.saturating_mul(permille.cast_signed()) / 1000;
            scaled(&mut first.each);
        }
        self.wake.iter_mut().for_each(scaled);
        scaled(&mut self.look_behind);
        scaled(&mut self.look_found);
    }
}

/// A price that grows with a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Price {
    /// Without it, in nanoseconds; may be negative.
    pub fixed: i64,
    /// More for each.
    pub each: Ns,
}

impl Price {
    /// Returns the price for so many.
    pub fn of(self, number: u32) -> i64 {
        let each = i64::try_from(self.each.0).unwrap_or(i64::MAX);
        self.fixed.saturating_add(each.saturating_mul(number.into()))
    }
}

/// What one object makes an executor do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Coroutine {
    /// Its operations; they begin again after the last.
    pub steps: Vec<CoroutineStep>,
    /// As [`Script::balance`].
    pub balance: Vec<(ObjectId, i64)>,
}

/// One operation of a coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CoroutineStep {
    /// What it does.
    pub step: Step,
    /// It was made in a later activation than the operation before it: the coroutine's turn ends
    /// before it.
    pub later: bool,
    /// The coroutine had looked at its object before without finding anything: where the message is
    /// there, its turn goes on.
    pub looked: bool,
    /// Work of other coroutines came before it in the recorded activation.
    pub after_others: bool,
    /// It was the first receive of its activation, whose look had found so many objects, or the
    /// first send, behind so many receives; 0: it was neither.
    #[serde(default)]
    pub first: u32,
}

impl Workload {
    /// Checks the references of scripts and executors.
    pub(crate) fn check_exchange(&self) -> Result<(), WorkloadError> {
        let exchange = &self.exchange;
        let lost =
            |user: &str, what: String| WorkloadError::Missing { task: user.to_owned(), what };
        let object = |user: &str, id: ObjectId| match exchange.objects.get(id.index()) {
            Some(_) => Ok(()),
            None => Err(lost(user, id.to_string())),
        };
        let step = |user: &str, step: &Step| match step.act {
            Act::Spawn(child) if child.index() >= self.tasks.len() => {
                Err(lost(user, child.to_string()))
            }
            act => act.object().map_or(Ok(()), |id| object(user, id)),
        };
        for spec in &exchange.objects {
            spec.answered_in.map_or(Ok(()), |id| object(&spec.name, id))?;
            if let Holds::Lock { wakers } = &spec.holds
                && let Some(waker) = wakers.iter().find(|waker| waker.index() >= self.tasks.len())
            {
                return Err(lost(&spec.name, waker.to_string()));
            }
        }
        exchange.arrivals.iter().try_for_each(|arrival| object("the outside", arrival.object))?;
        for (number, script) in exchange.scripts.iter().enumerate() {
            let user = ScriptId::from(number).to_string();
            script.steps.iter().try_for_each(|s| step(&user, s))?;
            script.balance.iter().try_for_each(|(id, _)| object(&user, *id))?;
            if let Some(from) = script.repeat_from {
                let body = script.steps.get(from as usize..).unwrap_or_default();
                if body.is_empty() {
                    return Err(lost(
                        &user,
                        "a loop that starts beyond the end of its script".to_owned(),
                    ));
                }
                if !body.iter().any(Step::takes_time) {
                    return Err(WorkloadError::Spins { task: user });
                }
            }
        }
        for executor in &exchange.executors {
            for coroutine in &executor.coroutines {
                coroutine.steps.iter().try_for_each(|s| step(&executor.name, &s.step))?;
                coroutine.balance.iter().try_for_each(|(id, _)| object(&executor.name, *id))?;
            }
        }
        Ok(())
    }
}

impl Step {
    /// Returns whether time can pass in it.
    fn takes_time(&self) -> bool {
        let acts = match self.act {
            // Where nothing was told, none passes after it.
            Act::Drain { .. } => return self.before > Ns::ZERO,
            Act::Send { .. } | Act::Spawn(_) | Act::Nothing => false,
            _ => true,
        };
        acts || self.before > Ns::ZERO || self.after > Ns::ZERO
    }
}
