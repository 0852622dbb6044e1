//! The guardian: a process of its own that restores everything when the owner of a journal dies or
//! falls silent.
//!
//! | what happens | what restores everything |
//! |---|---|
//! | the owner dies, or is silent | the guardian |
//! | the owner beats, but a thread that it manages in a real-time class is kept from the CPU ([`starving`]) | the guardian |
//! | the guardian dies | the owner, which notices at its next heartbeat |
//! | the guardian dies, and the owner dies or hangs | the [`second`] guardian |
//! | all three die | `schedlab restore`; nothing in user space can do it by itself, and the kernel's own limit (RLIMIT_RTTIME) on the managed threads would kill them |
//!
//! It says that it watches when the second guardian watches, too. Both have the journal in memory
//! ([`crate::memory`]) and everything else that giving back needs, so that a journal that is
//! removed or damaged, or a limit that is reached, changes nothing. A guardian that could not
//! restore everything says so, and what to do.
//!
//! It is the program `schedlab`, started anew with a hidden command, in a session of its own, so
//! that neither Ctrl-C nor the end of a terminal reaches it. The owner sends a byte now and then
//! through a pipe. The end of the pipe is the end of the owner, whatever killed it.

mod second;
mod starving;

use crate::LiveError;
use crate::held::{Held, owner_lives};
use crate::journal::{Journal, Record};
use crate::reserve::lift_limits;
use crate::restore::Report;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use schedlab_host::privileges::{Duty, keep_only};
use schedlab_host::{NoHugePages, inherits, presence, threads};
use schedlab_model::{OwnThread, Policy};
use second::Second;
use starving::Starving;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The argument that makes the program a guardian.
pub const COMMAND: &str = "guardian";
/// The owner lives.
const BEAT: u8 = b'b';
/// The owner restores everything now, which may take a while; only its end counts.
const LAST: u8 = b'l';
/// Everything is restored: the guardian may go.
const QUIT: u8 = b'q';
/// The owner could not restore everything, and changes nothing more: the guardian is to do it.
const TAKE_OVER: u8 = b't';
/// For so long a guardian tries to restore what cannot be.
const PATIENCE: Duration = Duration::from_secs(10);
/// For so long the second guardian leaves the end of an owner to the first.
const ENDED: Duration = Duration::from_secs(2);
/// For so long an owner waits for a guardian that is to do that, or to go.
const WAITS: Duration = Duration::from_secs(25);
const GOES: Duration = Duration::from_secs(2);
/// Before its first heartbeat an owner may be silent for so many times longer, and for so long on
/// any machine: it is still beginning, and no thread of others is in a real-time class yet. (It
/// took longer than 1.3 s in a guest whose emulator had a third of a CPU.)
const FIRST: u32 = 10;
const BEGINS: Duration = Duration::from_secs(5);
/// The last part of a silence, for beats that came late: one of so many.
const DOUBT: u32 = 5;
/// Milliseconds that a guardian whose pipe is closed may take to end before its owner goes on.
const ENDS: u32 = 20;
/// What the guardian writes when it watches.
const READY: &[u8] = b"ready\n";

/// What a guardian watches for.
#[derive(Clone, Debug)]
pub struct GuardianOptions {
    /// The journal of its owner.
    pub journal: PathBuf,
    /// The number of the open file that has the journal in memory.
    pub memory: i32,
    /// An owner that is silent for longer is killed; `None`: only its end counts.
    pub silence: Option<Duration>,
    /// The guardian's own SCHED_FIFO priority; `None`: it stays as it is.
    pub priority: Option<u8>,
    /// An owner under which a managed thread in a real-time class is runnable and gets no CPU for
    /// longer is killed, however well it beats; `None`: its threads are not looked at.
    pub starve: Option<Duration>,
    /// It is the second guardian, which waits for the end of the first.
    pub second: bool,
}

