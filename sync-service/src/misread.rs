//! What cannot be read as JSON or YAML, and where in its text that shows.

use std::fmt;

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    /// The line and the column, in characters, both from 1.
    pub at: Option<(u64, u64)>,
    /// What was expected, and what was found.
    pub problem: String,
}

impl fmt::Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, problem } = self;
        f.write_str(problem)?;
        at.map_or(Ok(()), |(line, column)| write!(f, " (line {line}, column {column})"))
    }
}

/// The line and the column of a place in a text, both from 1.
pub(crate) fn position(before: &[u8]) -> (u64, u64) {
    let mut lines = before.split(|byte| *byte == b'\n');
    let last = lines.next_back().unwrap_or_default();
    (lines.count() as u64 + 1, String::from_utf8_lossy(last).chars().count() as u64 + 1)
}
