//! Scheduling domains: which CPUs balance with which, at which distance and how often.
//!
//! A domain is a set of CPUs (its span) cut into groups: the spans of the level below. Every CPU
//! has a chain of domains from near to far: the threads of its core (SMT), the cores of its
//! last-level cache (MC), the socket (PKG) and the whole machine (NUMA). A level that adds no CPU
//! to the one below does not exist.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | levels SMT, MC, PKG, NUMA; levels without effect removed | `kernel/sched/topology.c` | modelled | `levels_without_effect_vanish` |
//! | interval: span weight ms, at most twice that; busy factor 16 | `sd_init` 6.1–6.18 | modelled | `a_two_socket_smt_machine` |
//! | `imbalance_pct` 117, SMT 110 | same | modelled | same |
//! | `cache_nice_tries` SMT 0, MC 1, PKG 1, NUMA 2 | same | modelled | same |
//! | siblings preferred below NUMA | `SD_PREFER_SIBLING` | modelled | same |
//! | allowed NUMA imbalance | `imb_numa_nr`, 5.18+ | modelled: one eighth of a node with one LLC, else one a LLC | same |
//! | fault: the level of nodes was not rebuilt after a CPU went and came | 3.19 | `defects.MISSING_DOMAINS`: there is no such level | `d3_12_missing_domains` |
//! | isolated CPUs belong to no domain and share their cache with no CPU | `build_sched_domains` of `housekeeping_cpumask(HK_TYPE_DOMAIN)`; `partition_sched_domains` without a cpuset partition that is `isolated` | modelled | `isolated_cpus_have_no_domain` |
//! | CPUs of a cpuset partition that is `root` have domains of their own, and so have the others | `generate_sched_domains`, `partition_sched_domains` | modelled | `a_partition_is_balanced_for_itself`, `oracles/places` |
//! | RT and deadline tasks are pushed and pulled among isolated CPUs, among those of a partition, and among the others | `def_root_domain`, `build_sched_domains` | modelled: [`Domains::root_of`] | `real_time_tasks_spread_over_isolated_cpus` |
//! | distances between nodes: several NUMA levels, overlapping groups | `sched_domains_numa_*` | omitted: all nodes are equally far | – |
//! | clusters (shared L2) | 5.16+ | omitted | – |
//! | CPUs of different capacity | `SD_ASYM_*` | omitted | – |
//! | rebuilt when a CPU comes or goes | `partition_sched_domains` | simplified: spans stay as at the start, offline CPUs are passed over | `an_offline_cpu_leaves_every_domain`, `smp_tests` |

use crate::World;
use schedlab_model::{CpuId, CpuPlace, CpuSet, Ns, Topology};
use std::ops::Range;

/// How far the groups of a domain are from each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::linux) enum Level {
    /// Threads of one core.
    Smt,
    /// Cores behind one last-level cache.
    Mc,
    /// Caches of one socket.
    Pkg,
    /// Nodes of the machine.
    Numa,
}

/// One span and its groups. Shared by all CPUs of the span.
#[derive(Clone, Debug)]
pub(in crate::linux) struct Domain {
    pub(in crate::linux) level: Level,
    pub(in crate::linux) span: CpuSet,
    /// How many CPUs.
    pub(in crate::linux) weight: u64,
    /// In ascending order of their first CPU.
    pub(in crate::linux) groups: Vec<Group>,
    /// The CPU of each group, where every group is a single CPU; else empty.
    pub(in crate::linux) singles: Vec<CpuId>,
    /// Shortest (and first) balance interval.
    pub(in crate::linux) min_interval: Ns,
    /// Longest.
    pub(in crate::linux) max_interval: Ns,
    /// The interval is this much longer on a busy CPU.
    pub(in crate::linux) busy_factor: u64,
    /// A group is worth a move when it has this much per cent of the local load.
    pub(in crate::linux) imbalance_pct: u64,
    /// So many failed attempts before cache-hot tasks are moved.
    pub(in crate::linux) cache_nice_tries: u32,
    /// Whether tasks should spread over the groups even while CPUs are spare.
    pub(in crate::linux) prefer_sibling: bool,
    /// NUMA: imbalance that is left alone.
    pub(in crate::linux) imb_numa_nr: u64,
}

/// One part of a domain.
#[derive(Clone, Debug)]
pub(in crate::linux) struct Group {
    /// Its CPU, where it is a single one, as on large machines in most groups.
    only: Option<CpuId>,
    pub(in crate::linux) cpus: CpuSet,
    /// The words of the set that are not empty.
    words: Range<usize>,
    /// How many physical cores.
    pub(in crate::linux) cores: u64,
}

