//! The life of tasks and control groups.

use super::above::Above;
use super::kernel::{Kernel, Step, Task};
use super::ops::{self, Op, enq};
use crate::{GroupView, TaskView, World, linux};
use schedlab_bpf::Stop;
use schedlab_model::{GroupId, Policy};

/// `PF_IDLE` of the idle tasks.
const IDLE: u64 = 2;
/// Process ids of the simulated tasks begin here.
const FIRST_PID: u64 = 1000;

impl Kernel {
    /// Room for all tasks, those to come too.
    pub(super) fn place_tasks(&mut self, world: &World) -> Result<(), Stop> {
        let bytes = self.layout.task_bytes;
        self.task_stride = (bytes as u64 + 16).next_multiple_of(64);
        let n = world.tasks.len();
        self.task_base = self.vm.memory.alloc(self.task_stride as usize * n.max(1))?;
        for t in 0..n {
            let addr = self.task_base + self.task_stride * t as u64;
            let used = (bytes as u64).next_multiple_of(8);
            self.vm.memory.gap(addr + used, (self.task_stride - used) as usize);
            self.tasks.push(Task { addr, ..Task::default() });
        }
        self.above = Above::new(world.cpus.len(), n, world.hz);
        Ok(())
    }

    /// Writes the `task_struct` of an idle task.
    pub(super) fn idle_task(&mut self, cpu: usize) -> Result<u64, Stop> {
        let addr = self.vm.memory.alloc(self.layout.task_bytes)?;
        self.set(addr, self.layout.flags, IDLE);
        self.set(addr, self.layout.cpu, cpu as u64);
        self.set(addr, self.layout.cpus_ptr, addr + self.layout.cpus_mask.0);
        self.set(addr, self.layout.cpus_mask, 1 << cpu);
        let name = format!("swapper/{cpu}");
        self.vm.memory.put(addr + self.layout.comm.0, name.as_bytes());
        Ok(addr)
    }

    /// Writes what is known of a task when it is created.
    fn describe(&mut self, world: &World, t: usize) -> Result<(), Stop> {
        let view = &world.tasks[t];
        let (addr, layout) = (self.tasks[t].addr, self.layout);
        let pid = FIRST_PID + t as u64;
        let leader = (0..t).find(|other| world.tasks[*other].process == view.process).unwrap_or(t);
        let leader_addr = self.tasks[leader].addr;
        self.set(addr, layout.pid, pid);
        self.set(addr, layout.tgid, FIRST_PID + leader as u64);
        self.set(addr, layout.tid, t as u64 + 1);
        let name = view.name.as_bytes();
        let room = layout.comm.1.saturating_sub(1);
        self.vm.memory.put(addr + layout.comm.0, &name[..name.len().min(room)]);
        self.set(addr, layout.leader, leader_addr);
        self.set(addr, layout.parent, addr);
        self.set(addr, layout.cpus_ptr, addr + layout.cpus_mask.0);
        self.set(addr, layout.slice, ops::SLICE_DFL);
        let mm = self.vm.memory.alloc(64)?;
        self.set(addr, layout.mm, mm);
        let cpu = view.last_cpu().index();
        self.tasks[t] = Task { addr, alive: true, cpu, ..self.tasks[t].clone() };
        self.tasks[t].group = view.group.index();
        self.set(addr, layout.cpu, cpu as u64);
        self.show_mask(t, view);
        self.show_weight(t, view);
        self.show_flags(t);
        Ok(())
    }

    fn show_mask(&mut self, t: usize, view: &TaskView) {
        let mask = view.affinity.first_word();
        self.tasks[t].mask = mask;
        let addr = self.tasks[t].addr;
        let place = (self.layout.cpus_mask.0, self.layout.cpus_mask.1.min(8));
        self.set(addr, place, mask);
        self.set(addr, self.layout.nr_cpus, u64::from(mask.count_ones()));
    }

    fn show_weight(&mut self, t: usize, view: &TaskView) {
        let (nice, addr) = (i64::from(view.nice.get()), self.tasks[t].addr);
        let (policy, weight) = match view.policy {
            Policy::Batch => (3, linux::weight_of_nice(view.nice)),
            Policy::Idle => (5, linux::WEIGHT_OF_IDLE),
            _ => (0, linux::weight_of_nice(view.nice)),
        };
        let extended = self.flags & ops::flag::SWITCH_PARTIAL != 0;
        self.set(addr, self.layout.policy, if extended { 7 } else { policy });
        self.set(addr, self.layout.static_prio, (120 + nice) as u64);
        self.set(addr, self.layout.prio, (120 + nice) as u64);
        // `sched_weight_to_cgroup`: 1 to 10,000, 100 for nice 0.
        let scaled = ((weight * 100 + 512) / 1024).clamp(1, 10_000);
        self.set(addr, self.layout.weight, scaled);
    }

