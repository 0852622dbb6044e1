//! BTF: the types of an object, and of a kernel.

use crate::BpfError;
use crate::bytes::Bytes;
use std::collections::BTreeMap;

/// How far typedefs and qualifiers are followed: a chain of more is a circle in a damaged file.
const CHAIN: usize = 64;
/// Members looked at in one search by name, so that nested anonymous structs of a damaged file end.
const SEARCH: u32 = 100_000;

/// A member of a struct or union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name (offset of a string); 0: anonymous.
    pub name: u32,
    /// Type.
    pub ty: u32,
    /// Offset in bits.
    pub bit: u32,
    /// Width of a bit field, else 0.
    pub bits: u32,
}

/// What a type is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `void`, and what is out of range.
    Void,
    /// An integer: bytes, and whether it has a sign.
    Int(u32, bool),
    /// A pointer.
    Ptr(u32),
    /// Elements of a type, and how many.
    Array(u32, u32),
    /// Bytes, and members.
    Struct(u32, Vec<Member>),
    /// Bytes, and members.
    Union(u32, Vec<Member>),
    /// Bytes, and names with values.
    Enum(u32, Vec<(u32, i64)>),
    /// Declared only.
    Forward,
    /// Another name.
    Typedef(u32),
    /// `const`, `volatile`, `restrict`, type tags.
    Qualified(u32),
    /// A function, with its prototype.
    Func(u32),
    /// Result and arguments (name, type).
    Proto(u32, Vec<(u32, u32)>),
    /// A variable.
    Var(u32),
    /// Variables of a section: variable, offset, bytes.
    DataSec(Vec<(u32, u32, u32)>),
    /// A floating-point number of so many bytes.
    Float(u32),
    /// A tag of a declaration.
    Tag,
}

/// A type with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    /// Name (offset of a string); 0: none.
    pub name: u32,
    /// What it is.
    pub kind: Kind,
}

/// A field that was found: offset and width in bits, and its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Offset in bits.
    pub bit: u32,
    /// Width of a bit field, else 0.
    pub bits: u32,
    /// Type.
    pub ty: u32,
}

/// Values of enumerators by name.
pub type Enumerators = BTreeMap<String, i64>;

/// Type information.
#[derive(Debug, Clone)]
pub struct Btf {
    types: Vec<Type>,
    strings: Vec<u8>,
    by_name: BTreeMap<String, Vec<u32>>,
}

/// Returns the name without its flavour: what is before the last `___` that has a character on both
/// sides (libbpf's rule).
pub fn essential(name: &str) -> &str {
    let bytes = name.as_bytes();
    let flavour = (0..bytes.len().saturating_sub(4))
        .rev()
        .find(|&at| bytes[at] != b'_' && &bytes[at + 1..at + 4] == b"___" && bytes[at + 4] != b'_');
    flavour.and_then(|at| name.get(..=at)).unwrap_or(name)
}

impl Btf {
    /// Reads the content of a `.BTF` section, or of /sys/kernel/btf/vmlinux.
    ///
    /// # Errors
    /// The bytes are no BTF, or damaged.
    pub fn parse(bytes: &[u8]) -> Result<Btf, BpfError> {
        let all = Bytes::new("the type information (BTF)", bytes);
        if all.u16(0)? != 0xeb9f {
            return Err(BpfError::damaged(all.part, "it does not begin with 0xeb9f"));
        }
        let head = all.u32(4)? as usize;
        let at = |field: usize| Ok::<_, BpfError>(all.u32(field)? as usize);
        let types = all.part(head.saturating_add(at(8)?), at(12)?)?;
        let strings = all.part(head.saturating_add(at(16)?), at(20)?)?.all.to_vec();
        let mut btf = Btf { types: Vec::new(), strings, by_name: BTreeMap::new() };
        btf.types.push(Type { name: 0, kind: Kind::Void });
        let mut at = 0;
        while at < types.all.len() {
            let (ty, next) = one(types, at)?;
            btf.types.push(ty);
            at = next;
        }
        for (id, ty) in btf.types.iter().enumerate().filter(|(_, ty)| ty.name != 0) {
            let name = essential(string(&btf.strings, ty.name)).to_owned();
            btf.by_name.entry(name).or_default().push(id as u32);
        }
        Ok(btf)
    }

