//! What a callback can reach: kernel functions and helpers, followed through calls.

use crate::{Object, Ref};
use std::collections::BTreeSet;

/// What can be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reached {
    /// Kernel functions, as the object names them, with the first instruction of each.
    pub kfuncs: BTreeSet<String>,
    /// Helpers.
    pub helpers: BTreeSet<i32>,
    /// Instructions.
    pub instructions: BTreeSet<usize>,
}

/// Follows the code from `entry`. `present`: whether the kernel has a function. A branch that asks
/// whether an absent function is there is not followed, as the kernel's verifier does not.
pub fn reached(object: &Object, entry: usize, present: impl Fn(&str) -> bool) -> Reached {
    let mut found = Reached::default();
    let mut open = vec![entry];
    while let Some(at) = open.pop() {
        let Some(raw) = object.code.get(at) else { continue };
        if !found.instructions.insert(at) {
            continue;
        }
        let jump = |step: i64| (at as i64 + 1 + step) as usize;
        if let Some(Ref::Function(to)) = object.refs.get(&at) {
            open.push(*to);
        }
        match raw.op {
            0x18 => {
                let known = match object.refs.get(&at) {
                    Some(Ref::KfuncAddress(name)) => Some(u64::from(present(name))),
                    _ => None,
                };
                open.push(
                    known
                        .and_then(|known| decided(object, at + 2, raw.dst, known))
                        .unwrap_or(at + 2),
                );
            }
            0x85 => {
                match object.refs.get(&at) {
                    Some(Ref::Kfunc(name)) => {
                        found.kfuncs.insert(name.clone());
                    }
                    None if raw.src == 0 => {
                        found.helpers.insert(raw.imm);
                    }
                    _ => {}
                }
                open.push(at + 1);
            }
            0x95 => {}
            0x05 => open.push(jump(i64::from(raw.off))),
            0x06 => open.push(jump(i64::from(raw.imm))),
            op if matches!(op & 7, 5 | 6) => {
                open.push(jump(i64::from(raw.off)));
                open.push(at + 1);
            }
            _ => open.push(at + 1),
        }
    }
    found
}

/// Where a comparison of `register`, which is 0 or an address, with 0 goes.
fn decided(object: &Object, at: usize, register: u8, known: u64) -> Option<usize> {
    let raw = object.code.get(at)?;
    let to = (at as i64 + 1 + i64::from(raw.off)) as usize;
    match (raw.op, raw.imm) {
        _ if raw.dst != register => None,
        (0x15, 0) => Some(if known == 0 { to } else { at + 1 }),
        (0x55, 0) => Some(if known != 0 { to } else { at + 1 }),
        _ => None,
    }
}
