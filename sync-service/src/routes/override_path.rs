//! Paths of overrides.

use crate::overrides::spec::OverrideKind;

/// A path of overrides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OverridePath {
    /// All overrides.
    All,
    /// All of one kind.
    Of(OverrideKind),
    /// One of a kind, by its number or its address.
    One(OverrideKind, String),
    /// The rate override of a rule's key.
    Override(String, String),
}

impl OverridePath {
    pub(super) fn at(path: &str) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_all_overrides_those_of_a_kind_and_one() {
        let one = |which: &str| Some(OverridePath::One(OverrideKind::Ban, which.into()));
        for (path, place) in [
            ("/v1/overrides", Some(OverridePath::All)),
            ("/v1/bans", Some(OverridePath::Of(OverrideKind::Ban))),
            ("/v1/allows", Some(OverridePath::Of(OverrideKind::Allow))),
            ("/v1/bans/7", one("7")),
            ("/v1/bans/192.0.2.0/24", one("192.0.2.0/24")),
            (
                "/v1/keys/login/192.0.2.0/24/override",
                Some(OverridePath::Override("login".into(), "192.0.2.0/24".into())),
            ),
            ("/v1/keys/login/override", None),
            ("/v1/keys/login/192.0.2.1", None),
            ("/v1/banshee", None),
        ] {
            assert_eq!(OverridePath::at(path), place, "{path}");
        }
    }
}
