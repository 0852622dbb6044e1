//! The wake graph: which task wakes which how often, and how long the woken task then waits.
//! Interrupts are the outside world; a softirq that ran inside a task's system call counts as that
//! task's doing.

use super::answer::name;
use super::follow::{Began, Followed, Listener, Wait};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, By, Durations, Keys, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::Waker;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry =
    Entry::new::<Wakes>("wakes", "Which task wakes which, and how soon the woken task runs", show);

/// Where an arrow begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum From {
    /// The tasks of this line.
    Line(usize),
    /// A softirq after an interrupt, or ksoftirqd.
    SoftIrq,
    /// An interrupt or a timer.
    HardIrq,
    /// The recorder cannot tell.
    Unknown,
}

/// The arrows from one waker to one wakee.
#[derive(Clone, Debug, Default)]
pub struct Arrow {
    /// How long the wakee waited each time, without throttled time.
    pub waits: Durations,
    /// How often it then ran on the CPU on which it was woken.
    pub same_cpu: u64,
}

/// Which task wakes which. Only wakeups after which the task ran count.
#[derive(Clone, Debug)]
pub struct Wakes {
    scope: Scope,
    /// Which task is in which line.
    pub keys: Keys,
    /// By waker and line of the wakee.
    pub arrows: BTreeMap<(From, usize), Arrow>,
}

impl Analysis for Wakes {
    const NAME: &'static str = "the wake graph";
    const NEEDS: &'static [Capability] =
        &[Capability::Preempted, Capability::WakeTimes, Capability::Waker];
}

impl Wakes {
    /// For the tasks of `header`.
    pub fn new(header: &Header, scope: &Scope, by: By) -> Wakes {
        Wakes { scope: scope.clone(), keys: Keys::new(header, by), arrows: BTreeMap::new() }
    }
}

impl Listener for Wakes {
    fn wait(&mut self, wait: &Wait<'_>) {
        let Began::Woken { on, by } = wait.began else { return };
        let shown =
            self.scope.task(wait.task) || by.task().is_some_and(|task| self.scope.task(task));
        if !self.scope.at(wait.to) || !shown || !self.scope.on(wait.cpu) {
            return;
        }
        let from = match by {
            Waker::Task(task) | Waker::InlineSoftirq(task) => From::Line(self.keys.line(task)),
            Waker::SoftIrq => From::SoftIrq,
            Waker::HardIrq => From::HardIrq,
            Waker::Unknown => From::Unknown,
        };
        let arrow = self.arrows.entry((from, self.keys.line(wait.task))).or_default();
        arrow.waits.add(wait.counted());
        arrow.same_cpu += u64::from(on == wait.cpu);
    }
}

const COLUMNS: &[Column] = &[
    column("waker", "who woke"),
    column("wakee", "wakes"),
    column("times", "times"),
    column("wait_mean_ns", "then waited, mean"),
    column("wait_p99_ns", "p99"),
    column("wait_p99_interval_ns", "p99 interval").rank(6),
    column("wait_max_ns", "max"),
    column("same_cpu", "on the waker's CPU"),
];

/// Which wakeup is the most frequent, and after which the woken task waits longest (p99, of those
/// that came ten times or more).
fn answer(recording: &Recording, wakes: &Wakes) -> String {
    let name = |line: usize| name(&recording.header, &wakes.keys.labels[line]);
    let waker = |from: &From| match from {
        From::Line(line) => name(*line),
        From::SoftIrq => "a softirq after an interrupt".to_owned(),
        From::HardIrq => "an interrupt or a timer".to_owned(),
        From::Unknown => "an unknown waker".to_owned(),
    };
    let all: u64 = wakes.arrows.values().map(|arrow| arrow.waits.count()).sum();
    let often =
        wakes.arrows.iter().max_by_key(|(way, arrow)| (arrow.waits.count(), Reverse(**way)));
    let Some(((from, to), arrow)) = often else {
        return "No task was seen to run after a wakeup.".to_owned();
    };
    let first = format!(
        "The most frequent wakeup is that of {} by {}: {} of {all}.",
        name(*to),
        waker(from),
        arrow.waits.count()
    );
    let usual = wakes.arrows.iter().filter(|(_, arrow)| arrow.waits.count() >= 10);
    match usual.max_by_key(|(way, arrow)| (arrow.waits.p99(), Reverse(**way))) {
        None => first,
        Some(((from, to), arrow)) => format!(
            "{first} The longest waits follow when {} wakes {}: p99 {}, at most {}.",
            waker(from),
            name(*to),
            arrow.waits.p99(),
            arrow.waits.max()
        ),
    }
}

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let wakes = Wakes::new(&recording.header, scope, scope.by.unwrap_or(By::Name));
    let wakes = Followed::over(recording, scope, wakes);
    out.answer(&answer(recording, &wakes))?;
    out.table(&Table {
        key: "wakes",
        title: "Which task wakes which",
        columns: COLUMNS,
        layout: Layout::Table,
    })?;
    let mut arrows: Vec<_> = wakes.arrows.iter().collect();
    arrows.sort_by_key(|(_, arrow)| std::cmp::Reverse(arrow.waits.count()));
    wakes.keys.server_first(scope, &mut arrows, |((_, wakee), _)| *wakee);
    let shown = scope.top.unwrap_or(usize::MAX);
    for ((from, to), arrow) in arrows.iter().take(shown) {
        let from = match from {
            From::Line(line) => Cell::label(&wakes.keys.labels[*line]),
            From::SoftIrq => Cell::Text("<softirq>"),
            From::HardIrq => Cell::Text("<interrupt>"),
            From::Unknown => Cell::Text("<unknown>"),
        };
        out.row(&[
            from,
            Cell::label(&wakes.keys.labels[*to]),
            Cell::Count(arrow.waits.count()),
            Cell::Time(arrow.waits.mean()),
            Cell::Time(arrow.waits.p99()),
            Cell::interval(&arrow.waits, 990_000),
            Cell::Time(arrow.waits.max()),
            Cell::Count(arrow.same_cpu),
        ])?;
    }
    if arrows.len() > shown {
        out.note(&format!("{} rarer arrows are not shown", arrows.len() - shown))?;
    }
    Ok(())
}
