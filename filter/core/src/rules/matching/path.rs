//! Tests of a path.

use alloc::string::String;

use super::glob::Glob;

/// A test of the path, without its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// Exactly this.
    Exact(String),
    /// Anything that begins with this.
    Prefix(String),
    /// Anything that this describes.
    Glob(Glob),
}

impl PathMatch {
    pub(super) fn holds(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => path == exact.as_bytes(),
            Self::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
            Self::Glob(glob) => glob.holds(path),
        }
    }
}

/// A request target without its query.
pub(crate) fn path_of(target: &[u8]) -> &[u8] {
    target.split(|&b| b == b'?').next().unwrap_or(target)
}
