//! Instructions, checked and decoded once: eBPF v1 to v4.

use crate::{BpfError, Raw};
use std::collections::BTreeMap;

/// What an instruction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 64-bit arithmetic.
    Alu64,
    /// 32-bit arithmetic.
    Alu32,
    /// Byte order: to little endian, and to big endian or reversed.
    ToLittle,
    /// See above.
    Swap,
    /// A number of 64 bits, in two slots.
    Number,
    /// Load; of `size` bytes.
    Load,
    /// Load with sign.
    LoadSigned,
    /// Store of a register or number.
    Store,
    /// Atomic operation.
    Atomic,
    /// Jump, comparing 64 bits.
    Jump64,
    /// Jump, comparing 32 bits.
    Jump32,
    /// Jump always.
    Goto,
    /// Jump when the loop has gone on for too long.
    MayGoto,
    /// Call of an instruction of the same object.
    Local,
    /// Call of a kernel function.
    Kfunc,
    /// Call of a helper.
    Helper,
    /// Return.
    Exit,
    /// A pointer of an arena, to the kernel's side.
    CastKernel,
    /// A pointer of an arena, to the user's side.
    CastUser,
    /// Asks for what the kernel lacks; `imm` is the number of the text.
    Poisoned,
    /// The second slot of a number.
    Slot,
}

/// A decoded instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insn {
    /// What it does.
    pub kind: Kind,
    /// Operation of arithmetic and jumps (upper four bits).
    pub code: u8,
    /// Bytes of a load or store.
    pub size: u8,
    /// The second operand is a register.
    pub by_register: bool,
    /// Destination register.
    pub dst: u8,
    /// Source register.
    pub src: u8,
    /// Offset: of memory in bytes, of a jump the target instruction.
    pub off: i32,
    /// Number, or what is called.
    pub imm: i64,
}

/// Decodes all instructions; jumps point to instructions that are there.
pub(crate) fn decode(code: &[Raw]) -> Result<Vec<Insn>, BpfError> {
    let mut out = Vec::with_capacity(code.len());
    while let Some(raw) = code.get(out.len()) {
        let at = out.len();
        let insn = one(code, at, *raw)?;
        out.push(insn);
        if insn.kind == Kind::Number {
            out.push(Insn { kind: Kind::Slot, ..insn });
        }
    }
    Ok(out)
}

fn one(code: &[Raw], at: usize, raw: Raw) -> Result<Insn, BpfError> {
    let wrong =
        |what: &str| BpfError::Refused(format!("instruction {at} (opcode {:#04x}) {what}", raw.op));
    if raw.dst > 10 || raw.src > 10 {
        return Err(wrong("names a register that is not there"));
    }
    let mut insn = Insn {
        kind: Kind::Exit,
        code: raw.op >> 4,
        size: [4, 2, 1, 8][usize::from(raw.op >> 3 & 3)],
        by_register: raw.op & 8 != 0,
        dst: raw.dst,
        src: raw.src,
        off: i32::from(raw.off),
        imm: i64::from(raw.imm),
    };
    insn.kind = match (raw.op & 7, raw.op & 0xe0) {
        (4 | 7, _) => arithmetic(&mut insn, raw).ok_or_else(|| wrong("is of no known version"))?,
        (0, _) if raw.op == 0x18 => {
            let second = code.get(at + 1).ok_or_else(|| wrong("has no second half"))?;
            insn.imm = (u64::from(raw.imm as u32) | u64::from(second.imm as u32) << 32) as i64;
            Kind::Number
        }
        (1, 0x60) => Kind::Load,
        (1, 0x80) => Kind::LoadSigned,
        (2, 0x60) => {
            insn.by_register = false;
            Kind::Store
        }
        (3, 0x60) => {
            insn.by_register = true;
            Kind::Store
        }
        (3, 0xc0) => Kind::Atomic,
        (5 | 6, _) => jump(&mut insn, raw).ok_or_else(|| wrong("is of no known version"))?,
        _ => return Err(wrong("is of no known version")),
    };
    if matches!(insn.kind, Kind::Jump64 | Kind::Jump32 | Kind::Goto | Kind::MayGoto) {
        let step = if raw.op == 0x06 { insn.imm } else { i64::from(insn.off) };
        let to = at as i64 + 1 + step;
        if to < 0 || to >= code.len() as i64 {
            return Err(wrong("jumps to an instruction that is not there"));
        }
        insn.off = to as i32;
    }
    Ok(insn)
}

fn arithmetic(insn: &mut Insn, raw: Raw) -> Option<Kind> {
    let wide = raw.op & 7 == 7;
    let plain = if wide { Kind::Alu64 } else { Kind::Alu32 };
    match insn.code {
        0xd if wide => Some(Kind::Swap),
        0xd if insn.by_register => Some(Kind::Swap),
        0xd => Some(Kind::ToLittle),
        0xb if wide && insn.by_register && raw.off == 1 => {
            Some(if raw.imm == 1 { Kind::CastKernel } else { Kind::CastUser })
        }
        0xb => matches!(raw.off, 0 | 8 | 16 | 32).then_some(plain),
        3 | 9 => matches!(raw.off, 0 | 1).then_some(plain),
        0..=0xc => (raw.off == 0).then_some(plain),
        _ => None,
    }
}

fn jump(insn: &mut Insn, raw: Raw) -> Option<Kind> {
    Some(match raw.op {
        0x05 | 0x06 => Kind::Goto,
        0xe5 => Kind::MayGoto,
        0x85 => match raw.src {
            0 | 2 => Kind::Helper,
            1 => Kind::Local,
            _ => return None,
        },
        0x95 => Kind::Exit,
        _ if matches!(insn.code, 0 | 8 | 9 | 0xe | 0xf) => return None,
        _ if raw.op & 7 == 5 => Kind::Jump64,
        _ => Kind::Jump32,
    })
}

/// Texts of what poisoned instructions ask for.
pub(crate) type Poison = BTreeMap<usize, String>;
