//! Records that wait until nothing older can come.

use super::records::{Record, Take};
use crate::TraceError;

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Sample,
    Comm,
    Lost,
    /// Lost, and on which CPU is not known.
    LostAnywhere,
}

/// A record: when it was written, and where its content waits.
#[derive(Clone, Copy, Debug)]
struct WaitingRecord {
    at: u64,
    start: u32,
    length: u32,
    cpu: u32,
    kind: Kind,
}

/// Records that wait, with the parts of them that are used.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    records: Vec<WaitingRecord>,
    store: Vec<u8>,
    /// The latest time of the rounds so far, and of those before the last one.
    latest: u64,
    settled: u64,
}

impl Waiting {
    #[inline]
    pub(super) fn sample(&mut self, at: u64, cpu: u32, raw: &[u8]) -> Result<(), TraceError> {
        self.add(Kind::Sample, at, cpu, &[raw])
    }

    pub(super) fn comm(&mut self, pid: u32, tid: u32, comm: &[u8]) -> Result<(), TraceError> {
        self.add(Kind::Comm, 0, 0, &[&pid.to_le_bytes(), &tid.to_le_bytes(), comm])
    }

    pub(super) fn lost(&mut self, at: u64, cpu: Option<u32>, count: u64) -> Result<(), TraceError> {
        let kind = if cpu.is_some() { Kind::Lost } else { Kind::LostAnywhere };
        self.add(kind, at, cpu.unwrap_or_default(), &[&count.to_le_bytes()])
    }

    #[inline]
    fn add(&mut self, kind: Kind, at: u64, cpu: u32, parts: &[&[u8]]) -> Result<(), TraceError> {
        let Ok(start) = u32::try_from(self.store.len()) else {
            let what =
                "more than 4 GiB of its records have to be put in order before any can be read"
                    .to_owned();
            return Err(TraceError::TooLarge { what });
        };
        parts.iter().for_each(|part| self.store.extend_from_slice(part));
        let length = (self.store.len() - start as usize) as u32;
        self.latest = self.latest.max(at);
        self.records.push(WaitingRecord { at, start, length, cpu, kind });
        Ok(())
    }

    /// All rings were visited.
    pub(super) fn finished(&mut self, take: &mut dyn Take) -> Result<(), TraceError> {
        let settled = std::mem::replace(&mut self.settled, self.latest);
        self.emit(settled, take)
    }

    /// Nothing more comes.
    pub(super) fn flush(&mut self, take: &mut dyn Take) -> Result<(), TraceError> {
        self.emit(u64::MAX, take)
    }

    fn emit(&mut self, until: u64, take: &mut dyn Take) -> Result<(), TraceError> {
        // Each ring is in order: a few runs are merged.
        self.records.sort_by_key(|waiting| waiting.at);
        let ready = self.records.partition_point(|waiting| waiting.at <= until);
        for waiting in &self.records[..ready] {
            let WaitingRecord { at, cpu, .. } = *waiting;
            let content = &self.store[waiting.start as usize..][..waiting.length as usize];
            let record = match (waiting.kind, content) {
                (Kind::Sample, raw) => Record::Sample { at, cpu, raw },
                (Kind::Comm, &[a, b, c, d, e, f, g, h, ref comm @ ..]) => {
                    let (pid, tid) =
                        (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
                    Record::Comm { pid, tid, comm }
                }
                (kind, &[a, b, c, d, e, f, g, h]) => {
                    let count = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
                    Record::Lost { at, cpu: (kind == Kind::Lost).then_some(cpu), count }
                }
                _ => continue,
            };
            take.record(&record)?;
        }
        self.records.drain(..ready);
        self.shrink();
        Ok(())
    }

    /// Takes off what no record uses any more.
    fn shrink(&mut self) {
        let Some(used) = self.records.iter().map(|waiting| waiting.start).min() else {
            return self.store.clear();
        };
        if used as usize >= self.store.len() / 2 {
            self.store.drain(..used as usize);
            self.records.iter_mut().for_each(|waiting| waiting.start -= used);
        }
    }
}
