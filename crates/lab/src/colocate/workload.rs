//! The workloads of a trial (server, batch work, load): given by command, by process or by control
//! group.

use super::error::ColocateError;
use schedlab_host::program::Running;
use schedlab_host::threads;
use schedlab_live::Keeper;
use schedlab_live::actuators::Side;
use schedlab_model::CpuSet;
use schedlab_trace::owner::is_unit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How a workload is given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkloadSource {
    /// A command line for `/bin/sh`, which schedlab starts and ends.
    Command(String),
    /// Running processes, with their descendants.
    Pids(Vec<u32>),
    /// A control group: its folder, or its path such as `/batch`.
    Group(String),
}

impl WorkloadSource {
    /// Reads what serves: a pid, a control group or a systemd unit that runs already, else the
    /// command that starts it.
    pub fn of_server(text: &str) -> WorkloadSource {
        let is_group = text.starts_with('/') && !Path::new(text).is_file() || is_unit(text);
        match text.parse() {
            Ok(pid) => WorkloadSource::Pids(vec![pid]),
            Err(_) if is_group && !text.contains(char::is_whitespace) => {
                WorkloadSource::Group(text.to_owned())
            }
            Err(_) => WorkloadSource::Command(text.to_owned()),
        }
    }
}

/// How long a command has to end by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// A workload of a trial.
#[derive(Debug)]
pub(super) struct Workload {
    /// Its threads.
    pub(super) side: Side,
    /// How often its command ended and was started again.
    pub(super) restarts: usize,
    command: Option<String>,
    /// The CPUs on which its command begins.
    home: CpuSet,
    running: Option<Running>,
}

impl Workload {
    /// Finds the threads of `source`, or starts its command on the CPUs `home`.
    pub(super) fn start(source: &WorkloadSource, home: CpuSet) -> Result<Workload, ColocateError> {
        let mut workload =
            Workload { side: Side::default(), restarts: 0, command: None, home, running: None };
        match source {
            WorkloadSource::Command(command) => {
                workload.command = Some(command.clone());
                workload.start_command()?;
            }
            WorkloadSource::Pids(pids) => {
                for pid in pids {
                    workload.side.processes.push(Keeper::target(*pid)?);
                }
            }
            WorkloadSource::Group(path) => workload.side.group = Some(group_folder(path)?),
        }
        Ok(workload)
    }

    fn start_command(&mut self) -> Result<(), ColocateError> {
        let Some(command) = &self.command else { return Ok(()) };
        let failed = |error: std::io::Error| ColocateError::Input(format!("`{command}`: {error}"));
        // A plain command replaces the shell: its process id is then the command's.
        let plain = !command.contains([';', '&', '|', '<', '>', '(', ')', '\n', '`']);
        let line = if plain { format!("exec {command}") } else { command.clone() };
        // Its output goes to standard error: standard output is the report.
        let error = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::from(error));
        let running = Running::start(&mut shell, &self.home).map_err(failed)?;
        self.side.processes.extend(threads::identity(running.pid()));
        self.running = Some(running);
        Ok(())
    }

    /// Returns the mark of its command, if it has one that runs.
    pub(super) fn mark(&self) -> Option<&str> {
        self.running.as_ref().map(Running::mark)
    }

    /// Returns the exit status of its command, if the command ended.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.running.as_mut()?.ended().ok()??;
        Some(status.to_string())
    }

    /// Starts a command that ended again. Returns whether it did.
    pub(super) fn renew(&mut self) -> Result<bool, ColocateError> {
        if self.ended().is_none() {
            return Ok(false);
        }
        self.side.processes.clear();
        // What it left running is no part of the one that follows.
        self.running = None;
        self.restarts += 1;
        self.start_command()?;
        Ok(true)
    }
}

impl Drop for Workload {
    /// Ends the command that this workload started, with all that the command started.
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.end(PATIENCE);
        }
    }
}

/// Returns the folder of a unit's control group, wherever it is below `folder`.
fn unit_folder(folder: &Path, unit: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let mut folders: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    let own = folders.iter().find(|path| path.file_name().is_some_and(|name| name == unit));
    own.cloned().or_else(|| folders.iter().find_map(|path| unit_folder(path, unit)))
}

/// Returns the folder of a control group in which `cpu.*` files are written.
fn group_folder(path: &str) -> Result<PathBuf, ColocateError> {
    let root = Path::new("/sys/fs/cgroup");
    if is_unit(path) && !path.contains('/') {
        return unit_folder(root, path).ok_or_else(|| {
            ColocateError::Input(format!(
                "there is no control group of the unit {path}: `systemctl status {path}` says \
                 whether it runs"
            ))
        });
    }
    let relative = path.trim_start_matches('/');
    let mut candidates = vec![root.join(relative), root.join("unified").join(relative)];
    candidates
        .extend(["cpu", "cpu,cpuacct"].map(|controller| root.join(controller).join(relative)));
    if Path::new(path).starts_with(root) {
        candidates = vec![PathBuf::from(path)];
    }
    let with = |file: &str| candidates.iter().find(|folder| folder.join(file).exists());
    let found = with("cpu.idle").or_else(|| with("cgroup.procs"));
    found.cloned().ok_or_else(|| {
        ColocateError::Input(format!(
            "there is no control group {path}: give its folder below {}, or its path as in \
             /proc/PID/cgroup",
            root.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_serves_runs_already_or_is_a_command() {
        let command = |text: &str| WorkloadSource::Command(text.to_owned());
        let group = |text: &str| WorkloadSource::Group(text.to_owned());
        for (text, source) in [
            ("957", WorkloadSource::Pids(vec![957])),
            ("redis.service", group("redis.service")),
            ("/system.slice/redis.service", group("/system.slice/redis.service")),
            ("redis-server --port 7777", command("redis-server --port 7777")),
            ("redis-server", command("redis-server")),
            ("/bin/sh", command("/bin/sh")),
            ("/bin/sh -c true", command("/bin/sh -c true")),
        ] {
            assert_eq!(WorkloadSource::of_server(text), source, "{text}");
        }
    }
}
