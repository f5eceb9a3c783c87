//! Tables of tests.

use alloc::string::String;
use alloc::vec::Vec;

use serde_json::Value;

/// The cases of a table. Each is a line of JSON, and indented lines with what is told of it. A line that is indented
/// twice continues the one before it.
pub(crate) fn table(text: &str) -> Vec<(Value, Vec<String>)> {
    let mut cases: Vec<(Value, Vec<String>)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix("    "), cases.last_mut()) {
            (Some(told), Some((_, all))) => match (told.strip_prefix("    "), all.last_mut()) {
                (Some(more), Some(last)) => last.extend([" ", more]),
                _ => all.push(told.into()),
            },
            _ => cases.push((serde_json::from_str(line).expect(line), Vec::new())),
        }
    }
    cases
}
