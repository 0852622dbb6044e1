//! Schedulers in BPF (`bpf/sim`) under a made-up kernel's types.

use schedlab_model::{
    Amount, CpuId, CpuSet, EventKind, Nice, Ns, Op, Policy, Program, SchedEvent, Start, TaskSpec,
    Topology, Workload,
};
use schedlab_scheduler::registry;
use schedlab_scheduler::sched_ext::{self, Btf, Each, Profile, ProfileCall};
use schedlab_sim::{Machine, Metrics, RunOptions, SimError, run};
use std::sync::Arc;

const KERNEL: &[u8] = include_bytes!("../../../../bpf/sim/kernel.bpf.o");
const OBJECTS: [(&str, &[u8]); 6] = [
    ("fair", include_bytes!("../../../../bpf/sim/fair.bpf.o")),
    ("central", include_bytes!("../../../../bpf/sim/central.bpf.o")),
    ("faults", include_bytes!("../../../../bpf/sim/faults.bpf.o")),
    ("trace", include_bytes!("../../../../bpf/sim/trace.bpf.o")),
    ("release", include_bytes!("../../../../bpf/sim/release.bpf.o")),
    ("log", include_bytes!("../../../../bpf/sim/log.bpf.o")),
];

fn kernel() -> Arc<Btf> {
    Arc::new(Btf::of_file(KERNEL).expect("a kernel's types"))
}

/// Plays `tasks` under the object of this name (with options).
fn play(
    spec: &str,
    machine: &Machine,
    tasks: Vec<TaskSpec>,
    options: &RunOptions,
    events: &mut Vec<SchedEvent>,
) -> Result<Metrics, SimError> {
    for (name, file) in OBJECTS {
        sched_ext::provide(name, file, &kernel()).expect("an object of these tests");
    }
    let spec = format!("bpf:{spec}").parse().expect("a spec");
    let scheduler = registry::build(&spec, machine.topology.cpus()).expect("a scheduler");
    let workload = Workload { tasks, ..Workload::default() };
    run(machine, &workload, &*scheduler, options, events).map(|outcome| outcome.metrics)
}

fn clean(spec: &str, machine: &Machine, tasks: Vec<TaskSpec>, length: Ns) -> Metrics {
    play(spec, machine, tasks, &RunOptions::for_time(length), &mut Vec::new()).expect("a clean run")
}

fn hog(name: &str, nice: i8) -> TaskSpec {
    let mut task = TaskSpec::new(name, Program::hog());
    task.nice = Nice::new(nice).expect("a nice value");
    task
}

fn ran(metrics: &Metrics) -> Vec<f64> {
    metrics.tasks.iter().map(|task| task.cpu_ns.0 as f64 / 1e6).collect()
}

/// Lengths of the turns of CPU 0 in milliseconds.
fn turns(events: &[SchedEvent]) -> Vec<(Option<u32>, u64)> {
    let at_0 = events.iter().filter(|event| event.cpu == CpuId(0));
    let switches = at_0.filter_map(|event| match event.kind {
        EventKind::Switch { next, .. } => Some((event.at.0, next.map(|task| task.0))),
        _ => None,
    });
    let all: Vec<_> = switches.collect();
    all.windows(2).map(|pair| (pair[0].1, (pair[1].0 - pair[0].0) / 1_000_000)).collect()
}

/// On a real 7.2.13, too, two hogs of one CPU alternate under scx_simple whatever their weights:
/// the one that runs is in no queue while the other is chosen.
#[test]
fn two_hogs_take_turns_whatever_their_weight() {
    let metrics = clean("fair", &Machine::flat(1), vec![hog("a", 0), hog("b", 5)], Ns::from_s(5));
    let ran = ran(&metrics);
    assert!((ran[0] - ran[1]).abs() < 50.0, "{ran:?}");
    assert!((ran[0] + ran[1] - 5000.0).abs() < 1.0, "{ran:?}");
}

