//! How long tasks keep the CPU without a break, and how that ends.

use super::answer::{counted, name, percent};
use super::follow::{Followed, Listener, Span, ThreadState};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, By, Durations, Keys, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::Ns;
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry =
    Entry::new::<Slices>("slices", "How long tasks keep the CPU, and why they lose it", show);

/// The slices of one line.
#[derive(Clone, Debug, Default)]
pub struct SliceLengths {
    /// Slices that ended because the task was preempted, throttled, or yielded.
    pub preempted: Durations,
    /// Slices that ended because the task blocked, stopped or ended.
    pub given_up: Durations,
}

/// Slices by line of [`Keys`].
#[derive(Clone, Debug)]
pub struct Slices {
    scope: Scope,
    /// Which task is in which line.
    pub keys: Keys,
    /// By line.
    pub lines: Vec<SliceLengths>,
}

impl Analysis for Slices {
    const NAME: &'static str = "slices";
    const NEEDS: &'static [Capability] = &[Capability::Preempted];
}

impl Slices {
    /// For the tasks of `header`.
    pub fn new(header: &Header, scope: &Scope, by: By) -> Slices {
        let keys = Keys::new(header, by);
        let lines = vec![SliceLengths::default(); keys.len()];
        Slices { scope: scope.clone(), keys, lines }
    }
}

impl Listener for Slices {
    fn span(&mut self, span: &Span) {
        let ended = span.state == ThreadState::Running && span.next != ThreadState::Running;
        // What began before the recording has no known length.
        let whole = span.from > Ns::ZERO;
        if ended
            && whole
            && self.scope.at(span.to)
            && self.scope.task(span.task)
            && self.scope.on(span.cpu)
        {
            let line = &mut self.lines[self.keys.line(span.task)];
            let kind = if span.next.waits() { &mut line.preempted } else { &mut line.given_up };
            kind.add(span.length());
        }
    }
}

const COLUMNS: &[Column] = &[
    column("task", "task"),
    column("run_ns", "run").rank(4),
    column("slices", "slices").rank(3),
    column("mean_ns", "slice mean").rank(1),
    column("p50_ns", "slice p50").rank(4),
    column("p99_ns", "slice p99").rank(3),
    column("p99_interval_ns", "p99 interval").rank(5),
    column("max_ns", "slice max").rank(1),
    column("preempted", "preempted").rank(2),
    column("preempted_mean_ns", "preempted mean").rank(4),
    column("preempted_max_ns", "preempted max").rank(4),
    column("given_up", "blocked").rank(3),
    column("given_up_mean_ns", "blocked mean").rank(6),
    column("given_up_max_ns", "blocked max").rank(6),
];

const BUCKETS: &[Column] = &[
    column("task", "task"),
    column("up_to_ns", "up to"),
    column("preempted", "preempted"),
    column("given_up", "blocked"),
];

/// How long the task that had most CPU time kept a CPU, and why it lost it.
fn answer(recording: &Recording, slices: &Slices, first: Option<&(usize, Durations)>) -> String {
    let Some((index, all)) = first else {
        return "No task was seen to begin and end a time on a CPU.".to_owned();
    };
    let (who, line) = (name(&recording.header, &slices.keys.labels[*index]), &slices.lines[*index]);
    let preempted = line.preempted.count();
    let after = match preempted {
        0 => String::new(),
        _ => format!(", after {} on average", line.preempted.mean()),
    };
    format!(
        "{who} had a CPU longest, {} in {} of {} on average and {} at most. It lost the CPU to a \
         preemption in {} of them{after}; the \
         others ended because it blocked.",
        all.sum(),
        counted(all.count(), "slice"),
        all.mean(),
        all.max(),
        percent(preempted, all.count()),
    )
}

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let slices = Slices::new(&recording.header, scope, scope.by.unwrap_or(By::Name));
    let slices = Followed::over(recording, scope, slices);
    let title = "Slices: times on a CPU without a break";
    let all = |line: &SliceLengths| {
        let mut all = line.preempted.clone();
        all.merge(&line.given_up);
        all
    };
    let mut rows: Vec<(usize, Durations)> = slices.lines.iter().map(all).enumerate().collect();
    rows.retain(|(_, all)| all.count() > 0);
    rows.sort_by_key(|(_, all)| std::cmp::Reverse(all.sum()));
    out.answer(&answer(recording, &slices, rows.first()))?;
    slices.keys.server_first(scope, &mut rows, |(line, _)| *line);
    out.table(&Table { key: "slices", title, columns: COLUMNS, layout: Layout::Table })?;
    let time = |durations: &Durations, value: Ns| match durations.count() {
        0 => Cell::None,
        _ => Cell::Time(value),
    };
    for (index, all) in &rows {
        let SliceLengths { preempted, given_up } = &slices.lines[*index];
        out.row(&[
            Cell::label(&slices.keys.labels[*index]),
            Cell::Time(all.sum()),
            Cell::Count(all.count()),
            Cell::Time(all.mean()),
            Cell::Time(all.p50()),
            Cell::Time(all.p99()),
            Cell::interval(all, 990_000),
            Cell::Time(all.max()),
            Cell::Count(preempted.count()),
            time(preempted, preempted.mean()),
            time(preempted, preempted.max()),
            Cell::Count(given_up.count()),
            time(given_up, given_up.mean()),
            time(given_up, given_up.max()),
        ])?;
    }
    let title = "Slices by length (powers of two)";
    out.table(&Table { key: "lengths", title, columns: BUCKETS, layout: Layout::Data })?;
    for (index, _) in &rows {
        for (edge, preempted, given_up) in by_length(&slices.lines[*index]) {
            let label = Cell::label(&slices.keys.labels[*index]);
            out.row(&[label, Cell::Time(edge), Cell::Count(preempted), Cell::Count(given_up)])?;
        }
    }
    Ok(())
}

/// Upper edge (a power of two), preempted and blocked slices of each length, without empty ones.
fn by_length(line: &SliceLengths) -> Vec<(Ns, u64, u64)> {
    let mut counts = [(0, 0); 64];
    let place = |length: Ns| (64 - length.0.leading_zeros()).min(63) as usize;
    line.preempted.buckets().for_each(|(length, count)| counts[place(length)].0 += count);
    line.given_up.buckets().for_each(|(length, count)| counts[place(length)].1 += count);
    let edge = |(bits, (preempted, given_up))| (Ns(1u64 << bits), preempted, given_up);
    counts.into_iter().enumerate().filter(|(_, (p, g))| p + g > 0).map(edge).collect()
}
