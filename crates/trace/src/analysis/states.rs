//! Where the time of each task went: a sum for each thread state. The sums of a task add up to its
//! lifetime.

use super::answer::{name, percent};
use super::follow::{Followed, Listener, Span, ThreadState};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, By, Keys, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::Ns;
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry =
    Entry::new::<States>("states", "Where the time of each task went, by thread state", show);

/// How many states there are.
const STATES: usize = ThreadState::ALL.len();

/// Time by thread state, for each line of [`Keys`].
#[derive(Clone, Debug)]
pub struct States {
    scope: Scope,
    /// Which task is in which line.
    pub keys: Keys,
    /// By line, in the order of [`ThreadState::ALL`].
    pub times: Vec<[Ns; STATES]>,
}

impl Analysis for States {
    const NAME: &'static str = "thread states";
    const NEEDS: &'static [Capability] = &[Capability::Preempted];
}

impl States {
    /// For the tasks of `header`.
    pub fn new(header: &Header, scope: &Scope, by: By) -> States {
        let keys = Keys::new(header, by);
        let times = vec![[Ns::ZERO; STATES]; keys.len()];
        States { scope: scope.clone(), keys, times }
    }

    /// The time of one line in one state.
    pub fn time(&self, line: usize, state: ThreadState) -> Ns {
        self.times[line][state as usize]
    }

    /// The lifetime of a line in the window: of several tasks, the sum.
    pub fn lifetime(&self, line: usize) -> Ns {
        self.times[line].iter().copied().sum()
    }
}

impl Listener for States {
    fn span(&mut self, span: &Span) {
        if self.scope.task(span.task) && self.scope.on(span.cpu) {
            let line = self.keys.line(span.task);
            self.times[line][span.state as usize] += self.scope.clip(span.from, span.to);
        }
    }
}

const COLUMNS: &[Column] = &[
    column("task", "task"),
    column("lifetime_ns", "lifetime"),
    column("running_ns", ThreadState::Running.words()),
    column("runnable_ns", ThreadState::Runnable.words()),
    column("preempted_ns", ThreadState::Preempted.words()),
    column("throttled_ns", ThreadState::Throttled.words()),
    column("sleeping_ns", ThreadState::Sleeping.words()),
    column("disk_sleep_ns", ThreadState::DiskSleep.words()),
    column("stopped_ns", ThreadState::Stopped.words()),
    column("blocked_ns", ThreadState::Blocked.words()),
    column("unknown_ns", ThreadState::Unknown.words()),
];

/// Which task ran most, and which waited most for a CPU.
fn answer(recording: &Recording, states: &States, order: &[usize]) -> String {
    let waited = |line: usize| -> Ns {
        ThreadState::ALL
            .iter()
            .filter(|state| state.waits())
            .map(|&state| states.time(line, state))
            .sum()
    };
    let part = |line: usize, time: Ns| {
        let (who, life) =
            (name(&recording.header, &states.keys.labels[line]), states.lifetime(line));
        (who, format!("{time} of {life} ({})", percent(time.0, life.0)))
    };
    let Some(&first) = order.first() else { return "No task was seen.".to_owned() };
    let (who, ran) = part(first, states.time(first, ThreadState::Running));
    let longest = order.iter().copied().max_by_key(|&line| (waited(line), std::cmp::Reverse(line)));
    let second = match longest.filter(|&line| waited(line) > Ns::ZERO) {
        None => "No task waited for a CPU.".to_owned(),
        Some(line) => {
            let (who, waited) = part(line, waited(line));
            format!("{who} waited longest for a CPU: {waited}.")
        }
    };
    format!("{who} ran most: {ran}. {second}")
}

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let states = States::new(&recording.header, scope, scope.by.unwrap_or(By::Name));
    let states = Followed::over(recording, scope, states);
    let mut order: Vec<usize> =
        (0..states.keys.len()).filter(|&l| states.lifetime(l) > Ns::ZERO).collect();
    order.sort_by_key(|&line| std::cmp::Reverse(states.time(line, ThreadState::Running)));
    out.answer(&answer(recording, &states, &order))?;
    states.keys.server_first(scope, &mut order, |line| *line);
    out.table(&Table {
        key: "states",
        title: "Time by thread state",
        columns: COLUMNS,
        layout: Layout::Table,
    })?;
    for line in order {
        let mut row =
            vec![Cell::label(&states.keys.labels[line]), Cell::Time(states.lifetime(line))];
        let alive = ThreadState::ALL.iter().filter(|state| **state != ThreadState::Dead);
        row.extend(alive.map(|&state| match states.time(line, state) {
            Ns::ZERO => Cell::None,
            time => Cell::Time(time),
        }));
        out.row(&row)?;
    }
    out.note(
        "`Unknown` is the time before a task's first event, or after lost ones; stolen time \
              counts as Running",
    )
}
