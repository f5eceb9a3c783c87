//! Paths of the HTTP API about overrides.

use super::spec::OverrideKind;

/// Overrides that a path of the HTTP API names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OverridePath {
    /// All.
    All,
    /// Those of a kind.
    Of(OverrideKind),
    /// One of a kind, by its number or its address.
    One(OverrideKind, String),
    /// The rate override of a rule's key.
    Override(String, String),
}

impl OverridePath {
    /// None for a path about something else.
    pub(crate) fn at(path: &str) -> Option<Self> {
        if path == "/v1/overrides" {
            return Some(Self::All);
        }
        if let Some(key) = path.strip_prefix("/v1/keys/").and_then(|rest| rest.strip_suffix("/override")) {
            let (rule, value) = key.split_once('/')?;
            return Some(Self::Override(rule.to_owned(), value.to_owned()));
        }
        let of = |kind, name| {
            let rest = path.strip_prefix(name)?;
            let one = || rest.strip_prefix('/').map(|which| Self::One(kind, which.to_owned()));
            if rest.is_empty() { Some(Self::Of(kind)) } else { one() }
        };
        of(OverrideKind::Ban, "/v1/bans").or_else(|| of(OverrideKind::Allow, "/v1/allows"))
    }
}
