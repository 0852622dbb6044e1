//! perf.data: the file of `perf record`, read without perf.
//!
//! The layout is that of tools/perf/Documentation/perf.data-file-format.txt and tools/perf/util/header.c (Linux 6.12); the offsets of
//! tracepoint fields are in the file itself (`HEADER_TRACING_DATA`). Unlike the text of `perf script`, the records say in which
//! context an event was written, so that it is known which task woke which.

mod layout;
mod records;

use super::build::Builder;
use super::event::{Context, Event, Running, Stamp};
use crate::TraceError;
use layout::Layouts;
use records::{Attribute, Order, Record, Sample, walk};
use schedlab_model::{MAX_CPUS, Ns};

/// Bytes of the header of a file that was not written to a pipe (`sizeof(struct perf_file_header)`).
const HEADER: u64 = 104;
/// Feature sections (tools/perf/util/header.h).
const TRACING_DATA: usize = 1;
const HOSTNAME: usize = 3;
const OSRELEASE: usize = 4;
const NRCPUS: usize = 7;
const CMDLINE: usize = 11;
const FEATURES: usize = 256;

/// Reads a whole file into `builder`.
pub(super) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), TraceError> {
    builder.source.backend = "perf-data";
    builder.source.clock = "as recorded by perf";
    let file = File::open(bytes).map_err(damaged)?;
    file.describe(builder);
    let kernel = builder.options().kernel.or(builder.source.kernel.parse().ok());
    let layouts = match file.feature(TRACING_DATA) {
        Some(data) => Layouts::read(data, file.order, kernel).map_err(damaged)?,
        None => {
            return Err(TraceError::Option(
                "this perf.data has no tracepoints: record with `perf record -a -e sched:sched_switch,sched:sched_waking \
                 -- COMMAND`"
                    .to_owned(),
            ));
        }
    };
    if file.attributes.iter().any(|attribute| attribute.sampled) {
        return Err(TraceError::Option(
            "perf recorded only some of the scheduler's events (`perf record -F` or `-c`), from which no schedule can be told: \
             record without -F and -c"
                .to_owned(),
        ));
    }
    let mut emit = |record: &Record<'_>| emit(record, &layouts, file.order, builder);
    let end = walk(file.data, &file.attributes, file.order, &mut emit)?;
    if end.cut_off {
        builder
            .summary()
            .note("The file is cut off: what perf wrote after its last whole record is missing.");
    }
    Ok(())
}

fn damaged(what: String) -> TraceError {
    TraceError::Option(format!(
        "this perf.data is damaged: {what}; `perf script -i FILE | schedlab import -` may read more of it"
    ))
}

fn emit(
    record: &Record<'_>,
    layouts: &Layouts,
    order: Order,
    builder: &mut Builder<'_>,
) -> Result<(), TraceError> {
    match record {
        Record::Comm { pid, tid, comm } => {
            builder.describe(*tid, *pid, &String::from_utf8_lossy(comm));
            Ok(())
        }
        Record::Lost { at, cpu, count } => match cpu.filter(|cpu| (*cpu as usize) < MAX_CPUS) {
            Some(cpu) => builder.event(
                &stamp(*at, cpu, Running::default(), Context::NotShown),
                &Event::Lost { count: *count },
            ),
            None => {
                builder.summary().note(&format!("perf lost {count} events; on which CPU is unknown."));
                Ok(())
            }
        },
        Record::Sample(sample) => of_sample(sample, layouts, order, builder),
    }
}

fn of_sample(
    sample: &Sample<'_>,
    layouts: &Layouts,
    order: Order,
    builder: &mut Builder<'_>,
) -> Result<(), TraceError> {
    let Some(raw) = sample.raw else {
        builder.summary().ignore("samples");
        return Ok(());
    };
    let (Some(cpu), Some(at)) = (sample.cpu, sample.at) else {
        let lacks = if sample.at.is_none() { "time" } else { "CPU" };
        return Err(TraceError::Option(format!(
            "the samples have no {lacks}: record with `perf record -a -T --sample-cpu`"
        )));
    };
    if cpu as usize >= MAX_CPUS {
        return Err(damaged(format!("CPU {cpu} is above {}", MAX_CPUS - 1)));
    }
    let Some(tracepoint) = order.number(raw, 0, 2).and_then(|kind| layouts.get(kind as u32)) else {
        builder.summary().ignore("unknown tracepoint");
        return Ok(());
    };
    let running = Running { comm: "", tid: tracepoint.common_pid(raw, order), pid: None };
    let stamp = stamp(at, cpu, running, tracepoint.context(raw, order));
    match tracepoint.event(raw, order, layouts.kernel) {
        Some(event) => builder.event(&stamp, &event),
        None => {
            builder.summary().damage(0, &tracepoint.name, "its fields are outside of its record");
            builder.event(&stamp, &Event::Lost { count: 1 })
        }
    }
}

