//! Objects at which tasks exchange messages, the scripts that use them, and the executors that
//! serve many of them.
//!
//! | rule | Linux 6.12 | here |
//! |---|---|---|
//! | a sender wakes the reader that has waited longest | exclusive waits, kernel/sched/wait.c | modelled; a reader that finds nothing waits again |
//! | a write to a full pipe or socket waits until there is room | fs/pipe.c, net/unix/af_unix.c | modelled by [`Room`](schedlab_model::Room) |
//! | a pipe and a socket wake with WF_SYNC, a futex does not | fs/pipe.c `pipe_write`, net/core/sock.c `sock_def_readable` | modelled by `sync` |
//! | a futex that guards something has an owner | user space | simplified: a wait ends with a wake, or when no task that wakes there is awake |
//! | epoll returns what is ready, oldest first | fs/eventpoll.c, `ep_send_events` | modelled: one lane takes all, of several each takes one |

mod lanes;
mod objects;
mod scripts;

use lanes::Lane;
use objects::Object;
use schedlab_model::{Exchange, Holds, Op, Workload};
use scripts::Player;
use std::collections::VecDeque;

/// The state of everything that is exchanged in a run.
#[derive(Debug)]
pub(super) struct Exchanges<'a> {
    spec: &'a Exchange,
    objects: Vec<Object>,
    /// By object: those whose messages are answered in it.
    answers: Vec<Vec<u32>>,
    executors: Vec<Executor>,
    /// By task: where it is in its script.
    players: Vec<Player>,
    /// By task: what it does as a lane.
    lanes: Vec<Lane>,
    /// By task: the locks at which it wakes others.
    locks_of: Vec<Vec<u32>>,
    /// The next arrival from outside.
    arrival: usize,
    /// Tasks to be woken when an operation is done; empty but for its room.
    woken: Vec<u32>,
}

/// What an executor's lanes share.
#[derive(Debug)]
struct Executor {
    /// The tasks that are its lanes.
    lanes: Vec<u32>,
    /// Coroutines that can go on, oldest first.
    ready: VecDeque<u32>,
    coroutines: Vec<Coroutine>,
    /// The next look of each kind.
    looks: [u32; 2],
    /// When its timer fired last, or is to fire.
    timer_at: u64,
}

/// Where a coroutine is.
#[derive(Clone, Copy, Debug, Default)]
struct Coroutine {
    at: u32,
    ready: bool,
}

impl<'a> Exchanges<'a> {
    /// `None` when the workload exchanges nothing in this way.
    pub(super) fn new(workload: &'a Workload) -> Option<Exchanges<'a>> {
        let spec = &workload.exchange;
        if spec.is_empty() {
            return None;
        }
        let tasks = workload.tasks.len();
        let mut locks_of = vec![Vec::new(); tasks];
        for (number, object) in spec.objects.iter().enumerate() {
            if let Holds::Lock { wakers } = &object.holds {
                wakers.iter().for_each(|waker| locks_of[waker.index()].push(number as u32));
            }
        }
        let mut answers = vec![Vec::new(); spec.objects.len()];
        for (number, object) in spec.objects.iter().enumerate() {
            if let Some(answered_in) = object.answered_in {
                answers[answered_in.index()].push(number as u32);
            }
        }
        let attends = |t: usize, number: usize| {
            let ops = &workload.tasks[t].program.ops;
            ops.iter().any(|op| matches!(op, Op::Attend(executor) if executor.index() == number))
        };
        let executors = spec.executors.iter().enumerate().map(|(number, executor)| Executor {
            lanes: (0..tasks).filter(|&t| attends(t, number)).map(|t| t as u32).collect(),
            ready: VecDeque::with_capacity(executor.coroutines.len()),
            coroutines: vec![Coroutine::default(); executor.coroutines.len()],
            looks: [0; 2],
            timer_at: executor.since.0,
        });
        Some(Exchanges {
            spec,
            answers,
            executors: executors.collect(),
            objects: spec.objects.iter().map(Object::new).collect(),
            players: vec![Player::default(); tasks],
            lanes: (0..tasks).map(|_| Lane::default()).collect(),
            locks_of,
            arrival: 0,
            woken: Vec::new(),
        })
    }

    /// Two tasks take over each other's programs, neither of which waits at an object.
    pub(super) fn swap(&mut self, t: usize, other: usize) {
        self.players.swap(t, other);
        self.lanes.swap(t, other);
        for lane in self.executors.iter_mut().flat_map(|executor| &mut executor.lanes) {
            match *lane as usize {
                was if was == t => *lane = other as u32,
                was if was == other => *lane = t as u32,
                _ => {}
            }
        }
    }

    /// Returns how many executors there are: each has one timer.
    pub(super) fn executors(&self) -> usize {
        self.executors.len()
    }
}
