//! Schedulers in BPF that this kernel runs, whatever program loaded them: their structures, maps
//! and variables.

use crate::HostError;
use crate::sys::bpf::{self, MapInfo};
use std::io;

/// `BPF_MAP_TYPE_STRUCT_OPS`, `BPF_MAP_TYPE_ARRAY`.
const STRUCT_OPS: u32 = 26;
const ARRAY: u32 = 2;
/// The largest value that is read: sections of data of schedulers have some megabytes.
const LARGEST: u32 = 64 << 20;

/// A map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedMap {
    /// Its name, cut by the kernel at 15 bytes.
    pub name: String,
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Greatest number of entries.
    pub max: u32,
    /// The type of its values in [`LoadedOps::types`]; 0: none.
    pub value_type: u32,
    /// Its value, of a section of data.
    pub value: Option<Vec<u8>>,
}

/// A structure of functions in BPF, and the object that it came with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedOps {
    /// The structure, as its map has it.
    pub value: Vec<u8>,
    /// Its type in the kernel's type information.
    pub kernel_type: u32,
    /// The object's type information.
    pub types: Vec<u8>,
    /// The object's other maps.
    pub maps: Vec<LoadedMap>,
}

/// Returns every structure of functions that is loaded.
///
/// # Errors
/// This process may not look.
pub fn loaded() -> Result<Vec<LoadedOps>, HostError> {
    let fail =
        |source| HostError::Io { what: "reading the maps of BPF programs".to_owned(), source };
    let all = maps().map_err(fail)?;
    let ops = all.iter().filter(|(_, info)| info.kind == STRUCT_OPS && info.types > 0);
    let one = |(fd, info): &(std::os::fd::OwnedFd, MapInfo)| {
        let own = all.iter().filter(|(_, other)| other.types == info.types);
        let own = own.filter(|(_, other)| other.kind != STRUCT_OPS);
        let map = |(fd, info): &(std::os::fd::OwnedFd, MapInfo)| {
            let is_data = info.kind == ARRAY && info.max == 1 && info.value <= LARGEST;
            Ok(LoadedMap {
                name: name(info),
                kind: info.kind,
                max: info.max,
                value_type: info.value_type,
                value: is_data.then(|| bpf::value(fd, info)).transpose()?,
            })
        };
        Ok(LoadedOps {
            value: bpf::value(fd, info)?,
            kernel_type: info.kernel_type,
            types: bpf::types(info.types)?,
            maps: own.map(map).collect::<io::Result<_>>()?,
        })
    };
    ops.map(one).collect::<io::Result<_>>().map_err(fail)
}

/// All maps; one that went while they were counted is left out.
fn maps() -> io::Result<Vec<(std::os::fd::OwnedFd, MapInfo)>> {
    let (mut all, mut last) = (Vec::new(), 0);
    while let Some(id) = bpf::next_map(last)? {
        match bpf::map(id) {
            Ok(map) => all.push(map),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
        last = id;
    }
    Ok(all)
}

fn name(info: &MapInfo) -> String {
    let end = info.name.iter().position(|byte| *byte == 0).unwrap_or(info.name.len());
    String::from_utf8_lossy(&info.name[..end]).into_owned()
}
