//! The keeper: it keeps, in the journal, what a thread or a control group was before schedlab
//! changed it, makes the change, and restores it. There is no other way to change a thread.

mod slack;

use crate::claims::Claims;
use crate::guardian::{Guardian, GuardianOptions};
use crate::held::{Held, note_left};
use crate::journal::{Confined, Entry, Journal, Setting};
use crate::reserve::Reserve;
use crate::restore::{self, Report};
use crate::{LiveError, RunDir};
use rustix::process::Signal;
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_model::CpuSet;
use slack::Slacks;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// Where a keeper writes, and what its guardian watches.
#[derive(Clone, Debug)]
pub struct KeeperOptions {
    /// Where the journal goes.
    pub run_dir: RunDir,
    /// What the changes are for; `schedlab status` prints it.
    pub purpose: String,
    /// The program that becomes the guardian: `schedlab` itself.
    pub program: PathBuf,
    /// See [`GuardianOptions::silence`].
    pub silence: Option<Duration>,
    /// See [`GuardianOptions::priority`].
    pub priority: Option<u8>,
    /// See [`GuardianOptions::starve`].
    pub starve: Option<Duration>,
}

/// Changes threads and control groups, and restores everything: at [`Keeper::finish`], when it is
/// dropped, and through the guardian when this process dies.
#[derive(Debug)]
pub struct Keeper {
    journal: Option<Journal>,
    guardian: Option<Guardian>,
    reserve: Option<Reserve>,
    claims: Claims,
    slacks: Slacks,
}

/// What the kernel makes of a group's weight when the group is made idle, and when that is over:
/// WEIGHT_IDLEPRIO (3) and NICE_0_LOAD (1024) of `sched_group_set_idle`, kernel/sched/fair.c
/// (Linux 5.15 and later), as versions 1 and 2 of the control groups show them.
const WEIGHTS: [(&str, [&str; 2]); 2] =
    [("cpu.shares", ["3", "1024"]), ("cpu.weight", ["0", "100"])];
/// So long an owner tries to restore what cannot be, before its guardian does.
const TRIES: Duration = Duration::from_millis(300);

impl Keeper {
    /// Begins a journal and starts its guardian. Nothing is changed yet.
    ///
    /// # Errors
    /// When either cannot be done.
    pub fn start(options: &KeeperOptions) -> Result<Keeper, LiveError> {
        let reserve = Reserve::hold().map_err(LiveError::io("descriptors in reserve"))?;
        let journal = Journal::create(&options.run_dir, &options.purpose)?;
        let watch = GuardianOptions {
            journal: journal.path().to_owned(),
            memory: -1,
            silence: options.silence,
            priority: options.priority,
            starve: options.starve,
            second: false,
        };
        let nothing_left = |_: &LiveError| drop(fs::remove_file(journal.path()));
        let guardian =
            Guardian::start(&options.program, &watch, &journal).inspect_err(nothing_left)?;
        match claims(&journal, options, &guardian) {
            Ok(claims) => {
                let (reserve, guardian) = (Some(reserve), Some(guardian));
                Ok(Keeper {
                    journal: Some(journal),
                    guardian,
                    reserve,
                    claims,
                    slacks: Slacks::default(),
                })
            }
            Err(error) => {
                guardian.dismiss();
                nothing_left(&error);
                Err(error)
            }
        }
    }

    /// Returns the journal's path; `None`: everything is restored.
    pub fn journal(&self) -> Option<&Path> {
        self.journal.as_ref().map(Journal::path)
    }

    /// Returns the guardian's process id.
    pub fn guardian(&self) -> Option<u32> {
        self.guardian.as_ref().map(Guardian::pid)
    }

    /// Returns the identity of thread `tid`, if schedlab may change it.
    ///
    /// # Errors
    /// When it does not exist or belongs to the kernel.
    pub fn target(tid: u32) -> Result<Identity, LiveError> {
        let thread = threads::identity(tid).ok_or(LiveError::NoThread { tid })?;
        if thread.kernel {
            Err(LiveError::KernelThread { tid, comm: thread.comm })
        } else {
            Ok(thread)
        }
    }

    /// Sets policy, nice value and slice of a thread.
    ///
    /// # Errors
    /// When the thread is gone, the kernel refuses, or the journal cannot be written.
    pub fn schedule(&mut self, thread: &Identity, wanted: &Scheduling) -> Result<(), LiveError> {
        self.declare(thread, Setting::To(*wanted))?;
        self.apply(thread, wanted)
    }

    /// Journals that the scheduling of a thread will be changed within `set`, for
    /// [`Keeper::apply`].
    ///
    /// # Errors
    /// When the thread is gone, or the journal cannot be written.
    pub fn declare(&mut self, thread: &Identity, set: Setting) -> Result<(), LiveError> {
        let before = threads::scheduling(thread.tid)
            .map_err(|error| refused("the policy", "sched_getattr", thread, error))?;
        self.declare_from(thread, before, set)
    }

