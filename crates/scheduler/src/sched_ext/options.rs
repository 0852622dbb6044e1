//! Variables of an object that its user half sets before it loads: enumerators of the kernel by
//! themselves, the others as options.

use schedlab_bpf::{Btf, DataSection, Kind, Object, Variable};
use schedlab_model::Ns;
use schedlab_model::text::nearest;

/// A variable that can be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BpfOption {
    /// Name, as `?name=value` takes it.
    pub name: String,
    /// Section, such as `.rodata`.
    pub section: String,
    /// Its type in words, such as `u64` or `u32[8]`.
    pub ty: String,
    /// Its value in the object; `None`: it is an array or a struct.
    pub default: Option<i128>,
}

/// Members of `struct sched_ext_ops` that are numbers and can be set as `ops.NAME`.
const OF_OPS: [&str; 5] =
    ["flags", "timeout_ms", "dispatch_max_batch", "exit_dump_len", "hotplug_seq"];

fn is_settable(section: &DataSection) -> bool {
    [".rodata", ".data", ".bss"].iter().any(|name| section.name.starts_with(name))
        && !section.name.contains(".str")
}

/// Writes the kernel's enumerators into the variables that are called after them (`__SCX_…`).
pub(super) fn fill_enumerators(object: &mut Object, kernel: &Btf) {
    let values = kernel.enumerators();
    for section in &mut object.data {
        for variable in &section.variables {
            let value = variable.name.strip_prefix("__").and_then(|name| values.get(name));
            let end = variable.at + variable.size.min(8);
            if let (Some(value), Some(place)) = (value, section.data.get_mut(variable.at..end)) {
                let n = place.len();
                place.copy_from_slice(&value.to_le_bytes()[..n]);
            }
        }
    }
}

/// What depends on the machine: `nr_cpu_ids`, and arrays of one element in a section of their own
/// (`RESIZABLE_ARRAY` of scx), which get one for each CPU.
pub(super) fn fit_to_machine(object: &mut Object, cpus: usize) {
    let btf = object.btf.clone();
    for section in &mut object.data {
        let own = section.name.rsplit('.').next().unwrap_or_default().to_owned();
        for variable in &mut section.variables {
            if variable.name == "nr_cpu_ids" && variable.size == 4 {
                let value = (cpus as u32).to_le_bytes();
                section.data[variable.at..variable.at + 4].copy_from_slice(&value);
            }
            let one = matches!(btf.plain_kind(variable.ty), Kind::Array(_, 1));
            if one && variable.name == own {
                variable.size *= cpus;
                section.data.resize(variable.at + variable.size, 0);
            }
        }
    }
}

/// Every variable that can be set, and its value.
pub(super) fn list(object: &Object) -> Vec<BpfOption> {
    let mut all = Vec::new();
    for section in object.data.iter().filter(|section| is_settable(section)) {
        let shown = |variable: &&Variable| {
            !variable.name.starts_with('_')
                && !variable.name.contains('.')
                && !variable.name.ends_with("___fmt")
        };
        for variable in section.variables.iter().filter(shown) {
            let (ty, default) = describe(&object.btf, section, variable);
            // A struct or pointer that programs write is no option of a user.
            if default.is_none() && section.name != ".rodata" {
                continue;
            }
            let (name, section) = (variable.name.clone(), section.name.clone());
            all.push(BpfOption { name, section, ty, default });
        }
    }
    all
}

fn describe(btf: &Btf, section: &DataSection, variable: &Variable) -> (String, Option<i128>) {
    let number = scalar(btf, variable.ty).map(|(size, signed)| {
        let bytes = section.data.get(variable.at..variable.at + size).unwrap_or_default();
        read(bytes, signed)
    });
    (words(btf, variable.ty), number)
}

pub(super) fn read(bytes: &[u8], signed: bool) -> i128 {
    let value = bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    match signed {
        true => i128::from(((value << unused) as i64) >> unused),
        false => i128::from(value),
    }
}

/// Bytes of a number, and whether it has a sign.
pub(super) fn scalar(btf: &Btf, ty: u32) -> Option<(usize, bool)> {
    match btf.plain_kind(ty) {
        Kind::Int(size, signed) if *size <= 8 => Some((*size as usize, *signed)),
        Kind::Enum(size, values) if *size <= 8 => {
            Some((*size as usize, values.iter().any(|(_, value)| *value < 0)))
        }
        _ => None,
    }
}

fn words(btf: &Btf, ty: u32) -> String {
    match btf.plain_kind(ty) {
        Kind::Array(of, n) => format!("{}[{n}]", words(btf, *of)),
        Kind::Struct(..) => format!("struct {}", btf.name(btf.plain(ty))),
        Kind::Union(..) => "union".to_owned(),
        Kind::Ptr(_) => "pointer".to_owned(),
        Kind::Int(1, _) if btf.name(btf.plain(ty)) == "_Bool" => "bool".to_owned(),
        Kind::Int(size, signed) => format!("{}{}", if *signed { "s" } else { "u" }, 8 * size),
        Kind::Enum(..) => format!("enum {}", btf.name(btf.plain(ty))),
        _ => "?".to_owned(),
    }
}

/// Where an option lies.
struct Place {
    section: usize,
    at: usize,
    size: usize,
    signed: bool,
    switch: bool,
}

