//! Work in pieces: several threads do it, and what they make comes in the order of the pieces.

use std::sync::mpsc::{channel, sync_channel};

/// More threads than this wait for the one that takes what they make.
const THREADS: usize = 8;

/// Results of a thread that nobody has taken yet.
const AHEAD: usize = 2;

/// Gives `take` what `work` makes of each piece, in their order. `work` appends to an empty buffer; `state` makes what a thread
/// keeps from piece to piece.
///
/// # Errors
/// The first one of `take`; the rest is left.
pub fn in_order<P: Sync, S, E>(
    pieces: &[P],
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &P, &mut Vec<u8>) + Sync,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    let (state, work) = (&state, &work);
    std::thread::scope(|scope| {
        let lane = |first: usize| {
            let (give, made) = sync_channel::<Vec<u8>>(AHEAD);
            let (give_back, used) = channel::<Vec<u8>>();
            scope.spawn(move || {
                let mut state = state();
                for piece in pieces.iter().skip(first).step_by(threads) {
                    let mut buffer = used.try_recv().unwrap_or_default();
                    buffer.clear();
                    work(&mut state, piece, &mut buffer);
                    if give.send(buffer).is_err() {
                        // Nobody takes it any more.
                        break;
                    }
                }
            });
            (made, give_back)
        };
        let lanes: Vec<_> = (0..threads).map(lane).collect();
        for (made, give_back) in lanes.iter().cycle().take(pieces.len()) {
            // A thread that ended too early panicked, which comes up at the end of the scope.
            let Ok(buffer) = made.recv() else { break };
            take(&buffer)?;
            // At the end nobody needs it.
            let _ = give_back.send(buffer);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::in_order;

    fn number(_: &mut (), piece: &u32, out: &mut Vec<u8>) {
        out.extend(piece.to_le_bytes());
    }

    #[test]
    fn the_order_is_that_of_the_pieces() {
        for count in [0, 1, 2, 3, 100, 1000] {
            let pieces: Vec<u32> = (0..count).collect();
            let mut taken = Vec::new();
            let result: Result<(), ()> = in_order(
                &pieces,
                || (),
                number,
                |bytes| {
                    taken.push(u32::from_le_bytes(bytes.try_into().unwrap()));
                    Ok(())
                },
            );
            assert_eq!((result, taken), (Ok(()), pieces));
        }
    }

    #[test]
    fn an_error_ends_it() {
        let pieces: Vec<u32> = (0..1000).collect();
        let mut taken = 0;
        let take = |_: &[u8]| {
            taken += 1;
            if taken == 7 { Err("full") } else { Ok(()) }
        };
        assert_eq!(in_order(&pieces, || (), number, take), Err("full"));
        assert_eq!(taken, 7);
    }
}