    /// As [`Keeper::declare`], for a thread that was born under management: `before` is what it
    /// gets back.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn declare_from(
        &mut self,
        thread: &Identity,
        before: Scheduling,
        set: Setting,
    ) -> Result<(), LiveError> {
        let timer_slack = self.slacks.of_thread(thread, &before);
        self.note(&Entry::Scheduling { thread: thread.clone(), before, set, timer_slack })
    }

    /// Sets what was declared before. Makes no file operation: fit for an agent's loop.
    ///
    /// # Errors
    /// When the thread is gone or the kernel refuses.
    pub fn apply(&self, thread: &Identity, wanted: &Scheduling) -> Result<(), LiveError> {
        threads::set_scheduling(thread.tid, wanted)
            .map_err(|error| refused("the policy", "sched_setattr", thread, error))
    }

    /// Sets where a thread may run.
    ///
    /// # Errors
    /// When the thread is gone, none of the CPUs can be used, or the journal cannot be written.
    pub fn confine(&mut self, thread: &Identity, cpus: &CpuSet) -> Result<(), LiveError> {
        let before = threads::affinity(thread.tid)
            .map_err(|error| refused("the affinity", "sched_getaffinity", thread, error))?;
        self.confine_from(thread, before, cpus)
    }

    /// As [`Keeper::confine`], for a thread that was born under management: `before` is what it
    /// gets back.
    ///
    /// # Errors
    /// As for [`Keeper::confine`].
    pub fn confine_from(
        &mut self,
        thread: &Identity,
        before: CpuSet,
        cpus: &CpuSet,
    ) -> Result<(), LiveError> {
        let follows = threads::follows_cpuset(thread.tid, &before);
        self.note(&Entry::Affinity {
            thread: thread.clone(),
            before,
            set: *cpus,
            one_of: false,
            follows,
        })?;
        self.set_affinity(thread, cpus)
    }

    /// As [`Keeper::confine_from`], where the thread may be sent to other CPUs of `within` later on
    /// without another entry. `before` is what it gets back, `present` what it has. False: it has
    /// another one by now, and keeps that.
    ///
    /// # Errors
    /// As for [`Keeper::confine`].
    pub fn confine_within(
        &mut self,
        thread: &Identity,
        (before, present): (CpuSet, CpuSet),
        within: Confined,
        cpus: &CpuSet,
    ) -> Result<bool, LiveError> {
        let Confined { cpus: set, one_of } = within;
        let follows = threads::follows_cpuset(thread.tid, &before);
        self.note(&Entry::Affinity { thread: thread.clone(), before, set, one_of, follows })?;
        // The disk took its time.
        if threads::affinity(thread.tid).is_ok_and(|now| now != present) {
            return Ok(false);
        }
        self.set_affinity(thread, cpus).map(|()| true)
    }

    fn set_affinity(&self, thread: &Identity, cpus: &CpuSet) -> Result<(), LiveError> {
        threads::set_affinity(thread.tid, cpus)
            .map_err(|error| refused("the affinity", "sched_setaffinity", thread, error))
    }

    /// Journals that a thread is as it is because it, or another process, wanted that: nothing of
    /// it is restored, until it is changed again.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn let_go(&mut self, thread: &Identity) -> Result<(), LiveError> {
        self.slacks.give_back(thread);
        self.note(&Entry::LetGo { thread: thread.clone() })
    }

    /// Journals that threads which a process makes from now on are managed, too: they get back what
    /// its first thread has now.
    ///
    /// # Errors
    /// When the process is gone, or the journal cannot be written.
    pub fn adopt_process(
        &mut self,
        thread: &Identity,
        set: Setting,
        confined: Option<CpuSet>,
    ) -> Result<(), LiveError> {
        let before = threads::scheduling(thread.tid)
            .map_err(|error| refused("the policy", "sched_getattr", thread, error))?;
        let confined = confined.map(|cpus| Confined { cpus, one_of: false });
        let affinity = threads::affinity(thread.tid)
            .map_err(|error| refused("the affinity", "sched_getaffinity", thread, error))?;
        self.adopt_from(thread, (before, affinity), set, confined)
    }

    /// As [`Keeper::adopt_process`], for a process that was born under management: `before` is what
    /// its threads get back.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn adopt_from(
        &mut self,
        thread: &Identity,
        (before, affinity): (Scheduling, CpuSet),
        set: Setting,
        confined: Option<Confined>,
    ) -> Result<(), LiveError> {
        let (thread, one_of) = (thread.clone(), confined.is_some_and(|confined| confined.one_of));
        let confined = confined.map(|confined| confined.cpus);
        let (timer_slack, follows) = (
            self.slacks.of_process(&thread, &before),
            threads::follows_cpuset(thread.tid, &affinity),
        );
        self.note(&Entry::Process {
            thread,
            before,
            affinity,
            set,
            confined,
            one_of,
            timer_slack,
            follows,
        })
    }

    /// Journals that a process was given back while others stay managed.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn released(&mut self, process: u32) -> Result<(), LiveError> {
        self.slacks.give_process_back(process);
        self.note(&Entry::Released { process })?;
        self.claims.release(process);
        Ok(())
    }

    /// Journals that a command which this process started ends with it: all processes with this
    /// mark in their environment.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn ends_with(&mut self, mark: &str) -> Result<(), LiveError> {
        self.note(&Entry::Command { mark: mark.to_owned() })
    }

    /// Stops a process (SIGSTOP) until it is restored. False: it was stopped before, and stays so.
    ///
    /// # Errors
    /// When it is gone, belongs to another user, or the journal cannot be written.
    pub fn stop(&mut self, thread: &Identity) -> Result<bool, LiveError> {
        if threads::is_stopped(thread.process) {
            return Ok(false);
        }
        self.note(&Entry::Stopped { thread: thread.clone() })?;
        thread
            .signal(Signal::STOP)
            .map_err(|error| refused("the process", "kill", thread, error))?;
        Ok(true)
    }

    /// Writes to a file of a control group.
    ///
    /// # Errors
    /// When the path is not such a file, the file cannot be written, or the journal cannot.
    pub fn write_group(&mut self, path: &Path, content: &str) -> Result<(), LiveError> {
        let failed = |source| LiveError::Group { path: path.to_owned(), source };
        if !restore::is_group_file(path) {
            return Err(failed(io::Error::from(io::ErrorKind::InvalidInput)));
        }
        let before = fs::read_to_string(path).map_err(failed)?;
        if let Some(folder) = path.parent() {
            self.claims.take_group(folder)?;
        }
        self.note(&Entry::File { path: path.to_owned(), before, set: content.to_owned() })?;
        self.note_weight(path)?;
        fs::write(path, content).map_err(failed)
    }

    /// Journals what the kernel changes together with a file: a group that is made idle, and is so
    /// no longer, has the default weight.
    fn note_weight(&mut self, path: &Path) -> Result<(), LiveError> {
        if path.file_name().is_none_or(|name| name != "cpu.idle") {
            return Ok(());
        }
        for (file, values) in WEIGHTS {
            let path = path.with_file_name(file);
            let Ok(before) = fs::read_to_string(&path) else { continue };
            for set in values {
                let (path, before) = (path.clone(), before.clone());
                self.note(&Entry::File { path, before, set: set.to_owned() })?;
            }
        }
        Ok(())
    }

    /// Makes a control group, which restoring removes with all its members. Its name must begin
    /// with [`restore::OWN_GROUP`], so that no other group is ever removed.
    ///
    /// # Errors
    /// When its name or place does not fit, it exists, it cannot be made, or the journal cannot be
    /// written.
    pub fn make_group(&mut self, path: &Path) -> Result<(), LiveError> {
        let failed = |source| LiveError::Group { path: path.to_owned(), source };
        if !restore::is_own_group(path) {
            return Err(failed(io::Error::from(io::ErrorKind::InvalidInput)));
        }
        if path.exists() {
            return Err(failed(io::Error::from(io::ErrorKind::AlreadyExists)));
        }
        self.note(&Entry::Made { path: path.to_owned() })?;
        fs::create_dir(path).map_err(failed)
    }

    /// Returns an end of the pipe to the guardian, for the thread whose silence counts; see
    /// [`crate::guardian::send_heartbeat`].
    ///
    /// # Errors
    /// When the guardian is gone.
    pub fn heartbeat_pipe(&self) -> Result<OwnedFd, LiveError> {
        let guardian = self.guardian.as_ref().ok_or_else(LiveError::no_guardian)?;
        guardian.heartbeat_pipe().map_err(LiveError::io("the pipe to the guardian"))
    }

    /// Tells the guardian that this process lives. To be called more often than the agreed silence.
    ///
    /// # Errors
    /// When the guardian is gone: everything is restored then.
    pub fn beat(&mut self) -> Result<(), LiveError> {
        if self.guardian.as_mut().is_some_and(Guardian::beat) {
            return Ok(());
        }
        Err(self.unguarded()?)
    }

    /// Restores everything because the guardian is gone; returns the error that says so.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn unguarded(&mut self) -> Result<LiveError, LiveError> {
        let Some(mut guardian) = self.guardian.take() else { return Ok(LiveError::no_guardian()) };
        guardian.ease();
        self.put_back()?;
        let how = guardian.end();
        guardian.dismiss();
        Ok(LiveError::Unguarded { how })
    }

    /// Restores everything and ends the guardian. What this process could not restore the guardian
    /// tries; what that one could not either is in the report, and in
    /// [`left_behind`](crate::left_behind).
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn finish(mut self) -> Result<Report, LiveError> {
        self.put_back()
    }

    fn note(&mut self, entry: &Entry) -> Result<(), LiveError> {
        if let Entry::Scheduling { thread, .. }
        | Entry::Affinity { thread, .. }
        | Entry::Stopped { thread }
        | Entry::Process { thread, .. } = entry
        {
            self.claims.take(thread)?;
        }
        self.journal.as_mut().ok_or_else(LiveError::no_guardian)?.note(entry)
    }

    fn put_back(&mut self) -> Result<Report, LiveError> {
        self.guardian.iter_mut().for_each(Guardian::ease);
        let (Some(journal), Some(reserve)) = (self.journal.take(), self.reserve.take()) else {
            return Ok(Report::default());
        };
        let path = journal.path().to_owned();
        let mut result = Held::by_owner(journal, reserve).give_back(TRIES);
        let complete = result.as_ref().is_ok_and(Report::complete);
        let guardian = self.guardian.take();
        if complete {
            guardian.into_iter().for_each(Guardian::dismiss);
        } else if guardian.is_some_and(Guardian::take_over) {
            let mut report = result.unwrap_or_default();
            report.done_by_another();
            result = Ok(report);
        } else {
            note_left(&path, &result);
        }
        result
    }
}

