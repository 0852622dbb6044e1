//! Schedulers in BPF as the simulator runs them: an unmodified sched_ext object (`.bpf.o`) over a
//! model of the kernel's class (kernel/sched/ext.c).
//!
//! The object runs in the virtual machine of crate `bpf`, over task structures that are laid out as
//! the kernel's type information (BTF) says. This file is the driver's side: it turns the calls of
//! the simulator into callbacks in the kernel's order. [`decide`] has wakeups and decisions,
//! [`queues`] the dispatch queues, [`idle`] the built-in choice of an idle CPU, [`tasks`] the life
//! of tasks and groups, [`above`] the classes above, [`calls`] and [`helpers`] what programs may
//! call.
//!
//! # Fidelity
//! Rules are those of 7.2; where 6.12 differs, the type information says which kernel it is.
//!
//! | rule | real place | here | test |
//! |---|---|---|---|
//! | order of callbacks at wakeup, decision, block | `enqueue_task_scx`, `balance_one`, `put_prev_task_scx`, `set_next_task_scx` | modelled | `callbacks_come_in_the_kernels_order` |
//! | the previous task is in no queue while `dispatch` runs | `pick_task_scx` before `put_prev_task` | modelled: it is given back when its context is saved, so on a machine with costs other CPUs do not see it for that long | `two_hogs_take_turns_whatever_their_weight` |
//! | slices end at ticks, the next task's clock begins after the tick's: 20 ms are 24 at 250 Hz | `task_tick_scx`, `set_next_task_scx` | modelled | `a_slice_of_20_ms_lasts_for_six_ticks` |
//! | direct dispatch, deferred for another CPU's queue | `direct_dispatch`, `run_deferred` | modelled; the deferred part runs at the end of the wakeup | |
//! | dispatch queues, FIFO and by virtual time, move, iterate | `dispatch_enqueue`, `scx_dsq_move` | modelled | `three_hogs_share_by_weight` |
//! | `dequeue` for each `enqueue` (7.x), or only when the core takes the task (6.12) | `ops_dequeue` | modelled | |
//! | idle CPU with SMT, cache and node | `scx_select_cpu_dfl` | modelled; one mask for all nodes | |
//! | `update_idle` | `__scx_update_idle` | modelled; each CPU is also said to idle once at the start, as soon comes of kernel threads on a real machine | |
//! | tasks that run at once or go back (`SCX_ENQ_IMMED`, 7.x) | `dsq_inc_nr`, `reenq_local` | modelled | guests: scx_beerland in `sched-ext-objects` |
//! | kicks | `kick_cpus_irq_workfn` | modelled but for `SCX_KICK_WAIT`, which does not wait | |
//! | watchdog | `check_rq_for_timeouts` | exact, not by halves of the timeout | `a_lost_task_is_found_by_the_watchdog` |
//! | error exits | `scx_error` | the run ends, with the kernel's words; tasks do not go back to fair | `faults_end_the_run_with_a_reason` |
//! | `SCX_OPS_SWITCH_PARTIAL` | | every fair task counts as SCHED_EXT | |
//! | RT and deadline tasks run above the class, with their slices and budgets; `cpu_release`, `cpu_acquire` | `pick_next_task`, `put_prev_task_scx`, `switch_class` | see [`above`] | `real_time_tasks_run_above_a_scheduler_in_bpf` |
//! | nice value and affinity of a running task change; one whose CPU is not allowed any more is taken to another without `quiescent` and `runnable` | `sched_change_begin`, `migration_cpu_stop`, `move_queued_task` | modelled; `cpu_release` for the stopper's thread is not called | `changes_of_a_running_task_are_told_as_in_the_kernel`, guests: `sched-ext-objects` |
//! | flags of callbacks: those of the core (NOCLOCK, INITIAL, MIGRATED, …) too | kernel/sched/core.c, sched.h | modelled | guests: `sched-ext-objects` |
//! | the deadline server of 7.x | `ext_server` | simplified: [`server`] | `a_deadline_server_keeps_real_time_tasks_from_starving_the_class` |
//! | bypass, core scheduling, sub-schedulers | | omitted | |
//! | time of decisions | | the machine's costs, and a price for each instruction and each call (`bpf_thousand_ns`, `bpf_call_ns`); what the kernel does for a call has no price of its own | `instructions_and_calls_take_time` |

