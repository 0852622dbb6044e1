//! The blocks of a recording as they stand in its file: one after another, checked and
//! decompressed. What is in them is the business of `reader`.

use crate::format::{self, BLOCK_HEADER, BlockHeader, Decoded, FILE_HEADER, kind};
use crate::{ReadLimits, TraceError};
use schedlab_model::{Ns, SchedEvent};
use std::cell::OnceCell;
use std::io::Read;
use std::path::Path;

/// One step through a file.
#[derive(Debug)]
pub enum Part {
    /// A whole block.
    Block(Block),
    /// The input ended; always the last part.
    End {
        /// Where the last whole block ended.
        start: u64,
        /// How much came after it.
        bytes: u64,
        /// How many whole blocks there were.
        number: u64,
    },
}

/// A block, decompressed.
#[derive(Debug)]
pub struct Block {
    pub(crate) header: BlockHeader,
    pub(crate) raw: Vec<u8>,
    /// Its events, once they are decoded them.
    events: OnceCell<Result<(Vec<SchedEvent>, Decoded), String>>,
    /// Counted from 0, the header.
    number: u64,
    /// Where it is.
    start: u64,
}

impl Part {
    /// Where it begins, in bytes from the start of the file.
    pub fn start(&self) -> u64 {
        match self {
            Part::Block(block) => block.start,
            Part::End { start, .. } => *start,
        }
    }

    /// Returns whether it holds nothing but events or facts of times behind `end`.
    pub fn is_behind(&self, end: Ns) -> bool {
        match self {
            Part::Block(block) => kind::is_timed(block.header.kind) && block.header.first > end.0,
            Part::End { .. } => false,
        }
    }

    /// Decodes the events of a block here and now: on the thread that reads, say, so that the one
    /// that looks at them need not.
    pub fn decode(&self) {
        if let Part::Block(block) = self
            && block.header.kind == kind::EVENTS
        {
            // A fault is that of the block, and is told when its events are read.
            let _ = block.events();
        }
    }
}

impl Block {
    /// The events of a block of events, and what they are.
    pub(crate) fn events(&self) -> Result<(&[SchedEvent], Decoded), TraceError> {
        let decode = || {
            let mut events = Vec::new();
            let decoded = format::decode_events(&self.raw, self.header.first, &mut events)?;
            Ok((events, decoded))
        };
        match self.events.get_or_init(decode) {
            Ok((events, decoded)) => Ok((events, *decoded)),
            Err(what) => Err(self.damaged(what)),
        }
    }

    pub(crate) fn damaged(&self, what: &str) -> TraceError {
        TraceError::Damaged { block: self.number, offset: self.start, what: what.to_owned() }
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, TraceError> {
        serde_json::from_slice(&self.raw)
            .map_err(|error| self.damaged(&format!("its JSON: {error}")))
    }
}

/// Walks through a recording, block by block. After [`Part::End`] or an error there is nothing
/// more.
pub struct Blocks<R> {
    input: R,
    limits: ReadLimits,
    offset: u64,
    number: u64,
    begun: bool,
    over: bool,
    /// The block's bytes in the file.
    stored: Vec<u8>,
    unzip: Option<zstd::bulk::Decompressor<'static>>,
}

impl Blocks<std::io::BufReader<std::fs::File>> {
    /// The blocks of the file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = schedlab_files::open(path)
            .map_err(|source| TraceError::File { path: path.to_owned(), source })?;
        Ok(Blocks::new(std::io::BufReader::with_capacity(1 << 20, file), ReadLimits::default()))
    }
}

impl<R: Read> Blocks<R> {
    /// The blocks of `input`. A block that claims more than `limits` is refused before memory is
    /// taken.
    pub fn new(input: R, limits: ReadLimits) -> Blocks<R> {
        let stored = Vec::new();
        Blocks {
            input,
            limits,
            offset: 0,
            number: 0,
            begun: false,
            over: false,
            stored,
            unzip: None,
        }
    }

