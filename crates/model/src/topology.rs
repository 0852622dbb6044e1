//! Where each CPU sits: socket, NUMA node, last-level cache, core, SMT thread.

use crate::CpuSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The speed of a hardware thread beside no busy one of its core, in thousandths.
pub const FULL_SPEED: u16 = 1_000;
/// The least speed of a hardware thread beside a busy one, in thousandths: one that is slowed more
/// makes no sense.
pub const LEAST_SMT_YIELD: u16 = 100;

/// The place of one CPU. Each number is global to the machine (two sockets do not both have core
/// 0).
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct CpuPlace {
    /// Package.
    pub socket: u32,
    /// NUMA node.
    pub node: u32,
    /// Last-level cache (a CCX on AMD).
    pub llc: u32,
    /// Physical core.
    pub core: u32,
}

/// The machine's CPUs, in logical order.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Topology {
    places: Vec<CpuPlace>,
}

impl Topology {
    /// `cpus` cores that share one cache on one socket, one thread each.
    pub fn flat(cpus: usize) -> Topology {
        Topology::regular(1, 1, cpus, 1)
    }

    /// A regular machine: `sockets` × `llcs_per_socket` × `cores_per_llc` × `threads_per_core`.
    /// Each socket is one NUMA node. CPUs are numbered socket by socket, the threads of a core side
    /// by side.
    pub fn regular(
        sockets: usize,
        llcs_per_socket: usize,
        cores_per_llc: usize,
        threads_per_core: usize,
    ) -> Topology {
        let mut places = Vec::new();
        for core in 0..sockets * llcs_per_socket * cores_per_llc {
            let llc = core / cores_per_llc;
            let socket = (llc / llcs_per_socket) as u32;
            let place = CpuPlace { socket, node: socket, llc: llc as u32, core: core as u32 };
            places.extend(std::iter::repeat_n(place, threads_per_core));
        }
        Topology { places }
    }

    /// A machine given place by place.
    pub fn from_places(places: Vec<CpuPlace>) -> Topology {
        Topology { places }
    }

    /// How many CPUs.
    pub fn cpus(&self) -> usize {
        self.places.len()
    }

    /// Whether a core has several hardware threads.
    pub fn has_siblings(&self) -> bool {
        let cores: BTreeSet<u32> = self.places.iter().map(|place| place.core).collect();
        cores.len() < self.cpus()
    }

    /// The places in logical CPU order.
    pub fn places(&self) -> &[CpuPlace] {
        &self.places
    }

    /// The other hardware threads of the core of `cpu`.
    pub fn siblings(&self, cpu: crate::CpuId) -> Vec<crate::CpuId> {
        let core = self.sharing(cpu, |place| place.core);
        core.iter().filter(|other| *other != cpu).collect()
    }

    /// The CPUs for which `key` gives the same value as for CPU `cpu` (itself included).
    pub fn sharing<K: PartialEq>(&self, cpu: crate::CpuId, key: impl Fn(&CpuPlace) -> K) -> CpuSet {
        let own = key(&self.places[cpu.index()]);
        self.places
            .iter()
            .enumerate()
            .filter(|(_, place)| key(place) == own)
            .map(|(i, _)| crate::CpuId::from(i))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuId;

    #[test]
    fn regular_machine_is_numbered_socket_by_socket() {
        let machine = Topology::regular(2, 1, 2, 2);
        assert_eq!(machine.cpus(), 8);
        assert_eq!(machine.sharing(CpuId(5), |p| p.core).to_string(), "4-5");
        assert_eq!(machine.sharing(CpuId(5), |p| p.socket).to_string(), "4-7");
    }
}