const fn stamp<'a>(at: u64, cpu: u32, running: Running<'a>, context: Context) -> Stamp<'a> {
    Stamp { at: Ns(at), cpu, running, context }
}

/// The sections of a file, each inside of it.
struct File<'a> {
    order: Order,
    data: &'a [u8],
    attributes: Vec<Attribute>,
    features: Vec<(usize, &'a [u8])>,
}

impl<'a> File<'a> {
    fn open(bytes: &'a [u8]) -> Result<File<'a>, String> {
        let order = if bytes.starts_with(b"2ELIFREP") { Order::Big } else { Order::Little };
        let number = |at: usize| order.number(bytes, at, 8).ok_or("it ends inside its header");
        let size = number(8)?;
        if size == 16 {
            return Err("it was written to a pipe (`perf record -o -`)".to_owned());
        }
        if size < HEADER {
            return Err(format!("its header claims {size} bytes"));
        }
        let (attribute_size, attributes) = (number(16)?, (number(24)?, number(32)?));
        let (data_at, data_size) = (number(40)?, number(48)?);
        // perf fills in the size when it ends, and writes what the events are behind the data.
        if data_size == 0 {
            return Err(
                "its header has no size of the data: perf was killed before it could end the file".to_owned()
            );
        }
        let data = section(bytes, data_at, data_size).ok_or(
            "it is cut off: the descriptions of its events, at its end, are missing (copy the whole file)",
        )?;
        let attributes =
            section(bytes, attributes.0, attributes.1).ok_or("its attributes are outside of the file")?;
        let attributes = Attribute::read_all(attributes, attribute_size, bytes, order)?;
        let mut features = Vec::new();
        let mut table = data_at.saturating_add(data_size);
        for feature in 0..FEATURES {
            let words = number(72 + feature / 64 * 8)?;
            if words >> (feature % 64) & 1 == 0 {
                continue;
            }
            let entry = section(bytes, table, 16).ok_or("its feature table is outside of the file")?;
            let (at, size) = (order.number(entry, 0, 8), order.number(entry, 8, 8));
            if let Some(found) = at.zip(size).and_then(|(at, size)| section(bytes, at, size)) {
                features.push((feature, found));
            }
            table += 16;
        }
        Ok(File { order, data, attributes, features })
    }

    fn feature(&self, wanted: usize) -> Option<&'a [u8]> {
        self.features.iter().find(|(feature, _)| *feature == wanted).map(|(_, data)| *data)
    }

    /// A feature of one text: its length, and the text with its final zero.
    fn text(&self, feature: usize) -> Option<String> {
        text(self.feature(feature)?, 0, self.order).map(|(text, _)| text)
    }

    fn describe(&self, builder: &mut Builder<'_>) {
        if let Some(release) = self.text(OSRELEASE) {
            builder.source.kernel = release;
        }
        if let Some(name) = self.text(HOSTNAME) {
            builder.source.hostname = name;
        }
        if let Some(cpus) = self.feature(NRCPUS).and_then(|data| self.order.number(data, 0, 4)) {
            builder.at_least_cpus(cpus as u32);
        }
        if let Some(command) = self.feature(CMDLINE).and_then(|data| self.command(data)) {
            builder.source.own_only = super::text::is_own_only(&command);
            builder.source.command = command;
        }
    }

    fn command(&self, data: &[u8]) -> Option<String> {
        let count = self.order.number(data, 0, 4)?;
        let (mut words, mut at) = (Vec::new(), 4);
        for _ in 0..count.min(10_000) {
            let (word, next) = text(data, at, self.order)?;
            words.push(word);
            at = next;
        }
        Some(words.join(" "))
    }
}

/// A length and a text with its final zeros, at `at`; and where the next one begins.
fn text(data: &[u8], at: usize, order: Order) -> Option<(String, usize)> {
    let length = order.number(data, at, 4)? as usize;
    let bytes = data.get(at + 4..(at + 4).checked_add(length)?)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Some((String::from_utf8_lossy(&bytes[..end]).into_owned(), at + 4 + length))
}

fn section(bytes: &[u8], at: u64, size: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(usize::try_from(size).ok()?)?)
}
