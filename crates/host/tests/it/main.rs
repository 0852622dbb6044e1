//! All tests of recorders and of what they record, in one program.

mod common;
mod limits;
mod record;
mod tiers;