impl Group {
    fn new(cpus: CpuSet, cores: u64) -> Group {
        let only = cpus.lowest().filter(|_| cpus.count() == 1);
        Group { only, cpus, words: cpus.span(), cores }
    }

    /// Its CPU, if it has one only.
    #[inline]
    pub(in crate::linux) fn only(&self) -> Option<CpuId> {
        self.only
    }

    /// Whether any of its CPUs is in `set`.
    #[inline]
    pub(in crate::linux) fn meets(&self, set: &CpuSet) -> bool {
        match self.only {
            Some(cpu) => set.contains(cpu),
            None => self.within(set).next().is_some(),
        }
    }

    /// Calls `f` with its CPUs that are in `set`.
    #[inline]
    pub(in crate::linux) fn for_each_within(&self, set: &CpuSet, mut f: impl FnMut(CpuId)) {
        match self.only {
            Some(cpu) if set.contains(cpu) => f(cpu),
            Some(_) => {}
            None => self.within(set).for_each(f),
        }
    }

    /// Its CPUs that are in `set`.
    #[inline]
    pub(in crate::linux) fn within<'a>(
        &'a self,
        set: &'a CpuSet,
    ) -> impl Iterator<Item = CpuId> + use<'a> {
        self.cpus.common(set, self.words.clone())
    }
}

/// A domain as one CPU sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) struct Link {
    /// Index into [`Domains::all`].
    pub(in crate::linux) domain: usize,
    /// Index of the CPU's own group.
    pub(in crate::linux) local: usize,
}

/// What cuts a machine into parts that do not balance with each other.
#[derive(Clone, Copy, Default)]
pub(in crate::linux) struct Parts<'a> {
    /// CPUs that are balanced with no other.
    pub(in crate::linux) isolated: CpuSet,
    /// Sets that are balanced for themselves.
    pub(in crate::linux) partitions: &'a [CpuSet],
}

impl<'a> Parts<'a> {
    /// Those of a machine.
    pub(in crate::linux) fn of(world: &'a World) -> Parts<'a> {
        Parts { isolated: world.roles.isolated, partitions: &world.partitions }
    }

    /// Returns the sets into which `balanced` is cut: first what is in no partition.
    pub(in crate::linux) fn cut(self, balanced: &CpuSet) -> Vec<CpuSet> {
        let mut parts = vec![*balanced];
        for partition in self.partitions {
            let own = partition.and(&parts[0]);
            parts[0] = parts[0].without(&own);
            parts.push(own);
        }
        parts
    }
}

/// What CPUs of one span have in common.
type Key = fn(&CpuPlace) -> u32;

/// All domains of a machine.
#[derive(Clone, Debug, Default)]
pub(in crate::linux) struct Domains {
    pub(in crate::linux) all: Vec<Domain>,
    /// By CPU: its domains from near to far; empty for a CPU that is offline or alone.
    pub(in crate::linux) of_cpu: Vec<Vec<Link>>,
    /// By CPU: the online CPUs behind its last-level cache.
    pub(in crate::linux) llc: Vec<CpuSet>,
    /// By CPU: number of its last-level cache.
    pub(in crate::linux) llc_id: Vec<u32>,
    /// By CPU: the online threads of its core.
    pub(in crate::linux) smt: Vec<CpuSet>,
    /// Whether any core has two online threads.
    pub(in crate::linux) has_smt: bool,
    /// The online CPUs.
    pub(in crate::linux) online: CpuSet,
    /// Those of them that no domain has.
    isolated: CpuSet,
    /// The sets into which the others are cut: domains reach no further. There is one at least.
    parts: Vec<CpuSet>,
    /// By CPU: the CPUs of its node.
    pub(in crate::linux) nodes: Vec<CpuSet>,
}

impl Domains {
    /// All domains of the CPUs `online` of `topology`.
    #[cfg(test)]
    pub(in crate::linux) fn build(topology: &Topology, online: &CpuSet) -> Domains {
        Domains::up_to(topology, online, Parts::default(), Level::Numa)
    }

