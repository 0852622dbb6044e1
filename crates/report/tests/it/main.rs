//! All tests of the page, in one program.

mod browser;
mod data;
#[path = "../../examples/page.rs"]
mod example;
mod lanes;
mod page;
mod reading;
