//! Golden vectors of Xen's schedulers: zero costs, timers fire 1 ns late. The complete decision
//! logs are checked by `cargo xtask oracle oracles/xen/*` (and its tests).

use schedlab_model::{EventKind, GroupId, GroupSpec, Ns, Program, SchedEvent, TaskSpec, Workload};
use schedlab_scheduler::registry;
use schedlab_sim::{Costs, Machine, RunOptions};

/// Runs hogs in one domain each, with these caps, on one pCPU; the switches as
/// `(time in us, running task)`.
fn switches(scheduler: &str, caps: &[u32], ms: u64) -> Vec<(u64, Option<u32>)> {
    let mut workload = Workload::default();
    workload.groups.push(GroupSpec { name: "/".into(), ..GroupSpec::default() });
    for (i, cap_percent) in caps.iter().copied().enumerate() {
        let name = format!("/d{i}");
        let parent = Some(GroupId::ROOT);
        workload.groups.push(GroupSpec { name, parent, cap_percent, ..GroupSpec::default() });
        let mut hog = TaskSpec::new(format!("d{i}v0"), Program::hog());
        hog.group = GroupId::from(i + 1);
        workload.tasks.push(hog);
    }
    let mut machine = Machine::flat(1);
    machine.costs = Costs { timer_late_ns: Ns(1), ..Costs::default() };
    let scheduler = registry::build(&scheduler.parse().unwrap(), 1).unwrap();
    let mut events: Vec<SchedEvent> = Vec::new();
    let options = RunOptions::for_time(Ns::from_ms(ms));
    schedlab_sim::run(&machine, &workload, &*scheduler, &options, &mut events).unwrap();
    let switch = |event: &SchedEvent| match event.kind {
        EventKind::Switch { next, .. } => Some((event.at.0 / 1000, next.map(|task| task.0))),
        _ => None,
    };
    events.iter().filter_map(switch).collect()
}

#[test]
fn credit_two_hogs_alternate_every_slice() {
    let got = switches("xen-credit", &[0, 0], 130);
    let want = [0, 30_000, 60_000, 90_000, 120_000];
    assert_eq!(
        got,
        want.iter().zip([0, 1, 0, 1, 0]).map(|(at, t)| (*at, Some(t))).collect::<Vec<_>>()
    );
}

#[test]
fn credit_a_cap_of_half_a_cpu_parks_for_two_slices() {
    let got = switches("xen-credit", &[50], 190);
    assert_eq!(got, [(0, Some(0)), (60_000, None), (120_000, Some(0)), (180_000, None)]);
}

#[test]
fn credit2_a_cap_of_half_a_cpu_runs_half_of_each_period() {
    let got = switches("xen-credit2", &[50], 24);
    let want = [(0, Some(0)), (5_000, None), (10_000, Some(0)), (15_000, None), (20_000, Some(0))];
    assert_eq!(got, want);
}

#[test]
fn credit2_two_hogs_switch_every_10_ms_and_since_4_21_every_ms() {
    let old = switches("xen-credit2", &[0, 0], 41);
    assert_eq!(
        old,
        [
            (0, Some(0)),
            (1_000, Some(1)),
            (11_000, Some(0)),
            (20_500, Some(1)),
            (30_500, Some(0)),
            (40_500, Some(1))
        ]
    );
    let new = switches("xen-credit2:version=4.22", &[0, 0], 10);
    assert_eq!(new.len(), 10, "{new:?}");
    assert!(
        new.iter()
            .enumerate()
            .all(|(i, (at, task))| *at == i as u64 * 1000 && *task == Some(i as u32 % 2))
    );
}

/// An idle pCPU of Credit2 resists, too: it is 1 below the least credit, -10 ms, and takes from
/// another pCPU only what leads that by `migrate_resist`. The third unit wakes with the first, on
/// the same pCPU: the other one is tickled for it.
#[test]
fn credit2_an_idle_pcpu_leaves_what_does_not_lead_by_the_resistance() {
    let third_runs = |scheduler: &str| {
        let mut workload = Workload::default();
        for at in [1, 1_000, 1] {
            let program = Program::once([schedlab_model::Op::Run(schedlab_model::Amount::Fixed(
                Ns::from_ms(50),
            ))]);
            let mut unit = TaskSpec::new("v", program);
            unit.start = schedlab_model::Start::AsleepUntil(Ns::from_ms(at));
            workload.tasks.push(unit);
        }
        let scheduler = registry::build(&scheduler.parse().unwrap(), 2).unwrap();
        let mut events: Vec<SchedEvent> = Vec::new();
        let options = RunOptions::for_time(Ns::from_ms(100));
        schedlab_sim::run(&Machine::flat(2), &workload, &*scheduler, &options, &mut events)
            .unwrap();
        let switches = |event: &&SchedEvent| matches!(event.kind, EventKind::Switch { next: Some(task), .. } if task.0 == 2);
        events.iter().find(switches).map(|event| (event.at, event.cpu.0))
    };
    assert_eq!(third_runs("xen-credit2").map(|(at, _)| at), Some(Ns::from_ms(1)));
    let (late, _) = third_runs("xen-credit2:migrate_resist=21ms").unwrap();
    assert!(late > Ns::from_ms(1), "beside an idle pCPU it waits for its own: {late}");
}
