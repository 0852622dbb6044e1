//! Little-endian numbers out of bytes that may end too early.

use crate::BpfError;

/// Bytes of a named part of a file.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    pub(crate) part: &'static str,
    pub(crate) all: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(part: &'static str, all: &'a [u8]) -> Bytes<'a> {
        Bytes { part, all }
    }
    /// Returns `n` bytes from `at` on.
    pub(crate) fn take(self, at: usize, n: usize) -> Result<&'a [u8], BpfError> {
        let end = at.checked_add(n);
        end.and_then(|end| self.all.get(at..end)).ok_or_else(|| {
            let have = self.all.len();
            BpfError::damaged(self.part, format!("{n} bytes at {at} are not there ({have} are)"))
        })
    }
    /// Returns a part of this part.
    pub(crate) fn part(self, at: usize, n: usize) -> Result<Bytes<'a>, BpfError> {
        Ok(Bytes { part: self.part, all: self.take(at, n)? })
    }
    fn number(self, at: usize, n: usize) -> Result<u64, BpfError> {
        Ok(little(self.take(at, n)?))
    }
    pub(crate) fn u16(self, at: usize) -> Result<u16, BpfError> {
        Ok(self.number(at, 2)? as u16)
    }
    pub(crate) fn u32(self, at: usize) -> Result<u32, BpfError> {
        Ok(self.number(at, 4)? as u32)
    }
    pub(crate) fn u64(self, at: usize) -> Result<u64, BpfError> {
        self.number(at, 8)
    }
    /// A number that is an offset or a size in this file.
    pub(crate) fn size(self, at: usize) -> Result<usize, BpfError> {
        let value = self.u64(at)?;
        usize::try_from(value)
            .map_err(|_| BpfError::damaged(self.part, format!("{value} is no size")))
    }
}

/// The number that up to eight bytes are.
pub(crate) fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Text up to a zero byte; what is no UTF-8 is replaced.
pub(crate) fn text(bytes: &[u8], at: usize) -> String {
    let rest = bytes.get(at..).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    String::from_utf8_lossy(&rest[..end]).into_owned()
}
