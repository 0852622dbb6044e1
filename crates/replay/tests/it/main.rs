//! All tests of the crate, in one program.

mod lives;
mod round_trip;
