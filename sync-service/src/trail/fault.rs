//! Why a sink did not take lines.

use std::fmt::Display;

/// Why lines were not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How many of them were, before it failed.
    pub written: usize,
    /// How many of the next will never be: they are not tried again.
    pub refused: usize,
    /// Why the others were not.
    pub reason: String,
}

impl Fault {
    /// It failed after so many lines.
    pub fn new(written: usize, reason: &impl Display) -> Self {
        Self { written, refused: 0, reason: reason.to_string() }
    }

    /// So many lines will never be taken.
    pub fn refusal(refused: usize, reason: &impl Display) -> Self {
        Self { refused, ..Self::new(0, reason) }
    }
}
