//! From an ELF object to one image: instructions, references, maps, data, struct_ops.

mod definitions;
mod lines;

pub use definitions::MapDef;
pub use lines::SourceLine;

use crate::bytes::{little, text};
use crate::core_relo::{self, CoreRelo, Outcome};
use crate::elf::{Elf, Section, Symbol};
use crate::{BpfError, Btf, Kind};
use std::collections::BTreeMap;

/// An instruction as it is in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Raw {
    /// Operation.
    pub op: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register.
    pub src: u8,
    /// Offset.
    pub off: i16,
    /// Number.
    pub imm: i32,
}

/// What an instruction, or a word of data, refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ref {
    /// A map by number.
    Map(usize),
    /// Place in a section of data.
    Data(usize, u64),
    /// A call of a kernel function.
    Kfunc(String),
    /// The address of a kernel function.
    KfuncAddress(String),
    /// A variable of the kernel.
    Variable(String),
    /// An instruction of this object.
    Function(usize),
    /// A value of the kernel's configuration.
    Config(String),
    /// Something that is not there.
    Unknown(String),
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its section, such as `struct_ops/NAME`.
    pub section: String,
    /// First instruction.
    pub start: usize,
    /// Instructions.
    pub len: usize,
}

/// A variable of a section of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Offset in bytes.
    pub at: usize,
    /// Bytes.
    pub size: usize,
    /// Its type.
    pub ty: u32,
}

/// A section of data: to the kernel it is a map of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSection {
    /// Its name, such as `.rodata`.
    pub name: String,
    /// Content. An address in it is not filled in: libbpf skips relocations of sections without
    /// instructions (`bpf_object__elf_collect` in src/libbpf.c, 1.5), so that a program reads what
    /// the compiler left there.
    pub data: Vec<u8>,
    /// Variables in it.
    pub variables: Vec<Variable>,
}

/// A variable of a struct_ops section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ops {
    /// Name of the variable.
    pub name: String,
    /// Its type, such as `sched_ext_ops`.
    pub ty: String,
    /// First instruction of the function of each member that is set.
    pub calls: BTreeMap<String, usize>,
    /// Numbers that are not 0.
    pub values: BTreeMap<String, u64>,
    /// The member `name`.
    pub text: String,
}

/// An object that was read.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its types.
    pub btf: Btf,
    /// Instructions of all sections, one after the other.
    pub code: Vec<Raw>,
    /// What instructions refer to.
    pub refs: BTreeMap<usize, Ref>,
    /// Functions.
    pub programs: Vec<Program>,
    /// Maps.
    pub maps: Vec<MapDef>,
    /// Sections of data.
    pub data: Vec<DataSection>,
    /// struct_ops variables.
    pub ops: Vec<Ops>,
    /// CO-RE relocations by instruction.
    pub relocations: Vec<(usize, CoreRelo)>,
    lines: lines::Lines,
}

/// What is known of an object while it is read.
struct Reader<'a> {
    elf: &'a Elf,
    btf: &'a Btf,
    /// Variables by section, as BTF has them.
    sections: BTreeMap<String, Vec<Variable>>,
    /// First instruction of a section of code.
    code_at: BTreeMap<usize, usize>,
    /// Number of a section of data.
    data_of: BTreeMap<usize, usize>,
    /// Number of the map at an offset of `.maps`.
    map_at: BTreeMap<usize, usize>,
    maps_section: Option<usize>,
}

impl Object {
    /// Reads a `.bpf.o` file.
    ///
    /// # Errors
    /// It is no BPF object, has no type information, or is damaged.
    pub fn parse(file: &[u8]) -> Result<Object, BpfError> {
        let elf = Elf::parse(file)?;
        let section = |name: &str| elf.sections.iter().find(|section| section.name == name);
        let btf = section(".BTF").ok_or(BpfError::Missing {
            part: "type information (.BTF)",
            how: "compile it with -g, and do not strip that section",
        })?;
        let btf = Btf::parse(&btf.data)?;
        let mut reader = Reader::new(&elf, &btf);
        let code = reader.code();
        let programs = reader.programs();
        let (maps, data) = reader.maps_and_data();
        let refs = reader.refs(&code)?;
        let maps = reader.inner_maps(maps);
        let ops = reader.struct_ops(code.len());
        let (mut relocations, mut lines) = (Vec::new(), lines::Lines::default());
        if let Some(ext) = section(".BTF.ext") {
            reader.relocations(&ext.data, &mut relocations)?;
            lines = lines::Lines::read(&ext.data, &btf, |name| reader.code_of(name))?;
        }
        let relocations: Vec<_> =
            relocations.into_iter().filter(|(at, _)| *at < code.len()).collect();
        Ok(Object { code, refs, programs, maps, data, ops, relocations, lines, btf })
    }

