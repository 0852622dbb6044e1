//! The longest waits, each with who ran meanwhile and why.

use super::follow::{Began, Followed, Follower, Listener, Occupant, Wait};
use super::show::{Cell, Column, Entry, Found, Layout, Output, Table, column};
use super::throttle::{self, Limit};
use super::{Analysis, Occupancy, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::{CpuId, CpuSet, Ns, SchedEvent, TaskId, Waker};
use std::cmp::Reverse;
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry = Entry::finding::<Worst>(
    "worst",
    "The N longest waits: who waited, how long, who ran meanwhile, why",
    find,
)
.taking("N");

/// How many when no number is given.
const TOP: usize = 10;

/// One wait with all that is known about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Who waited.
    pub task: TaskId,
    /// Since when.
    pub from: Ns,
    /// When it ran.
    pub to: Ns,
    /// Where it ran.
    pub cpu: CpuId,
    /// How it began.
    pub began: Began,
    /// The run queues on which it waited, without repetition.
    pub queues: Vec<CpuId>,
    /// Who was on the CPU of its run queue meanwhile, longest first. With `throttled` this adds up
    /// to the wait.
    pub meanwhile: Vec<(Occupant, Ns)>,
    /// For how long of it events say that it was throttled.
    pub throttled: Ns,
    /// The limit that held it back, reported or inferred, and for how long.
    pub held: Option<(Limit, Ns)>,
    /// The CPU on which it could have run and which idled longest meanwhile.
    pub idled: Option<(CpuId, Ns)>,
}

impl Case {
    /// How long it waited, throttled time included.
    pub fn length(&self) -> Ns {
        self.to.saturating_sub(self.from)
    }
}

/// Keeps the longest waits that end in the window.
#[derive(Clone, Debug)]
pub struct Worst {
    header: Header,
    scope: Scope,
    top: usize,
    occupancy: Occupancy,
    /// Those of the server first, where one was named; then the longest first, of equal ones the
    /// earlier.
    pub cases: Vec<Case>,
}

impl Analysis for Worst {
    const NAME: &'static str = "the list of the longest waits";
    const NEEDS: &'static [Capability] = &[Capability::Preempted, Capability::AllTasks];
}

impl Worst {
    /// Keeps `top` waits of the tasks of `header`.
    pub fn new(header: &Header, scope: &Scope, top: usize) -> Worst {
        let (header, scope) = (header.clone(), scope.clone());
        let occupancy = Occupancy::default();
        Worst { header, scope, top, occupancy, cases: Vec::new() }
    }

    fn case(&self, wait: &Wait<'_>) -> Case {
        let mut meanwhile: Vec<(Occupant, Ns)> = Vec::new();
        let mut queues: Vec<CpuId> = Vec::new();
        wait.each_part(|part, end| {
            if !queues.contains(&part.cpu) {
                queues.push(part.cpu);
            }
            if part.throttled {
                return;
            }
            self.occupancy.over(part.cpu, part.since, end, |who, time| {
                match meanwhile.iter_mut().find(|entry| entry.0 == who) {
                    Some(entry) => entry.1 += time,
                    None => meanwhile.push((who, time)),
                }
            });
        });
        meanwhile.sort_by_key(|&(who, time)| (Reverse(time), who));
        Case {
            task: wait.task,
            from: wait.from,
            to: wait.to,
            cpu: wait.cpu,
            began: wait.began,
            queues,
            meanwhile,
            throttled: wait.throttled,
            held: throttle::held(&self.header, &self.occupancy, wait),
            idled: self.idled(wait),
        }
    }

    /// The idle CPU that would have been allowed. Without a known mask nothing is claimed.
    fn idled(&self, wait: &Wait<'_>) -> Option<(CpuId, Ns)> {
        let info = &self.header.tasks[wait.task.index()];
        let set = self.header.groups.get(info.group.index()).and_then(|group| group.spec.cpus);
        let allowed = info.affinity.and(&set.unwrap_or(CpuSet::ALL));
        let elsewhere = |cpu: &CpuId| info.known && !wait.parts.iter().any(|part| part.cpu == *cpu);
        let cpus =
            (0..self.header.topology.cpus()).map(CpuId::from).filter(|&cpu| allowed.contains(cpu));
        let idle =
            cpus.filter(elsewhere).map(|cpu| (cpu, self.occupancy.idle(cpu, wait.from, wait.to)));
        idle.filter(|(_, time)| *time > Ns::ZERO).max_by_key(|&(cpu, time)| (time, Reverse(cpu)))
    }
}

impl Listener for Worst {
    fn occupied(&mut self, cpu: CpuId, at: Ns, who: Occupant) {
        self.occupancy.note(cpu, at, who);
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        if !self.scope.at(wait.to) || !self.scope.task(wait.task) || !self.scope.on(wait.cpu) {
            return;
        }
        let length = wait.total();
        if length == Ns::ZERO {
            return;
        }
        let of = |case: &Case| (self.scope.leads(case.task), case.length());
        let new = (self.scope.leads(wait.task), length);
        let full = self.cases.len() == self.top;
        if full && self.cases.last().is_none_or(|last| of(last) >= new) {
            return;
        }
        let at = self.cases.partition_point(|case| of(case) >= new);
        self.cases.insert(at, self.case(wait));
        self.cases.truncate(self.top);
    }

    fn after(&mut self, follower: &Follower, _event: &SchedEvent) {
        self.occupancy.tidy(follower);
    }
}

/// A task as people read it: `redis-server[4711]`.
fn name(header: &Header, task: TaskId) -> String {
    let info = &header.tasks[task.index()];
    format!("{}[{}]", info.comm, info.tid)
}

