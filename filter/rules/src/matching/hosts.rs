//! Tests of the host, exact or by suffix.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use super::holds::Holds;
use crate::request::{HOST_BYTES_MAX, HostRead, is_of_name};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Names in lower case and reversed, so that a suffix becomes a prefix. A suffix has its dot as the last byte, and
    /// must be preceded by at least one byte in a host.
    pub(super) backwards: Vec<Vec<u8>>,
}

impl Hosts {
    /// Adds `api.example.com`, `*.example.com` or an IPv6 address; false if the text is none of these, or too long.
    pub fn add(&mut self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        let text = text.strip_suffix('.').unwrap_or(&text);
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        let is_address = bare.parse::<Ipv6Addr>().is_ok();
        let mut labels = text.strip_prefix("*.").unwrap_or(text).split('.');
        let is_name =
            text.len() <= HOST_BYTES_MAX && labels.all(|label| !label.is_empty() && label.bytes().all(is_of_name));
        if is_address || is_name {
            let name = if is_address { bare } else { text.trim_start_matches('*') };
            self.backwards.push(name.bytes().rev().collect());
        }
        is_address || is_name
    }

    /// Each host as written in rules: `api.example.com`, `*.example.com`.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        self.backwards.iter().map(|name| {
            let star = if is_suffix(name) { "*" } else { "" };
            star.chars().chain(name.iter().rev().map(|b| char::from(*b))).collect()
        })
    }

    pub(super) fn holds(&self, host: &HostRead) -> Holds {
        let Some(host) = host.backwards() else { return Holds::Unsure };
        let is_met = |name: &Vec<u8>| {
            if is_suffix(name) { host.len() > name.len() && host.starts_with(name) } else { name == host }
        };
        Holds::of(self.backwards.iter().any(is_met))
    }
}

pub(super) fn is_suffix(backwards: &[u8]) -> bool {
    backwards.ends_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_compared_without_case_and_port() {
        let mut hosts = Hosts::default();
        assert!(["Api.example.com.", "[::1]", "*.Example.org"].iter().all(|host| hosts.add(host)));
        for (expected, list) in [
            (Holds::Yes, "api.example.com API.Example.com:8443 api.example.com. api.example.com.:80 [::1]:80 [::1]"),
            (Holds::Yes, "a.example.org A.b.EXAMPLE.org:1"),
            (Holds::No, "example.org aexample.org example.com xapi.example.com api.example.com.evil www.example.com"),
            (Holds::Unsure, ".example.org api.example.com.. api.example.com..:80 www.example.com.. [::1 [::1]a"),
            (Holds::Unsure, "user@api.example.com user:secret@api.example.com:80 api.example.com,www.example.com"),
            (Holds::Unsure, "api%2eexample.com api.example.com/ api.example.com:80:80 api.example.com:a [::1%25eth0]"),
        ] {
            for host in list.split(' ') {
                let mut read = HostRead::default();
                read.read(host.as_bytes());
                assert_eq!(hosts.holds(&read), expected, "{host}");
            }
        }
    }
}
