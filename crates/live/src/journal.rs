//! The journal: a file of JSON lines that says what was before, synced before each change that it
//! describes.
//!
//! The first line is the [`Head`]; every other line is an [`Entry`] about a change that follows. A
//! last line that is cut off describes a change that was never made; another one that is no entry
//! is reported and the others count. The file is removed when everything is restored. Later
//! versions read the journals of earlier ones: the names in the lines stay.
//!
//! The file is for `schedlab restore`, `status` and people. Owner and guardians have the same lines
//! in memory ([`crate::memory`]).

mod kept;

use crate::memory::Memory;
use crate::{LiveError, RunDir};
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_model::{CpuSet, Ns};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// Version of the lines: 2 since [`Entry::LetGo`], without which earlier programs would give
/// threads back what they had given up; 3 since [`Setting::Ext`]; 4 since [`Entry::Command`], and
/// the timer slack and cpuset of a thread.
pub const VERSION: u32 = 4;
/// The oldest version that is read.
const OLDEST: u32 = 1;

/// The first line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// [`VERSION`] of the program that wrote it.
    pub version: u32,
    /// The boot in which it was written: after another one there is nothing to restore.
    pub boot: String,
    /// The process that makes the changes.
    pub owner: Identity,
    /// What for, in words.
    pub purpose: String,
}

/// The scheduling that a changed thread may have while it is managed. Any other was set by another
/// process, and is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Setting {
    /// Exactly this one.
    To(Scheduling),
    /// SCHED_FIFO with a priority from `.0` to `.1`; or SCHED_IDLE with reset-on-fork, which a
    /// thread of the band has in a yield window.
    FifoBand(u8, u8),
    /// SCHED_EXT, with whatever nice value. The kernel leaves that policy on a thread whose
    /// scheduler is gone.
    Ext,
}

impl Setting {
    /// Returns whether schedlab set `now`.
    pub fn covers(&self, now: &Scheduling) -> bool {
        match (self, now.policy) {
            // SCHED_IDLE leaves a thread the slice that it had (`__setscheduler_params` sets one
            // for SCHED_OTHER and SCHED_BATCH only, kernel/sched/syscalls.c, Linux 6.12 and later),
            // and a real-time thread shows none.
            (Setting::To(set), policy)
                if policy == schedlab_model::Policy::Idle || !policy.is_fair() =>
            {
                *set == Scheduling { slice: set.slice, ..*now }
            }
            (Setting::To(set), _) => set == now,
            (Setting::FifoBand(low, high), schedlab_model::Policy::Fifo(priority)) => {
                (*low..=*high).contains(&priority)
            }
            (Setting::FifoBand(..), schedlab_model::Policy::Idle) => now.reset_on_fork,
            (Setting::Ext, _) => now.ext,
            _ => false,
        }
    }

    /// Returns whether a thread that schedlab set so gave `now` to its child: a child of a
    /// SCHED_IDLE thread is one, too.
    pub fn covers_child(&self, now: &Scheduling) -> bool {
        let in_window =
            matches!(self, Setting::FifoBand(..)) && now.policy == schedlab_model::Policy::Idle;
        in_window || self.covers(now)
    }
}

/// Where threads are confined to while they are managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Confined {
    /// The CPUs.
    pub cpus: CpuSet,
    /// On one of them at a time, and not always on the same; else on all.
    pub one_of: bool,
}