#[test]
fn three_hogs_share_by_weight() {
    let tasks = vec![hog("a", 0), hog("b", 0), hog("c", 5)];
    let ran = ran(&clean("fair", &Machine::flat(1), tasks, Ns::from_s(10)));
    let ratio = (ran[0] + ran[1]) / 2.0 / ran[2];
    // 100 : 33, the weights that the kernel gives to nice 0 and 5.
    assert!((2.9..3.15).contains(&ratio), "{ratio}: {ran:?}");
}

/// A tick's clock is read before the next task's begins: the fifth tick finds a rest.
#[test]
fn a_slice_of_20_ms_lasts_for_six_ticks() {
    let mut events = Vec::new();
    let tasks = vec![hog("a", 0), hog("b", 0)];
    let options = RunOptions::for_time(Ns::from_s(1));
    play("fair?fifo=true", &Machine::flat(1), tasks, &options, &mut events).expect("a run");
    let turns = turns(&events);
    assert!(turns.len() > 30, "{turns:?}");
    assert!(turns[1..].iter().all(|(_, length)| *length == 24), "{turns:?}");
}

#[test]
fn options_are_set_by_name() {
    let mut events = Vec::new();
    let options = RunOptions::for_time(Ns::from_s(1));
    let tasks = vec![hog("a", 0), hog("b", 0)];
    let spec = "fair?fifo=on,slice_ns=4ms";
    play(spec, &Machine::flat(1), tasks, &options, &mut events).expect("a run");
    let turns = turns(&events);
    assert!(turns[1..].iter().all(|(_, length)| *length == 8), "{turns:?}");
}

#[test]
fn a_timer_preempts_tasks_with_endless_slices() {
    let mut events = Vec::new();
    let options = RunOptions::for_time(Ns::from_s(1));
    let tasks = vec![hog("a", 0), hog("b", 0)];
    play("central", &Machine::flat(1), tasks, &options, &mut events).expect("a run");
    let turns = turns(&events);
    assert!(turns.len() > 90, "{turns:?}");
    assert!(turns[1..].iter().all(|(_, length)| *length == 10), "{turns:?}");
}

/// Wakeups, blocks, preemptions, forks and exits on several CPUs; the object itself checks the
/// order of its callbacks and ends the run where it is wrong.
#[test]
fn callbacks_come_in_the_kernels_order() {
    let mut tasks: Vec<TaskSpec> = (0..20u64)
        .map(|i| {
            let (work, sleep) = (Ns::from_us(300 + i * 1370 % 9000), Ns::from_us(500 + i * 530));
            TaskSpec::new(format!("t{i}"), Program::closed(work, sleep))
        })
        .collect();
    tasks.extend((0..6).map(|i| {
        let work = Op::Run(Amount::Fixed(Ns::from_ms(10 + i)));
        let mut task = TaskSpec::new(format!("once{i}"), Program::once([work, Op::Yield, work]));
        task.start = Start::At(Ns::from_ms(100 * i));
        task
    }));
    tasks.extend([hog("a", 0), hog("b", 5)]);
    for machine in machines() {
        let metrics = clean("trace", &machine, tasks.clone(), Ns::from_s(2));
        assert!(metrics.tasks.iter().all(|task| task.cpu_ns > Ns::ZERO), "each task runs");
    }
}

/// With and without costs, flat, with SMT and caches, and 64 CPUs.
fn machines() -> [Machine; 5] {
    let mut costly = Machine::flat(3);
    costly.costs.tick_switch_ns = Ns::from_us(7);
    costly.costs.block_switch_ns = Ns::from_us(3);
    costly.costs.wakeup_decide_ns = Ns::from_us(5);
    costly.costs.ipi_latency_ns = Ns::from_us(2);
    let mut smt = Machine::flat(1);
    smt.topology = Topology::regular(1, 2, 2, 2);
    smt.ticks = schedlab_sim::TickSkew::Staggered;
    [Machine::flat(1), Machine::flat(4), costly, smt, Machine::flat(64)]
}

