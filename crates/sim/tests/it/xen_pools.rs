//! Cpupools: each is a host of its own.

use proptest::prelude::*;
use schedlab_model::{
    Amount, CpuId, CpuSet, EventKind, GroupId, GroupSpec, Ns, Op, Program, SchedEvent, TaskSpec,
    Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions};

const LENGTH: Ns = Ns::from_ms(300);

/// A task that runs and sleeps in turn; `sleep` of 0: a hog.
fn task(run: u64, sleep: u64) -> TaskSpec {
    let of = |us| Amount::Fixed(Ns::from_us(us));
    match sleep {
        0 => TaskSpec::new("hog", Program::hog()),
        _ => TaskSpec::new("sleeper", Program::forever([Op::Run(of(run)), Op::Sleep(of(sleep))])),
    }
}

fn simulated(scheduler: &str, cpus: usize, workload: &Workload) -> Result<Vec<SchedEvent>, String> {
    let scheduler = registry::build(&scheduler.parse().map_err(|error| format!("{error}"))?, cpus)
        .map_err(|error| error.to_string())?;
    let mut events: Vec<SchedEvent> = Vec::new();
    let options = RunOptions::for_time(LENGTH);
    schedlab_sim::run(&Machine::flat(cpus), workload, &*scheduler, &options, &mut events)
        .map_err(|error| error.to_string())?;
    Ok(events)
}

/// Switches of the CPUs from `first` on, `count` of them, numbered from 0, with tasks numbered from
/// `tasks` on.
fn switches(
    events: &[SchedEvent],
    first: u32,
    count: u32,
    tasks: u32,
) -> Vec<(Ns, u32, Option<u32>)> {
    let mut found: Vec<_> = events
        .iter()
        .filter(|event| (first..first + count).contains(&event.cpu.0))
        .filter_map(|event| match event.kind {
            EventKind::Switch { next, .. } => {
                Some((event.at, event.cpu.0 - first, next.map(|task| task.0 - tasks)))
            }
            _ => None,
        })
        .collect();
    // In one instant each CPU's own order counts.
    found.sort_by_key(|&(at, cpu, _)| (at, cpu));
    found
}

const KINDS: [&str; 5] =
    ["xen-credit:tslice=5ms", "xen-credit2", "xen-null", "xen-rtds:extratime=off", "xen-arinc653"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(schedlab_testing::cases(48)))]

    /// What happens in a pool is what happens on a host that has its pCPUs and its vCPUs only.
    #[test]
    fn a_pool_is_a_host_of_its_own(
        kinds in (0..KINDS.len(), 0..KINDS.len()),
        sizes in (1_u32..4, 1_u32..4),
        tasks in proptest::collection::vec((any::<bool>(), 50_u64..5_000, prop_oneof![Just(0), 50_u64..9_000]), 1..9),
    ) {
        let (first, second) = (KINDS[kinds.0], KINDS[kinds.1]);
        let all = sizes.0 + sizes.1;
        let pools = [CpuSet::first(sizes.0 as usize), (sizes.0..all).map(CpuId).collect()];
        let (other, own): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|(other, ..)| *other);
        let of = |tasks: &[(bool, u64, u64)], affinity| {
            let make = |&(_, run, sleep): &(bool, u64, u64)| TaskSpec { affinity, ..task(run, sleep) };
            tasks.iter().map(make).collect::<Vec<_>>()
        };
        let workload = |tasks| Workload { tasks, ..Workload::default() };
        let together = workload([of(&own, CpuSet::ALL), of(&other, pools[1])].concat());
        let spec = format!("{first}/{}:{second}", pools[1]);
        let together = simulated(&spec, all as usize, &together).unwrap();
        let alone = simulated(first, sizes.0 as usize, &workload(of(&own, CpuSet::ALL))).unwrap();
        prop_assert_eq!(switches(&together, 0, sizes.0, 0), switches(&alone, 0, sizes.0, 0), "Pool-0 of {}", &spec);
        let alone = simulated(second, sizes.1 as usize, &workload(of(&other, CpuSet::ALL))).unwrap();
        prop_assert_eq!(
            switches(&together, sizes.0, sizes.1, own.len() as u32),
            switches(&alone, 0, sizes.1, 0),
            "the pool of {}", &spec
        );
    }
}

#[test]
fn a_domain_is_in_one_pool() {
    let domain = |affinity: [u32; 2]| {
        let tasks = affinity.map(|cpu| TaskSpec {
            affinity: CpuSet::single(CpuId(cpu)),
            group: GroupId(1),
            ..task(0, 0)
        });
        let groups = vec![
            GroupSpec::default(),
            GroupSpec { parent: Some(GroupId::ROOT), ..GroupSpec::default() },
        ];
        Workload { tasks: tasks.to_vec(), groups, ..Workload::default() }
    };
    let run = |affinity| simulated("xen-credit/2-3:xen-credit2", 4, &domain(affinity));
    assert!(run([0, 1]).is_ok() && run([2, 3]).is_ok());
    let why = run([1, 2]).unwrap_err();
    assert!(why.contains("one cpupool") && why.contains("0-1 or 2-3"), "{why}");
}

#[test]
fn pools_that_cannot_be_are_refused() {
    for (spec, word) in [
        ("xen-credit/2-3:linux-7.2", "pools are Xen's, and linux-7.2 is not"),
        ("linux-7.2/2-3:xen-null", "pools are Xen's, and linux-7.2 is not"),
        ("xen-credit/1-2:xen-null/2:xen-null", "CPUs 2 are in two pools"),
        ("xen-credit/3-4:xen-null", "this machine has 0-3"),
        ("xen-credit/0-3:xen-null", "is left to Pool-0"),
        ("xen-credit/xen-null", "is not CPUS:SCHEDULER"),
        ("xen-credit/x:xen-null", "xen-credit/x:xen-null"),
        ("xen-credit/2:xen-credit:tslices=1ms", "tslice"),
    ] {
        let why = simulated(spec, 4, &Workload::default()).unwrap_err();
        assert!(why.contains(word), "{spec}: {why}");
    }
    let spec: schedlab_scheduler::SchedulerSpec =
        "xen-credit:tslice=5ms/2-3:xen-null/1:xen-rtds".parse().unwrap();
    assert_eq!(spec.to_string(), "xen-credit:tslice=5ms/2-3:xen-null/1:xen-rtds");
}