/// Begins the claims of a journal, by its owner and guardian.
fn claims(
    journal: &Journal,
    options: &KeeperOptions,
    guardian: &Guardian,
) -> Result<Claims, LiveError> {
    let pid = std::process::id();
    let owner = threads::identity(pid).ok_or(LiveError::NoThread { tid: pid })?;
    let guardian = threads::identity(guardian.pid());
    Claims::new(journal.path(), &options.purpose, &owner, guardian.as_ref())
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // What could not be restored is told at the end of the program; the journal stays, and
        // `schedlab restore` reads it.
        let _ = self.put_back();
    }
}

/// Returns what an error of `call` means. A thread may end between the look at it and the call,
/// which is no fault: that is [`LiveError::NoThread`], whatever the kernel answers about a thread
/// at its end.
fn refused(
    what: &'static str,
    call: &'static str,
    thread: &Identity,
    source: io::Error,
) -> LiveError {
    let no_such_thread = source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
    if no_such_thread || !thread.lives() || thread.is_ending() {
        return LiveError::NoThread { tid: thread.tid };
    }
    let advice = match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "Changing another user's thread, or raising a priority, needs root or CAP_SYS_NICE. A \
             real-time policy can be \
             refused to root as well: where the kernel has CONFIG_RT_GROUP_SCHED, the control \
             group of the thread needs a \
             budget in cpu.rt_runtime_us; `schedlab doctor` looks"
        }
        io::ErrorKind::InvalidInput => {
            "The kernel does not allow these parameters: the CPUs must be online and in the \
             cpuset of the thread"
        }
        io::ErrorKind::ResourceBusy => "There is no real-time bandwidth left for it on these CPUs",
        _ => "Nothing was changed",
    };
    LiveError::Refused { what, call, tid: thread.tid, comm: thread.comm.clone(), source, advice }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    /// Every error of `attach` names the call, the thread, the kernel's answer, and what to do
    /// (docs/live-safety.md, 11).
    #[test]
    fn a_refusal_names_the_call_the_thread_and_the_reason() {
        let own = threads::identity(std::process::id()).expect("we live");
        for (errno, call, words) in [
            (Errno::PERM, "sched_setattr", "CONFIG_RT_GROUP_SCHED"),
            (Errno::INVAL, "sched_setaffinity", "cpuset"),
            (Errno::BUSY, "sched_setattr", "bandwidth"),
        ] {
            let text = refused("the policy", call, &own, errno.into()).to_string();
            let number = format!("os error {}", errno.raw_os_error());
            for part in [words, call, &number, &own.tid.to_string(), &own.comm] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }

    #[test]
    fn a_thread_that_is_gone_is_gone_whatever_the_kernel_said() {
        let own = threads::identity(std::process::id()).expect("we live");
        let gone = |error: LiveError| matches!(error, LiveError::NoThread { .. });
        // The number may belong to another thread already.
        assert!(gone(refused("the policy", "sched_setattr", &own, Errno::SRCH.into())));
        let earlier = Identity { started: own.started - 1, ..own };
        assert!(gone(refused("the policy", "sched_setattr", &earlier, Errno::PERM.into())));
    }
}