#[test]
fn the_same_input_gives_the_same_events_however_ticks_are_delivered() {
    let tasks = || {
        let sleepers = (0..30u64).map(|i| {
            let (work, sleep) = (Ns::from_us(200 + i * 700), Ns::from_us(900 + i * 530));
            TaskSpec::new(format!("t{i}"), Program::closed(work, sleep))
        });
        sleepers.chain((0..8).map(|i| hog(&format!("h{i}"), i))).collect::<Vec<_>>()
    };
    for spec in ["fair", "central"] {
        for machine in machines() {
            let mut all = Vec::new();
            for every_tick in [false, false, true] {
                let mut events = Vec::new();
                let mut options = RunOptions::for_time(Ns::from_ms(500));
                options.every_tick = every_tick;
                play(spec, &machine, tasks(), &options, &mut events).expect("a run");
                all.push(events);
            }
            assert!(all[0].len() > 100, "{spec}: {}", all[0].len());
            assert!(all[0] == all[1], "{spec}: two runs");
            assert!(all[0] == all[2], "{spec}: every tick");
        }
    }
}

/// Each instruction and each call is a part of a decision's time; no other scheduler pays for them.
#[test]
fn instructions_and_calls_take_time() {
    let hogs = || vec![hog("a", 0), hog("b", 0)];
    let cost = |thousand: u64, call: u64| {
        let mut machine = Machine::flat(1);
        machine.costs.bpf_thousand_ns = Ns(thousand);
        machine.costs.bpf_call_ns = Ns(call);
        let metrics = clean("fair?slice_ns=4ms", &machine, hogs(), Ns::from_s(1));
        assert!(ran(&metrics).iter().sum::<f64>() > 990.0, "{:?}", ran(&metrics));
        metrics.decisions.cost_ns
    };
    assert_eq!(cost(0, 0), Ns::ZERO);
    // Some 125 decisions of tens of instructions at 1 us, and of some calls at 10 us.
    let (code, twice, calls) = (cost(1_000_000, 0), cost(2_000_000, 0), cost(0, 10_000));
    assert!(
        code > Ns::from_ms(1) && twice > code && calls > Ns::from_ms(1),
        "{code} {twice} {calls}"
    );
    let mut machine = Machine::flat(1);
    machine.costs.bpf_thousand_ns = Ns::from_ms(1);
    let linux = registry::build(&"linux-7.2".parse().expect("a spec"), 1).expect("a scheduler");
    let workload = Workload { tasks: hogs(), ..Workload::default() };
    let options = RunOptions::for_time(Ns::from_s(1));
    let outcome = run(&machine, &workload, &*linux, &options, &mut Vec::new()).expect("a run");
    assert_eq!(outcome.metrics.decisions.cost_ns, Ns::ZERO);
}

#[test]
fn idle_cpus_are_found_core_by_core() {
    let mut machine = Machine::flat(1);
    machine.topology = Topology::regular(1, 1, 4, 2);
    let metrics = clean("fair", &machine, (0..4).map(|_| hog("h", 0)).collect(), Ns::from_s(1));
    let busy: Vec<bool> = metrics.cpus.iter().map(|cpu| cpu.busy_ns > Ns::from_ms(500)).collect();
    let cores: Vec<usize> =
        busy.chunks(2).map(|core| core.iter().filter(|busy| **busy).count()).collect();
    assert_eq!(cores, [1, 1, 1, 1], "one hog on each core");
}

#[test]
fn affinity_holds() {
    let mut tasks: Vec<TaskSpec> = (0..6).map(|i| hog(&format!("h{i}"), 0)).collect();
    for (i, task) in tasks.iter_mut().enumerate() {
        task.affinity = [CpuId(i as u32 % 3), CpuId(2)].into_iter().collect::<CpuSet>();
    }
    let metrics = clean("fair", &Machine::flat(3), tasks, Ns::from_s(2));
    assert!(metrics.tasks.iter().all(|task| task.cpu_ns > Ns::from_ms(300)), "{:?}", ran(&metrics));
}