fn with_policy(header: &Header, task: TaskId) -> String {
    let info = &header.tasks[task.index()];
    let nice =
        if info.nice.get() == 0 { String::new() } else { format!(", nice {}", info.nice.get()) };
    format!("{} ({}{nice})", name(header, task), header.policy_of(info))
}

/// `62.1 %`, of `whole`.
fn percent(part: Ns, whole: Ns) -> String {
    let tenths =
        (u128::from(part.0) * 1_000 + u128::from(whole.0 / 2)) / u128::from(whole.0.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Who ran meanwhile, in words.
fn meanwhile(header: &Header, case: &Case) -> String {
    let who = |who: Occupant| match who {
        Occupant::Task(task) => name(header, task),
        Occupant::Idle => "<idle>".to_owned(),
        Occupant::Unknown => "<unknown>".to_owned(),
    };
    let mut parts: Vec<String> = Vec::new();
    if case.throttled > Ns::ZERO {
        parts.push(format!(
            "<throttled> {} ({})",
            case.throttled,
            percent(case.throttled, case.length())
        ));
    }
    for &(occupant, time) in case.meanwhile.iter().take(4) {
        parts.push(format!("{} {} ({})", who(occupant), time, percent(time, case.length())));
    }
    if case.meanwhile.len() > 4 {
        let rest = case.meanwhile[4..].iter().map(|&(_, time)| time).sum();
        parts.push(format!(
            "{} others {} ({})",
            case.meanwhile.len() - 4,
            rest,
            percent(rest, case.length())
        ));
    }
    parts.join(", ")
}

/// Why, in words: how it began, what held the task back, what it stood behind, and what could have
/// been.
fn why(header: &Header, case: &Case) -> String {
    let mut text = match case.began {
        Began::Woken { on, by } => {
            let by = match by {
                Waker::Task(task) | Waker::InlineSoftirq(task) => {
                    format!("by {}", name(header, task))
                }
                Waker::SoftIrq => "by a softirq".to_owned(),
                Waker::HardIrq => "by an interrupt".to_owned(),
                Waker::Unknown => "by an unknown task".to_owned(),
            };
            format!("woken on {on} {by}")
        }
        Began::Preempted { by: Some(by) } => format!("preempted by {}", with_policy(header, by)),
        Began::Preempted { by: None } => "taken off the CPU, which then idled".to_owned(),
    };
    let first = case.meanwhile.first().copied();
    if let Some((limit, time)) = case.held {
        text += &format!("; held back for {time} by {}", limit.words(header));
    } else if let Some((Occupant::Task(task), _)) = first {
        let policy = header.policy_of(&header.tasks[case.task.index()]);
        if !matches!(case.began, Began::Preempted { by: Some(by) } if by == task) {
            text += &format!("; stood behind {}", with_policy(header, task));
        }
        text += &format!("; its own policy is {policy}");
    } else if let Some((Occupant::Idle, _)) = first {
        text += "; its own CPU idled: an idle CPU slow to wake, a stolen CPU, or an unseen limit";
    }
    if let Some((cpu, time)) = case.idled
        && case.held.is_none()
    {
        text += &format!("; {cpu}, where it may run, idled for {time} of it");
    }
    if case.queues.len() > 1 {
        let queues: Vec<String> = case.queues.iter().map(ToString::to_string).collect();
        text += &format!("; waited on {}", queues.join(", then "));
    }
    text
}

const COLUMNS: &[Column] = &[
    column("rank", ""),
    column("task", "who waited"),
    column("waited_ns", "waited"),
    column("from_ns", "from"),
    column("to_ns", "until"),
    column("cpu", "ran on"),
    column("began", "after"),
    column("meanwhile", "meanwhile"),
    column("why", "why"),
];

const MEANWHILE: &[Column] = &[
    column("rank", ""),
    column("who", "who ran"),
    column("time_ns", "time"),
    column("share", "of the wait"),
];

fn find<'a>(recording: &'a Recording, scope: &'a Scope) -> Found<'a> {
    let header = &recording.header;
    let worst = Worst::new(header, scope, scope.top.unwrap_or(TOP));
    let cases = Followed::over(recording, scope, worst).cases;
    Box::new(move |out| show(header, &cases, out))
}

fn show(header: &Header, cases: &[Case], out: &mut dyn Output) -> io::Result<()> {
    let title = "Longest waits";
    out.table(&Table { key: "worst", title, columns: COLUMNS, layout: Layout::Paragraphs })?;
    for (rank, case) in cases.iter().enumerate() {
        let began =
            if matches!(case.began, Began::Preempted { .. }) { "preemption" } else { "wakeup" };
        out.row(&[
            Cell::Count(rank as u64 + 1),
            Cell::Task(case.task),
            Cell::Time(case.length()),
            Cell::At(case.from),
            Cell::At(case.to),
            Cell::Cpu(case.cpu),
            Cell::Text(began),
            Cell::Text(&meanwhile(header, case)),
            Cell::Text(&why(header, case)),
        ])?;
    }
    let title = "Who ran during the longest waits";
    out.table(&Table { key: "meanwhile", title, columns: MEANWHILE, layout: Layout::Data })?;
    for (rank, case) in cases.iter().enumerate() {
        let rank = Cell::Count(rank as u64 + 1);
        if case.throttled > Ns::ZERO {
            let share = Cell::part(case.throttled, case.length());
            out.row(&[rank, Cell::Text("<throttled>"), Cell::Time(case.throttled), share])?;
        }
        for &(who, time) in &case.meanwhile {
            out.row(&[
                rank,
                Cell::occupant(who),
                Cell::Time(time),
                Cell::part(time, case.length()),
            ])?;
        }
    }
    if !header.capabilities.has(Capability::WakeTimes) {
        out.note("the recording has no wakeup times: only waits after preemptions are known")?;
    }
    Ok(())
}
