//! Who is busiest, and how much moves.

use super::*;
use crate::linux::core::cpu_summary::tests::{hogs, runs_for};
use proptest::prelude::*;
use schedlab_model::Topology;

const NOW: Ns = Ns::from_s(10);

struct Machine {
    summary: CpuSummary,
    domains: Domains,
    online: CpuSet,
}

impl Machine {
    fn new(topology: &Topology, tasks: &[u32]) -> Machine {
        let domains = Domains::build(topology, &CpuSet::ALL);
        let caches = 1 + domains.llc_id.iter().max().map_or(0, |&id| id as usize);
        let summary = CpuSummary::new(topology.cpus(), &vec![topology.cpus() / caches; caches]);
        for (cpu, &count) in tasks.iter().enumerate() {
            hogs(&summary, cpu as u32, count, NOW);
        }
        Machine { summary, domains, online: CpuSet::first(topology.cpus()) }
    }
    fn ask(&self, cpu: u32, level: usize, idle: Idle, by_core: bool) -> Ask<'_> {
        let (domain, link) = self.domains.chain(CpuId(cpu)).nth(level).unwrap();
        Ask {
            summary: &self.summary,
            domains: &self.domains,
            domain,
            local: link.local,
            cpu: CpuId(cpu),
            idle,
            now: NOW,
            again: false,
            cpus: &self.online,
            online: &self.online,
            pinned_below: &|_| false,
            by_core,
            mean_only: false,
        }
    }
}

#[test]
fn hogs_beyond_the_cpus_overload_a_group() {
    // One CPU each: a hog fills it, two overload it.
    assert_eq!(Kind::classify(0, 1, 1024, 0, 0, 117), Kind::Spare);
    assert_eq!(Kind::classify(1, 1, 1024, 1024, 1024, 117), Kind::Busy);
    assert_eq!(Kind::classify(1, 1, 1024, 300, 300, 117), Kind::Spare, "much room left");
    assert_eq!(Kind::classify(2, 1, 1024, 1024, 2048, 117), Kind::Overloaded);
    assert_eq!(
        Kind::classify(2, 1, 1024, 200, 300, 117),
        Kind::Spare,
        "two light tasks do not fill a CPU"
    );
    assert!(
        Kind::Spare < Kind::Busy
            && Kind::Busy < Kind::Imbalanced
            && Kind::Imbalanced < Kind::Overloaded
    );
}

#[test]
fn a_group_of_one_cpu_is_a_group_like_others() {
    let machine = Machine::new(&Topology::flat(4), &[0, 1, 2, 3]);
    runs_for(&machine.summary, 1, Ns::from_ms(20), NOW);
    for (by_count, remote) in [(false, None), (false, Some(1)), (true, None), (true, Some(2))] {
        let ask = machine.ask(0, 0, Idle::No, true);
        for group in &ask.domain.groups {
            let cpu = group.only().unwrap();
            let now = Moment::new(NOW);
            assert_eq!(
                format!("{:?}", ask.stats_of_one(cpu, remote, by_count, now)),
                format!("{:?}", ask.stats_of_many(group, remote, by_count, now)),
            );
        }
    }
}

proptest! {
    /// Averages that are not asked for would have changed nothing.
    #[test]
    fn a_cpu_that_becomes_idle_finds_the_same_by_count(
        tasks in prop::collection::vec(0u32..4, 2..9), light in any::<u8>(), threads in any::<bool>(),
        by_core in any::<bool>(),
    ) {
        let cpus = if threads { tasks.len() & !1 } else { tasks.len() };
        let topology = match threads {
            true => Topology::regular(1, 1, cpus / 2, 2),
            false => Topology::flat(cpus),
        };
        let machine = Machine::new(&topology, &tasks[..cpus]);
        for cpu in (0..cpus as u32).filter(|cpu| light >> cpu & 1 != 0) {
            runs_for(&machine.summary, cpu, Ns::from_ms(1), NOW);
        }
        for (cpu, level) in (0..cpus as u32).flat_map(|cpu| (0..2).map(move |level| (cpu, level))) {
            if machine.domains.chain(CpuId(cpu)).nth(level).is_none_or(|(d, _)| d.level > Level::Mc) {
                continue;
            }
            let ask = machine.ask(cpu, level, Idle::New, by_core);
            prop_assert_eq!(ask.busiest_group(true), ask.busiest_group(false));
        }
    }
}

