//! The part of the kernel that a scheduler in BPF sees.

use super::above::Above;
use super::calls::Model;
use super::layout::{Layout, Place};
use super::ops::{Op, dsq};
use super::server::Server;
use super::source::Printed;
use crate::Cmd;
use schedlab_bpf::{Host, Object, Stop, Vm, bstr, run};
use schedlab_model::{CpuId, Ns, TaskId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A task.
#[derive(Debug, Clone, Default)]
pub(super) struct Task {
    /// Its `task_struct`.
    pub(super) addr: u64,
    pub(super) alive: bool,
    /// CPU of its run queue.
    pub(super) cpu: usize,
    /// Allowed CPUs.
    pub(super) mask: u64,
    /// Runnable (`SCX_TASK_QUEUED`).
    pub(super) queued: bool,
    /// In the scheduler's hands (`SCX_TASK_IN_CUSTODY`, 7.x).
    pub(super) custody: bool,
    /// The scheduler holds it outside all queues: `SCX_OPSS_QUEUED`, with a number.
    pub(super) held: Option<u64>,
    pub(super) holds: u64,
    /// The dispatch queue that it is in, its number there, and whether by virtual time.
    pub(super) queue: Option<usize>,
    pub(super) seq: u64,
    pub(super) by_vtime: bool,
    /// Marked for direct dispatch: queue and flags.
    pub(super) direct: Option<(u64, u64)>,
    /// It is in a local queue to run at once, or not to stay (`SCX_TASK_IMMED`, 7.x).
    pub(super) immed: bool,
    /// The CPU that its last change of affinity chose, for where it may not stay.
    pub(super) goes_to: usize,
    pub(super) exec_start: u64,
    pub(super) sum_exec: u64,
    /// Runnable and waiting since.
    pub(super) runnable_at: u64,
    pub(super) group: usize,
}

/// A dispatch queue. The local ones come first, then the global one, then the scheduler's own.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) id: u64,
    pub(super) tasks: VecDeque<usize>,
    pub(super) seq: u64,
    /// Its `struct scx_dispatch_q`.
    pub(super) addr: u64,
}

/// A CPU.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    pub(super) curr: Option<usize>,
    /// A decision that is made but not finished: the task that runs until now, and the next one.
    pub(super) switching: Option<(usize, Option<usize>)>,
    pub(super) online: bool,
    /// It looks for its next task (`SCX_RQ_IN_BALANCE`).
    pub(super) balancing: bool,
    /// A task was taken off for another CPU.
    pub(super) stopped: bool,
    pub(super) deferred: Vec<usize>,
    /// All of its local queue goes back to the scheduler, or those that were to run at once.
    pub(super) reenqueue: bool,
    pub(super) reenqueue_immed: bool,
    /// The tick may stop: the running task's slice is endless.
    pub(super) tickless: bool,
    pub(super) smt: u64,
    pub(super) llc: u64,
    pub(super) node: u64,
    pub(super) node_id: usize,
    /// When its last tick was.
    pub(super) ticked: u64,
    pub(super) idle_task: u64,
    /// CPUs that this CPU kicks when it is done: all, those only if idle, those with preemption.
    pub(super) kicks: [u64; 3],
    /// Its timers: due at, number of arming, which.
    pub(super) timers: Vec<(u64, u64, usize)>,
}

/// A `struct bpf_timer`.
#[derive(Debug, Default)]
pub(super) struct TimerState {
    pub(super) addr: u64,
    pub(super) map: usize,
    pub(super) callback: Option<usize>,
    pub(super) armed_on: Option<usize>,
}

/// An iterator over a dispatch queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Iter {
    pub(super) queue: usize,
    pub(super) tasks: Vec<(usize, u64)>,
    pub(super) at: usize,
    pub(super) slice: Option<u64>,
    pub(super) vtime: Option<u64>,
}

/// One entry of the dispatch buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buffered {
    pub(super) task: usize,
    /// Number of the hold that the program saw.
    pub(super) hold: Option<u64>,
    pub(super) dsq: u64,
    pub(super) flags: u64,
}

/// Which task an insert must be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Direct {
    /// Inserts go to the dispatch buffer.
    #[default]
    No,
    /// This one, once.
    Of(usize),
    /// It was inserted.
    Done,
}

/// Rules that differ between kernels, told by their type information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rules {
    /// `ops.dequeue` also when a task goes to a local or the global queue (7.x).
    pub(super) dequeue_always: bool,
    /// A deadline server keeps real-time tasks from starving the class (7.0: `rq.ext_server`).
    pub(super) server: bool,
    /// The built-in choice of an idle CPU knows caches and nodes (6.13).
    pub(super) idle_topology: bool,
}

impl Rules {
    /// Which of two values of a flag is the kernel's: that of 7.x, or that of 6.12.
    pub(super) fn bits(self) -> usize {
        usize::from(!self.dequeue_always)
    }
}

