//! What of a recording is looked at, and how tasks are taken together.

use crate::guests::Guests;
use crate::{Header, Recording, TaskInfo, owner};
use schedlab_model::{CpuId, EventSink, Ns, SchedEvent, TaskId};
use std::collections::BTreeMap;

/// How tasks are taken together in a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Each thread by itself.
    Thread,
    /// All threads of one name.
    Name,
    /// All threads of one process.
    Process,
    /// All threads of one control group.
    Cgroup,
    /// All threads of one systemd unit, or of one session.
    Unit,
    /// All threads of one container.
    Container,
    /// All threads of one pod of Kubernetes.
    Pod,
    /// All threads of one guest of KVM; other threads by name.
    Guest,
}

/// The part of a recording that is looked at. States are followed through all of it, so that a wait
/// which began before the window has its full length; what is *counted* lies in the window:
/// intervals that end in it (waits, slices), and the part of a time that lies in it (sums by
/// state).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// Start of the window, since the start of the recording.
    pub from: Ns,
    /// Its end; [`Ns::MAX`] is the end of the recording.
    pub to: Ns,
    /// By [`TaskId`]: the tasks that are shown; `None` shows all.
    pub tasks: Option<Vec<bool>>,
    /// Only what happens on this CPU.
    pub cpu: Option<CpuId>,
    /// How many rows where an analysis shows the largest ones only; `None` is its own choice.
    pub top: Option<usize>,
    /// How tasks are taken together; `None` is the analysis' own choice.
    pub by: Option<By>,
    /// By [`TaskId`]: the tasks of the server that a user asks about, whose rows come first;
    /// `None`: none was named.
    pub first: Option<Vec<bool>>,
}

impl Default for Scope {
    fn default() -> Scope {
        Scope {
            from: Ns::ZERO,
            to: Ns::MAX,
            tasks: None,
            cpu: None,
            top: None,
            by: None,
            first: None,
        }
    }
}

impl Scope {
    /// Whether `task` is shown.
    #[inline]
    pub fn task(&self, task: TaskId) -> bool {
        self.tasks.as_ref().is_none_or(|tasks| tasks.get(task.index()).copied().unwrap_or(false))
    }

    /// Whether the rows of `task` come first: it is one of the server's.
    #[inline]
    pub fn leads(&self, task: TaskId) -> bool {
        let first = self.first.as_ref();
        first.is_some_and(|first| first.get(task.index()).copied().unwrap_or(false))
    }

    /// Whether `cpu` is shown.
    #[inline]
    pub fn on(&self, cpu: CpuId) -> bool {
        self.cpu.is_none_or(|only| only == cpu)
    }

    /// Whether something that ends at `at` counts.
    #[inline]
    pub fn at(&self, at: Ns) -> bool {
        self.from <= at && at <= self.to
    }

    /// The part of `from .. to` in the window.
    #[inline]
    pub fn clip(&self, from: Ns, to: Ns) -> Ns {
        to.min(self.to).saturating_sub(from.max(self.from))
    }

    /// The end of the window in `recording`.
    pub fn end(&self, recording: &Recording) -> Ns {
        self.to.min(recording.duration)
    }

    /// The length of the window in `recording`.
    pub fn length(&self, recording: &Recording) -> Ns {
        self.end(recording).saturating_sub(self.from)
    }

    /// The events up to the end of the window.
    pub fn events<'a>(&self, recording: &'a Recording) -> &'a [SchedEvent] {
        let end = recording.events.partition_point(|event| event.at <= self.to);
        &recording.events[..end]
    }

    /// Gives `sink` the events up to the end of the window.
    pub fn feed(&self, recording: &Recording, sink: &mut impl EventSink) {
        self.events(recording).iter().for_each(|event| sink.event(event));
    }
}

/// A line of a table: a thread, or several together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Label {
    /// One thread.
    Task(TaskId),
    /// Several: their name, their process with its id, or the path of their control group.
    Name(String),
}

/// The lines of a table, by task.
#[derive(Clone, Debug)]
pub struct Keys {
    /// By [`TaskId`]: its line.
    lines: Vec<usize>,
    /// What is at the head of each line.
    pub labels: Vec<Label>,
}

/// Digits of a container's id that are shown, as `docker ps` and `crictl ps` show them.
const SHORT_ID: usize = 12;

/// Returns what the line of a task is called where tasks are taken together so; `None`: it has a
/// line of its own. `leader` is the name of a process, by its id. Which guest a task belongs to
/// needs all tasks, which [`Keys`] has: here it is called by its name.
pub fn line_name<'a>(
    header: &Header,
    task: &TaskInfo,
    by: By,
    leader: impl FnOnce(u32) -> Option<&'a str>,
) -> Option<String> {
    let group = header.groups.get(task.group.index());
    let path = group.map_or("/", |info| info.spec.name.as_str());
    Some(match by {
        By::Thread => return None,
        By::Name | By::Guest => task.comm.clone(),
        // A process is called as its first thread, whose id is that of the process.
        By::Process => format!("{} ({})", leader(task.pid).unwrap_or(&task.comm), task.pid),
        By::Cgroup => path.to_owned(),
        By::Unit => owner::unit_name(header, task, leader),
        By::Container => owner::container(path).map_or_else(
            || "(no container)".to_owned(),
            |one| format!("{} {}", one.runtime, one.id.get(..SHORT_ID).unwrap_or(one.id)),
        ),
        By::Pod => group.and_then(owner::pod_name).unwrap_or_else(|| "(no pod)".to_owned()),
    })
}

impl Keys {
    /// Takes the tasks of `header` together.
    pub fn new(header: &Header, by: By) -> Keys {
        let mut leaders: BTreeMap<u32, &str> = BTreeMap::new();
        for task in header.tasks.iter().filter(|task| task.tid == task.pid) {
            leaders.insert(task.pid, &task.comm);
        }
        let guests = if by == By::Guest { Guests::of(header) } else { Guests::default() };
        let label = |(index, task): (usize, &TaskInfo)| {
            if let Some(guest) = guests.of_task(TaskId::from(index)) {
                return Label::Name(guest.name.clone());
            }
            let name = line_name(header, task, by, |pid| leaders.get(&pid).copied());
            name.map_or(Label::Task(TaskId::from(index)), Label::Name)
        };
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        let mut keys = Keys { lines: Vec::new(), labels: Vec::new() };
        for label in header.tasks.iter().enumerate().map(label) {
            let next = keys.labels.len();
            let line = match &label {
                Label::Task(_) => next,
                Label::Name(name) => *known.entry(name.clone()).or_insert(next),
            };
            if line == next {
                keys.labels.push(label);
            }
            keys.lines.push(line);
        }
        keys
    }

    /// The line of a task, which must be in the header's table.
    #[inline]
    pub fn line(&self, task: TaskId) -> usize {
        self.lines[task.index()]
    }

    /// Returns for each line whether it has a task of the server.
    pub fn leads(&self, scope: &Scope) -> Vec<bool> {
        let mut leads = vec![false; self.len()];
        for (task, &line) in self.lines.iter().enumerate() {
            leads[line] |= scope.leads(TaskId::from(task));
        }
        leads
    }

    /// Moves the rows of the server's lines before the others; among them the order stays.
    pub fn server_first<T>(&self, scope: &Scope, rows: &mut [T], line: impl Fn(&T) -> usize) {
        if scope.first.is_some() {
            let leads = self.leads(scope);
            rows.sort_by_key(|row| !leads[line(row)]);
        }
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}
