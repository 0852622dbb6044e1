//! Objects of `bpf/sim` through loader and machine: as they are, and damaged.

use proptest::prelude::*;
use schedlab_bpf::{
    BpfError, Btf, Host, Linked, Object, Stop, Symbols, Vm, known_kfunc, link, reached, run,
};

const KERNEL: &[u8] = include_bytes!("../../../bpf/sim/kernel.bpf.o");
const FAIR: &[u8] = include_bytes!("../../../bpf/sim/fair.bpf.o");
const CENTRAL: &[u8] = include_bytes!("../../../bpf/sim/central.bpf.o");
const FAULTS: &[u8] = include_bytes!("../../../bpf/sim/faults.bpf.o");
const TRACE: &[u8] = include_bytes!("../../../bpf/sim/trace.bpf.o");
/// The driver's own object: CO-RE with absent fields, rings, iterators.
const EXT: &[u8] = include_bytes!("../../../bpf/ext.bpf.o");
const ALL: [&[u8]; 5] = [FAIR, CENTRAL, FAULTS, TRACE, EXT];

/// Gives every kernel function the answer 0.
struct Zero(Vm, u64);

impl Host for Zero {
    fn vm(&mut self) -> &mut Vm {
        &mut self.0
    }
    fn kfunc(&mut self, _: u32, _: [u64; 5]) -> Result<u64, Stop> {
        self.1 += 1;
        Ok(0)
    }
    fn helper(&mut self, number: i32, args: [u64; 5]) -> Result<u64, Stop> {
        Ok(schedlab_bpf::generic_helper(self, number, args)?.unwrap_or(0))
    }
}

struct Anything;

impl Symbols for Anything {
    fn function(&mut self, name: &str) -> Option<u32> {
        (name != "bpf_obj_new_impl").then_some(1)
    }
    fn variable(&mut self, _: &str, bytes: usize, vm: &mut Vm) -> Result<u64, BpfError> {
        vm.memory.alloc(bytes).map_err(|stop| BpfError::Refused(stop.to_string()))
    }
    fn config(&mut self, _: &str) -> Option<u64> {
        None
    }
}

fn loaded(file: &[u8]) -> Result<(Object, Linked), BpfError> {
    let (object, kernel) = (Object::parse(file)?, Btf::of_file(KERNEL)?);
    let linked = link(&object, &kernel, 4, &mut Anything)?;
    Ok((object, linked))
}

#[test]
fn an_object_is_read_as_it_was_written() {
    let object = Object::parse(FAIR).expect("an object");
    let ops = &object.ops[0];
    assert_eq!((ops.ty.as_str(), ops.text.as_str()), ("sched_ext_ops", "fair"));
    assert_eq!(ops.values["timeout_ms"], 5000);
    let mut calls: Vec<&str> = ops.calls.keys().map(String::as_str).collect();
    calls.sort_unstable();
    let all = ["dispatch", "enable", "enqueue", "init", "running", "select_cpu", "stopping"];
    assert_eq!(calls, all);
    let counts = &object.maps[0];
    assert_eq!((counts.kind, counts.key, counts.value, counts.max), (6, 4, 8, 2));
    let name = object.program_at(ops.calls["enqueue"]).map(|program| program.name.as_str());
    assert_eq!(name, Some("fair_enqueue"));
    let line = object.line(ops.calls["enqueue"]).expect("a source line");
    assert_eq!(line.file, "fair.bpf.c");
    let found = reached(&object, ops.calls["enqueue"], |name| !name.ends_with("___old"));
    assert!(found.kfuncs.contains("scx_bpf_dsq_insert"), "{found:?}");
    assert!(!found.kfuncs.contains("scx_bpf_dispatch___old"), "behind a question: {found:?}");
    assert!(found.helpers.contains(&1));
}

/// The fields of the made-up kernel lie elsewhere than in the object's own types.
#[test]
fn fields_are_those_of_the_kernel() {
    let kernel = Btf::of_file(KERNEL).expect("types");
    let (object, linked) = loaded(FAIR).expect("an object");
    let vtime = kernel.field("task_struct", "scx.dsq_vtime").expect("a field").0;
    let own = object.btf.field("task_struct", "scx.dsq_vtime").expect("a field").0;
    assert_ne!(vtime, own);
    let mut host = Zero(linked.vm, 0);
    let bytes = kernel.size(kernel.structure("task_struct").expect("a struct"));
    let task = host.0.memory.alloc(bytes as usize).expect("room");
    let clock = object.data.iter().position(|section| section.name == ".bss").expect(".bss");
    let clock = linked.data[clock];
    host.0.memory.set_word(clock, 4711);
    let context = host.0.context(&[task]);
    run(&mut host, object.ops[0].calls["enable"], &[context]).expect("it runs");
    assert_eq!(host.0.memory.word(task + vtime as u64), 4711);
}