impl Confined {
    /// Returns whether schedlab set the affinity `now`.
    pub fn covers(&self, now: &CpuSet) -> bool {
        match self.one_of {
            true => now.count() == 1 && now.without(&self.cpus).is_empty(),
            false => *now == self.cpus,
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A change that follows. Several entries may be about one thing; the first says what was before,
/// the last what schedlab made of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Entry {
    /// Policy, nice value or slice of a thread.
    Scheduling {
        /// The thread.
        thread: Identity,
        /// Before.
        before: Scheduling,
        /// What it is set to.
        set: Setting,
        /// Timer slack before. The kernel takes it from a thread that becomes real-time, and gives
        /// it the default when that is over (`__setscheduler_params`, kernel/sched/syscalls.c,
        /// Linux 6.13 and later). `None`: not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer_slack: Option<Ns>,
    },
    /// Affinity of a thread.
    Affinity {
        /// The thread.
        thread: Identity,
        /// Before.
        before: CpuSet,
        /// What it is set to.
        set: CpuSet,
        /// See [`Confined`].
        #[serde(default, skip_serializing_if = "is_false")]
        one_of: bool,
        /// It had all CPUs of its cpuset. Such a thread is given every CPU: the kernel remembers an
        /// affinity that was asked for, and the thread would keep to it when its cpuset grows, or a
        /// CPU comes back (`user_cpus_ptr`, kernel/sched/core.c, Linux 6.2 and later).
        #[serde(default, skip_serializing_if = "is_false")]
        follows: bool,
    },
    /// A file of a control group.
    File {
        /// Its path, below `/sys/fs/cgroup`.
        path: PathBuf,
        /// Its content before.
        before: String,
        /// What is written to it.
        set: String,
    },
    /// A process that is about to be stopped (SIGSTOP). One that was stopped before has no such
    /// line.
    Stopped {
        /// Its first thread.
        thread: Identity,
    },
    /// A control group that is about to be made; restoring removes it with all its members.
    Made {
        /// Its folder, below `/sys/fs/cgroup`.
        path: PathBuf,
    },
    /// Whole processes whose threads, present and future, are managed: threads of theirs that no
    /// entry names began their life with the attributes of the thread that made them.
    Process {
        /// The first thread of the process.
        thread: Identity,
        /// What its new threads get back.
        before: Scheduling,
        /// Where they may run.
        affinity: CpuSet,
        /// The scheduling that they may have while they are managed.
        set: Setting,
        /// Where they are confined to; `None`: nowhere.
        confined: Option<CpuSet>,
        /// See [`Confined`].
        #[serde(default, skip_serializing_if = "is_false")]
        one_of: bool,
        /// Timer slack of the thread: one that is born of a real-time thread has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer_slack: Option<Ns>,
        /// See [`Entry::Affinity`].
        #[serde(default, skip_serializing_if = "is_false")]
        follows: bool,
    },
    /// A command that the owner started: it ends with the owner, and so does whatever it started.
    /// Its holder sees to that ([`schedlab_host::program`]); this line is for the case that the
    /// holder was killed with the owner.
    Command {
        /// The mark in the environment of its processes.
        mark: String,
    },
    /// A process was given back while others stay managed: earlier entries about its threads count
    /// no more.
    Released {
        /// The process.
        process: u32,
    },
    /// A thread was changed by itself or by another process, and is managed no longer: earlier
    /// entries about it count no more.
    LetGo {
        /// The thread.
        thread: Identity,
    },
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// How long the file is: a line that was not written whole is cut off again.
    length: u64,
    /// At this length it is written anew, without what says nothing any more.
    anew_at: u64,
    /// And at none below this.
    least: u64,
    memory: Memory,
}

/// The least length in bytes at which a journal is written anew. Chosen: some thousand entries of
/// some 200 bytes.
const ANEW: u64 = 1 << 20;
/// How many journals this process has begun.
static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Journal {
    /// Begins a journal for this process.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(run_dir: &RunDir, purpose: &str) -> Result<Journal, LiveError> {
        let pid = std::process::id();
        let owner = threads::identity(pid).ok_or(LiveError::NoThread { tid: pid })?;
        // One process may write several journals, and none has the name of an earlier one: a
        // guardian of that one may still remove what is its own.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = run_dir.path().join(format!("{pid}-{}-{number}.journal", owner.started));
        let memory =
            Memory::create().map_err(LiveError::io("memory for the journal (memfd_create)"))?;
        let file = schedlab_files::create_new(&path);
        let file = file.map_err(LiveError::io(path.display().to_string()))?;
        let mut journal = Journal { path, file, length: 0, anew_at: ANEW, least: ANEW, memory };
        let head =
            Head { version: VERSION, boot: threads::boot_id(), owner, purpose: purpose.to_owned() };
        journal.line(&head).inspect_err(|_| drop(fs::remove_file(&journal.path)))?;
        Ok(journal)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what owner and guardians read.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns its parts: path, file and memory.
    pub(crate) fn into_parts(self) -> (PathBuf, File, Memory) {
        (self.path, self.file, self.memory)
    }

    /// Writes an entry; returns when it is on the disk.
    ///
    /// # Errors
    /// When it could not be written: then nothing may be changed.
    pub fn note(&mut self, entry: &Entry) -> Result<(), LiveError> {
        self.line(entry)?;
        if self.length >= self.anew_at {
            // What fails leaves what is there, which says the same.
            let _ = self.write_anew();
            self.anew_at = self.least.max(self.length * 2);
        }
        Ok(())
    }

    /// Leaves out what says nothing any more, in the file and in memory. Killed at any moment, both
    /// say what they said.
    fn write_anew(&mut self) -> io::Result<()> {
        let (_, text) = self.memory.read_from(0)?;
        let mut lines = text.lines();
        let head = lines.next().unwrap_or_default();
        let (entries, faults) = entries(head, lines);
        if !faults.is_empty() {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let mut text = format!("{head}\n");
        for entry in kept::kept(entries) {
            text += &serde_json::to_string(&entry)?;
            text.push('\n');
        }
        self.file = schedlab_files::create_again(&self.path, text.as_bytes())?;
        self.length = text.len() as u64;
        self.memory.replace(&text)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), LiveError> {
        let failed = || LiveError::io(self.path.display().to_string());
        let mut text = serde_json::to_string(value).map_err(|error| failed()(error.into()))?;
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // A full disk takes a part of a line, and the next one would be added to that.
            let _ = self.file.set_len(self.length);
            return Err(failed()(error));
        }
        self.length += text.len() as u64;
        self.memory.append(&text).map_err(LiveError::io("memory for the journal"))
    }
}

/// A line of a journal that is no entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

/// A journal that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The path of the file.
    pub path: PathBuf,
    /// Its first line.
    pub head: Head,
    /// Its other lines.
    pub entries: Vec<Entry>,
    /// Those that are none.
    pub faults: Vec<Fault>,
}

/// What of the first line tells whether the others can be read.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Record {
    /// Reads a journal. `None`: it is empty or its first line is cut off, so nothing was changed
    /// under it.
    ///
    /// # Errors
    /// When it cannot be read, or is of a version that this program does not know.
    pub fn read(path: &Path) -> Result<Option<Record>, LiveError> {
        let failed = || LiveError::io(path.display().to_string());
        let text = fs::read(path).map_err(failed())?;
        let text = String::from_utf8_lossy(&text);
        match Record::parse(path, &text) {
            Err(error @ LiveError::Journal { line: 1, .. }) => {
                let written =
                    fs::metadata(path).and_then(|data| data.modified()).map_err(failed())?;
                Record::without_head(path, &text, written).ok_or(error).map(Some)
            }
            other => other,
        }
    }