mod above;
mod calls;
mod decide;
mod groups;
mod helpers;
mod idle;
mod inspect;
mod kernel;
mod layout;
mod machine;
mod ops;
mod options;
mod profile;
mod queues;
mod server;
mod setup;
mod snapshot;
mod source;
mod tasks;

pub use inspect::{Callback, Inspection, KernelView, ListedMap, inspect};
pub use machine::WORDS;
pub use options::BpfOption;
pub use profile::{Each, Profile, ProfileCall, ProfileSet};
pub use schedlab_bpf::{BpfError, Btf};
pub use snapshot::{Running, RunningMap, SnapshotError, snapshot};
pub use source::{
    ObjectError, PROFILE, Printed, Prints, Source, build_printing, check_option, is_object,
    path_of, provide, provide_profile,
};
pub(crate) use source::{build, check};

use crate::registry::{Entry, Family};
use crate::{
    CellLock, Change, Cmd, Cx, Lock, Needs, Pick, Prev, Rejection, Scheduler, Timer, Wake,
    WakeKind, Work, World,
};
use kernel::{Kernel, Step};
use schedlab_model::{CpuId, Ns, Policy, TaskId};
use std::sync::Arc;

/// The watchdog's slot.
const WATCHDOG: Timer = Timer::Global(0);

/// The entry of every scheduler in BPF; it is in no list, since each object is a scheduler.
pub(crate) const ENTRY: Entry = Entry {
    name: "bpf",
    summary: "a sched_ext object: bpf:FILE.bpf.o?option=value",
    family: Family::SchedExt,
    proposed_live: false,
    knobs: Vec::new,
    build: |_, _| {
        let state = CellLock::new(State::default());
        Box::new(SchedExt { source: None, prints: None, state })
    },
};

/// A scheduler in BPF.
pub(crate) struct SchedExt {
    source: Option<Arc<Source>>,
    /// Where the texts of its programs go.
    prints: Option<Prints>,
    state: CellLock<State>,
}

#[derive(Default)]
struct State {
    kernel: Option<Box<Kernel>>,
    /// Why there is no kernel.
    refused: Option<String>,
}

impl SchedExt {
    pub(crate) fn new(source: Arc<Source>) -> SchedExt {
        SchedExt { source: Some(source), prints: None, state: CellLock::new(State::default()) }
    }

    fn load(&self, world: &World) -> Result<Box<Kernel>, String> {
        let source = self.source.as_ref().ok_or("no object was given: write bpf:FILE.bpf.o")?;
        let kernel = setup::build(source, world);
        let mut kernel = kernel.map_err(|why| format!("{}: {why}", source.path))?;
        kernel.prints = self.prints.is_some();
        Ok(Box::new(kernel))
    }

    /// Runs `f` on the kernel, and passes on what it asks for.
    fn with<R: Default>(&self, cx: &Cx<'_>, f: impl FnOnce(&mut Kernel) -> Step<R>) -> R {
        let mut state = self.state.lock();
        let Some(kernel) = state.kernel.as_deref_mut().filter(|one| one.ended.is_none()) else {
            cx.push(Cmd::GiveUp);
            return R::default();
        };
        kernel.set_now(cx.now);
        kernel.vm.cpu = cx.cpu.index();
        let step = f(kernel);
        let result = kernel.check(step);
        let step = kernel.reenqueue();
        kernel.check(step);
        for cpu in 0..kernel.cpus.len() {
            if kernel.cpus[cpu].kicks != [0; 3] {
                kernel.send_kicks(cpu);
            }
        }
        kernel.asked = 0;
        let (code, calls) = (kernel.vm.executed, kernel.calls);
        let new = |now: u64, before: u64| u32::try_from(now - before).unwrap_or(u32::MAX);
        cx.did(Work::Instruction, new(code, kernel.priced.0));
        cx.did(Work::Call, new(calls, kernel.priced.1));
        kernel.priced = (code, calls);
        if let Some(prints) = &self.prints {
            let mut prints = prints.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            prints.append(&mut kernel.printed);
        }
        kernel.cmds.drain(..).for_each(|cmd| cx.push(cmd));
        result
    }
}

