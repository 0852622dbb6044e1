//! What goes between `bpf/ext.bpf.c` and this crate: events of 32 bytes out of a ring, and batches
//! of decisions that a program gets and gives back with their statuses. Numbers are those of this
//! machine's byte order.

use schedlab_model::Ns;

/// Decisions in one batch at most (`BATCH`).
pub(crate) const BATCH: usize = 16;
/// Bytes of a decision, and of what precedes the first one.
const DECISION: usize = 24;
const HEAD: usize = 8;
/// Bytes of a batch.
pub(crate) const BATCH_BYTES: usize = HEAD + BATCH * DECISION;
/// Bytes of `struct control`.
pub(crate) const CONTROL: usize = 5 * 8 + REASON + MESSAGE;
const REASON: usize = 64;
const MESSAGE: usize = 192;

/// What happened in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    /// CLOCK_MONOTONIC.
    pub(crate) at: Ns,
    /// 0 where it is about a CPU.
    pub(crate) tid: u32,
    /// How often the thread had entered the queue of waiting threads.
    pub(crate) seq: u32,
    pub(crate) cpu: u32,
    pub(crate) what: What,
}

/// `enum kind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// It waits for a decision.
    Enqueue(By),
    Running,
    /// It is off its CPU. `runnable`: a thread of a higher class has the CPU, or `Enqueue` follows.
    Stopping {
        runnable: bool,
    },
    /// It blocked, or ended.
    Quiescent {
        ends: bool,
    },
    Yield,
    Weight,
    Cpumask,
    /// `maker` made it.
    Fork {
        maker: u32,
    },
    Exit,
    /// It has another policy now.
    Left,
    Online,
    Offline,
    /// The scheduler is unloaded.
    End,
}

/// In whose context a thread was woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// It was not woken, or that cannot be told.
    Unknown,
    Thread(u32),
    SoftIrq,
    HardIrq,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    number(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    number(bytes, at).map(u64::from_ne_bytes)
}

impl Event {
    /// Returns the event in these bytes; `None`: there is none of that kind.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Event> {
        let (kind, extra, arg) = (u16_at(bytes, 16)?, u32_at(bytes, 20)?, u64_at(bytes, 24)?);
        let what = match kind {
            1 => What::Enqueue(match arg >> 32 {
                1 => By::Thread(extra),
                2 => By::SoftIrq,
                3 => By::HardIrq,
                _ => By::Unknown,
            }),
            2 => What::Running,
            3 => What::Stopping { runnable: extra != 0 },
            4 => What::Quiescent { ends: extra != 0 },
            5 => What::Yield,
            6 => What::Weight,
            7 => What::Cpumask,
            8 => What::Fork { maker: extra },
            9 => What::Exit,
            10 => What::Left,
            11 => What::Online,
            12 => What::Offline,
            13 => What::End,
            _ => return None,
        };
        let (at, tid, seq) = (Ns(u64_at(bytes, 0)?), u32_at(bytes, 8)?, u32_at(bytes, 12)?);
        Some(Event { at, tid, seq, cpu: u32::from(u16_at(bytes, 18)?), what })
    }
}

/// What a decision asks for (`enum flag`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// The thread goes to the CPU; one that runs there goes back to the queue.
    Run,
    /// The thread is managed from now on.
    Take,
    /// And no longer.
    Free,
    /// What does the thread do?
    Tell,
    /// The thread, which runs on the CPU, goes back to the queue.
    Displace,
    /// The CPU takes this thread by itself when its own blocks; thread 0: none.
    Ahead,
}

/// One decision, and its answer when it comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decision {
    pub(crate) tid: u32,
    pub(crate) seq: u32,
    pub(crate) cpu: u32,
    pub(crate) ask: Ask,
    pub(crate) status: Status,
}

/// `enum status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// Not answered yet.
    Open,
    Done,
    /// The event was told before the kernel had put the thread into the queue: the same again.
    Early,
    /// The thread has done something since, of which an event tells.
    Stale,
    /// It may not run there.
    NotCpu,
    /// A decided thread waits for that CPU already.
    Busy,
    Refused,
    /// There is no such thread, or it was never managed.
    Gone,
    /// The answer to [`Ask::Tell`].
    State(KernelState, u32),
}

/// `enum state`; the number beside it is the CPU on which the thread ran last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KernelState {
    /// It sleeps.
    Out,
    /// It waits for a decision.
    Held,
    /// It waits for its CPU.
    Sent,
    OnCpu,
}

impl Ask {
    const fn flags(self) -> u16 {
        match self {
            Ask::Run => 1,
            Ask::Take => 2,
            Ask::Free => 4,
            Ask::Tell => 8,
            Ask::Displace => 16,
            Ask::Ahead => 32,
        }
    }
}

impl Status {
    fn decode(status: i32) -> Status {
        match status {
            1 => Status::Done,
            -1 => Status::Early,
            -2 => Status::Stale,
            -3 => Status::NotCpu,
            -4 => Status::Busy,
            -6 => Status::Gone,
            state if state & 0x100 != 0 && state > 0 => {
                let kind = match state & 0xff {
                    0 => KernelState::Out,
                    1 => KernelState::Held,
                    2 => KernelState::Sent,
                    _ => KernelState::OnCpu,
                };
                Status::State(kind, state.unsigned_abs() >> 16)
            }
            _ => Status::Refused,
        }
    }
}

