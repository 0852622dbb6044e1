//! `schedlab record`: joins the recorder (`host`) with the file format (`trace`).

use schedlab_host::{
    Backend, FactSource, GroupFacts, HostError, MachineFacts, RecordEnd, RecordRequest, RecordSink,
    RecordStart, RecordingCapabilities, Scope, TaskFacts,
};
use schedlab_model::{EventKind, EventSink, GroupSpec, Ns, SchedEvent};
use schedlab_trace::{Capabilities, Capability, CpuTime, GroupInfo, Header, TaskInfo, TraceError, Writer};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;

/// Blocks are written at least this often, so that a recorder that is killed loses no more.
const BLOCK_EVERY: Ns = Ns(500_000_000);

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The machine does not allow it, or the command is wrong.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The file cannot be written.
    #[error("cannot write {path}: {source}. Choose another file with `-o FILE`")]
    Output {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: TraceError,
    },
}

/// What a recording became.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// What the recorder says at its end.
    pub end: RecordEnd,
    /// How it was recorded.
    pub backend: Backend,
    /// Every task of the machine is in it.
    pub system_wide: bool,
    /// Threads in the task table.
    pub tasks: usize,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// It ended because the file had its greatest allowed size.
    pub full: bool,
}

/// What to record, and into which file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Whom, how and for how long.
    pub request: RecordRequest,
    /// The file. An existing one is replaced once the recording can begin.
    pub output: PathBuf,
    /// A line for the header.
    pub note: String,
    /// The recording ends before the file would be longer than this many bytes. At least [`SMALLEST_FILE`].
    pub max_bytes: Option<u64>,
}

/// No recording fits into less: header, first tasks, index and end mark.
pub const SMALLEST_FILE: u64 = 256 << 10;

/// How a recording stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Time of the last event.
    pub at: Ns,
    /// Events so far.
    pub events: u64,
    /// Events lost so far.
    pub lost: u64,
    /// Bytes written so far.
    pub file_bytes: u64,
}

/// Hears how a recording goes. Called from the recorder's thread: be short.
pub trait Watch {
    /// It begins.
    fn started(&mut self, _: &RecordStart) {}
    /// Every 20 ms.
    fn progress(&mut self, _: &Progress) {}
}

impl Watch for () {}

/// Records. `stop` is asked every 20 ms; see [`schedlab_host::StopSignal`] for Ctrl-C.
///
/// # Errors
/// As [`RecordError`] says. A recording that was begun and then failed leaves a file that opens up to its
/// last block.
pub fn record(plan: &Plan, watch: &mut dyn Watch, stop: &dyn Fn() -> bool) -> Result<Recorded, RecordError> {
    let output = |source| RecordError::Output { path: plan.output.clone(), source };
    let command = match &plan.request.scope {
        Scope::Command(arguments) => arguments.clone(),
        _ => Vec::new(),
    };
    let full = Cell::new(false);
    let mut sink = FileSink {
        plan,
        watch,
        header: Header { command, note: plan.note.clone(), ..Header::default() },
        writer: None,
        error: None,
        tasks: 0,
        so_far: Progress::default(),
        written: Ns::ZERO,
        full: &full,
        backend: Backend::Bpf,
        system_wide: false,
    };
    let result = schedlab_host::record(&plan.request, &mut sink, &|| full.get() || stop());
    if let Some(error) = sink.error.take() {
        return Err(output(error));
    }
    let end = result?;
    if let Some(mut writer) = sink.writer.take() {
        writer.set_cpu_time(CpuTime { busy: end.busy, stolen: end.stolen, recorder: end.recorder_cpu });
        writer.finish(end.duration).map_err(output)?;
    }
    let file_bytes = std::fs::metadata(&plan.output).map_or(0, |metadata| metadata.len());
    Ok(Recorded {
        end,
        backend: sink.backend,
        system_wide: sink.system_wide,
        tasks: sink.tasks,
        file_bytes,
        full: full.get(),
    })
}