    /// `scx_init_task` of a task that exists, or is forked now.
    pub(super) fn init_task(&mut self, world: &World, t: usize, forked: bool) -> Step {
        self.describe(world, t)?;
        self.above.set(t, world.tasks[t].policy);
        let (addr, cpu, args) = (self.tasks[t].addr, self.vm.cpu, self.args);
        let group = self.groups.get(self.tasks[t].group).copied().unwrap_or(0);
        self.set(args, self.layout.init_fork, u64::from(forked));
        self.set(args, self.layout.init_cgroup, group);
        let answer = self.op(Op::InitTask, cpu, &[addr, args])? as i32;
        if answer != 0 {
            let name = self.task_name(t);
            self.error(format_args!("ops.init_task() failed ({answer}) for {name}"));
        }
        Ok(())
    }

    /// `scx_enable_task`
    pub(super) fn enable_task(&mut self, t: usize) -> Step {
        if self.above.has(t) {
            return Ok(());
        }
        let (addr, cpu) = (self.tasks[t].addr, self.tasks[t].cpu);
        self.op(Op::Enable, cpu, &[addr])?;
        if self.has(Op::SetWeight) {
            let weight = self.weight(t);
            self.op(Op::SetWeight, cpu, &[addr, weight])?;
        }
        Ok(())
    }

    /// A task has ended and left its CPU.
    pub(super) fn exit_task(&mut self, t: usize) -> Step {
        if !std::mem::take(&mut self.tasks[t].alive) {
            return Ok(());
        }
        let (addr, cpu) = (self.tasks[t].addr, self.vm.cpu);
        self.forget(t);
        if !self.above.has(t) {
            self.op(Op::Disable, cpu, &[addr])?;
        }
        let args = self.args;
        self.vm.memory.set_word(args, 0);
        self.op(Op::ExitTask, cpu, &[addr, args])?;
        let vm = &mut self.vm;
        vm.maps.forget(&mut vm.memory, addr);
        Ok(())
    }

    /// Hard affinity changed.
    pub(super) fn set_cpumask(&mut self, world: &World, t: usize) -> Step {
        if self.above.has(t) {
            self.show_mask(t, &world.tasks[t]);
            self.place_anew(t);
            return Ok(());
        }
        // `cpumask_any_and_distribute`, whether it has to go or not.
        let mask = world.tasks[t].affinity.first_word() & self.vm.memory.word(self.online_mask);
        self.tasks[t].goes_to = self.vm.any_of(mask).unwrap_or(self.tasks[t].cpu);
        self.change(t, enq::CHANGED, |kernel| {
            kernel.show_mask(t, &world.tasks[t]);
            let (addr, cpu) = (kernel.tasks[t].addr, kernel.tasks[t].cpu);
            let mask = addr + kernel.layout.cpus_mask.0;
            kernel.op(Op::SetCpumask, cpu, &[addr, mask]).map(drop)
        })
    }

    /// Policy or nice value changed.
    pub(super) fn reweight(&mut self, world: &World, t: usize) -> Step {
        if self.above.has(t) {
            return Ok(());
        }
        self.change(t, enq::CHANGED, |kernel| {
            kernel.show_weight(t, &world.tasks[t]);
            let (addr, cpu, weight) = (kernel.tasks[t].addr, kernel.tasks[t].cpu, kernel.weight(t));
            kernel.op(Op::SetWeight, cpu, &[addr, weight]).map(drop)
        })
    }

    /// It moved to another control group.
    pub(super) fn regroup(&mut self, world: &World, t: usize, from: GroupId) -> Step {
        let to = world.tasks[t].group;
        let group =
            |kernel: &Kernel, id: GroupId| kernel.groups.get(id.index()).copied().unwrap_or(0);
        let (addr, old, new) = (self.tasks[t].addr, group(self, from), group(self, to));
        self.op(Op::CgroupPrepMove, self.vm.cpu, &[addr, old, new])?;
        self.tasks[t].group = to.index();
        self.op(Op::CgroupMove, self.vm.cpu, &[addr, old, new]).map(drop)
    }

