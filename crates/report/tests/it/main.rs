//! All tests of the page, in one program.

mod browser;
mod page;
