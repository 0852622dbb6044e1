use super::*;
use crate::variant::{Subject, Variant};
use schedlab_model::{CpuId, GroupSpec, Program, TaskSpec};
use schedlab_scheduler::SchedulerSpec;

/// A hog in a session, a server in another one, and what the test adds.
struct Made {
    workload: Workload,
    shares: Vec<f64>,
}

impl Made {
    fn new() -> Made {
        let root = GroupSpec { name: "/".to_owned(), ..GroupSpec::default() };
        let workload = Workload { groups: vec![root], ..Workload::default() };
        let mut made = Made { workload, shares: Vec::new() };
        let [hogs, servers] = ["/autogroup-519", "/autogroup-520"].map(|name| made.group(name, 0));
        for group in [hogs, servers] {
            made.workload.groups[group].autogroup = true;
        }
        made.task("sysbench", hogs, 0.5);
        made.task("redis", servers, 0.5);
        made
    }

    fn group(&mut self, name: &str, parent: usize) -> usize {
        let parent = Some(GroupId::from(parent));
        let spec = GroupSpec { name: name.to_owned(), parent, ..GroupSpec::default() };
        self.workload.groups.push(spec);
        self.workload.groups.len() - 1
    }

    fn task(&mut self, name: &str, group: usize, share: f64) -> &mut TaskSpec {
        let group = GroupId::from(group);
        let task = TaskSpec {
            group,
            affinity: CpuSet::single(CpuId(0)),
            ..TaskSpec::new(name, Program::hog())
        };
        self.workload.tasks.push(task);
        self.shares.push(share);
        self.workload.tasks.last_mut().expect("it was pushed")
    }

    fn plan(&self, scheduler: &str, variant: &Variant) -> RowPlan {
        let classes: Vec<String> =
            self.workload.tasks.iter().map(|task| task.name.clone()).collect();
        let subject = Subject {
            workload: &self.workload,
            classes: &classes,
            threads: &[],
            kernel_threads: &[],
            guests: None,
            cpus: 2,
            vms: &[],
            delegation: &crate::delegation::IN_KERNEL,
            kernel: None,
            roles: Default::default(),
            smt_yield: crate::scenario::SmtYield::OneThread,
        };
        let spec: SchedulerSpec = scheduler.parse().expect("a scheduler");
        RowPlan::new(&spec, variant, &subject).expect("a row")
    }

    fn under(&self, scheduler: &str, variant: &str) -> Vec<NoEffect> {
        let classes: Vec<String> =
            self.workload.tasks.iter().map(|task| task.name.clone()).collect();
        let [base, plan] =
            [Variant::as_recorded(), Variant::parse_named("v", variant).expect(variant)]
                .map(|variant| self.plan(scheduler, &variant));
        let known = Known { classes: &classes, share: &|task| self.shares[task] };
        of_plan(&plan, &base, known)
    }

    fn of(&self, variant: &str) -> Vec<NoEffect> {
        self.under("linux-6.18", variant)
    }

    fn one(&self, variant: &str) -> NoEffect {
        let all = self.of(variant);
        assert_eq!(all.len(), 1, "{variant}: {all:?}");
        all.into_iter().next().expect("one")
    }
}

#[test]
fn a_task_alone_in_its_session_needs_the_weight_of_the_session() {
    let made = Made::new();
    let nice = made.one("sysbench nice=19");
    assert_eq!(
        nice.sentence,
        "sysbench is alone in /autogroup-519 (the autogroup of a session): nice=19 changes no \
         share of CPU time there, because a nice value counts only among the tasks of one group. \
         The weight of /autogroup-519 counts, against redis: --variant 'weight: \
         /autogroup-519 cpu.shares=15'."
    );
    assert_eq!(nice.weight_of.as_deref(), Some("/autogroup-519"));
    let idle = made.one("sysbench policy=idle");
    assert_eq!(
        idle.instead.as_deref(),
        Some("idle-group: sysbench group=/background ; /background cpu.idle=on"),
        "a session cannot be idle"
    );
    let batch = made.one("sysbench policy=batch");
    assert_eq!(batch.instead, None);
    assert!(batch.sentence.contains("still keeps a task from preempting"), "{}", batch.sentence);
    // What is offered can be written, and sets something.
    for offered in [nice, idle].map(|one| one.instead.expect("a variant")) {
        let variant = Variant::parse(&offered).expect(&offered);
        assert_ne!(made.plan("linux-6.18", &variant).workload, made.workload, "{offered}");
        assert_eq!(made.of(offered.split_once(':').expect("a name").1), [], "{offered}");
    }
}