    /// The source line of an instruction, where the object says it.
    pub fn line(&self, insn: usize) -> Option<SourceLine<'_>> {
        self.lines.of(insn, &self.btf)
    }
    /// The function that an instruction is in.
    pub fn program_at(&self, insn: usize) -> Option<&Program> {
        self.programs
            .iter()
            .filter(|p| p.start <= insn && insn < p.start + p.len)
            .min_by_key(|p| p.len)
    }
    /// Function and source line of an instruction, for messages.
    pub fn place(&self, insn: usize) -> Option<String> {
        let name = &self.program_at(insn)?.name;
        Some(match self.line(insn) {
            Some(line) if line.number > 0 => {
                format!("{name}, {}:{}: {}", line.file, line.number, line.text)
            }
            _ => name.clone(),
        })
    }
    /// The instructions for a kernel with these types, and those that ask for what it lacks.
    pub fn for_kernel(&self, kernel: &Btf) -> (Vec<Raw>, BTreeMap<usize, String>) {
        let (mut code, mut poisoned) = (self.code.clone(), BTreeMap::new());
        for (at, relo) in &self.relocations {
            let outcome = core_relo::relocate(&self.btf, kernel, relo);
            if !apply(&mut code, *at, outcome) {
                poisoned.insert(*at, core_relo::words(&self.btf, relo));
            }
        }
        (code, poisoned)
    }
    /// What a CO-RE relocation is about: `task_struct.scx.slice`.
    pub fn words(&self, relo: &CoreRelo) -> String {
        core_relo::words(&self.btf, relo)
    }
}

/// Writes the outcome of a relocation into its instruction. False: there is none.
fn apply(code: &mut [Raw], at: usize, outcome: Outcome) -> bool {
    let Some(raw) = code.get(at).copied() else { return true };
    let value = match outcome {
        Outcome::Missing => return false,
        Outcome::Value(value) => value,
        Outcome::Offset(byte, _) => u64::from(byte),
    };
    match (raw.op & 7, outcome) {
        (4 | 7, _) => code[at].imm = value as i32,
        (0, _) if raw.op == 0x18 => {
            code[at].imm = value as i32;
            if let Some(second) = code.get_mut(at + 1) {
                second.imm = (value >> 32) as i32;
            }
        }
        (_, Outcome::Offset(byte, size)) => {
            code[at].off = byte as i16;
            let width = match size {
                1 => 0x10,
                2 => 0x08,
                4 => 0,
                8 => 0x18,
                _ => raw.op & 0x18,
            };
            code[at].op = raw.op & !0x18 | width;
        }
        _ => code[at].off = value as i16,
    }
    true
}

