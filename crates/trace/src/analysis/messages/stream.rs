//! What is under way in one object: which send the bytes of a receive come from.

use schedlab_model::{Ns, Transfer};
use std::collections::VecDeque;

/// Most sends that are remembered while no task receives them.
const MOST: usize = 1 << 16;

/// A message that went from one line to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moved {
    /// The sender's line, where its send was recorded.
    pub(super) from: Option<usize>,
    /// The receiver's line, where its receive was recorded.
    pub(super) to: Option<usize>,
    pub(super) bytes: u64,
    /// From the send to the receive.
    pub(super) queued: Option<Ns>,
}

/// A send whose bytes were not all received yet.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    end: u64,
    bytes: u64,
    at: Ns,
    line: usize,
}

/// Bytes that were received before the send that brought them was told: a send ends after its bytes
/// are there.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    bytes: u64,
    at: Ns,
    line: usize,
}

/// One object.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    /// The places behind the last send and receive; without places of the kernel, counted from the
    /// first fact on.
    sent: Option<u64>,
    taken: Option<u64>,
    chunks: VecDeque<Chunk>,
    ahead: Option<Ahead>,
    queued: u64,
    /// Most bytes that lay in it.
    pub(super) longest: u64,
}

impl Stream {
    /// A send. Returns what of it was received already.
    pub(super) fn send(&mut self, at: Ns, line: usize, moved: &Transfer) -> Vec<Moved> {
        let bytes = u64::from(moved.bytes);
        let end = moved.place.unwrap_or_else(|| self.sent.unwrap_or_default().wrapping_add(bytes));
        let begin = end.wrapping_sub(bytes);
        self.sent = Some(self.sent.unwrap_or_default().max(end));
        let mut left = bytes;
        let mut done = Vec::new();
        if let Some(ahead) = &mut self.ahead
            && let Some(taken) = self.taken.filter(|taken| *taken > begin)
        {
            let early = (taken - begin).min(bytes).min(ahead.bytes);
            done.push(Moved {
                from: Some(line),
                to: Some(ahead.line),
                bytes: early,
                queued: Some(Ns::ZERO),
            });
            left -= early;
            ahead.bytes -= early;
            if ahead.bytes == 0 {
                self.ahead = None;
            }
        }
        if left > 0 && self.taken.is_none_or(|taken| taken < end) {
            self.chunks.push_back(Chunk { end, bytes: left, at, line });
            self.queued += left;
            self.longest = self.longest.max(self.queued);
        }
        if self.chunks.len() > MOST
            && let Some(old) = self.chunks.pop_front()
        {
            self.queued -= old.bytes;
            done.push(Moved { from: Some(old.line), to: None, bytes: old.bytes, queued: None });
        }
        done
    }

    /// Whether all of this send, which was just told, had been received before.
    pub(super) fn is_late(&self, moved: &Transfer) -> bool {
        let end = moved.place.or(self.sent);
        self.taken.is_some() && self.taken >= end
    }

    /// A receive. Returns the messages that it completes.
    pub(super) fn receive(&mut self, at: Ns, line: usize, moved: &Transfer) -> Vec<Moved> {
        let bytes = u64::from(moved.bytes);
        let mut done: Vec<Moved> = self.settle().map(|(_, moved)| moved).into_iter().collect();
        let end = moved.place.unwrap_or_else(|| self.taken.unwrap_or_default().wrapping_add(bytes));
        let begin = end.wrapping_sub(bytes);
        self.taken = Some(self.taken.unwrap_or_default().max(end));
        let mut known = 0;
        while let Some(front) = self.chunks.front_mut() {
            let from = front.end.wrapping_sub(front.bytes);
            if from >= end {
                break;
            }
            known += front.end.min(end).saturating_sub(from.max(begin));
            if front.end > end {
                break;
            }
            let queued = Some(at.saturating_sub(front.at));
            done.push(Moved { from: Some(front.line), to: Some(line), bytes: front.bytes, queued });
            self.queued -= front.bytes;
            self.chunks.pop_front();
        }
        if known < bytes {
            self.ahead = Some(Ahead { bytes: bytes - known, at, line });
        }
        done
    }

