//! Xen's ARINC 653 scheduler (`sched=arinc653`): a table of windows, repeated in major frames.
//!
//! Each vCPU runs in its own window of the frame and nowhere else; a window whose vCPU sleeps is
//! left idle. One window is open at a time in the whole pool, so the scheduler is made for one
//! pCPU.
//!
//! The real table comes from a tool of the host (a system call; there is no `xl` command) and lists
//! domains' vCPUs with run times; without one the vCPUs of dom0 get 10 ms each, in the order in
//! which they are made. Here it has every task, in the order of the file, with its `slice` as its
//! run time, or the knob `window`.
//!
//! # Example
//! Two hogs, windows of 3 and 5 ms, a major frame of 10 ms: runs at 0 to 3 and 3 to 8, idle to 10,
//! and again (test `arinc653_runs_each_window_and_idles_through_the_rest`).
//!
//! # Fidelity
//! Read in `xen/common/sched/arinc653.c` of RELEASE-4.20.0 and RELEASE-4.22.0.
//!
//! | rule | real place | here | test |
//! |---|---|---|---|
//! | the vCPU of the open window runs if it can, else no task | `a653sched_do_schedule` | modelled | `arinc653_runs_each_window_and_idles_through_the_rest` |
//! | what the windows leave of a frame is idle | the same | modelled | the same |
//! | a frame starts when the decision comes (4.20: late by the timer, and so are all later ones), at whole frames since 4.21 | the same | modelled | `arinc653_frames_drift_until_4_20` |
//! | a vCPU whose pCPU is another one does not run here; it is never moved | the same, `a653sched_pick_resource` | modelled; its first pCPU is the lowest of its hard affinity, which Xen does not look at | |
//! | windows add up to no more than the frame, 64 at most | `arinc653_sched_set` | modelled: refused before the run | `arinc653_refuses_a_frame_that_is_too_short` |
//! | a new table while running | `arinc653_sched_set` | omitted | |
//! | a decision after the end of the frame stops the host (`BUG_ON`) | `a653sched_do_schedule` | omitted | |

use super::common::{Core, Table, Units, now, read_current};
use super::one_lock::{OneLock, XenRules};
use super::release::{VERSION, XenRelease};
use crate::registry::{Entry, Family, XenScheduler};
use crate::{
    CellLocks, Cmd, Cx, KnobDefault, Knobs, Pick, Prev, Rejection, TaskView, TimeKnob, Times,
    World, rows,
};
use schedlab_model::{CpuId, CpuSet, Ns, TaskId};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "xen-arinc653",
    summary: "Xen's ARINC 653 (4.12 to 4.22): fixed windows in a major frame, idle where a window \
              is not used",
    family: Family::Xen(XenScheduler::Arinc653),
    proposed_live: false,
    knobs: || rows(&[&VERSION, &WINDOW, &MAJOR_FRAME], &()),
    build: |cpus, knobs| Box::new(OneLock::<CellLocks, _>::new(Arinc653::new(cpus, knobs))),
};

const WINDOW: TimeKnob = TimeKnob {
    name: "window",
    allowed: Times::between(Ns::from_us(1), Ns::from_s(10)),
    default: KnobDefault::Is(Ns::from_ms(10)),
    doc: "run time of a vCPU in each major frame, unless its task has a `slice`",
    source: "xen/common/sched/arinc653.c, DEFAULT_TIMESLICE; runtime of an entry of the table",
};
const MAJOR_FRAME: TimeKnob = TimeKnob {
    name: "major_frame",
    allowed: Times::steps_or_off(Ns(1), Ns::from_us(1), Ns::from_s(100)),
    default: KnobDefault::Is(Ns::ZERO),
    doc: "after this much time the windows begin again, at least their sum; 0 = their sum",
    source: "xen/common/sched/arinc653.c, major_frame",
};
/// `ARINC653_MAX_DOMAINS_PER_SCHEDULE`.
const MOST_WINDOWS: usize = 64;

/// See the module.
struct Arinc653 {
    release: XenRelease,
    /// The knobs `window` and `major_frame`.
    window: Ns,
    major_frame: Ns,
    pool: CpuSet,
    units: Table<Core>,
    curr: Vec<Option<TaskId>>,
    /// Run times, by task.
    windows: Vec<i64>,
    frame: i64,
    next_frame: i64,
    /// The open window; beyond the last: none.
    index: usize,
    next_switch: i64,
}

impl Arinc653 {
    fn new(cpus: usize, knobs: &Knobs) -> Self {
        Arinc653 {
            release: knobs.get(&VERSION),
            window: knobs.get(&WINDOW),
            major_frame: knobs.get(&MAJOR_FRAME),
            pool: CpuSet::first(cpus),
            units: Table::new(),
            curr: vec![None; cpus],
            windows: Vec::new(),
            frame: 0,
            next_frame: 0,
            index: 0,
            next_switch: 0,
        }
    }

