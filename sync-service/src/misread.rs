//! Error for a text that is not valid JSON or YAML, with its position.

use std::fmt;

/// Reason why a text cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    /// Line and column, in characters, both from 1.
    pub at: Option<(u64, u64)>,
    /// Expected and found text.
    pub problem: String,
}

impl fmt::Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, problem } = self;
        f.write_str(problem)?;
        at.map_or(Ok(()), |(line, column)| write!(f, " (line {line}, column {column})"))
    }
}

/// Line and column of the end of `before`, both from 1.
pub(crate) fn position(before: &[u8]) -> (u64, u64) {
    let mut lines = before.split(|byte| *byte == b'\n');
    let last = lines.next_back().unwrap_or_default();
    (lines.count() as u64 + 1, String::from_utf8_lossy(last).chars().count() as u64 + 1)
}