    /// The domains of the CPUs `online` of `topology` but the isolated ones, up to the level
    /// `highest`.
    pub(in crate::linux) fn up_to(
        topology: &Topology,
        online: &CpuSet,
        parts: Parts<'_>,
        highest: Level,
    ) -> Domains {
        let cpus = topology.cpus();
        let online = online.and(&CpuSet::first(cpus));
        let isolated = parts.isolated.and(&online);
        let parts = parts.cut(&online.without(&isolated));
        let mut domains = Domains {
            of_cpu: vec![Vec::new(); cpus],
            llc: vec![CpuSet::EMPTY; cpus],
            llc_id: topology.places().iter().map(|p| p.llc).collect(),
            smt: vec![CpuSet::EMPTY; cpus],
            online,
            isolated,
            parts,
            nodes: (0..cpus).map(|cpu| topology.sharing(CpuId::from(cpu), |p| p.node)).collect(),
            ..Domains::default()
        };
        domains.find_neighbours(topology);
        domains.has_smt = domains.smt.iter().any(|set| set.count() > 1);
        let levels: [(Level, Key); 4] = [
            (Level::Smt, |p| p.core),
            (Level::Mc, |p| p.llc),
            (Level::Pkg, |p| p.node),
            (Level::Numa, |_| 0),
        ];
        let mut below: Vec<CpuSet> =
            (0..cpus).map(|cpu| CpuSet::single(CpuId::from(cpu))).collect();
        for (level, key) in levels.into_iter().filter(|(level, _)| *level <= highest) {
            below = domains.add_level(topology, level, key, &below);
        }
        domains
    }

    /// Finds the threads of the core and the CPUs of the cache of each. An isolated CPU is behind a
    /// cache of its own, as far as placement asks, and those of a partition are behind another one
    /// than the rest of theirs.
    fn find_neighbours(&mut self, topology: &Topology) {
        let mut free = 1 + self.llc_id.iter().max().map_or(0, |&llc| llc);
        let mut numbered = |own: bool, llc: u32| {
            free += u32::from(own);
            if own { free - 1 } else { llc }
        };
        for (number, part) in self.parts.iter().enumerate() {
            for cpu in part.iter() {
                let near = |key: Key| topology.sharing(cpu, key).and(part);
                self.smt[cpu.index()] = near(|p| p.core);
                let llc = near(|p| p.llc);
                self.llc[cpu.index()] = llc;
                // The first of a cache numbers it, the others follow.
                let first = llc.lowest().unwrap_or(cpu);
                let known = self.llc_id[first.index()];
                self.llc_id[cpu.index()] = numbered(number > 0 && first == cpu, known);
            }
        }
        for cpu in self.isolated.iter() {
            self.smt[cpu.index()] = CpuSet::single(cpu);
            self.llc[cpu.index()] = CpuSet::single(cpu);
            self.llc_id[cpu.index()] = numbered(true, 0);
        }
    }

    /// Adds one level above the spans `below` (by CPU); gives the new spans.
    fn add_level(
        &mut self,
        topology: &Topology,
        level: Level,
        key: Key,
        below: &[CpuSet],
    ) -> Vec<CpuSet> {
        let mut spans = below.to_vec();
        let mut seen = CpuSet::EMPTY;
        let parts = self.parts.clone();
        let each = parts.iter().flat_map(|part| part.iter().map(move |cpu| (part, cpu)));
        for (part, cpu) in each {
            let wider = topology.sharing(cpu, key).and(part).or(&below[cpu.index()]);
            spans[cpu.index()] = wider;
            if wider == below[cpu.index()] || seen.contains(cpu) {
                continue;
            }
            let mut groups: Vec<CpuSet> = Vec::new();
            // By CPU: its group; looked up, for with 512 CPUs searches would be seen.
            let mut group_of = vec![None; spans.len()];
            for member in wider.iter() {
                if group_of[member.index()].is_none() {
                    let group = below[member.index()].and(&self.online);
                    for cpu in group.iter().filter(|cpu| cpu.index() < spans.len()) {
                        group_of[cpu.index()].get_or_insert(groups.len());
                    }
                    groups.push(group);
                }
            }
            for member in wider.iter() {
                seen.insert(member);
                let local = group_of[member.index()].unwrap_or(0);
                self.of_cpu[member.index()].push(Link { domain: self.all.len(), local });
            }
            let domain = self.domain(topology, level, wider, &groups);
            self.all.push(domain);
        }
        spans
    }