    /// Reads type information as a file holds it: by itself (/sys/kernel/btf/vmlinux), or in an ELF
    /// file (vmlinux, an object).
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn of_file(file: &[u8]) -> Result<Btf, BpfError> {
        if !file.starts_with(b"\x7fELF") {
            return Btf::parse(file);
        }
        let elf = crate::elf::Elf::with_sections(file)?;
        let section = elf.sections.iter().find(|section| section.name == ".BTF");
        let section = section.ok_or(BpfError::Missing {
            part: "type information (.BTF)",
            how: "take a kernel that was built with CONFIG_DEBUG_INFO_BTF, or \
                  /sys/kernel/btf/vmlinux of a machine that runs it",
        })?;
        Btf::parse(&section.data)
    }

    /// All types; the first is `void`.
    pub fn types(&self) -> &[Type] {
        &self.types
    }
    /// A string by its offset.
    pub fn string(&self, at: u32) -> &str {
        string(&self.strings, at)
    }
    /// The name of a type.
    pub fn name(&self, id: u32) -> &str {
        self.types.get(id as usize).map_or("", |ty| self.string(ty.name))
    }
    /// What a type is.
    pub fn kind(&self, id: u32) -> &Kind {
        self.types.get(id as usize).map_or(&Kind::Void, |ty| &ty.kind)
    }
    /// Types with this essential name.
    pub fn named(&self, essential: &str) -> &[u32] {
        self.by_name.get(essential).map_or(&[], |ids| ids)
    }
    /// The type behind typedefs and qualifiers.
    pub fn plain(&self, mut id: u32) -> u32 {
        for _ in 0..CHAIN {
            match self.kind(id) {
                Kind::Typedef(to) | Kind::Qualified(to) => id = *to,
                _ => return id,
            }
        }
        0
    }
    /// What the type behind typedefs and qualifiers is.
    pub fn plain_kind(&self, id: u32) -> &Kind {
        self.kind(self.plain(id))
    }
    /// Bytes of a type.
    pub fn size(&self, id: u32) -> u32 {
        self.size_within(id, CHAIN)
    }
    fn size_within(&self, id: u32, depth: usize) -> u32 {
        let Some(depth) = depth.checked_sub(1) else { return 0 };
        match self.plain_kind(id) {
            Kind::Int(size, _)
            | Kind::Struct(size, _)
            | Kind::Union(size, _)
            | Kind::Enum(size, _)
            | Kind::Float(size) => *size,
            Kind::Ptr(_) => 8,
            Kind::Array(of, n) => self.size_within(*of, depth).saturating_mul(*n),
            Kind::Var(of) => self.size_within(*of, depth),
            _ => 0,
        }
    }
    /// The first type of exactly this name that `is`.
    pub fn find(&self, name: &str, is: impl Fn(&Kind) -> bool) -> Option<u32> {
        let ids = self.named(essential(name)).iter().copied();
        ids.into_iter().find(|&id| is(self.kind(id)) && self.name(id) == name)
    }
    /// A struct by name.
    pub fn structure(&self, name: &str) -> Option<u32> {
        self.find(name, |kind| matches!(kind, Kind::Struct(..)))
    }
    /// A function by name.
    pub fn function(&self, name: &str) -> Option<u32> {
        self.find(name, |kind| matches!(kind, Kind::Func(_)))
    }
    /// How many arguments a function has.
    pub fn arguments(&self, function: u32) -> usize {
        match self.kind(function) {
            Kind::Func(proto) => match self.kind(*proto) {
                Kind::Proto(_, arguments) => arguments.len(),
                _ => 0,
            },
            _ => 0,
        }
    }
    /// Members of a struct or union.
    pub fn members(&self, id: u32) -> &[Member] {
        match self.plain_kind(id) {
            Kind::Struct(_, members) | Kind::Union(_, members) => members,
            _ => &[],
        }
    }
    /// Every enumerator by name; of equal names the last.
    pub fn enumerators(&self) -> Enumerators {
        let values = self.types.iter().filter_map(|ty| match &ty.kind {
            Kind::Enum(_, values) => Some(values),
            _ => None,
        });
        values.flatten().map(|(name, value)| (self.string(*name).to_owned(), *value)).collect()
    }
    /// Finds a member by name, through anonymous members.
    pub fn member(&self, id: u32, name: &str) -> Option<Field> {
        self.member_within(id, name, &mut SEARCH.clone())
    }
    fn member_within(&self, id: u32, name: &str, left: &mut u32) -> Option<Field> {
        for member in self.members(id) {
            *left = left.checked_sub(1)?;
            if member.name != 0 {
                if self.string(member.name) == name {
                    return Some(Field { bit: member.bit, bits: member.bits, ty: member.ty });
                }
            } else if let Some(inner) = self.member_within(member.ty, name, left) {
                return Some(Field { bit: inner.bit.wrapping_add(member.bit), ..inner });
            }
        }
        None
    }
    /// Byte offset and size of `a.b.c` in a struct.
    pub fn field(&self, structure: &str, path: &str) -> Option<(usize, usize)> {
        let (mut id, mut bit) = (self.structure(structure)?, 0u32);
        for part in path.split('.') {
            let field = self.member(id, part)?;
            bit = bit.checked_add(field.bit)?;
            id = field.ty;
        }
        Some((bit as usize / 8, self.size(id) as usize))
    }
}

