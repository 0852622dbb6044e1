//! perf.data: the file of `perf record`, read without perf.
//!
//! The layout is that of tools/perf/Documentation/perf.data-file-format.txt and
//! tools/perf/util/header.c (Linux 6.12); the offsets of tracepoint fields are in the file itself
//! (`HEADER_TRACING_DATA`). Unlike the text of `perf script`, the records say in which context an
//! event was written, so that it is known which task woke which.
//!
//! A file has its descriptions behind its records; what `perf record -o -` writes into a pipe has
//! them as records before the first sample. Either way the records are read piece by piece.

mod attributes;
mod layout;
mod records;
mod waiting;

use super::build::Builder;
use super::event::{Context, Event, Name, Running, Stamp};
use super::formats;
use super::states::KernelVersion;
use crate::TraceError;
use attributes::Attributes;
use layout::Layouts;
use records::{Order, Record, Records, Take};
use schedlab_model::{MAX_CPUS, Ns};
use std::fs::File;
use std::io::{BufRead, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Bytes of the header of a file (`sizeof(struct perf_file_header)`).
const HEADER: u64 = 104;
/// Bytes of the header of a pipe (`sizeof(struct perf_pipe_file_header)`).
const PIPE_HEADER: u64 = 16;
/// Feature sections (tools/perf/util/header.h).
const TRACING_DATA: u64 = 1;
const HOSTNAME: u64 = 3;
const OSRELEASE: u64 = 4;
const NRCPUS: u64 = 7;
const CMDLINE: u64 = 11;
const FEATURES: u64 = 256;

/// Reads what comes as a stream into `builder`: a pipe's as its bytes come, a file is held in
/// memory.
pub(super) fn read(input: &mut dyn BufRead, builder: &mut Builder<'_>) -> Result<(), TraceError> {
    let head = input.fill_buf().map_err(|source| TraceError::Io { doing: "read", source })?;
    let order = order_of(head);
    if order.number(head, 8, 8) == Some(PIPE_HEADER) {
        input.consume(PIPE_HEADER as usize);
        return records(input, Attributes::default(), &mut Emit::new(builder, order));
    }
    let bytes = formats::whole(input)?;
    of_file(&Sections::Bytes(&bytes), builder)
}

/// Reads a file piece by piece.
pub(super) fn read_file(
    file: &File,
    length: u64,
    builder: &mut Builder<'_>,
) -> Result<(), TraceError> {
    of_file(&Sections::File(file, length), builder)
}

/// Whether these first bytes are those of a file, and not of a pipe.
pub(super) fn is_file(head: &[u8]) -> bool {
    is_perf_data(head) && order_of(head).number(head, 8, 8) != Some(PIPE_HEADER)
}

/// Whether these first bytes are those of a perf.data.
pub(super) fn is_perf_data(head: &[u8]) -> bool {
    head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP")
}

fn order_of(head: &[u8]) -> Order {
    if head.starts_with(b"2ELIFREP") { Order::Big } else { Order::Little }
}

fn of_file(sections: &Sections<'_>, builder: &mut Builder<'_>) -> Result<(), TraceError> {
    let header = Header::read(sections).map_err(damaged)?;
    let mut emit = Emit::new(builder, header.order);
    for (feature, at, size) in &header.features {
        if let Some(data) = sections.section(*at, *size) {
            match *feature {
                TRACING_DATA => emit.formats(&data)?,
                feature => emit.feature(feature, &data),
            }
        }
    }
    if emit.layouts.is_none() {
        return Err(no_tracepoints());
    }
    let (at, size) = header.data;
    match *sections {
        Sections::Bytes(bytes) => {
            records(&mut &bytes[at as usize..(at + size) as usize], header.attributes, &mut emit)
        }
        Sections::File(mut file, _) => {
            let failed = |source| TraceError::Io { doing: "read", source };
            file.seek(SeekFrom::Start(at)).map_err(failed)?;
            records(&mut file.take(size), header.attributes, &mut emit)
        }
    }
}

fn records(
    input: &mut dyn Read,
    attributes: Attributes,
    emit: &mut Emit<'_, '_>,
) -> Result<(), TraceError> {
    attributes.are_whole()?;
    let mut records = Records::new(attributes, emit.order);
    records.read(input, emit)?;
    if records.cut_off {
        let note = "The file is cut off: what perf wrote after its last whole record is missing.";
        emit.builder.summary().note(note);
    }
    Ok(())
}

fn damaged(what: String) -> TraceError {
    TraceError::Option(format!(
        "this perf.data is damaged: {what}; `perf script -i FILE | schedlab import -` may read \
         more of it"
    ))
}

fn no_tracepoints() -> TraceError {
    TraceError::Option(
        "this perf.data has no tracepoints: record with `perf record -a -e \
         sched:sched_switch,sched:sched_waking \
         -- COMMAND`"
            .to_owned(),
    )
}

/// Where the parts of a file come from.
enum Sections<'a> {
    Bytes(&'a [u8]),
    /// A file and its length.
    File(&'a File, u64),
}

impl Sections<'_> {
    fn has(&self, at: u64, size: u64) -> bool {
        let length = match self {
            Sections::Bytes(bytes) => bytes.len() as u64,
            Sections::File(_, length) => *length,
        };
        at.checked_add(size).is_some_and(|end| end <= length)
    }

    /// A part of the file; `None`: it is not inside, or cannot be read.
    fn section(&self, at: u64, size: u64) -> Option<Vec<u8>> {
        if !self.has(at, size) {
            return None;
        }
        match self {
            Sections::Bytes(bytes) => Some(bytes[at as usize..(at + size) as usize].to_vec()),
            Sections::File(file, _) => {
                let mut bytes = vec![0; usize::try_from(size).ok()?];
                file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
            }
        }
    }
}

/// What the header of a file says.
struct Header {
    order: Order,
    /// Where the records are: the first byte, and how many; inside the file.
    data: (u64, u64),
    attributes: Attributes,
    /// Number, place and size.
    features: Vec<(u64, u64, u64)>,
}

impl Header {
    fn read(sections: &Sections<'_>) -> Result<Header, String> {
        let bytes = sections.section(0, HEADER).ok_or("it ends inside its header")?;
        let order = order_of(&bytes);
        let number = |at: usize| order.number(&bytes, at, 8).unwrap_or_default();
        if number(8) < HEADER {
            return Err(format!("its header claims {} bytes", number(8)));
        }
        let data = (number(40), number(48));
        // perf fills in the size when it ends, and writes what the events are behind the data.
        if data.1 == 0 {
            return Err(
                "its header has no size of the data: perf was killed before it could end the file"
                    .to_owned(),
            );
        }
        if !sections.has(data.0, data.1) {
            return Err(
                "it is cut off: the descriptions of its events, at its end, are missing (copy the \
                 whole file)"
                    .to_owned(),
            );
        }
        let section = |at, size| sections.section(at, size).unwrap_or_default();
        let entries = sections
            .section(number(24), number(32))
            .ok_or("its attributes are outside of the file")?;
        let attributes = Attributes::of_file(&entries, number(16), order, section)?;
        let mut features = Vec::new();
        let mut table = data.0.saturating_add(data.1);
        for feature in 0..FEATURES {
            if number(72 + feature as usize / 64 * 8) >> (feature % 64) & 1 == 0 {
                continue;
            }
            let entry =
                sections.section(table, 16).ok_or("its feature table is outside of the file")?;
            features.extend(
                order
                    .number(&entry, 0, 8)
                    .zip(order.number(&entry, 8, 8))
                    .map(|(at, size)| (feature, at, size)),
            );
            table += 16;
        }
        Ok(Header { order, data, attributes, features })
    }
}

/// Turns records into events.
struct Emit<'b, 'o> {
    builder: &'b mut Builder<'o>,
    order: Order,
    layouts: Option<Layouts>,
    kernel: Option<KernelVersion>,
}

impl<'b, 'o> Emit<'b, 'o> {
    fn new(builder: &'b mut Builder<'o>, order: Order) -> Emit<'b, 'o> {
        builder.source.backend = "perf-data";
        builder.source.clock = "as recorded by perf";
        let kernel = builder.options().kernel;
        Emit { builder, order, layouts: None, kernel }
    }
}

impl Take for Emit<'_, '_> {
    fn wants(
        &mut self,
        at: Option<u64>,
        cpu: Option<u32>,
        raw: Option<&[u8]>,
    ) -> Result<bool, TraceError> {
        let Some(raw) = raw else {
            self.builder.summary().ignore("samples");
            return Ok(false);
        };
        let layouts = self.layouts.as_ref().ok_or_else(no_tracepoints)?;
        let (Some(cpu), Some(_)) = (cpu, at) else {
            let lacks = if at.is_none() { "time" } else { "CPU" };
            return Err(TraceError::Option(format!(
                "the samples have no {lacks}: record with `perf record -a -T --sample-cpu`"
            )));
        };
        if cpu as usize >= MAX_CPUS {
            return Err(damaged(format!("CPU {cpu} is above {}", MAX_CPUS - 1)));
        }
        match layouts.tracepoint(raw, self.order) {
            None => self.builder.summary().ignore("unknown tracepoint"),
            Some(tracepoint) if tracepoint.is_other() => {
                self.builder.summary().ignore(&tracepoint.name)
            }
            Some(_) => return Ok(true),
        }
        Ok(false)
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), TraceError> {
        match *record {
            Record::Comm { pid, tid, comm } => {
                self.builder.describe(tid, pid, &String::from_utf8_lossy(comm));
                Ok(())
            }
            Record::Lost { at, cpu, count } => match cpu.filter(|cpu| (*cpu as usize) < MAX_CPUS) {
                Some(cpu) => {
                    let stamp = stamp(at, cpu, Running::default(), Context::NotShown);
                    self.builder.event(&stamp, &Event::Lost { count })
                }
                None => {
                    let note = format!("perf lost {count} events; on which CPU is unknown.");
                    self.builder.summary().note(&note);
                    Ok(())
                }
            },
            Record::Sample { at, cpu, raw } => {
                let tracepoint =
                    self.layouts.as_ref().and_then(|layouts| layouts.tracepoint(raw, self.order));
                let Some(tracepoint) = tracepoint else { return Ok(()) };
                let running = Running {
                    comm: Name::default(),
                    tid: tracepoint.common_pid(raw, self.order),
                    pid: None,
                };
                let stamp = stamp(at, cpu, running, tracepoint.context(raw, self.order));
                match tracepoint.event(raw, self.order, self.kernel) {
                    Some(event) => self.builder.event(&stamp, &event),
                    None => {
                        let why = "its fields are outside of its record";
                        self.builder.summary().damage(0, &tracepoint.name, why);
                        self.builder.event(&stamp, &Event::Lost { count: 1 })
                    }
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.builder.is_over()
    }

    fn formats(&mut self, data: &[u8]) -> Result<(), TraceError> {
        self.layouts = Some(Layouts::read(data, self.order).map_err(damaged)?);
        Ok(())
    }

    fn feature(&mut self, feature: u64, data: &[u8]) {
        let one = || text(data, 0, self.order).map(|(text, _)| text);
        match feature {
            OSRELEASE => {
                self.builder.source.kernel = one().unwrap_or_default();
                self.kernel =
                    self.builder.options().kernel.or(self.builder.source.kernel.parse().ok());
            }
            HOSTNAME => self.builder.source.hostname = one().unwrap_or_default(),
            NRCPUS => {
                let cpus = self.order.number(data, 0, 4).unwrap_or_default();
                self.builder.at_least_cpus(cpus as u32);
            }
            CMDLINE => {
                if let Some(command) = command(data, self.order) {
                    self.builder.source.own_only = super::text::is_own_only(&command);
                    self.builder.source.command = command;
                }
            }
            _ => {}
        }
    }
}

const fn stamp<'a>(at: u64, cpu: u32, running: Running<'a>, context: Context) -> Stamp<'a> {
    Stamp { at: Ns(at), cpu, running, context }
}

/// The words of a command line.
fn command(data: &[u8], order: Order) -> Option<String> {
    let count = order.number(data, 0, 4)?;
    let (mut words, mut at) = (Vec::new(), 4);
    for _ in 0..count.min(10_000) {
        let (word, next) = text(data, at, order)?;
        words.push(word);
        at = next;
    }
    Some(words.join(" "))
}

/// A length and a text with its final zeros, at `at`; and where the next one begins.
fn text(data: &[u8], at: usize, order: Order) -> Option<(String, usize)> {
    let length = order.number(data, at, 4)? as usize;
    let bytes = data.get(at + 4..(at + 4).checked_add(length)?)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Some((String::from_utf8_lossy(&bytes[..end]).into_owned(), at + 4 + length))
}