fn fails(spec: &str) -> String {
    let tasks = vec![hog("first", 0), hog("second", 0), hog("third", 0)];
    let options = RunOptions::for_time(Ns::from_s(10));
    let result = play(spec, &Machine::flat(2), tasks, &options, &mut Vec::new());
    match result {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{spec} ran"),
    }
}

#[test]
fn a_lost_task_is_found_by_the_watchdog() {
    let why = fails("faults?fault=4");
    assert!(why.contains("BPF scheduler \"faults\" disabled (runnable task stall)"), "{why}");
    assert!(why.contains("first[1000] failed to run for 1.000s"), "{why}");
}

#[test]
fn faults_end_the_run_with_a_reason() {
    let said = [
        (1, "belongs to no object", "value->words[at]"),
        (2, "does not end", "faults.bpf.c"),
        (3, "non-existent DSQ 0x63", "runtime error"),
        // The address of `mine` is in .rodata, where libbpf fills in none: 7.2.13 says as much.
        (5, "disabled (scx_bpf_error): task 7 of ", ""),
        (6, "writes memory at 0x", "faults_enqueue"),
        (7, "invalid CPU 4711 from ops.select_cpu()", ""),
        (8, "trying to direct-dispatch", "first[1000]"),
        (9, "belongs to no object", "stack"),
        (10, "ops.init() failed (-12)", ""),
    ];
    for (fault, what, also) in said {
        let why = fails(&format!("faults?fault={fault}"));
        assert!(why.contains(what) && why.contains(also), "{fault}: {why}");
        assert!(!why.contains("mine"), "{fault}: {why}");
    }
    let none = clean("faults", &Machine::flat(2), vec![hog("a", 0)], Ns::from_s(1));
    assert_eq!(none.tasks[0].cpu_ns, Ns::from_s(1));
}

#[test]
fn what_cannot_run_is_refused_by_name() {
    let missing = include_bytes!("../../../../bpf/sim/missing.bpf.o");
    let why = sched_ext::provide("missing", missing, &kernel()).unwrap_err().to_string();
    assert!(why.contains("ops.dispatch() reaches bpf_obj_new_impl"), "{why}");
    let why = sched_ext::provide("kernel", KERNEL, &kernel()).unwrap_err().to_string();
    assert!(why.contains("no variable of type `struct sched_ext_ops` in"), "{why}");
    // The recorder's object knows the types of a kernel without the class.
    let recorder = include_bytes!("../../../../bpf/sched.bpf.o");
    let other = Arc::new(Btf::of_file(recorder).expect("types"));
    let why = sched_ext::provide("fair", OBJECTS[0].1, &other).unwrap_err().to_string();
    assert!(why.contains("built without sched_ext"), "{why}");
    sched_ext::provide("fair", OBJECTS[0].1, &kernel()).expect("an object");
    let check = |text: &str| {
        registry::check(&text.parse().expect("a spec")).map_err(|error| error.to_string())
    };
    assert!(check("bpf:fair?slice_ns=1").is_ok() && check("bpf:fair?offset[2]=-5").is_ok());
    let said = [
        ("bpf:fair?slice_n=1", "did you mean `slice_ns`?"),
        ("bpf:fair?slice_ns=-1", "must be from 0 to"),
        ("bpf:fair?offset=1", "name one number of it"),
        ("bpf:fair?offset[4]=1", "has no such part"),
        ("bpf:fair?ops.name=1", "cannot be set"),
        ("bpf:fair?slice_ns=soon", "write a number"),
    ];
    for (spec, what) in said {
        let why = check(spec).unwrap_err();
        assert!(why.contains(what), "{spec}: {why}");
    }
    let nowhere = registry::build(&"bpf:nowhere.o".parse().expect("a spec"), 1).err();
    let why = nowhere.expect("no file was read").to_string();
    assert!(why.contains("those with the option --kernel-btf do"), "{why}");
    let options = RunOptions::for_time(Ns::from_ms(1));
    let why = play("fair", &Machine::flat(65), vec![hog("a", 0)], &options, &mut Vec::new());
    assert!(why.unwrap_err().to_string().contains("at most 64 CPUs"));
}

