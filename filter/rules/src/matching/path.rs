//! Tests of a path.

use alloc::string::String;
use alloc::vec::Vec;

use super::glob::Glob;
use super::holds::Holds;
use crate::request::{Fetched, Folding};

/// A test of the path, without its query.
///
/// Upstreams read paths in their own ways: many take `/LOGIN`, `/login/` and `/login;x=1` for `/login`. Differences
/// that the operator ignores are folded away on both sides. If the operator says nothing about a difference, and a
/// path passes only with that folded away too, the result is [`Holds::Unsure`]. So it is for a path that has segments
/// `.` or `..`, once what may be is folded away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMatch {
    written: Written,
    sure: Form,
    /// With what is left open folded away too; the same as `sure` if nothing is.
    open: Form,
}

/// What is asked of a path, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Exactly this.
    Exact(String),
    /// Anything that begins with this.
    Prefix(String),
    /// Anything that this describes.
    Glob(String),
}

/// A folding, and what is asked of a path that is folded so.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Form {
    folding: Folding,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Exactly this.
    Exact(Vec<u8>),
    /// Anything that begins with this.
    Prefix(Vec<u8>),
    /// Anything that this describes.
    Glob(Glob),
}

impl Written {
    /// The text.
    pub fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) | Self::Glob(text) => text,
        }
    }
}

impl PathMatch {
    /// A test for `written` that ignores `sure`, and is unsure about `open`; `None` for a glob that is too long.
    #[inline(never)]
    pub fn new(written: Written, sure: Folding, open: Folding) -> Option<Self> {
        let form = |folding| Some(Form { folding, kind: Kind::new(&written, folding)? });
        Some(Self { sure: form(sure)?, open: form(sure.with(open))?, written })
    }

    /// What is asked, as it is written.
    pub fn written(&self) -> &Written {
        &self.written
    }

    /// The differences between paths that are ignored.
    pub fn ignores(&self) -> Folding {
        self.sure.folding
    }

    /// The differences that the operator said count.
    pub fn tells_apart(&self) -> Folding {
        // A path with parameters needs no word for these to count.
        let unsaid =
            if self.written.text().as_bytes().contains(&b';') { Folding::PARAMETERS } else { Folding::NONE };
        Folding::ALL.without(self.open.folding).without(unsaid)
    }

    pub(super) fn holds(&self, request: &mut Fetched<'_>) -> Holds {
        // Some upstreams take `/public/..;/login` for `/login`.
        if request.has_dot_segments(self.open.folding) {
            return Holds::Unsure;
        }
        let sure = self.sure.holds(request);
        if sure == Holds::No && self.open != self.sure && self.open.holds(request).may() {
            return Holds::Unsure;
        }
        sure
    }

    /// Whether this holds wherever `narrow` does, and may hold wherever `narrow` may. `false` may be wrong.
    pub fn contains(&self, narrow: &Self) -> bool {
        self.sure.contains(&narrow.sure) && self.open.contains(&narrow.open)
    }
}

impl Form {
    #[inline(never)]
    fn holds(&self, request: &mut Fetched<'_>) -> Holds {
        let Some(path) = request.path(self.folding) else { return Holds::No };
        let is_open = self.folding.has(Folding::SLASHES);
        match &self.kind {
            Kind::Exact(exact) => Holds::of(path == exact),
            Kind::Prefix(prefix) => {
                Holds::of(path.starts_with(prefix) || is_open && is_but_for_slash(prefix, path))
            }
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

/// Whether `prefix` is the path with a slash added.
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
            Written::Glob(glob) => {
                Self::Glob(Glob::new(&String::from_utf8_lossy(&folding.of(glob.as_bytes())))?)
            }
        })
    }
}
