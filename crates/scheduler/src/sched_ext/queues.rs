//! Dispatch queues: how tasks get into them and out (`dispatch_enqueue`, `move_to_local_dsq`,
//! `consume_dispatch_q`, `flush_dispatch_buf`, `direct_dispatch` in kernel/sched/ext.c).

use super::kernel::{Buffered, Direct, Kernel, Step};
use super::ops::{Op, dsq, enq};
use schedlab_bpf::Stop;

impl Kernel {
    /// Puts a task into a queue.
    pub(super) fn dispatch_enqueue(&mut self, queue: usize, t: usize, flags: u64) -> Step {
        let own = queue > self.global();
        let by_vtime = flags & enq::BY_VTIME != 0;
        if by_vtime && !own {
            self.error("cannot use vtime ordering for built-in DSQs");
        }
        let by_vtime = by_vtime && own;
        if let Some(first) = self.queues[queue].tasks.front()
            && self.tasks[*first].by_vtime != by_vtime
        {
            let (id, had) = (self.queues[queue].id, if by_vtime { "FIFO" } else { "PRIQ" });
            self.error(format_args!("DSQ ID {id:#018x} already had {had}-enqueued tasks"));
        }
        let list = &self.queues[queue].tasks;
        let at = if by_vtime {
            let vtime = self.vtime(t);
            list.partition_point(|other| self.vtime(*other).wrapping_sub(vtime) as i64 <= 0)
        } else if flags & (enq::HEAD | enq::PREEMPT) != 0 {
            0
        } else {
            list.len()
        };
        let line = &mut self.queues[queue];
        line.tasks.insert(at, t);
        line.seq += 1;
        let (seq, addr) = (line.seq, line.addr);
        let task = &mut self.tasks[t];
        (task.by_vtime, task.queue, task.seq) = (by_vtime, Some(queue), seq);
        let task = task.addr;
        self.set(task, self.layout.dsq, addr);
        self.show_length(queue);
        if queue < self.global() {
            self.immediate(queue, t, flags);
            self.after_local(queue, t, flags)?;
        } else if own {
            self.tasks[t].custody = true;
        } else if self.leaves_custody(t) {
            self.op(Op::Dequeue, self.vm.cpu, &[task, 0])?;
        }
        if flags & enq::CLEAR_OPSS != 0 {
            self.tasks[t].held = None;
        }
        Ok(())
    }

    /// A task that is to run at once goes back to the scheduler where it cannot (`dsq_inc_nr`).
    fn immediate(&mut self, cpu: usize, t: usize, flags: u64) {
        self.tasks[t].immed |= flags & enq::IMMED != 0;
        let alone = self.queues[cpu].tasks.len() == 1;
        if self.tasks[t].immed && (!alone || !self.is_open(cpu, flags)) {
            self.cpus[cpu].reenqueue_immed = true;
        }
    }

    /// Whether what comes to the local queue of a CPU runs there next (`rq_is_open`).
    fn is_open(&self, cpu: usize, flags: u64) -> bool {
        let free = self.runs_on(cpu).is_none() || self.cpus[cpu].balancing;
        !self.above.holds(cpu) && (free || flags & enq::PREEMPT != 0)
    }

    /// Whether a task of a CPU's local queue was to run at once.
    pub(super) fn has_immed(&self, cpu: usize) -> bool {
        self.queues[cpu].tasks.iter().any(|t| self.tasks[*t].immed)
    }

    /// The flags of an insert or a move, as the kernel takes them (`scx_vet_enq_flags`); `None`: it
    /// is an error.
    fn vet(&mut self, id: u64, flags: u64) -> Option<u64> {
        let local = id == dsq::LOCAL || id & dsq::LOCAL_ON == dsq::LOCAL_ON;
        // Only 7.x has the flag.
        if !self.rules.dequeue_always {
            return Some(flags);
        }
        if flags & enq::IMMED != 0 && !local {
            self.error(format_args!("SCX_ENQ_IMMED on a non-local DSQ {id:#x}"));
            return None;
        }
        let always = local && self.flags & super::ops::flag::ALWAYS_ENQ_IMMED != 0;
        Some(if always { flags | enq::IMMED } else { flags })
    }

