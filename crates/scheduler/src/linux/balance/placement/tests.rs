use super::*;
use crate::linux::core::cpu_summary::tests::{hogs, idle_hog, runs_for};
use crate::linux::knobs::Setup;
use crate::linux::version::V6_1;
use proptest::prelude::*;
use schedlab_model::Topology;

pub(in crate::linux) const NOW: Ns = Ns::from_s(10);

pub(in crate::linux) struct Machine {
    pub(in crate::linux) summary: CpuSummary,
    domains: Domains,
    pub(in crate::linux) estimates: Estimates,
    pub(in crate::linux) allowed: CpuSet,
    pub(in crate::linux) t: SmpTunables,
}

impl Machine {
    /// A machine whose CPU `i` has `hogs[i]` hogs.
    pub(in crate::linux) fn new(topology: &Topology, tasks: &[u32]) -> Machine {
        let domains = Domains::build(topology, &CpuSet::ALL);
        let caches = 1 + domains.llc_id.iter().max().map_or(0, |&id| id as usize);
        let summary = CpuSummary::new(topology.cpus(), &vec![topology.cpus() / caches; caches]);
        for (cpu, &count) in tasks.iter().enumerate() {
            hogs(&summary, cpu as u32, count, NOW);
        }
        let t = SmpTunables::new(&Setup { version: V6_1, factor: 1 }, &crate::Knobs::default());
        let estimates = Estimates::new(topology.cpus());
        Machine { summary, domains, estimates, allowed: CpuSet::first(topology.cpus()), t }
    }
    pub(in crate::linux) fn place(&self) -> Placement<'_> {
        let (summary, domains, estimates) = (&self.summary, &self.domains, &self.estimates);
        Placement {
            summary,
            domains,
            estimates,
            now: NOW,
            allowed: &self.allowed,
            beside_idle: true,
            without: None,
            t: &self.t,
        }
    }
}

pub(in crate::linux) fn wakeup(this: u32, prev: u32) -> Wakeup {
    Wakeup {
        this: CpuId(this),
        prev: CpuId(prev),
        load: 100,
        util: 0,
        recent: u32::MAX,
        flips: 0,
        waker: Some(WakerFacts { flips: 0, load: 500 }),
        sync: false,
    }
}

