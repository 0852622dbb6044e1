//! Two control groups with a CPU-bound task for each CPU, on one and on two nodes: the CPUs that a
//! group gets, beside what a real kernel gave it from the same placement (`oracles/groups`).

#![allow(clippy::print_stdout)] // With `--nocapture` every row is printed.

use schedlab_model::{
    CpuId, GroupId, GroupSpec, Ns, Program, TaskId, TaskSpec, Topology, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions, run};
use serde::Deserialize;
use std::path::Path;

/// How far off a group may be, as a part of the machine.
const ALLOWED: f64 = 0.03;

/// One boot of a real kernel.
#[derive(Deserialize)]
struct Boot {
    /// Which preset models it.
    preset: String,
    nodes: usize,
    cores: usize,
    /// `cpu.weight` of both groups.
    weights: [u32; 2],
    /// How the placement came about.
    start: String,
    /// On which CPU each task of a group was at the beginning.
    placed: [Vec<u32>; 2],
    /// From then on, s: the time in which CPU time was counted.
    window: [f64; 2],
    /// How many CPUs each group had.
    cpus: [f64; 2],
}

impl Boot {
    /// How many CPUs both groups get here.
    fn simulated(&self) -> [f64; 2] {
        let group = |name: &str, weight: u32| GroupSpec {
            name: name.to_owned(),
            parent: Some(GroupId(0)),
            // `cpu.weight` 100 is `cpu.shares` 1024.
            weight: Some(weight * 1024 / 100),
            ..GroupSpec::default()
        };
        let [a, b] = self.weights;
        let root = GroupSpec { name: "/".to_owned(), ..GroupSpec::default() };
        let tasks = self.placed.iter().zip(1..).flat_map(|(cpus, group)| {
            cpus.iter().map(move |&cpu| TaskSpec {
                group: GroupId(group),
                began_on: Some(CpuId(cpu)),
                ..TaskSpec::new("hog", Program::hog())
            })
        });
        let workload = Workload {
            groups: vec![root, group("/a", a), group("/b", b)],
            tasks: tasks.collect(),
            ..Workload::default()
        };
        let topology = Topology::regular(self.nodes, 1, self.cores, 1);
        let machine = Machine { topology, ..Machine::flat(1) };
        let scheduler =
            registry::build(&self.preset.parse().unwrap(), self.nodes * self.cores).unwrap();
        let ns = |seconds: f64| Ns((seconds * 1e9) as u64);
        let [from, to] = self.window.map(ns);
        let options = RunOptions { warmup: from, ..RunOptions::for_time(to) };
        let outcome = run(&machine, &workload, &*scheduler, &options, &mut ()).unwrap();
        let first = self.placed[0].len();
        let all = first + self.placed[1].len();
        [0..first, first..all]
            .map(|tasks| tasks.map(|task| outcome.metrics.share(TaskId::from(task))).sum::<f64>())
    }
}

#[test]
fn groups_get_what_a_real_kernel_gave_them_from_the_same_placement() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/groups/weights.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let boots: Vec<Boot> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut wrong = Vec::new();
    for boot in &boots {
        let cpus = (boot.nodes * boot.cores) as f64;
        let got = boot.simulated();
        let what = format!(
            "{} {} x {} weights {:?} {}: {got:.2?} CPUs, really {:?}",
            boot.preset, boot.nodes, boot.cores, boot.weights, boot.start, boot.cpus
        );
        println!("{what}: {:+.1} %", 100.0 * (got[0] - boot.cpus[0]) / cpus);
        if got.iter().zip(boot.cpus).any(|(got, real)| (got - real).abs() > ALLOWED * cpus) {
            wrong.push(what);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Both orders of one and of two nodes, at each size.
    for (nodes, cpus) in [(1, 8), (1, 16), (1, 32), (2, 8), (2, 16), (2, 32)] {
        for weights in [[100, 50], [50, 100]] {
            let has = |b: &&Boot| (b.nodes, b.weights, b.nodes * b.cores) == (nodes, weights, cpus);
            assert!(boots.iter().any(|b| has(&b)), "{nodes} nodes, {cpus} CPUs, {weights:?}");
        }
    }
}
