//! A profile of a scheduler that runs: the values of its variables and the sizes of its maps, as
//! its user half has set them.

use super::options;
use schedlab_bpf::{Btf, Kind, MapKind};
use std::fmt::Write;

/// A map of a scheduler that runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunningMap {
    /// Its name, which the kernel cuts at 15 bytes.
    pub name: String,
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Greatest number of entries.
    pub max: u32,
    /// The type of its values in [`Running::types`].
    pub value_type: u32,
    /// Its value, of a section of data.
    pub value: Option<Vec<u8>>,
}

/// A structure of functions that a kernel runs, with the maps of its object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Running {
    /// The structure, as its map has it.
    pub value: Vec<u8>,
    /// Its type in the kernel's type information.
    pub kernel_type: u32,
    /// The object's type information.
    pub types: Vec<u8>,
    /// The object's other maps.
    pub maps: Vec<RunningMap>,
}

/// Why there is no profile.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Another one runs, or none.
    #[error("no scheduler `{wanted}` runs here; {}", of_others(.running))]
    NotRunning {
        /// What was asked for.
        wanted: String,
        /// What runs.
        running: Vec<String>,
    },
    /// The kernel's types or the object's.
    #[error("{0}")]
    Types(#[from] schedlab_bpf::BpfError),
}

fn of_others(running: &[String]) -> String {
    match running {
        [] => "there is no scheduler in BPF at all".to_owned(),
        some => format!("there is {}", some.join(", ")),
    }
}

/// Numbers of `struct sched_ext_ops` that are told.
const OF_OPS: [&str; 3] = ["flags", "timeout_ms", "dispatch_max_batch"];

/// Writes the profile of the scheduler that is called `wanted`: by `ops.name`, which may have a
/// version behind it, or by the program that loads it (`scx_NAME`). `state`: with the variables
/// that the programs themselves write, too (.data, .bss).
///
/// # Errors
/// It does not run, or its types are damaged.
pub fn snapshot(
    running: &[Running],
    kernel: &Btf,
    wanted: &str,
    state: bool,
) -> Result<String, SnapshotError> {
    let short = wanted.strip_prefix("scx_").unwrap_or(wanted);
    let named: Vec<(String, &Running)> =
        running.iter().filter_map(|one| Some((name(one, kernel)?, one))).collect();
    let is = |name: &str| {
        let versioned = name.strip_prefix(short).is_some_and(|rest| rest.starts_with('_'));
        name == wanted || name == short || versioned
    };
    let Some((own, found)) = named.iter().find(|(name, _)| is(name)) else {
        let running = named.into_iter().map(|(name, _)| name).collect();
        return Err(SnapshotError::NotRunning { wanted: wanted.to_owned(), running });
    };
    let types = Btf::of_file(&found.types)?;
    let scheduler = if own == wanted { own } else { short };
    let mut text = format!(
        "# What the user half of a running scheduler has set. Programs that it ran before it \
         attached, and entries of maps,\n# are not known. CPUs are those of that machine.\n\
         scheduler = {scheduler:?}\nsource = {:?}\n\n[options]\n",
        format!("schedlab bpf snapshot of `{own}`")
    );
    for member in OF_OPS {
        let value = number_of(found, kernel, member);
        if let Some(value) = value.filter(|value| *value > 0) {
            let _ = writeln!(text, "\"ops.{member}\" = {value}");
        }
    }
    for map in &found.maps {
        variables(&mut text, map, &types, state);
    }
    sizes(&mut text, found, &types);
    Ok(text)
}

/// A member of the running `struct sched_ext_ops`: its offset and bytes.
fn member(one: &Running, kernel: &Btf, name: &str) -> Option<(usize, usize)> {
    let (at, ty) = options::walk(kernel, one.kernel_type, &format!(".data.{name}"))?;
    Some((at, kernel.size(ty) as usize))
}

/// The name of a scheduler; `None`: the structure is of another kind.
fn name(one: &Running, kernel: &Btf) -> Option<String> {
    let (data, ty) = options::walk(kernel, one.kernel_type, ".data")?;
    let ty = kernel.plain(ty);
    if data == 0 || !kernel.name(ty).starts_with("sched_ext_ops") {
        return None;
    }
    let (at, bytes) = member(one, kernel, "name")?;
    let bytes = one.value.get(at..at + bytes)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned()).filter(|name| !name.is_empty())
}

fn number_of(one: &Running, kernel: &Btf, name: &str) -> Option<u64> {
    let (at, bytes) = member(one, kernel, name)?;
    let bytes = one.value.get(at..at + bytes.min(8))?;
    Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// The variables of a section of data, one line each.
fn variables(text: &mut String, map: &RunningMap, types: &Btf, state: bool) {
    let (Kind::DataSec(list), Some(value)) = (types.kind(map.value_type), &map.value) else {
        return;
    };
    let section = types.name(map.value_type);
    let wanted = section.starts_with(".rodata")
        || state && [".data", ".bss"].iter().any(|name| section.starts_with(name));
    if !wanted || section.contains(".str") {
        return;
    }
    for (id, at, _) in list {
        let (name, Kind::Var(ty)) = (types.name(*id), types.kind(*id)) else { continue };
        // The kernel's enumerators and the number of CPUs are filled in for each machine.
        let own = name.starts_with('_') || name.contains('.') || name.ends_with("___fmt");
        if !own && name != "nr_cpu_ids" {
            let leaf = Leaf { types, value, whole: true };
            leaf.write(text, name, *ty, *at as usize);
        }
    }
}

/// How values are written.
#[derive(Clone, Copy)]
struct Leaf<'a> {
    types: &'a Btf,
    value: &'a [u8],
    /// It is a variable by itself, which is written though it is 0.
    whole: bool,
}

