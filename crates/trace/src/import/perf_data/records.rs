//! The records of a perf.data file, in order of time.
//!
//! perf writes the ring of each CPU in turn; a FINISHED_ROUND record says that all rings were visited, so nothing that comes later
//! is older than what the round before held (tools/perf/util/ordered-events.c).

use crate::TraceError;

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
            (Order::Little, &[a, b, c, d, e, f, g, h]) => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            (Order::Little, bytes) => bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)),
            (Order::Big, bytes) => bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
        })
    }
}

/// What the parts of a sample are: bits of `sample_type` (include/uapi/linux/perf_event.h).
mod part {
    pub(super) const IP: u64 = 1;
    pub(super) const TID: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const ADDR: u64 = 1 << 3;
    pub(super) const READ: u64 = 1 << 4;
    pub(super) const CALLCHAIN: u64 = 1 << 5;
    pub(super) const ID: u64 = 1 << 6;
    pub(super) const CPU: u64 = 1 << 7;
    pub(super) const PERIOD: u64 = 1 << 8;
    pub(super) const STREAM_ID: u64 = 1 << 9;
    pub(super) const RAW: u64 = 1 << 10;
    pub(super) const IDENTIFIER: u64 = 1 << 16;
}

/// `read_format`.
mod read {
    pub(super) const ENABLED: u64 = 1;
    pub(super) const RUNNING: u64 = 1 << 1;
    pub(super) const ID: u64 = 1 << 2;
    pub(super) const GROUP: u64 = 1 << 3;
    pub(super) const LOST: u64 = 1 << 4;
}

/// Types of records.
mod kind {
    pub(super) const LOST: u64 = 2;
    pub(super) const COMM: u64 = 3;
    pub(super) const SAMPLE: u64 = 9;
    pub(super) const LOST_SAMPLES: u64 = 13;
    pub(super) const FINISHED_ROUND: u64 = 68;
    pub(super) const AUXTRACE: u64 = 71;
    pub(super) const COMPRESSED: u64 = 81;
    pub(super) const COMPRESSED2: u64 = 83;
}

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u64 = 2;
/// Bytes of a record's header.
const RECORD: usize = 8;
/// Most bytes that the compressed records of a file may unfold to.
const UNFOLDED_MAX: usize = 4 << 30;

/// How the records of one event are laid out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attribute {
    sample_type: u64,
    read_format: u64,
    sample_id_all: bool,
    /// A tracepoint of which perf recorded only some events (`-F`, `-c`).
    pub(super) sampled: bool,
    ids: Vec<u64>,
}

impl Attribute {
    /// All attributes of a file: each a `perf_event_attr` and the place of its ids.
    pub(super) fn read_all(
        entries: &[u8],
        size: u64,
        file: &[u8],
        order: Order,
    ) -> Result<Vec<Attribute>, String> {
        let size = usize::try_from(size).ok().filter(|size| (64 + 16..=4096).contains(size));
        let size = size.ok_or("its attributes have an impossible size")?;
        let one = |entry: &[u8]| {
            let number = |at| order.number(entry, at, 8);
            let (at, length) = (number(size - 16)?, number(size - 8)?);
            let ids = super::section(file, at, length).unwrap_or_default();
            let (flags, is_tracepoint) = (number(40)?, order.number(entry, 0, 4)? == TRACEPOINT);
            Some(Attribute {
                sampled: is_tracepoint && (flags >> 10 & 1 != 0 || number(16)? > 1),
                sample_type: number(24)?,
                read_format: number(32)?,
                sample_id_all: flags >> 18 & 1 != 0,
                ids: ids.chunks_exact(8).filter_map(|id| order.number(id, 0, 8)).collect(),
            })
        };
        let all: Vec<Attribute> = entries.chunks_exact(size).filter_map(one).collect();
        if all.is_empty() { Err("it has no attributes".to_owned()) } else { Ok(all) }
    }
}

/// A record that says something about the schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record<'a> {
    Sample(Sample<'a>),
    Comm { pid: u32, tid: u32, comm: &'a [u8] },
    Lost { at: u64, cpu: Option<u32>, count: u64 },
}

/// The parts of a sample that are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sample<'a> {
    pub(super) at: Option<u64>,
    pub(super) cpu: Option<u32>,
    pub(super) raw: Option<&'a [u8]>,
}

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct End {
    /// The last record is not whole.
    pub(super) cut_off: bool,
}

