//! Why a sink did not take lines.

use std::fmt::Display;

/// Why lines were not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How many of them were, before it failed.
    pub written: usize,
    /// Why the others were not.
    pub reason: String,
}

impl Fault {
    /// It failed after so many lines.
    pub fn new(written: usize, reason: &impl Display) -> Self {
        Self { written, reason: reason.to_string() }
    }
}