impl Leaf<'_> {
    fn write(self, text: &mut String, name: &str, ty: u32, at: usize) {
        let part = Leaf { whole: false, ..self };
        match self.types.plain_kind(ty) {
            Kind::Array(of, n) => {
                let size = self.types.size(*of) as usize;
                for i in 0..*n as usize {
                    part.write(text, &format!("{name}[{i}]"), *of, at + i * size);
                }
            }
            Kind::Struct(..) => {
                for member in self.types.members(ty).iter().filter(|member| member.bits == 0) {
                    let inner = self.types.string(member.name);
                    if !inner.is_empty() {
                        let inner = format!("{name}.{inner}");
                        part.write(text, &inner, member.ty, at + member.bit as usize / 8);
                    }
                }
            }
            _ => self.number(text, name, ty, at),
        }
    }

    fn number(self, text: &mut String, name: &str, ty: u32, at: usize) {
        let Some((size, signed)) = options::scalar(self.types, ty) else { return };
        let Some(bytes) = self.value.get(at..at + size) else { return };
        let value = options::read(bytes, signed);
        if value == 0 && !self.whole {
            return;
        }
        // TOML's numbers have 63 bits.
        let _ = match i64::try_from(value) {
            Ok(value) => writeln!(text, "\"{name}\" = {value}"),
            Err(_) => writeln!(text, "\"{name}\" = \"{value}\""),
        };
    }
}

/// How many entries its maps have. The kernel has cut their names; the object's types have them.
fn sizes(text: &mut String, found: &Running, types: &Btf) {
    let section = types.types().iter().enumerate().find_map(|(id, ty)| match &ty.kind {
        Kind::DataSec(list) if types.name(id as u32) == ".maps" => Some(list),
        _ => None,
    });
    let names: Vec<&str> = section.into_iter().flatten().map(|(id, ..)| types.name(*id)).collect();
    let mut lines = String::new();
    for map in &found.maps {
        let sized =
            !matches!(MapKind::of(map.kind), None | Some(MapKind::Arena | MapKind::Storage));
        let mut whole = names.iter().filter(|name| name.starts_with(&map.name));
        let name = whole.next().filter(|_| !map.name.is_empty());
        if let (Some(name), None) = (name, whole.next())
            && sized
            && (1..1 << 24).contains(&map.max)
        {
            let _ = writeln!(lines, "{name} = {}", map.max);
        }
    }
    if !lines.is_empty() {
        let _ = write!(text, "\n[maps]\n{lines}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &[u8] = include_bytes!("../../../../bpf/sim/kernel.bpf.o");
    const FAIR: &[u8] = include_bytes!("../../../../bpf/sim/fair.bpf.o");

    /// The maps of a running scheduler, as the kernel tells of them.
    #[test]
    fn a_snapshot_is_a_profile_of_what_runs() {
        let types = Btf::of_file(KERNEL).expect("a kernel's types");
        let object = Btf::of_file(FAIR).expect("types");
        let section = |name: &str| {
            let is = |id: &u32| object.name(*id) == name;
            (0..object.types().len() as u32).find(is).expect("a section")
        };
        let loaded = types.structure("bpf_struct_ops_sched_ext_ops").expect("its map's value");
        let place =
            |path: &str| types.field("bpf_struct_ops_sched_ext_ops", path).expect("a field").0;
        let mut value = vec![0; types.size(loaded) as usize];
        value[place("data.name")..][..12].copy_from_slice(b"fair_1.1.4_x");
        value[place("data.flags")] = 6;
        // In an object as the compiler makes it every variable of a section is at 0; its loader
        // puts in where each is. So the slice (8 bytes) and the first number of an array are one.
        let mut rodata = vec![0; 256];
        rodata[..4].copy_from_slice(&5_000_000u32.to_le_bytes());
        let map = |name: &str, kind, max, value_type, value| RunningMap {
            name: name.to_owned(),
            kind,
            max,
            value_type,
            value,
        };
        let running = Running {
            value,
            kernel_type: loaded,
            types: FAIR.to_vec(),
            maps: vec![
                map("fair.rodata", 2, 1, section(".rodata"), Some(rodata)),
                map("counts", 6, 3, 0, None),
            ],
        };
        let other = Running { kernel_type: 1, ..running.clone() };
        let all = [other, running];
        let text = snapshot(&all, &types, "scx_fair", false).expect("a profile");
        for line in [
            "scheduler = \"fair\"",
            "\"ops.flags\" = 6",
            "\"slice_ns\" = 5000000",
            "\"offset[0]\" = 5000000",
            "counts = 3",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}: {text}");
        }
        assert!(!text.contains("offset[1]") && !text.contains("__SCX"), "{text}");
        let none = snapshot(&all, &types, "lavd", false).unwrap_err().to_string();
        assert_eq!(none, "no scheduler `lavd` runs here; there is fair_1.1.4_x");
    }
}
