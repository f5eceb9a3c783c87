//! The paths of orders.

use crate::orders::order::Kind;

/// A path of orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// All orders.
    All,
    /// Those of a kind.
    Of(Kind),
    /// One of a kind: its number, or its address.
    One(Kind, String),
}

impl Place {
    pub(super) fn at(path: &str) -> Option<Self> {
        if path == "/v1/orders" {
            return Some(Self::All);
        }
        let of = |kind, name| {
            let rest = path.strip_prefix(name)?;
            let one = || rest.strip_prefix('/').map(|which| Self::One(kind, which.to_owned()));
            if rest.is_empty() { Some(Self::Of(kind)) } else { one() }
        };
        of(Kind::Ban, "/v1/bans").or_else(|| of(Kind::Allow, "/v1/allows"))
    }
}
