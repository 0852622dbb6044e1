//! How the records of each event of a perf.data are laid out: `struct perf_event_attr`
//! (include/uapi/linux/perf_event.h).

use super::records::Order;
use crate::TraceError;

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

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u64 = 2;

/// All events of a file.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    all: Vec<Attribute>,
    /// All lay their records out alike.
    alike: bool,
    /// Event id → attribute, sorted.
    ids: Vec<(u64, usize)>,
}

/// How the records of one event are laid out.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Attribute {
    sample_type: u64,
    read_format: u64,
    sample_id_all: bool,
    /// A tracepoint of which perf recorded only some events (`-F`, `-c`).
    sampled: bool,
    /// Places in a sample, from its first byte.
    time: Option<usize>,
    cpu: Option<usize>,
    /// Where the parts begin whose length differs.
    variable: usize,
}

/// The parts of a sample that are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sample<'a> {
    pub(super) at: Option<u64>,
    pub(super) cpu: Option<u32>,
    pub(super) raw: Option<&'a [u8]>,
}

impl Attributes {
    /// Those in the header of a file: each is a `perf_event_attr` and the place of its ids.
    pub(super) fn of_file(
        entries: &[u8],
        size: u64,
        order: Order,
        section: impl Fn(u64, u64) -> Vec<u8>,
    ) -> Result<Attributes, String> {
        let size = usize::try_from(size).ok().filter(|size| (64 + 16..=4096).contains(size));
        let size = size.ok_or("its attributes have an impossible size")?;
        let mut attributes = Attributes::default();
        for entry in entries.chunks_exact(size) {
            let number = |at| order.number(entry, at, 8).unwrap_or_default();
            attributes.add(entry, &section(number(size - 16), number(size - 8)), order);
        }
        if attributes.all.is_empty() {
            Err("it has no attributes".to_owned())
        } else {
            Ok(attributes)
        }
    }

    /// Adds the attribute of a pipe's record (`PERF_RECORD_HEADER_ATTR`): its own size is in it,
    /// and its ids follow.
    pub(super) fn of_record(&mut self, body: &[u8], order: Order) -> Result<(), TraceError> {
        let size = order.number(body, 4, 4).map_or(0, |size| size as usize);
        if let Some((attribute, ids)) = body.split_at_checked(size.max(64)) {
            self.add(attribute, ids, order);
        }
        self.are_whole()
    }

    fn add(&mut self, entry: &[u8], ids: &[u8], order: Order) {
        let Some(attribute) = Attribute::read(entry, order) else { return };
        let index = self.all.len();
        self.alike = self.all.first().is_none_or(|first| self.alike && first.is_like(&attribute));
        self.all.push(attribute);
        self.ids
            .extend(ids.chunks_exact(8).filter_map(|id| Some((order.number(id, 0, 8)?, index))));
        self.ids.sort_unstable();
    }

    /// An error when perf recorded only some events of a tracepoint.
    pub(super) fn are_whole(&self) -> Result<(), TraceError> {
        if !self.all.iter().any(|attribute| attribute.sampled) {
            return Ok(());
        }
        Err(TraceError::Option(
            "perf recorded only some of the scheduler's events (`perf record -F` or `-c`), from \
             which no schedule can be told: \
             record without -F and -c"
                .to_owned(),
        ))
    }

    /// The parts of a sample; `None`: it is damaged, or of no known event.
    #[inline]
    pub(super) fn sample<'a>(&self, body: &'a [u8], order: Order) -> Option<Sample<'a>> {
        let attribute = if self.alike {
            self.all.first()?
        } else {
            // The first number of a sample is an id where layouts differ
            // (`PERF_SAMPLE_IDENTIFIER`).
            let id = order.number(body, 0, 8)?;
            let at = self.ids.binary_search_by_key(&id, |(id, _)| *id).ok()?;
            self.all.get(self.ids[at].1)?
        };
        attribute.sample(body, order)
    }

    /// Time and CPU at the end of a record that is no sample (`sample_id_all`).
    pub(super) fn sample_id(&self, body: &[u8], order: Order) -> Option<(u64, Option<u32>)> {
        let attribute = self.all.first().filter(|attribute| attribute.sample_id_all)?;
        let parts = [part::TID, part::TIME, part::ID, part::STREAM_ID, part::CPU, part::IDENTIFIER];
        let there: Vec<u64> =
            parts.into_iter().filter(|part| attribute.sample_type & part != 0).collect();
        let start = body.len().checked_sub(8 * there.len())?;
        let of = |part: u64, size| {
            let index = there.iter().position(|there| *there == part)?;
            order.number(body, start + 8 * index, size)
        };
        Some((of(part::TIME, 8)?, of(part::CPU, 4).map(|cpu| cpu as u32)))
    }
}

impl Attribute {
    fn read(entry: &[u8], order: Order) -> Option<Attribute> {
        let number = |at| order.number(entry, at, 8);
        let (flags, is_tracepoint) = (number(40)?, order.number(entry, 0, 4)? == TRACEPOINT);
        let sample_type = number(24)?;
        let mut variable = 0;
        let mut place = |part: u64| {
            let there = sample_type & part != 0;
            let at = variable;
            variable += if there { 8 } else { 0 };
            there.then_some(at)
        };
        for part in [part::IDENTIFIER, part::IP, part::TID] {
            place(part);
        }
        let time = place(part::TIME);
        for part in [part::ADDR, part::ID, part::STREAM_ID] {
            place(part);
        }
        let cpu = place(part::CPU);
        place(part::PERIOD);
        Some(Attribute {
            sampled: is_tracepoint && (flags >> 10 & 1 != 0 || number(16)? > 1),
            sample_type,
            read_format: number(32)?,
            sample_id_all: flags >> 18 & 1 != 0,
            time,
            cpu,
            variable,
        })
    }

    fn is_like(&self, other: &Attribute) -> bool {
        let layout = |attribute: &Attribute| {
            (attribute.sample_type, attribute.read_format, attribute.sample_id_all)
        };
        layout(self) == layout(other)
    }

    #[inline]
    fn sample<'a>(&self, body: &'a [u8], order: Order) -> Option<Sample<'a>> {
        let has = |part: u64| self.sample_type & part != 0;
        let mut sample = Sample {
            at: self.time.and_then(|place| order.number(body, place, 8)),
            cpu: self.cpu.and_then(|place| order.number(body, place, 4)).map(|cpu| cpu as u32),
            raw: None,
        };
        let mut at = self.variable;
        if has(part::READ) {
            at += self.read_length(body, at, order)?;
        }
        if has(part::CALLCHAIN) {
            let count = usize::try_from(order.number(body, at, 8)?).ok()?;
            at = at.checked_add(8)?.checked_add(count.checked_mul(8)?)?;
        }
        if has(part::RAW) {
            let size = order.number(body, at, 4)? as usize;
            sample.raw = Some(body.get(at + 4..(at + 4).checked_add(size)?)?);
        }
        Some(sample)
    }

    fn read_length(&self, body: &[u8], at: usize, order: Order) -> Option<usize> {
        let has = |part: u64| usize::from(self.read_format & part != 0);
        let times = has(read::ENABLED) + has(read::RUNNING);
        if self.read_format & read::GROUP == 0 {
            return Some(8 * (1 + times + has(read::ID) + has(read::LOST)));
        }
        let count = usize::try_from(order.number(body, at, 8)?).ok()?;
        count.checked_mul(8 * (1 + has(read::ID) + has(read::LOST)))?.checked_add(8 * (1 + times))
    }
}