/// Finds an option.
fn find(object: &Object, name: &str) -> Result<Place, String> {
    let root: String = name.chars().take_while(|c| !matches!(c, '.' | '[')).collect();
    let place =
        object.data.iter().enumerate().filter(|(_, section)| is_settable(section)).find_map(
            |(number, section)| {
                let variable = section.variables.iter().find(|variable| variable.name == root)?;
                Some((number, variable.clone()))
            },
        );
    let Some((section, variable)) = place else { return Err(unknown(object, &root)) };
    let (offset, ty) = walk(&object.btf, variable.ty, &name[root.len()..])
        .ok_or_else(|| format!("option `{name}`: `{root}` has no such part"))?;
    let (size, signed) = scalar(&object.btf, ty).ok_or_else(|| {
        format!(
            "option `{name}` is of type {}: name one number of it, as in {root}[0] or \
             {root}.member",
            words(&object.btf, ty)
        )
    })?;
    let switch = words(&object.btf, ty) == "bool";
    Ok(Place { section, at: variable.at + offset, size, signed, switch })
}

/// Whether there is an option of this name.
///
/// # Errors
/// There is none, with what there is.
pub(super) fn check(object: &Object, name: &str) -> Result<(), String> {
    match name.strip_prefix("ops.") {
        Some(member) => of_ops(member),
        None => find(object, name).map(drop),
    }
}

/// Sets an option: `name`, `name[3]`, `name.member`, or `ops.flags`.
///
/// # Errors
/// No such variable, or a value that does not fit.
pub(super) fn set(object: &mut Object, name: &str, text: &str) -> Result<(), String> {
    if let Some(member) = name.strip_prefix("ops.") {
        return set_ops(object, member, text);
    }
    let Place { section, at, size, signed, switch } = find(object, name)?;
    let value = number(text).ok_or_else(|| {
        format!("option {name}={text}: write a number, true or false, or a time such as 5ms")
    })?;
    let bits = 8 * size as u32;
    let (low, high) = match signed {
        _ if switch => (0, 1),
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    };
    if value < low || value > high {
        return Err(format!("option {name}={text}: must be from {low} to {high}"));
    }
    let outside = || format!("option `{name}` lies outside its section");
    let bytes = object.data[section].data.get_mut(at..at + size).ok_or_else(outside)?;
    bytes.copy_from_slice(&value.to_le_bytes()[..size]);
    Ok(())
}

fn unknown(object: &Object, root: &str) -> String {
    let all = list(object);
    let near = nearest(root, all.iter().map(|option| option.name.as_str()));
    let near = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
    let names: Vec<&str> = all.iter().map(|option| option.name.as_str()).take(12).collect();
    format!(
        "it has no option `{root}`{near}; it has {}{} (`schedlab bpf inspect` shows all)",
        if names.is_empty() { "none".to_owned() } else { names.join(", ") },
        if all.len() > 12 { ", …" } else { "" }
    )
}

fn of_ops(member: &str) -> Result<(), String> {
    match OF_OPS.contains(&member) {
        true => Ok(()),
        false => Err(format!("`ops.{member}` cannot be set; of ops can: {}", OF_OPS.join(", "))),
    }
}

fn set_ops(object: &mut Object, member: &str, text: &str) -> Result<(), String> {
    of_ops(member)?;
    let value = number(text).and_then(|value| u64::try_from(value).ok());
    let value = value.ok_or_else(|| format!("ops.{member}={text}: must be a whole number"))?;
    for ops in &mut object.ops {
        ops.values.insert(member.to_owned(), value);
    }
    Ok(())
}

/// Follows `[3].member` from a type: offset in bytes, and the type there.
pub(super) fn walk(btf: &Btf, mut ty: u32, path: &str) -> Option<(usize, u32)> {
    let (mut offset, mut rest) = (0, path);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (index, after) = inner.split_once(']')?;
            let index: usize = index.parse().ok()?;
            let Kind::Array(of, n) = btf.plain_kind(ty) else { return None };
            if index >= *n as usize {
                return None;
            }
            offset += index * btf.size(*of) as usize;
            (ty, rest) = (*of, after);
        } else {
            let inner = rest.strip_prefix('.')?;
            let end = inner.find(['.', '[']).unwrap_or(inner.len());
            let field = btf.member(ty, &inner[..end])?;
            if field.bits != 0 {
                return None;
            }
            offset += field.bit as usize / 8;
            (ty, rest) = (field.ty, &inner[end..]);
        }
    }
    Some((offset, ty))
}

/// A number, a switch or a time.
pub(super) fn number(text: &str) -> Option<i128> {
    let hex = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match text {
        "true" | "on" => Some(1),
        "false" | "off" => Some(0),
        _ => hex
            .map(i128::from)
            .or_else(|| text.parse::<i64>().ok().map(i128::from))
            .or_else(|| text.parse::<u64>().ok().map(i128::from))
            .or_else(|| text.parse::<Ns>().ok().map(|time| i128::from(time.0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_switches_or_times() {
        let pairs = [
            ("5ms", Some(5_000_000)),
            ("0x36", Some(0x36)),
            ("-3", Some(-3)),
            ("true", Some(1)),
            ("off", Some(0)),
            ("18446744073709551615", Some(u64::MAX.into())),
            ("much", None),
            ("", None),
        ];
        pairs.iter().for_each(|(text, value)| assert_eq!(number(text), *value, "{text}"));
    }
}
