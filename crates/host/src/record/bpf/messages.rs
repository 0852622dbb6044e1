//! The records of `bpf/facts.h`: 64 bytes each, laid out as its `struct fact`; and the programs
//! that write them.

use crate::record::messages::RawFact;
use crate::sys::Shared;
use aya::Btf;
use aya_obj::btf::BtfKind;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of a record.
pub(crate) const FACT: usize = 64;
/// Where its sequence number is.
const FACT_SEQUENCE: usize = 60;

/// Bytes of `struct fact_control`, and where its parts are.
pub(crate) const FACT_CONTROL: usize = 128;
const FACT_HEAD: usize = 0;
const FACT_LOST: usize = 8;
pub(crate) const FACT_CALLS: usize = 24;
const FACT_TAIL: usize = 64;

/// The programs and their tracepoints.
pub(crate) const FACT_PROGRAMS: [(&str, &str); 5] = [
    ("on_send", "sock_send_length"),
    ("on_receive", "sock_recv_length"),
    ("on_state", "inet_sock_set_state"),
    ("on_signal", "signal_generate"),
    ("on_return", "sys_exit"),
];

/// The program that counts system calls, and its tracepoint.
pub(crate) const COUNTER: (&str, &str) = ("count_calls", "sys_exit");

/// For so long system calls are counted before a recording of the whole machine.
pub(crate) const COUNTED_FOR: Duration = Duration::from_millis(50);

/// From so many system calls a second on, all CPUs together, messages are not recorded unless they
/// are asked for, because the recorder looks at the return of each. The bound is chosen (issue 45),
/// not measured.
pub(crate) const TOO_MANY_CALLS: u64 = 1_000_000;

/// Why a recording of the whole machine has no messages at this rate of system calls, if that is
/// so.
pub(crate) fn too_many(calls: u64) -> Option<String> {
    let a_second = calls * 1000 / COUNTED_FOR.as_millis() as u64;
    (a_second > TOO_MANY_CALLS).then(|| {
        format!(
            "the machine makes {:.1} million system calls a second, and the recorder would look \
             at the return of each; `--messages on` records \
             them all the same",
            a_second as f64 / 1e6
        )
    })
}

/// Numbers of the system calls whose return makes a fact (x86-64; Linux 6.18,
/// arch/x86/entry/syscalls/syscall_64.tbl).
/// The end of a sendmmsg (307) makes none: the next one begins with its first datagram.
const CALLS: [u32; 35] = [
    0, 1, 7, 19, 20, 22, 23, 35, 42, 43, 53, 61, 202, 213, 230, 232, 247, 270, 271, 281, 282, 283,
    284, 286, 288, 289, 290, 291, 293, 307, 327, 328, 425, 426, 441,
];

/// And those for sockets, where these have no tracepoints: sendto, recvfrom, sendmsg, recvmsg.
const SOCKET_CALLS: [u32; 4] = [44, 45, 46, 47];

/// Returns a bit for each system call that makes a fact.
pub(crate) fn interesting_calls(sockets_by_calls: bool) -> [u64; 8] {
    let more = SOCKET_CALLS.iter().filter(|_| sockets_by_calls);
    let mut bits = [0; 8];
    for call in CALLS.iter().chain(more) {
        bits[*call as usize / 64] |= 1u64 << (call % 64);
    }
    bits
}

/// Whether the kernel has the tracepoints of what goes through sockets (Linux 6.3).
pub(crate) fn has_socket_tracepoints(btf: &Btf) -> bool {
    ["btf_trace_sock_send_length", "btf_trace_sock_recv_length"]
        .iter()
        .all(|name| btf.id_by_type_name_kind(name, BtfKind::Typedef).is_ok())
}

/// Returns how often the kernel has left out a program, from what /proc/PID/fdinfo says of it.
pub(crate) fn recursion_misses(fdinfo: &str) -> u64 {
    let mut values = fdinfo.lines().filter_map(|line| line.strip_prefix("recursion_misses:"));
    values.next().and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}

