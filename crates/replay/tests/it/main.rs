//! All tests of the crate, in one program.

mod ends;
mod lives;
mod proxy;
mod recorder;
mod round_trip;