#[test]
fn the_fuller_group_is_busiest() {
    let machine = Machine::new(&Topology::flat(4), &[0, 2, 3, 1]);
    let (from, amount) = machine.ask(0, 0, Idle::Yes, true).busiest().unwrap();
    assert_eq!((from, amount), (CpuId(2), Amount::Tasks(1)));
}

#[test]
fn half_the_difference_moves() {
    let machine = Machine::new(&Topology::flat(2), &[0, 7]);
    assert_eq!(machine.ask(0, 0, Idle::Yes, false).busiest(), Some((CpuId(1), Amount::Tasks(3))));
    // Both overloaded: load, half of the difference.
    let machine = Machine::new(&Topology::flat(2), &[2, 6]);
    let (_, amount) = machine.ask(0, 0, Idle::No, false).busiest().unwrap();
    let Amount::Load(load) = amount else { panic!("{amount:?}") };
    assert!((2000..=2048).contains(&load), "{load}");
    // One task beyond: half a task; it moves after a failed attempt.
    let machine = Machine::new(&Topology::flat(2), &[1, 2]);
    let (_, amount) = machine.ask(0, 0, Idle::No, false).busiest().unwrap();
    assert!(matches!(amount, Amount::Load(500..=512)), "{amount:?}");
}

/// The busiest group has the highest class, not the highest load: two light tasks overload a
/// CPU while the average of all is above their load. `calculate_imbalance` subtracts without a
/// sign, so the difference wraps and the local one counts.
#[test]
fn an_overloaded_group_below_the_average_gives_tasks() {
    let machine = Machine::new(&Topology::flat(4), &[1, 1, 9, 3]);
    let mut light = crate::linux::fair::pelt::Signal::zero(Ns(0));
    let inputs = crate::linux::fair::pelt::Inputs { load: 15, runnable: 1, running: true };
    light.set(crate::linux::fair::pelt::Moment::new(Ns(0)), inputs);
    light.at(NOW);
    machine.summary.publish_fair(CpuId(0), &light);
    let mut cpus = machine.online;
    cpus.remove(CpuId(2));
    // Without the nine hogs, whose CPU still counts, the average is 1027, and the three hogs
    // are above it.
    let ask = Ask { cpus: &cpus, ..machine.ask(0, 0, Idle::No, false) };
    assert!(
        matches!(ask.busiest(), Some((CpuId(3), Amount::Load(980..=1030)))),
        "{:?}",
        ask.busiest()
    );
    let there = Stats { kind: Kind::Overloaded, average: 700, capacity: SCALE, ..Stats::default() };
    let mut local = Stats { kind: Kind::Busy, load: 15, capacity: SCALE, ..Stats::default() };
    assert_eq!(ask.amount(&mut local, &there, 1370), Some(Amount::Load(1355)));
}

/// Two nodes of four CPUs; on the first one four CPUs with two tasks each, of which three are
/// not considered any more: their tasks may not leave. What is left does not overload the node,
/// so that the second one, which has three tasks, takes nothing.
#[test]
fn a_group_stays_as_large_as_it_is() {
    let topology = Topology::regular(2, 1, 4, 1);
    let machine = Machine::new(&topology, &[2, 2, 2, 2, 1, 1, 1, 0]);
    let all = machine.ask(7, 1, Idle::Yes, true);
    assert!(matches!(all.busiest(), Some((CpuId(0), Amount::Util(1..)))), "{:?}", all.busiest());
    let mut cpus = machine.online;
    [0, 1, 2].into_iter().for_each(|cpu| cpus.remove(CpuId(cpu)));
    let ask = Ask { cpus: &cpus, ..machine.ask(7, 1, Idle::Yes, true) };
    assert_eq!(ask.busiest(), None);
}

