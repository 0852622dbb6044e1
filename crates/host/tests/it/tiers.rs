//! The same run seen by BPF, tracepoints and context-switch records at once. Where that is not
//! allowed the test says so by name and passes, except under `CI=true` as root, where it must work.
#![allow(clippy::print_stderr)]

use crate::common::{Kept, Tids, allowed, gettid, looking, now, pin_to};
use schedlab_host::{Backend, RecordRequest, RecordUntil, record};
use schedlab_model::{CpuId, EventKind, Ns, PrevState, SchedEvent, TaskId, Waker};
use schedlab_testing::{settles, turn};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// What one recorder saw, with thread ids instead of its own numbers and the clock instead of its
/// own zero.
type Seen = Kept<Box<dyn FnMut(&SchedEvent, &Tids) + Send>>;

/// Counts itself in `begun` when the recorder hands out its first event.
fn counted(begun: &Arc<AtomicU32>) -> Seen {
    let mut begun = Some(Arc::clone(begun));
    looking(Box::new(move |_, _| {
        if let Some(begun) = begun.take() {
            begun.fetch_add(1, Ordering::Release);
        }
    }))
}

/// Waits until `recorders` record, however long loading takes here. A recorder that cannot start is
/// not waited for for ever: its own error comes out later.
fn begun(recorders: u32, begun: &AtomicU32, ended: impl Fn() -> bool) {
    while begun.load(Ordering::Acquire) < recorders && !ended() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

const ECHOES: usize = 3000;
/// Two recorders look at the clock at one switch this near to each other, or a hypervisor came
/// between them.
const SAME_MOMENT_NS: u64 = 100_000;

/// (CPU, who stopped, who runs now) of a switch.
type Step = (u32, u32, u32);

/// One wait for the CPU.
struct Wait {
    tid: u32,
    /// After a wakeup, or after a preemption.
    woken: bool,
    end: u64,
    length: u64,
}

impl Seen {
    fn tid(&self, task: Option<TaskId>) -> u32 {
        task.map_or(0, |task| self.tids[&task])
    }

    /// The switches from or to `own`, with their time.
    fn switches(&self, own: &[u32], from: u64, to: u64) -> Vec<(Step, u64)> {
        let mut all = Vec::new();
        for event in &self.events {
            let EventKind::Switch { prev, next, .. } = event.kind else { continue };
            let (prev, next, at) = (self.tid(prev), self.tid(next), self.origin() + event.at.0);
            if (from..to).contains(&at) && (own.contains(&prev) || own.contains(&next)) {
                all.push(((event.cpu.0, prev, next), at));
            }
        }
        all
    }

    /// Tasks that leave no trace: there are machines on which nothing is told of what happens while
    /// they run (threads of process 1 in some virtual machines). They are switched to and never
    /// from, or it is not known in which state.
    fn untraced(&self) -> BTreeSet<u32> {
        let known = self.traced();
        let mut all = BTreeSet::new();
        for event in &self.events {
            let EventKind::Switch { prev, next, .. } = event.kind else { continue };
            all.extend([self.tid(prev), self.tid(next)]);
        }
        // Who came last is on its CPU still.
        let last: BTreeMap<CpuId, u32> = (self.events.iter())
            .filter_map(|event| match event.kind {
                EventKind::Switch { next, .. } => Some((event.cpu, self.tid(next))),
                _ => None,
            })
            .collect();
        all.into_iter()
            .filter(|tid| !known.contains(tid) && !last.values().any(|one| one == tid))
            .collect()
    }

    /// Who was seen to leave a CPU, in a state that was told.
    fn traced(&self) -> BTreeSet<u32> {
        let told = |event: &SchedEvent| match event.kind {
            EventKind::Switch { prev, prev_state, .. } if prev_state != PrevState::Unknown => {
                Some(self.tid(prev))
            }
            _ => None,
        };
        self.events.iter().filter_map(told).collect()
    }

    /// When `cpu` is seen to leave a thread that was not the last to come: who had come, and leaves
    /// no trace. A thread may have the last word on a CPU and leave no trace all the same.
    fn gaps(&self, cpu: CpuId) -> Vec<(Ns, u32)> {
        let (mut on, mut gaps) = (None, Vec::new());
        for event in self.events.iter().filter(|event| event.cpu == cpu) {
            let EventKind::Switch { prev, next, .. } = event.kind else { continue };
            gaps.extend(on.filter(|on| *on != self.tid(prev)).map(|on| (event.at, on)));
            on = Some(self.tid(next));
        }
        gaps
    }

    /// How often a switch of `cpu` was not seen, because a thread ran that leaves no trace.
    fn unseen(&self, cpu: CpuId, from: u64, to: u64) -> usize {
        let traced = self.traced();
        let within = |at: Ns| (from..to).contains(&(self.origin() + at.0));
        let gaps = self.gaps(cpu).into_iter().filter(|(at, _)| within(*at));
        gaps.inspect(|gap| assert!(!traced.contains(&gap.1), "{cpu}: {gap:?} is traced")).count()
    }

    /// Each wait of `own` that ended between `from` and `to`.
    fn waits(&self, own: &[u32], from: u64, to: u64) -> Vec<Wait> {
        let mut since: BTreeMap<u32, (u64, bool)> = BTreeMap::new();
        let mut all = Vec::new();
        for event in &self.events {
            let at = self.origin() + event.at.0;
            match event.kind {
                EventKind::Wake { task, .. } => {
                    since.entry(self.tid(Some(task))).or_insert((at, true));
                }
                EventKind::Switch { prev, prev_state, next } => {
                    let (prev, next) = (self.tid(prev), self.tid(next));
                    if let Some((begin, woken)) = since.remove(&next)
                        && own.contains(&next)
                        && (from..to).contains(&at)
                    {
                        all.push(Wait { tid: next, woken, end: at, length: at - begin });
                    }
                    if matches!(prev_state, PrevState::Runnable | PrevState::RunnableInKernel) {
                        since.insert(prev, (at, false));
                    }
                }
                _ => {}
            }
        }
        all
    }

    /// On whose behalf `tid` was woken, counted.
    fn wakers(&self, tid: u32, from: u64, to: u64) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for event in &self.events {
            let EventKind::Wake { task, waker } = event.kind else { continue };
            if self.tid(Some(task)) == tid && (from..to).contains(&(self.origin() + event.at.0)) {
                let name = match waker {
                    Waker::Task(by) => format!("task {}", self.tid(Some(by))),
                    Waker::InlineSoftirq(by) => format!("softirq of {}", self.tid(Some(by))),
                    other => format!("{other:?}"),
                };
                *counts.entry(name).or_default() += 1;
            }
        }
        counts
    }
}

