//! Tests of the whole family.

pub(super) mod driver;
mod hotplug;
mod presets;
mod random_calls;