fn rt(name: &str, policy: Policy, program: Program) -> TaskSpec {
    TaskSpec { policy, ..TaskSpec::new(name, program) }
}

/// A real-time task has the CPU when it wants it, and the task whose slice it interrupts goes on
/// with the rest.
#[test]
fn real_time_tasks_run_above_a_scheduler_in_bpf() {
    let often = |work: u64| Program::periodic(Ns::from_ms(10), Ns::from_ms(work), Ns::ZERO);
    let tasks = vec![hog("a", 0), hog("b", 0), rt("ctl", Policy::Fifo(50), often(2))];
    let metrics = clean("fair", &Machine::flat(1), tasks, Ns::from_s(1));
    assert_eq!(ran(&metrics)[2], 200.0);
    assert_eq!(metrics.tasks[2].wake_latency.max(), Ns::ZERO);
    assert_eq!(ran(&metrics)[0] + ran(&metrics)[1], 800.0);
    assert!((ran(&metrics)[0] - 400.0).abs() < 25.0, "{:?}", ran(&metrics));
    // Alone with it: when it sleeps the CPU idles, and the next wakeup finds it.
    let sleeper = TaskSpec::new("s", often(1));
    let tasks = vec![sleeper, rt("ctl", Policy::Fifo(50), often(2))];
    let metrics = clean("fair", &Machine::flat(1), tasks, Ns::from_s(1));
    assert_eq!(ran(&metrics), [100.0, 200.0]);
    assert_eq!(metrics.tasks[0].wake_latency.max(), Ns::from_ms(2));
}

/// A real-time task takes CPU 0 each 20 ms: what waits there goes to the CPU that a `syscall`
/// program was told by the profile, once for each CPU, the last one last.
#[test]
fn a_scheduler_is_told_of_a_cpu_that_is_taken_and_a_profile_runs_programs() {
    let call = |args: &[(&str, &str)]| Profile {
        scheduler: "release".to_owned(),
        calls: vec![ProfileCall {
            program: "set_target".to_owned(),
            each: Each::Cpu,
            args: args.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            ..ProfileCall::default()
        }],
        ..Profile::default()
    };
    sched_ext::provide_profile("told", call(&[("cpu", "cpu")]));
    sched_ext::provide_profile("wrong", call(&[("cpu", "-1")]));
    // Of the parts of the machine the last CPU comes last.
    let room = Profile {
        scheduler: "release".to_owned(),
        calls: vec![ProfileCall {
            program: "target_of_mask".to_owned(),
            each: Each::Part,
            mask: Some(("give_room".to_owned(), "at".to_owned())),
            args: vec![("at".to_owned(), "mask".to_owned())],
            ..ProfileCall::default()
        }],
        ..Profile::default()
    };
    sched_ext::provide_profile("room", room);
    sched_ext::provide_profile("unknown", call(&[("core", "cpu")]));
    let tasks = || {
        let hogs = (0..2).map(|_| hog("h", 0)).map(|mut task| {
            task.began_on = Some(CpuId(0));
            task
        });
        let above = Program::periodic(Ns::from_ms(20), Ns::from_ms(10), Ns::from_ms(5));
        let mut above = rt("ctl", Policy::Fifo(50), above);
        above.affinity = [CpuId(0)].into_iter().collect();
        hogs.chain([above]).collect::<Vec<_>>()
    };
    let told = clean("release?profile=told", &Machine::flat(2), tasks(), Ns::from_s(1));
    let by_mask = clean("release?profile=room", &Machine::flat(2), tasks(), Ns::from_s(1));
    let left = clean("release", &Machine::flat(2), tasks(), Ns::from_s(1));
    // Told, the hogs have CPU 1 from the first release on; else they wait for CPU 0.
    assert!(ran(&told)[..2].iter().sum::<f64>() > 900.0, "{:?}", ran(&told));
    assert_eq!(ran(&by_mask), ran(&told));
    assert!(ran(&left)[..2].iter().sum::<f64>() < 600.0, "{:?}", ran(&left));
    for (profile, said) in
        [("wrong", "set_target: it returned 1"), ("unknown", "its argument has no member `core`")]
    {
        let spec = format!("release?profile={profile}");
        let options = RunOptions::for_time(Ns::from_s(1));
        let run = play(&spec, &Machine::flat(2), tasks(), &options, &mut Vec::new());
        let why = run.unwrap_err().to_string();
        assert!(why.contains(said), "{why}");
    }
}