/// See the module.
pub(super) struct Kernel {
    pub(super) vm: Vm,
    pub(super) object: Arc<Object>,
    pub(super) layout: Layout,
    pub(super) rules: Rules,
    pub(super) name: String,
    entries: [Option<usize>; Op::ALL.len()],
    pub(super) flags: u64,
    pub(super) timeout: u64,
    pub(super) batch: usize,
    pub(super) builtin_idle: bool,
    pub(super) hz: u64,
    pub(super) models: Vec<Model>,

    pub(super) tasks: Vec<Task>,
    pub(super) task_base: u64,
    pub(super) task_stride: u64,
    pub(super) cpus: Vec<Cpu>,
    pub(super) queues: Vec<Queue>,
    pub(super) ids: BTreeMap<u64, usize>,
    pub(super) groups: Vec<u64>,
    /// Of each group the one above it; the root has none.
    pub(super) group_parents: Vec<Option<usize>>,
    /// Iterators over control groups, by their address.
    pub(super) css_iters: BTreeMap<u64, std::vec::IntoIter<u64>>,
    pub(super) idle_mask: u64,
    pub(super) smt_mask: u64,
    pub(super) online_mask: u64,
    pub(super) rqs: u64,
    pub(super) rq_stride: u64,
    /// Address of a per-CPU variable, and the distance between CPUs.
    pub(super) per_cpu: BTreeMap<u64, u64>,
    pub(super) args: u64,

    pub(super) direct: Direct,
    pub(super) buffer: Vec<Buffered>,
    pub(super) dispatched: usize,
    pub(super) dispatch_cpu: usize,
    pub(super) locked: Option<usize>,
    pub(super) iters: BTreeMap<u64, Iter>,
    pub(super) timers: Vec<TimerState>,
    pub(super) timer_at: BTreeMap<u64, usize>,
    pub(super) armings: u64,
    /// Queues of the scheduler's own whose tasks are to be enqueued again.
    pub(super) reenqueued: Vec<usize>,
    /// Why the scheduler was ended.
    pub(super) ended: Option<String>,
    pub(super) cmds: Vec<Cmd>,
    pub(super) asked: u64,
    pub(super) above: Above,
    /// The deadline server of the class, by CPU; empty: this kernel has none, or nothing is above.
    pub(super) servers: Vec<Server>,
    /// Calls of kernel functions and helpers.
    pub(super) calls: u64,
    /// Instructions and calls that the driver was told of.
    pub(super) priced: (u64, u64),
    /// Texts of programs are kept.
    pub(super) prints: bool,
    pub(super) printed: Vec<Printed>,
}

/// What the kernel does after a program did what cannot be.
pub(super) type Step<T = ()> = Result<T, Stop>;

impl Host for Kernel {
    fn vm(&mut self) -> &mut Vm {
        &mut self.vm
    }
    fn kfunc(&mut self, which: u32, args: [u64; 5]) -> Step<u64> {
        self.calls += 1;
        match self.models.get(which as usize) {
            Some(Model::Generic(call)) => call(&mut self.vm, args),
            Some(Model::Own(call)) => call(self, args),
            None => Err(Stop::new("a kernel function that is not there")),
        }
    }
    fn helper(&mut self, number: i32, args: [u64; 5]) -> Step<u64> {
        self.calls += 1;
        if self.prints && matches!(number, 6 | 177) {
            return Ok(self.print(number, args));
        }
        match schedlab_bpf::generic_helper(self, number, args)? {
            Some(value) => Ok(value),
            None => self.own_helper(number, args),
        }
    }
}

/// What a kernel begins with.
pub(super) struct Parts {
    pub(super) vm: Vm,
    pub(super) object: Arc<Object>,
    pub(super) layout: Layout,
    pub(super) rules: Rules,
    pub(super) models: Vec<Model>,
    pub(super) hz: u64,
}

impl Kernel {
    pub(super) fn new(parts: Parts) -> Kernel {
        Kernel {
            vm: parts.vm,
            object: parts.object,
            layout: parts.layout,
            rules: parts.rules,
            name: String::new(),
            entries: [None; Op::ALL.len()],
            flags: 0,
            timeout: super::ops::WATCHDOG,
            batch: super::ops::MAX_BATCH,
            builtin_idle: true,
            hz: parts.hz,
            models: parts.models,
            tasks: Vec::new(),
            task_base: 0,
            task_stride: 0,
            cpus: Vec::new(),
            queues: Vec::new(),
            ids: BTreeMap::new(),
            groups: Vec::new(),
            group_parents: Vec::new(),
            css_iters: BTreeMap::new(),
            idle_mask: 0,
            smt_mask: 0,
            online_mask: 0,
            rqs: 0,
            rq_stride: 0,
            per_cpu: BTreeMap::new(),
            args: 0,
            direct: Direct::No,
            buffer: Vec::new(),
            dispatched: 0,
            dispatch_cpu: 0,
            locked: None,
            iters: BTreeMap::new(),
            timers: Vec::new(),
            timer_at: BTreeMap::new(),
            armings: 0,
            reenqueued: Vec::new(),
            ended: None,
            cmds: Vec::new(),
            asked: 0,
            above: Above::default(),
            servers: Vec::new(),
            calls: 0,
            priced: (0, 0),
            prints: false,
            printed: Vec::new(),
        }
    }

