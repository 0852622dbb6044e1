//! All tests of the crate, in one program.

mod ends;
mod lives;
mod ours;
mod proxy;
mod recorder;
mod round_trip;