    fn step(&mut self) -> Result<Part, TraceError> {
        if !self.begun {
            self.begun = true;
            self.file_header()?;
        }
        let (start, number) = (self.offset, self.number);
        let mut bytes = [0; BLOCK_HEADER];
        let got = self.fill(&mut bytes)?;
        if got < BLOCK_HEADER {
            return Ok(Part::End { start, bytes: got as u64, number });
        }
        let header = BlockHeader::decode(&bytes).map_err(|what| self.damaged(start, what))?;
        if header.raw > self.limits.block_bytes || header.stored > self.limits.block_bytes {
            let what = format!("block {number} claims {} bytes", header.raw.max(header.stored));
            return Err(TraceError::TooLarge { what });
        }
        // Read in pieces: a false length must not make us allocate more than the file has.
        self.stored.clear();
        let wanted = u64::from(header.stored);
        let read = self.input.by_ref().take(wanted).read_to_end(&mut self.stored);
        read.map_err(|source| TraceError::Io { doing: "read", source })?;
        self.offset += self.stored.len() as u64;
        if (self.stored.len() as u64) < wanted {
            return Ok(Part::End { start, bytes: self.offset - start, number });
        }
        if crc32fast::hash(&self.stored) != header.crc {
            return Err(self.damaged(start, "its checksum is wrong"));
        }
        let raw = self.unzip(start, header.raw as usize)?;
        if raw.len() != header.raw as usize {
            return Err(self.damaged(start, "it decompresses to another length than it claims"));
        }
        self.number += 1;
        Ok(Part::Block(Block { header, raw, events: OnceCell::new(), number, start }))
    }

    /// The stored bytes, decompressed: never to more than `bytes`.
    fn unzip(&mut self, start: u64, bytes: usize) -> Result<Vec<u8>, TraceError> {
        let failed = |error: std::io::Error| format!("it does not decompress ({error})");
        let mut raw = Vec::with_capacity(bytes);
        let result = match &mut self.unzip {
            Some(unzip) => unzip.decompress_to_buffer(&self.stored, &mut raw),
            none => zstd::bulk::Decompressor::new()
                .and_then(|unzip| none.insert(unzip).decompress_to_buffer(&self.stored, &mut raw)),
        };
        result.map_err(|error| self.damaged(start, &failed(error)))?;
        Ok(raw)
    }

    fn file_header(&mut self) -> Result<(), TraceError> {
        let mut start = [0; FILE_HEADER];
        let got = self.fill(&mut start)?;
        if got == 0 {
            return Err(TraceError::Empty);
        }
        let magic = got.min(8);
        if start[..magic] != format::MAGIC[..magic] {
            let found = format!("{:?}", String::from_utf8_lossy(&start[..magic]));
            return Err(TraceError::Foreign { found });
        }
        if got < FILE_HEADER {
            return Err(TraceError::NoHeader { bytes: got as u64 });
        }
        let major = u16::from_le_bytes([start[8], start[9]]);
        if major > format::FORMAT_MAJOR {
            return Err(TraceError::Newer { found: major, known: format::FORMAT_MAJOR });
        }
        if major == 0 {
            return Err(self.damaged(8, "format version 0 was never written"));
        }
        Ok(())
    }

    /// Fills `buffer` as far as the input goes.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, TraceError> {
        let mut got = 0;
        while got < buffer.len() {
            match self.input.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(TraceError::Io { doing: "read", source }),
            }
        }
        self.offset += got as u64;
        Ok(got)
    }

    fn damaged(&self, offset: u64, what: &str) -> TraceError {
        TraceError::Damaged { block: self.number, offset, what: what.to_owned() }
    }
}

impl<R: Read> Iterator for Blocks<R> {
    type Item = Result<Part, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let part = self.step();
        self.over = !matches!(part, Ok(Part::Block(_)));
        Some(part)
    }
}