/// Calls `each` with every record of `data`, in order of time.
pub(super) fn walk<'a>(
    data: &'a [u8],
    attributes: &[Attribute],
    order: Order,
    each: &mut dyn FnMut(&Record<'_>) -> Result<(), TraceError>,
) -> Result<End, TraceError> {
    let mut unfolded = Vec::new();
    let reader = Reader::new(attributes, order);
    let mut rounds = Rounds::default();
    let mut end = reader.records(data, &mut |kind, body| match kind {
        kind::COMPRESSED => unfold(body, &mut unfolded),
        kind::COMPRESSED2 => {
            let size = order.number(body, 0, 8).map_or(0, |size| size as usize);
            unfold(body.get(8..).and_then(|rest| rest.get(..size)).unwrap_or_default(), &mut unfolded)
        }
        kind::FINISHED_ROUND => rounds.finished(each),
        kind => {
            reader.record(kind, body).into_iter().for_each(|(at, record)| rounds.add(at, record));
            Ok(())
        }
    })?;
    rounds.flush(each)?;
    if !unfolded.is_empty() {
        let unfolded = decompress(&unfolded)?;
        let mut rounds = Rounds::default();
        let inner = reader.records(&unfolded, &mut |kind, body| {
            if kind == kind::FINISHED_ROUND {
                return rounds.finished(each);
            }
            reader.record(kind, body).into_iter().for_each(|(at, record)| rounds.add(at, record));
            Ok(())
        })?;
        end.cut_off |= inner.cut_off;
        rounds.flush(each)?;
    }
    Ok(end)
}

/// The parts of one zstd stream, in their order.
fn unfold(body: &[u8], all: &mut Vec<u8>) -> Result<(), TraceError> {
    all.extend_from_slice(body);
    Ok(())
}

fn decompress(bytes: &[u8]) -> Result<Vec<u8>, TraceError> {
    use std::io::Read;
    let mut out = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(bytes);
    let read = decoder.and_then(|decoder| decoder.take(UNFOLDED_MAX as u64 + 1).read_to_end(&mut out));
    match read {
        Ok(_) if out.len() > UNFOLDED_MAX => Err(TraceError::TooLarge {
            what: format!("its compressed records hold more than {UNFOLDED_MAX} bytes"),
        }),
        Ok(_) => Ok(out),
        // perf flushes its compressor: what came before a cut is whole.
        Err(_) if !out.is_empty() => Ok(out),
        Err(error) => {
            Err(TraceError::Option(format!("the compressed records of this perf.data are damaged: {error}")))
        }
    }
}

struct Reader<'t> {
    attributes: &'t [Attribute],
    order: Order,
    /// All attributes lay their records out alike.
    alike: bool,
    /// Event id → attribute, sorted.
    ids: Vec<(u64, usize)>,
}

impl<'t> Reader<'t> {
    fn new(attributes: &'t [Attribute], order: Order) -> Reader<'t> {
        let layout =
            |attribute: &Attribute| (attribute.sample_type, attribute.read_format, attribute.sample_id_all);
        let alike = attributes.windows(2).all(|pair| layout(&pair[0]) == layout(&pair[1]));
        let of = |(index, attribute): (usize, &Attribute)| {
            attribute.ids.iter().map(move |id| (*id, index)).collect::<Vec<_>>()
        };
        let mut ids: Vec<(u64, usize)> = attributes.iter().enumerate().flat_map(of).collect();
        ids.sort_unstable();
        Reader { attributes, order, alike, ids }
    }

    /// Calls `each` with type and body of every record.
    fn records<'a>(
        &self,
        data: &'a [u8],
        each: &mut dyn FnMut(u64, &'a [u8]) -> Result<(), TraceError>,
    ) -> Result<End, TraceError> {
        let mut at = 0;
        while at < data.len() {
            let header = self.order.number(data, at, 4).zip(self.order.number(data, at + 6, 2));
            let Some((kind, size)) = header else { return Ok(End { cut_off: true }) };
            let size = size as usize;
            let Some(body) = data.get(at + RECORD..at + size).filter(|_| size >= RECORD) else {
                return Ok(End { cut_off: true });
            };
            at += size;
            if kind == kind::AUXTRACE {
                // The trace of a processor follows its record.
                let more = self.order.number(body, 0, 8).and_then(|size| usize::try_from(size).ok());
                let Some(after) = more.and_then(|more| at.checked_add(more)) else {
                    return Ok(End { cut_off: true });
                };
                at = after;
                continue;
            }
            each(kind, body)?;
        }
        Ok(End { cut_off: at > data.len() })
    }

    /// The record, and its time for putting it in order; `None`: it says nothing about the schedule, or is damaged.
    fn record<'a>(&self, kind: u64, body: &'a [u8]) -> Option<(u64, Record<'a>)> {
        match kind {
            kind::SAMPLE => {
                let attribute = self.attribute(self.order.number(body, 0, 8))?;
                let sample = self.sample(body, attribute)?;
                Some((sample.at.unwrap_or(0), Record::Sample(sample)))
            }
            kind::COMM => {
                let (pid, tid) =
                    (self.order.number(body, 0, 4)? as u32, self.order.number(body, 4, 4)? as u32);
                let name = body.get(8..)?;
                let end = name.iter().position(|byte| *byte == 0)?;
                Some((0, Record::Comm { pid, tid, comm: &name[..end] }))
            }
            kind::LOST | kind::LOST_SAMPLES => {
                let count = self.order.number(body, if kind == kind::LOST { 8 } else { 0 }, 8)?;
                let (at, cpu) = self.sample_id(body).unwrap_or_default();
                Some((at, Record::Lost { at, cpu, count }))
            }
            _ => None,
        }
    }