impl<'a> Reader<'a> {
    fn new(elf: &'a Elf, btf: &'a Btf) -> Reader<'a> {
        let mut sections: BTreeMap<String, Vec<Variable>> = BTreeMap::new();
        for (id, ty) in btf.types().iter().enumerate() {
            let Kind::DataSec(list) = &ty.kind else { continue };
            let variable = |&(id, at, size): &(u32, u32, u32)| Variable {
                name: btf.name(id).to_owned(),
                at: at as usize,
                size: size as usize,
                ty: match btf.kind(id) {
                    Kind::Var(ty) => *ty,
                    _ => id,
                },
            };
            let list = list.iter().map(variable).collect();
            sections.insert(btf.name(id as u32).to_owned(), list);
        }
        Reader {
            maps_section: elf.sections.iter().position(|section| section.name == ".maps"),
            elf,
            btf,
            sections,
            code_at: BTreeMap::new(),
            data_of: BTreeMap::new(),
            map_at: BTreeMap::new(),
        }
    }

    fn code(&mut self) -> Vec<Raw> {
        let mut code = Vec::new();
        for (index, section) in self.elf.sections.iter().enumerate().filter(|(_, s)| s.is_code()) {
            self.code_at.insert(index, code.len());
            code.extend(section.data.chunks_exact(8).map(|e| Raw {
                op: e[0],
                dst: e[1] & 15,
                src: e[1] >> 4,
                off: i16::from_le_bytes([e[2], e[3]]),
                imm: i32::from_le_bytes([e[4], e[5], e[6], e[7]]),
            }));
        }
        code
    }

    fn programs(&self) -> Vec<Program> {
        let functions = self.elf.symbols.iter().filter(|symbol| symbol.kind == 2);
        let program = |symbol: &Symbol| {
            let first = self.code_at.get(&symbol.section)?;
            Some(Program {
                name: symbol.name.clone(),
                section: self.elf.sections.get(symbol.section)?.name.clone(),
                start: first.checked_add(symbol.value / 8)?,
                len: symbol.size / 8,
            })
        };
        functions.filter_map(program).collect()
    }

    fn code_of(&self, section: &str) -> Option<usize> {
        let named = |(index, _): &(&usize, &usize)| self.elf.sections[**index].name == section;
        self.code_at.iter().find(named).map(|(_, at)| *at)
    }

    /// Offsets in BTF may be unset before a loader repairs them; the symbol table knows.
    fn offset(&self, section: usize, variable: &Variable) -> usize {
        let named = |y: &&Symbol| y.section == section && y.name == variable.name && y.kind == 1;
        self.elf.symbols.iter().find(named).map_or(variable.at, |symbol| symbol.value)
    }

    fn maps_and_data(&mut self) -> (Vec<MapDef>, Vec<DataSection>) {
        let (mut maps, mut data) = (Vec::new(), Vec::new());
        for (index, section) in self.elf.sections.iter().enumerate() {
            let mut variables = self.sections.get(&section.name).cloned().unwrap_or_default();
            for one in &mut variables {
                one.at = self.offset(index, one);
            }
            if Some(index) == self.maps_section {
                for variable in variables {
                    self.map_at.insert(variable.at, maps.len());
                    maps.push(MapDef::read(self.btf, &variable.name, variable.ty, 0));
                }
            } else if is_data(&section.name) {
                self.data_of.insert(index, data.len());
                let inside = |one: &Variable| {
                    one.at.checked_add(one.size).is_some_and(|end| end <= section.data.len())
                };
                variables.retain(inside);
                let (name, bytes) = (section.name.clone(), section.data.clone());
                data.push(DataSection { name, data: bytes, variables });
            }
        }
        (maps, data)
    }

    /// What a symbol refers to.
    fn resolve(&self, symbol: &Symbol, add: i64) -> Ref {
        let name = || symbol.name.clone();
        let of =
            |section: &str| self.sections.get(section)?.iter().find(|one| one.name == symbol.name);
        if symbol.is_undefined() {
            return match (of(".kconfig"), of(".ksyms")) {
                (Some(_), _) => Ref::Config(name()),
                (_, Some(one))
                    if !matches!(self.btf.kind(one.ty), Kind::Func(_) | Kind::Proto(..)) =>
                {
                    Ref::Variable(name())
                }
                _ => Ref::KfuncAddress(name()),
            };
        }
        let at = (symbol.value as i64).wrapping_add(add) as u64;
        if Some(symbol.section) == self.maps_section {
            return self.map_at.get(&symbol.value).map_or(Ref::Unknown(name()), |m| Ref::Map(*m));
        }
        if let Some(data) = self.data_of.get(&symbol.section) {
            return Ref::Data(*data, at);
        }
        match self.code_at.get(&symbol.section) {
            Some(first) => Ref::Function(first.wrapping_add(at as usize / 8)),
            None => Ref::Unknown(name()),
        }
    }

    fn refs(&self, code: &[Raw]) -> Result<BTreeMap<usize, Ref>, BpfError> {
        const CALL: u32 = 10;
        let mut refs = BTreeMap::new();
        for (index, first) in &self.code_at {
            for relocation in &self.elf.sections[*index].relocations {
                let (at, symbol) =
                    (first + relocation.at / 8, &self.elf.symbols[relocation.symbol]);
                let Some(raw) = code.get(at) else {
                    return Err(BpfError::damaged("a relocation table", "it points outside"));
                };
                let local = self.code_at.get(&symbol.section).filter(|_| symbol.section != 0);
                let to = match (relocation.kind, local) {
                    // A section symbol (3) is its beginning: the call says the rest.
                    (CALL, Some(t)) if symbol.kind == 3 => {
                        Ref::Function((*t as i64 + i64::from(raw.imm) + 1) as usize)
                    }
                    (CALL, Some(t)) => Ref::Function(t + symbol.value / 8),
                    (CALL, None) => Ref::Kfunc(symbol.name.clone()),
                    _ => self.resolve(symbol, i64::from(raw.imm)),
                };
                refs.insert(at, to);
            }
        }
        for (at, raw) in code.iter().enumerate() {
            if raw.op == 0x85 && raw.src == 1 {
                let to = (at as i64 + 1 + i64::from(raw.imm)) as usize;
                refs.entry(at).or_insert(Ref::Function(to));
            }
        }
        Ok(refs)
    }

    /// Entries of `values` of a map of maps.
    fn inner_maps(&self, mut maps: Vec<MapDef>) -> Vec<MapDef> {
        let Some(section) = self.maps_section else { return maps };
        for relocation in &self.elf.sections[section].relocations {
            let owner = self.map_at.range(..=relocation.at).next_back();
            let symbol = &self.elf.symbols[relocation.symbol];
            let inner = self.map_at.get(&symbol.value).filter(|_| symbol.section == section);
            if let (Some((_, map)), Some(inner)) = (owner, inner) {
                maps[*map].initial.push(*inner);
            }
        }
        maps
    }

    fn struct_ops(&self, code: usize) -> Vec<Ops> {
        let mut all = Vec::new();
        for (index, section) in self.elf.sections.iter().enumerate() {
            let variables = self.sections.get(&section.name);
            if !section.name.starts_with(".struct_ops") {
                continue;
            }
            for variable in variables.into_iter().flatten() {
                let at = self.offset(index, variable);
                all.push(self.ops(section, variable, at, code));
            }
        }
        all
    }

    fn ops(&self, section: &Section, variable: &Variable, begin: usize, code: usize) -> Ops {
        let ty = self.btf.plain(variable.ty);
        let mut ops = Ops {
            name: variable.name.clone(),
            ty: self.btf.name(ty).to_owned(),
            calls: BTreeMap::new(),
            values: BTreeMap::new(),
            text: String::new(),
        };
        for member in self.btf.members(ty) {
            let at = begin.saturating_add(member.bit as usize / 8);
            let (name, size) = (self.btf.string(member.name), self.btf.size(member.ty) as usize);
            let bytes = section.data.get(at..at.saturating_add(size)).unwrap_or_default();
            if let Some(relocation) = section.relocations.iter().find(|one| one.at == at) {
                let add = bytes.get(..8).map_or(0, little) as i64;
                let symbol = &self.elf.symbols[relocation.symbol];
                if let Ref::Function(start) = self.resolve(symbol, add)
                    && start < code
                {
                    ops.calls.insert(name.to_owned(), start);
                }
            } else if size <= 8 {
                let value = little(bytes);
                if value != 0 {
                    ops.values.insert(name.to_owned(), value);
                }
            } else if name == "name" {
                ops.text = text(bytes, 0);
            }
        }
        ops
    }

    fn relocations(&self, ext: &[u8], into: &mut Vec<(usize, CoreRelo)>) -> Result<(), BpfError> {
        for (section, record) in core_relo::records(ext, 24, self.btf, 16)? {
            let Some(first) = self.code_of(&section) else { continue };
            let relo = CoreRelo {
                ty: record.u32(4)?,
                access: self.btf.string(record.u32(8)?).to_owned(),
                kind: record.u32(12)?,
            };
            into.push((first + record.u32(0)? as usize / 8, relo));
        }
        Ok(())
    }
}

/// Data to libbpf: maps of one value, and the globals of an arena.
fn is_data(section: &str) -> bool {
    [".data", ".bss", ".rodata", ".addr_space.1", ".arena"]
        .iter()
        .any(|name| section.starts_with(name))
}
