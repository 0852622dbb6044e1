//! Every kind of file that people come with: how it is recognised, and how it is read or what makes
//! it readable.
//!
//! A new format is a file with its reader and one entry in [`FORMATS`]; what has no events has one
//! in [`REPORTS`]. `schedlab import`, the commands that take a recording, the fuzzer and
//! docs/exchange-formats.md take what they need from it.

use super::build::Builder;
use super::reports::REPORTS;
use super::{perf_data, perfetto, text};
use crate::TraceError;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

/// Largest file of a format that is held in memory whole.
const WHOLE_MAX: u64 = 4 << 30;

/// One kind of file.
pub struct Format {
    /// Short name: the fuzz target, and the word in documents.
    pub name: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    /// Whether a file that begins so is of this kind. The first entry that says yes counts.
    pub is: fn(head: &[u8]) -> bool,
    /// What its bytes are.
    pub content: Content,
    /// What is done with it.
    pub(super) how: How,
    /// What is kept of it and what is lost, for docs/exchange-formats.md.
    pub notes: &'static str,
}

/// What the bytes of a file are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Lines.
    Text,
    /// One JSON value.
    Json,
    /// A protocol buffer.
    Protobuf,
    /// Anything else.
    Binary,
}

/// What is done with a file.
#[derive(Clone, Copy)]
pub(super) enum How {
    /// Its lines or bytes are read as they come.
    Stream(fn(&mut dyn BufRead, &mut Builder<'_>) -> Result<(), TraceError>),
    /// It is read into memory first.
    Whole(fn(&[u8], &mut Builder<'_>) -> Result<(), TraceError>),
    /// It is no trace, but a recording of schedlab or a workload, which other code reads.
    Elsewhere(Elsewhere),
    /// It cannot be read; this makes it readable.
    Refused(&'static str),
}

/// What other code reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elsewhere {
    /// A recording (`.slt`).
    Recording,
    /// An rt-app workload.
    RtApp,
    /// A scenario (TOML).
    Scenario,
}

/// Bytes of a file by which it is recognised.
pub const HEAD: usize = 4096;

/// Returns every kind of file, the most certain first.
pub fn all() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().chain(REPORTS).chain(&REST)
}

/// Every kind of file but the reports of tools ([`REPORTS`]) and what is left then ([`REST`]), the
/// most certain first.
const FORMATS: &[Format] = &[
    Format {
        name: "recording",
        what: "a schedlab recording",
        is: |head| head.starts_with(&crate::format::MAGIC),
        content: Content::Binary,
        how: How::Elsewhere(Elsewhere::Recording),
        notes: "docs/recording-format.md",
    },
    Format {
        name: "perf_data",
        what: "perf.data",
        is: perf_data::is_perf_data,
        content: Content::Binary,
        how: How::Stream(perf_data::read),
        notes: "sched and raw_syscalls tracepoints, lost records, thread names; samples of other \
                events are left out",
    },
    Format {
        name: "trace_dat",
        what: "trace.dat of trace-cmd",
        is: |head| head.starts_with(b"\x17\x08\x44tracing"),
        content: Content::Binary,
        how: How::Refused(
            "pass its text: `trace-cmd report -i FILE | schedlab import - -o OUT.slt`",
        ),
        notes: "read its text",
    },
    Format {
        name: "ctf",
        what: "a stream of a CTF trace (LTTng)",
        is: |head| head.starts_with(&[0xc1, 0x1f, 0xfc, 0xc1]) || head.starts_with(b"/* CTF 1.8"),
        content: Content::Binary,
        how: How::Refused("pass its text: `babeltrace2 FOLDER | schedlab import - -o OUT.slt`"),
        notes: "read its text",
    },
    Format {
        name: "ctf_metadata",
        what: "the description of a CTF trace (LTTng)",
        is: |head| {
            head.starts_with(&[0x57, 0x1d, 0xd1, 0x75])
                || head.starts_with(&[0x75, 0xd1, 0x1d, 0x57])
        },
        content: Content::Binary,
        how: How::Refused(
            "pass the text of its folder: `babeltrace2 FOLDER | schedlab import - -o OUT.slt`",
        ),
        notes: "read its text",
    },
    Format {
        name: "xz",
        what: "compressed by xz",
        is: |head| head.starts_with(b"\xfd7zXZ\0"),
        content: Content::Binary,
        how: How::Refused("`xz -dc FILE | schedlab import - -o OUT.slt`"),
        notes: "",
    },
    Format {
        name: "bzip2",
        what: "compressed by bzip2",
        is: |head| {
            head.starts_with(b"BZh")
                && head.get(4..10) == Some(&[0x31, 0x41, 0x59, 0x26, 0x53, 0x59])
        },
        content: Content::Binary,
        how: How::Refused("`bzip2 -dc FILE | schedlab import - -o OUT.slt`"),
        notes: "",
    },
    Format {
        name: "lz4",
        what: "compressed by lz4",
        is: |head| head.starts_with(&[0x04, 0x22, 0x4d, 0x18]),
        content: Content::Binary,
        how: How::Refused("`lz4 -dc FILE | schedlab import - -o OUT.slt`"),
        notes: "",
    },
    Format {
        name: "zip",
        what: "a zip archive",
        is: |head| head.starts_with(b"PK\x03\x04"),
        content: Content::Binary,
        how: How::Refused(
            "`unzip -p FILE | schedlab import - -o OUT.slt` reads the trace when it is alone in it",
        ),
        notes: "",
    },
    Format {
        name: "tar",
        what: "a tar archive",
        is: |head| head.get(257..262) == Some(b"ustar"),
        content: Content::Binary,
        how: How::Refused(
            "`tar -xOf FILE NAME | schedlab import - -o OUT.slt` reads one file of it",
        ),
        notes: "",
    },
    Format {
        name: "elf",
        what: "a program or core dump (ELF)",
        is: |head| head.starts_with(b"\x7fELF"),
        content: Content::Binary,
        how: How::Refused("record what it does: `schedlab record -o OUT.slt -- PROGRAM`"),
        notes: "",
    },
    Format {
        name: "pcap",
        what: "a network capture",
        is: |head| {
            matches!(
                head,
                [0xd4, 0xc3, 0xb2, 0xa1, ..]
                    | [0xa1, 0xb2, 0xc3, 0xd4, ..]
                    | [0x0a, 0x0d, 0x0d, 0x0a, ..]
            )
        },
        content: Content::Binary,
        how: How::Refused("it has no scheduling events"),
        notes: "",
    },
    Format {
        name: "perfetto",
        what: "a Perfetto trace",
        is: perfetto::is_perfetto,
        content: Content::Protobuf,
        how: How::Whole(perfetto::read),
        notes: "ftrace's sched events, plain and compact, compressed packets too; the process \
                list; other data sources are left out",
    },
    Format {
        name: "system_trace_events",
        what: "a JSON trace with the text of ftrace in it",
        is: |head| {
            is_json(head) && contains(head, b"\"traceEvents\"")
                || is_json(head) && contains(head, b"\"systemTraceEvents\"")
        },
        content: Content::Json,
        how: How::Whole(read_json),
        notes: "the text under `systemTraceEvents`; `traceEvents` of programs are left out",
    },
    Format {
        name: "perf_json",
        what: "the JSON of `perf data convert`",
        is: |head| is_json(head) && contains(head, b"\"linux-perf-json-version\""),
        content: Content::Json,
        how: How::Refused(
            "it lacks the interrupt context; pass the perf.data itself, or the output of `perf \
             script`",
        ),
        notes: "read the perf.data",
    },
    Format {
        name: "chrome",
        what: "a JSON list of events (Chrome's trace format)",
        is: |head| {
            let mut bytes = head.iter().filter(|byte| !byte.is_ascii_whitespace());
            bytes.next() == Some(&b'[') && bytes.next() == Some(&b'{')
        },
        content: Content::Json,
        how: How::Refused(
            "it has no scheduling events; pass the trace that it was made from (`trace-cmd \
             report`, a Perfetto trace)",
        ),
        notes: "",
    },
    Format {
        name: "rt_app",
        what: "an rt-app workload",
        is: |head| is_json(head) && !contains(head, b"\"traceEvents\""),
        content: Content::Json,
        how: How::Elsewhere(Elsewhere::RtApp),
        notes: "becomes a scenario",
    },
    Format {
        name: "scenario",
        what: "a scenario of schedlab",
        is: |head| {
            let sections = ["[machine]", "[[task]]", "[[group]]"];
            String::from_utf8_lossy(head).lines().any(|line| sections.contains(&line.trim_end()))
        },
        content: Content::Text,
        how: How::Elsewhere(Elsewhere::Scenario),
        notes: "docs/scenario-format.md",
    },
    Format {
        name: "perf_trace",
        what: "the output of `perf trace`",
        is: |head| String::from_utf8_lossy(head).lines().any(is_perf_trace),
        content: Content::Text,
        how: How::Refused(
            "it names no CPUs, and its summary (-s) has no events; record with `perf record -a -e \
             sched:sched_switch,sched:sched_waking,raw_syscalls:sys_enter,raw_syscalls:sys_exit \
             -- COMMAND` and pass the perf.data",
        ),
        notes: "record with `perf record`",
    },
];

/// What is left.
const REST: [Format; 2] = [
    Format {
        name: "binary",
        what: "not text, and none of the binary traces that are known",
        is: |head| head.iter().take(512).filter(|byte| **byte == 0).count() > 2,
        content: Content::Binary,
        how: How::Refused(
            "schedlab reads perf.data, Perfetto traces, and the text of perf, ftrace, trace-cmd, \
             atrace, systrace and LTTng",
        ),
        notes: "",
    },
    Format {
        name: "text",
        what: "the text of a tracer",
        is: |_| true,
        content: Content::Text,
        how: How::Stream(text::read),
        notes: "`perf script` with any -F that has comm, tid, cpu, time and event, also of `perf \
                record --switch-events -a` (which has no wakeups); ftrace, `trace-cmd report`, \
                atrace, systrace (also HTML), LTTng by babeltrace",
    },
];

/// Returns the kind of a file that begins with `head`.
pub fn recognise(head: &[u8]) -> &'static Format {
    all().find(|format| (format.is)(head)).unwrap_or(&REST[REST.len() - 1])
}

impl Format {
    /// Whether `import` reads it.
    pub const fn is_read(&self) -> bool {
        matches!(self.how, How::Stream(_) | How::Whole(_))
    }

    /// Returns what other code has to read it; `None` when `import` reads it or nothing does.
    pub const fn elsewhere(&self) -> Option<Elsewhere> {
        match self.how {
            How::Elsewhere(what) => Some(what),
            _ => None,
        }
    }

    /// Returns what makes a file readable that `import` does not read.
    pub const fn advice(&self) -> Option<&'static str> {
        match self.how {
            How::Refused(what_to_do) => Some(what_to_do),
            _ => None,
        }
    }

    /// Whether `import` reads it as a trace.
    pub const fn is_trace(&self) -> bool {
        matches!(self.how, How::Stream(_) | How::Whole(_))
    }
}

/// Reads all that is left, if it is not too much.
pub(super) fn whole(input: &mut dyn BufRead) -> Result<Vec<u8>, TraceError> {
    let mut bytes = Vec::new();
    let read = Read::take(input, WHOLE_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|source| TraceError::Io { doing: "read", source })?;
    if bytes.len() as u64 > WHOLE_MAX {
        return Err(TraceError::TooLarge {
            what: format!("the trace has more than {WHOLE_MAX} bytes"),
        });
    }
    Ok(bytes)
}

/// The text under `systemTraceEvents`.
fn read_json(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), TraceError> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Document {
        system_trace_events: Option<String>,
    }
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|error| TraceError::Option(format!("the JSON trace is damaged: {error}")))?;
    match document.system_trace_events {
        Some(text) => text::read(&mut text.as_bytes(), builder),
        None => Err(TraceError::Option(
            "it is a JSON trace of a program (`traceEvents`) without `systemTraceEvents`: it has \
             no scheduling events"
                .to_owned(),
        )),
    }
}

