//! What a busy hardware thread costs the other one of its core, from a recording: the CPU time of
//! equal activations that began beside a busy sibling, against those that began beside an idle one.
//!
//! An activation is from the first switch to a task behind its sleep to the next sleep. Equal are
//! those of one task that sent, received, looked and woke equally often. A sibling comes and goes
//! while an activation lasts, and one that lasts longer meets more of that, so activations are
//! parted by what could not depend on them: whether the sibling was busy when they began. Work that
//! takes CPU time `a` beside an idle sibling and `b` beside a busy one is `a + y b`. The speed `y`
//! is the one with which both parts of each set of equal activations are the same work in the
//! mean:
//!
//! ```text
//! y = sum w (a of idle - a of busy) / sum w (b of busy - b of idle)
//! w = n of idle * n of busy / (n * variance)
//! ```
//!
//! Its error is two standard errors of that ratio, as much wider as the tasks differ among each
//! other by more than theirs.

use crate::{Capability, Header, Recording};
use schedlab_model::{
    CpuId, EventKind, EventSink, FULL_SPEED, Fact, FactKind, LEAST_SMT_YIELD, Ns, PrevState,
    SchedEvent, TaskId, Topology, Waker,
};
use std::collections::BTreeMap;
use std::fmt;

/// How fast a hardware thread runs: what it does in a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speed(u16);

impl Default for Speed {
    fn default() -> Speed {
        Speed::FULL
    }
}

impl Speed {
    /// Beside an idle thread.
    pub const FULL: Speed = Speed(FULL_SPEED);

    /// Returns the speed of so many thousandths of the full one, within what makes sense: the work
    /// of a recording is cut to the least at most.
    pub fn of_permille(permille: u16) -> Speed {
        Speed(permille.clamp(LEAST_SMT_YIELD, FULL_SPEED))
    }

    /// Returns it in thousandths.
    pub fn permille(self) -> u16 {
        self.0
    }

    /// Returns the work that is done in a time: the time that it takes at full speed.
    pub fn work(self, time: Ns) -> Ns {
        match self.0 {
            FULL_SPEED => time,
            speed => Ns((u128::from(time.0) * u128::from(speed) / u128::from(FULL_SPEED)) as u64),
        }
    }

    /// Returns the least time in which so much is done.
    pub fn time(self, work: Ns) -> Ns {
        match self.0 {
            FULL_SPEED => work,
            speed => {
                let time =
                    (u128::from(work.0) * u128::from(FULL_SPEED)).div_ceil(u128::from(speed));
                Ns(u64::try_from(time).unwrap_or(u64::MAX))
            }
        }
    }
}

/// Which CPUs have a busy thread beside them.
#[derive(Clone, Debug)]
pub struct Beside {
    /// By CPU: the other threads of its core.
    others: Vec<Vec<CpuId>>,
    busy: Vec<bool>,
    slowed: Vec<bool>,
    speed: Speed,
}

impl Beside {
    /// Returns the CPUs of a machine, all idle. `speed`: that beside a busy thread.
    pub fn new(topology: &Topology, speed: Speed) -> Beside {
        if speed == Speed::FULL {
            return Beside { others: Vec::new(), busy: Vec::new(), slowed: Vec::new(), speed };
        }
        Beside { speed, ..Beside::watching(topology) }
    }

    /// The same where the speed is not known.
    fn watching(topology: &Topology) -> Beside {
        let cpus = topology.cpus();
        let others = (0..cpus).map(|cpu| topology.siblings(CpuId::from(cpu))).collect();
        Beside { others, busy: vec![false; cpus], slowed: vec![false; cpus], speed: Speed::FULL }
    }

    /// A CPU is busy or idle from now on. Returns the threads that have a busy one beside them
    /// now, or no longer: to be told to [`Beside::slow`] when what they did before is accounted.
    pub fn set(&mut self, cpu: CpuId, busy: bool) -> Vec<(CpuId, bool)> {
        if self.busy.get(cpu.index()).is_none_or(|was| *was == busy) {
            return Vec::new();
        }
        self.busy[cpu.index()] = busy;
        let slowed = |other: &CpuId| {
            self.others[other.index()].iter().any(|beside| self.busy[beside.index()])
        };
        let others = self.others[cpu.index()].iter();
        let changed = others.map(|other| (*other, slowed(other)));
        changed.filter(|(other, slowed)| self.slowed[other.index()] != *slowed).collect()
    }