/// Echoes over loopback between two threads on CPU 0, a thread that works beside them, and one that
/// sleeps. The thread ids of client, server, worker and sleeper, and the time from the first to the
/// last echo.
fn load() -> ([u32; 4], u64, u64) {
    let over = AtomicBool::new(false);
    let tids: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
    let mut window = (0, 0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let begin = |slot: usize| {
        pin_to(0);
        tids[slot].store(gettid(), Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin(1);
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).is_ok_and(|n| n == 1) {
                stream.write_all(&byte).unwrap();
            }
        });
        scope.spawn(|| {
            begin(2);
            while !over.load(Ordering::Relaxed) {
                std::hint::black_box(gettid());
            }
        });
        scope.spawn(|| {
            begin(3);
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let client = scope.spawn(|| {
            begin(0);
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let from = now();
            for _ in 0..ECHOES {
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
            let to = now();
            over.store(true, Ordering::Relaxed);
            (from, to)
        });
        window = client.join().unwrap();
    });
    (tids.map(AtomicU32::into_inner), window.0, window.1)
}

/// Prints how far apart `values` are, and returns the part of them (in percent) that is at most 5
/// us.
fn within_5_us(what: &str, mut values: Vec<u64>) -> usize {
    values.sort_unstable();
    let at = |percent: usize| values[(values.len() - 1) * percent / 100];
    eprintln!(
        "{what}: {} waits, apart by {} ns (median), {} (p99), {} (most)",
        values.len(),
        at(50),
        at(99),
        at(100)
    );
    values.iter().filter(|&&apart| apart <= 5_000).count() * 100 / values.len()
}

#[test]
fn three_tiers_see_the_same_run() {
    let _turn = turn();
    settles(3, || same_run("three_tiers_see_the_same_run"));
}

fn same_run(test: &str) {
    let over = AtomicBool::new(false);
    let tiers = [Backend::Bpf, Backend::Tracepoints, Backend::Switches];
    let (mut all, mut ran) = (Vec::new(), ([0; 4], 0, 0));
    let count = Arc::new(AtomicU32::new(0));
    std::thread::scope(|scope| {
        let recorders = tiers.map(|backend| {
            let (over, count) = (&over, Arc::clone(&count));
            scope.spawn(move || {
                let request = RecordRequest {
                    backend: Some(backend),
                    ..RecordRequest::new(RecordUntil::Stopped)
                };
                let mut seen = counted(&count);
                let end = record(&request, &mut seen, &|| over.load(Ordering::Relaxed));
                (seen, end)
            })
        });
        // All three have begun when the client sends its first byte.
        begun(tiers.len() as u32, &count, || {
            recorders.iter().any(|recorder| recorder.is_finished())
        });
        ran = load();
        std::thread::sleep(Duration::from_millis(50));
        over.store(true, Ordering::Relaxed);
        all = recorders.into_iter().map(|recorder| recorder.join().unwrap()).collect();
    });
    let (own, from, to) = ran;
    let mut seen = Vec::new();
    for (of, end) in all {
        let Some(end) = allowed(test, end) else { return };
        assert_eq!(end.lost, 0);
        seen.push(of);
    }
    // Switches to and from those who leave no trace are seen by some of the three.
    let untraced: BTreeSet<u32> = seen[..2].iter().flat_map(Seen::untraced).collect();
    eprintln!("these leave no trace: {untraced:?}");
    let steps = |seen: &Seen, tier: Backend| -> Vec<Step> {
        // Context-switch records have no number of a task that is nearly gone.
        let who = |tid: u32| if tier == Backend::Switches && !own.contains(&tid) { 0 } else { tid };
        let steps = seen.switches(&own, from, to).into_iter().map(|(step, _)| step);
        let steps =
            steps.filter(|(_, prev, next)| !untraced.contains(prev) && !untraced.contains(next));
        steps.map(|(cpu, prev, next)| (cpu, who(prev), who(next))).collect()
    };
    let bpf = steps(&seen[0], Backend::Bpf);
    eprintln!("{} switches of {own:?} in {} us", bpf.len(), (to - from) / 1000);
    assert!(bpf.len() > ECHOES, "each echo is two switches at least: {}", bpf.len());
    for (other, tier) in seen.iter().zip(tiers).skip(1) {
        // An instant at the edge of the window may fall on either side of it.
        let (bpf, steps) = (steps(&seen[0], tier), steps(other, tier));
        assert!(
            steps.len().abs_diff(bpf.len()) <= 2,
            "{}: {} and {}",
            tier.name(),
            steps.len(),
            bpf.len()
        );
        let inner = &bpf[2..bpf.len() - 2];
        let found =
            (0..=4).any(|at| steps.get(at..at + inner.len()).is_some_and(|part| part == inner));
        assert!(found, "the switches by {} are not those by bpf", tier.name());
    }
    let waits: Vec<_> = seen.iter().map(|seen| seen.waits(&own, from, to)).collect();
    compare_waits(&waits, seen[0].unseen(CpuId(0), from, to));
    check_wakers(&seen, own, from, to);
}

/// Checks that BPF and tracepoints know which task woke which: the kernel wakes the peer inside the
/// sender's system call; a timer wakes the sleeper.
fn check_wakers(seen: &[Seen], own: [u32; 4], from: u64, to: u64) {
    let [client, server, _, sleeper] = own;
    for seen in &seen[..2] {
        let by = seen.wakers(server, from, to);
        eprintln!("server woken by {by:?}");
        let sender = by.get(&format!("softirq of {client}")).copied().unwrap_or(0);
        assert!(sender * 10 >= by.values().sum::<u32>() * 9, "{by:?}");
        let by = seen.wakers(sleeper, from, to);
        eprintln!("sleeper woken by {by:?}");
        let timer = by.get("HardIrq").copied().unwrap_or(0);
        assert!(timer * 10 >= by.values().sum::<u32>() * 9, "{by:?}");
    }
}

/// Waits by tier: BPF, tracepoints, context switches (which know only those after a preemption).
/// Each switch that BPF could not see may be the end or the beginning of a wait.
fn compare_waits(waits: &[Vec<Wait>], unseen: usize) {
    for (what, tier, kinds) in
        [("tracepoints", 1, &[true, false][..]), ("switches", 2, &[false][..])]
    {
        let (mut apart, mut alone) = (Vec::new(), 0);
        for theirs in waits[tier].iter().filter(|wait| kinds.contains(&wait.woken)) {
            let same = |own: &&Wait| (own.tid, own.woken) == (theirs.tid, theirs.woken);
            let own = waits[0].iter().filter(same).min_by_key(|own| own.end.abs_diff(theirs.end));
            match own.filter(|own| own.end.abs_diff(theirs.end) < SAME_MOMENT_NS) {
                Some(own) => apart.push(own.length.abs_diff(theirs.length)),
                None => alone += 1,
            }
        }
        let own = waits[0].iter().filter(|wait| kinds.contains(&wait.woken)).count();
        // An instant at the edge of the window may fall on either side of it.
        assert!(
            alone <= 1 + 2 * unseen,
            "{what}: {alone} waits that bpf has not, {unseen} switches unseen"
        );
        let missing = own.saturating_sub(apart.len());
        assert!(
            missing <= 1 + 2 * unseen,
            "{what}: {missing} of {own} missing, {unseen} switches unseen"
        );
        // The rest is a hypervisor or an interrupt between the two recorders' looks at the clock.
        let near = within_5_us(what, apart);
        assert!(near >= 95, "{what}: only {near} % within 5 us of bpf");
    }
}

/// How often a thread that sleeps again and again stopped for it, by the kernel's own count read
/// within and around the time from `from` to `to`.
struct Slept {
    cpu: CpuId,
    tid: u32,
    times: RangeInclusive<usize>,
    from: u64,
    to: u64,
}

/// How often the calling thread left its CPU because it waited for something.
fn stops() -> usize {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux");
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).expect("Linux counts them")
}

