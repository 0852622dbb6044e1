//! One event of a Perfetto trace, before all are put in order.

use super::super::event::{Context, Who};
use crate::export::perfetto::field;
use crate::export::proto::{Fields, Value};
use schedlab_model::MAX_CPUS;
use std::borrow::Cow;

/// One event before it is put in order.
pub(super) struct Raw {
    pub(super) at: u64,
    pub(super) cpu: u32,
    /// The task that ran, where the event says so.
    pub(super) by: Option<u32>,
    pub(super) context: Context,
    pub(super) kind: Kind,
}

/// A task as an event names it.
pub(super) struct Named {
    pub(super) comm: String,
    pub(super) tid: u32,
    pub(super) prio: i64,
}

impl Raw {
    /// Events of a CPU are missing before this time.
    pub(super) const fn lost(at: u64, cpu: u32) -> Raw {
        Raw { at, cpu, by: Some(0), context: Context::NotShown, kind: Kind::Lost }
    }
}

impl Named {
    pub(super) fn who(&self) -> Who<'_> {
        Who { comm: self.comm.as_str().into(), tid: self.tid, prio: i32::try_from(self.prio).ok() }
    }
}

pub(super) enum Kind {
    Switch {
        prev: Named,
        state: i64,
        next: Named,
    },
    /// A switch of the compact form, away from whatever ran before.
    Compact {
        state: i64,
        next: Named,
    },
    Waking(Named),
    Wakeup(Named),
    WakeupNew(Named),
    Exec(u32),
    Exit(Named),
    Fork(Named),
    Migrate {
        task: Named,
        from: u32,
        to: u32,
    },
    Print(String),
    /// Events of this CPU are missing before this one.
    Lost,
}

pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

pub(super) fn context(flags: Option<u64>) -> Context {
    match flags {
        None => Context::NotShown,
        Some(flags) if flags & field::FLAG_HARDIRQ != 0 => Context::HardIrq,
        Some(flags) if flags & field::FLAG_SOFTIRQ != 0 => Context::SoftIrq,
        Some(_) => Context::Task,
    }
}

/// An event of ftrace; `None` for one that says nothing about the schedule.
pub(super) fn kind(number: u32, inner: &[u8]) -> Result<Option<Kind>, String> {
    let (mut ints, mut texts) = ([0i64; 8], [const { Cow::Borrowed("") }; 8]);
    Fields(inner).each(|number, value| {
        let at = number as usize;
        match value {
            Value::Int(value) if at < ints.len() => ints[at] = value as i64,
            Value::Bytes(bytes) if at < texts.len() => texts[at] = text(bytes),
            _ => {}
        }
        Ok(())
    })?;
    let tid = |at: usize| ints[at] as u32;
    let named = |comm: usize, pid: usize, prio: i64| Named {
        comm: texts[comm].clone().into_owned(),
        tid: tid(pid),
        prio,
    };
    let subject = || named(1, 2, ints[3]);
    let cpu = |at: usize| {
        let cpu = tid(at);
        ((cpu as usize) < MAX_CPUS)
            .then_some(cpu)
            .ok_or_else(|| format!("CPU {cpu} is above {}", MAX_CPUS - 1))
    };
    Ok(Some(match number {
        field::EVENT_SWITCH => {
            Kind::Switch { prev: named(1, 2, ints[3]), state: ints[4], next: named(5, 6, ints[7]) }
        }
        field::EVENT_WAKING => Kind::Waking(subject()),
        field::EVENT_WAKEUP => Kind::Wakeup(subject()),
        field::EVENT_WAKEUP_NEW => Kind::WakeupNew(subject()),
        field::EVENT_EXEC => Kind::Exec(tid(2)),
        field::EVENT_EXIT => Kind::Exit(named(1, 2, ints[4])),
        field::EVENT_FORK => Kind::Fork(named(3, 4, 0)),
        field::EVENT_MIGRATE => Kind::Migrate { task: subject(), from: cpu(4)?, to: cpu(5)? },
        field::EVENT_PRINT => Kind::Print(texts[2].trim_end().to_owned()),
        _ => return Ok(None),
    }))
}