    /// The layout of a record whose first number may be an id.
    fn attribute(&self, id: Option<u64>) -> Option<&Attribute> {
        if self.alike {
            return self.attributes.first();
        }
        let at = self.ids.binary_search_by_key(&id?, |(id, _)| *id).ok()?;
        self.attributes.get(self.ids[at].1)
    }

    fn sample<'a>(&self, body: &'a [u8], attribute: &Attribute) -> Option<Sample<'a>> {
        let has = |part: u64| attribute.sample_type & part != 0;
        let mut at = 0;
        let mut skip = |there: bool| {
            let place = at;
            at += if there { 8 } else { 0 };
            there.then_some(place)
        };
        skip(has(part::IDENTIFIER));
        skip(has(part::IP));
        skip(has(part::TID));
        let time = skip(has(part::TIME));
        skip(has(part::ADDR));
        skip(has(part::ID));
        skip(has(part::STREAM_ID));
        let cpu = skip(has(part::CPU));
        skip(has(part::PERIOD));
        let mut sample = Sample {
            at: time.and_then(|place| self.order.number(body, place, 8)),
            cpu: cpu.and_then(|place| self.order.number(body, place, 4)).map(|cpu| cpu as u32),
            raw: None,
        };
        if has(part::READ) {
            at += self.read_length(body, at, attribute.read_format)?;
        }
        if has(part::CALLCHAIN) {
            let count = usize::try_from(self.order.number(body, at, 8)?).ok()?;
            at = at.checked_add(8)?.checked_add(count.checked_mul(8)?)?;
        }
        if has(part::RAW) {
            let size = self.order.number(body, at, 4)? as usize;
            sample.raw = Some(body.get(at + 4..(at + 4).checked_add(size)?)?);
        }
        Some(sample)
    }

    fn read_length(&self, body: &[u8], at: usize, format: u64) -> Option<usize> {
        let has = |part: u64| usize::from(format & part != 0);
        let times = has(read::ENABLED) + has(read::RUNNING);
        if format & read::GROUP == 0 {
            return Some(8 * (1 + times + has(read::ID) + has(read::LOST)));
        }
        let count = usize::try_from(self.order.number(body, at, 8)?).ok()?;
        count.checked_mul(8 * (1 + has(read::ID) + has(read::LOST)))?.checked_add(8 * (1 + times))
    }

    /// Time and CPU at the end of a record that is no sample (`sample_id_all`).
    fn sample_id(&self, body: &[u8]) -> Option<(u64, Option<u32>)> {
        let attribute = self.attributes.first().filter(|attribute| attribute.sample_id_all)?;
        let parts = [part::TID, part::TIME, part::ID, part::STREAM_ID, part::CPU, part::IDENTIFIER];
        let there: Vec<u64> = parts.into_iter().filter(|part| attribute.sample_type & part != 0).collect();
        let start = body.len().checked_sub(8 * there.len())?;
        let of = |part: u64, size| {
            let index = there.iter().position(|there| *there == part)?;
            self.order.number(body, start + 8 * index, size)
        };
        Some((of(part::TIME, 8)?, of(part::CPU, 4).map(|cpu| cpu as u32)))
    }
}

/// Records that wait until nothing older can come.
#[derive(Default)]
struct Rounds<'a> {
    waiting: Vec<(u64, Record<'a>)>,
    /// The latest time of the rounds so far, and of those before the last one.
    latest: u64,
    settled: u64,
}

impl<'a> Rounds<'a> {
    fn add(&mut self, at: u64, record: Record<'a>) {
        self.latest = self.latest.max(at);
        self.waiting.push((at, record));
    }

    fn finished(
        &mut self,
        each: &mut dyn FnMut(&Record<'_>) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        let settled = std::mem::replace(&mut self.settled, self.latest);
        self.emit(settled, each)
    }

    fn flush(
        &mut self,
        each: &mut dyn FnMut(&Record<'_>) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        self.emit(u64::MAX, each)
    }

    fn emit(
        &mut self,
        until: u64,
        each: &mut dyn FnMut(&Record<'_>) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        self.waiting.sort_by_key(|(at, _)| *at);
        let ready = self.waiting.partition_point(|(at, _)| *at <= until);
        self.waiting.drain(..ready).try_for_each(|(_, record)| each(&record))
    }
}