/// Sleeps on `cpu` until it has really stopped so often. A timer that fires before the sleeper is
/// off its CPU, because the hypervisor was away in between, say, stops no thread: there is no such
/// switch, and none that a recorder could miss.
fn sleep_on(cpu: CpuId, times: usize) -> Slept {
    pin_to(cpu.index());
    let (outer, from, inner) = (stops(), now(), stops());
    while stops() - inner < times {
        std::thread::sleep(Duration::from_micros(500));
    }
    // Reading them may stop it too.
    let (inner_end, to, outer_end) = (stops(), now(), stops());
    Slept { cpu, tid: gettid(), times: inner_end - inner..=outer_end - outer, from, to }
}

/// Timer wakeups on each CPU in turn, which hit it idle when nothing else runs there.
#[test]
fn bpf_sees_sleepers_on_every_cpu() {
    let _turn = turn();
    settles(3, || sleepers("bpf_sees_sleepers_on_every_cpu"));
}

fn sleepers(test: &str) {
    const SLEEPS: usize = 50;
    let over = AtomicBool::new(false);
    let count = Arc::new(AtomicU32::new(0));
    let mut seen = counted(&count);
    let mut all = Vec::new();
    let request =
        RecordRequest { backend: Some(Backend::Bpf), ..RecordRequest::new(RecordUntil::Stopped) };
    let end = std::thread::scope(|scope| {
        let recorder =
            scope.spawn(|| record(&request, &mut seen, &|| over.load(Ordering::Relaxed)));
        begun(1, &count, || recorder.is_finished());
        for cpu in schedlab_host::machine().online.iter() {
            all.push(scope.spawn(move || sleep_on(cpu, SLEEPS)).join().unwrap());
        }
        over.store(true, Ordering::Relaxed);
        recorder.join().unwrap()
    });
    let Some(end) = allowed(test, end) else { return };
    assert_eq!(end.lost, 0);
    for slept in &all {
        check_sleeper(&seen, slept);
    }
}