#[test]
fn another_task_of_the_group_makes_it_count() {
    let mut made = Made::new();
    made.task("bash", 1, 0.002);
    let nearly = made.one("sysbench nice=19").sentence;
    assert!(nearly.contains("alone in /autogroup-519 (the autogroup of a session), but for 0.2 %"));
    made.task("make", 1, 0.3);
    assert_eq!(made.of("sysbench nice=19"), []);
    let both = made.of("sysbench nice=19 ; make nice=19");
    let first = "every task that runs in /autogroup-519 (the autogroup of a session)";
    assert!(both[0].sentence.starts_with(first), "{both:?}");
    assert_eq!(both.len(), 2, "of each of the two: {both:?}");
    assert_eq!(made.of("sysbench nice=19 ; make nice=10"), [], "they differ now");
    // On another CPU there is no competition.
    made.workload.tasks.last_mut().unwrap().affinity = CpuSet::single(CpuId(1));
    made.one("sysbench nice=19");
}

#[test]
fn a_real_time_task_weighs_against_nothing() {
    let mut made = Made::new();
    made.task("audio", 1, 0.3).policy = Policy::Fifo(1);
    let sentence = made.one("sysbench nice=19").sentence;
    assert!(sentence.contains("but for real-time tasks, which run before it"), "{sentence}");
    assert_eq!(made.of("sysbench policy=fifo:1"), [], "real-time priorities know no groups");
    assert_eq!(made.of("audio policy=idle"), [], "it was real-time");
}

#[test]
fn what_is_a_group_is_the_kernels_to_say() {
    let made = Made::new();
    for scheduler in
        ["linux-6.18:sched_autogroup_enabled=off", "linux-2.6.22", "linux-2.6.32", "edf", "rr"]
    {
        assert_eq!(made.under(scheduler, "sysbench nice=19"), [], "{scheduler}");
    }
    for scheduler in ["linux-3.0", "linux-5.10", "linux-6.1", "linux-7.2"] {
        assert_eq!(made.under(scheduler, "sysbench nice=19").len(), 1, "{scheduler}");
    }
    let old = made.under("linux-5.10", "sysbench policy=idle");
    let weight = "weight: /autogroup-519 cpu.shares=15";
    assert_eq!(old[0].instead.as_deref(), Some(weight), "no cpu.idle before 5.15");
}

#[test]
fn the_lowest_group_that_competes_is_named() {
    let mut made = Made::new();
    let outer = made.group("/docker", 0);
    let inner = made.group("/docker/1f", outer);
    made.task("worker", inner, 0.4);
    let one = made.one("worker nice=5");
    assert_eq!((one.group.as_str(), one.weight_of.as_deref()), ("/docker/1f", Some("/docker")));
    assert_eq!(one.instead.as_deref(), Some("weight: /docker cpu.weight=33"));
    assert!(one.sentence.contains("counts, against redis and sysbench: "), "{}", one.sentence);
    assert_eq!(
        made.one("worker policy=idle").instead.as_deref(),
        Some("idle-group: /docker cpu.idle=on")
    );
    // A task of the root competes with groups.
    made.task("kthread", 0, 0.2);
    assert_eq!(made.of("kthread nice=5"), []);
    // A container beside it, in the same parent.
    let other = made.group("/docker/2a", outer);
    made.task("sidecar", other, 0.2);
    assert_eq!(made.one("worker nice=5").weight_of.as_deref(), Some("/docker/1f"));
}

#[test]
fn where_nothing_else_runs_no_weight_counts() {
    let mut made = Made::new();
    for task in &mut made.workload.tasks[1..] {
        task.affinity = CpuSet::single(CpuId(1));
    }
    let one = made.one("sysbench nice=19");
    assert_eq!((one.weight_of, one.instead), (None, None));
    assert!(one.sentence.ends_with("No other group competes for its CPUs."), "{}", one.sentence);
    assert!(one.short.ends_with("nice=19 changes no share there."), "{}", one.short);
}

#[test]
fn sessions_have_the_weights_of_nice_values() {
    for (shares, nice) in [(1024, 0), (15, 19), (2, 19), (10, 19), (512, 3), (88_761, -20)] {
        assert_eq!(nearest(shares).get(), nice, "{shares}");
    }
}
