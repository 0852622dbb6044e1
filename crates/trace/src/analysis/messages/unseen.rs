//! Signs of what facts cannot show: tasks that run and run and exchange nothing, tasks that wait
//! for nothing recorded, and rings that the kernel polls.

use crate::analysis::Scope;
use crate::analysis::follow::{Followed, Listener, Span, ThreadState};
use crate::{Header, Recording};
use schedlab_model::{FactKind, Ns, ObjectKind, TaskId};

/// The threads by which the kernel polls an io_uring have this name with the number of the task
/// that made it (Linux 6.12: `io_sq_thread` in io_uring/sqpoll.c).
const POLLER: &str = "iou-sqp-";
/// Names that a sentence lists.
const LISTED: usize = 5;

/// Signs that tasks exchanged something that has no fact.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unseen {
    /// Tasks that had or wanted a CPU for more than half of the window, were never blocked and have
    /// no fact but that they lost a CPU: they compute, or spin on memory that others write.
    pub silent: Vec<TaskId>,
    /// Tasks of programs that slept, ran again and have no fact either: what they waited for is not
    /// recorded. The fact of a wait comes at its end, so that one that goes on is no sign.
    pub waiting: Vec<TaskId>,
    /// Threads of the kernel that ran to poll an io_uring.
    pub pollers: Vec<TaskId>,
    /// A task entered an io_uring.
    pub rings: bool,
}

/// How long each task ran, how long it ran or wanted to, whether it was ever blocked, whether it
/// slept last, and whether it ran again after that.
struct Busy {
    run: Vec<Ns>,
    able: Vec<Ns>,
    blocked: Vec<bool>,
    sleeps: Vec<bool>,
    waited: Vec<bool>,
}

impl Listener for Busy {
    fn span(&mut self, span: &Span) {
        let task = span.task.index();
        let add = |to: &mut Ns| *to = to.saturating_add(span.length());
        match span.state {
            ThreadState::Running => {
                add(&mut self.run[task]);
                add(&mut self.able[task]);
                self.waited[task] |= self.sleeps[task];
            }
            ThreadState::Runnable | ThreadState::Preempted | ThreadState::Throttled => {
                add(&mut self.able[task]);
            }
            ThreadState::Sleeping | ThreadState::Blocked => {
                (self.blocked[task], self.sleeps[task]) = (true, true);
            }
            ThreadState::DiskSleep | ThreadState::Stopped => self.blocked[task] = true,
            _ => {}
        }
    }
}

impl Unseen {
    /// Returns the signs in the window of `scope`.
    pub fn of(recording: &Recording, scope: &Scope) -> Unseen {
        let infos = &recording.header.tasks;
        let (tasks, facts) = (infos.len(), &recording.facts);
        let (none, no) = (|| vec![Ns::ZERO; tasks], || vec![false; tasks]);
        let (blocked, sleeps, waited) = (no(), no(), no());
        let busy = Busy { run: none(), able: none(), blocked, sleeps, waited };
        let busy = Followed::over(recording, scope, busy);
        let mut told = vec![false; tasks];
        for fact in &facts.list {
            let lost_cpu = matches!(fact.kind, FactKind::Preempted { .. });
            if let Some(task) = fact.task.filter(|_| !lost_cpu) {
                told[task.index()] = true;
            }
        }
        let window = scope.end(recording);
        let all = |wanted: &dyn Fn(usize) -> bool| {
            (0..tasks).filter(|&task| wanted(task)).map(TaskId::from).collect()
        };
        // Tasks without a number stand for several (`record --pid`).
        let of_program = |task: usize| !infos[task].kernel && infos[task].tid != 0;
        let polls = |task: usize| infos[task].comm.starts_with(POLLER);
        let quiet = |task: usize| !told[task] && busy.run[task] > Ns::ZERO && !polls(task);
        Unseen {
            silent: all(&|task| {
                quiet(task) && !busy.blocked[task] && busy.able[task].0 > window.0 / 2
            }),
            waiting: all(&|task| quiet(task) && busy.waited[task] && of_program(task)),
            pollers: all(&|task| polls(task) && busy.run[task] > Ns::ZERO),
            rings: facts.objects.iter().any(|object| object.kind == ObjectKind::IoUring),
        }
    }

    /// Returns whether a task that never blocks and exchanges nothing is beside one that waits for
    /// nothing recorded, or a ring is polled: what a replay makes of these tasks may be wrong.
    pub fn matters(&self) -> bool {
        (!self.silent.is_empty() && !self.waiting.is_empty()) || !self.pollers.is_empty()
    }

    /// Returns the signs, a sentence each.
    pub fn sentences(&self, header: &Header) -> Vec<String> {
        let mut all = Vec::new();
        let silent = names(header, &self.silent);
        if !self.silent.is_empty() && !self.waiting.is_empty() {
            all.push(format!(
                "{silent} never blocked and exchanged nothing, beside {}, which waited for nothing \
                 that was recorded: such tasks may exchange over memory that they share, which has \
                 no facts",
                names(header, &self.waiting)
            ));
        } else if !self.silent.is_empty() {
            all.push(format!(
                "{silent} never blocked and exchanged nothing: they compute, or spin on memory \
                 that other tasks write, which is not seen"
            ));
        }
        if !self.pollers.is_empty() {
            all.push(format!(
                "{} polled an io_uring (SQPOLL): what a program hands over that way has no system \
                 call and is not seen",
                names(header, &self.pollers)
            ));
        } else if self.rings {
            all.push(
                "some tasks use io_uring: what a polling thread of the kernel (SQPOLL) does for \
                 them has no system call and is not seen"
                    .to_owned(),
            );
        }
        all
    }
}

/// Returns the names of tasks, each once.
fn names(header: &Header, tasks: &[TaskId]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for task in tasks {
        let name = header.tasks[task.index()].comm.as_str();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = match names.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names[..names.len().min(LISTED)].join(", ") + &more
}
