//! Tests of a path.

use alloc::string::String;
use alloc::vec::Vec;

use super::glob::Glob;
use super::holds::Holds;
use crate::request::{Fetched, Folding};

/// A test of the path, without its query.
///
/// Many upstreams treat `/LOGIN`, `/login/` and `/login;x=1` as `/login`. Differences that the operator ignores are
/// folded away on both sides. The result is [`Holds::Unsure`] for a path that passes only if the open differences are
/// folded away too, or that then has segments `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMatch {
    written: Written,
    sure: Form,
    /// The form with the open differences folded away too; `None` if none are open.
    open: Option<Form>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    Exact(String),
    Prefix(String),
    Glob(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Form {
    folding: Folding,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Exact(Vec<u8>),
    Prefix(Vec<u8>),
    Glob(Glob),
}

impl Written {
    pub fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) | Self::Glob(text) => text,
        }
    }
}

impl PathMatch {
    /// A test that ignores the differences `sure` and is unsure about `open`; `None` if a glob is too long.
    #[inline(never)]
    pub fn new(written: Written, sure: Folding, open: Folding) -> Option<Self> {
        let form = |folding| Some(Form { folding, kind: Kind::new(&written, folding)? });
        let all = sure.with(open);
        let open = if all == sure { None } else { Some(form(all)?) };
        Some(Self { sure: form(sure)?, open, written })
    }

    pub fn written(&self) -> &Written {
        &self.written
    }

    pub fn ignores(&self) -> Folding {
        self.sure.folding
    }

    /// The differences between paths that the operator asked the test to distinguish.
    pub fn distinguishes(&self) -> Folding {
        // A path written with parameters distinguishes them without an explicit statement.
        let implied = if self.written.text().as_bytes().contains(&b';') { Folding::PARAMETERS } else { Folding::NONE };
        Folding::ALL.without(self.open().folding).without(implied)
    }

    pub(super) fn holds(&self, request: &mut Fetched<'_>) -> Holds {
        // Some upstreams resolve `/public/..;/login` to `/login`.
        if request.has_dot_segments(self.open().folding) {
            return Holds::Unsure;
        }
        match (self.sure.holds(request), &self.open) {
            (Holds::No, Some(open)) if open.holds(request).may() => Holds::Unsure,
            (sure, _) => sure,
        }
    }

    fn open(&self) -> &Form {
        self.open.as_ref().unwrap_or(&self.sure)
    }

    /// True if this test holds, or may hold, for each path for which `narrow` does. `false` may be wrong.
    pub fn contains(&self, narrow: &Self) -> bool {
        self.sure.contains(&narrow.sure) && self.open().contains(narrow.open())
    }
}

impl Form {
    #[inline(never)]
    fn holds(&self, request: &mut Fetched<'_>) -> Holds {
        let Some((path, _)) = request.folded_path(self.folding) else { return Holds::No };
        let is_open = self.folding.has(Folding::SLASHES);
        match &self.kind {
            Kind::Exact(exact) => Holds::of(path == exact),
            Kind::Prefix(prefix) => Holds::of(path.starts_with(prefix) || is_open && is_but_for_slash(prefix, path)),
            Kind::Glob(glob) => match glob.holds(path, false) {
                Holds::No if is_open => glob.holds(path, true),
                holds => holds,
            },
        }
    }

    fn contains(&self, narrow: &Self) -> bool {
        let is_within = match (&self.kind, &narrow.kind) {
            (Kind::Prefix(wide), Kind::Exact(path) | Kind::Prefix(path)) => {
                path.starts_with(wide) || narrow.folding.has(Folding::SLASHES) && is_but_for_slash(wide, path)
            }
            _ => false,
        };
        self == narrow || self.folding == narrow.folding && is_within
    }
}

/// True if `prefix` is the path with a slash added.
fn is_but_for_slash(prefix: &[u8], path: &[u8]) -> bool {
    prefix.strip_suffix(b"/") == Some(path)
}

impl Kind {
    #[inline(never)]
    fn new(written: &Written, folding: Folding) -> Option<Self> {
        Some(match written {
            Written::Exact(exact) => Self::Exact(folding.of(exact.as_bytes())),
            Written::Prefix(prefix) => {
                let mut folded = folding.of(prefix.as_bytes());
                if prefix.ends_with('/') && !folded.ends_with(b"/") {
                    folded.push(b'/');
                }
                Self::Prefix(folded)
            }
            Written::Glob(glob) => Self::Glob(Glob::new(&String::from_utf8_lossy(&folding.of(glob.as_bytes())))?),
        })
    }
}