    /// Makes a control group for each of the workload, the root first, and tells the scheduler.
    pub(super) fn place_groups(&mut self, world: &World) -> Step {
        let layout = self.layout;
        for (g, view) in world.groups.iter().enumerate() {
            let addr = self.vm.memory.alloc(layout.cgroup_bytes + 8 * 16)?;
            let kn = self.vm.memory.alloc(512)?;
            self.set(addr, layout.cgroup_kn, kn);
            self.set(kn, layout.kn_id, g as u64 + 1);
            self.set(addr, layout.cgroup_self_cgroup, addr);
            self.groups.push(addr);
            self.group_parents.push(view.parent.map(GroupId::index));
            let mut chain = vec![addr];
            let mut up = view.parent;
            while let Some(parent) = up {
                let Some(known) = self.groups.get(parent.index()).filter(|_| chain.len() < 16)
                else {
                    break;
                };
                chain.push(*known);
                up = world.groups[parent.index()].parent;
            }
            self.set(addr, layout.cgroup_level, chain.len() as u64 - 1);
            let ancestors = addr + layout.cgroup_ancestors.0;
            for (i, one) in chain.iter().rev().enumerate().filter(|_| ancestors != addr) {
                self.vm.memory.set_word(ancestors + 8 * i as u64, *one);
            }
        }
        Ok(())
    }

    /// `ops.cgroup_init` of all groups.
    pub(super) fn init_groups(&mut self, world: &World) -> Step {
        for (g, view) in world.groups.iter().enumerate() {
            let (addr, args) = (self.groups[g], self.args);
            let weight = cgroup_weight(view);
            self.set(args, self.layout.cgroup_weight, weight);
            let answer = self.op(Op::CgroupInit, 0, &[addr, args])? as i32;
            if answer != 0 {
                self.error(format_args!("ops.cgroup_init() failed ({answer})"));
            }
        }
        Ok(())
    }

    /// The weight of a control group changed.
    pub(super) fn reweight_group(&mut self, world: &World, group: GroupId) -> Step {
        let Some(addr) = self.groups.get(group.index()).copied() else { return Ok(()) };
        let weight = cgroup_weight(&world.groups[group.index()]);
        self.op(Op::CgroupSetWeight, self.vm.cpu, &[addr, weight]).map(drop)
    }

    /// A CPU came or went; tasks that wait there are put elsewhere.
    pub(super) fn set_online(&mut self, cpu: usize, online: bool) -> Step {
        self.cpus[cpu].online = online;
        let mask = self.vm.memory.word(self.online_mask);
        let mask = if online { mask | 1 << cpu } else { mask & !(1 << cpu) };
        self.vm.memory.set_word(self.online_mask, mask);
        let op = if online { Op::CpuOnline } else { Op::CpuOffline };
        self.op(op, cpu, &[cpu as u64])?;
        if !online {
            self.set_idle(cpu, false);
            for t in self.queues[cpu].tasks.clone() {
                self.tasks[t].goes_to = cpu;
                self.change(t, enq::REGROUPED, |_| Ok(()))?;
            }
        }
        Ok(())
    }

    /// `scx_root_enable_workfn`, as far as programs see it.
    pub(super) fn enable(&mut self, world: &World) -> Step {
        let answer = self.op(Op::Init, 0, &[])? as i32;
        if answer != 0 {
            self.error(format_args!("ops.init() failed ({answer})"));
            return Ok(());
        }
        self.init_groups(world)?;
        let alive = world.tasks.iter().enumerate().filter(|(_, view)| view.alive);
        let alive: Vec<usize> = alive.map(|(t, _)| t).collect();
        for t in &alive {
            self.init_task(world, *t, false)?;
        }
        for t in alive {
            self.enable_task(t)?;
        }
        // On a real machine kernel threads run on each CPU at once, and it idles again: a program
        // that keeps its own list of idle CPUs hears of all. Here nothing else runs, so it is told.
        for cpu in (0..self.cpus.len()).filter(|cpu| world.cpus[*cpu].online) {
            self.op(Op::UpdateIdle, cpu, &[cpu as u64, 1])?;
        }
        Ok(())
    }

    /// The watchdog: who has waited for too long, and when the next one would have.
    pub(super) fn watch(&mut self) -> u64 {
        let now = self.vm.now;
        let waits = |(t, task): &(usize, &Task)| {
            task.alive && task.queued && self.runs_on(task.cpu) != Some(*t)
        };
        let first = self.tasks.iter().enumerate().filter(waits).min_by_key(|(_, t)| t.runnable_at);
        let Some((t, since)) = first.map(|(t, task)| (t, task.runnable_at)) else {
            return now + self.timeout;
        };
        if now - since >= self.timeout {
            let waited = (now - since) / 1_000_000;
            let name = self.task_name(t);
            let seconds = format!("{}.{:03}", waited / 1000, waited % 1000);
            self.end("runnable task stall", format_args!("{name} failed to run for {seconds}s"));
        }
        since + self.timeout
    }
}

/// `cpu.weight`, 100 by default, of a group whose weight is in `cpu.shares`.
fn cgroup_weight(view: &GroupView) -> u64 {
    view.weight.map_or(100, |shares| (u64::from(shares) * 100 / 1024).clamp(1, 10_000))
}