    /// As [`Record::read`], from the text of the file.
    ///
    /// # Errors
    /// When the first line is no head, or one of an unknown version.
    pub fn parse(path: &Path, text: &str) -> Result<Option<Record>, LiveError> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = whole.lines();
        let bad = |fault: String| LiveError::Journal { path: path.to_owned(), line: 1, fault };
        let Some(first) = lines.next() else { return Ok(None) };
        if let Ok(Versioned { version }) = serde_json::from_str(first)
            && !(OLDEST..=VERSION).contains(&version)
        {
            let known =
                format!("its version is {version}, this program knows {OLDEST} to {VERSION}");
            return Err(LiveError::JournalVersion { path: path.to_owned(), fault: known });
        }
        let head: Head = serde_json::from_str(first).map_err(|error| bad(error.to_string()))?;
        let (entries, faults) = entries(first, lines);
        Ok(Some(Record { path: path.to_owned(), head, entries, faults }))
    }

    /// Reads a journal whose first line is damaged. Its name tells the owner, and when it was
    /// written whether that was in this boot.
    fn without_head(path: &Path, text: &str, written: SystemTime) -> Option<Record> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = whole.lines();
        let why = serde_json::from_str::<Head>(lines.next()?).err()?.to_string();
        let mut numbers = path.file_stem()?.to_str()?.split('-');
        let (pid, started) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        let (entries, mut faults) = entries("", lines);
        if entries.is_empty() {
            return None;
        }
        faults.insert(0, Fault { line: 1, why });
        let owner = Identity {
            tid: pid,
            process: pid,
            parent: 0,
            started,
            kernel: false,
            comm: String::new(),
        };
        let boot = if written >= booted()? { threads::boot_id() } else { String::new() };
        let purpose = "its first line is damaged".to_owned();
        Some(Record {
            path: path.to_owned(),
            head: Head { version: VERSION, boot, owner, purpose },
            entries,
            faults,
        })
    }
}

