//! An object into a machine: maps and data get memory, references get addresses and numbers.

use crate::insn::{self, Insn, Kind};
use crate::{
    ARENA_USER, BpfError, Btf, DataSection, FUNCTIONS, MapKind, Object, Raw, Ref, SYMBOLS, Stop,
    Vm, essential,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the kernel gives to the symbols of an object.
pub trait Symbols {
    /// Number of the model of a kernel function that the kernel has; `None`: it has no model.
    fn function(&mut self, name: &str) -> Option<u32>;
    /// Address of a variable that the kernel has.
    ///
    /// # Errors
    /// There is no room, or no model.
    fn variable(&mut self, name: &str, bytes: usize, vm: &mut Vm) -> Result<u64, BpfError>;
    /// A value of its configuration; `None`: not set.
    fn config(&mut self, name: &str) -> Option<u64>;
}

/// A linked object.
#[derive(Debug)]
pub struct Linked {
    /// The machine.
    pub vm: Vm,
    /// Address of each section of data.
    pub data: Vec<u64>,
    /// Kernel functions without a model, and the instructions that call them.
    pub without_model: Vec<(String, usize)>,
    /// Weak kernel functions that this kernel lacks: 0 as an address.
    pub absent: Vec<String>,
}

/// Links `object` for a kernel with the types `kernel`, on `cpus` CPUs.
///
/// # Errors
/// An instruction or map that is not modelled, or no room.
pub fn link(
    object: &Object,
    kernel: &Btf,
    cpus: usize,
    symbols: &mut dyn Symbols,
) -> Result<Linked, BpfError> {
    let mut vm = Vm::default();
    (vm.cpus, vm.distributed, vm.random) = (cpus, vec![0; cpus], 1);
    vm.budget = crate::BUDGET;
    vm.open().map_err(full)?;
    for map in &object.maps {
        vm.maps.make(&mut vm.memory, map, cpus)?;
    }
    vm.maps.fill(&mut vm.memory);
    let data = place(&mut vm, object)?;
    let (raw, poisoned) = object.for_kernel(kernel);
    let mut linker = Linker {
        object,
        kernel,
        symbols,
        raw: &raw,
        data: &data,
        variables: BTreeMap::new(),
        without_model: Vec::new(),
        absent: Vec::new(),
    };
    let mut code = insn::decode(&raw)?;
    for (at, reference) in &object.refs {
        linker.resolve(&mut vm, &mut code, *at, reference)?;
    }
    for (at, field) in poisoned {
        vm.poison.insert(at, format!("it needs {field}, which this kernel does not have"));
        code[at].kind = Kind::Poisoned;
    }
    let (without_model, absent) = (linker.without_model, linker.absent);
    vm.code = Arc::from(code);
    Ok(Linked { vm, data, without_model, absent })
}

fn full(stop: Stop) -> BpfError {
    BpfError::Refused(stop.to_string())
}

fn is_arena(section: &DataSection) -> bool {
    section.name.starts_with(".addr_space.1") || section.name.starts_with(".arena")
}

/// Gives every section of data an address. Globals of an arena have one of the user's side.
fn place(vm: &mut Vm, object: &Object) -> Result<Vec<u64>, BpfError> {
    let (mut globals, mut offsets) = (Vec::new(), Vec::new());
    for section in object.data.iter().filter(|section| is_arena(section)) {
        offsets.push(globals.len() as u64);
        globals.extend_from_slice(&section.data);
        globals.resize(globals.len().next_multiple_of(64), 0);
    }
    let arena = vm.maps.iter().find(|map| map.kind == MapKind::Arena);
    let pages = arena.map_or(0, |map| map.def.max as usize);
    let first =
        if pages > 0 || !globals.is_empty() { vm.memory.open_arena(pages, &globals) } else { 0 };
    let mut offsets = offsets.into_iter();
    let mut data = Vec::new();
    for section in &object.data {
        if is_arena(section) {
            data.push(ARENA_USER | (first + offsets.next().unwrap_or(0)));
            continue;
        }
        let address = vm.memory.alloc(section.data.len()).map_err(full)?;
        vm.memory.put(address, &section.data);
        data.push(address);
    }
    Ok(data)
}

struct Linker<'a> {
    object: &'a Object,
    kernel: &'a Btf,
    symbols: &'a mut dyn Symbols,
    raw: &'a [Raw],
    data: &'a [u64],
    variables: BTreeMap<String, u64>,
    without_model: Vec<(String, usize)>,
    absent: Vec<String>,
}

