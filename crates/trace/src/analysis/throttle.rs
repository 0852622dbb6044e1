//! Waits that a limit caused: `cpu.max` of a control group, or the limits on real-time tasks.
//!
//! A simulator reports throttling as events, and so does the BPF recorder from Linux 6.18 on. The
//! kernel's tracepoints do not, so for other recordings it is inferred where nothing else explains
//! what was seen:
//! * a task of a group with `cpu.max` (its own or a parent's) waits in the queue of a CPU that
//!   idles for at least [`HELD`]: an idle CPU takes a task that it may run within microseconds;
//! * a real-time task loses its CPU to a task of a fair policy, or waits so at an idle CPU: only
//!   `sched_rt_runtime_us` (or, from Linux 6.12 on, the fair server) does that.
//!
//! A throttled group whose CPU others use meanwhile then looks like a preemption and is not found.

use super::answer::{counted, name, percent, seconds};
use super::follow::{Began, Followed, Follower, Listener, Occupant, Wait};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, By, Durations, Keys, Occupancy, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::{Bandwidth, CpuId, GroupId, Ns, SchedEvent, TaskId};
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry =
    Entry::new::<Throttling>("throttle", "Waits that cpu.max or real-time throttling caused", show);

/// A task that waits this long at an idle CPU is held back by something. Chosen: far above what
/// waking an idle CPU takes, below the shortest period of a limit.
pub const HELD: Ns = Ns::from_ms(1);

/// What held a task back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Limit {
    /// `Throttle` events say so. The group with the limit, where it is known.
    Reported(Option<GroupId>),
    /// `Throttle` events say so, of a real-time task.
    ReportedRealTime,
    /// `cpu.max` of this group, inferred.
    CpuMax(GroupId),
    /// Real-time throttling or the fair server, inferred.
    RealTime,
}

impl Limit {
    /// The limit in words, such as `cpu.max 10ms/100ms of /batch`.
    pub fn words(self, header: &Header) -> String {
        let group = |id: GroupId| {
            let spec = header.groups.get(id.index()).map(|group| &group.spec);
            let limit = spec
                .and_then(|spec| spec.bandwidth)
                .map_or_else(String::new, |b| format!(" {}", max(&b)));
            format!("cpu.max{limit} of {}", spec.map_or("/", |spec| spec.name.as_str()))
        };
        match self {
            Limit::Reported(Some(id)) => group(id),
            Limit::Reported(None) => "a limit".to_owned(),
            Limit::ReportedRealTime => "real-time throttling or the fair server".to_owned(),
            Limit::CpuMax(id) => format!("{} (inferred)", group(id)),
            Limit::RealTime => "real-time throttling or the fair server (inferred)".to_owned(),
        }
    }
}

fn max(limit: &Bandwidth) -> String {
    let ms = |ns: Ns| match ns.0 % 1_000_000 {
        0 => format!("{}ms", ns.0 / 1_000_000),
        _ => format!("{}us", ns.0 / 1_000),
    };
    format!("{}/{}", ms(limit.quota), ms(limit.period))
}

/// The nearest group with `cpu.max` above a task.
pub fn limited_by(header: &Header, task: TaskId) -> Option<GroupId> {
    let mut group = Some(header.tasks.get(task.index())?.group);
    // Parents stand before their children, so this ends; a recording is checked for it.
    while let Some(id) = group {
        let spec = &header.groups.get(id.index())?.spec;
        if spec.bandwidth.is_some() {
            return Some(id);
        }
        group = spec.parent;
    }
    None
}

/// For how long of a wait a limit held the task back, and which.
pub fn held(header: &Header, occupancy: &Occupancy, wait: &Wait<'_>) -> Option<(Limit, Ns)> {
    let group = limited_by(header, wait.task);
    let realtime = header.tasks[wait.task.index()].policy.is_realtime();
    if wait.throttled > Ns::ZERO {
        // `cpu.max` is a limit of fair tasks.
        let limit = if realtime { Limit::ReportedRealTime } else { Limit::Reported(group) };
        return Some((limit, wait.throttled));
    }
    if header.capabilities.has(Capability::Throttling) {
        return None;
    }
    if group.is_none() && !realtime {
        return None;
    }
    let fair = |task: TaskId| header.tasks[task.index()].policy.is_fair();
    let displaced = realtime && matches!(wait.began, Began::Preempted { by: Some(by) } if fair(by));
    let (mut idle, mut under_fair) = (Ns::ZERO, Ns::ZERO);
    wait.each_part(|part, end| {
        occupancy.over(part.cpu, part.since, end, |who, time| match who {
            Occupant::Idle if time >= HELD => idle += time,
            Occupant::Task(task) if displaced && fair(task) => under_fair += time,
            _ => {}
        });
    });
    match group {
        _ if realtime && under_fair + idle > Ns::ZERO => Some((Limit::RealTime, under_fair + idle)),
        Some(group) if idle > Ns::ZERO => Some((Limit::CpuMax(group), idle)),
        _ => None,
    }
}

/// What limits did to one line.
#[derive(Clone, Debug, Default)]
pub struct ThrottledWaits {
    /// How long the task was held back, for each wait in which it was.
    pub held: Durations,
    /// The longest: how long, and the wait.
    pub longest: Option<(Ns, Ns, Ns)>,
    /// All waits of the line, for comparison.
    pub waited: Ns,
}

