//! All tests of the crate, in one program.

mod ends;
mod lives;
mod round_trip;
