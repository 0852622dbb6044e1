//! What can be wrong with an object, and why a program was stopped.

/// What is wrong with an object, or with the type information of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BpfError {
    /// Another kind of file.
    #[error("it is no BPF object: {0} (clang makes one with -target bpf -g -c)")]
    NotBpf(&'static str),
    /// A part that ends too early or points outside.
    #[error("{part} is damaged: {what}")]
    Damaged {
        /// Which part.
        part: &'static str,
        /// What is wrong there.
        what: String,
    },
    /// A part that must be there is missing.
    #[error("it has no {part}: {how}")]
    Missing {
        /// Which part.
        part: &'static str,
        /// What to do.
        how: &'static str,
    },
    /// Something that this machine does not do.
    #[error("{0}")]
    Refused(String),
}

impl BpfError {
    pub(crate) fn damaged(part: &'static str, what: impl Into<String>) -> BpfError {
        BpfError::Damaged { part, what: what.into() }
    }
}

/// Why a program was stopped while it ran.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stop(Box<Inner>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Inner {
    what: String,
    at: Option<usize>,
    where_: String,
}

impl Stop {
    /// A program does something that cannot be.
    pub fn new(what: impl Into<String>) -> Stop {
        Stop(Box::new(Inner { what: what.into(), at: None, where_: String::new() }))
    }
    /// The same with the number of the instruction, unless an inner call has named one.
    pub(crate) fn at(mut self, insn: usize) -> Stop {
        self.0.at.get_or_insert(insn);
        self
    }
    /// The instruction, counted over all programs of the object.
    pub fn instruction(&self) -> Option<usize> {
        self.0.at
    }
    /// Adds function and source line.
    pub fn locate(mut self, place: Option<String>) -> Stop {
        if self.0.where_.is_empty()
            && let Some(place) = place
        {
            self.0.where_ = place;
        }
        self
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.what)?;
        match (self.0.where_.as_str(), self.0.at) {
            ("", None) => Ok(()),
            ("", Some(at)) => write!(f, " (instruction {at})"),
            (place, Some(at)) => write!(f, " ({place}, instruction {at})"),
            (place, None) => write!(f, " ({place})"),
        }
    }
}

impl std::error::Error for Stop {}
