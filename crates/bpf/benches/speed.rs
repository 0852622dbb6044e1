//! `cargo bench -p schedlab-bpf [-- OBJECT...]`: instructions per CPU second of the virtual machine,
//! beside the aim of 150 million.
//!
//! Two kinds of code: an endless loop of an object of schedlab's tests (load, compare, jump), and
//! all callbacks of objects one after the other (those of the tests, or the files that are named,
//! with the types of a small kernel; kernel functions answer 0, helpers and maps work). CPU seconds
//! come from `/proc/self/schedstat`, so that a busy machine costs little precision; the best of
//! five runs (or `RUNS`) counts.
#![allow(clippy::print_stdout)]

#[path = "../../sim/benches/cpu/mod.rs"]
mod cpu;

use schedlab_bpf::{BpfError, Btf, Host, Linked, Object, Stop, Symbols, Vm, link, run};

const KERNEL: &[u8] = include_bytes!("../../../bpf/sim/kernel.bpf.o");
const FAULTS: &[u8] = include_bytes!("../../../bpf/sim/faults.bpf.o");
const OBJECTS: [(&str, &[u8]); 3] = [
    ("fair", include_bytes!("../../../bpf/sim/fair.bpf.o")),
    ("central", include_bytes!("../../../bpf/sim/central.bpf.o")),
    ("trace", include_bytes!("../../../bpf/sim/trace.bpf.o")),
];
/// What crate `bpf` is to reach, in millions of instructions a second.
const AIM: f64 = 150.0;
/// `fault` of the object that loops without end.
const NO_END: u8 = 2;

struct Zero(Vm);

impl Host for Zero {
    fn vm(&mut self) -> &mut Vm {
        &mut self.0
    }
    fn kfunc(&mut self, _: u32, _: [u64; 5]) -> Result<u64, Stop> {
        Ok(0)
    }
    fn helper(&mut self, number: i32, args: [u64; 5]) -> Result<u64, Stop> {
        Ok(schedlab_bpf::generic_helper(self, number, args)?.unwrap_or(0))
    }
}

struct Anything;

impl Symbols for Anything {
    fn function(&mut self, _: &str) -> Option<u32> {
        Some(1)
    }
    fn variable(&mut self, _: &str, bytes: usize, vm: &mut Vm) -> Result<u64, BpfError> {
        vm.memory.alloc(bytes).map_err(|stop| BpfError::Refused(stop.to_string()))
    }
    fn config(&mut self, _: &str) -> Option<u64> {
        None
    }
}

fn linked(object: &Object) -> Result<Linked, BpfError> {
    link(object, &Btf::of_file(KERNEL)?, 4, &mut Anything)
}

/// Prints the best rate of some runs, each of which returns how many instructions it executed.
fn measure(name: &str, mut once: impl FnMut() -> u64) {
    let mut best: Option<(f64, u64)> = None;
    for _ in 0..cpu::repeats(5) {
        let before = cpu::seconds();
        let executed = once();
        let rate = executed as f64 / 1e6 / (cpu::seconds() - before).max(1e-9);
        if best.is_none_or(|(other, _)| rate > other) {
            best = Some((rate, executed));
        }
    }
    if let Some((rate, executed)) = best {
        let part = 100.0 * rate / AIM;
        println!("{name:<24} {rate:7.1} M instructions/s, {part:4.0} % of the aim ({executed})");
    }
}

fn without_end() -> Result<(), BpfError> {
    let mut object = Object::parse(FAULTS)?;
    // Its only variable there is `fault`.
    let options = object.data.iter_mut().find(|section| section.name.starts_with(".rodata"));
    options.expect("options").data[0] = NO_END;
    let enqueue = object.ops[0].calls["enqueue"];
    let mut host = Zero(linked(&object)?.vm);
    host.0.budget = 100_000_000;
    let task = host.0.memory.alloc(4096).map_err(|stop| BpfError::Refused(stop.to_string()))?;
    measure("a loop without end", || {
        let before = host.0.executed;
        let context = host.0.context(&[task, 0]);
        let stopped = run(&mut host, enqueue, &[context]);
        assert!(stopped.is_err(), "it has no end");
        host.0.executed - before
    });
    Ok(())
}

fn callbacks(name: &str, file: &[u8]) -> Result<(), BpfError> {
    let object = Object::parse(file)?;
    let mut host = Zero(linked(&object)?.vm);
    let task = host.0.memory.alloc(1 << 16).map_err(|stop| BpfError::Refused(stop.to_string()))?;
    let entries: Vec<usize> =
        object.ops.iter().flat_map(|ops| ops.calls.values()).copied().collect();
    measure(&format!("callbacks of {name}"), || {
        let before = host.0.executed;
        while host.0.executed - before < 20_000_000 {
            let start = host.0.executed;
            for entry in &entries {
                let context = host.0.context(&[task, 1, 2]);
                // Some end early: kernel functions answer 0.
                let _ = run(&mut host, *entry, &[context]);
            }
            assert!(host.0.executed > start, "{name} executes nothing");
        }
        host.0.executed - before
    });
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    without_end()?;
    let files: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    for (name, file) in OBJECTS.iter().filter(|_| files.is_empty()) {
        callbacks(name, file)?;
    }
    for path in files {
        callbacks(&path, &std::fs::read(&path)?)?;
    }
    Ok(())
}
