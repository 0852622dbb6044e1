//! Which of many CPUs has its tick edge first.

use crate::World;
use schedlab_model::{CpuId, Ns};

/// The CPUs in the order of their ticks within a period.
#[derive(Debug)]
pub(in crate::linux) struct TickEdges {
    /// Place in the period, ns, and CPU; ascending.
    order: Box<[(u64, CpuId)]>,
    tick: u64,
    /// From here on every CPU has had its first edge, or has it within a period.
    regular: u64,
}

impl TickEdges {
    pub(in crate::linux) fn new(world: &World) -> TickEdges {
        let tick = world.tick_ns.0;
        let phases = || world.cpus.iter().map(|cpu| cpu.tick_phase.0);
        let mut order: Vec<(u64, CpuId)> =
            phases().enumerate().map(|(cpu, phase)| (phase % tick, cpu.into())).collect();
        order.sort_unstable();
        let last = phases().max().unwrap_or(0);
        TickEdges { order: order.into(), tick, regular: (last + 1).saturating_sub(tick) }
    }

    /// The first tick edge at `from` or later of any CPU for which there `is` a reason.
    pub(in crate::linux) fn first(
        &self,
        world: &World,
        from: u64,
        is: impl Fn(CpuId) -> bool,
    ) -> Option<u64> {
        if from < self.regular {
            let edge = |cpu: &CpuId| {
                let k = world.ticks_until(*cpu, Ns(from.saturating_sub(1))) + 1;
                world.tick_edge(*cpu, k).0
            };
            let cpus = self.order.iter().map(|(_, cpu)| *cpu);
            return cpus.filter(|cpu| is(*cpu)).map(|cpu| edge(&cpu)).min();
        }
        let now = from % self.tick;
        let (before, behind) =
            self.order.split_at(self.order.partition_point(|(place, _)| *place < now));
        let (place, _) = behind.iter().chain(before).find(|(_, cpu)| is(*cpu))?;
        let ahead = if *place >= now { place - now } else { place + self.tick - now };
        Some(from + ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuView, GroupView};
    use proptest::prelude::*;
    use schedlab_model::Topology;

    proptest! {
        /// Against a search over every edge of every CPU.
        #[test]
        fn the_first_edge_is_found(
            phases in prop::collection::vec(0u64..3_000, 1..9), from in 1u64..9_000, reasons in any::<u8>(),
        ) {
            let world = World {
                roles: Default::default(),
                partitions: Vec::new(),
                tasks: Vec::new(),
                cpus: phases.iter().map(|phase| CpuView::new(Ns(*phase))).collect(),
                groups: vec![GroupView::default()],
                topology: Topology::flat(phases.len()),
                hz: 1_000_000,
                tick_ns: Ns(1_000),
            };
            let is = |cpu: CpuId| reasons >> cpu.0 & 1 != 0;
            let edges = phases.iter().enumerate().filter(|(cpu, _)| is((*cpu).into()));
            let plain = edges.flat_map(|(_, phase)| (0..20).map(move |k| phase + 1_000 * k));
            let expected = plain.filter(|at| *at >= from).min();
            prop_assert_eq!(TickEdges::new(&world).first(&world, from, is), expected);
        }
    }
}