#[test]
fn levels_above_a_scheduler_in_bpf() {
    let deadline = Policy::Deadline {
        runtime: Ns::from_ms(5),
        deadline: Ns::from_ms(10),
        period: Ns::from_ms(10),
    };
    let short = Program::periodic(Ns::from_ms(10), Ns::from_ms(1), Ns::from_ms(5));
    let tasks = vec![
        rt("low", Policy::Fifo(1), Program::hog()),
        rt("equal", Policy::Rr(1), Program::hog()),
        rt("high", Policy::Fifo(2), short.clone()),
        rt("dl", deadline, short),
        hog("fair", 0),
    ];
    let metrics = clean("fair", &Machine::flat(1), tasks.clone(), Ns::from_s(1));
    // The class's server fires at 950 ms and goes before real-time tasks, of which one loses a job
    // by that; deadline tasks go before it.
    assert_eq!(ran(&metrics)[1..4], [0.0, 95.0, 100.0]);
    let (low, fair) = (ran(&metrics)[0], ran(&metrics)[4]);
    assert!((low + fair - 805.0).abs() < 0.1 && fair > 40.0, "{low} {fair}");
    assert_eq!(metrics.tasks[3].wake_latency.max(), Ns::ZERO);
    assert_eq!(metrics.tasks[2].wake_latency.max(), Ns::from_ms(1));
    // With a CPU for each of the two hogs they have one each, and the others run above one of them.
    let metrics = clean("fair", &Machine::flat(2), tasks.clone(), Ns::from_s(1));
    assert_eq!(ran(&metrics).iter().sum::<f64>(), 2_000.0);
    assert!(ran(&metrics)[2] >= 95.0 && ran(&metrics)[3] == 100.0, "{:?}", ran(&metrics));
    assert!((40.0..110.0).contains(&ran(&metrics)[4]), "{:?}", ran(&metrics));
    assert!(ran(&metrics)[0] >= 700.0 && ran(&metrics)[1] >= 700.0, "{:?}", ran(&metrics));
    // One that leaves makes room for one that waits elsewhere.
    let once = Program::once([Op::Run(Amount::Fixed(Ns::from_ms(100)))]);
    let two: Vec<TaskSpec> = (0..4).map(|_| rt("t", Policy::Fifo(1), once.clone())).collect();
    let metrics = clean("fair", &Machine::flat(2), two, Ns::from_ms(200));
    assert_eq!(ran(&metrics), [100.0; 4]);
    // With a third CPU the fair one runs there.
    let metrics = clean("fair", &Machine::flat(3), tasks, Ns::from_s(1));
    assert!(ran(&metrics)[4] >= 800.0, "{:?}", ran(&metrics));
}

/// As the fair server beside a FIFO hog (docs/sources/linux-facts.md, G17): 54 of 1004 ms at 250
/// Hz, the first time at 950 ms. Within 10 s that is nine times, and 14 ms of the tenth.
#[test]
fn a_deadline_server_keeps_real_time_tasks_from_starving_the_class() {
    let tasks = vec![rt("rt", Policy::Fifo(50), Program::hog()), hog("fair", 0)];
    let length = Ns::from_s(10);
    let metrics = clean("fair", &Machine::flat(1), tasks.clone(), length);
    let fair = ran(&metrics)[1];
    assert!((fair - (9.0 * 54.0 + 14.0)).abs() < 0.1, "{fair}");
    assert!((ran(&metrics)[0] + fair - 10_000.0).abs() < 1.0, "{:?}", ran(&metrics));
    // Where the class has a CPU for itself, nothing is taken from the other.
    let metrics = clean("fair", &Machine::flat(2), tasks, length);
    assert_eq!(ran(&metrics), [10_000.0, 10_000.0]);
}

