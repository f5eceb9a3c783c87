//! Hosts, exact or by suffix.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use crate::request::HOST_BYTES_MAX;

/// Hosts that a request may be for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// In lower case and backwards, so that a suffix becomes a prefix.
    backwards: Vec<Backwards>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Backwards {
    /// A whole name.
    Exact(Vec<u8>),
    /// A suffix, which ends with its dot; something stands before that.
    Suffix(Vec<u8>),
}

impl Hosts {
    /// Adds `api.example.com`, `*.example.com` or an IPv6 address; false if the text is none of them, or longer
    /// than [`HOST_BYTES_MAX`].
    pub fn add(&mut self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        let text = text.strip_suffix('.').unwrap_or(&text);
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if bare.parse::<Ipv6Addr>().is_ok() {
            self.backwards.push(Backwards::Exact(bare.bytes().rev().collect()));
            return true;
        }
        let suffix = text.strip_prefix("*.");
        let labels = suffix.unwrap_or(text);
        let is_name = text.len() <= HOST_BYTES_MAX
            && labels.split('.').all(|label| !label.is_empty())
            && !labels
                .chars()
                .any(|c| matches!(c, '*' | ':' | '/' | '[' | ']' | '@' | '?' | '#') || c.is_whitespace());
        if is_name {
            let name = labels.bytes().rev();
            self.backwards.push(match suffix {
                Some(_) => Backwards::Suffix(name.chain([b'.']).collect()),
                None => Backwards::Exact(name.collect()),
            });
        }
        is_name
    }

    /// Each host as it would be written: `api.example.com`, `*.example.com`.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        self.backwards.iter().map(|host| {
            let (star, name) = match host {
                Backwards::Exact(name) => ("", name),
                Backwards::Suffix(name) => ("*", name),
            };
            star.chars().chain(name.iter().rev().map(|b| char::from(*b))).collect()
        })
    }

    pub(super) fn backwards(&self) -> &[Backwards] {
        &self.backwards
    }

    /// Whether the host, in lower case and backwards, is one of these.
    pub(super) fn holds(&self, host: &[u8]) -> bool {
        self.backwards.iter().any(|one| match one {
            Backwards::Exact(name) => name == host,
            Backwards::Suffix(suffix) => host.len() > suffix.len() && host.starts_with(suffix),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::HostRead;

    fn hosts(list: &[&str]) -> Hosts {
        let mut hosts = Hosts::default();
        for host in list {
            assert!(hosts.add(host), "{host}");
        }
        hosts
    }

    #[test]
    fn a_host_is_compared_without_case_and_port() {
        let hosts = hosts(&["Api.example.com.", "[::1]", "*.Example.org"]);
        for (host, expected) in [
            ("api.example.com", true),
            ("API.Example.com:8443", true),
            ("api.example.com.", true),
            ("api.example.com.:80", true),
            ("[::1]:80", true),
            ("[::1]", true),
            ("a.example.org", true),
            ("A.b.EXAMPLE.org:1", true),
            ("example.org", false),
            (".example.org", false),
            ("aexample.org", false),
            ("example.com", false),
            ("xapi.example.com", false),
            ("api.example.com.evil", false),
            ("", false),
        ] {
            let mut read = HostRead::default();
            read.read(host.as_bytes());
            assert_eq!(hosts.holds(read.backwards()), expected, "{host}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "", ".", "*", "*.", "a.*.b", "a..b", ".a", "*a.b", "a:80", "[::1]:80", "*.*.a", "http://a",
            "a b", "**.a",
        ] {
            assert!(!Hosts::default().add(text), "{text}");
        }
    }
}