    pub(super) fn set_entry(&mut self, op: Op, entry: usize) {
        self.entries[op as usize] = Some(entry);
    }
    pub(super) fn has(&self, op: Op) -> bool {
        self.entries[op as usize].is_some()
    }

    /// Calls a callback on a CPU; 0 where the scheduler has none.
    pub(super) fn op(&mut self, op: Op, cpu: usize, args: &[u64]) -> Step<u64> {
        let Some(entry) = self.entries[op as usize] else { return Ok(0) };
        if self.ended.is_some() {
            return Ok(0);
        }
        let rq = self.rqs + self.rq_stride * cpu as u64;
        self.set(rq, self.layout.rq_clock, self.vm.now);
        let before = std::mem::replace(&mut self.vm.cpu, cpu);
        let context = self.vm.context(args);
        let result = run(self, entry, &[context]);
        self.vm.cpu = before;
        result.map_err(|stop| {
            let place = stop.instruction().and_then(|at| self.object.place(at));
            Stop::new(format!("ops.{}(): {}", op.name(), stop.locate(place)))
        })
    }

    /// `bpf_trace_printk` with three values, or `bpf_trace_vprintk` with an array of them.
    fn print(&mut self, number: i32, args: [u64; 5]) -> u64 {
        let values = if number == 6 { self.args + 128 } else { args[2] };
        if number == 6 {
            for (i, value) in args[2..].iter().enumerate() {
                self.vm.memory.set_word(values + 8 * i as u64, *value);
            }
        }
        let text = bstr(&self.vm.memory, args[0], values);
        let length = text.len() as u64;
        self.printed.push((self.vm.now, self.vm.cpu, text));
        length
    }

    /// The scheduler is ended, for the first reason that is given. `kind`: the kernel's word.
    pub(super) fn end(&mut self, kind: &str, what: impl std::fmt::Display) {
        if self.ended.is_none() {
            let name = &self.name;
            self.ended =
                Some(format!("sched_ext: BPF scheduler \"{name}\" disabled ({kind}): {what}"));
            self.cmds.push(Cmd::GiveUp);
        }
    }
    /// `scx_error()`: the kernel found a fault.
    pub(super) fn error(&mut self, what: impl std::fmt::Display) {
        self.end("runtime error", what);
    }
    /// Ends the scheduler when a step failed.
    pub(super) fn check<T: Default>(&mut self, step: Step<T>) -> T {
        match step {
            Ok(value) => value,
            Err(stop) => {
                self.error(stop);
                T::default()
            }
        }
    }