/// Reads the lines after the first, `head`. It comes again where an owner was killed while it wrote
/// its journal anew: what follows it was said before.
fn entries<'a>(head: &str, lines: impl Iterator<Item = &'a str>) -> (Vec<Entry>, Vec<Fault>) {
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    for (number, line) in lines.enumerate().filter(|(_, line)| *line != head) {
        match serde_json::from_str(line) {
            Ok(entry) => entries.push(entry),
            Err(error) => faults.push(Fault { line: number + 2, why: error.to_string() }),
        }
    }
    (entries, faults)
}

/// Returns when this machine was booted (`btime` in `/proc/stat`).
fn booted() -> Option<SystemTime> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: &str =
        r#"{"tid":11,"process":11,"parent":1,"started":5,"kernel":false,"comm":"x"}"#;

    /// A journal that version 0.1.0 wrote can be restored by later ones: the names in its lines
    /// stay. Version 2 adds a line, 3 a setting.
    #[test]
    fn journals_of_each_version_are_read() {
        let before = r#"{"policy":"other","nice":0,"slice":null,"reset_on_fork":false}"#;
        let lines = [
            format!(r#""scheduling","thread":{THREAD},"before":{before},"set":{{"FifoBand":[1,3]}}"#),
            format!(r#""scheduling","thread":{THREAD},"before":{before},"set":{{"To":{before}}}"#),
            format!(r#""affinity","thread":{THREAD},"before":"0-1","set":"1""#),
            format!(r#""affinity","thread":{THREAD},"before":"0-1","set":"1","one_of":true"#),
            r#""file","path":"/sys/fs/cgroup/a/cpu.max","before":"max 100000","set":"50000 100000""#
                .to_owned(),
            format!(r#""stopped","thread":{THREAD}"#),
            r#""made","path":"/sys/fs/cgroup/schedlab-1""#.to_owned(),
            format!(
                r#""process","thread":{THREAD},"before":{before},"affinity":"0-1","set":{{"FifoBand":[1,3]}},"confined":"1""#
            ),
            r#""released","process":11"#.to_owned(),
            format!(r#""let-go","thread":{THREAD}"#),
            format!(r#""scheduling","thread":{THREAD},"before":{before},"set":"Ext""#),
            format!(
                r#""scheduling","thread":{THREAD},"before":{before},"set":{{"FifoBand":[1,3]}},"timer_slack":50000"#
            ),
            format!(r#""affinity","thread":{THREAD},"before":"0-1","set":"1","follows":true"#),
            format!(
                r#""process","thread":{THREAD},"before":{before},"affinity":"0-1","set":{{"FifoBand":[1,3]}},"confined":"1","timer_slack":50000,"follows":true"#
            ),
            r#""command","mark":"77-123-0""#.to_owned(),
        ];
        for (version, count) in [(1, 9), (2, 10), (3, 11), (4, lines.len())] {
            let head = format!(
                r#"{{"version":{version},"boot":"0a1b","owner":{THREAD},"purpose":"a test"}}"#
            );
            let text = lines[..count]
                .iter()
                .fold(head + "\n", |text, line| text + "{\"what\":" + line + "}\n");
            let record = Record::parse(Path::new("1-2-0.journal"), &text)
                .expect("a journal")
                .expect("a head");
            assert_eq!((record.head.version, record.entries.len()), (version, count));
            // And this one writes the same lines.
            for (entry, line) in record.entries.iter().zip(&lines) {
                let written = serde_json::to_string(entry).expect("JSON");
                assert_eq!(written, format!("{{\"what\":{line}}}"));
            }
        }
    }

    /// What a thread inherits from one that is SCHED_EXT, and what it makes of its nice value, is
    /// schedlab's; another policy is not.
    #[test]
    fn sched_ext_is_known_whatever_the_nice_value() {
        let scheduling = |policy: &str, ext: bool, nice: i8| Scheduling {
            policy: policy.parse().expect("a policy"),
            nice: schedlab_model::Nice::new(nice).expect("a nice value"),
            slice: None,
            reset_on_fork: false,
            ext,
        };
        for (now, is_ours) in [
            (scheduling("other", true, 0), true),
            (scheduling("other", true, 7), true),
            (scheduling("other", false, 0), false),
            (scheduling("fifo:1", false, 0), false),
        ] {
            assert_eq!(Setting::Ext.covers(&now), is_ours, "{now:?}");
            assert_eq!(Setting::Ext.covers_child(&now), is_ours, "{now:?}");
        }
    }

    /// A thread with a slice of its own that became SCHED_FIFO shows none: it is as schedlab set it
    /// all the same.
    #[test]
    fn a_slice_that_is_not_shown_does_not_make_a_setting_anothers() {
        let scheduling = |policy: &str, slice: Option<Ns>| Scheduling {
            policy: policy.parse().expect("a policy"),
            nice: schedlab_model::Nice::ZERO,
            slice,
            reset_on_fork: false,
            ext: false,
        };
        let own = Some(Ns::from_us(100));
        for policy in ["fifo:1", "rr:1", "idle"] {
            assert!(
                Setting::To(scheduling(policy, own)).covers(&scheduling(policy, None)),
                "{policy}"
            );
        }
        assert!(!Setting::To(scheduling("fifo:1", own)).covers(&scheduling("fifo:2", None)));
        assert!(!Setting::To(scheduling("other", own)).covers(&scheduling("other", None)));
    }

    #[test]
    fn a_journal_of_a_later_version_is_refused_by_name() {
        for version in [0, VERSION + 1] {
            let head = format!(
                r#"{{"version":{version},"boot":"0a1b","owner":{THREAD},"purpose":"a test"}}"#
            );
            let error =
                Record::parse(Path::new("1-2-0.journal"), &(head + "\n")).expect_err("unknown");
            let says = error.to_string();
            assert!(
                says.contains(&format!("its version is {version}, this program knows 1 to 4")),
                "{says}"
            );
        }
    }

    /// A line that is damaged is reported; the others count. What the first one says is known from
    /// the file's name and time.
    #[test]
    fn one_bad_line_does_not_void_the_others() {
        let folder =
            schedlab_testing::temp_dir().join(format!("schedlab-bad-line-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("77-123-0.journal");
        let head = format!(r#"{{"version":4,"boot":"b","owner":{THREAD},"purpose":"a test"}}"#);
        let entry = format!(r#"{{"what":"let-go","thread":{THREAD}}}"#);
        let read = |lines: [&str; 4]| {
            fs::write(&path, lines.join("\n") + "\n").expect("a file of this test");
            let record = Record::read(&path).expect("readable").expect("a journal");
            let faults: Vec<usize> = record.faults.iter().map(|fault| fault.line).collect();
            (record, faults)
        };
        let (record, faults) = read([&head, &entry, "{\"what\":\"let-\0o", &entry]);
        assert_eq!((record.entries.len(), faults), (2, vec![3]));
        let (record, faults) = read(["x{", &entry, &entry, &entry]);
        assert_eq!((record.entries.len(), faults), (3, vec![1]));
        assert_eq!((record.head.owner.process, record.head.owner.started), (77, 123));
        assert_eq!(record.head.boot, threads::boot_id());
        let (_, faults) = read([&head, &entry, &entry, &entry]);
        assert_eq!(faults, [] as [usize; 0]);
        fs::remove_dir_all(&folder).expect("a folder of this test");
    }
}
