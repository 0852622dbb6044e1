//! The records of a perf.data, in order of time, read piece by piece.
//!
//! perf writes the ring of each CPU in turn; a FINISHED_ROUND record says that all rings were
//! visited, so nothing that comes later is older than what the round before held
//! (tools/perf/util/ordered-events.c). Until then the used parts of records wait in memory: two
//! rounds of them, whatever the length of the file.

use super::super::container::{bomb, is_bomb};
use super::attributes::Attributes;
use super::waiting::Waiting;
use crate::TraceError;
use std::io::Read;
use zstd::stream::raw::{InBuffer, Operation, OutBuffer};

/// Byte order of the recorded machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// The unsigned number of `size` bytes at `at`; `None` when it is not inside `bytes`.
    #[inline]
    pub(super) fn number(self, bytes: &[u8], at: usize, size: usize) -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(size)?)?;
        Some(match (self, bytes) {
            (Order::Little, &[a, b, c, d]) => u64::from(u32::from_le_bytes([a, b, c, d])),
            (Order::Little, &[a, b, c, d, e, f, g, h]) => {
                u64::from_le_bytes([a, b, c, d, e, f, g, h])
            }
            (Order::Little, &[a, b]) => u64::from(u16::from_le_bytes([a, b])),
            (_, &[a]) => u64::from(a),
            (Order::Little, bytes) => {
                bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
            (Order::Big, bytes) => {
                bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
        })
    }
}

/// Types of records.
mod kind {
    pub(super) const LOST: u64 = 2;
    pub(super) const COMM: u64 = 3;
    pub(super) const SAMPLE: u64 = 9;
    pub(super) const LOST_SAMPLES: u64 = 13;
    pub(super) const HEADER_ATTR: u64 = 64;
    pub(super) const HEADER_TRACING_DATA: u64 = 66;
    pub(super) const FINISHED_ROUND: u64 = 68;
    pub(super) const AUXTRACE: u64 = 71;
    pub(super) const HEADER_FEATURE: u64 = 80;
    pub(super) const COMPRESSED: u64 = 81;
    pub(super) const COMPRESSED2: u64 = 83;
}

/// Bytes of a record's header.
const RECORD: usize = 8;
/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;
/// Most bytes that the compressed records of a file may unfold to.
const UNFOLDED_MAX: u64 = 64 << 30;
/// Bytes that are unfolded at a time.
const STEP: usize = 32 << 10;
/// Most bytes of the formats of tracepoints in a pipe.
const FORMATS_MAX: u64 = 256 << 20;