/// Each part of the machine once, in the words of a profile.
#[test]
fn a_profile_sets_options_of_each_part() {
    let set = |each, name: &str, value: &str| sched_ext::ProfileSet {
        each,
        options: vec![(name.to_owned(), value.to_owned())],
    };
    let profile = |sets| Profile { scheduler: "fair".to_owned(), sets, ..Profile::default() };
    // The last cache says how long slices are: 2 * 2 ms, of the second.
    sched_ext::provide_profile(
        "of-caches",
        profile(vec![
            set(Each::Llc, "slice_ns", "span-cpus * 2ms"),
            set(Each::Llc, "offset[llc]", "llc + 1"),
            set(Each::Once, "fifo", "smt + 1"),
        ]),
    );
    sched_ext::provide_profile("outside", profile(vec![set(Each::Cpu, "offset[cpu+3]", "1")]));
    let machine = Machine { topology: Topology::regular(1, 2, 2, 1), ..Machine::flat(4) };
    let tasks = || (0..8).map(|_| hog("h", 0)).collect::<Vec<_>>();
    let mut events = Vec::new();
    let options = RunOptions::for_time(Ns::from_s(1));
    play("fair?profile=of-caches", &machine, tasks(), &options, &mut events).expect("a run");
    let turns = turns(&events);
    assert!(turns[1..].iter().all(|(_, length)| *length == 8), "{turns:?}");
    let spec = "fair?profile=outside";
    let why = play(spec, &machine, tasks(), &options, &mut Vec::new()).unwrap_err().to_string();
    assert!(why.contains("option `offset[4]`"), "{why}");
}

/// What `log` prints of the task `c_n`, which does `ops` while it runs; beside a hog on each CPU
/// that it goes to.
fn told(ops: &[Op], cpus: usize) -> Vec<String> {
    for (name, file) in OBJECTS {
        sched_ext::provide(name, file, &kernel()).expect("an object of these tests");
    }
    let mut task = TaskSpec::new("c_n", Program::once(ops.to_vec()));
    task.began_on = Some(CpuId(0));
    let spec = "bpf:log".parse().expect("a spec");
    let (scheduler, prints) = sched_ext::build_printing(&spec).expect("a scheduler");
    let workload = Workload { tasks: vec![task], ..Workload::default() };
    let options = RunOptions::for_time(Ns::from_s(1));
    run(&Machine::flat(cpus), &workload, &*scheduler, &options, &mut ()).expect("a clean run");
    let prints = prints.lock().expect("prints");
    let own = prints.iter().filter_map(|(_, _, text)| text.strip_prefix("scx c_ "));
    let without_number = own.map(|text| {
        let words: Vec<&str> = text.split_whitespace().collect();
        format!("{} {}", words[0], words[2])
    });
    without_number.collect()
}

/// The order and flags of kernel/sched/core.c and ext.c: `set_user_nice` and `do_set_cpus_allowed`
/// take a running task away and give it back with DEQUEUE_SAVE | DEQUEUE_NOCLOCK; where it may not
/// stay, the stopper's thread takes the CPU from it, and its way to another CPU is told by
/// `enqueue` with ENQUEUE_MIGRATED (0x40 before 7.x) only.
#[test]
fn changes_of_a_running_task_are_told_as_in_the_kernel() {
    let work = Op::Run(Amount::Fixed(Ns::from_ms(10)));
    let nice = |value| Op::SetNice(Nice::new(value).expect("a nice value"));
    let calls = told(&[work, nice(5), work], 1);
    let changed = ["stopping 0", "quiescent 20000000a", "set_weight 21", "runnable a", "running 0"];
    let at = calls.iter().position(|call| call == "set_weight 21").expect("it is told");
    assert_eq!(calls[at - 2..=at + 2], changed, "{calls:?}");
    // The same nice value is no change.
    assert!(!told(&[work, nice(0), work], 1).contains(&"quiescent 20000000a".to_owned()));
    let to = |cpu| Op::SetCpus { first: CpuId(cpu), last: CpuId(cpu) };
    let calls = told(&[work, to(1), work], 2);
    let at = calls.iter().position(|call| call == "set_cpumask 0").expect("it is told");
    let moved = [
        "stopping 0",
        "quiescent 20000000a",
        "set_cpumask 0",
        "runnable a",
        "running 0",
        "stopping 1",
        "enqueue 40",
        "running 0",
    ];
    assert_eq!(calls[at - 2..at + 6], moved, "{calls:?}");
    // Where it may stay, it does.
    let calls = told(&[work, to(0), work], 2);
    assert!(calls.contains(&"set_cpumask 0".to_owned()));
    assert!(!calls.contains(&"enqueue 40".to_owned()), "{calls:?}");
}