    /// What was received and never sent by a task of the recording came from elsewhere, or was on
    /// its way when it began.
    fn settle(&mut self) -> Option<(Ns, Moved)> {
        let ahead = self.ahead.take()?;
        self.sent = self.sent.max(self.taken);
        Some((
            ahead.at,
            Moved { from: None, to: Some(ahead.line), bytes: ahead.bytes, queued: None },
        ))
    }

    /// The recording is over: what is left went elsewhere, if no task of the recording receives
    /// from the object.
    pub(super) fn rest(&mut self) -> Vec<(Ns, Moved)> {
        let mut done: Vec<_> = self.settle().into_iter().collect();
        if self.taken.is_none() {
            let gone = self.chunks.drain(..).map(|chunk| {
                let Chunk { bytes, at, line, .. } = chunk;
                (at, Moved { from: Some(line), to: None, bytes, queued: None })
            });
            done.extend(gone);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::ObjectId;

    fn moved(bytes: u32, place: Option<u64>) -> Transfer {
        Transfer { place, ..Transfer::done(ObjectId(0), bytes) }
    }

    /// Sender, receiver, bytes and time under way.
    type Told = (Option<usize>, Option<usize>, u64, Option<u64>);

    fn told(done: &[Moved]) -> Vec<Told> {
        done.iter().map(|m| (m.from, m.to, m.bytes, m.queued.map(|ns| ns.0))).collect()
    }

    #[test]
    fn a_receive_takes_what_was_sent_before_it() {
        for places in [false, true] {
            let place = |at: u64| places.then_some(1_000 + at);
            let mut stream = Stream::default();
            assert_eq!(stream.send(Ns(10), 1, &moved(30, place(30))), []);
            assert_eq!(stream.send(Ns(20), 2, &moved(20, place(50))), []);
            let done = stream.receive(Ns(100), 3, &moved(40, place(40)));
            assert_eq!(told(&done), [(Some(1), Some(3), 30, Some(90))]);
            let done = stream.receive(Ns(110), 3, &moved(10, place(50)));
            assert_eq!(told(&done), [(Some(2), Some(3), 20, Some(90))]);
            assert_eq!(stream.longest, 50);
            assert!(stream.rest().is_empty());
        }
    }

    #[test]
    fn a_send_that_is_told_after_its_receive_is_the_same_message() {
        let mut stream = Stream::default();
        stream.send(Ns(1), 1, &moved(10, Some(110)));
        stream.receive(Ns(2), 2, &moved(10, Some(110)));
        assert_eq!(stream.receive(Ns(5), 2, &moved(10, Some(120))), []);
        let done = stream.send(Ns(6), 1, &moved(10, Some(120)));
        assert_eq!(told(&done), [(Some(1), Some(2), 10, Some(0))]);
        assert!(stream.is_late(&moved(10, Some(120))));
        assert!(stream.rest().is_empty());
    }

    #[test]
    fn what_came_from_elsewhere_or_goes_there_has_one_end() {
        let mut stream = Stream::default();
        assert!(stream.receive(Ns(5), 2, &moved(10, None)).is_empty());
        let done = stream.receive(Ns(6), 2, &moved(4, None));
        assert_eq!(told(&done), [(None, Some(2), 10, None)]);
        assert_eq!(
            told(&stream.rest().into_iter().map(|(_, moved)| moved).collect::<Vec<_>>()),
            [(None, Some(2), 4, None)]
        );
        let mut out = Stream::default();
        out.send(Ns(7), 1, &moved(9, None));
        assert_eq!(
            told(&out.rest().into_iter().map(|(_, moved)| moved).collect::<Vec<_>>()),
            [(Some(1), None, 9, None)]
        );
    }
}
