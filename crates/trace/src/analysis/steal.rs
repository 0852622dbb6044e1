//! Which guest of KVM lost how much CPU time to which other: the time for which threads that run
//! virtual CPUs were runnable and not running, laid to what ran meanwhile. Linux tells a guest of
//! the same time as steal (arch/x86/kvm/x86.c, record_steal_time copies the thread's `run_delay`).
//! What the guest's other threads wait for (the emulator, its I/O) is no steal.

use super::blame::{Blame, Culprit};
use super::follow::Followed;
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, By, Keys, Scope, Summary};
use crate::guests::Guests;
use crate::{Capability, Header, Recording};
use schedlab_model::{EventSink, Ns, TaskId};
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry = Entry::new::<Steal>(
    "steal",
    "How much time the vCPUs of KVM guests lost to other guests and to the host",
    show,
);

/// What one guest lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfGuest {
    /// Its name.
    pub name: String,
    /// Its line in [`Steal::keys`].
    pub line: usize,
    /// How many threads of it run virtual CPUs.
    pub vcpus: u64,
    /// CPU time of these.
    pub ran: Ns,
    /// CPU time of its other threads.
    pub emulated: Ns,
    /// For how long its virtual CPUs waited, all together.
    pub stolen: Ns,
    /// What ran meanwhile, the largest part first.
    pub by: Vec<(Culprit, Ns)>,
}

/// What the guests of a recording lost.
#[derive(Clone, Debug)]
pub struct Steal {
    /// Which task is in which line.
    pub keys: Keys,
    /// The guests, those that lost the largest part of their time first.
    pub guests: Vec<OfGuest>,
}

impl Analysis for Steal {
    const NAME: &'static str = "the steal time of guests";
    const NEEDS: &'static [Capability] = &[Capability::Preempted, Capability::AllTasks];
}

/// Returns the part of a scope that is about threads of virtual CPUs.
pub(super) fn of_vcpus(header: &Header, scope: &Scope) -> Scope {
    let shown = |(index, vcpu): (usize, bool)| vcpu && scope.task(TaskId::from(index));
    let tasks = header.vcpus().into_iter().enumerate().map(shown).collect();
    Scope { tasks: Some(tasks), ..scope.clone() }
}

impl Steal {
    /// Measures what the guests lost in the part that `scope` shows.
    pub fn from_recording(recording: &Recording, scope: &Scope, guests: &Guests) -> Steal {
        let header = &recording.header;
        if guests.is_empty() {
            return Steal { keys: Keys::new(header, By::Guest), guests: Vec::new() };
        }
        let mut summary = Summary::new(header.tasks.len(), header.topology.cpus(), scope.from);
        scope.events(recording).iter().for_each(|event| summary.event(event));
        summary.finish(scope.end(recording));
        let of_vcpus = of_vcpus(header, scope);
        let blame = Blame::new(header, &of_vcpus, By::Guest);
        let blame = Followed::over(recording, &of_vcpus, blame);
        let of = |place: usize| {
            let guest = &guests.list()[place];
            let line = blame.keys.line(*guest.vcpus.first()?);
            let mut found = OfGuest {
                name: guest.name.clone(),
                line,
                vcpus: 0,
                ran: Ns::ZERO,
                emulated: Ns::ZERO,
                stolen: blame.waited(line),
                by: blame.rows[line].iter().map(|(who, share)| (*who, share.time)).collect(),
            };
            for task in guests.tasks(place).filter(|task| scope.task(*task)) {
                let is_vcpu = header.tasks[task.index()].vcpu;
                let ran = summary.tasks[task.index()].run;
                found.vcpus += u64::from(is_vcpu);
                *(if is_vcpu { &mut found.ran } else { &mut found.emulated }) += ran;
            }
            found.by.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
            (found.vcpus > 0).then_some(found)
        };
        let mut found: Vec<OfGuest> = (0..guests.list().len()).filter_map(of).collect();
        found.sort_by_key(|guest| std::cmp::Reverse(guest.stolen.0 / guest.vcpus.max(1)));
        Steal { keys: blame.keys, guests: found }
    }
}

const GUESTS: &[Column] = &[
    column("guest", "guest"),
    column("vcpus", "vCPUs"),
    column("steal", "steal"),
    column("steal_ns", "steal time"),
    column("share", "CPU share"),
    column("emulator_share", "emulator and I/O"),
    column("running", "most of it to"),
    column("running_ns", "time"),
];

const TO_WHOM: &[Column] = &[
    column("guest", "guest"),
    column("running", "who ran meanwhile"),
    column("time_ns", "time"),
    column("share", "of its steal time"),
];

/// Causes of one guest that are printed when no number is given.
const TOP: usize = 5;

const NONE: &str = "No thread of the recording is known to run a virtual CPU of KVM: the recorder \
                    found none on this machine, or did not look (format 1.6 and before; a trace \
                    of another tool tells it by kvm:kvm_entry or kvm:kvm_exit).";

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let header = &recording.header;
    let guests = Guests::of(header);
    if guests.is_empty() {
        out.answer(NONE)?;
    }
    let found = Steal::from_recording(recording, scope, &guests);
    let labels = &found.keys.labels;
    let name = |culprit: Culprit| match culprit {
        Culprit::Line(line) => Cell::label(&labels[line]),
        Culprit::Idle => Cell::Text("<idle>"),
        Culprit::Throttled => Cell::Text("<throttled>"),
        Culprit::Unknown => Cell::Text("<unknown>"),
    };
    let length = scope.length(recording);
    let title = "What the vCPUs of each guest lost (steal: part of the time of each vCPU)";
    out.table(&Table { key: "guests", title, columns: GUESTS, layout: Layout::Table })?;
    for guest in &found.guests {
        let whole = Ns(length.0.saturating_mul(guest.vcpus));
        let (most, time) = match guest.by.first() {
            Some((culprit, time)) => (name(*culprit), Cell::Time(*time)),
            None => (Cell::None, Cell::None),
        };
        out.row(&[
            Cell::Text(&guest.name),
            Cell::Count(guest.vcpus),
            Cell::part(guest.stolen, whole),
            Cell::Time(guest.stolen),
            Cell::part(guest.ran, length),
            Cell::part(guest.emulated, length),
            most,
            time,
        ])?;
    }
    let title = "What ran while vCPUs waited";
    out.table(&Table { key: "stolen_by", title, columns: TO_WHOM, layout: Layout::Table })?;
    for guest in &found.guests {
        for (culprit, time) in guest.by.iter().take(scope.top.unwrap_or(TOP)) {
            let part = Cell::part(*time, guest.stolen);
            out.row(&[Cell::Text(&guest.name), name(*culprit), Cell::Time(*time), part])?;
        }
    }
    Ok(())
}
