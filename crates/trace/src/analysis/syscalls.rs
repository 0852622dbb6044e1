//! In which system calls tasks blocked, and for how long. Numbers are named as on x86-64
//! (Linux 6.1); a recording of another architecture gets wrong names, so the number is there too.

use super::answer::{counted, name as label};
use super::follow::{Followed, Follower, Listener, Span, ThreadState};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, By, Durations, Keys, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::{EventKind, SchedEvent, TaskId};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry =
    Entry::new::<Syscalls>("syscalls", "In which system calls tasks blocked", show);

/// `NUMBER NAME` in each line, ascending.
const NAMES: &str = include_str!("syscalls_x86_64.txt");

/// The name of a system call of x86-64, or its number.
pub fn name(number: u32) -> Cow<'static, str> {
    let known = NAMES.lines().find_map(|line| {
        let (code, name) = line.split_once(' ')?;
        (code.parse() == Ok(number)).then_some(name)
    });
    known.map_or_else(|| Cow::Owned(format!("syscall {number}")), Cow::Borrowed)
}

/// In which system call each task is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    tasks: Vec<Option<u32>>,
    /// Calls are known of tasks that block only, and end unseen: latest when the task runs again.
    blocking: bool,
}

impl Calls {
    /// As the recording has them.
    pub(crate) fn new(header: &Header) -> Calls {
        Calls { tasks: Vec::new(), blocking: !header.capabilities.has(Capability::Syscalls) }
    }

    /// Follows one event.
    pub(crate) fn event(&mut self, event: &SchedEvent) {
        let (task, call) = match event.kind {
            EventKind::SyscallEnter { task, number } => (task, Some(number)),
            EventKind::SyscallExit { task } => (task, None),
            EventKind::Switch { next: Some(task), .. } if self.blocking => (task, None),
            EventKind::Lost { .. } => return self.tasks.fill(None),
            _ => return,
        };
        if task.index() >= self.tasks.len() {
            self.tasks.resize(task.index() + 1, None);
        }
        self.tasks[task.index()] = call;
    }

    /// The call in which `task` is; `None` when it is in none, or entered it unseen.
    pub(crate) fn current(&self, task: TaskId) -> Option<u32> {
        self.tasks.get(task.index()).copied().flatten()
    }
}

/// Blocked times by line of [`Keys`], system call and state.
#[derive(Clone, Debug)]
pub struct Syscalls {
    scope: Scope,
    calls: Calls,
    /// Which task is in which line.
    pub keys: Keys,
    /// By line, call (`None`: not in one, or entered before the recording began) and state.
    pub blocked: BTreeMap<(usize, Option<u32>, ThreadState), Durations>,
}

impl Analysis for Syscalls {
    const NAME: &'static str = "the list of blocking system calls";
    const NEEDS: &'static [Capability] = &[Capability::BlockingSyscalls, Capability::Preempted];
}

impl Syscalls {
    /// For the tasks of `header`.
    pub fn new(header: &Header, scope: &Scope, by: By) -> Syscalls {
        let keys = Keys::new(header, by);
        Syscalls { scope: scope.clone(), calls: Calls::new(header), keys, blocked: BTreeMap::new() }
    }
}

impl Listener for Syscalls {
    fn before(&mut self, _: &Follower, event: &SchedEvent) {
        self.calls.event(event);
    }

    fn span(&mut self, span: &Span) {
        use ThreadState::{Blocked, DiskSleep, Sleeping, Stopped};
        let blocked = matches!(span.state, Sleeping | DiskSleep | Stopped | Blocked);
        // What is still asleep at the end has no known length.
        let ended = span.next != span.state;
        if blocked
            && ended
            && self.scope.at(span.to)
            && self.scope.task(span.task)
            && self.scope.on(span.cpu)
        {
            // A task that sleeps stays in its call.
            let key = (self.keys.line(span.task), self.calls.current(span.task), span.state);
            self.blocked.entry(key).or_default().add(span.length());
        }
    }
}

const COLUMNS: &[Column] = &[
    column("task", "task"),
    column("syscall", "system call"),
    column("state", "state"),
    column("times", "times"),
    column("time_ns", "time"),
    column("mean_ns", "mean"),
    column("p99_ns", "p99"),
    column("p99_interval_ns", "p99 interval").rank(6),
    column("max_ns", "max"),
    column("number", "number"),
];

/// The line, the system call and the state in which a task was blocked.
type Call = (usize, Option<u32>, ThreadState);

/// The task that was blocked longest with its call, and the longest single time.
fn answer(recording: &Recording, found: &Syscalls, rows: &[(&Call, &Durations)]) -> String {
    let words = |(line, call, state): &Call| {
        let call =
            call.map_or("no system call that was seen".to_owned(), |call| name(call).into_owned());
        (label(&recording.header, &found.keys.labels[*line]), format!("{call} ({})", state.words()))
    };
    let longest = rows.iter().max_by_key(|(key, blocked)| (blocked.max(), std::cmp::Reverse(*key)));
    let (Some((first, blocked)), Some((longest, single))) = (rows.first(), longest) else {
        return "No task was blocked in a system call.".to_owned();
    };
    let ((who, call), (other, other_call)) = (words(first), words(longest));
    format!(
        "{who} was blocked longest, in {call}: {} in {}. The longest single time was {}: {other} \
         in {other_call}.",
        blocked.sum(),
        counted(blocked.count(), "time"),
        single.max(),
    )
}

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let found = Syscalls::new(&recording.header, scope, scope.by.unwrap_or(By::Name));
    let found = Followed::over(recording, scope, found);
    let title = "In which system calls tasks blocked";
    let mut rows: Vec<_> = found.blocked.iter().collect();
    rows.sort_by_key(|(_, blocked)| std::cmp::Reverse(blocked.sum()));
    out.answer(&answer(recording, &found, &rows))?;
    found.keys.server_first(scope, &mut rows, |((line, ..), _)| *line);
    out.table(&Table { key: "syscalls", title, columns: COLUMNS, layout: Layout::Table })?;
    for ((line, call, state), blocked) in rows {
        let name = call.map(name);
        out.row(&[
            Cell::label(&found.keys.labels[*line]),
            Cell::Text(name.as_deref().unwrap_or("<none seen>")),
            Cell::Text(state.words()),
            Cell::Count(blocked.count()),
            Cell::Time(blocked.sum()),
            Cell::Time(blocked.mean()),
            Cell::Time(blocked.p99()),
            Cell::interval(blocked, 990_000),
            Cell::Time(blocked.max()),
            Cell::maybe(call.map(u64::from), Cell::Count),
        ])?;
    }
    out.note(
        "`<none seen>`: a thread of the kernel, or a task that blocked outside of a system call \
         (a page fault), or \
         that entered it before the recording began",
    )
}