    /// What [`Beside::set`] returned is so from now on.
    pub fn slow(&mut self, cpu: CpuId, slowed: bool) {
        self.slowed[cpu.index()] = slowed;
    }

    /// Returns whether a CPU is beside a busy thread.
    fn is_slowed(&self, cpu: CpuId) -> bool {
        self.slowed[cpu.index()]
    }

    /// Returns the speed of a CPU.
    pub fn speed(&self, cpu: CpuId) -> Speed {
        match self.slowed.get(cpu.index()) {
            Some(true) => self.speed,
            _ => Speed::FULL,
        }
    }
}

/// Counts of what an activation does are compared up to this many.
const COUNTED: u8 = 15;
/// What is not shown of the speed: two threads of a core that had less than half of its speed
/// each would do less than one.
pub const UNSHOWN: f64 = 0.5;
/// How long each task ran beside an idle thread of its core, and beside a busy one.
#[derive(Clone, Debug)]
pub struct BesideTimes {
    beside: Beside,
    /// By CPU: who runs there, and since when.
    current: Vec<Option<(TaskId, Ns)>>,
    times: Vec<[Ns; 2]>,
}

impl BesideTimes {
    /// Returns what watches so many tasks.
    pub fn new(topology: &Topology, tasks: usize) -> BesideTimes {
        BesideTimes {
            beside: Beside::watching(topology),
            current: vec![None; topology.cpus()],
            times: vec![[Ns::ZERO; 2]; tasks],
        }
    }

    /// Returns which part of their time some tasks ran beside a busy thread; `None`: they did not
    /// run.
    pub fn part(&self, tasks: impl Iterator<Item = usize>) -> Option<f64> {
        let of = |sum: [u64; 2], task: usize| {
            let [idle, busy] = self.times[task];
            [sum[0] + idle.0, sum[1] + busy.0]
        };
        let [idle, busy] = tasks.fold([0, 0], of);
        (idle + busy > 0).then(|| busy as f64 / (idle + busy) as f64)
    }

    fn charge(&mut self, now: Ns, cpu: CpuId) {
        if let Some((task, since)) = &mut self.current[cpu.index()] {
            let part = usize::from(self.beside.is_slowed(cpu));
            self.times[task.index()][part] += now.saturating_sub(*since);
            *since = now;
        }
    }
}

impl EventSink for BesideTimes {
    fn event(&mut self, event: &SchedEvent) {
        let EventKind::Switch { next, .. } = event.kind else { return };
        self.charge(event.at, event.cpu);
        self.current[event.cpu.index()] = next.map(|task| (task, event.at));
        for (other, slowed) in self.beside.set(event.cpu, next.is_some()) {
            self.charge(event.at, other);
            self.beside.slow(other, slowed);
        }
    }
}

/// A set of equal activations with fewer of one beginning says nothing: of so few not even their
/// own spread is known. Chosen: two standard errors of so many are 2.3 by Student's distribution.
const FEW: f64 = 10.0;
/// Activations that began beside an idle and beside a busy sibling, of one task, below which its
/// own estimate says nothing of how tasks differ. Chosen: the standard error of a mean is itself
/// known to a tenth then.
const ENOUGH: u64 = 50;

/// At what speed a hardware thread ran while another one of its core was busy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SiblingSpeed {
    /// As a part of the speed beside an idle one.
    pub speed: f64,
    /// Two standard errors.
    pub error: f64,
    /// Activations that were compared: begun beside an idle sibling, and beside a busy one.
    pub activations: [u64; 2],
    /// The tasks that show it.
    pub tasks: usize,
}

impl SiblingSpeed {
    /// Returns by what part of it the true speed may be another than the one of the replay.
    pub fn error(&self) -> f64 {
        match self.speed() {
            Speed::FULL => (1.0 - (self.speed - self.error)).clamp(0.0, UNSHOWN),
            shown => {
                (self.error / (f64::from(shown.permille()) / f64::from(FULL_SPEED))).min(UNSHOWN)
            }
        }
    }

    /// Returns the speed with which the recording is replayed: the one that it shows, or the full
    /// one where it does not show that there is a difference.
    pub fn speed(&self) -> Speed {
        if self.speed + self.error >= 1.0 {
            return Speed::FULL;
        }
        Speed::of_permille((self.speed.max(0.0) * f64::from(FULL_SPEED)).round() as u16)
    }
}

