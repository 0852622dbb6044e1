//! All tests of files that are written, in one program.

mod hostile;
mod whole;
