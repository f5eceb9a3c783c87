//! Which requests a rule counts.

use alloc::string::String;
use alloc::vec::Vec;

use crate::request::{AttributeId, Fetched};

/// Conditions on a request; all that are given must hold, and none given holds always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Host names, lower case, without port; empty means any.
    pub hosts: Vec<String>,
    /// Methods, as they are written in requests; empty means any.
    pub methods: Vec<String>,
    /// The path, without its query.
    pub path: Option<PathMatch>,
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// Exactly this.
    Exact(String),
    /// Anything that begins with this.
    Prefix(String),
}

impl Match {
    /// Whether the request meets every condition. An attribute the host does not have meets none.
    pub(crate) fn holds(&self, request: &mut Fetched<'_>) -> bool {
        self.method_holds(request) && self.path_holds(request) && self.host_holds(request)
    }

    fn method_holds(&self, request: &mut Fetched<'_>) -> bool {
        self.methods.is_empty()
            || request
                .get(AttributeId::METHOD)
                .is_some_and(|method| self.methods.iter().any(|m| m.as_bytes() == method))
    }

    fn path_holds(&self, request: &mut Fetched<'_>) -> bool {
        let Some(path_match) = &self.path else { return true };
        request.get(AttributeId::PATH).is_some_and(|target| path_match.holds(path_of(target)))
    }

    fn host_holds(&self, request: &mut Fetched<'_>) -> bool {
        self.hosts.is_empty()
            || request.get(AttributeId::AUTHORITY).is_some_and(|authority| {
                let host = host_of(authority);
                self.hosts.iter().any(|h| h.as_bytes().eq_ignore_ascii_case(host))
            })
    }
}

impl PathMatch {
    fn holds(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => path == exact.as_bytes(),
            Self::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
        }
    }
}

/// A request target without its query.
fn path_of(target: &[u8]) -> &[u8] {
    target.split(|&b| b == b'?').next().unwrap_or(target)
}

/// An authority without its port and the dot of a fully qualified name; an IPv6 address without its
/// brackets.
fn host_of(authority: &[u8]) -> &[u8] {
    if let Some(rest) = authority.strip_prefix(b"[") {
        return rest.split(|&b| b == b']').next().unwrap_or(rest);
    }
    let host = authority.split(|&b| b == b':').next().unwrap_or(authority);
    host.strip_suffix(b".").unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Attribute, Attributes, Request, Values};
    use std::vec;

    struct Fixed(&'static str, &'static str, &'static str);

    impl Request for Fixed {
        fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
            let text = match attribute {
                Attribute::Method => self.0,
                Attribute::Path => self.1,
                Attribute::Authority => self.2,
                _ => return None,
            };
            (!text.is_empty()).then(|| text.into())
        }
    }

    fn holds(matches: &Match, method: &'static str, path: &'static str, host: &'static str) -> bool {
        let (attributes, mut values) = (Attributes::default(), Values::default());
        matches.holds(&mut Fetched::new(&mut Fixed(method, path, host), &attributes, &mut values))
    }

    #[test]
    fn nothing_asked_for_holds_always() {
        assert!(holds(&Match::default(), "", "", ""));
    }

    #[test]
    fn the_query_is_no_part_of_the_path() {
        let exact = Match { path: Some(PathMatch::Exact("/login".into())), ..Match::default() };
        assert!(holds(&exact, "GET", "/login?a=/x", "h"));
        assert!(!holds(&exact, "GET", "/login/x", "h"));
        let prefix = Match { path: Some(PathMatch::Prefix("/api".into())), ..Match::default() };
        assert!(holds(&prefix, "GET", "/api/v1", "h"));
        assert!(!holds(&prefix, "GET", "/x?/api", "h"));
    }

    #[test]
    fn a_host_is_compared_without_case_and_port() {
        let hosts = Match { hosts: vec!["api.example.com".into(), "::1".into()], ..Match::default() };
        for host in [
            "api.example.com",
            "API.Example.com:8443",
            "api.example.com.",
            "api.example.com.:80",
            "[::1]:80",
            "[::1]",
        ] {
            assert!(holds(&hosts, "GET", "/", host), "{host}");
        }
        for host in ["example.com", "xapi.example.com", "api.example.com.evil", ""] {
            assert!(!holds(&hosts, "GET", "/", host), "{host}");
        }
    }

    #[test]
    fn every_condition_must_hold() {
        let both = Match {
            methods: vec!["POST".into(), "PUT".into()],
            path: Some(PathMatch::Exact("/x".into())),
            ..Match::default()
        };
        assert!(holds(&both, "PUT", "/x", "h"));
        assert!(!holds(&both, "GET", "/x", "h"));
        assert!(!holds(&both, "PUT", "/y", "h"));
        assert!(!holds(&both, "", "", ""));
    }
}