impl fmt::Display for SiblingSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [idle, busy] = self.activations;
        write!(
            f,
            "beside a busy thread of its core a hardware thread ran at {:.2} ± {:.2} of its speed \
             ({busy} activations of {} tasks that began so, {idle} equal ones that began beside an \
             idle one)",
            self.speed, self.error, self.tasks
        )?;
        if self.speed() == Speed::FULL {
            write!(f, ": no difference is shown, so it is replayed with none")?;
        }
        Ok(())
    }
}

/// What an activation did: the same numbers are equal activations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct Deeds {
    sends: u8,
    receives: u8,
    looks: u8,
    wakes: u8,
}

/// One that has not ended.
#[derive(Clone, Copy, Default, Debug)]
struct Open {
    deeds: Deeds,
    /// The sibling was busy when it began.
    beside: bool,
    /// CPU time beside an idle sibling, and beside a busy one.
    spent: [Ns; 2],
}

#[derive(Clone, Copy, Default, Debug)]
struct Task {
    /// Where it runs, since when, and whether beside a busy sibling.
    running: Option<(CpuId, Ns, bool)>,
    open: Option<Open>,
    /// It was seen to sleep: what it does next has a beginning.
    slept: bool,
}

/// Sums over activations of one beginning.
#[derive(Clone, Copy, Default, Debug)]
struct Sums {
    count: f64,
    /// Of both times, of their squares and of their product.
    plain: f64,
    beside: f64,
    plain2: f64,
    beside2: f64,
    product: f64,
}

impl Sums {
    fn add(&mut self, spent: [Ns; 2]) {
        let [plain, beside] = spent.map(|time| time.0 as f64);
        self.count += 1.0;
        self.plain += plain;
        self.beside += beside;
        self.plain2 += plain * plain;
        self.beside2 += beside * beside;
        self.product += plain * beside;
    }

    /// The variance of the mean work at this speed.
    fn variance_of_mean(&self, speed: f64) -> f64 {
        let mean = (self.plain + speed * self.beside) / self.count;
        let squares = self.plain2 + 2.0 * speed * self.product + speed * speed * self.beside2;
        let variance = (squares / self.count - mean * mean).max(0.0);
        variance / (self.count - 1.0).max(1.0)
    }
}

/// The two parts of a set of equal activations: begun beside an idle sibling, and a busy one.
type Parts = [Sums; 2];

/// Reads a recording.
struct Reader {
    beside: Beside,
    current: Vec<Option<TaskId>>,
    tasks: Vec<Task>,
    equal: BTreeMap<(TaskId, Deeds), Parts>,
}

/// Returns how fast hardware threads ran beside busy ones. `None`: no core has two, or the
/// recording does not show it.
pub fn sibling_speed(recording: &Recording) -> Option<SiblingSpeed> {
    let header = &recording.header;
    if !header.topology.has_siblings() || !header.capabilities.has(Capability::Preempted) {
        return None;
    }
    let mut reader = Reader::new(&recording.header);
    let mut facts = recording.facts.list.iter().peekable();
    for event in &recording.events {
        while let Some(fact) = facts.next_if(|fact| fact.at < event.at) {
            reader.fact(fact);
        }
        reader.event(event);
    }
    speed(&reader.equal)
}

impl Reader {
    fn new(header: &Header) -> Reader {
        let cpus = header.topology.cpus();
        Reader {
            beside: Beside::watching(&header.topology),
            current: vec![None; cpus],
            tasks: vec![Task::default(); header.tasks.len()],
            equal: BTreeMap::new(),
        }
    }

    fn fact(&mut self, fact: &Fact) {
        let Some(task) = fact.task else { return };
        let Some(open) = &mut self.tasks[task.index()].open else { return };
        let count = match fact.kind {
            FactKind::Send(_) => &mut open.deeds.sends,
            FactKind::Receive(_) => &mut open.deeds.receives,
            FactKind::Select { .. } => &mut open.deeds.looks,
            _ => return,
        };
        *count = (*count + 1).min(COUNTED);
    }