    /// Returns the run times of all tasks, and the major frame. A vCPU that may run nowhere, of
    /// another cpupool, has no window.
    fn table(&self, world: &World) -> (Vec<i64>, i64) {
        let window = |task: &TaskView| match task.affinity.is_empty() {
            true => 0,
            false => task.slice.unwrap_or(self.window).0 as i64,
        };
        let windows: Vec<i64> = world.tasks.iter().map(window).collect();
        let frame = match self.major_frame {
            Ns::ZERO => windows.iter().sum(),
            frame => frame.0 as i64,
        };
        // An empty table is asked again after a window.
        let frame = if frame == 0 { self.window.0 as i64 } else { frame };
        (windows, frame)
    }

    fn core(&self, task: TaskId) -> &Core {
        &self.units[task]
    }

    /// Opens the window of this moment.
    fn advance(&mut self, now: i64) {
        if now >= self.next_frame {
            let late = if self.release.arinc653_keeps_frames() {
                (now - self.next_frame) % self.frame
            } else {
                0
            };
            self.index = 0;
            self.next_frame = now - late + self.frame;
            self.next_switch = now - late + self.windows.first().copied().unwrap_or(self.frame);
        }
        while now >= self.next_switch && self.index < self.windows.len() {
            self.index += 1;
            self.next_switch += self.windows.get(self.index).copied().unwrap_or(0);
        }
        if self.index >= self.windows.len() {
            self.next_switch = self.next_frame;
        }
    }

    /// Puts a unit on the lowest pCPU that its affinity allows.
    fn move_over(&mut self, cx: &Cx<'_>, task: TaskId) {
        let core = self.core_mut(task);
        core.cpu = core.hard.lowest().unwrap_or(core.cpu);
        cx.push(Cmd::Moved(task, core.cpu));
    }
}

impl Units for Arinc653 {
    fn create(&mut self, cx: &Cx<'_>, task: TaskId) {
        if !self.has(task) {
            self.units.add(task, Core::new(cx.task(task), &self.pool));
            self.move_over(cx, task);
        }
    }

    fn has(&self, task: TaskId) -> bool {
        self.units.has(task)
    }

    fn core_mut(&mut self, task: TaskId) -> &mut Core {
        &mut self.units[task]
    }

    fn is_runnable(&self, task: TaskId) -> bool {
        self.core(task).runnable()
    }

    fn insert_woken(&mut self, cx: &Cx<'_>, task: TaskId) {
        cx.push(Cmd::Resched(self.core(task).cpu));
    }

    fn take_asleep(&mut self, _cx: &Cx<'_>, _task: TaskId) {}
}

impl XenRules for Arinc653 {
    fn rejects(&self, world: &World) -> Option<Rejection> {
        let (windows, frame) = self.table(world);
        let sum: i64 = windows.iter().sum();
        let reject = |why: String| Some(Rejection { task: None, why });
        if windows.len() > MOST_WINDOWS {
            return reject(format!(
                "{} vCPUs, and the table of xen-arinc653 has at most {MOST_WINDOWS} windows",
                windows.len()
            ));
        }
        if sum > frame {
            return reject(format!(
                "the windows of the {} vCPUs add up to {}, more than the major frame of {}: make \
                 `slice` or `window` \
                 smaller or `major_frame` larger",
                windows.len(),
                Ns(sum as u64),
                Ns(frame as u64)
            ));
        }
        None
    }

    fn begin(&mut self, cx: &Cx<'_>) {
        (self.windows, self.frame) = self.table(cx.world);
        self.create_all(cx);
    }

    fn schedule(&mut self, cx: &Cx<'_>, cpu: CpuId, _prev: Option<TaskId>, why: Prev) -> Pick {
        if let Some(prev) = self.curr[cpu.index()] {
            self.core_mut(prev).stopped(why);
        }
        let now = now(cx);
        self.advance(now);
        let owner = (self.index < self.windows.len()).then(|| TaskId::from(self.index));
        let runs = |task: &TaskId| {
            self.has(*task) && self.is_runnable(*task) && self.core(*task).cpu == cpu
        };
        let next = owner.filter(runs);
        self.curr[cpu.index()] = next;
        Pick {
            task: next,
            slice_ns: Some(Ns((self.next_switch - now) as u64)),
            note: self.index as i64,
        }
    }

    fn saved(&mut self, cx: &Cx<'_>, prev: TaskId) {
        if std::mem::take(&mut self.core_mut(prev).migrating) {
            self.move_over(cx, prev);
        }
    }

    fn affinity_changed(&mut self, cx: &Cx<'_>, task: TaskId) {
        let pool = self.pool;
        let core = self.core_mut(task);
        core.read_affinity(cx.task(task), &pool);
        let cpu = core.cpu;
        if core.hard.contains(cpu) {
            return;
        }
        if self.curr[cpu.index()] == Some(task) {
            cx.push(Cmd::Displace(task));
            return;
        }
        self.move_over(cx, task);
        if self.is_runnable(task) {
            self.insert_woken(cx, task);
        }
    }

    fn resync(&mut self, cx: &Cx<'_>) {
        if self.windows.is_empty() {
            (self.windows, self.frame) = self.table(cx.world);
        }
        self.create_all(cx);
        read_current(cx, &mut self.curr);
        self.wake_all(cx);
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        let (index, curr) = (self.index, self.curr[cpu.index()]);
        format!(
            "arinc653 {cpu}: window {index}, runs {curr:?}, next window at {} ns",
            self.next_switch
        )
    }
}
