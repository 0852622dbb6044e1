//! `schedlab flight`: the flight recorder as a service. The last seconds are kept in memory, rules
//! say what an incident is, each incident becomes a recording, and metrics tell the rest.
//!
//! Where BPF programs may be run the kernel sums up and tells only what a rule may mean
//! ([`schedlab_host::in_kernel`]); elsewhere, and for what the kernel cannot decide, every event
//! comes here. What a rule and a metric mean is in one place for both.
//!
//! Three threads: the recorder's, which evaluates rules and counts; one that writes recordings and
//! runs programs; one that serves metrics. The last two give up what they do not need.

mod classes;
pub mod config;
mod findings;
mod folder;
pub mod log;
pub(crate) mod meters;
pub mod metrics;
pub mod rule;
mod signals;
pub(crate) mod sink;
mod waits;
mod windows;
mod writer;

use config::FlightConfig;
use folder::Folder;
use log::{FlightLine, Level, What};
use meters::Meters;
use schedlab_host::in_kernel::InKernel;
use schedlab_host::privileges::{Duty, give_up_all_but, keep_only, to_write_in};
use schedlab_host::{Backend, HostError, Messages, RecordEnd, RecordRequest, RecordUntil};
use schedlab_model::Ns;
use sink::{FlightSink, Outside, Way};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

pub use signals::FlightSignals;

/// Recordings that wait to be written. More come only when writing takes longer than incidents are
/// apart.
const WAITING: usize = 4;

/// Why the flight recorder does not run.
#[derive(Debug, thiserror::Error)]
pub enum FlightError {
    /// The file cannot be read.
    #[error("{}: {source} (schedlab flight --example prints a file to begin with)", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file says what is not possible.
    #[error("{}{}: {what}", path.display(), line.map_or(String::new(), |line| format!(" line {line}")))]
    Config {
        /// The file.
        path: PathBuf,
        /// The line, where one is to blame.
        line: Option<usize>,
        /// What is wrong, and what is allowed.
        what: String,
    },
    /// The folder for recordings cannot be used.
    #[error("folder {}: {source}: recordings of incidents go there; name another in the file, or make this one writable", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Metrics cannot be served.
    #[error("metrics {address}: {reason}")]
    Metrics {
        /// Where they were to be.
        address: String,
        /// Why not.
        reason: String,
    },
    /// The thread that writes or serves could not give up what it does not need.
    #[error("giving up capabilities (capset): {0}")]
    Privileges(io::Error),
    /// Nothing can be recorded.
    #[error(transparent)]
    Record(#[from] HostError),
}

/// Records until a signal comes or `most` is over, as the file says, and tells `log` what happens,
/// from several threads.
///
/// # Errors
/// As [`FlightError`] says. What goes wrong with one incident is a line of the log.
pub fn fly(
    file: &Path,
    config: FlightConfig,
    most: Option<Ns>,
    signals: &FlightSignals,
    log: &(dyn Fn(FlightLine) + Sync),
) -> Result<RecordEnd, FlightError> {
    let folder = Folder::open(&config.folder)?;
    let server = config.metrics.as_ref().map(metrics::bind).transpose()?;
    let (meters, registry) = match server {
        Some(_) => {
            let (meters, registry) = Meters::new(&config);
            (Some(meters), Arc::new(registry))
        }
        None => (None, Arc::default()),
    };
    let (jobs, to_write) = sync_channel(WAITING);
    let over = AtomicBool::new(false);
    let duties: Vec<Duty> = to_write_in(&config.folder).into_iter().collect();
    let runs = config.run.is_some() || config.rules.iter().any(|rule| rule.run.is_some());
    std::thread::scope(|threads| {
        let (folder, over) = (&folder, &over);
        let writing = threads.spawn(move || {
            // A program that follows an incident is the user's, who may give it rights by a file.
            let given = if runs { keep_only(&duties) } else { give_up_all_but(&duties) };
            writer::write_all(to_write, folder, log);
            given
        });
        let serving = server.as_ref().map(|server| {
            threads.spawn(|| {
                let given = give_up_all_but(&[]);
                server.serve(&registry, &|| over.load(Ordering::Relaxed));
                given
            })
        });
        let disk = || folder.bytes();
        let outside = Outside { file, jobs, log, signals, disk: &disk };
        let request = request(&config, most);
        let (keep, stop) = ((config.kept(), config.memory.0 as usize), || signals.stop());
        let (recorder, way) = way(&config, &request);
        let mut sink = FlightSink::new(config, meters, way, outside);
        let ended = match recorder {
            Some(recorder) => recorder.run(&request, keep, &mut sink, &stop),
            None => schedlab_host::record(&request, &mut sink, &stop),
        };
        // Without systemd it is not heard.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        sink.end();
        drop(sink);
        over.store(true, Ordering::Relaxed);
        let given = [Some(writing), serving].into_iter().flatten().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread failed")))
        });
        let given: io::Result<Vec<()>> = given.collect();
        let end = ended?;
        given.map_err(FlightError::Privileges)?;
        log(FlightLine::new(
            Level::Info,
            What::Stopped,
            format!("recorded {}: {} events, {} lost", end.duration, end.events, end.lost),
        ));
        Ok(end)
    })
}

/// Opens the recorder in the kernel, where that can be and is enough.
fn way(config: &FlightConfig, request: &RecordRequest) -> (Option<InKernel>, Way) {
    let here = |why: String| (None, Way::Here(why));
    if let Some(backend) = config.backend.filter(|backend| *backend != Backend::Bpf) {
        return here(format!("the file asks for {}", backend.name()));
    }
    if config.messages != Messages::Off {
        return here("the file asks for messages".to_owned());
    }
    let recorder = match InKernel::open(request) {
        Ok(recorder) => recorder,
        Err(error) => return here(format!("BPF cannot be used here ({error})")),
    };
    match sink::why_here(&config.rules, recorder.capabilities().limits) {
        Some(why) => here(why),
        None => {
            let classes = recorder.classes();
            (Some(recorder), Way::InKernel(classes))
        }
    }
}

fn request(config: &FlightConfig, most: Option<Ns>) -> RecordRequest {
    let mut request = RecordRequest::new(RecordUntil::Stopped);
    request.duration = most;
    request.backend = config.backend;
    request.messages = config.messages;
    request.whole_machine = true;
    // Recordings are written by another thread.
    request.keep = Some(Vec::new());
    request
}
