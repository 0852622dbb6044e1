//! Any bytes: a scheduler in BPF, or an error. The kernel's types are those of the tests.
#![no_main]

use libfuzzer_sys::fuzz_target;
use schedlab_scheduler::sched_ext::{Btf, inspect};
use std::sync::LazyLock;

static KERNEL: LazyLock<Btf> = LazyLock::new(|| {
    Btf::of_file(include_bytes!("../../bpf/sim/kernel.bpf.o")).expect("a kernel's types")
});

fuzz_target!(|bytes: &[u8]| {
    let _ = inspect("fuzz", bytes, Some(&KERNEL));
    let _ = Btf::of_file(bytes);
});