    fn event(&mut self, event: &SchedEvent) {
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                if let Some(prev) = prev {
                    self.stop(event.at, prev, prev_state);
                }
                self.current[event.cpu.index()] = next;
                if let Some(next) = next {
                    self.start(event.at, event.cpu, next);
                }
                self.beside_changes(event.at, event.cpu, next.is_some());
            }
            EventKind::Wake { waker, .. } => {
                if let Waker::Task(by) | Waker::InlineSoftirq(by) = waker
                    && let Some(open) = &mut self.tasks[by.index()].open
                {
                    open.deeds.wakes = (open.deeds.wakes + 1).min(COUNTED);
                }
            }
            EventKind::Steal { ns } => {
                if let Some(task) = self.current[event.cpu.index()]
                    && let Some((_, since, _)) = &mut self.tasks[task.index()].running
                {
                    *since = since.saturating_add(ns).min(event.at);
                }
            }
            // What was open may have ended.
            EventKind::Lost { .. } => {
                self.tasks.iter_mut().for_each(|task| *task = Task::default());
            }
            _ => {}
        }
    }

    /// Puts the time up to now where it belongs.
    fn charge(&mut self, now: Ns, task: TaskId) {
        let task = &mut self.tasks[task.index()];
        if let Some((_, since, beside)) = &mut task.running {
            let ran = now.saturating_sub(*since);
            *since = (*since).max(now);
            if let Some(open) = &mut task.open {
                open.spent[usize::from(*beside)] += ran;
            }
        }
    }

    fn stop(&mut self, now: Ns, task: TaskId, state: PrevState) {
        self.charge(now, task);
        let of = &mut self.tasks[task.index()];
        of.running = None;
        if state.is_runnable() == Some(true) {
            return;
        }
        of.slept = true;
        if let Some(open) = of.open.take() {
            let parts = self.equal.entry((task, open.deeds)).or_default();
            parts[usize::from(open.beside)].add(open.spent);
        }
    }

    fn start(&mut self, now: Ns, cpu: CpuId, task: TaskId) {
        let beside = self.beside.is_slowed(cpu);
        let of = &mut self.tasks[task.index()];
        of.running = Some((cpu, now, beside));
        if std::mem::take(&mut of.slept) {
            of.open = Some(Open { beside, ..Open::default() });
        }
    }

    /// A CPU is busy or idle now: those that run on the other threads of its core are slower or
    /// faster from now on.
    fn beside_changes(&mut self, now: Ns, cpu: CpuId, busy: bool) {
        for (other, slowed) in self.beside.set(cpu, busy) {
            self.beside.slow(other, slowed);
            let Some(task) = self.current[other.index()] else { continue };
            self.charge(now, task);
            if let Some((_, _, was)) = &mut self.tasks[task.index()].running {
                *was = slowed;
            }
        }
    }
}

/// How much a set of equal activations says: one whose work differs more says less.
fn weight([idle, busy]: &Parts) -> f64 {
    let pairs = idle.count * busy.count / (idle.count + busy.count);
    // Of the CPU times as they were: what is to be found is not in it. Nothing is known better
    // than to a thousandth.
    let variance = |sums: &Sums| sums.variance_of_mean(1.0) * sums.count;
    let mean = (idle.plain + idle.beside + busy.plain + busy.beside) / (idle.count + busy.count);
    let common =
        (variance(idle) * idle.count + variance(busy) * busy.count) / (idle.count + busy.count);
    pairs / common.max((mean / 1e3).powi(2)).max(1.0)
}

/// The two sums of the ratio over sets of equal activations.
#[derive(Clone, Copy, Default, Debug)]
struct Ratio {
    above: f64,
    below: f64,
}

impl Ratio {
    fn of<'a>(sets: impl Iterator<Item = &'a Parts>) -> Ratio {
        let mut sums = Ratio::default();
        for parts @ [idle, busy] in sets {
            let w = weight(parts);
            sums.above += w * (idle.plain / idle.count - busy.plain / busy.count);
            sums.below += w * (busy.beside / busy.count - idle.beside / idle.count);
        }
        sums
    }

    /// By how much the work of the two parts differs at this speed.
    fn left(self, speed: f64) -> f64 {
        self.above - speed * self.below
    }
}

/// The variance of that difference.
fn variance<'a>(sets: impl Iterator<Item = &'a Parts>, speed: f64) -> f64 {
    let of_set = |parts: &Parts| {
        let [idle, busy] = parts.map(|sums| sums.variance_of_mean(speed));
        weight(parts).powi(2) * (idle + busy)
    };
    sets.map(of_set).sum()
}