    // Fields of tasks.
    pub(super) fn get(&self, addr: u64, (at, bytes): Place) -> u64 {
        if bytes == 0 { 0 } else { self.vm.memory.read(addr + at, bytes.min(8)) }
    }
    pub(super) fn set(&mut self, addr: u64, (at, bytes): Place, value: u64) {
        if bytes > 0 {
            self.vm.memory.write(addr + at, bytes.min(8), value);
        }
    }
    pub(super) fn slice(&self, t: usize) -> u64 {
        self.get(self.tasks[t].addr, self.layout.slice)
    }
    pub(super) fn set_slice(&mut self, t: usize, value: u64) {
        self.set(self.tasks[t].addr, self.layout.slice, value);
    }
    pub(super) fn vtime(&self, t: usize) -> u64 {
        self.get(self.tasks[t].addr, self.layout.vtime)
    }
    pub(super) fn weight(&self, t: usize) -> u64 {
        self.get(self.tasks[t].addr, self.layout.weight)
    }
    /// The task whose `task_struct` this is.
    pub(super) fn task_at(&self, addr: u64) -> Option<usize> {
        let offset = addr.checked_sub(self.task_base)?;
        let t = (offset / self.task_stride.max(1)) as usize;
        (t < self.tasks.len() && self.tasks[t].addr == addr).then_some(t)
    }
    /// The same for an argument of a call.
    pub(super) fn task_of(&self, addr: u64) -> Step<usize> {
        self.task_at(addr).ok_or_else(|| Stop::new(format!("{addr:#x} is no task")))
    }
    /// Name and number as the kernel's messages have them: `hog[1001]`.
    pub(super) fn task_name(&self, t: usize) -> String {
        let addr = self.tasks[t].addr;
        let comm = self.vm.memory.text(addr + self.layout.comm.0, self.layout.comm.1);
        format!("{comm}[{}]", self.get(addr, self.layout.pid))
    }
    pub(super) fn allowed(&self, t: usize, cpu: usize) -> bool {
        self.tasks[t].mask >> cpu & 1 == 1
    }
    /// `p->scx.flags`: queued, in custody, and enabled.
    pub(super) fn show_flags(&mut self, t: usize) {
        const ENABLED: u64 = 3 << 8;
        let task = &self.tasks[t];
        let value = u64::from(task.queued) | u64::from(task.custody) << 1 | ENABLED;
        self.set(task.addr, self.layout.scx_flags, value);
    }
    pub(super) fn set_cpu(&mut self, t: usize, cpu: usize) {
        if self.tasks[t].cpu != cpu {
            self.served_elsewhere(t, cpu);
            self.tasks[t].cpu = cpu;
            self.set(self.tasks[t].addr, self.layout.cpu, cpu as u64);
            self.cmds.push(Cmd::Moved(TaskId::from(t), CpuId::from(cpu)));
        }
    }
    /// The task waits from now on.
    pub(super) fn waits(&mut self, t: usize) {
        self.tasks[t].runnable_at = self.vm.now;
        let jiffies = self.jiffies();
        self.set(self.tasks[t].addr, self.layout.runnable_at, jiffies);
    }
    /// `jiffies`, which begin five minutes before they wrap as 32 bits (`INITIAL_JIFFIES`).
    pub(super) fn jiffies(&self) -> u64 {
        let start = u64::from(u32::MAX) + 1 - 300 * self.hz;
        start + self.vm.now / (1_000_000_000 / self.hz.max(1))
    }
    /// The address of what runs on a CPU.
    pub(super) fn curr_addr(&self, cpu: usize) -> u64 {
        let cpu = &self.cpus[cpu];
        cpu.curr.map_or(cpu.idle_task, |t| self.tasks[t].addr)
    }
    pub(super) fn is_idle(&self, cpu: usize) -> bool {
        let free = self.cpus[cpu].curr.is_none() && self.cpus[cpu].switching.is_none();
        free && !self.above.holds(cpu)
    }
    /// The task that runs on a CPU, or is about to.
    pub(super) fn runs_on(&self, cpu: usize) -> Option<usize> {
        match self.cpus[cpu].switching {
            Some((_, next)) => next,
            None => self.cpus[cpu].curr,
        }
    }
    pub(super) fn resched(&mut self, cpu: usize) {
        if self.asked >> cpu & 1 == 0 {
            self.asked |= 1 << cpu;
            self.cmds.push(Cmd::Resched(CpuId::from(cpu)));
        }
    }
    /// `update_curr_scx`: charges what the running task had.
    pub(super) fn charge(&mut self, cpu: usize) {
        let Some(t) = self.cpus[cpu].curr else { return };
        let ran = self.vm.now.saturating_sub(self.tasks[t].exec_start);
        if ran == 0 {
            return;
        }
        self.tasks[t].exec_start = self.vm.now;
        self.tasks[t].sum_exec += ran;
        self.charge_server(cpu, ran);
        let (addr, sum) = (self.tasks[t].addr, self.tasks[t].sum_exec);
        self.set(addr, self.layout.sum_exec, sum);
        let slice = self.slice(t);
        if slice != super::ops::SLICE_INF {
            self.set_slice(t, slice.saturating_sub(ran));
        }
    }
    /// The global queue.
    pub(super) fn global(&self) -> usize {
        self.cpus.len()
    }
    /// A queue of the scheduler's own.
    pub(super) fn own_queue(&self, id: u64) -> Option<usize> {
        self.ids.get(&id).copied()
    }
    /// A clock that `scx_bpf_now` and the run queues show.
    pub(super) fn set_now(&mut self, now: Ns) {
        self.vm.now = now.0;
    }
    /// The number of a built-in queue, or of the scheduler's own.
    pub(super) fn queue_for(&mut self, cpu: usize, id: u64) -> usize {
        if id == dsq::LOCAL {
            return cpu;
        }
        if id & dsq::LOCAL_ON == dsq::LOCAL_ON {
            let on = (id & 0xffff_ffff) as usize;
            if on < self.cpus.len() {
                return on;
            }
            let verdict = "in SCX_DSQ_LOCAL_ON dispatch verdict";
            self.error(format_args!("invalid CPU {on} {verdict}"));
            return self.global();
        }
        if id == dsq::GLOBAL {
            return self.global();
        }
        self.own_queue(id).unwrap_or_else(|| {
            self.error(format_args!("non-existent DSQ {id:#x}"));
            self.global()
        })
    }
}