/// A record that says something about the schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record<'a> {
    Sample { at: u64, cpu: u32, raw: &'a [u8] },
    Comm { pid: u32, tid: u32, comm: &'a [u8] },
    Lost { at: u64, cpu: Option<u32>, count: u64 },
}

/// Receives the records.
pub(super) trait Take {
    /// Whether a sample of this content is wanted; those that are not do not wait for their turn.
    ///
    /// # Errors
    /// Reading is over.
    fn wants(
        &mut self,
        at: Option<u64>,
        cpu: Option<u32>,
        raw: Option<&[u8]>,
    ) -> Result<bool, TraceError>;

    /// The next record in order of time.
    ///
    /// # Errors
    /// Reading is over.
    fn record(&mut self, record: &Record<'_>) -> Result<(), TraceError>;

    /// Whether no later record is wanted.
    fn is_over(&self) -> bool {
        false
    }

    /// What a pipe says about itself: the formats of its tracepoints.
    ///
    /// # Errors
    /// They cannot be read.
    fn formats(&mut self, data: &[u8]) -> Result<(), TraceError>;

    /// What a pipe says about itself: a feature, by its number.
    fn feature(&mut self, feature: u64, data: &[u8]);
}

/// Reads records.
pub(super) struct Records {
    pub(super) attributes: Attributes,
    order: Order,
    waiting: Waiting,
    /// What was unfolded of compressed records and is not a whole record yet.
    unfolded: Vec<u8>,
    unfold: Option<Unfold>,
    /// Events that were lost by perf's sum at its end, and those that records told before.
    lost_in_all: u64,
    lost_told: u64,
    /// The last record is not whole.
    pub(super) cut_off: bool,
}

/// What follows a record outside of it.
enum Behind {
    Nothing,
    /// So many bytes that are left out.
    Skip(u64),
    /// So many bytes that are the formats of tracepoints.
    Formats(u64),
}

impl Records {
    pub(super) fn new(attributes: Attributes, order: Order) -> Records {
        Records {
            attributes,
            order,
            waiting: Waiting::default(),
            unfolded: Vec::new(),
            unfold: None,
            lost_in_all: 0,
            lost_told: 0,
            cut_off: false,
        }
    }

    /// Reads all records of `input`.
    ///
    /// # Errors
    /// The input cannot be read, or what `take` says.
    pub(super) fn read(
        &mut self,
        input: &mut dyn Read,
        take: &mut dyn Take,
    ) -> Result<(), TraceError> {
        let failed = |source| TraceError::Io { doing: "read", source };
        let mut bytes = Vec::with_capacity(2 * CHUNK);
        let mut ended = false;
        while !ended && !take.is_over() {
            let before = bytes.len();
            input.take(CHUNK as u64).read_to_end(&mut bytes).map_err(failed)?;
            ended = bytes.len() == before;
            let mut at = 0;
            while let Some((length, behind)) = self.next(&bytes[at..], take)? {
                at += length;
                if let Behind::Nothing = behind {
                    continue;
                }
                // What follows is taken from what was read already, and then from the input.
                let (Behind::Skip(wanted) | Behind::Formats(wanted)) = behind else { continue };
                let ready = wanted.min((bytes.len() - at) as u64) as usize;
                let (inside, rest) = (&bytes[at..at + ready], wanted - ready as u64);
                match behind {
                    Behind::Formats(_) => {
                        let mut data = inside.to_vec();
                        input.take(rest).read_to_end(&mut data).map_err(failed)?;
                        take.formats(&data)?;
                    }
                    _ => {
                        let skipped = std::io::copy(&mut input.take(rest), &mut std::io::sink());
                        self.cut_off |= skipped.map_err(failed)? < rest;
                    }
                }
                at += ready;
            }
            bytes.drain(..at);
            // A record has at most 65,535 bytes: what does not begin with one is none.
            if bytes.len() > usize::from(u16::MAX) {
                break;
            }
        }
        self.cut_off |= !take.is_over() && (!bytes.is_empty() || !self.unfolded.is_empty());
        self.waiting.flush(take)?;
        match self.lost_in_all.saturating_sub(self.lost_told) {
            0 => Ok(()),
            count => take.record(&Record::Lost { at: 0, cpu: None, count }),
        }
    }

    /// One record at the beginning of `bytes`: its length, and what follows it; `None`: it is not
    /// whole.
    fn next(
        &mut self,
        bytes: &[u8],
        take: &mut dyn Take,
    ) -> Result<Option<(usize, Behind)>, TraceError> {
        let Some((kind, body)) = framed(bytes, self.order) else { return Ok(None) };
        let behind = match kind {
            kind::COMPRESSED => self.compressed(body, take).map(|()| Behind::Nothing)?,
            kind::COMPRESSED2 => {
                let size = self.order.number(body, 0, 8).map_or(0, |size| size as usize);
                let inside = body.get(8..).and_then(|rest| rest.get(..size)).unwrap_or_default();
                self.compressed(inside, take).map(|()| Behind::Nothing)?
            }
            // The trace of a processor follows its record.
            kind::AUXTRACE => Behind::Skip(self.order.number(body, 0, 8).unwrap_or(0)),
            kind::HEADER_TRACING_DATA => {
                Behind::Formats(self.order.number(body, 0, 4).unwrap_or(0).min(FORMATS_MAX))
            }
            kind => self.plain(kind, body, take).map(|()| Behind::Nothing)?,
        };
        Ok(Some((RECORD + body.len(), behind)))
    }

    /// A record that is complete in itself.
    #[inline]
    fn plain(&mut self, kind: u64, body: &[u8], take: &mut dyn Take) -> Result<(), TraceError> {
        let order = self.order;
        match kind {
            kind::SAMPLE => {
                if let Some(sample) = self.attributes.sample(body, order)
                    && take.wants(sample.at, sample.cpu, sample.raw)?
                    && let (Some(at), Some(cpu), Some(raw)) = (sample.at, sample.cpu, sample.raw)
                {
                    self.waiting.sample(at, cpu, raw)?;
                }
            }
            kind::FINISHED_ROUND => self.waiting.finished(take)?,
            kind::COMM => {
                if let Some((pid, tid, comm)) = comm(body, order) {
                    self.waiting.comm(pid, tid, comm)?;
                }
            }
            kind::LOST | kind::LOST_SAMPLES => self.lost(kind, body)?,
            kind::HEADER_ATTR => self.attributes.of_record(body, order)?,
            kind::HEADER_FEATURE => {
                if let Some((id, data)) = order.number(body, 0, 8).zip(body.get(8..)) {
                    take.feature(id, data);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Events that perf lost.
    fn lost(&mut self, kind: u64, body: &[u8]) -> Result<(), TraceError> {
        let place = if kind == kind::LOST { 8 } else { 0 };
        let Some(count) = self.order.number(body, place, 8) else { return Ok(()) };
        let (at, cpu) = self.attributes.sample_id(body, self.order).unwrap_or_default();
        if kind == kind::LOST_SAMPLES && at == 0 {
            // perf's sum when it ended (record__read_lost_samples): what was told before is in it.
            self.lost_in_all = self.lost_in_all.saturating_add(count);
            return Ok(());
        }
        self.lost_told = self.lost_told.saturating_add(count);
        self.waiting.lost(at, cpu, count)
    }

    /// A piece of the one zstd stream that all compressed records are. perf flushes its compressor
    /// after each piece, but a record may be in two of them.
    fn compressed(&mut self, body: &[u8], take: &mut dyn Take) -> Result<(), TraceError> {
        let mut unfold = match self.unfold.take() {
            Some(unfold) => unfold,
            None => Unfold::new()?,
        };
        let mut unfolded = std::mem::take(&mut self.unfolded);
        let mut input = InBuffer::around(body);
        unfold.taken += body.len() as u64;
        loop {
            let more = unfold.step(&mut input, &mut unfolded)?;
            let mut at = 0;
            while let Some((kind, body)) = framed(&unfolded[at..], self.order) {
                self.plain(kind, body, take)?;
                at += RECORD + body.len();
            }
            unfolded.drain(..at);
            if unfolded.len() > usize::from(u16::MAX) {
                // No record begins so.
                unfold.over = true;
                unfolded.clear();
            }
            self.cut_off |= unfold.over;
            if !more || unfold.over {
                break;
            }
        }
        self.unfolded = unfolded;
        self.unfold = Some(unfold);
        Ok(())
    }
}

/// Type and body of the record at the beginning of `bytes`; `None`: it is not whole, or no record.
#[inline]
fn framed(bytes: &[u8], order: Order) -> Option<(u64, &[u8])> {
    let (kind, size) = (order.number(bytes, 0, 4)?, order.number(bytes, 6, 2)? as usize);
    Some((kind, bytes.get(RECORD..size)?))
}

/// Process, thread and name.
fn comm(body: &[u8], order: Order) -> Option<(u32, u32, &[u8])> {
    let (pid, tid) = (order.number(body, 0, 4)? as u32, order.number(body, 4, 4)? as u32);
    let name = body.get(8..)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    Some((pid, tid, &name[..end]))
}

/// The decompressor of a file's compressed records.
struct Unfold {
    decoder: zstd::stream::raw::Decoder<'static>,
    /// Bytes that went in, and that came out.
    taken: u64,
    unfolded: u64,
    /// The stream is damaged: nothing more comes out of it.
    over: bool,
    begun: bool,
}

impl Unfold {
    fn new() -> Result<Unfold, TraceError> {
        let decoder = zstd::stream::raw::Decoder::new();
        let decoder = decoder.map_err(|source| TraceError::Io { doing: "unfold", source })?;
        Ok(Unfold { decoder, taken: 0, unfolded: 0, over: false, begun: false })
    }

    /// Appends the next part of what a piece unfolds to; whether there may be more of it. A damaged
    /// stream is over: what came before is whole.
    fn step(&mut self, piece: &mut InBuffer<'_>, out: &mut Vec<u8>) -> Result<bool, TraceError> {
        if self.over {
            return Ok(false);
        }
        let mut buffer = [0; STEP];
        let mut output = OutBuffer::around(&mut buffer[..]);
        let step = self.decoder.run(piece, &mut output);
        let made = output.pos();
        out.extend_from_slice(&buffer[..made]);
        self.unfolded += made as u64;
        self.begun |= made > 0;
        if self.unfolded > UNFOLDED_MAX {
            return Err(TraceError::TooLarge {
                what: format!("its compressed records hold more than {UNFOLDED_MAX} bytes"),
            });
        }
        if is_bomb(self.unfolded, self.taken) {
            let what = format!("its compressed records: {}", bomb(self.unfolded, self.taken));
            return Err(TraceError::TooLarge { what });
        }
        match step {
            Err(error) if !self.begun => Err(TraceError::Option(format!(
                "the compressed records of this perf.data are damaged: {error}"
            ))),
            Err(_) => {
                self.over = true;
                Ok(false)
            }
            Ok(_) => Ok(made == STEP || piece.pos() < piece.src.len()),
        }
    }
}
