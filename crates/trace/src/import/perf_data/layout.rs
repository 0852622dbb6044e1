//! Where the fields of each tracepoint are: the `format` files of the recorded kernel, as perf keeps them in its file
//! (tools/perf/util/trace-event-info.c).

use super::super::event::{Context, Event, Who};
use super::super::states::{self, KernelVersion};
use super::records::Order;
use schedlab_model::MAX_CPUS;
use std::collections::BTreeMap;

/// All tracepoints of a file, by their number.
pub(super) struct Layouts {
    by_id: BTreeMap<u32, Tracepoint>,
    /// The kernel's version, for the bits of task states.
    pub(super) kernel: Option<KernelVersion>,
}

/// One tracepoint.
pub(super) struct Tracepoint {
    pub(super) name: String,
    fields: BTreeMap<String, Field>,
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
    pub(super) fn read(data: &[u8], order: Order, kernel: Option<KernelVersion>) -> Result<Layouts, String> {
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
        let mut by_id = BTreeMap::new();
        let mut add = |text: &[u8]| {
            if let Some((id, tracepoint)) = Tracepoint::parse(&String::from_utf8_lossy(text)) {
                by_id.insert(id, tracepoint);
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
        Ok(Layouts { by_id, kernel })
    }

    pub(super) fn get(&self, id: u32) -> Option<&Tracepoint> {
        self.by_id.get(&id)
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

impl Tracepoint {
    /// Reads the text of a `format` file.
    fn parse(text: &str) -> Option<(u32, Tracepoint)> {
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let (name, id) = (line("name:")?.to_owned(), line("ID:")?.parse().ok()?);
        let fields = text.lines().filter_map(|line| Field::parse(line.trim())).collect();
        Some((id, Tracepoint { name, fields }))
    }

    fn number(&self, raw: &[u8], name: &str, order: Order) -> Option<i64> {
        let field = self.fields.get(name)?;
        let value = order.number(raw, field.at, field.size.min(8))?;
        let unused = 64 - 8 * field.size.clamp(1, 8);
        Some(if field.signed { (value << unused) as i64 >> unused } else { value as i64 })
    }

    fn text<'a>(&self, raw: &'a [u8], name: &str, order: Order) -> Option<&'a str> {
        let field = self.fields.get(name)?;
        let (at, size) = match field.elsewhere {
            true => {
                let place = order.number(raw, field.at, 4)? as usize;
                (place & 0xffff, place >> 16)
            }
            false => (field.at, field.size),
        };
        let bytes = raw.get(at..at.checked_add(size)?)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        // What is no UTF-8 is cut: names are for people.
        Some(
            std::str::from_utf8(&bytes[..end]).unwrap_or_else(|error| {
                std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
            }),
        )
    }

    /// The task that was running; `None`: it is gone.
    pub(super) fn common_pid(&self, raw: &[u8], order: Order) -> Option<u32> {
        u32::try_from(self.number(raw, "common_pid", order)?).ok()
    }

    /// In which context the event was written.
    pub(super) fn context(&self, raw: &[u8], order: Order) -> Context {
        self.number(raw, "common_flags", order)
            .map_or(Context::NotShown, |flags| Context::of_flags(flags as u64))
    }

    /// The event; `None`: a field is not where the format says.
    pub(super) fn event<'a>(
        &'a self,
        raw: &'a [u8],
        order: Order,
        kernel: Option<KernelVersion>,
    ) -> Option<Event<'a>> {
        let number = |name: &str| self.number(raw, name, order);
        let tid = |name: &str| u32::try_from(number(name)?).ok();
        let who = |comm: &str, pid: &str, prio: &str| {
            let prio = number(prio).map(|prio| prio as i32);
            Some(Who { comm: self.text(raw, comm, order)?, tid: tid(pid)?, prio })
        };
        let subject = || who("comm", "pid", "prio");
        let cpu = |name: &str| tid(name).filter(|cpu| (*cpu as usize) < MAX_CPUS);
        Some(match self.name.as_str() {
            "sched_switch" => Event::Switch {
                prev: who("prev_comm", "prev_pid", "prev_prio")?,
                state: states::from_bits(number("prev_state")? as u64, kernel),
                next: who("next_comm", "next_pid", "next_prio")?,
            },
            "sched_waking" => Event::Waking(subject()?),
            "sched_wakeup" => Event::Wakeup(subject()?),
            "sched_wakeup_new" => Event::WakeupNew(subject()?),
            "sched_process_exit" => Event::Exit(subject()?),
            "sched_process_exec" => Event::Exec { tid: tid("pid")? },
            "sched_process_fork" => Event::Fork {
                child: Who { comm: self.text(raw, "child_comm", order)?, tid: tid("child_pid")?, prio: None },
            },
            "sched_migrate_task" => {
                Event::Migrate { task: subject()?, from: cpu("orig_cpu")?, to: cpu("dest_cpu")? }
            }
            "sys_enter" => Event::SyscallEnter { number: tid("id")? },
            "sys_exit" => Event::SyscallExit,
            other => Event::Other(other),
        })
    }
}

impl Field {
    /// `field:char prev_comm[16]; offset:8; size:16; signed:0;`, with a tab behind each semicolon.
    fn parse(line: &str) -> Option<(String, Field)> {
        let mut parts = line.strip_prefix("field:")?.split(';').map(str::trim);
        let declared = parts.next()?;
        let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
        let (at, size, signed) = (number("offset:")?, number("size:")?, number("signed:").unwrap_or(0) != 0);
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
        let prev = Who { comm: "hog", tid: 200, prio: Some(120) };
        let next = Who { comm: "srv", tid: 300, prio: Some(-1) };
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
    fn a_text_elsewhere_is_found() {
        let format = SWITCH.replace(
            "field:char prev_comm[16];\toffset:8;\tsize:16",
            "field:__data_loc char[] prev_comm;\toffset:8;\tsize:4",
        );
        let (_, tracepoint) = Tracepoint::parse(&format).unwrap();
        let mut raw = vec![0; 70];
        raw[8..12].copy_from_slice(&(64u32 | 6 << 16).to_le_bytes());
        raw[64..68].copy_from_slice(b"long");
        assert_eq!(tracepoint.text(&raw, "prev_comm", Order::Little), Some("long"));
    }
}
