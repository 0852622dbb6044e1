//! What a check found, and where.

use std::fmt;

/// One thing that is not as it should be.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    /// Path from the root of the tree.
    pub(crate) file: String,
    /// Line, counted from 1; 0 when the whole file is meant.
    pub(crate) line: usize,
    /// What is wrong and what to do.
    pub(crate) text: String,
}

impl Finding {
    pub(crate) fn new(file: &str, line: usize, text: impl Into<String>) -> Finding {
        Finding { file: file.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}: {}", self.file, self.text)
        } else {
            write!(f, "{}:{}: {}", self.file, self.line, self.text)
        }
    }
}