fn string(strings: &[u8], at: u32) -> &str {
    let rest = strings.get(at as usize..).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end]).unwrap_or("?")
}

/// Reads the type at `at`, and says where the next one is.
fn one(types: Bytes<'_>, at: usize) -> Result<(Type, usize), BpfError> {
    let (name, info, x) = (types.u32(at)?, types.u32(at + 4)?, types.u32(at + 8)?);
    let (kind, n, flag) = (info >> 24 & 31, (info & 0xffff) as usize, info >> 31 == 1);
    let at = at + 12;
    let words = match kind {
        1 | 14 | 17 => 1,
        3 => 3,
        4 | 5 | 15 | 19 => 3 * n,
        6 | 13 => 2 * n,
        2 | 7..=12 | 16 | 18 => 0,
        other => return Err(BpfError::damaged(types.part, format!("unknown kind {other}"))),
    };
    let rest = types.part(at, 4 * words)?;
    let word = |i: usize| rest.u32(4 * i).unwrap_or(0);
    let three = |i: usize| (word(3 * i), word(3 * i + 1), word(3 * i + 2));
    let member = |i: usize| {
        let (name, ty, offset) = three(i);
        let (bit, bits) = if flag { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) };
        Member { name, ty, bit, bits }
    };
    let signed = |value: u32| if flag { i64::from(value as i32) } else { i64::from(value) };
    let kind = match kind {
        1 => Kind::Int(x, word(0) >> 24 & 1 == 1),
        2 => Kind::Ptr(x),
        3 => Kind::Array(word(0), word(2)),
        4 => Kind::Struct(x, (0..n).map(member).collect()),
        5 => Kind::Union(x, (0..n).map(member).collect()),
        6 => Kind::Enum(x, (0..n).map(|i| (word(2 * i), signed(word(2 * i + 1)))).collect()),
        7 => Kind::Forward,
        8 => Kind::Typedef(x),
        12 => Kind::Func(x),
        13 => Kind::Proto(x, (0..n).map(|i| (word(2 * i), word(2 * i + 1))).collect()),
        14 => Kind::Var(x),
        15 => Kind::DataSec((0..n).map(three).collect()),
        16 => Kind::Float(x),
        17 => Kind::Tag,
        19 => {
            let wide = |(name, low, high)| (name, (u64::from(low) | u64::from(high) << 32) as i64);
            Kind::Enum(x, (0..n).map(|i| wide(three(i))).collect())
        }
        _ => Kind::Qualified(x),
    };
    Ok((Type { name, kind }, at + 4 * words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavours_are_cut_at_the_last_mark_with_a_character_on_both_sides() {
        let pairs = [
            ("scx_bpf_dsq_insert___v2___compat", "scx_bpf_dsq_insert___v2"),
            ("task_struct___old", "task_struct"),
            ("task_struct", "task_struct"),
            ("___x", "___x"),
            ("x___", "x___"),
            ("a____b", "a____b"),
            ("é___x", "é"),
        ];
        pairs.iter().for_each(|(name, short)| assert_eq!(essential(name), *short, "{name}"));
    }
}