#[test]
fn a_small_difference_is_left_alone() {
    let machine = Machine::new(&Topology::flat(2), &[8, 9]);
    assert_eq!(machine.ask(0, 0, Idle::No, false).busiest(), None);
    let machine = Machine::new(&Topology::flat(2), &[7, 9]);
    assert!(machine.ask(0, 0, Idle::No, false).busiest().is_some());
    let machine = Machine::new(&Topology::flat(2), &[9, 7]);
    assert_eq!(machine.ask(0, 0, Idle::No, false).busiest(), None, "this one is the busiest");
}

#[test]
fn siblings_share_tasks() {
    // Two caches of four CPUs: 3 + 0 tasks, every CPU has at most one.
    let topology = Topology::regular(1, 2, 4, 1);
    let machine = Machine::new(&topology, &[1, 1, 1, 0, 0, 0, 0, 0]);
    assert!(matches!(machine.ask(4, 1, Idle::Yes, true).busiest(), Some((_, Amount::Tasks(1)))));
    let machine = Machine::new(&topology, &[1, 1, 0, 0, 1, 0, 0, 0]);
    assert_eq!(machine.ask(5, 1, Idle::Yes, true).busiest(), None, "2 and 1 is balanced");
}

#[test]
fn nodes_keep_small_differences() {
    let machine = Machine::new(&Topology::regular(2, 1, 16, 1), &[1, 1]);
    assert_eq!(machine.ask(16, 1, Idle::Yes, true).busiest(), None);
    let machine = Machine::new(&Topology::regular(2, 1, 16, 1), &[1; 8]);
    assert!(machine.ask(16, 1, Idle::Yes, true).busiest().is_some());
}

#[test]
fn only_one_cpu_of_a_group_balances() {
    // Two caches with two two-thread cores each; level 2 joins the caches.
    let topology = Topology::regular(1, 2, 2, 2);
    let machine = Machine::new(&topology, &[1, 0, 0, 0, 1, 1, 1, 1]);
    let ours = |cpu, new| machine.ask(cpu, 2, Idle::Yes, new).is_ours();
    assert_eq!(
        [0, 1, 2, 3].map(|cpu| ours(cpu, false)),
        [false, true, false, false],
        "first idle CPU"
    );
    assert_eq!(
        [0, 1, 2, 3].map(|cpu| ours(cpu, true)),
        [false, false, true, false],
        "idle core first"
    );
    assert_eq!(
        [4, 5, 6, 7].map(|cpu| ours(cpu, true)),
        [true, false, false, false],
        "all busy: the first"
    );
    assert!(machine.ask(5, 2, Idle::New, true).is_ours());
}

#[test]
fn searches_shorten_with_the_square_of_use() {
    assert_eq!(scan_length(0, 8, 117), 8);
    assert_eq!(scan_length(8 * 512, 8, 117), 5);
    assert_eq!(scan_length(8 * 875, 8, 117), 0);
    let machine = Machine::new(&Topology::flat(8), &[1, 1, 1, 1, 0, 0, 0, 0]);
    machine.ask(7, 0, Idle::Yes, true).busiest();
    assert_eq!(machine.summary.scan(0), 5);
}

proptest! {
    /// Where the numbers of tasks say what the one other group should give, the averages say it
    /// too.
    #[test]
    fn numbers_of_tasks_decide_as_averages_do(
        tasks in prop::array::uniform4(0u32..4), smt in any::<bool>(), sibling in any::<bool>(),
        by_core in any::<bool>(),
    ) {
        let topology =
            if smt { Topology::regular(1, 1, 2, 2) } else { Topology::regular(1, 1, 2, 1) };
        let machine = Machine::new(&topology, &tasks[..topology.cpus()]);
        for level in 0..machine.domains.chain(CpuId(0)).count() {
            let ask = machine.ask(0, level, Idle::New, by_core);
            let mut domain = ask.domain.clone();
            domain.prefer_sibling = sibling;
            let ask = Ask { domain: &domain, ..ask };
            if let Some(found) = ask.other_of_two() {
                prop_assert_eq!(found, ask.busiest_of_all(true));
            }
        }
    }
}
