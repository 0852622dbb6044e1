//! The part of bpf(2) that looks at what others have loaded: maps, their values, their types.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Commands of `enum bpf_cmd` (include/uapi/linux/bpf.h).
const MAP_LOOKUP_ELEM: i32 = 1;
const MAP_GET_NEXT_ID: i32 = 12;
const MAP_GET_FD_BY_ID: i32 = 14;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const BTF_GET_FD_BY_ID: i32 = 19;

/// Bytes of `union bpf_attr` that these commands read.
const ATTRIBUTES: usize = 128;

/// `struct bpf_map_info`, as far as it is read; the kernel fills what both sides know.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct MapInfo {
    pub(crate) kind: u32,
    pub(crate) id: u32,
    pub(crate) key: u32,
    pub(crate) value: u32,
    pub(crate) max: u32,
    flags: u32,
    pub(crate) name: [u8; 16],
    interface: u32,
    /// Of a struct_ops map: its value's type in the kernel's type information.
    pub(crate) kernel_type: u32,
    device: u64,
    inode: u64,
    pub(crate) types: u32,
    key_type: u32,
    pub(crate) value_type: u32,
    module_types: u32,
}

/// `struct bpf_btf_info`, as far as it is read.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct BtfInfo {
    at: u64,
    bytes: u32,
    id: u32,
}

fn call(command: i32, words: &mut [u32; ATTRIBUTES / 4]) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes at most ATTRIBUTES bytes of `words`; addresses in it are
    // those of buffers that the callers below keep alive, of the lengths that they name.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, words.as_mut_ptr(), ATTRIBUTES) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as i32) }
}

fn put(words: &mut [u32; ATTRIBUTES / 4], at: usize, value: u64) {
    (words[at], words[at + 1]) = (value as u32, (value >> 32) as u32);
}

fn opened(command: i32, id: u32) -> io::Result<OwnedFd> {
    let mut words = [0; ATTRIBUTES / 4];
    words[0] = id;
    let fd = call(command, &mut words)?;
    // SAFETY: the kernel has just made this descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number of the map after `id`; `None`: it was the last.
pub(crate) fn next_map(id: u32) -> io::Result<Option<u32>> {
    let mut words = [0; ATTRIBUTES / 4];
    words[0] = id;
    match call(MAP_GET_NEXT_ID, &mut words) {
        Ok(_) => Ok(Some(words[1])),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A map by its number.
pub(crate) fn map(id: u32) -> io::Result<(OwnedFd, MapInfo)> {
    let fd = opened(MAP_GET_FD_BY_ID, id)?;
    let mut info = MapInfo::default();
    let mut words = [0; ATTRIBUTES / 4];
    words[0] = fd.as_raw_fd() as u32;
    words[1] = size_of::<MapInfo>() as u32;
    put(&mut words, 2, (&raw mut info).addr() as u64);
    call(OBJ_GET_INFO_BY_FD, &mut words)?;
    Ok((fd, info))
}

/// The value of a map of one element whose keys are numbers.
pub(crate) fn value(map: &OwnedFd, info: &MapInfo) -> io::Result<Vec<u8>> {
    let key = 0u32;
    let mut value = vec![0u8; info.value as usize];
    let mut words = [0; ATTRIBUTES / 4];
    words[0] = map.as_raw_fd() as u32;
    put(&mut words, 2, (&raw const key).addr() as u64);
    put(&mut words, 4, value.as_mut_ptr().addr() as u64);
    call(MAP_LOOKUP_ELEM, &mut words)?;
    Ok(value)
}

/// Type information by its number, as a `.BTF` section holds it.
pub(crate) fn types(id: u32) -> io::Result<Vec<u8>> {
    let fd = opened(BTF_GET_FD_BY_ID, id)?;
    // The first call says how much there is.
    let ask = |at: u64, bytes: u32| {
        let mut info = BtfInfo { at, bytes, id: 0 };
        let mut words = [0; ATTRIBUTES / 4];
        words[0] = fd.as_raw_fd() as u32;
        words[1] = size_of::<BtfInfo>() as u32;
        put(&mut words, 2, (&raw mut info).addr() as u64);
        call(OBJ_GET_INFO_BY_FD, &mut words).map(|_| info.bytes)
    };
    let bytes = ask(0, 0)?;
    let mut content = vec![0u8; bytes as usize];
    let now = ask(content.as_mut_ptr().addr() as u64, bytes)?;
    content.truncate(now as usize);
    Ok(content)
}
