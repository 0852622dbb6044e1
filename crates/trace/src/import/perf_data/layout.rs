//! Where the fields of each tracepoint are: the `format` files of the recorded kernel, as perf
//! keeps them in its file (tools/perf/util/trace-event-info.c).

use super::super::event::{Context, Event, Name, Who};
use super::super::states::{self, KernelVersion};
use super::records::Order;
use schedlab_model::MAX_CPUS;
use std::collections::BTreeMap;

/// All tracepoints of a file.
pub(super) struct Layouts {
    /// By their number, of which a record has 16 bits.
    by_id: Vec<Option<Tracepoint>>,
}

/// One tracepoint.
pub(super) struct Tracepoint {
    pub(super) name: String,
    common_pid: Option<Field>,
    common_flags: Option<Field>,
    /// Where its fields are; `None`: it is known, but not with these fields.
    kind: Option<Kind>,
}

/// What a tracepoint says, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Switch {
        prev: Task,
        state: Field,
        next: Task,
    },
    Waking(Task),
    Wakeup(Task),
    WakeupNew(Task),
    Exit(Task),
    Exec {
        tid: Field,
    },
    Fork {
        child: Task,
    },
    Migrate {
        task: Task,
        from: Field,
        to: Field,
    },
    SyscallEnter {
        number: Field,
    },
    SyscallExit,
    /// Nothing about the schedule.
    Other,
}

/// Where a task is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Task {
    comm: Field,
    tid: Field,
    prio: Option<Field>,
}

/// A field: where it is in the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    at: usize,
    size: usize,
    signed: bool,
    /// The field holds the place and length of a text elsewhere in the record (`__data_loc`).
    elsewhere: bool,
}

impl Layouts {
    /// Reads the section `HEADER_TRACING_DATA`.
    pub(super) fn read(data: &[u8], order: Order) -> Result<Layouts, String> {
        let mut cursor = Cursor { data, at: 0, order };
        if cursor.bytes(10).is_none_or(|magic| magic != b"\x17\x08\x44tracing") {
            return Err("its tracepoint formats do not begin as they should".to_owned());
        }
        let lacks = || "its tracepoint formats are cut off".to_owned();
        cursor.text().ok_or_else(lacks)?;
        // Byte order, size of a long, size of a page; then how a page and an event begin.
        cursor.bytes(6).ok_or_else(lacks)?;
        for _ in 0..2 {
            cursor.text().ok_or_else(lacks)?;
            cursor.sized().ok_or_else(lacks)?;
        }
        let mut by_id: Vec<Option<Tracepoint>> = Vec::new();
        let mut add = |text: &[u8]| {
            if let Some((id, tracepoint)) = Tracepoint::parse(&String::from_utf8_lossy(text))
                && id <= u32::from(u16::MAX)
            {
                let id = id as usize;
                if id >= by_id.len() {
                    by_id.resize_with(id + 1, || None);
                }
                by_id[id] = Some(tracepoint);
            }
        };
        for _ in 0..cursor.count().ok_or_else(lacks)? {
            cursor.sized().map(&mut add).ok_or_else(lacks)?;
        }
        for _ in 0..cursor.count().ok_or_else(lacks)? {
            cursor.text().ok_or_else(lacks)?;
            for _ in 0..cursor.count().ok_or_else(lacks)? {
                cursor.sized().map(&mut add).ok_or_else(lacks)?;
            }
        }
        Ok(Layouts { by_id })
    }

    /// The tracepoint of a record.
    #[inline]
    pub(super) fn tracepoint(&self, raw: &[u8], order: Order) -> Option<&Tracepoint> {
        self.by_id.get(order.number(raw, 0, 2)? as usize)?.as_ref()
    }
}

struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
    order: Order,
}

impl<'a> Cursor<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let bytes = self.data.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(bytes)
    }

    /// A text that a zero ends.
    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.data.get(self.at..)?.iter().position(|byte| *byte == 0)?;
        self.bytes(length + 1)
    }

    fn count(&mut self) -> Option<u64> {
        let at = self.at;
        self.bytes(4).and_then(|_| self.order.number(self.data, at, 4))
    }

    /// A size of 8 bytes, and so many bytes.
    fn sized(&mut self) -> Option<&'a [u8]> {
        let at = self.at;
        self.bytes(8)?;
        let size = self.order.number(self.data, at, 8)?;
        self.bytes(usize::try_from(size).ok()?)
    }
}

