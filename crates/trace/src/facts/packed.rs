//! Facts in little memory: what a flight recorder keeps.

use super::{Layout, RECORD, decode, encode};
use crate::TraceError;
use schedlab_model::{Fact, Ns};

/// Some facts, compressed as in a block of a file: about 3 bytes each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedFacts {
    stored: Vec<u8>,
    raw: usize,
    first: Ns,
    last: Ns,
}

impl PackedFacts {
    /// Packs `facts`; `None` when there are none.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn pack(facts: &[Fact]) -> Result<Option<PackedFacts>, TraceError> {
        let times = || facts.iter().map(|fact| fact.at);
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return Ok(None) };
        let raw = encode(facts, first.0);
        let mut stored = zstd::bulk::compress(&raw, 1)
            .map_err(|source| TraceError::Io { doing: "pack", source })?;
        stored.shrink_to_fit();
        Ok(Some(PackedFacts { stored, raw: raw.len(), first, last }))
    }

    /// Appends the facts to `out`, as they were.
    ///
    /// # Errors
    /// The memory was damaged.
    pub fn unpack(&self, out: &mut Vec<Fact>) -> Result<(), TraceError> {
        let raw = zstd::bulk::decompress(&self.stored, self.raw)
            .map_err(|source| TraceError::Io { doing: "unpack", source })?;
        decode(&raw, self.first.0, Layout::ByCpu, out)
            .map_err(|what| TraceError::Header { what })?;
        Ok(())
    }

    /// How many facts.
    pub fn facts(&self) -> usize {
        self.raw / RECORD
    }

    /// Time of the earliest fact.
    pub fn first(&self) -> Ns {
        self.first
    }

    /// Time of the latest fact.
    pub fn last(&self) -> Ns {
        self.last
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.stored.capacity() + size_of::<PackedFacts>()
    }
}
