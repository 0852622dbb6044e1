//! Where Credit puts a unit: at creation, after a migration, and as a question at every tick.

use super::super::common::{Step, cycle, minus};
use super::Credit;
use crate::Cx;
use schedlab_model::{CpuId, CpuSet, TaskId};

impl Credit {
    /// The pCPU for `task`. `commit` also remembers the choice and marks the unit as placed (its
    /// next wake does not boost).
    pub(super) fn place(&mut self, _cx: &Cx<'_>, task: TaskId, commit: bool) -> CpuId {
        let core = self.unit(task).core.clone();
        let mut choice = core.cpu;
        let mut bias = None;
        for (step, mask) in core.steps() {
            let mask = mask.and(&self.pool);
            if mask.is_empty() {
                continue;
            }
            let home = if mask.contains(core.cpu) {
                core.cpu
            } else {
                cycle(core.cpu, &mask).expect("not empty")
            };
            let mut idle = self.idlers;
            if home == core.cpu && self.pcpus[home.index()].queue.is_empty() {
                idle.insert(home);
            }
            let idle = idle.and(&self.pool);
            (choice, bias) = self.spread(home, mask.and(&idle), &idle);
            if idle.contains(choice) && step == Step::Soft {
                break;
            }
        }
        if commit {
            if let Some(n) = bias {
                let n: CpuId = n;
                self.pcpus[n.index()].idle_bias = choice;
            }
            self.unit_mut(task).placed = true;
        }
        choice
    }

    /// Walks the idle pCPUs of `left` from `choice` on and moves to emptier cores and sockets (or
    /// fuller ones, when packing). Also says whose `idle_bias` was used.
    fn spread(&self, mut choice: CpuId, mut left: CpuSet, idle: &CpuSet) -> (CpuId, Option<CpuId>) {
        let places = self.places();
        let mut bias = None;
        if !left.contains(choice)
            && let Some(next) = cycle(choice, &left)
        {
            choice = next;
        }
        if places.flat {
            return (choice, None);
        }
        left.remove(choice);
        while let Some(n) = cycle(choice, &left) {
            let same_socket = places.socket[choice.index()] == places.socket[n.index()];
            let (sets, factor) =
                if same_socket { (&places.siblings, 1) } else { (&places.sockets, 2) };
            let here = idle.and(&sets[choice.index()]).count();
            let group = idle.and(&sets[n.index()]);
            let there = group.count();
            let better = if self.set.pack { here * factor > there } else { here * factor < there };
            if better {
                let among = group.and(&left);
                choice = cycle(self.pcpus[n.index()].idle_bias, &among).expect("n is among them");
                bias = Some(n);
                left = minus(&left, &places.siblings[choice.index()]);
            } else {
                left = minus(&left, &group);
            }
        }
        (choice, bias)
    }
}