    fn domain(&self, topology: &Topology, level: Level, span: CpuSet, groups: &[CpuSet]) -> Domain {
        let weight = span.count() as u64;
        let cores = |set: &CpuSet| {
            let mut cores: Vec<u32> =
                set.iter().map(|c| topology.places()[c.index()].core).collect();
            cores.sort_unstable();
            cores.dedup();
            cores.len() as u64
        };
        // A domain spreads tasks over its groups when its child domain has the flag: all below NUMA
        // have it.
        let has_child = groups.iter().any(|group| group.count() > 1);
        let groups: Vec<Group> = groups.iter().map(|set| Group::new(*set, cores(set))).collect();
        Domain {
            level,
            span,
            weight,
            singles: groups
                .iter()
                .map(|group| group.only)
                .collect::<Option<_>>()
                .unwrap_or_default(),
            min_interval: Ns::from_ms(weight),
            max_interval: Ns::from_ms(2 * weight),
            busy_factor: 16,
            imbalance_pct: if level == Level::Smt { 110 } else { 117 },
            cache_nice_tries: match level {
                Level::Smt => 0,
                Level::Mc | Level::Pkg => 1,
                Level::Numa => 2,
            },
            prefer_sibling: has_child,
            imb_numa_nr: if level == Level::Numa {
                self.numa_slack(topology, &groups[0].cpus)
            } else {
                0
            },
            groups,
        }
    }

    /// How many tasks of difference between two nodes are left alone: one for each last-level cache
    /// of a node, or an eighth of the node's CPUs when it has only one.
    fn numa_slack(&self, topology: &Topology, node: &CpuSet) -> u64 {
        let mut llcs: Vec<u32> = node.iter().map(|c| topology.places()[c.index()].llc).collect();
        llcs.sort_unstable();
        llcs.dedup();
        let slack = if llcs.len() == 1 { node.count() / 8 } else { llcs.len() };
        slack.max(1) as u64
    }

    /// The domains of `cpu`, from near to far, with the index of its own group in each.
    #[inline]
    pub(in crate::linux) fn chain(
        &self,
        cpu: CpuId,
    ) -> impl DoubleEndedIterator<Item = (&Domain, Link)> {
        self.of_cpu[cpu.index()].iter().map(|link| (&self.all[link.domain], *link))
    }

    /// The CPUs among which RT and deadline tasks of `cpu` are pushed and pulled: all isolated
    /// ones, those of its partition, or all others (root domains).
    pub(in crate::linux) fn root_of(&self, cpu: CpuId) -> CpuSet {
        let part = self.parts.iter().find(|part| part.contains(cpu));
        part.copied().unwrap_or(self.isolated)
    }

    /// By last-level cache: how many CPUs are behind it.
    pub(in crate::linux) fn caches(&self) -> Vec<usize> {
        let mut caches = Vec::new();
        for llc in self.llc_id.iter().map(|&llc| llc as usize) {
            if caches.len() <= llc {
                caches.resize(llc + 1, 0);
            }
            caches[llc] += 1;
        }
        caches
    }