fn speed(equal: &BTreeMap<(TaskId, Deeds), Parts>) -> Option<SiblingSpeed> {
    let both = |parts: &&Parts| parts.iter().all(|sums| sums.count >= FEW);
    let ratio = Ratio::of(equal.values().filter(both));
    if ratio.below <= 0.0 {
        return None;
    }
    let speed = ratio.above / ratio.below;
    let error = 2.0 * variance(equal.values().filter(both), speed).sqrt() / ratio.below;
    let mut tasks: BTreeMap<TaskId, [u64; 2]> = BTreeMap::new();
    for ((task, _), parts) in equal.iter().filter(|(_, parts)| both(parts)) {
        let counts = tasks.entry(*task).or_default();
        counts.iter_mut().zip(parts).for_each(|(count, sums)| *count += sums.count as u64);
    }
    let sum = |part: usize| tasks.values().map(|of| of[part]).sum();
    let own = tasks.iter().filter(|(_, of)| of.iter().all(|count| *count >= ENOUGH));
    let own = own.map(|(&task, _)| {
        let from = equal.range((task, Deeds::default())..);
        let sets = from.take_while(|((of, _), _)| *of == task).map(|(_, parts)| parts);
        let (left, variance) =
            (Ratio::of(sets.clone().filter(both)).left(speed), variance(sets.filter(both), speed));
        left.powi(2) / variance.max(f64::MIN_POSITIVE)
    });
    Some(SiblingSpeed {
        speed,
        error: error * apart(own),
        activations: [sum(0), sum(1)],
        tasks: tasks.len(),
    })
}

/// Returns by how many times their errors tasks differ from the common speed; 1 at least. `own`:
/// of each the square of what is left of it there, in standard errors. (A speed of its own is
/// nothing of a task whose activations last longer than its neighbours': both of its parts met
/// the same.)
fn apart(own: impl Iterator<Item = f64>) -> f64 {
    let (count, squares) = own.fold((0u32, 0.0), |(count, sum), of| (count + 1, sum + of));
    if count < 2 { 1.0 } else { (squares / f64::from(count - 1)).sqrt().max(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_time_is_worth_takes_that_time() {
        for permille in [100, 333, 600, 999, 1_000] {
            let speed = Speed::of_permille(permille);
            for time in [0, 1, 7, 999, 1_000, 123_456_789, 1 << 60] {
                let work = speed.work(Ns(time));
                assert!(work <= Ns(time) && speed.time(work) <= Ns(time), "{permille} {time}");
                assert_eq!(speed.work(speed.time(work)), work, "{permille} {time}");
            }
        }
        assert_eq!(Speed::of_permille(0), Speed::of_permille(LEAST_SMT_YIELD));
        assert_eq!(Speed::of_permille(2_000), Speed::FULL);
        assert_eq!(Speed::of_permille(100).time(Ns(u64::MAX)), Ns(u64::MAX));
    }

    #[test]
    fn a_thread_is_slowed_by_any_other_one_of_its_core() {
        let slow = Speed::of_permille(600);
        let mut beside = Beside::new(&Topology::regular(1, 1, 2, 4), slow);
        let mut set = |cpu: u32, busy| {
            let changes = beside.set(CpuId(cpu), busy);
            changes.iter().for_each(|&(cpu, slowed)| beside.slow(cpu, slowed));
            changes.iter().map(|(cpu, slowed)| (cpu.0, *slowed)).collect::<Vec<_>>()
        };
        assert_eq!(set(0, true), [(1, true), (2, true), (3, true)]);
        assert_eq!(set(0, true), []);
        assert_eq!(set(1, true), [(0, true)]);
        assert_eq!(set(0, false), [(1, false)], "2 and 3 have 1 beside them");
        assert_eq!(beside.speed(CpuId(2)), slow);
        assert_eq!(beside.speed(CpuId(4)), Speed::FULL);
        let mut none = Beside::new(&Topology::regular(1, 1, 2, 2), Speed::FULL);
        assert_eq!((none.set(CpuId(0), true), none.speed(CpuId(1))), (vec![], Speed::FULL));
    }

    /// Two tasks that are five of their standard errors away from the common speed.
    #[test]
    fn tasks_that_differ_widen_the_error() {
        assert_eq!(apart([25.0, 25.0].into_iter()), 50f64.sqrt());
        assert_eq!(apart([0.25, 0.5].into_iter()), 1.0);
        assert_eq!(apart([25.0].into_iter()), 1.0);
    }
}