/// A line of `perf trace` (`     0.056 ( 0.010 ms): tar/7995 read(fd: 3)`,
/// `     0.018 hog/15 sched:sched_switch(prev_comm: ...`), or the heading of its summary.
fn is_perf_trace(line: &str) -> bool {
    let line = line.trim();
    if line == "Summary of events:" {
        return true;
    }
    let Some((at, rest)) = line.split_once(' ') else { return false };
    let milliseconds = at.split_once('.').is_some_and(|(whole, part)| {
        part.len() == 3 && [whole, part].iter().all(|text| text.parse::<u64>().is_ok())
    });
    let rest = rest.trim_start();
    let took = || {
        rest.strip_prefix('(').and_then(|rest| rest.split_once("): ")).map(|(took, _)| took.trim())
    };
    let is_call = || took().is_some_and(|took| took.is_empty() || took.ends_with("ms"));
    let is_event = || {
        rest.split_whitespace()
            .nth(1)
            .is_some_and(|word| word.contains(':') && word.contains("(prev_comm:"))
    };
    at == "?" && is_call() || milliseconds && (is_call() || is_event())
}

/// What there is to say about a folder that was given instead of a file: which trace it is, and the
/// command that makes it readable.
pub fn folder(path: &Path) -> String {
    let shown = path.display();
    let head = |file: &Path| {
        let mut head = Vec::new();
        let read = schedlab_files::open(file).and_then(|file| file.take(16).read_to_end(&mut head));
        if read.is_ok() { head } else { Vec::new() }
    };
    if perf_data::is_perf_data(&head(&path.join("data"))) {
        return format!(
            "this is a folder of `perf record --threads`: pass its text: `perf script -i {shown} \
             | schedlab import - -o OUT.slt`"
        );
    }
    let ctf: &[&[u8]] =
        &[b"/* CTF", &[0x57, 0x1d, 0xd1, 0x75], &[0x75, 0xd1, 0x1d, 0x57], b"\x1e{"];
    let is_ctf = |file: &PathBuf| {
        let head = head(file);
        ctf.iter().any(|begin| head.starts_with(begin))
    };
    if descriptions(path, 0).iter().any(is_ctf) {
        return format!(
            "this is the folder of a CTF trace (LTTng): pass its text: `babeltrace2 {shown} | \
             schedlab import - -o OUT.slt`"
        );
    }
    "this is a folder: pass a file".to_owned()
}

