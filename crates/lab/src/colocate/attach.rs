//! The actuator `elevation`: server and batch work under schedlab's scheduler `layers` on one CPU,
//! by `schedlab attach`. It runs in a process of its own, because its threads are real-time and its
//! memory is locked.

use super::error::ColocateError;
use schedlab_host::{begins_on, die_with_us, threads};
use schedlab_live::RunDir;
use schedlab_live::actuators::Side;
use schedlab_model::{CpuSet, Policy};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long `attach` has to begin to manage the threads, and to give them back.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running `schedlab attach`.
#[derive(Debug)]
pub(super) struct AttachedDriver(Child);

/// Returns why it cannot be tried with these CPUs: the agent manages one, and must have another to
/// be ended from.
pub(super) fn unfit(cpus: &CpuSet, online: &CpuSet) -> Option<String> {
    if cpus.count() != 1 {
        return Some("manages one CPU: give one with --cpus".to_owned());
    }
    online
        .without(cpus)
        .is_empty()
        .then(|| "one CPU must stay unmanaged, and there is one only".to_owned())
}

/// Returns the names of the batch threads: `attach` tells batch from server by name.
fn names(server: &Side, batch: &Side) -> Result<BTreeSet<String>, String> {
    let of =
        |side: &Side| side.threads().into_iter().map(|thread| thread.comm).collect::<BTreeSet<_>>();
    let (server, batch) = (of(server), of(batch));
    match server.intersection(&batch).next() {
        Some(both) => Err(format!(
            "threads of the server and of the batch work are named `{both}`, and `layers` tells \
             them apart by name"
        )),
        None => Ok(batch),
    }
}

impl AttachedDriver {
    /// Starts it on `home`, and waits until a thread of the server is managed.
    pub(super) fn start(
        program: &Path,
        run_dir: &RunDir,
        (cpus, home): (&CpuSet, &CpuSet),
        server: &Side,
        batch: &Side,
    ) -> Result<AttachedDriver, ColocateError> {
        let names = names(server, batch).map_err(ColocateError::Skip)?;
        let pids: Vec<String> =
            server.pids().iter().chain(&batch.pids()).map(u32::to_string).collect();
        let mut command = Command::new(program);
        command.args(["attach", "--scheduler", "layers", "--cpus", &cpus.to_string()]);
        command.args(["--pid", &pids.join(",")]);
        names.iter().for_each(|name| {
            command.args(["--task", &format!("{name}=batch")]);
        });
        command.env("SCHEDLAB_RUN_DIR", run_dir.path());
        // The CPUs of server and batch work may be this process's own setting.
        command.env(schedlab_live::claims::WITHIN, schedlab_live::claims::within_this_process());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        die_with_us(&mut command);
        // `attach` binds its own threads, and refuses CPUs that it may not use.
        begins_on(&mut command, home);
        let failed =
            |error: std::io::Error| ColocateError::Input(format!("starting the agent: {error}"));
        let mut driver = AttachedDriver(command.spawn().map_err(failed)?);
        let begun = Instant::now();
        while !is_managed(server) {
            if let Some(status) = driver.0.try_wait().map_err(failed)? {
                return Err(ColocateError::Skip(driver.message(&status.to_string())));
            }
            if begun.elapsed() > PATIENCE {
                drop(driver);
                return Err(ColocateError::Skip(
                    "the agent did not begin to manage the threads".to_owned(),
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(driver)
    }

    /// Returns the first line of its standard error, or its exit status.
    fn message(&mut self, status: &str) -> String {
        let mut text = String::new();
        if let Some(error) = &mut self.0.stderr {
            let _ = error.read_to_string(&mut text);
        }
        let first = text.lines().next().unwrap_or(status);
        first.trim_start_matches("schedlab: ").to_owned()
    }

    /// Returns whether it still runs.
    pub(super) fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Ends it; all threads are as before then.
    pub(super) fn end(mut self) -> Result<(), ColocateError> {
        let failed =
            |error: std::io::Error| ColocateError::Input(format!("ending the agent: {error}"));
        signal(&self.0, rustix::process::Signal::INT);
        let asked = Instant::now();
        loop {
            match self.0.try_wait().map_err(failed)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(ColocateError::Input(format!(
                        "the agent: {}",
                        self.message(&status.to_string())
                    )));
                }
                None if asked.elapsed() > PATIENCE => {
                    return Err(ColocateError::Input(
                        "the agent does not end: see `schedlab status`".to_owned(),
                    ));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for AttachedDriver {
    /// After another failure: its guardian gives the threads back.
    fn drop(&mut self) {
        if self.runs() {
            let _ = self.0.kill();
            threads::let_die(self.0.id());
            let _ = self.0.wait();
        }
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
        // The process may have ended in this moment.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Returns whether a thread of the server runs in the FIFO band.
fn is_managed(server: &Side) -> bool {
    let mut threads = server.threads().into_iter();
    threads.any(|thread| {
        threads::scheduling(thread.tid).is_ok_and(|now| matches!(now.policy, Policy::Fifo(_)))
    })
}
