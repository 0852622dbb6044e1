//! CO-RE: what an instruction says about a type of the object, said about the kernel's type.

use crate::bytes::Bytes;
use crate::{BpfError, Btf, Field, Kind, essential};

/// A relocation of an instruction to the types of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreRelo {
    /// Type of the object.
    pub ty: u32,
    /// Which member of it, such as `0:3:1`.
    pub access: String,
    /// What is asked: 0 to 12 (`enum bpf_core_relo_kind`).
    pub kind: u32,
}

/// What it comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Value(u64),
    /// A byte offset, and how many bytes an access there has.
    Offset(u32, u32),
    /// The kernel has no such thing.
    Missing,
}

/// One step into a type: a member by name, or an element by number.
enum Step {
    Member(String),
    Element(u32),
}

/// Reads records of `.BTF.ext`: section, offset of the instruction in bytes, record.
pub(crate) fn records<'a>(
    ext: &'a [u8],
    table: usize,
    btf: &Btf,
    smallest: usize,
) -> Result<Vec<(String, Bytes<'a>)>, BpfError> {
    let all = Bytes::new("the section .BTF.ext", ext);
    let head = all.u32(4)? as usize;
    let mut found = Vec::new();
    if head < table + 8 {
        return Ok(found);
    }
    let at = head.saturating_add(all.u32(table)? as usize);
    let data = all.part(at, all.u32(table + 4)? as usize)?;
    if data.all.is_empty() {
        return Ok(found);
    }
    let size = data.u32(0)? as usize;
    if size < smallest {
        return Err(BpfError::damaged(all.part, format!("its records have {size} bytes")));
    }
    let mut at = 4;
    while at < data.all.len() {
        let (section, n) = (btf.string(data.u32(at)?).to_owned(), data.u32(at + 4)? as usize);
        at += 8;
        for _ in 0..n {
            found.push((section.clone(), data.part(at, size)?));
            at += size;
        }
    }
    Ok(found)
}

/// The path of a field relocation in words, and its steps.
fn path(btf: &Btf, relo: &CoreRelo) -> Option<(String, Vec<Step>)> {
    let mut numbers = relo.access.split(':').map(|part| part.parse::<u32>().ok());
    let first = numbers.next()??;
    let mut id = btf.plain(relo.ty);
    let (mut words, mut steps) = (btf.name(id).to_owned(), Vec::new());
    if first != 0 {
        steps.push(Step::Element(first));
    }
    for number in numbers {
        let number = number?;
        id = btf.plain(id);
        match btf.kind(id) {
            Kind::Struct(_, members) | Kind::Union(_, members) => {
                let member = members.get(number as usize)?;
                if member.name != 0 {
                    let name = btf.string(member.name);
                    words = format!("{words}.{name}");
                    steps.push(Step::Member(name.to_owned()));
                }
                id = member.ty;
            }
            Kind::Array(of, _) => {
                words = format!("{words}[{number}]");
                steps.push(Step::Element(number));
                id = *of;
            }
            _ => return None,
        }
    }
    Some((words, steps))
}

/// What a relocation is about, for messages: `task_struct.scx.slice`.
pub(crate) fn words(btf: &Btf, relo: &CoreRelo) -> String {
    match relo.kind {
        0..=5 => path(btf, relo).map_or_else(|| btf.name(relo.ty).to_owned(), |path| path.0),
        _ => btf.name(relo.ty).to_owned(),
    }
}

fn follow(kernel: &Btf, root: u32, steps: &[Step]) -> Option<Field> {
    let mut at = Field { bit: 0, bits: 0, ty: root };
    for (n, step) in steps.iter().enumerate() {
        let id = kernel.plain(at.ty);
        let add = match step {
            Step::Member(name) => kernel.member(id, name)?,
            Step::Element(i) => {
                let of = match kernel.kind(id) {
                    Kind::Array(of, _) => *of,
                    _ if n == 0 => id,
                    _ => return None,
                };
                let bit = kernel.size(of).checked_mul(*i)?.checked_mul(8)?;
                Field { bit, bits: 0, ty: of }
            }
        };
        at = Field { bit: at.bit.checked_add(add.bit)?, ..add };
    }
    Some(Field { ty: kernel.plain(at.ty), ..at })
}

fn field(kernel: &Btf, field: Field, kind: u32) -> Outcome {
    let (bit, bits) = (u64::from(field.bit), u64::from(field.bits));
    let mut size = u64::from(kernel.size(field.ty).max(1));
    let mut byte = bit / 8;
    if bits != 0 {
        byte = byte / size * size;
        while bit + bits > (byte + size) * 8 && size < 8 {
            size *= 2;
            byte = bit / 8 / size * size;
        }
    }
    let width = if bits != 0 { bits } else { size * 8 };
    match kind {
        0 => Outcome::Offset(byte as u32, size as u32),
        1 => Outcome::Value(size),
        2 => Outcome::Value(1),
        3 => Outcome::Value(u64::from(matches!(kernel.kind(field.ty), Kind::Int(_, true)))),
        4 => Outcome::Value(64u64.saturating_sub(bit - byte * 8 + width)),
        _ => Outcome::Value(64u64.saturating_sub(width)),
    }
}

/// What an instruction gets for a kernel.
pub(crate) fn relocate(object: &Btf, kernel: &Btf, relo: &CoreRelo) -> Outcome {
    let own = object.plain_kind(relo.ty);
    let same =
        |id: &u32| std::mem::discriminant(kernel.plain_kind(*id)) == std::mem::discriminant(own);
    let candidates = kernel.named(essential(object.name(relo.ty))).iter().copied();
    let candidates: Vec<u32> = candidates.filter(same).collect();
    let or_zero = |found: bool| Outcome::Value(u64::from(found));
    match relo.kind {
        0..=5 => {
            let Some((_, steps)) = path(object, relo) else { return Outcome::Missing };
            let found = candidates.iter().find_map(|id| follow(kernel, *id, &steps));
            match found {
                Some(found) => field(kernel, found, relo.kind),
                None if relo.kind == 2 => Outcome::Value(0),
                None => Outcome::Missing,
            }
        }
        6 => Outcome::Value(u64::from(relo.ty)),
        7 => candidates.first().map_or(Outcome::Missing, |id| Outcome::Value(u64::from(*id))),
        8 | 12 => or_zero(!candidates.is_empty()),
        9 => candidates
            .first()
            .map_or(Outcome::Missing, |id| Outcome::Value(u64::from(kernel.size(*id)))),
        10 | 11 => match (enumerator(object, kernel, own, relo, &candidates), relo.kind) {
            (found, 10) => or_zero(found.is_some()),
            (Some(value), _) => Outcome::Value(value as u64),
            (None, _) => Outcome::Missing,
        },
        _ => Outcome::Missing,
    }
}

fn enumerator(
    object: &Btf,
    kernel: &Btf,
    own: &Kind,
    relo: &CoreRelo,
    candidates: &[u32],
) -> Option<i64> {
    let Kind::Enum(_, values) = own else { return None };
    let index: usize = relo.access.parse().ok()?;
    let wanted = essential(object.string(values.get(index)?.0));
    candidates.iter().find_map(|id| match kernel.plain_kind(*id) {
        Kind::Enum(_, values) => values
            .iter()
            .find(|(name, _)| essential(kernel.string(*name)) == wanted)
            .map(|(_, value)| *value),
        _ => None,
    })
}