/// The descriptions of the traces in a folder: its own, and those in the folders of an LTTng
/// session (`kernel`, `ust/uid/1000/64-bit`).
fn descriptions(path: &Path, depth: usize) -> Vec<PathBuf> {
    let mut found = vec![path.join("metadata")];
    let is_lttngs = |name: &str| {
        matches!(name, "kernel" | "ust" | "uid" | "pid" | "64-bit" | "32-bit")
            || depth > 0 && !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
    };
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    for entry in entries.take(FILES).filter(|entry| entry.path().is_dir() && depth < FOLDERS) {
        if is_lttngs(&entry.file_name().to_string_lossy()) {
            found.extend(descriptions(&entry.path(), depth + 1));
        }
    }
    found
}

/// Folders inside each other that are looked into.
const FOLDERS: usize = 5;
/// Entries of a folder that are looked at.
const FILES: usize = 1000;

fn is_json(head: &[u8]) -> bool {
    head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

fn contains(head: &[u8], what: &[u8]) -> bool {
    memchr::memmem::find(head, what).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_traces_are_named_with_the_command_that_reads_them() {
        let root =
            schedlab_testing::temp_dir().join(format!("schedlab-folders-{}", std::process::id()));
        let make = |inner: &str, file: &str, bytes: &[u8]| {
            let folder = root.join(inner);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(file), bytes).unwrap();
        };
        make("session/ust/uid/1000/64-bit", "metadata", b"\x57\x1d\xd1\x75rest");
        make("perf-ctf", "metadata", b"/* CTF 1.8 */");
        make("threads", "data", b"PERFILE2rest");
        make("other/stuff/kernel", "metadata", b"/* CTF 1.8 */");
        for (name, command) in [
            ("session", "babeltrace2 "),
            ("perf-ctf", "babeltrace2 "),
            ("threads", "perf script -i "),
            ("other", "pass a file"),
        ] {
            let said = folder(&root.join(name));
            assert!(said.contains(command), "{said}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn files_are_recognised_by_their_beginning() {
        for (head, name) in [
            (&b"PERFILE2h\0\0\0"[..], "perf_data"),
            (b"\x17\x08\x44tracing6\0", "trace_dat"),
            (b"\xc1\x1f\xfc\xc1\x00", "ctf"),
            (b"\x7fELF\x02", "elf"),
            (b"{\"traceEvents\": [], \"systemTraceEvents\": \"# tracer\"}", "system_trace_events"),
            (b"\n {\"tasks\": {}}", "rt_app"),
            (b"cpus=8\n", "text"),
            (b"\n  hog 200 [001] 1.5: x: y\n", "text"),
            (b"\x0a\x14\xea\x02\x11\x0a\x0f\x0a\x05Linux", "perfetto"),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
            (b"", "text"),
            (b"\xfd7zXZ\0\0\x04", "xz"),
            (b"BZh91AY&SY", "bzip2"),
            (b"\x04\x22\x4d\x18\x64", "lz4"),
            (b"PK\x03\x04\x14\0\0\0", "zip"),
            (b"\x57\x1d\xd1\x75", "ctf_metadata"),
            (b"[ {\"name\": \"a\", \"ph\": \"X\"}]", "chrome"),
            (b"[13:37:28.123456789] (+0.1) host x: { cpu_id = 1 }", "text"),
            (b"{\n\t\"linux-perf-json-version\": 1,", "perf_json"),
            (b"         ? (         ): tar/7995  ... [continued]: read()) = 8192\n", "perf_trace"),
            (
                b"     0.056 ( 0.010 ms): tar/7995 read(fd: 3<pipe:[548528]>, count: 10240) = \
                  4096\n",
                "perf_trace",
            ),
            (
                b"     0.018 rcu/15 sched:sched_switch(prev_comm: \"rcu\", prev_pid: 15 (rcu))\n",
                "perf_trace",
            ),
            (b"\n Summary of events:\n\n schedlab (8719), 11 events, 0.1%\n", "perf_trace"),
            (b"  hog   200 [001]   100.100: sched:sched_waking: x\n", "text"),
            (
                b"  100.000100 |   1)   hog-200    |               |  /* sched_waking: x */\n",
                "text",
            ),
        ] {
            assert_eq!(recognise(head).name, name, "{head:?}");
        }
        let mut names: Vec<&str> = all().map(|format| format.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
    }
}
