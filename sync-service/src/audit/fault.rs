//! Errors of sinks.

use std::fmt::Display;

/// Failure to write lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkError {
    /// Number of lines that were written before the failure.
    pub written: usize,
    /// Reason for the failure.
    pub reason: String,
}

impl SinkError {
    /// Failure after `written` lines.
    pub fn new(written: usize, reason: &impl Display) -> Self {
        Self { written, reason: reason.to_string() }
    }
}
