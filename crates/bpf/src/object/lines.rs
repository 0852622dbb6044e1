//! Source lines of instructions (`.BTF.ext`).

use crate::core_relo::records;
use crate::{BpfError, Btf};

/// Where an instruction comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceLine<'a> {
    /// File.
    pub file: &'a str,
    /// Line.
    pub number: u32,
    /// The line itself.
    pub text: &'a str,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    at: usize,
    file: u32,
    text: u32,
    number: u32,
}

/// By instruction.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines(Vec<Line>);

impl Lines {
    pub(super) fn read(
        ext: &[u8],
        btf: &Btf,
        code_of: impl Fn(&str) -> Option<usize>,
    ) -> Result<Lines, BpfError> {
        let mut lines = Vec::new();
        for (section, record) in records(ext, 16, btf, 16)? {
            let Some(first) = code_of(&section) else { continue };
            lines.push(Line {
                at: first + record.u32(0)? as usize / 8,
                file: record.u32(4)?,
                text: record.u32(8)?,
                number: record.u32(12)? >> 10,
            });
        }
        lines.sort_by_key(|line| line.at);
        Ok(Lines(lines))
    }

    pub(super) fn of<'a>(&self, insn: usize, btf: &'a Btf) -> Option<SourceLine<'a>> {
        let after = self.0.partition_point(|line| line.at <= insn);
        let line = self.0.get(after.checked_sub(1)?)?;
        let file = btf.string(line.file);
        let file = file.rsplit('/').next().unwrap_or(file);
        Some(SourceLine { file, number: line.number, text: btf.string(line.text).trim() })
    }
}