/// Throttling by line of [`Keys`] and limit.
#[derive(Clone, Debug)]
pub struct Throttling {
    header: Header,
    scope: Scope,
    occupancy: Occupancy,
    /// Which task is in which line.
    pub keys: Keys,
    /// By line, then by limit in order.
    pub lines: Vec<Vec<(Limit, ThrottledWaits)>>,
    /// By line: all waits.
    pub waited: Vec<Ns>,
}

impl Analysis for Throttling {
    const NAME: &'static str = "throttling";
    const NEEDS: &'static [Capability] = &[Capability::Preempted, Capability::AllTasks];
}

impl Throttling {
    /// For the tasks of `header`.
    pub fn new(header: &Header, scope: &Scope, by: By) -> Throttling {
        let keys = Keys::new(header, by);
        Throttling {
            header: header.clone(),
            scope: scope.clone(),
            occupancy: Occupancy::default(),
            lines: vec![Vec::new(); keys.len()],
            waited: vec![Ns::ZERO; keys.len()],
            keys,
        }
    }
}

impl Listener for Throttling {
    fn occupied(&mut self, cpu: CpuId, at: Ns, who: Occupant) {
        self.occupancy.note(cpu, at, who);
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        if !self.scope.at(wait.to) || !self.scope.task(wait.task) || !self.scope.on(wait.cpu) {
            return;
        }
        let index = self.keys.line(wait.task);
        self.waited[index] += wait.total();
        let Some((limit, time)) = held(&self.header, &self.occupancy, wait) else { return };
        let lines = &mut self.lines[index];
        let at = lines.binary_search_by_key(&limit, |line| line.0).unwrap_or_else(|at| {
            lines.insert(at, (limit, ThrottledWaits::default()));
            at
        });
        let line = &mut lines[at].1;
        line.held.add(time);
        if line.longest.is_none_or(|longest| longest.0 < time) {
            line.longest = Some((time, wait.from, wait.to));
        }
    }

    fn after(&mut self, follower: &Follower, _event: &SchedEvent) {
        self.occupancy.tidy(follower);
    }
}

const COLUMNS: &[Column] = &[
    column("task", "task"),
    column("limit", "held back by").rank(1),
    column("times", "times").rank(2),
    column("time_ns", "time").rank(1),
    column("share", "of its waiting"),
    column("mean_ns", "mean"),
    column("max_ns", "max").rank(2),
    column("max_from_ns", "max from"),
    column("max_to_ns", "max to"),
];

const LIMITS: &[Column] = &[
    column("group", "control group"),
    column("quota_ns", "cpu.max quota"),
    column("period_ns", "period"),
];

/// Which task a limit held back longest, and which limit.
fn answer(
    header: &Header,
    throttling: &Throttling,
    rows: &[(usize, &(Limit, ThrottledWaits))],
) -> String {
    let Some((index, (limit, line))) = rows.first() else {
        return "No limit held a task back.".to_owned();
    };
    let (sum, waited) = (line.held.sum(), throttling.waited[*index]);
    let (longest, from, _) = line.longest.unwrap_or_default();
    format!(
        "{} held {} back for {sum} in {} ({} of its waiting). The longest time was {longest}, in \
         a wait from {} on.",
        limit.words(header),
        name(header, &throttling.keys.labels[*index]),
        counted(line.held.count(), "wait"),
        percent(sum.0, waited.0),
        seconds(from),
    )
}

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let header = &recording.header;
    let throttling = Throttling::new(header, scope, scope.by.unwrap_or(By::Name));
    let throttling = Followed::over(recording, scope, throttling);
    let title = "Waits that a limit caused";
    let lines = throttling.lines.iter().enumerate();
    let mut rows: Vec<(usize, &(Limit, ThrottledWaits))> =
        lines.flat_map(|(index, limits)| limits.iter().map(move |limit| (index, limit))).collect();
    rows.sort_by_key(|(_, (_, line))| std::cmp::Reverse(line.held.sum()));
    out.answer(&answer(header, &throttling, &rows))?;
    throttling.keys.server_first(scope, &mut rows, |(line, _)| *line);
    out.table(&Table { key: "throttled", title, columns: COLUMNS, layout: Layout::Table })?;
    for (index, (limit, line)) in rows {
        let (longest, from, to) = line.longest.unwrap_or_default();
        out.row(&[
            Cell::label(&throttling.keys.labels[index]),
            Cell::Text(&limit.words(header)),
            Cell::Count(line.held.count()),
            Cell::Time(line.held.sum()),
            Cell::part(line.held.sum(), throttling.waited[index]),
            Cell::Time(line.held.mean()),
            Cell::Time(longest),
            Cell::At(from),
            Cell::At(to),
        ])?;
    }
    let title = "Limits in the recording";
    out.table(&Table { key: "limits", title, columns: LIMITS, layout: Layout::Table })?;
    for group in &header.groups {
        if let Some(limit) = &group.spec.bandwidth {
            out.row(&[
                Cell::Text(&group.spec.name),
                Cell::Time(limit.quota),
                Cell::Time(limit.period),
            ])?;
        }
    }
    if let Some(runtime) = header.knobs.get("sched_rt_runtime_us") {
        let period = header.knobs.get("sched_rt_period_us").map_or("?", String::as_str);
        out.note(&format!(
            "real-time tasks: sched_rt_runtime_us={runtime} of sched_rt_period_us={period}"
        ))?;
    }
    if header.capabilities.has(Capability::Throttling) {
        return Ok(());
    }
    out.note(
        "inferred: a throttled group whose CPU others use meanwhile looks like a preemption. \
         Recordings by bpf on Linux \
         6.18 or later, and simulated ones, report throttling as such",
    )
}