/// Puts decisions (at most [`BATCH`]) into the bytes of a batch.
pub(crate) fn encode(decisions: &[Decision], batch: &mut [u8; BATCH_BYTES]) {
    batch.fill(0);
    batch[..4].copy_from_slice(&(decisions.len().min(BATCH) as u32).to_ne_bytes());
    for (one, bytes) in decisions.iter().zip(batch[HEAD..].chunks_exact_mut(DECISION)) {
        bytes[0..4].copy_from_slice(&one.tid.to_ne_bytes());
        bytes[4..8].copy_from_slice(&one.seq.to_ne_bytes());
        bytes[8..10].copy_from_slice(&(one.cpu as u16).to_ne_bytes());
        bytes[10..12].copy_from_slice(&one.ask.flags().to_ne_bytes());
        // A slice of the kernel ends at a tick; a turn ends by the next decision, whenever that is.
        bytes[16..24].copy_from_slice(&u64::MAX.to_ne_bytes());
    }
}

/// Takes the answers out of a batch that came back.
pub(crate) fn answers(batch: &[u8; BATCH_BYTES], decisions: &mut [Decision]) {
    for (one, bytes) in decisions.iter_mut().zip(batch[HEAD..].chunks_exact(DECISION)) {
        one.status =
            u32_at(bytes, 12).map_or(Status::Refused, |status| Status::decode(status as i32));
        if matches!(one.status, Status::State(..)) {
            one.seq = u32_at(bytes, 4).unwrap_or(one.seq);
        }
    }
}

/// `struct control`, as far as it is read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Control {
    pub(crate) lost: u64,
    pub(crate) alone: u64,
    /// `enum scx_exit_kind`; 0: the scheduler is loaded.
    pub(crate) end_kind: u64,
    pub(crate) end_reason: String,
    pub(crate) end_message: String,
}

impl Control {
    /// Returns what is in these bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Control> {
        let text = |at: usize, length: usize| {
            let bytes = bytes.get(at..at + length)?;
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(length);
            Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
        };
        Some(Control {
            lost: u64_at(bytes, 8)?,
            alone: u64_at(bytes, 16)?,
            end_kind: u64_at(bytes, 24)?,
            end_reason: text(40, REASON)?,
            end_message: text(40 + REASON, MESSAGE)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of an event, as the kernel writes them.
    fn bytes(kind: u16, extra: u32, arg: u64) -> Vec<u8> {
        let mut all = Vec::new();
        all.extend(77_u64.to_ne_bytes());
        all.extend(4_242_u32.to_ne_bytes());
        all.extend(9_u32.to_ne_bytes());
        all.extend(kind.to_ne_bytes());
        all.extend(3_u16.to_ne_bytes());
        all.extend(extra.to_ne_bytes());
        all.extend(arg.to_ne_bytes());
        all
    }

    #[test]
    fn every_kind_of_the_bpf_source_is_known_under_its_number() {
        let source = include_str!("../../../bpf/ext.bpf.c");
        let kinds = source
            .split_once("enum kind {")
            .expect("the list")
            .1
            .split_once("};")
            .expect("its end")
            .0;
        let names: Vec<&str> = kinds
            .lines()
            .filter_map(|line| line.trim().split([',', ' ']).next())
            .filter(|name| !name.is_empty() && name.chars().all(|one| one.is_ascii_uppercase()))
            .collect();
        assert_eq!(names.len(), 13, "{names:?}");
        for (at, name) in names.iter().enumerate() {
            let what = Event::decode(&bytes(at as u16 + 1, 0, 0)).expect("known").what;
            let ours = format!("{what:?}").to_uppercase();
            assert!(ours.starts_with(name), "{name} is decoded as {ours}");
        }
        assert_eq!(Event::decode(&bytes(0, 0, 0)), None);
        assert_eq!(Event::decode(&bytes(14, 0, 0)), None);
    }

    #[test]
    fn an_event_is_read_field_by_field_and_a_cut_one_is_none() {
        let whole = bytes(1, 55, 1 << 32 | 9);
        let event = Event::decode(&whole).expect("whole");
        assert_eq!((event.at, event.tid, event.seq, event.cpu), (Ns(77), 4_242, 9, 3));
        assert_eq!(event.what, What::Enqueue(By::Thread(55)));
        for length in 0..whole.len() {
            assert_eq!(Event::decode(&whole[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn a_batch_comes_back_with_its_answers() {
        let one = |ask| Decision { tid: 7, seq: 3, cpu: 258, ask, status: Status::Open };
        let mut sent = [one(Ask::Run), one(Ask::Free), one(Ask::Tell), one(Ask::Displace)];
        let mut batch = [0; BATCH_BYTES];
        encode(&sent, &mut batch);
        assert_eq!(batch[..4], 4_u32.to_ne_bytes());
        assert_eq!(batch[8 + 10..][..2], 1_u16.to_ne_bytes(), "PREEMPT");
        // The kernel answers.
        for (at, status) in [1_i32, -2, 0x100 | 3 | 5 << 16, -99].into_iter().enumerate() {
            batch[8 + 24 * at + 12..][..4].copy_from_slice(&status.to_ne_bytes());
        }
        batch[8 + 24 * 2 + 4..][..4].copy_from_slice(&11_u32.to_ne_bytes());
        answers(&batch, &mut sent);
        let statuses: Vec<Status> = sent.iter().map(|one| one.status).collect();
        let on_cpu = Status::State(KernelState::OnCpu, 5);
        assert_eq!(statuses, [Status::Done, Status::Stale, on_cpu, Status::Refused]);
        assert_eq!(
            (sent[0].seq, sent[2].seq),
            (3, 11),
            "only the answer to a question renews the number"
        );
    }

    #[test]
    fn the_kernels_reason_is_text() {
        let mut bytes = vec![0; CONTROL];
        bytes[24] = 65;
        bytes[40..47].copy_from_slice(b"stalled");
        let control = Control::decode(&bytes).expect("whole");
        assert_eq!((control.end_kind, control.end_reason.as_str()), (65, "stalled"));
        assert_eq!(Control::decode(&bytes[..CONTROL - 1]), None);
    }
}