struct FileSink<'a> {
    plan: &'a Plan,
    watch: &'a mut dyn Watch,
    header: Header,
    writer: Option<Writer<BufWriter<File>>>,
    error: Option<TraceError>,
    tasks: usize,
    so_far: Progress,
    written: Ns,
    full: &'a Cell<bool>,
    backend: Backend,
    system_wide: bool,
}

impl FileSink<'_> {
    /// Keeps the real error for the caller and stops the recorder with a stand-in.
    fn keep<T>(&mut self, result: Result<T, TraceError>) -> io::Result<T> {
        result.map_err(|error| {
            let text = io::Error::other(error.to_string());
            self.error.get_or_insert(error);
            text
        })
    }
}

impl EventSink for FileSink<'_> {
    fn event(&mut self, event: &SchedEvent) {
        self.so_far.at = event.at;
        self.so_far.events += 1;
        if let EventKind::Lost { count } = event.kind {
            self.so_far.lost += count;
        }
        if let Some(writer) = &mut self.writer {
            writer.event(event);
        }
    }
}

impl RecordSink for FileSink<'_> {
    fn start(&mut self, start: &RecordStart) -> io::Result<()> {
        self.backend = start.capabilities.backend;
        self.system_wide = start.capabilities.system_wide;
        describe(&mut self.header, start);
        let path = &self.plan.output;
        let created = File::create(path)
            .map_err(|source| TraceError::File { path: path.clone(), source })
            .and_then(|file| Writer::new(BufWriter::new(file), &self.header));
        let mut writer = self.keep(created)?;
        if let Some(bytes) = self.plan.max_bytes {
            writer.limit(bytes);
        }
        self.writer = Some(writer);
        self.watch.started(start);
        Ok(())
    }

    fn group(&mut self, group: &GroupFacts) {
        if let Some(writer) = &mut self.writer {
            writer.add_group(group_info(group));
        }
    }

    fn task(&mut self, task: &TaskFacts) {
        let Some(writer) = &mut self.writer else { return };
        if task.id.index() < self.tasks {
            writer.update_task(task.id, task_info(task));
        } else {
            self.tasks += 1;
            writer.add_task(task_info(task));
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.so_far.at.saturating_sub(self.written) >= BLOCK_EVERY {
            self.written = self.so_far.at;
            let flushed = self.writer.as_mut().map_or(Ok(()), Writer::flush);
            self.keep(flushed)?;
        }
        if let Some(writer) = &self.writer {
            self.full.set(writer.is_full());
            self.so_far.file_bytes = writer.bytes_written();
        }
        self.watch.progress(&self.so_far);
        Ok(())
    }
}

fn describe(header: &mut Header, start: &RecordStart) {
    let MachineFacts { kernel, version, arch, model, hz, topology, boot_id, knobs, .. } = &start.machine;
    header.backend = match start.capabilities.backend {
        Backend::Bpf => "bpf".to_owned(),
        other => format!("perf {}", other.name()),
    };
    header.kernel.clone_from(kernel);
    header.kernel_build = format!("{version} {arch}");
    header.machine =
        format!("{model}{}", if start.machine.virtual_machine { " (virtual machine)" } else { "" });
    header.hz = *hz;
    header.topology = topology.clone();
    header.clock = "CLOCK_MONOTONIC".to_owned();
    header.clock_start_ns = start.monotonic_ns;
    header.boot_id.clone_from(boot_id);
    header.knobs = knobs.iter().cloned().collect::<BTreeMap<_, _>>();
    header.knobs.insert("recorder.softirq_rule".to_owned(), start.capabilities.softirq_rule.clone());
    if !start.capabilities.idle_unproven.is_empty() {
        let cpus = start.capabilities.idle_unproven.to_string();
        header.knobs.insert("recorder.idle_wakeups_may_be_missing_on_cpus".to_owned(), cpus);
    }
    // debugfs writes the choices with the chosen one in brackets: "none (voluntary) full".
    header.preempt = header.knobs.get("preempt").and_then(|text| {
        let chosen = text.split_once('(')?.1.split_once(')')?.0;
        Some(chosen.to_owned())
    });
    header.capabilities = capabilities(&start.capabilities);
    header.date = iso8601(start.unix_ns);
}

