//! The parts of ELF64 that a BPF object needs: sections, symbols, relocations without addend.

use crate::BpfError;
use crate::bytes::{Bytes, text};

/// Greatest size of a section that has no bytes in the file (`.bss`): 256 MiB, so that a damaged
/// file cannot ask for more memory than it could be worth.
const LARGEST_ZEROES: usize = 256 << 20;
// By the System V ABI (gabi, chapter 4) and its list of machines.
/// EM_BPF.
const BPF: u16 = 247;
/// SHF_EXECINSTR.
const EXECUTABLE: u64 = 4;
/// SHT_SYMTAB.
const SYMBOLS: u32 = 2;
/// SHT_NOBITS.
const ZEROES: u32 = 8;
/// SHT_REL.
const RELOCATIONS: u32 = 9;

#[derive(Debug, Clone, Default)]
pub(crate) struct Section {
    pub(crate) name: String,
    flags: u64,
    kind: u32,
    link: usize,
    info: usize,
    pub(crate) data: Vec<u8>,
    pub(crate) relocations: Vec<Relocation>,
}

impl Section {
    pub(crate) fn is_code(&self) -> bool {
        self.flags & EXECUTABLE != 0 && !self.data.is_empty()
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Relocation {
    pub(crate) at: usize,
    pub(crate) symbol: usize,
    pub(crate) kind: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) value: usize,
    pub(crate) size: usize,
    pub(crate) kind: u8,
    pub(crate) section: usize,
}

impl Symbol {
    /// It is another object's, or the kernel's.
    pub(crate) fn is_undefined(&self) -> bool {
        self.section == 0 || self.section >= 0xff00
    }
}

#[derive(Default, Debug)]
pub(crate) struct Elf {
    pub(crate) sections: Vec<Section>,
    pub(crate) symbols: Vec<Symbol>,
}

impl Elf {
    pub(crate) fn parse(file: &[u8]) -> Result<Elf, BpfError> {
        let all = Bytes::new("the ELF file", file);
        Elf::begins(file)?;
        if all.u16(18)? != BPF {
            return Err(BpfError::NotBpf("it is an ELF file of another machine than BPF"));
        }
        let mut elf = Elf::with_sections(file)?;
        elf.read_symbols()?;
        elf.read_relocations()?;
        Ok(elf)
    }

    fn begins(file: &[u8]) -> Result<(), BpfError> {
        Err(BpfError::NotBpf(match file.get(..6) {
            None => "it is shorter than an ELF header",
            Some(head) if &head[..4] != b"\x7fELF" => "it does not begin as an ELF file does",
            Some(head) if head[4..] != [2, 1] => "it is not a little-endian ELF file of 64 bits",
            Some(_) => return Ok(()),
        }))
    }

    /// The sections of an ELF file of any machine.
    pub(crate) fn with_sections(file: &[u8]) -> Result<Elf, BpfError> {
        let all = Bytes::new("the ELF file", file);
        Elf::begins(file)?;
        let mut elf = Elf::default();
        let (table, count) = (all.size(0x28)?, usize::from(all.u16(0x3c)?));
        for index in 0..count {
            let head = all.part(table.saturating_add(index * 64), 64)?;
            elf.sections.push(section(all, head)?);
        }
        elf.name_sections(all, table)?;
        Ok(elf)
    }

    fn name_sections(&mut self, all: Bytes<'_>, table: usize) -> Result<(), BpfError> {
        let names = self.bytes_of(usize::from(all.u16(0x3e)?));
        for (index, section) in self.sections.iter_mut().enumerate() {
            section.name = text(&names, all.u32(table + index * 64)? as usize);
        }
        Ok(())
    }

    fn bytes_of(&self, section: usize) -> Vec<u8> {
        self.sections.get(section).map(|section| section.data.clone()).unwrap_or_default()
    }

    fn read_symbols(&mut self) -> Result<(), BpfError> {
        let Some(table) = self.sections.iter().find(|section| section.kind == SYMBOLS) else {
            return Ok(());
        };
        let strings = self.bytes_of(table.link);
        for entry in table.data.chunks_exact(24) {
            let entry = Bytes::new("the symbol table", entry);
            self.symbols.push(Symbol {
                name: text(&strings, entry.u32(0)? as usize),
                kind: entry.all[4] & 15,
                section: usize::from(entry.u16(6)?),
                value: entry.size(8)?,
                size: entry.size(16)?,
            });
        }
        Ok(())
    }

    fn read_relocations(&mut self) -> Result<(), BpfError> {
        for index in 0..self.sections.len() {
            if self.sections[index].kind != RELOCATIONS {
                continue;
            }
            let (to, data) = (self.sections[index].info, self.sections[index].data.clone());
            let symbols = self.symbols.len();
            let Some(target) = self.sections.get_mut(to) else { continue };
            for entry in data.chunks_exact(16) {
                let entry = Bytes::new("a relocation table", entry);
                let one = Relocation {
                    at: entry.size(0)?,
                    kind: entry.u32(8)?,
                    symbol: entry.u32(12)? as usize,
                };
                if one.symbol >= symbols || one.at >= target.data.len() {
                    let what = format!("an entry for {} points outside", target.name);
                    return Err(BpfError::damaged("a relocation table", what));
                }
                target.relocations.push(one);
            }
        }
        Ok(())
    }
}

fn section(all: Bytes<'_>, head: Bytes<'_>) -> Result<Section, BpfError> {
    let (kind, at, size) = (head.u32(4)?, head.size(0x18)?, head.size(0x20)?);
    let data = match kind {
        0 => Vec::new(),
        ZEROES if size > LARGEST_ZEROES => {
            let what = format!("a section without content asks for {size} bytes");
            return Err(BpfError::damaged("the ELF file", what));
        }
        ZEROES => vec![0; size],
        _ => all.take(at, size)?.to_vec(),
    };
    Ok(Section {
        name: String::new(),
        flags: head.u64(8)?,
        kind,
        link: head.u32(0x28)? as usize,
        info: head.u32(0x2c)? as usize,
        data,
        relocations: Vec::new(),
    })
}