impl Linker<'_> {
    fn resolve(
        &mut self,
        vm: &mut Vm,
        code: &mut [Insn],
        at: usize,
        reference: &Ref,
    ) -> Result<(), BpfError> {
        let insn = code[at];
        if insn.kind == Kind::Number {
            let literal = match reference {
                Ref::Unknown(_) => insn.imm as u64,
                _ => self.address(vm, reference, at)?,
            };
            code[at].imm = literal as i64;
            return Ok(());
        }
        if self.raw[at].op != 0x85 {
            return Ok(());
        }
        match reference {
            Ref::Function(to) if *to < code.len() => {
                code[at] = Insn { kind: Kind::Local, imm: *to as i64, ..insn };
            }
            Ref::Kfunc(name) => {
                let (kind, number) = self.kfunc(vm, at, name);
                code[at] = Insn { kind, imm: number, ..insn };
            }
            other => {
                let what = format!("instruction {at} calls {other:?}, which is no function");
                return Err(BpfError::Refused(what));
            }
        }
        Ok(())
    }

    fn kfunc(&mut self, vm: &mut Vm, at: usize, name: &str) -> (Kind, i64) {
        let short = essential(name);
        if !self.has(name) {
            vm.poison.insert(at, format!("it calls {short}, which this kernel does not have"));
            self.note_absent(name);
            return (Kind::Poisoned, 0);
        }
        match self.symbols.function(short) {
            Some(number) => (Kind::Kfunc, i64::from(number)),
            None => {
                vm.poison
                    .insert(at, format!("it calls {short}, which the simulator does not have"));
                self.without_model.push((short.to_owned(), at));
                (Kind::Poisoned, 0)
            }
        }
    }

    fn note_absent(&mut self, name: &str) {
        if !self.absent.iter().any(|one| one == name) {
            self.absent.push(name.to_owned());
        }
    }

    /// Whether the kernel has this function, with as many arguments as the object says.
    fn has(&self, name: &str) -> bool {
        let Some(function) = self.kernel.function(essential(name)) else { return false };
        let own = self.object.btf.function(name);
        own.is_none_or(|own| self.object.btf.arguments(own) == self.kernel.arguments(function))
    }

    fn address(&mut self, vm: &mut Vm, reference: &Ref, at: usize) -> Result<u64, BpfError> {
        Ok(match reference {
            Ref::Map(map) => vm.maps.get(*map).map_or(0, |map| map.head),
            Ref::Data(section, offset) => self.data[*section].wrapping_add(*offset),
            Ref::Function(to) => FUNCTIONS + 8 * *to as u64,
            Ref::KfuncAddress(name) | Ref::Kfunc(name) => match self.has(name) {
                true => SYMBOLS + 16 * (1 + at as u64),
                false => {
                    self.note_absent(name);
                    0
                }
            },
            Ref::Variable(name) => self.variable(vm, name)?,
            Ref::Config(name) => {
                let address = vm.memory.alloc(8).map_err(full)?;
                vm.memory.set_word(address, self.symbols.config(name).unwrap_or(0));
                address
            }
            Ref::Unknown(_) => 0,
        })
    }

    fn variable(&mut self, vm: &mut Vm, name: &str) -> Result<u64, BpfError> {
        if let Some(address) = self.variables.get(name) {
            return Ok(*address);
        }
        let short = essential(name);
        let own = self.kernel.find(short, |kind| matches!(kind, crate::Kind::Var(_)));
        let address = match own {
            Some(id) => self.symbols.variable(short, self.kernel.size(id) as usize, vm)?,
            None => 0,
        };
        self.variables.insert(name.to_owned(), address);
        Ok(address)
    }
}