fn capabilities(of: &RecordingCapabilities) -> Capabilities {
    let all = [
        (Capability::WakeTimes, of.wakeups),
        (Capability::Waker, of.wakers),
        (Capability::IrqContext, of.wakers),
        (Capability::PrevState, of.prev_state),
        (Capability::Preempted, true),
        (Capability::Migrations, of.migrations),
        (Capability::Lifecycle, true),
        (Capability::Steal, of.steal_grain.is_some()),
        (Capability::AllTasks, of.system_wide),
    ];
    Capabilities::of(all.into_iter().filter(|&(_, has)| has).map(|(capability, _)| capability))
}

fn task_info(task: &TaskFacts) -> TaskInfo {
    TaskInfo {
        tid: task.tid,
        pid: task.process,
        comm: task.comm.clone(),
        policy: task.policy,
        nice: task.nice,
        affinity: task.affinity,
        group: task.group,
        slice: task.slice,
        session: None,
        kernel: task.kernel,
        known: task.from == FactSource::Kernel,
    }
}

fn group_info(group: &GroupFacts) -> GroupInfo {
    let spec = GroupSpec {
        name: group.path.clone(),
        parent: group.parent,
        weight: group.weight,
        idle: group.idle,
        bandwidth: group.bandwidth,
        autogroup: group.autogroup_nice.is_some(),
        cap_percent: 0,
        cpus: None,
    };
    GroupInfo { spec }
}

/// `2026-11-21T11:45:03Z` out of nanoseconds since 1970, in the proleptic Gregorian calendar.
fn iso8601(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut day) = (1970, days);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = |year| if leap(year) { 366 } else { 365 };
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_trace::Recording;
    use std::path::Path;

    fn plan(request: RecordRequest, output: &Path) -> Plan {
        Plan { request, output: output.to_owned(), note: "a test".to_owned(), max_bytes: None }
    }

    #[test]
    fn dates() {
        assert_eq!(iso8601(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso8601(1_709_210_096_000_000_000), "2024-02-29T12:34:56Z");
        assert_eq!(iso8601(1_735_689_599_000_000_000), "2024-12-31T23:59:59Z");
    }

    #[test]
    fn an_unwritable_output_is_refused_before_anything_starts() {
        let marker = std::env::temp_dir().join(format!("schedlab-record-{}", std::process::id()));
        let command = vec!["touch".to_owned(), marker.to_string_lossy().into_owned()];
        let request =
            RecordRequest { backend: Some(Backend::Switches), ..RecordRequest::new(Scope::Command(command)) };
        let result = record(&plan(request, Path::new("/no/such/directory/x.slt")), &mut (), &|| false);
        match result {
            Err(RecordError::Output { .. }) => assert!(!marker.exists(), "the command ran"),
            // Not allowed to record on this machine.
            Err(RecordError::Host(HostError::Backend { .. })) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Works for every user: own tasks only.
    #[test]
    fn what_was_recorded_can_be_opened() {
        let path = std::env::temp_dir().join(format!("schedlab-record-{}.slt", std::process::id()));
        let command = ["sh", "-c", "sleep 0.05; sleep 0.05"].map(str::to_owned).to_vec();
        let request =
            RecordRequest { backend: Some(Backend::OwnTasks), ..RecordRequest::new(Scope::Command(command)) };
        match record(&plan(request, &path), &mut (), &|| false) {
            Ok(recorded) => {
                let recording = Recording::open(&path).unwrap();
                assert_eq!(recording.events.len() as u64, recorded.end.events, "{}", recording.repairs);
                assert!(!recording.repairs.cut_off);
                assert_eq!(recording.header.note, "a test");
                assert!(recording.header.tasks.iter().any(|task| task.comm == "sleep"));
            }
            Err(RecordError::Host(HostError::Backend { .. })) => {}
            Err(other) => panic!("{other}"),
        }
        let _ = std::fs::remove_file(path);
    }
}