/// Two tasks of one level have 100 ms each in turn, which are 25 ticks at 250 Hz (RR_TIMESLICE);
/// one of FIFO beside them never gives way.
#[test]
fn round_robin_has_slices_above_a_scheduler_in_bpf() {
    let hogs = |first: Policy| {
        vec![rt("a", first, Program::hog()), rt("b", Policy::Rr(10), Program::hog())]
    };
    let mut events = Vec::new();
    let options = RunOptions::for_time(Ns::from_ms(800));
    play("fair", &Machine::flat(1), hogs(Policy::Rr(10)), &options, &mut events).expect("a run");
    let turns = turns(&events);
    assert!(turns.len() >= 7, "{turns:?}");
    assert!(turns[1..].iter().all(|(_, length)| *length == 100), "{turns:?}");
    let metrics = clean("fair", &Machine::flat(1), hogs(Policy::Fifo(10)), Ns::from_ms(800));
    assert_eq!(ran(&metrics), [800.0, 0.0]);
}

/// The worked example of the deadline class (crates/scheduler/src/linux/dl.rs) beside a hog of the
/// class: 4 ms in each 10 ms, of which the task wants 6 every 20 ms.
#[test]
fn deadline_tasks_have_budgets_above_a_scheduler_in_bpf() {
    let policy = |runtime: u64, period: u64| Policy::Deadline {
        runtime: Ns::from_ms(runtime),
        deadline: Ns::from_ms(period),
        period: Ns::from_ms(period),
    };
    let machine = Machine { hz: 1000, ..Machine::flat(1) };
    let wants = Program::periodic(Ns::from_ms(20), Ns::from_ms(6), Ns::ZERO);
    let tasks = vec![rt("dl", policy(4, 10), wants), hog("fair", 0)];
    let metrics = clean("fair", &machine, tasks, Ns::from_s(1));
    assert_eq!(ran(&metrics), [300.0, 700.0]);
    assert_eq!(metrics.tasks[0].response.max(), Ns::from_ms(12));
    // One that never sleeps has its budget, and no more; without a tick at its end.
    let tasks = vec![rt("dl", policy(3, 10), Program::hog()), hog("fair", 0)];
    let metrics = clean("fair", &Machine::flat(1), tasks, Ns::from_s(1));
    let (dl, fair) = (ran(&metrics)[0], ran(&metrics)[1]);
    assert!((dl - 300.0).abs() < 45.0 && (dl + fair - 1_000.0).abs() < 0.1, "{dl} {fair}");
    // Of two the earlier deadline goes first, whatever came first.
    let tasks = vec![
        rt("late", policy(30, 100), Program::periodic(Ns::from_ms(100), Ns::from_ms(25), Ns::ZERO)),
        rt("early", policy(3, 10), Program::periodic(Ns::from_ms(10), Ns::from_ms(2), Ns::ZERO)),
    ];
    let metrics = clean("fair", &machine, tasks, Ns::from_s(1));
    assert_eq!(ran(&metrics), [250.0, 200.0]);
    assert_eq!(metrics.tasks[1].wake_latency.max(), Ns::ZERO);
}