#[test]
fn waker_and_wakee_meet_where_section_4_7_says() {
    // 2 sockets x 4 CPUs.
    let two = Topology::regular(2, 1, 4, 1);
    // The last CPU is idle: there.
    let machine = Machine::new(&two, &[1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(machine.place().wake(&wakeup(0, 2)), CpuId(2));
    assert_eq!(machine.place().wake(&wakeup(0, 6)), CpuId(6));
    // An interrupt on an idle CPU pulls from a busy one behind the same cache, not from another
    // socket.
    let machine = Machine::new(&two, &[0, 1, 1, 1, 0, 1, 1, 1]);
    assert_eq!(machine.place().wake(&wakeup(0, 2)), CpuId(0));
    assert_eq!(machine.place().wake(&wakeup(0, 5)), CpuId(0), "less loaded than the last CPU");
    // A synchronous waker that is alone on its CPU takes the wakee to its cache; an idle CPU
    // there wins.
    let machine = Machine::new(&two, &[1, 0, 1, 1, 2, 2, 2, 2]);
    let sync = Wakeup { sync: true, ..wakeup(0, 4) };
    assert_eq!(machine.place().wake(&sync), CpuId(1));
    let machine = Machine::new(&two, &[1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(machine.place().wake(&sync), CpuId(0), "no idle CPU behind that cache");
    // All busy alike: the last CPU keeps it, because the wakee's own load is not counted
    // against it.
    let machine = Machine::new(&two, &[2; 8]);
    assert_eq!(machine.place().wake(&wakeup(0, 5)), CpuId(5));
    // A recently used idle CPU is tried before the search, which starts after the target.
    let machine = Machine::new(&two, &[1, 0, 1, 0, 1, 1, 1, 1]);
    assert_eq!(machine.place().wake(&Wakeup { recent: 3, ..wakeup(2, 0) }), CpuId(3));
    assert_eq!(machine.place().wake(&wakeup(2, 0)), CpuId(1));
    assert_eq!(machine.place().wake(&wakeup(0, 2)), CpuId(3));
}

#[test]
fn affinity_is_respected_everywhere() {
    let mut machine = Machine::new(&Topology::flat(4), &[0, 0, 1, 1]);
    machine.allowed = "2-3".parse().unwrap();
    assert_eq!(machine.place().wake(&wakeup(0, 2)), CpuId(2));
    assert_eq!(machine.place().wake(&wakeup(0, 1)), CpuId(2), "it may not go back to its last CPU");
    assert!(machine.allowed.contains(machine.place().fork(CpuId(0))));
}

#[test]
fn many_to_many_partners_do_not_pull() {
    let machine = Machine::new(&Topology::regular(2, 1, 4, 1), &[0, 1, 1, 1, 1, 1, 1, 1]);
    let pulled = wakeup(0, 5);
    assert_eq!(machine.place().wake(&pulled), CpuId(0));
    let waker = Some(WakerFacts { flips: 16, load: 500 });
    assert_eq!(machine.place().wake(&Wakeup { flips: 4, waker, ..pulled }), CpuId(5));
    assert_eq!(machine.place().wake(&Wakeup { flips: 3, waker, ..pulled }), CpuId(0));
    let mut partners = Partners::new();
    assert_eq!(
        (partners.woke(1, Ns(0)), partners.woke(1, Ns(0)), partners.woke(2, Ns(0))),
        (1, 1, 2)
    );
    assert_eq!(partners.woke(2, Ns::from_ms(1001)), 1, "halved after a second");
}

#[test]
fn idle_cores_come_first() {
    // 4 cores x 2 threads; CPUs 0 and 1 are one core.
    let smt = Topology::regular(1, 1, 4, 2);
    let machine = Machine::new(&smt, &[1, 1, 1, 0, 0, 0, 1, 1]);
    assert_eq!(machine.place().wake(&wakeup(0, 1)), CpuId(4), "3 is idle, but its core is not");
    // No idle core: found out by the first search, which gives an idle thread; then the flag is
    // down.
    let machine = Machine::new(&smt, &[1, 1, 1, 0, 1, 0, 1, 1]);
    assert_eq!(machine.place().wake(&wakeup(0, 1)), CpuId(3));
    assert!(!machine.summary.idle_core(0));
    assert_eq!(machine.place().wake(&wakeup(6, 4)), CpuId(5), "the idle thread of its last core");
}

#[test]
fn a_busy_cache_is_not_searched() {
    let machine = Machine::new(&Topology::flat(4), &[1, 1, 1, 0]);
    assert_eq!(machine.place().wake(&wakeup(0, 1)), CpuId(3));
    machine.summary.set_scan(0, 0);
    assert_eq!(machine.place().wake(&wakeup(0, 1)), CpuId(1));
    machine.summary.set_scan(0, 1);
    assert_eq!(machine.place().wake(&wakeup(0, 1)), CpuId(1), "looked at CPU 2 only");
}

#[test]
fn forks_spread_over_sockets() {
    let two = Topology::regular(2, 1, 4, 1);
    let machine = Machine::new(&two, &[1, 1, 1, 0, 0, 0, 0, 0]);
    assert!(machine.place().fork(CpuId(0)).0 >= 4);
    let machine = Machine::new(&two, &[2, 2, 2, 2, 1, 1, 1, 1]);
    assert_eq!(machine.place().fork(CpuId(0)), CpuId(4));
    let machine = Machine::new(&Topology::flat(4), &[1, 1, 0, 1]);
    assert_eq!(machine.place().fork(CpuId(0)), CpuId(2));
    let single = Machine::new(&Topology::flat(1), &[3]);
    assert_eq!(single.place().fork(CpuId(0)), CpuId(0));
}

/// CPUs 0 and 1 run SCHED_IDLE work, 2 and 3 idle. Up to 7.0 any wakee goes where SCHED_IDLE work
/// runs; since 7.1 a SCHED_IDLE task does not.
#[test]
fn a_sched_idle_task_prefers_a_cpu_that_idles() {
    for topology in [Topology::flat(4), Topology::regular(1, 1, 2, 2)] {
        let machine = Machine::new(&topology, &[0, 0, 0, 0]);
        (0..2).for_each(|cpu| idle_hog(&machine.summary, cpu, NOW));
        let before = machine.place();
        let since = Placement { beside_idle: false, ..before };
        for prev in [0, 1] {
            let wakeup = wakeup(prev, prev);
            assert_eq!(before.wake(&wakeup), CpuId(prev));
            assert!(since.wake(&wakeup).0 >= 2, "{prev}");
        }
        assert!(since.fork(CpuId(0)).0 >= 2);
        // Where all run SCHED_IDLE work the last CPU keeps it.
        (2..4).for_each(|cpu| idle_hog(&machine.summary, cpu, NOW));
        let since = Placement { beside_idle: false, ..machine.place() };
        assert_eq!(since.wake(&wakeup(3, 1)), CpuId(1));
    }
}

proptest! {
    /// Ranks of single CPUs, kept or worked out anew, find what all facts of all groups find.
    #[test]
    fn ranks_find_the_idlest_cpu(
        loads in prop::collection::vec((0u32..4, any::<bool>()), 2..9),
        allowed in 1u32..256,
        changes in prop::collection::vec((0u32..8, 0u32..4), 0..4),
    ) {
        let mut machine = Machine::new(&Topology::flat(loads.len()), &[]);
        for (cpu, &(count, light)) in loads.iter().enumerate() {
            let cpu = cpu as u32;
            if light {
                runs_for(&machine.summary, cpu, Ns::from_ms(30) * u64::from(count), NOW);
            } else {
                hogs(&machine.summary, cpu, count, NOW);
            }
            if allowed >> cpu & 1 == 0 {
                machine.allowed.remove(CpuId(cpu));
            }
        }
        let changes = changes.into_iter().filter(|(cpu, _)| (*cpu as usize) < loads.len());
        for change in std::iter::once(None).chain(changes.map(Some)) {
            if let Some((cpu, count)) = change {
                hogs(&machine.summary, cpu, count, NOW);
            }
            let (place, domain) = (machine.place(), &machine.domains.all[0]);
            prop_assert_eq!(domain.singles.len(), loads.len());
            for local in 0..loads.len() {
                let (ranked, asked) =
                    (place.idlest_single(domain, local), place.idlest_of_all(domain, local));
                prop_assert_eq!(format!("{ranked:?}"), format!("{asked:?}"));
            }
        }
    }
}