impl GuardianOptions {
    /// Reads what [`GuardianOptions::arguments`] wrote, without the command itself.
    ///
    /// # Errors
    /// When they are other arguments: the command is not for people.
    pub fn parse(arguments: &[String]) -> Result<GuardianOptions, LiveError> {
        let mut watch = GuardianOptions {
            journal: PathBuf::new(),
            memory: -1,
            silence: None,
            priority: None,
            starve: None,
            second: false,
        };
        let odd = |text: &str| LiveError::Guardian {
            reason: format!("`{text}` is not what schedlab tells a guardian"),
        };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return Err(odd(&pair.concat())) };
            match name.as_str() {
                "--journal" => watch.journal = PathBuf::from(value),
                "--memory" => watch.memory = value.parse().map_err(|_| odd(value))?,
                "--silence" => watch.silence = Some(milliseconds(value).ok_or_else(|| odd(value))?),
                "--starve" => watch.starve = Some(milliseconds(value).ok_or_else(|| odd(value))?),
                "--second" => watch.second = value == "yes",
                "--priority" => {
                    let priority = value.parse().ok().filter(|p| (1..=99).contains(p));
                    watch.priority = Some(priority.ok_or_else(|| odd(value))?);
                }
                _ => return Err(odd(name)),
            }
        }
        if watch.journal.as_os_str().is_empty() { Err(odd("nothing")) } else { Ok(watch) }
    }

    /// Returns the arguments after the program's name that start the guardian.
    pub fn arguments(&self) -> Vec<String> {
        let mut all =
            vec![COMMAND.to_owned(), "--journal".to_owned(), self.journal.display().to_string()];
        all.extend(["--memory".to_owned(), self.memory.to_string()]);
        for (name, time) in [("--silence", self.silence), ("--starve", self.starve)] {
            all.extend(
                time.into_iter()
                    .flat_map(|time| [name.to_owned(), format!("{}ms", time.as_millis())]),
            );
        }
        if self.second {
            all.extend(["--second".to_owned(), "yes".to_owned()]);
        }
        if let Some(priority) = self.priority {
            all.extend(["--priority".to_owned(), priority.to_string()]);
        }
        all
    }
}

fn milliseconds(text: &str) -> Option<Duration> {
    text.strip_suffix("ms").and_then(|ms| ms.parse().ok()).map(Duration::from_millis)
}

/// How a guardian's watch ended.
#[derive(Debug)]
pub enum GuardianEnd {
    /// The owner restored everything itself.
    Dismissed,
    /// The owner died or was silent; this was restored.
    Restored(Report),
}

impl GuardianEnd {
    /// Returns whether nothing is left to restore.
    pub fn complete(&self) -> bool {
        match self {
            GuardianEnd::Dismissed => true,
            GuardianEnd::Restored(report) => report.complete(),
        }
    }
}

