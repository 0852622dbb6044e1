//! BPF objects as clang makes them (`.bpf.o`), run outside a kernel: a loader (ELF, BTF, CO-RE,
//! relocations of calls, maps and data) and a virtual machine over simulated kernel memory.
//!
//! Nothing here knows a scheduler. What runs an object is its [`Host`], which gives the kernel
//! functions and the helpers that need more than memory and maps. Addresses are a function of what
//! was allocated in which order, never of this process, so a run gives the same bytes everywhere.
//!
//! No input makes this crate panic: an object or BTF that is damaged is a [`BpfError`], a program
//! that does what a verifier would have refused is a [`Stop`] with its instruction.
//!
//! The ELF reader is own code (some 150 lines): what an object of one machine and one word size
//! needs is four tables. The crate `object` has more than that, and gives no more here.
//!
//! # Fidelity
//! | rule | real place | here | test |
//! |---|---|---|---|
//! | instructions v1 to v4, division by zero, masks of shifts | Documentation/bpf/standardization/instruction-set.rst | modelled | `arithmetic_is_that_of_wide_numbers` |
//! | CO-RE: essential names, anonymous members, kinds 0 to 12 | libbpf, relo_core.c | modelled but for bit fields of stores | `fields_are_those_of_the_kernel` |
//! | a load outside memory gives 0, a store ends the run | `PROBE_MEM` | modelled; a load in a gap between objects ends the run too | `what_reaches_past_an_object_is_found` |
//! | may_goto ends loops after 8 M rounds | `BPF_MAX_LOOPS` | modelled by count, not by time | |
//! | verifier | kernel/bpf/verifier.c | omitted: what runs here may still be refused by a kernel | |
//! | tail calls, exceptions, `bpf_obj_new`, rbtrees, lists | | refused by name | |
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod alu;
mod btf;
mod bytes;
mod core_relo;
mod elf;
mod error;
mod format;
mod helpers;
mod insn;
mod kfuncs;
mod link;
mod maps;
mod memory;
mod object;
mod reach;
mod run;

pub use btf::{Btf, Enumerators, Field, Kind, Member, Type, essential};
pub use core_relo::CoreRelo;
pub use error::{BpfError, Stop};
pub use format::bstr;
pub use helpers::{generic_helper, helper_name, knows_helper};
pub use insn::{Insn, Kind as InsnKind};
pub use kfuncs::{Generic, MASK_BYTES, known_kfunc};
pub use link::{Linked, Symbols, link};
pub use maps::{Map, MapKind, Maps};
pub use memory::{ARENA, ARENA_USER, BASE, FUNCTIONS, Memory, SYMBOLS};
pub use object::{DataSection, MapDef, Object, Ops, Program, Raw, Ref, SourceLine, Variable};
pub use reach::{Reached, reached};
pub use run::{BUDGET, Host, Vm, run};

/// Values that helpers and kernel functions give back for errors, as the kernel numbers them.
pub mod errno {
    /// No such thing.
    pub const ENOENT: u64 = -2i64 as u64;
    /// Too big.
    pub const E2BIG: u64 = -7i64 as u64;
    /// A bad address.
    pub const EFAULT: u64 = -14i64 as u64;
    /// Busy.
    pub const EBUSY: u64 = -16i64 as u64;
    /// It is there already.
    pub const EEXIST: u64 = -17i64 as u64;
    /// A bad argument.
    pub const EINVAL: u64 = -22i64 as u64;
}
