//! Kernel pseudo file systems through a detached mount: nothing on the machine changes and nothing
//! has to be mounted. Used for the ids and layouts of tracepoints (tracefs) and the scheduler's
//! knobs (debugfs).

use crate::HostError;
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

/// The root of a pseudo file system.
#[derive(Debug)]
pub(crate) struct PseudoFs {
    root: OwnedFd,
}

impl PseudoFs {
    /// `name` is `tracefs` or `debugfs`. Needs CAP_SYS_ADMIN (Linux 5.2 and later).
    pub(crate) fn detached(name: &str) -> io::Result<PseudoFs> {
        let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        Ok(PseudoFs { root })
    }

    /// The detached file system, or else the place where it is usually mounted.
    pub(crate) fn tracefs() -> io::Result<PseudoFs> {
        Self::detached("tracefs").or_else(|first| {
            let mounted = |path| -> io::Result<PseudoFs> {
                let root =
                    rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
                let fs = PseudoFs { root };
                fs.read("events/sched/sched_switch/id").map(|_| fs)
            };
            mounted("/sys/kernel/tracing")
                .or_else(|_| mounted("/sys/kernel/debug/tracing"))
                .map_err(|_| first)
        })
    }

    /// The text of one file, given relative to the root.
    pub(crate) fn read(&self, path: &str) -> io::Result<String> {
        let file = openat(&self.root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text)?;
        Ok(text)
    }

    /// The layout of one tracepoint, such as `sched/sched_switch`.
    pub(crate) fn tracepoint(&self, name: &str) -> Result<Tracepoint, HostError> {
        let path = format!("events/{name}/format");
        let text = self.read(&path).map_err(HostError::io(format!("reading tracefs {path}")))?;
        Tracepoint::parse(&text)
            .map_err(|detail| HostError::Form { what: format!("tracefs {path}"), detail })
    }
}

/// Id and layout of a tracepoint, as its `format` file gives them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tracepoint {
    pub(crate) id: u64,
    fields: Vec<(String, Field)>,
    /// The `print fmt` line.
    pub(crate) print: String,
}

/// Where a number is in the raw record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Field {
    offset: usize,
    size: usize,
    signed: bool,
}

impl Field {
    /// The number, or `None` when the record is too short.
    #[inline]
    pub(crate) fn number(self, raw: &[u8]) -> Option<i64> {
        let bytes = raw.get(self.offset..self.offset + self.size)?;
        Some(match (self.size, self.signed) {
            (1, false) => i64::from(bytes[0]),
            (1, true) => i64::from(bytes[0] as i8),
            (2, false) => i64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            (2, true) => i64::from(i16::from_ne_bytes(bytes.try_into().ok()?)),
            (4, false) => i64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            (4, true) => i64::from(i32::from_ne_bytes(bytes.try_into().ok()?)),
            (8, _) => i64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }

    /// A thread's name (a fixed array of 16 bytes).
    #[inline]
    pub(crate) fn comm(self, raw: &[u8]) -> Option<[u8; 16]> {
        raw.get(self.offset..self.offset + 16)?.try_into().ok()
    }
}

impl Tracepoint {
    pub(crate) fn parse(text: &str) -> Result<Tracepoint, String> {
        let mut id = None;
        let mut fields = Vec::new();
        let mut print = String::new();
        for line in text.lines() {
            let line = line.trim();
            if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if let Some(rest) = line.strip_prefix("print fmt:") {
                print = rest.to_owned();
            } else if line.starts_with("field:") {
                fields.push(field(line).ok_or_else(|| format!("cannot read `{line}`"))?);
            }
        }
        Ok(Tracepoint { id: id.ok_or("there is no ID")?, fields, print })
    }

    /// The field called `name`.
    pub(crate) fn field(&self, name: &str) -> Result<Field, HostError> {
        self.fields.iter().find(|(n, _)| n == name).map(|&(_, field)| field).ok_or_else(|| {
            HostError::Form {
                what: format!("tracepoint {}", self.id),
                detail: format!("it has no field `{name}`"),
            }
        })
    }
}

/// Reads `field:pid_t prev_pid; offset:24; size:4; signed:1;`.
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let name = declaration.split_whitespace().last()?;
    let name = name.split('[').next()?.to_owned();
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let (offset, size) = (number("offset:")?, number("size:")?);
    let signed = number("signed:")? != 0;
    Some((name, Field { offset, size, signed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: sched_switch
ID: 372
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;

print fmt: \"prev_comm=%s\", REC->prev_comm
";

    #[test]
    fn reads_ids_and_offsets() {
        let point = Tracepoint::parse(FORMAT).unwrap();
        assert_eq!(point.id, 372);
        assert_eq!(point.field("prev_state").unwrap(), Field { offset: 32, size: 8, signed: true });
        assert_eq!(point.field("prev_comm").unwrap().offset, 8);
        assert!(point.field("no_such").is_err());
        let mut raw = [0u8; 40];
        raw[4..8].copy_from_slice(&(-7i32).to_ne_bytes());
        assert_eq!(point.field("common_pid").unwrap().number(&raw), Some(-7));
        assert_eq!(point.field("common_pid").unwrap().number(&raw[..6]), None);
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        assert!(Tracepoint::parse("").is_err());
        assert!(Tracepoint::parse("ID: 3\nfield:int x; size:4;").is_err());
    }
}
