//! Address or network that an override affects.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_rules::matching::{AddressSetError, Range};

/// Minimum prefix lengths for IPv4 and IPv6. Wider networks belong in the rule set.
const BITS_MIN: (u8, u8) = (8, 16);

/// Address or network, at most an IPv4 /8 or an IPv6 /16. An IPv4-mapped IPv6 address counts as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network(Range);

/// Reason why a text is no such network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NetworkError {
    /// The text is no network.
    #[error(transparent)]
    Unreadable(#[from] AddressSetError),
    /// The network is too wide for an override.
    #[error("expected an IPv4 network of at most /{}, or an IPv6 network of at most /{}: what is wider belongs into the rule set", BITS_MIN.0, BITS_MIN.1)]
    TooWide,
}

impl Network {
    /// True if `other` lies completely inside of this network.
    pub fn covers(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Range::V4(first, last), Range::V4(from, to)) => first <= from && to <= last,
            (Range::V6(first, last), Range::V6(from, to)) => first <= from && to <= last,
            _ => false,
        }
    }
}

/// Set of networks of any width.
#[derive(Clone, Debug, Default)]
pub struct Networks {
    /// First and last address of each network, sorted. No network lies inside of another.
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl FromIterator<Range> for Networks {
    fn from_iter<I: IntoIterator<Item = Range>>(networks: I) -> Self {
        let mut all = Self::default();
        for network in networks {
            match network {
                Range::V4(first, last) => all.v4.push((first, last)),
                Range::V6(first, last) => all.v6.push((first, last)),
            }
        }
        outermost(&mut all.v4);
        outermost(&mut all.v6);
        all
    }
}

impl Networks {
    /// True if `network` lies completely inside one of these.
    pub fn cover(&self, network: &Network) -> bool {
        match network.0 {
            Range::V4(first, last) => is_within(&self.v4, first, last),
            Range::V6(first, last) => is_within(&self.v6, first, last),
        }
    }
}

/// Sorts networks and removes those inside of others. Two networks are either nested or disjoint.
fn outermost<T: Ord + Copy>(networks: &mut Vec<(T, T)>) {
    networks.sort_by_key(|(first, last)| (*first, Reverse(*last)));
    networks.dedup_by(|next, kept| next.1 <= kept.1);
}

fn is_within<T: Ord + Copy>(networks: &[(T, T)], first: T, last: T) -> bool {
    let after = networks.partition_point(|(begins, _)| *begins <= first);
    after.checked_sub(1).is_some_and(|at| last <= networks[at].1)
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let network = Self(text.parse()?);
        let (address, bits) = network.0.prefix();
        let least = if address.is_ipv4() { BITS_MIN.0 } else { BITS_MIN.1 };
        if bits < least { Err(NetworkError::TooWide) } else { Ok(network) }
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<Self, NetworkError> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn one_network_has_one_text() {
        for (written, shown) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("2001:0db8::/32", "2001:db8::/32"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("fe80::7%1", "fe80::7"),
        ] {
            assert_eq!(network(written).to_string(), shown);
            assert_eq!(network(shown), network(written));
        }
    }

    #[test]
    fn what_is_no_network_or_too_much_is_refused() {
        for (text, problem) in [
            ("example.com", "expected an address or a network"),
            ("192.0.2.7/24", "zero behind its prefix"),
            ("192.0.2.7:443", "without a port"),
            ("0.0.0.0/0", "at most /8"),
            ("::/8", "at most /16"),
        ] {
            let error = text.parse::<Network>().unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn networks_together_cover_what_is_in_one_of_them() {
        let texts = ["192.0.2.0/26", "10.0.0.0/8", "10.1.0.0/16", "192.0.2.192/26", "2001:db8::/32"];
        let all: Networks = texts.iter().map(|text| text.parse::<Range>().unwrap()).collect();
        for (text, covers) in [
            ("192.0.2.63", true),
            ("192.0.2.64", false),
            ("192.0.2.0/24", false),
            ("10.1.2.3", true),
            ("10.200.0.0/16", true),
            ("9.255.255.255", false),
            ("2001:db8:1::/48", true),
            ("2001:db9::", false),
        ] {
            assert_eq!(all.cover(&network(text)), covers, "{text}");
        }
        let world: Networks = ["0.0.0.0/0"].iter().map(|text| text.parse::<Range>().unwrap()).collect();
        assert!(world.cover(&network("192.0.2.1")) && !world.cover(&network("::1")));
    }
}