/// Returns the fact of a record.
pub(crate) fn decode(words: [u64; 8]) -> RawFact {
    let [at, object, other, value, task, place, what, rest] = words;
    RawFact {
        at,
        object,
        other,
        value,
        tid: task as u32,
        n: (task >> 32) as u32 as i32,
        place: place as u32,
        word: (place >> 32) as u32,
        extra: what as u32,
        flags: (what >> 32) as u16,
        kind: (what >> 48) as u8,
        of: (what >> 56) as u8,
        limit: rest as u8,
    }
}

/// The ring of one CPU for facts.
pub(crate) struct FactRing {
    pub(crate) rings: Rc<Shared>,
    pub(crate) controls: Rc<Shared>,
    pub(crate) slots: usize,
    pub(crate) tail: u64,
    pub(crate) lost: u64,
    pub(crate) seen: u64,
    pub(crate) last_at: u64,
}

impl FactRing {
    pub(super) fn new(rings: &Rc<Shared>, controls: &Rc<Shared>, slots: usize) -> FactRing {
        let (rings, controls) = (Rc::clone(rings), Rc::clone(controls));
        FactRing { rings, controls, slots, tail: 0, lost: 0, seen: 0, last_at: 0 }
    }

    /// Appends what is there of the ring of `cpu`; `stopped`: nothing is written any longer.
    pub(crate) fn drain(&mut self, cpu: usize, stopped: bool, out: &mut VecDeque<RawFact>) {
        let control = |part: usize| self.controls.long(cpu * FACT_CONTROL + part);
        let head = control(FACT_HEAD).load(Ordering::Acquire);
        // As in the ring of events.
        let end = if cfg!(target_arch = "x86_64") || stopped { head } else { self.seen };
        self.seen = head;
        while self.tail != end {
            let slot = self.tail as usize & (self.slots - 1);
            let offset = (cpu * self.slots + slot) * FACT;
            let sequence = self.rings.word(offset + FACT_SEQUENCE).load(Ordering::Acquire);
            if sequence != (self.tail as u32).wrapping_add(1) {
                break;
            }
            let words: [u64; 8] =
                std::array::from_fn(|i| self.rings.long(offset + 8 * i).load(Ordering::Relaxed));
            let fact = decode(words);
            // One that was begun before another may be written after it.
            self.last_at = self.last_at.max(fact.at);
            out.push_back(RawFact { at: self.last_at, ..fact });
            self.tail += 1;
        }
        control(FACT_TAIL).store(self.tail, Ordering::Release);
        let lost = control(FACT_LOST).load(Ordering::Relaxed);
        if lost != self.lost {
            out.push_back(RawFact::lost(self.last_at, lost - self.lost));
            self.lost = lost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_where_the_program_puts_it() {
        let words = [
            5,
            6,
            7,
            8,
            9 | 0xffff_fff5 << 32,
            10 | 11 << 32,
            12 | 0x21 << 32 | 2 << 48 | 1 << 56,
            4 | 77 << 32,
        ];
        let fact = RawFact {
            at: 5,
            object: 6,
            other: 7,
            value: 8,
            tid: 9,
            n: -11,
            place: 10,
            word: 11,
            extra: 12,
            flags: 0x21,
            kind: 2,
            of: 1,
            limit: 4,
        };
        assert_eq!(decode(words), fact);
    }

    #[test]
    fn runs_that_the_kernel_left_out_are_counted() {
        let text = "pos:\t0\nprog_type:\t26\nrun_cnt:\t0\nrecursion_misses:\t5588\n";
        assert_eq!(recursion_misses(text), 5_588);
        assert_eq!(recursion_misses("pos:\t0\nprog_type:\t26\n"), 0, "before Linux 5.12");
    }

    #[test]
    fn a_busy_machine_is_told_why() {
        assert_eq!(too_many(50_000), None);
        let why = too_many(100_000).expect("two million a second");
        assert!(why.contains("2.0 million") && why.contains("--messages on"), "{why}");
    }

    #[test]
    fn calls_of_sockets_are_looked_at_only_without_their_tracepoints() {
        let has = |bits: [u64; 8], call: usize| bits[call / 64] >> (call % 64) & 1 == 1;
        assert!(has(interesting_calls(false), 202) && has(interesting_calls(true), 441));
        assert!(!has(interesting_calls(false), 45) && has(interesting_calls(true), 45));
        assert!(!has(interesting_calls(true), 2), "open");
    }
}