    fn show_length(&mut self, queue: usize) {
        let (addr, n) = (self.queues[queue].addr, self.queues[queue].tasks.len());
        self.set(addr, self.layout.queue_length, n as u64);
    }

    /// The task is not in the scheduler's hands any more. Returns whether it was, and the kernel is
    /// one that tells it so.
    fn leaves_custody(&mut self, t: usize) -> bool {
        std::mem::take(&mut self.tasks[t].custody) && self.rules.dequeue_always
    }

    fn after_local(&mut self, cpu: usize, t: usize, flags: u64) -> Step {
        if self.leaves_custody(t) {
            self.op(Op::Dequeue, cpu, &[self.tasks[t].addr, 0])?;
        }
        if self.cpus[cpu].balancing {
            return Ok(());
        }
        match self.runs_on(cpu) {
            None => self.resched(cpu),
            Some(running) if flags & enq::PREEMPT != 0 && running != t => {
                self.set_slice(running, 0);
                self.resched(cpu);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Takes a task out of its queue.
    pub(super) fn unlink(&mut self, t: usize) {
        let Some(queue) = self.tasks[t].queue.take() else { return };
        let list = &mut self.queues[queue].tasks;
        if list.front() == Some(&t) {
            list.pop_front();
        } else if let Some(at) = list.iter().position(|other| *other == t) {
            list.remove(at);
        }
        self.show_length(queue);
        self.set(self.tasks[t].addr, self.layout.dsq, 0);
    }

    /// `task_can_run_on_remote_rq`.
    fn may_move(&mut self, t: usize, cpu: usize, enforce: bool) -> bool {
        let (allowed, online) = (self.allowed(t, cpu), self.cpus[cpu].online);
        if !allowed && enforce {
            let name = self.task_name(t);
            self.error(format_args!("SCX_DSQ_LOCAL[_ON] target CPU {cpu} not allowed for {name}"));
        }
        allowed && online
    }

    fn move_to_local(&mut self, t: usize, cpu: usize, flags: u64) -> Step {
        self.set_cpu(t, cpu);
        self.dispatch_enqueue(cpu, t, flags & !enq::BY_VTIME)
    }

    /// Moves the first task of a queue that may run on `cpu` there.
    pub(super) fn consume(&mut self, queue: usize, cpu: usize, flags: u64) -> Step<bool> {
        for at in 0..self.queues[queue].tasks.len() {
            let t = self.queues[queue].tasks[at];
            if self.tasks[t].cpu == cpu || self.may_move(t, cpu, false) {
                self.unlink(t);
                self.move_to_local(t, cpu, flags)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `dispatch_to_local_dsq`
    fn dispatch_to_local(&mut self, t: usize, cpu: usize, flags: u64) -> Step {
        self.tasks[t].held = None;
        if self.tasks[t].cpu != cpu && !self.may_move(t, cpu, true) {
            return self.dispatch_enqueue(self.global(), t, flags & !enq::BY_VTIME);
        }
        self.move_to_local(t, cpu, flags)?;
        if self.is_idle(cpu) {
            self.resched(cpu);
        }
        Ok(())
    }

    /// `scx_bpf_dsq_insert` and its like.
    pub(super) fn insert(&mut self, p: u64, id: u64, slice: u64, flags: u64) -> Step<u64> {
        let t = self.task_of(p)?;
        let Some(flags) = self.vet(id, flags) else { return Ok(0) };
        match self.direct {
            Direct::Of(wanted) if wanted != t => {
                let (name, other) = (self.task_name(t), self.task_name(wanted));
                self.error(format_args!(
                    "scheduling for {name} but trying to direct-dispatch {other}"
                ));
                return Ok(0);
            }
            Direct::Of(_) => {
                self.refill(t, slice);
                self.direct = Direct::Done;
                self.tasks[t].direct = Some((id, flags));
                return Ok(1);
            }
            Direct::Done => {
                let name = self.task_name(t);
                self.error(format_args!("{name} already direct-dispatched"));
                return Ok(0);
            }
            Direct::No => {}
        }
        if self.buffer.len() >= self.batch {
            self.error("dispatch buffer overflow");
            return Ok(0);
        }
        self.refill(t, slice);
        let hold = self.tasks[t].held;
        self.buffer.push(Buffered { task: t, hold, dsq: id, flags });
        Ok(1)
    }

    fn refill(&mut self, t: usize, slice: u64) {
        let slice = if slice == 0 { self.slice(t).max(1) } else { slice };
        self.set_slice(t, slice);
    }

    /// `flush_dispatch_buf`: each entry counts if its task is still held as it was.
    pub(super) fn flush(&mut self) -> Step {
        let buffer = std::mem::take(&mut self.buffer);
        self.dispatched += buffer.len();
        for one in buffer {
            if one.hold.is_none() || self.tasks[one.task].held != one.hold {
                continue;
            }
            let queue = self.queue_for(self.dispatch_cpu, one.dsq);
            if queue < self.global() {
                self.dispatch_to_local(one.task, queue, one.flags)?;
            } else {
                self.dispatch_enqueue(queue, one.task, one.flags | enq::CLEAR_OPSS)?;
            }
        }
        Ok(())
    }

    /// `direct_dispatch`: into a queue at once, or later when it is another CPU's.
    fn direct(&mut self, t: usize, enq_flags: u64) -> Step {
        let cpu = self.tasks[t].cpu;
        let Some((id, flags)) = self.tasks[t].direct else { return Ok(()) };
        let flags = flags | enq_flags;
        let queue = self.queue_for(cpu, id);
        if queue < self.global() && queue != cpu {
            self.tasks[t].held = None;
            self.tasks[t].direct = Some((id, flags));
            self.cpus[cpu].deferred.push(t);
            return Ok(());
        }
        self.tasks[t].direct = None;
        self.dispatch_enqueue(queue, t, flags | enq::CLEAR_OPSS)
    }

    /// `run_deferred`
    pub(super) fn run_deferred(&mut self, cpu: usize) -> Step {
        for t in std::mem::take(&mut self.cpus[cpu].deferred) {
            if let Some((id, flags)) = self.tasks[t].direct.take() {
                let queue = self.queue_for(cpu, id);
                self.dispatch_to_local(t, queue, flags)?;
            }
        }
        let all = std::mem::take(&mut self.cpus[cpu].reenqueue);
        if std::mem::take(&mut self.cpus[cpu].reenqueue_immed) || all {
            self.reenqueue_local(cpu, all)?;
        }
        Ok(())
    }

    /// `reenq_local`: all tasks, or those that were to run at once and do not run next.
    fn reenqueue_local(&mut self, cpu: usize, all: bool) -> Step {
        let open = self.is_open(cpu, 0);
        let list = self.queues[cpu].tasks.iter().copied().enumerate();
        let goes = |(at, t): &(usize, usize)| all || self.tasks[*t].immed && (*at > 0 || !open);
        let again: Vec<usize> = list.filter(goes).map(|(_, t)| t).collect();
        again.iter().for_each(|t| self.unlink(*t));
        for t in again {
            self.do_enqueue(t, enq::REENQ)?;
        }
        Ok(())
    }

    /// Re-enqueues that programs asked for, once those are done (`run_deferred` by an irq work).
    pub(super) fn reenqueue(&mut self) -> Step {
        for cpu in 0..self.cpus.len() {
            let mut repeats = 0;
            while self.cpus[cpu].reenqueue || self.cpus[cpu].reenqueue_immed {
                repeats += 1;
                if repeats > super::ops::MAX_REPEATS {
                    let what = "SCX_ENQ_REENQ on SCX_DSQ_LOCAL repeated";
                    self.error(format_args!("{what} {repeats} times"));
                    return Ok(());
                }
                self.run_deferred(cpu)?;
            }
        }
        for queue in std::mem::take(&mut self.reenqueued) {
            for t in self.queues[queue].tasks.clone() {
                self.unlink(t);
                self.do_enqueue(t, enq::REENQ)?;
                self.run_deferred(self.tasks[t].cpu)?;
            }
        }
        Ok(())
    }

    /// `do_enqueue_task`
    pub(super) fn do_enqueue(&mut self, t: usize, flags: u64) -> Step {
        let cpu = self.tasks[t].cpu;
        self.tasks[t].immed = false;
        if !self.cpus[cpu].online {
            self.set_slice(t, super::ops::SLICE_DFL);
            return self.dispatch_enqueue(cpu, t, flags);
        }
        if self.tasks[t].direct.is_some() {
            return self.direct(t, flags);
        }
        if !self.has(Op::Enqueue) {
            self.set_slice(t, super::ops::SLICE_DFL);
            return self.dispatch_enqueue(self.global(), t, flags);
        }
        self.tasks[t].holds += 1;
        let hold = self.tasks[t].holds;
        self.direct = Direct::Of(t);
        let before = self.locked.replace(cpu);
        let result = self.op(Op::Enqueue, self.vm.cpu, &[self.tasks[t].addr, flags]);
        self.locked = before;
        self.direct = Direct::No;
        result?;
        if self.tasks[t].direct.is_some() {
            return self.direct(t, flags);
        }
        self.tasks[t].custody = true;
        self.tasks[t].held = Some(hold);
        Ok(())
    }

    /// `ops_dequeue`: the core takes the task away.
    pub(super) fn ops_dequeue(&mut self, t: usize, flags: u64) -> Step {
        let held = self.tasks[t].held.take().is_some();
        let custody = std::mem::take(&mut self.tasks[t].custody);
        let told = if self.rules.dequeue_always { custody } else { held };
        if told {
            self.op(Op::Dequeue, self.tasks[t].cpu, &[self.tasks[t].addr, flags])?;
        }
        Ok(())
    }

    /// Everything that may hold a task forgets it.
    pub(super) fn forget(&mut self, t: usize) {
        self.unlink(t);
        self.tasks[t].direct = None;
        for cpu in &mut self.cpus {
            cpu.deferred.retain(|other| *other != t);
        }
    }

    /// `scx_bpf_dsq_move_to_local` and its elder form.
    pub(super) fn consume_here(&mut self, id: u64, flags: u64) -> Step<u64> {
        self.flush()?;
        let Some(flags) = self.vet(dsq::LOCAL, flags) else { return Ok(0) };
        let Some(queue) = self.own_queue(id).or((id == dsq::GLOBAL).then(|| self.global())) else {
            self.error(format_args!("invalid DSQ ID {id:#018x}"));
            return Ok(0);
        };
        let moved = self.consume(queue, self.dispatch_cpu, flags)?;
        self.dispatched += usize::from(moved);
        Ok(u64::from(moved))
    }

    /// `scx_bpf_dsq_move` and its like.
    pub(super) fn move_iterated(&mut self, it: u64, p: u64, id: u64, flags: u64) -> Step<u64> {
        let t = self.task_of(p)?;
        let Some(flags) = self.vet(id, flags) else { return Ok(0) };
        let Some(iter) = self.iters.get_mut(&it) else { return Ok(0) };
        let (slice, vtime) = (iter.slice.take(), iter.vtime.take());
        if self.tasks[t].queue != Some(iter.queue) {
            return Ok(0);
        }
        if let Some(slice) = slice {
            self.set_slice(t, slice);
        }
        if let Some(vtime) = vtime {
            self.set(p, self.layout.vtime, vtime);
        }
        let here = self.locked.unwrap_or(self.vm.cpu);
        let mut queue = self.queue_for(here, id);
        let local = queue < self.global();
        if local && self.tasks[t].cpu != queue && !self.may_move(t, queue, true) {
            queue = self.global();
        }
        self.unlink(t);
        if queue < self.global() {
            self.move_to_local(t, queue, flags)?;
        } else {
            self.dispatch_enqueue(queue, t, flags)?;
        }
        Ok(1)
    }

    /// `scx_bpf_create_dsq`
    pub(super) fn create_queue(&mut self, id: u64) -> Step<u64> {
        use schedlab_bpf::errno::{EEXIST, EINVAL};
        if id & dsq::BUILTIN != 0 {
            return Ok(EINVAL);
        }
        if self.own_queue(id).is_some() {
            return Ok(EEXIST);
        }
        self.ids.insert(id, self.queues.len());
        self.add_queue(id)?;
        Ok(0)
    }

    pub(super) fn add_queue(&mut self, id: u64) -> Result<(), Stop> {
        let bytes = (self.layout.queue_id.0 + 8).max(self.layout.queue_length.0 + 8).max(256);
        let addr = self.vm.memory.alloc(bytes as usize)?;
        self.set(addr, self.layout.queue_id, id);
        self.queues.push(super::kernel::Queue { id, addr, ..Default::default() });
        Ok(())
    }
}
