//! An import that goes into a file as it is read: memory does not grow with the length of the
//! trace.
//!
//! The file of a recording begins with its header, which is known when the trace ends. Until then
//! the events wait as compressed blocks, 3 to 4 bytes each. A second thread compresses while the
//! first one reads.

use super::collect::Take;
use super::{ImportOptions, Input, Summary, decode};
use crate::repair::Unwritten;
use crate::{Packed, Recording, TraceError, Writer};
use schedlab_model::{Ns, SchedEvent};
use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Blocks on their way to the compressor: about 2.5 MB.
const QUEUE: usize = 4;

/// What an import wrote.
#[derive(Clone, Debug)]
pub struct Written {
    /// What was left out, lost or odd.
    pub summary: Summary,
    /// The recording without its events, and how many it has, as a reader of the file finds them.
    /// `None`: only reading it tells, because its events are out of order, or it is larger than
    /// what is read.
    pub recording: Option<(Recording, usize)>,
}

/// Reads a trace of any kind and writes it as a recording. The events are written as the trace has
/// them; what is repaired is repaired, and counted, whenever the recording is read.
///
/// # Errors
/// As [`read`](super::read), and what the writer says.
pub fn write(
    input: Input<'_>,
    out: impl Write,
    level: i32,
    options: ImportOptions,
) -> Result<Written, TraceError> {
    let (sender, receiver) = sync_channel(QUEUE);
    let (decoded, compressed) = thread::scope(|scope| {
        let compressor = scope.spawn(move || compress(&receiver, level));
        let mut queue = Queue(sender);
        let decoded = decode(input, options, &mut queue);
        drop(queue);
        let ended = || Err(TraceError::Option("the thread that compresses ended".to_owned()));
        (decoded, compressor.join().unwrap_or_else(|_| ended()))
    });
    let (mut header, duration, mut summary) = decoded?;
    header.repairs.misordered = summary.misordered;
    header.repairs.duplicates = summary.duplicates;
    summary.repairs = header.repairs.clone();
    let (blocks, unwritten) = compressed?;
    let duration = blocks.iter().map(Packed::last).fold(duration, Ns::max);
    let mut writer = Writer::with_level(out, &header, level)?;
    for block in blocks {
        writer.append(&block)?;
    }
    writer.finish(duration)?;
    let recording = unwritten.finish(&header, duration);
    if let Some((recording, _)) = &recording {
        summary.repairs = recording.repairs.clone();
    }
    Ok(Written { summary, recording })
}

struct Queue(SyncSender<Vec<SchedEvent>>);

impl Take for Queue {
    fn take(&mut self, events: &mut Vec<SchedEvent>) -> Result<(), TraceError> {
        if events.is_empty() {
            return Ok(());
        }
        let block = std::mem::replace(events, Vec::with_capacity(events.capacity()));
        let ended = |_| TraceError::Option("the thread that compresses ended".to_owned());
        self.0.send(block).map_err(ended)
    }
}

fn compress(
    receiver: &Receiver<Vec<SchedEvent>>,
    level: i32,
) -> Result<(Vec<Packed>, Unwritten), TraceError> {
    let mut unwritten = Unwritten::default();
    let pack = |events: Vec<SchedEvent>| {
        unwritten.block(&events);
        Packed::with_level(&events, level).transpose()
    };
    let blocks = receiver.iter().filter_map(pack).collect::<Result<_, _>>()?;
    Ok((blocks, unwritten))
}