impl Kind {
    /// `None`: a field is missing.
    fn from_fields(name: &str, fields: &BTreeMap<String, Field>) -> Option<Kind> {
        let field = |name: &str| fields.get(name).copied();
        let task = |comm: &str, pid: &str, prio: &str| {
            Some(Task { comm: field(comm)?, tid: field(pid)?, prio: field(prio) })
        };
        let subject = || task("comm", "pid", "prio");
        Some(match name {
            "sched_switch" => Kind::Switch {
                prev: task("prev_comm", "prev_pid", "prev_prio")?,
                state: field("prev_state")?,
                next: task("next_comm", "next_pid", "next_prio")?,
            },
            "sched_waking" => Kind::Waking(subject()?),
            "sched_wakeup" => Kind::Wakeup(subject()?),
            "sched_wakeup_new" => Kind::WakeupNew(subject()?),
            "sched_process_exit" => Kind::Exit(subject()?),
            "sched_process_exec" => Kind::Exec { tid: field("pid")? },
            "sched_process_fork" => Kind::Fork {
                child: Task { comm: field("child_comm")?, tid: field("child_pid")?, prio: None },
            },
            "sched_migrate_task" => {
                Kind::Migrate { task: subject()?, from: field("orig_cpu")?, to: field("dest_cpu")? }
            }
            "sys_enter" => Kind::SyscallEnter { number: field("id")? },
            "sys_exit" => Kind::SyscallExit,
            _ => Kind::Other,
        })
    }
}

impl Tracepoint {
    /// Reads the text of a `format` file.
    fn parse(text: &str) -> Option<(u32, Tracepoint)> {
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let (name, id) = (line("name:")?.to_owned(), line("ID:")?.parse().ok()?);
        let fields: BTreeMap<String, Field> =
            text.lines().filter_map(|line| Field::parse(line.trim())).collect();
        let common = |name: &str| fields.get(name).copied();
        let kind = Kind::from_fields(&name, &fields);
        let (common_pid, common_flags) = (common("common_pid"), common("common_flags"));
        Some((id, Tracepoint { name, common_pid, common_flags, kind }))
    }

    /// Whether it says nothing about the schedule.
    pub(super) fn is_other(&self) -> bool {
        self.kind == Some(Kind::Other)
    }

    /// The task that was running; `None`: it is gone.
    pub(super) fn common_pid(&self, raw: &[u8], order: Order) -> Option<u32> {
        self.common_pid?.id(raw, order)
    }

    /// In which context the event was written.
    pub(super) fn context(&self, raw: &[u8], order: Order) -> Context {
        let flags = self.common_flags.and_then(|field| field.number(raw, order));
        flags.map_or(Context::NotShown, |flags| Context::of_flags(flags as u64))
    }

    /// The event; `None`: a field is not where the format says.
    #[inline]
    pub(super) fn event<'a>(
        &'a self,
        raw: &'a [u8],
        order: Order,
        kernel: Option<KernelVersion>,
    ) -> Option<Event<'a>> {
        let cpu = |field: Field| field.id(raw, order).filter(|cpu| (*cpu as usize) < MAX_CPUS);
        Some(match self.kind? {
            Kind::Switch { prev, state, next } => Event::Switch {
                prev: prev.who(raw, order)?,
                state: states::from_bits(state.number(raw, order)? as u64, kernel),
                next: next.who(raw, order)?,
            },
            Kind::Waking(task) => Event::Waking(task.who(raw, order)?),
            Kind::Wakeup(task) => Event::Wakeup(task.who(raw, order)?),
            Kind::WakeupNew(task) => Event::WakeupNew(task.who(raw, order)?),
            Kind::Exit(task) => Event::Exit(task.who(raw, order)?),
            Kind::Exec { tid } => Event::Exec { tid: tid.id(raw, order)? },
            Kind::Fork { child } => Event::Fork { child: child.who(raw, order)? },
            Kind::Migrate { task, from, to } => {
                Event::Migrate { task: task.who(raw, order)?, from: cpu(from)?, to: cpu(to)? }
            }
            Kind::SyscallEnter { number } => Event::SyscallEnter { number: number.id(raw, order)? },
            Kind::SyscallExit => Event::SyscallExit,
            Kind::Other => Event::Other(&self.name),
        })
    }
}

impl Task {
    // As a call it would hand its parts over through memory, written in fours and read in eights,
    // which the processor waits for: an eighth of the time of an import.
    #[inline(always)]
    fn who<'a>(&self, raw: &'a [u8], order: Order) -> Option<Who<'a>> {
        let prio = self.prio.and_then(|prio| prio.number(raw, order)).map(|prio| prio as i32);
        Some(Who { comm: self.comm.name(raw, order)?, tid: self.tid.id(raw, order)?, prio })
    }
}

/// Where the first zero is; the length where there is none. Names of tasks are in 16 bytes, which
/// are looked at together.
#[inline]
fn first_zero(bytes: &[u8]) -> usize {
    const LOW: u128 = u128::from_ne_bytes([1; 16]);
    const HIGH: u128 = u128::from_ne_bytes([0x80; 16]);
    match <[u8; 16]>::try_from(bytes) {
        Ok(name) => {
            let word = u128::from_le_bytes(name);
            // The lowest of these bits is that of the first zero byte.
            let zeros = word.wrapping_sub(LOW) & !word & HIGH;
            zeros.trailing_zeros() as usize / 8
        }
        Err(_) => memchr::memchr(0, bytes).unwrap_or(bytes.len()),
    }
}

