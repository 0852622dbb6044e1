//! All tests of recorders and of what they record, in one program.

mod common;
mod limits;
mod messages;
mod record;
mod tiers;