impl Scheduler for SchedExt {
    fn needs(&self) -> Needs {
        Needs {
            wakeups: true,
            ticks: true,
            wakers: true,
            cpu_timers: 2,
            task_timers: true,
            global_timers: 1,
            saved: true,
            own_marks: true,
            counts_code: true,
            ..Needs::default()
        }
    }

    fn remarks(&self, _policies: &[Policy], _cpus: usize) -> Vec<String> {
        self.source.as_ref().map(|source| source.remarks()).unwrap_or_default()
    }

    fn rejects(&self, world: &World) -> Option<Rejection> {
        match self.load(world) {
            Ok(kernel) => {
                self.state.lock().kernel = Some(kernel);
                None
            }
            Err(why) => Some(Rejection { task: None, why }),
        }
    }

    fn init(&self, cx: &Cx<'_>) {
        let loaded = self.state.lock().kernel.take();
        let fresh = loaded.filter(|kernel| kernel.vm.executed == 0);
        match fresh.map_or_else(|| self.load(cx.world), Ok) {
            Ok(kernel) => self.state.lock().kernel = Some(kernel),
            Err(why) => self.state.lock().refused = Some(why),
        }
        self.with(cx, |kernel| {
            kernel.vm.random = cx.rand() | 1;
            let profile = self.source.as_ref().and_then(|source| source.profile.clone());
            profile.as_ref().map_or(Ok(()), |one| one.call(kernel, cx.world, false))?;
            kernel.enable(cx.world)?;
            profile.as_ref().map_or(Ok(()), |one| one.call(kernel, cx.world, true))?;
            kernel.cmds.push(Cmd::Arm(WATCHDOG, Ns(kernel.vm.now + kernel.timeout)));
            Ok(())
        });
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        self.with(cx, |kernel| match kernel.above.has(task.index()) {
            true => {
                kernel.wake_above(task.index(), wake.kind == WakeKind::Migrated);
                Ok(())
            }
            false => kernel.wake(task.index(), wake.kind, wake.sync),
        });
    }

    fn leave(&self, cx: &Cx<'_>, task: TaskId) {
        self.with(cx, |kernel| {
            kernel.leave_above(task.index());
            kernel.dequeue(task.index(), false, ops::enq::DEQ_SLEEP | ops::enq::NOCLOCK)?;
            if cx.task(task).alive { Ok(()) } else { kernel.exit_task(task.index()) }
        });
    }

    fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
        self.with(cx, |kernel| match kernel.above.has(task.index()) {
            true => {
                let cpu = kernel.tasks[task.index()].cpu;
                kernel.above.yielded(task.index(), cpu);
                Ok(())
            }
            false => kernel.yielded(task.index()),
        });
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let (cpu, prev) = (cpu.index(), prev.map(TaskId::index));
        let next = self.with(cx, |kernel| {
            kernel.finish(cpu)?;
            if let Some(t) = prev.filter(|_| why == Prev::Migrating) {
                kernel.takes_off(t)?;
            } else if let Some(t) = prev.filter(|_| why != Prev::Runnable) {
                // A task that exits goes through its group once more (`sched_autogroup_exit_task`).
                if why == Prev::Exited && kernel.layout.autogroup.1 > 0 {
                    kernel.change(t, ops::enq::REGROUPED, |_| Ok(()))?;
                }
                let special = ops::enq::SPECIAL[kernel.rules.bits()];
                let flags = match why {
                    Prev::Exited => ops::enq::DEQ_SLEEP | ops::enq::NOCLOCK | special,
                    _ => ops::enq::DEQ_SLEEP | ops::enq::NOCLOCK,
                };
                kernel.dequeue(t, true, flags)?;
                let addr = kernel.tasks[t].addr;
                let switches = kernel.get(addr, kernel.layout.nvcsw) + 1;
                kernel.set(addr, kernel.layout.nvcsw, switches);
            }
            let next = kernel.decide_all(cpu, prev, why)?;
            if let Some(t) = prev
                && why == Prev::Exited
            {
                kernel.exit_task(t)?;
            }
            Ok(next)
        });
        if self.gave_up().is_some() {
            // The run ends after this call: nothing changes any more.
            let stays = prev.filter(|_| why == Prev::Runnable);
            return stays.map_or(Pick::IDLE, |t| Pick::run(TaskId::from(t)));
        }
        next.map_or(Pick::IDLE, |t| Pick::run(TaskId::from(t)))
    }

    fn saved(&self, cx: &Cx<'_>, cpu: CpuId, _prev: TaskId) {
        self.with(cx, |kernel| kernel.finish(cpu.index()));
    }

    fn tick(&self, cx: &Cx<'_>, cpu: CpuId) {
        self.with(cx, |kernel| kernel.tick(cpu.index()));
    }

    fn tick_due(&self, _cx: &Cx<'_>, cpu: CpuId) -> u64 {
        let state = self.state.lock();
        let Some(kernel) = &state.kernel else { return u64::MAX };
        let c = &kernel.cpus[cpu.index()];
        let stops = c.tickless && !kernel.has(ops::Op::Tick);
        let quiet = !kernel.above.wants_ticks(cpu.index()) && (c.curr.is_none() || stops);
        match c.switching.is_none() && quiet {
            true => u64::MAX,
            false => 1,
        }
    }

    fn timer(&self, cx: &Cx<'_>, timer: Timer) {
        self.with(cx, |kernel| match timer {
            Timer::Cpu(cpu, slot) if Kernel::is_server(slot) => {
                kernel.server_due(cpu.index());
                Ok(())
            }
            Timer::Cpu(cpu, _) => kernel.timers_due(cpu.index()),
            Timer::Task(task) => {
                kernel.above_due(task.index());
                Ok(())
            }
            _ => {
                let next = kernel.watch();
                kernel.cmds.push(Cmd::Arm(WATCHDOG, Ns(next)));
                Ok(())
            }
        });
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        let world = cx.world;
        self.with(cx, |kernel| match change {
            Change::Created { task, .. } => {
                kernel.init_task(world, task.index(), true)?;
                kernel.enable_task(task.index())
            }
            Change::Affinity(task) => {
                let t = task.index();
                kernel.set_cpumask(world, t)?;
                let cpu = kernel.tasks[t].cpu;
                if kernel.runs_on(cpu) == Some(t) && !kernel.allowed(t, cpu) {
                    kernel.cmds.push(Cmd::Displace(task));
                }
                Ok(())
            }
            Change::Attributes(task) => kernel.reweight(world, task.index()),
            Change::Regrouped { task, from } => kernel.regroup(world, task.index(), from),
            Change::Group(group) => kernel.reweight_group(world, group),
            Change::Online(cpu, online) => {
                kernel.set_online(cpu.index(), online)?;
                kernel.all_above(cpu).into_iter().for_each(|t| kernel.place_anew(t));
                if let (false, Some(t)) = (online, kernel.runs_on(cpu.index())) {
                    kernel.cmds.push(Cmd::Displace(TaskId::from(t)));
                }
                Ok(())
            }
            // `select_task_rq_scx` leaves a task that executes where it is.
            Change::Released(_) | Change::ReturnsToUser(_) | Change::Executes(_) => Ok(()),
        });
    }

    fn resync(&self, cx: &Cx<'_>) {
        self.with(cx, |kernel| {
            kernel.error("events were lost, and a scheduler in BPF cannot be told of that");
            Ok(())
        });
    }

    fn gave_up(&self) -> Option<String> {
        let state = self.state.lock();
        let ended = state.kernel.as_ref().and_then(|kernel| kernel.ended.clone());
        ended.or_else(|| state.refused.clone())
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        let Some(state) = self.state.try_lock() else { return "locked".to_owned() };
        let Some(kernel) = &state.kernel else { return String::new() };
        let queues = kernel.queues.iter().filter(|queue| !queue.tasks.is_empty());
        let queues = queues.map(|queue| format!("{:#x}: {:?}", queue.id, queue.tasks));
        let local = &kernel.queues[cpu.index()].tasks;
        format!("local {local:?}; queues {}", queues.collect::<Vec<_>>().join(", "))
    }
}