impl Field {
    #[inline]
    fn number(&self, raw: &[u8], order: Order) -> Option<i64> {
        let value = order.number(raw, self.at, self.size.min(8))?;
        let unused = 64 - 8 * self.size.clamp(1, 8);
        Some(if self.signed { (value << unused) as i64 >> unused } else { value as i64 })
    }

    #[inline]
    fn id(&self, raw: &[u8], order: Order) -> Option<u32> {
        u32::try_from(self.number(raw, order)?).ok()
    }

    #[inline]
    fn name<'a>(&self, raw: &'a [u8], order: Order) -> Option<Name<'a>> {
        let (at, size) = match self.elsewhere {
            true => {
                let place = order.number(raw, self.at, 4)? as usize;
                (place & 0xffff, place >> 16)
            }
            false => (self.at, self.size),
        };
        let bytes = raw.get(at..at.checked_add(size)?)?;
        Some(Name::new(&bytes[..first_zero(bytes)]))
    }

    /// `field:char prev_comm[16]; offset:8; size:16; signed:0;`, with a tab behind each semicolon.
    fn parse(line: &str) -> Option<(String, Field)> {
        let mut parts = line.strip_prefix("field:")?.split(';').map(str::trim);
        let declared = parts.next()?;
        let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
        let (at, size, signed) =
            (number("offset:")?, number("size:")?, number("signed:").unwrap_or(0) != 0);
        let name = declared.rsplit(' ').next()?.split('[').next()?.trim_start_matches('*');
        let elsewhere = declared.starts_with("__data_loc");
        Some((name.to_owned(), Field { at, size, signed, elsewhere }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::PrevState;

    const SWITCH: &str = "name: sched_switch\nID: 316\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\
        \tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";

    #[test]
    fn a_switch_is_read_by_its_format() {
        let (id, tracepoint) = Tracepoint::parse(SWITCH).unwrap();
        let mut raw = vec![0; 64];
        raw[2] = 0x08;
        raw[4..8].copy_from_slice(&200i32.to_le_bytes());
        raw[8..11].copy_from_slice(b"hog");
        raw[24..28].copy_from_slice(&200i32.to_le_bytes());
        raw[28..32].copy_from_slice(&120i32.to_le_bytes());
        raw[32..40].copy_from_slice(&0x100u64.to_le_bytes());
        raw[40..43].copy_from_slice(b"srv");
        raw[56..60].copy_from_slice(&300i32.to_le_bytes());
        raw[60..64].copy_from_slice(&(-1i32).to_le_bytes());
        let prev = Who { comm: "hog".into(), tid: 200, prio: Some(120) };
        let next = Who { comm: "srv".into(), tid: 300, prio: Some(-1) };
        let order = Order::Little;
        let expected = Event::Switch { prev, state: PrevState::RunnableInKernel, next };
        assert_eq!((id, tracepoint.event(&raw, order, None)), (316, Some(expected)));
        assert_eq!(
            (tracepoint.common_pid(&raw, order), tracepoint.context(&raw, order)),
            (Some(200), Context::HardIrq)
        );
        assert_eq!(tracepoint.event(&raw[..40], order, None), None);
    }

    #[test]
    fn names_end_at_their_first_zero() {
        for length in [0, 1, 7, 8, 15, 16, 17, 40] {
            for zero in 0..=length {
                let mut bytes = vec![0x81; length];
                bytes.iter_mut().skip(zero).step_by(3).for_each(|byte| *byte = 0);
                assert_eq!(first_zero(&bytes), zero, "{length}");
            }
        }
        assert_eq!(first_zero(b"\x01\x01\x00\x01567890123456"), 2);
    }

    #[test]
    fn a_text_elsewhere_is_found() {
        let format = SWITCH.replace(
            "field:char prev_comm[16];\toffset:8;\tsize:16",
            "field:__data_loc char[] prev_comm;\toffset:8;\tsize:4",
        );
        let (_, tracepoint) = Tracepoint::parse(&format).unwrap();
        let Some(Kind::Switch { prev, .. }) = tracepoint.kind else {
            panic!("{:?}", tracepoint.kind)
        };
        let mut raw = vec![0; 70];
        raw[8..12].copy_from_slice(&(64u32 | 6 << 16).to_le_bytes());
        raw[64..68].copy_from_slice(b"long");
        assert_eq!(prev.comm.name(&raw, Order::Little), Some(Name::from("long")));
    }
}