fn check_sleeper(seen: &Seen, slept: &Slept) {
    let Slept { cpu, tid, from, to, .. } = *slept;
    let times = *slept.times.start();
    let stops = |event: &&SchedEvent| {
        let blocks = |state: PrevState| state.is_runnable() == Some(false);
        (from..to).contains(&(seen.origin() + event.at.0))
            && matches!(event.kind, EventKind::Switch { prev, prev_state, .. }
                if seen.tid(prev) == tid && blocks(prev_state))
    };
    let stopped = seen.events.iter().filter(stops).count();
    let steps = seen.switches(&[tid], from, to).into_iter().map(|(step, _)| step);
    let begun: Vec<Step> = steps.filter(|step| step.2 == tid).collect();
    let from_idle = begun.iter().filter(|step| step.1 == 0).count();
    let (by, unseen) = (seen.wakers(tid, from, to), seen.unseen(cpu, from, to));
    eprintln!(
        "{cpu}: stopped {:?} times, woken by {by:?}, begun {} times, {from_idle} from idle; \
         {unseen} switches unseen",
        slept.times,
        begun.len()
    );
    assert!(
        slept.times.contains(&stopped),
        "{cpu}: {stopped} stops seen, by the kernel's count {:?}",
        slept.times
    );
    assert!(begun.iter().all(|step| step.0 == cpu.0), "{cpu}: {begun:?}");
    // Nothing is told of what happens while a thread runs that leaves no trace: not the wakeup, and
    // not the switch to the woken.
    assert!(begun.len() + unseen >= times, "{cpu}: {} and {unseen}", begun.len());
    let timer = by.get("HardIrq").copied().unwrap_or(0) as usize;
    assert!(timer + unseen >= times * 9 / 10, "{cpu}: {by:?}");
}

/// Such threads may be the last that came on a CPU, and their gaps are theirs all the same.
#[test]
fn who_leaves_no_trace_may_have_the_last_word() {
    let mut seen: Seen = looking(Box::new(|_, _| ()));
    let [own, hidden] = [TaskId(0), TaskId(1)];
    seen.tids = Tids::from([(own, 10), (hidden, 11)]);
    let switch = |at| SchedEvent {
        at: Ns(at),
        cpu: CpuId(0),
        kind: EventKind::Switch {
            prev: Some(own),
            prev_state: PrevState::Sleeping,
            next: Some(hidden),
        },
    };
    // Between the two `hidden` made way for `own`, which no thread saw.
    seen.events = vec![switch(5), switch(7)];
    assert_eq!((seen.gaps(CpuId(0)), seen.untraced()), (vec![(Ns(7), 11)], BTreeSet::new()));
    assert_eq!(seen.traced(), BTreeSet::from([10]));
}
