//! Work in pieces: one thread makes the pieces, several work on them, and what they make comes in
//! the order of the pieces.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// More threads than this wait for the one that takes what they make.
const THREADS: usize = 8;

/// Pieces that wait for a thread, and results that wait to be taken, for each thread.
const AHEAD: usize = 2;

/// The threads that work on pieces.
pub struct Lanes<P> {
    lanes: Vec<(SyncSender<P>, Receiver<P>)>,
    next: usize,
    open: bool,
}

impl<P> Lanes<P> {
    /// The next piece; waits when the threads are behind.
    pub fn give(&mut self, piece: P) {
        let lane = self.next % self.lanes.len();
        self.next += 1;
        self.open &= self.lanes[lane].0.send(piece).is_ok();
    }

    /// Whether a consumer still takes what is made of the pieces.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// A piece that was worked on.
    pub fn used(&mut self) -> Option<P> {
        self.lanes.iter().find_map(|(_, used)| used.try_recv().ok())
    }
}

/// Gives `take` what `work` makes of each piece that `make` gives, in their order; returns what
/// `make` returns. `work` appends to an empty buffer; `state` makes what a thread keeps from piece
/// to piece.
///
/// # Errors
/// The first one of `take`; the rest is left.
pub fn in_order<P: Send, R: Send, S, E>(
    make: impl FnOnce(&mut Lanes<P>) -> R + Send,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &P, &mut Vec<u8>) + Sync,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<R, E> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    let (state, work) = (&state, &work);
    std::thread::scope(|scope| {
        let lane = |_| {
            let (give, pieces) = sync_channel::<P>(AHEAD);
            let (give_made, made) = sync_channel::<Vec<u8>>(AHEAD);
            let (give_back, used) = channel::<Vec<u8>>();
            let (give_used, used_pieces) = channel::<P>();
            scope.spawn(move || work_on(&pieces, (state(), work), (&give_made, &used), &give_used));
            ((give, used_pieces), (made, give_back))
        };
        let (lanes, results): (Vec<_>, Vec<_>) = (0..threads).map(lane).unzip();
        let maker = scope.spawn(move || make(&mut Lanes { lanes, next: 0, open: true }));
        let mut result = Ok(());
        for (made, give_back) in results.iter().cycle() {
            // Where it is the next one's turn and there is none, there are none behind it. (A
            // thread that panicked comes up at the end of the scope.)
            let Ok(buffer) = made.recv() else { break };
            result = take(&buffer);
            if result.is_err() {
                break;
            }
            // At the end it is not needed.
            let _ = give_back.send(buffer);
        }
        // No thread takes anything any more: all threads end.
        drop(results);
        let made = maker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.map(|()| made)
    })
}

fn work_on<P, S>(
    pieces: &Receiver<P>,
    (mut state, work): (S, impl Fn(&mut S, &P, &mut Vec<u8>)),
    (give, used): (&SyncSender<Vec<u8>>, &Receiver<Vec<u8>>),
    give_used: &Sender<P>,
) {
    for piece in pieces {
        let mut buffer = used.try_recv().unwrap_or_default();
        buffer.clear();
        work(&mut state, &piece, &mut buffer);
        // Who makes pieces may have made the last.
        let _ = give_used.send(piece);
        if give.send(buffer).is_err() {
            // No thread takes it any more.
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Lanes, in_order};

    fn number(_: &mut (), piece: &u32, out: &mut Vec<u8>) {
        out.extend(piece.to_le_bytes());
    }

    #[test]
    fn the_order_is_that_of_the_pieces() {
        for count in [0, 1, 2, 3, 100, 1000] {
            let mut taken = Vec::new();
            let make = |lanes: &mut Lanes<u32>| {
                (0..count).for_each(|piece| lanes.give(piece));
                lanes.is_open()
            };
            let take = |bytes: &[u8]| {
                taken.push(u32::from_le_bytes(bytes.try_into().unwrap()));
                Ok::<(), ()>(())
            };
            assert_eq!(in_order(make, || (), number, take), Ok(true));
            assert_eq!(taken, (0..count).collect::<Vec<u32>>());
        }
    }

    #[test]
    fn an_error_ends_it() {
        let (mut taken, mut made) = (0, 0);
        let make = |lanes: &mut Lanes<u32>| {
            while lanes.is_open() {
                lanes.give(made);
                made += 1;
            }
        };
        let take = |_: &[u8]| {
            taken += 1;
            if taken == 7 { Err("full") } else { Ok(()) }
        };
        assert_eq!(in_order(make, || (), number, take), Err("full"));
        assert_eq!(taken, 7);
    }

    #[test]
    fn pieces_are_used_again() {
        let make = |lanes: &mut Lanes<u32>| {
            let mut again = 0;
            for piece in 0..1000 {
                lanes.give(piece);
                again += usize::from(lanes.used().is_some());
            }
            again
        };
        // All but those that are on their way.
        assert!(in_order(make, || (), number, |_| Ok::<(), ()>(())).unwrap() > 900);
    }
}
