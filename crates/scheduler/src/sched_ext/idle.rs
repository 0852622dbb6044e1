//! Idle CPUs, and the built-in choice among them (kernel/sched/ext/idle.c of 7.2).

use super::kernel::Kernel;
use super::ops::flag;
use schedlab_bpf::errno::EBUSY;

/// `SCX_WAKE_SYNC`.
const SYNC: u64 = 16;
/// `SCX_PICK_IDLE_CORE`.
const CORE: u64 = 1;
const NONE: i64 = EBUSY as i64;

impl Kernel {
    fn mask(&self, addr: u64) -> u64 {
        self.vm.memory.word(addr)
    }
    fn has_smt(&self) -> bool {
        self.cpus[0].smt.count_ones() > 1
    }
    fn all(&self) -> u64 {
        self.mask(self.online_mask)
    }

    /// Notes that a CPU idles, or does not.
    pub(super) fn set_idle(&mut self, cpu: usize, idle: bool) {
        if !self.builtin_idle {
            return;
        }
        let (mask, core) = (self.mask(self.idle_mask), self.cpus[cpu].smt);
        let mask = if idle { mask | 1 << cpu } else { mask & !(1 << cpu) };
        self.vm.memory.set_word(self.idle_mask, mask);
        let cores = self.mask(self.smt_mask);
        let cores = match idle {
            true if mask & core == core => cores | core,
            true => cores,
            false => cores & !core,
        };
        self.vm.memory.set_word(self.smt_mask, cores);
    }

    /// `scx_idle_test_and_clear_cpu`
    pub(super) fn claim(&mut self, cpu: usize) -> bool {
        let cores = self.mask(self.smt_mask) & !self.cpus[cpu].smt;
        self.vm.memory.set_word(self.smt_mask, cores);
        let mask = self.mask(self.idle_mask);
        self.vm.memory.set_word(self.idle_mask, mask & !(1 << cpu));
        mask >> cpu & 1 == 1
    }

    /// `scx_pick_idle_cpu`: negative when none idles.
    pub(super) fn pick_idle(&mut self, allowed: u64, flags: u64) -> i64 {
        loop {
            let mut found = None;
            if self.has_smt() {
                found = self.vm.any_of(self.mask(self.smt_mask) & allowed);
                if found.is_none() && flags & CORE != 0 {
                    return NONE;
                }
            }
            let found = found.or_else(|| self.vm.any_of(self.mask(self.idle_mask) & allowed));
            let Some(cpu) = found else { return NONE };
            if self.claim(cpu) {
                return cpu as i64;
            }
        }
    }

    /// `scx_select_cpu_dfl`: an idle CPU for a task that wakes on the CPU where this runs.
    pub(super) fn select_default(
        &mut self,
        t: usize,
        prev: usize,
        wake: u64,
        mask: u64,
        flags: u64,
    ) -> i64 {
        let own = self.tasks[t].mask;
        let allowed = mask & own;
        if allowed == 0 || prev >= self.cpus.len() {
            return NONE;
        }
        if own.count_ones() == 1 {
            let cpu = own.trailing_zeros() as usize;
            return if self.claim(cpu) { cpu as i64 } else { NONE };
        }
        let near = |part: u64| match self.rules.idle_topology && part != self.all() {
            true => part & allowed,
            false => 0,
        };
        let llc = near(self.cpus[prev].llc);
        let node = match near(self.cpus[prev].node) {
            node if node == llc => 0,
            node => node,
        };
        let prev_allowed = allowed >> prev & 1 == 1;
        if wake & SYNC != 0
            && let Some(cpu) = self.for_sync(prev, prev_allowed, allowed)
        {
            return cpu;
        }
        if self.has_smt() {
            let whole = self.mask(self.smt_mask) >> prev & 1 == 1;
            if prev_allowed && whole && self.claim(prev) {
                return prev as i64;
            }
            for part in [llc, node, allowed].into_iter().filter(|part| *part != 0) {
                let cpu = self.pick_idle(part, flags | CORE);
                if cpu >= 0 {
                    return cpu;
                }
            }
            if flags & CORE != 0 {
                return NONE;
            }
        }
        self.any_thread(prev, prev_allowed, [llc, node, allowed], flags)
    }

    /// The waker is about to sleep: where it is, or where the task was.
    fn for_sync(&mut self, prev: usize, prev_allowed: bool, allowed: u64) -> Option<i64> {
        let here = self.vm.cpu;
        let shares = self.cpus[here].llc >> prev & 1 == 1;
        if self.rules.idle_topology && prev_allowed && shares && self.claim(prev) {
            return Some(prev as i64);
        }
        let idle = self.mask(self.idle_mask);
        if self.queues[here].tasks.is_empty() && idle != 0 && allowed >> here & 1 == 1 {
            return Some(here as i64);
        }
        None
    }

    fn any_thread(&mut self, prev: usize, prev_allowed: bool, parts: [u64; 3], flags: u64) -> i64 {
        if prev_allowed && self.claim(prev) {
            return prev as i64;
        }
        if self.rules.idle_topology && self.has_smt() {
            let siblings = self.cpus[prev].smt & parts[2] & !(1 << prev);
            for cpu in (0..self.cpus.len()).filter(|cpu| siblings >> cpu & 1 == 1) {
                if self.claim(cpu) {
                    return cpu as i64;
                }
            }
        }
        for part in parts.into_iter().filter(|part| *part != 0) {
            let cpu = self.pick_idle(part, flags);
            if cpu >= 0 {
                return cpu;
            }
        }
        NONE
    }

    /// Calls about idle CPUs need the built-in tracking, of one node or of all.
    pub(super) fn check_idle_tracking(&mut self, per_node: bool) -> bool {
        let is = self.flags & flag::BUILTIN_IDLE_PER_NODE != 0;
        match (self.builtin_idle, is == per_node) {
            (false, _) => self.error("built-in idle tracking is disabled"),
            (true, false) if per_node => self.error("per-node idle tracking is disabled"),
            (true, false) => self.error("per-node idle tracking is enabled"),
            (true, true) => return true,
        }
        false
    }

    /// The mask of wholly idle cores; that of CPUs where there is no SMT.
    pub(super) fn smt_mask_shown(&self) -> u64 {
        if self.has_smt() { self.smt_mask } else { self.idle_mask }
    }
}
