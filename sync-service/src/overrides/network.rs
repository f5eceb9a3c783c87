//! Address or network that an override affects.

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
    #[error(
        "expected an IPv4 network of at most /{}, or an IPv6 network of at most /{}: what is wider belongs into the \
         rule set",
        BITS_MIN.0,
        BITS_MIN.1
    )]
    TooWide,
}

impl Network {
    /// True if `other` lies completely inside of this network.
    pub fn covers(&self, other: &Self) -> bool {
        other.is_in(&self.0)
    }

    /// True if it lies completely inside of `range`.
    pub(super) fn is_in(&self, range: &Range) -> bool {
        match (*range, self.0) {
            (Range::V4(first, last), Range::V4(from, to)) => first <= from && to <= last,
            (Range::V6(first, last), Range::V6(from, to)) => first <= from && to <= last,
            _ => false,
        }
    }
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
    fn texts_that_are_no_network_or_too_large_are_refused() {
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
}