/// Runs the guardian's process. Its standard input is the pipe from the owner.
///
/// # Errors
/// When the journal in memory cannot be read, or the second guardian does not start. Without the
/// permission for its priority it watches all the same.
pub fn run(watch: &GuardianOptions) -> Result<GuardianEnd, LiveError> {
    let _small_pages = NoHugePages::hold();
    presence::call_guardian();
    // It leads a session already when it is started by hand: fine.
    let _ = rustix::process::setsid();
    lift_limits();
    let mut held = Held::by_guardian(&watch.journal, watch.memory)?;
    let record = held.record()?;
    // Before this one gives up what the second one needs, and before the owner is told that it is
    // watched.
    let mut second = if watch.second { None } else { Some(Second::start(watch)?) };
    if let Some(priority) = watch.priority {
        let urgent = threads::scheduling(0).map(|now| now.with_policy(Policy::Fifo(priority)));
        let _ = urgent.and_then(|urgent| threads::set_scheduling(0, &urgent));
    }
    // When memory runs out the kernel kills others first; needs root.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    // What is left to do: restore policies, affinities and groups, end a silent owner, and have
    // memory that is locked. Where even that much cannot be given up, it watches all the same.
    let _ =
        keep_only(&[Duty::Schedule, Duty::Kill, Duty::See, Duty::WriteGroups, Duty::LockMemory]);
    // No page of it waits for a disk or a lock later. Where the limit on locked memory forbids
    // that, it watches all the same.
    let _ = rustix::mm::mlockall(
        rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE,
    );
    let mut out = io::stdout();
    // An owner that is dead already does not read; the pipe's end says the rest.
    let _ = out.write_all(READY).and_then(|()| out.flush());
    let Some(second) = &mut second else {
        return told(second::wait(watch, &mut held, &record), &held);
    };
    let end = match listen(watch, &held, &record, second) {
        OwnerEnd::Quit => Ok(GuardianEnd::Dismissed),
        OwnerEnd::TakeOver => held.give_back(PATIENCE).map(GuardianEnd::Restored),
        OwnerEnd::End => held.give_back_after_death(PATIENCE).map(GuardianEnd::Restored),
        OwnerEnd::Silence(why) => {
            // Before the end of the owner, which the program that started it waits for: behind it
            // nothing may read any more.
            say(&silence_text(&record, &why));
            stop_owner(&record);
            held.give_back_after_death(PATIENCE).map(GuardianEnd::Restored)
        }
    };
    second.dismiss(end.as_ref().is_ok_and(GuardianEnd::complete));
    told(end, &held)
}

/// Says what could not be restored, which the owner cannot say any more.
fn told(end: Result<GuardianEnd, LiveError>, held: &Held) -> Result<GuardianEnd, LiveError> {
    if let Ok(GuardianEnd::Restored(report)) = &end
        && let Some((what, why)) = report.failures().next()
    {
        let (count, journal) = (report.failures().count(), held.path().display());
        say(&format!(
            "error: {count} changes could not be put back ({what}: {why}): the journal {journal} \
             stays, and `schedlab restore` tries again\n"
        ));
    }
    end
}

fn silence_text(record: &Record, why: &str) -> String {
    let (owner, purpose) = (record.head.owner.tid, &record.head.purpose);
    format!(
        "error: the guardian ends process {owner} ({purpose}) and puts everything back: {why}\n"
    )
}

