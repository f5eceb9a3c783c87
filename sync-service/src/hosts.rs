//! Hosts that a listener answers to.
//!
//! A web page can make a browser send requests to a loopback address under a name of the page's own, and then
//! read the responses (DNS rebinding). The browser sends that name as the host. So a loopback listener without
//! tokens answers to its own names only: its addresses, `localhost`, and names without a dot, which no page
//! has. POPs use the name of a cluster.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HOST, HeaderMap};
use hyper::{StatusCode, Uri};

use crate::problem::Problem;

/// Error text for another host.
pub(crate) const EXPECTED: &str = "expected a host of this listener's own: a loopback address, localhost or a name without a \
    dot. Set a token (token_file, check_token_file) to have it asked by other names";

/// Hosts of one listener.
#[derive(Clone, Copy, Debug)]
pub struct AllowedHosts {
    is_bounded: bool,
}

impl AllowedHosts {
    /// Hosts of a listener at `address`; `needs_token` is true if all of its data needs a token.
    pub fn of(address: SocketAddr, needs_token: bool) -> Self {
        Self { is_bounded: address.ip().is_loopback() && !needs_token }
    }

    /// True if all hosts of a request are the listener's own. A request without a host is accepted, since no
    /// browser sends one.
    pub fn are_own(self, uri: &Uri, headers: &HeaderMap) -> bool {
        let named = headers.get_all(HOST).iter().map(|host| host.to_str().ok());
        let mut hosts = uri.authority().map(|authority| Some(authority.as_str())).into_iter().chain(named);
        !self.is_bounded || hosts.all(|host| host.is_some_and(is_own))
    }

    /// Refuses a request with another host.
    pub fn check(self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let is_own = self.are_own(uri, headers);
        is_own.then_some(()).ok_or_else(|| Problem::new(StatusCode::MISDIRECTED_REQUEST, EXPECTED))
    }
}

/// True if `host`, which may have a port, is an address of the loopback interface or a name that no web page
/// has.
fn is_own(host: &str) -> bool {
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (rest.is_empty() || rest.starts_with(':')) && is_loopback(address);
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let name = name.strip_suffix('.').unwrap_or(name);
    let (_, top) = name.rsplit_once('.').unwrap_or(("", name));
    is_loopback(name) || top.eq_ignore_ascii_case("localhost") || !name.contains('.')
}

fn is_loopback(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(uri: &str, hosts: &[&str]) -> bool {
        let headers = hosts.iter().map(|host| (HOST, host.parse().unwrap())).collect();
        let listener = AllowedHosts::of(([127, 0, 0, 1], 7878).into(), false);
        listener.are_own(&uri.parse().unwrap(), &headers)
    }

    #[test]
    fn a_loopback_listener_without_a_token_answers_to_its_own_names_alone() {
        for own in [
            "127.0.0.1:7878",
            "127.0.0.2",
            "[::1]:7878",
            "localhost",
            "LOCALHOST:80",
            "a.localhost.",
            "weir_sync",
        ] {
            assert!(asks("/", &[own]), "{own}");
        }
        for other in [
            "evil.example",
            "evil.example:7878",
            "10.0.0.1",
            "[2001:db8::1]",
            "localhost.evil.example",
            "a.b",
        ] {
            assert!(!asks("/", &[other]), "{other}");
            assert!(
                !asks("/", &["localhost", other]) && !asks(&format!("http://{other}/"), &["localhost"]),
                "{other}"
            );
        }
        assert!(asks("/", &[]), "as no browser asks");
        for (address, needs_token) in [([127, 0, 0, 1], true), ([10, 0, 0, 1], false)] {
            let headers = [(HOST, "evil.example".parse().unwrap())].into_iter().collect();
            assert!(
                AllowedHosts::of((address, 7878).into(), needs_token)
                    .are_own(&Uri::from_static("/"), &headers)
            );
        }
    }
}