    /// Whether both CPUs are behind one last-level cache.
    #[inline]
    pub(in crate::linux) fn share_cache(&self, a: CpuId, b: CpuId) -> bool {
        self.llc_id[a.index()] == self.llc_id[b.index()]
    }
}

/// The CPUs of `set` in ascending order, starting with the first one that is `from` or more, then
/// from 0.
pub(in crate::linux) fn wrap(set: &CpuSet, from: u32) -> impl Iterator<Item = CpuId> + use<> {
    let (set, below) = (*set, *set);
    set.iter().filter(move |c| c.0 >= from).chain(below.iter().filter(move |c| c.0 < from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(domains: &Domains, cpu: u32) -> Vec<(Level, String, usize)> {
        domains.chain(CpuId(cpu)).map(|(d, l)| (d.level, d.span.to_string(), l.local)).collect()
    }

    #[test]
    fn levels_without_effect_vanish() {
        let flat = Domains::build(&Topology::flat(4), &CpuSet::ALL);
        assert_eq!(names(&flat, 2), [(Level::Mc, "0-3".to_owned(), 2)]);
        assert!(!flat.has_smt);
        assert_eq!(flat.all[0].groups.len(), 4);
        assert!(
            !flat.all[0].prefer_sibling,
            "the lowest domain has no child that prefers siblings"
        );
        let one = Domains::build(&Topology::flat(1), &CpuSet::ALL);
        assert!(one.all.is_empty());
    }

    #[test]
    fn a_two_socket_smt_machine() {
        // 2 sockets x 2 caches x 2 cores x 2 threads.
        let domains = Domains::build(&Topology::regular(2, 2, 2, 2), &CpuSet::ALL);
        assert_eq!(
            names(&domains, 5),
            [
                (Level::Smt, "4-5".to_owned(), 1),
                (Level::Mc, "4-7".to_owned(), 0),
                (Level::Pkg, "0-7".to_owned(), 1),
                (Level::Numa, "0-15".to_owned(), 0)
            ]
        );
        let chain: Vec<&Domain> = domains.chain(CpuId(5)).map(|(d, _)| d).collect();
        assert_eq!(chain.iter().map(|d| d.imbalance_pct).collect::<Vec<_>>(), [110, 117, 117, 117]);
        assert_eq!(chain.iter().map(|d| d.cache_nice_tries).collect::<Vec<_>>(), [0, 1, 1, 2]);
        assert_eq!(
            chain.iter().map(|d| d.prefer_sibling).collect::<Vec<_>>(),
            [false, true, true, true]
        );
        assert_eq!(chain[3].min_interval, Ns::from_ms(16));
        assert_eq!(chain[3].max_interval, Ns::from_ms(32));
        assert_eq!(chain[3].imb_numa_nr, 2);
        assert_eq!((chain[2].groups[0].cpus.count(), chain[2].groups[0].cores), (4, 2));
        assert!(
            domains.share_cache(CpuId(4), CpuId(7)) && !domains.share_cache(CpuId(3), CpuId(4))
        );
    }

    #[test]
    fn an_offline_cpu_leaves_every_domain() {
        let mut online = CpuSet::first(8);
        online.remove(CpuId(5));
        let domains = Domains::build(&Topology::regular(1, 1, 4, 2), &online);
        assert!(domains.of_cpu[5].is_empty());
        assert_eq!(names(&domains, 4), [(Level::Mc, "0-4,6-7".to_owned(), 2)]);
        assert!(domains.all.iter().all(|d| !d.span.contains(CpuId(5))));
        assert!(domains.all.iter().flat_map(|d| &d.groups).all(|g| !g.cpus.is_empty()));
    }

    #[test]
    fn isolated_cpus_have_no_domain() {
        let topology = Topology::regular(1, 1, 4, 2);
        let isolated: CpuSet = "3-5".parse().unwrap();
        let parts = Parts { isolated, partitions: &[] };
        let domains = Domains::up_to(&topology, &CpuSet::ALL, parts, Level::Numa);
        assert!(isolated.iter().all(|cpu| domains.of_cpu[cpu.index()].is_empty()));
        assert_eq!(names(&domains, 6)[1], (Level::Mc, "0-2,6-7".to_owned(), 2));
        assert!(
            !domains.share_cache(CpuId(3), CpuId(4)) && !domains.share_cache(CpuId(2), CpuId(3))
        );
        assert_eq!(domains.smt[2].to_string(), "2", "its sibling is isolated");
        assert_eq!(domains.root_of(CpuId(4)), isolated);
        assert_eq!(domains.root_of(CpuId(0)).to_string(), "0-2,6-7");
    }

    #[test]
    fn a_partition_is_balanced_for_itself() {
        // Two nodes of two caches of two cores; the partition has a half of the second node's
        // first cache, and all of its second.
        let topology = Topology::regular(2, 2, 2, 1);
        let (partitions, isolated) = (["5-7".parse().unwrap()], CpuSet::EMPTY);
        let parts = Parts { isolated, partitions: &partitions };
        let domains = Domains::up_to(&topology, &CpuSet::ALL, parts, Level::Numa);
        assert_eq!(
            names(&domains, 6),
            [(Level::Mc, "6-7".to_owned(), 0), (Level::Pkg, "5-7".to_owned(), 1)]
        );
        assert_eq!(names(&domains, 4), [(Level::Numa, "0-4".to_owned(), 1)]);
        assert!(domains.share_cache(CpuId(6), CpuId(7)));
        assert!(!domains.share_cache(CpuId(4), CpuId(5)), "each sees its own part of it");
        assert_eq!(domains.llc[5].to_string(), "5");
        assert_eq!(domains.root_of(CpuId(5)).to_string(), "5-7");
        assert_eq!(domains.root_of(CpuId(4)).to_string(), "0-4");
        let both = Parts { isolated: "7".parse().unwrap(), partitions: &partitions };
        let domains = Domains::up_to(&topology, &CpuSet::ALL, both, Level::Numa);
        assert_eq!(domains.root_of(CpuId(7)).to_string(), "7");
        assert_eq!(domains.root_of(CpuId(6)).to_string(), "5-6");
    }

    #[test]
    fn wraps_around() {
        let order: Vec<u32> = wrap(&"0-2,5".parse().unwrap(), 2).map(|c| c.0).collect();
        assert_eq!(order, [2, 5, 0, 1]);
    }
}