/// Writes to the owner's standard error what that one cannot say itself any more. A reader that
/// does not read must not stop the guardian.
fn say(text: &str) {
    let error = io::stderr();
    let mut fds = [PollFd::new(&error, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0) {
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

enum OwnerEnd {
    Quit,
    End,
    TakeOver,
    /// Or heartbeats that are not to be trusted; and why.
    Silence(String),
}

fn listen(watch: &GuardianOptions, held: &Held, record: &Record, second: &mut Second) -> OwnerEnd {
    let silence = watch.silence;
    let mut starving = watch.starve.map(|limit| Starving::for_journal(held.memory(), limit));
    let mut input = io::stdin();
    let time = |silence: Duration| Timespec {
        tv_sec: i64::try_from(silence.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(silence.subsec_nanos()),
    };
    let mut timeout = silence.map(|silence| time(first_silence(silence)));
    let (mut beaten, mut doubted) = (false, false);
    let mut away = Away::default();
    loop {
        let began = Instant::now();
        let (ready, is_alone) = {
            let mut fds = vec![PollFd::new(&input, PollFlags::IN)];
            fds.extend(second.pipe().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            let ready = poll(&mut fds, timeout.as_ref());
            (ready, fds.get(1).is_some_and(|pipe| !pipe.revents().is_empty()))
        };
        if is_alone {
            // It was killed. Where no other can be started, this one is alone.
            second.renew(watch);
            continue;
        }
        match ready {
            // The machine itself stood still, for this process too: that says nothing about the
            // owner.
            Ok(0) if away.excuses(began.elapsed(), timeout.as_ref(), silence) => continue,
            // What kept this process from the CPU may have kept the beats from it, too, and is not
            // before them in a queue now: the rest of the time is for those.
            Ok(0) if beaten && !doubted => {
                (doubted, timeout) = (true, silence.map(|silence| time(silence / DOUBT)));
                continue;
            }
            Ok(0) => {
                let why = silent(silence.unwrap_or_default(), beaten, &record.head.owner);
                return OwnerEnd::Silence(format!("{why}{}", of_its_threads(record)));
            }
            Err(error) if error != rustix::io::Errno::INTR => return OwnerEnd::End,
            Err(_) => continue,
            Ok(_) => {}
        }
        let mut bytes = [0; 64];
        match input.read(&mut bytes) {
            Ok(0) => return OwnerEnd::End,
            Ok(count) if bytes[..count].contains(&QUIT) => return OwnerEnd::Quit,
            Ok(count) if bytes[..count].contains(&TAKE_OVER) => return OwnerEnd::TakeOver,
            Ok(count) if bytes[..count].contains(&LAST) => {
                (timeout, starving, beaten, doubted) = (None, None, true, false);
            }
            Ok(_) => {
                away = Away::default();
                if let Some(why) = starving.as_mut().and_then(Starving::look) {
                    return OwnerEnd::Silence(why);
                }
                if !beaten || doubted {
                    (beaten, doubted) = (true, false);
                    timeout = silence.map(|silence| time(silence - silence / DOUBT));
                }
            }
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return OwnerEnd::End,
            _ => {}
        }
    }
}

/// How often in a row a guardian that was itself late forgives a silence: a host that is stopped
/// for longer than that looks like an owner that hangs.
const EXCUSES: u32 = 10;

/// Silences in which the guardian did not get its CPU either.
#[derive(Default)]
struct Away(u32);

impl Away {
    /// Whether a silence after a wait of `waited` says nothing: with a time limit of `timeout` the
    /// guardian came later than that by half of the agreed silence.
    fn excuses(
        &mut self,
        waited: Duration,
        timeout: Option<&Timespec>,
        silence: Option<Duration>,
    ) -> bool {
        let (Some(timeout), Some(silence)) = (timeout, silence) else { return false };
        let wanted = Duration::from_secs(timeout.tv_sec.unsigned_abs())
            + Duration::from_nanos(timeout.tv_nsec.unsigned_abs());
        self.0 += 1;
        self.0 <= EXCUSES && waited > wanted + silence / 2
    }
}

/// How long an owner may be silent before its first heartbeat.
fn first_silence(silence: Duration) -> Duration {
    (silence * FIRST).max(BEGINS)
}

fn silent(silence: Duration, beaten: bool, owner: &threads::Identity) -> String {
    let silence = if beaten { silence } else { first_silence(silence) };
    let first = if beaten { "for" } else { "in its first" };
    let why = if owner.is_ending() {
        ". A signal ends it already, such as SIGXCPU for a real-time thread of it that did not \
         sleep (RLIMIT_RTTIME)"
    } else if beaten {
        ". Its agent hangs, or something kept it from its CPU for that long: a thread of a higher \
         real-time priority, or the host of a virtual machine (steal in /proc/stat)"
    } else {
        ""
    };
    format!("no heartbeat {first} {} ms{why}", silence.as_millis())
}

/// What the threads of a silent owner do, for a reader who looks for the reason: one that wants to
/// run is kept from its CPU, one that sleeps waits for something.
fn of_its_threads(record: &Record) -> String {
    let state = |tid: u32| {
        let comm = threads::identity(tid)?.comm;
        let what = if threads::is_runnable(tid) { "runs or wants to" } else { "sleeps" };
        let cpu = threads::last_cpu(tid)?;
        OwnThread::is_called(&comm).then(|| format!("{comm} {what}, CPU {cpu}"))
    };
    let all: Vec<String> =
        threads::of_process(record.head.owner.process).into_iter().filter_map(state).collect();
    if all.is_empty() { String::new() } else { format!("; its threads: {}", all.join("; ")) }
}

/// A silent owner may wake up and change more: it must be gone first.
fn stop_owner(record: &Record) {
    let owner = &record.head.owner;
    if owner.signal(Signal::KILL).is_ok() {
        threads::let_die(owner.process);
    }
}

/// Sends a heartbeat through an end that [`Guardian::heartbeat_pipe`] gave. False: the guardian is
/// gone.
#[must_use]
pub fn send_heartbeat(pipe: &OwnedFd) -> bool {
    rustix::io::write(pipe, &[BEAT]).is_ok()
}

/// Returns whether a guardian that was started says that it watches.
fn is_ready(out: Option<&mut ChildStdout>) -> bool {
    let Some(out) = out else { return false };
    let mut answer = [0; READY.len()];
    out.read_exact(&mut answer).is_ok() && answer == READY
}

/// Waits for the end of a process, but not for ever.
fn ends_within(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if begun.elapsed() < time => std::thread::sleep(Duration::from_millis(1)),
            _ => return None,
        }
    }
}

/// The owner's end of a guardian.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guardian {
    /// Starts a guardian of a journal and waits until it and the second one watch.
    ///
    /// # Errors
    /// When the program cannot be started or does not say that it watches.
    pub fn start(
        program: &Path,
        watch: &GuardianOptions,
        journal: &Journal,
    ) -> Result<Guardian, LiveError> {
        let refused = |reason: String| LiveError::Guardian { reason };
        let mut command = Command::new(program);
        let watch =
            GuardianOptions { memory: inherits(&mut command, journal.memory()), ..watch.clone() };
        // Standard error is the owner's own: when the guardian has to end it, the reason is written
        // there.
        command
            .args(watch.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child =
            command.spawn().map_err(|error| refused(format!("{}: {error}", program.display())))?;
        let pipe = child.stdin.take();
        if !is_ready(child.stdout.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(refused("it, or the second one, ended before it watched".to_owned()));
        }
        Ok(Guardian { child, pipe })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns another end of the pipe, for the thread whose silence counts: [`send_heartbeat`]
    /// writes to it.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn heartbeat_pipe(&self) -> io::Result<OwnedFd> {
        match &self.pipe {
            Some(pipe) => pipe.as_fd().try_clone_to_owned(),
            None => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        }
    }

    /// Tells the guardian that the owner lives. False: the guardian is gone.
    #[must_use]
    pub fn beat(&mut self) -> bool {
        self.pipe.as_mut().is_some_and(|pipe| pipe.write_all(&[BEAT]).is_ok())
            && matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns how the guardian ended, for when it is known to be gone or about to go.
    pub(crate) fn end(&mut self) -> String {
        for _ in 0..ENDS {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return error.to_string(),
            }
        }
        "it does not read what it is told".to_owned()
    }

    /// Tells the guardian that everything is about to be restored: silence does not count any more,
    /// only the end of the owner.
    pub fn ease(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            // A guardian that is gone need not be told.
            let _ = pipe.write_all(&[LAST]);
        }
    }

    /// Tells the guardian to go: everything is restored already. One that was stopped does not hear
    /// it, and is ended.
    pub fn dismiss(mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(&[QUIT]);
        }
        if ends_within(&mut self.child, GOES).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Has the guardian restore what the owner could not. False: it could not either, or is gone,
    /// and then `schedlab restore` is left.
    pub(crate) fn take_over(mut self) -> bool {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(&[TAKE_OVER]);
        }
        ends_within(&mut self.child, WAITS).is_some_and(|status| status.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_stood_still_is_no_silence_of_the_owner() {
        let (silence, timeout) =
            (Duration::from_millis(100), Timespec { tv_sec: 0, tv_nsec: 80_000_000 });
        let of = |waited: u64, turns: u32| {
            let mut away = Away::default();
            (0..turns)
                .all(|_| away.excuses(Duration::from_millis(waited), Some(&timeout), Some(silence)))
        };
        assert!(!of(81, 1), "the guardian woke in time: the owner is silent");
        assert!(of(700, EXCUSES), "the guardian did not run either");
        assert!(!of(700, EXCUSES + 1), "but not for ever");
    }
}
