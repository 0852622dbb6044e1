//! Tasks that change their own nice value and CPUs while they run.

use schedlab_model::{
    Amount, CpuId, CpuSet, EventKind, GroupId, GroupSpec, Nice, Ns, Op, Program, SchedEvent,
    TaskSpec, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions, SimError, run};

fn work(ms: u64) -> Op {
    Op::Run(Amount::Fixed(Ns::from_ms(ms)))
}

fn nice(value: i8) -> Op {
    Op::SetNice(Nice::new(value).expect("a nice value"))
}

fn cpus(first: u32, last: u32) -> Op {
    Op::SetCpus { first: CpuId(first), last: CpuId(last) }
}

fn events(
    spec: &str,
    workload: &Workload,
    options: &RunOptions,
) -> Result<Vec<SchedEvent>, SimError> {
    let scheduler = registry::build(&spec.parse().expect("a spec"), 4).expect("a scheduler");
    let mut events: Vec<SchedEvent> = Vec::new();
    run(&Machine::flat(4), workload, &*scheduler, options, &mut events)?;
    Ok(events)
}

/// Hogs on all CPUs, and tasks that are confined, freed and reweighted in turn.
fn restless() -> Workload {
    let sleep = Op::Sleep(Amount::Fixed(Ns::from_ms(1)));
    let ops = [work(3), nice(5), work(3), cpus(1, 2), work(2), sleep, cpus(3, 3), work(1)];
    let back = [cpus(0, 3), nice(0), work(2), sleep];
    let restless = Program::forever(ops.into_iter().chain(back));
    let mut tasks: Vec<TaskSpec> =
        (0..3).map(|i| TaskSpec::new(format!("r{i}"), restless.clone())).collect();
    tasks.extend((0..5).map(|i| TaskSpec::new(format!("h{i}"), Program::hog())));
    Workload { tasks, ..Workload::default() }
}

/// Every scheduler keeps to what tasks ask for: the engine ends a run in which one is picked where
/// it may not run. And no path of the engine changes the result.
#[test]
fn every_scheduler_serves_tasks_that_change() {
    let usual = RunOptions::for_time(Ns::from_ms(400));
    for entry in registry::all() {
        let first = events(entry.name, &restless(), &usual);
        let first = first.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        assert!(first.len() > 10, "{}: {} events", entry.name, first.len());
        for options in [
            RunOptions { every_tick: true, ..usual.clone() },
            RunOptions { plain_path: true, ..usual.clone() },
        ] {
            let other = events(entry.name, &restless(), &options).expect("a clean run");
            assert!(first == other, "{}: other events", entry.name);
        }
    }
}

/// On which CPUs a task ran, in order.
fn places(events: &[SchedEvent], task: u32) -> Vec<u32> {
    let on = events.iter().filter_map(|event| match event.kind {
        EventKind::Switch { next: Some(next), .. } if next.0 == task => Some(event.cpu.0),
        _ => None,
    });
    let mut places: Vec<u32> = on.collect();
    places.dedup();
    places
}

#[test]
fn a_task_goes_where_it_confines_itself() {
    let once = |ops: &[Op]| {
        let mut task = TaskSpec::new("t", Program::once(ops.to_vec()));
        task.began_on = Some(CpuId(0));
        Workload { tasks: vec![task], ..Workload::default() }
    };
    let usual = RunOptions::for_time(Ns::from_s(1));
    let went = |workload: &Workload| {
        let events = events("linux-7.2", workload, &usual).expect("a clean run");
        places(&events, 0)
    };
    let there = [work(5), cpus(2, 2), work(5), cpus(0, 1), work(5), cpus(1, 3), work(5)];
    let places = went(&once(&there));
    assert_eq!(places[..2], [0, 2], "{places:?}");
    assert!(places[2] < 2 && places.last().is_some_and(|cpu| *cpu > 0), "{places:?}");
    // Its group has CPUs 0 and 1: it gets what both have, and where that is nothing, nothing
    // changes (EINVAL).
    let mut within = once(&[work(5), cpus(1, 3), work(5), cpus(2, 3), work(5)]);
    let pair: CpuSet = "0-1".parse().expect("CPUs");
    within.groups = vec![
        GroupSpec { name: "/".to_owned(), ..GroupSpec::default() },
        GroupSpec {
            name: "/pair".to_owned(),
            parent: Some(GroupId::ROOT),
            cpus: Some(pair),
            ..GroupSpec::default()
        },
    ];
    within.tasks[0].group = GroupId(1);
    assert_eq!(went(&within), [0, 1]);
    for bad in [cpus(3, 4), cpus(2, 1), cpus(0, u32::MAX)] {
        let error = events("rr", &once(&[work(1), bad]), &usual).unwrap_err().to_string();
        assert!(error.contains("the machine has only CPUs 0-3"), "{error}");
    }
}

/// Two hogs of one CPU, of which one gives itself nice 5 in the middle: 1024 to 335 from then on.
#[test]
fn a_nice_value_counts_from_then_on() {
    let mut tasks = vec![
        TaskSpec::new("a", Program::hog()),
        TaskSpec::new("b", Program::once([work(1_000), nice(5), work(9_000)])),
    ];
    tasks.iter_mut().for_each(|task| task.affinity = CpuSet::single(CpuId(0)));
    let workload = Workload { tasks, ..Workload::default() };
    let scheduler = registry::build(&"linux-7.2".parse().unwrap(), 4).unwrap();
    let options = RunOptions::for_time(Ns::from_s(6));
    let ran = run(&Machine::flat(4), &workload, &*scheduler, &options, &mut ()).unwrap();
    let ran = |task: usize| ran.metrics.tasks[task].cpu_ns.0 as f64 / 1e6;
    // One second each, then four seconds of which b has 335 parts in 1359.
    assert!((ran(1) - (1_000.0 + 4_000.0 * 335.0 / 1_359.0)).abs() < 30.0, "{}", ran(1));
    assert!((ran(0) + ran(1) - 6_000.0).abs() < 1.0);
}