#[test]
fn a_field_that_the_kernel_lacks_is_named_when_it_is_reached() {
    let kernel = Btf::of_file(FAIR).expect("types");
    let object = Object::parse(TRACE).expect("an object");
    let (_, poisoned) = object.for_kernel(&kernel);
    assert!(poisoned.is_empty(), "{poisoned:?}");
    let (_, poisoned) = Object::parse(EXT).expect("an object").for_kernel(&kernel);
    let names: Vec<&str> = poisoned.values().map(String::as_str).collect();
    assert!(names.contains(&"task_struct.tgid"), "{names:?}");
}

#[test]
fn kernel_functions_without_a_model_are_named() {
    let missing = include_bytes!("../../../bpf/sim/missing.bpf.o");
    let (_, linked) = loaded(missing).expect("an object");
    assert_eq!(linked.without_model[0].0, "bpf_obj_new_impl");
    let (_, linked) = loaded(FAIR).expect("an object");
    assert_eq!(linked.absent, ["scx_bpf_dispatch___old"]);
}

#[test]
fn other_files_are_refused_by_name() {
    let said = [
        (&b""[..], "shorter than an ELF header"),
        (b"#!/bin/sh\n", "does not begin as an ELF file"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\x3e\0", "another machine than BPF"),
    ];
    for (file, what) in said {
        let error = Object::parse(file).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    assert!(Btf::parse(b"\x9f\xeb").is_err());
}

#[test]
fn number_iterators_count_like_a_loop() {
    let (_, linked) = loaded(FAIR).expect("an object");
    let mut vm = linked.vm;
    let it = vm.memory.alloc(8).expect("room");
    let call =
        |vm: &mut Vm, name: &str, args| known_kfunc(name).expect(name)(vm, args).expect(name);
    for (from, to) in [(0i32, 3i32), (-2, 2), (5, 5), (7, 3), (i32::MAX - 1, i32::MAX)] {
        let (a, b) = (from as u32 as u64, to as u32 as u64);
        call(&mut vm, "bpf_iter_num_new", [it, a, b, 0, 0]);
        let mut seen = Vec::new();
        loop {
            let at = call(&mut vm, "bpf_iter_num_next", [it, 0, 0, 0, 0]);
            if at == 0 {
                break;
            }
            seen.push(vm.memory.read(at, 4) as i32);
        }
        assert_eq!(seen, (from..to).collect::<Vec<_>>());
    }
}

/// Runs every callback of a damaged object; only the absence of a panic is asked for.
fn survives(file: &[u8]) {
    let Ok((object, linked)) = loaded(file) else { return };
    let mut host = Zero(linked.vm, 0);
    // A loop without end is short.
    host.0.budget = 200_000;
    for ops in &object.ops {
        for entry in ops.calls.values() {
            let task = host.0.memory.alloc(4096).unwrap_or(0);
            let context = host.0.context(&[task, 1, 2]);
            let _ = run(&mut host, *entry, &[context])
                .map_err(|stop| stop.instruction().map(|at| (object.place(at), stop.to_string())));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn damaged_objects_never_panic(
        which in 0usize..ALL.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut file = ALL[which].to_vec();
        // Most of a file is code and types; its tables are at its end and its beginning.
        for (at, value) in &changes {
            let at = at.index(file.len());
            file[at] = *value;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        survives(&file);
    }

    #[test]
    fn damaged_types_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let elf = KERNEL.to_vec();
        let at = elf.windows(4).position(|four| four == [0x9f, 0xeb, 1, 0]).unwrap();
        let mut types = elf[at..].to_vec();
        for (place, value) in &changes {
            let place = place.index(types.len());
            types[place] = *value;
        }
        if let Ok(kernel) = Btf::parse(&types) {
            let object = Object::parse(EXT).unwrap();
            let (code, _) = object.for_kernel(&kernel);
            prop_assert_eq!(code.len(), object.code.len());
            let _ = kernel.enumerators();
            for id in 0..kernel.types().len() as u32 {
                let _ = (kernel.size(id), kernel.member(id, "pid"), kernel.name(id));
            }
        }
    }
}
