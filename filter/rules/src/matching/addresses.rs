//! Sets of networks, searched by bisection.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use thiserror::Error;

use crate::request::address::{self, IPV4_BITS, IPV6_BITS, Prefixes};
use crate::sorting::sorted;

/// A network (RFC 4632), as its first and last address. An IPv4-mapped network is an IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    V4(u32, u32),
    V6(u128, u128),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddressSetError {
    #[error("expected an address or a network, as in 10.0.0.0/8 or 2001:db8::1")]
    Unreadable,
    /// Bits are set behind the prefix, which is most likely a slip.
    #[error("expected a network whose address is zero behind its prefix")]
    BitsBehindPrefix,
    #[error("expected an address or a network without a port")]
    Port,
}

impl FromStr for Range {
    type Err = AddressSetError;

    /// Parses `10.0.0.0/8`, `2001:db8::/32`, or a single address, in every form of client addresses without a port.
    fn from_str(text: &str) -> Result<Self, AddressSetError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let written = address::bare(address).ok_or_else(|| match address::parse(address.as_bytes()) {
            Some(_) => AddressSetError::Port,
            None => AddressSetError::Unreadable,
        })?;
        let whole = if written.is_ipv4() { IPV4_BITS } else { IPV6_BITS };
        let bits = match bits {
            None => whole,
            Some(bits) if bits.len() <= 3 && bits.bytes().all(|b| b.is_ascii_digit()) => {
                bits.parse().map_err(|_| AddressSetError::Unreadable)?
            }
            Some(_) => return Err(AddressSetError::Unreadable),
        };
        if bits > whole {
            return Err(AddressSetError::Unreadable);
        }
        let folded = written.to_canonical();
        // A mapped network is an IPv4 network if it lies within the mapped block, ::ffff:0:0/96.
        let (address, bits) = match bits.checked_sub(IPV6_BITS - IPV4_BITS) {
            Some(rest) if folded.is_ipv4() && written.is_ipv6() => (folded, rest),
            _ => (written, bits),
        };
        if (Prefixes { ipv4: bits.min(IPV4_BITS), ipv6: bits }).cut(address).0 != address {
            return Err(AddressSetError::BitsBehindPrefix);
        }
        Ok(match address {
            IpAddr::V4(v4) => Self::V4(v4.to_bits(), v4.to_bits() | u32::MAX.checked_shr(bits.into()).unwrap_or(0)),
            IpAddr::V6(v6) => Self::V6(v6.to_bits(), v6.to_bits() | u128::MAX.checked_shr(bits.into()).unwrap_or(0)),
        })
    }
}

impl Range {
    /// Its first address, and how many leading bits all of it share.
    pub fn prefix(self) -> (IpAddr, u8) {
        let (first, bits) = match self {
            Self::V4(first, last) => (Ipv4Addr::from_bits(first).into(), (first ^ last).leading_zeros()),
            Self::V6(first, last) => (Ipv6Addr::from_bits(first).into(), (first ^ last).leading_zeros()),
        };
        (first, u8::try_from(bits).unwrap_or(IPV6_BITS))
    }
}

/// As rules have it: `192.0.2.7`, `10.0.0.0/8`.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, bits) = self.prefix();
        let whole = if first.is_ipv4() { IPV4_BITS } else { IPV6_BITS };
        if bits < whole { write!(f, "{first}/{bits}") } else { write!(f, "{first}") }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl FromIterator<Range> for AddressSet {
    fn from_iter<I: IntoIterator<Item = Range>>(networks: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match network {
                Range::V4(first, last) => v4.push((first, last)),
                Range::V6(first, last) => v6.push((first, last)),
            }
        }
        Self { v4: Ranges::of(v4), v6: Ranges::of(v6) }
    }
}

impl AddressSet {
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.v4.contains(v4.to_bits()),
            IpAddr::V6(v6) => self.v6.contains(v6.to_bits()),
        }
    }

    pub fn has_whole_family(&self) -> bool {
        self.v4.0 == [(0, u32::MAX)] || self.v6.0 == [(0, u128::MAX)]
    }

    /// Each network in its written form: `10.0.0.0/8`, `2001:db8::1`. Networks within another are left out.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        let v4 = self.v4.0.iter().map(|(first, last)| Range::V4(*first, *last));
        let v6 = self.v6.0.iter().map(|(first, last)| Range::V6(*first, *last));
        v4.chain(v6).map(|range| range.to_string())
    }
}

/// First and last address of each range, sorted. No two ranges overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges<T>(Vec<(T, T)>);

impl<T: Ord + Copy> Ranges<T> {
    fn of(ranges: Vec<(T, T)>) -> Self {
        let mut ranges = sorted(ranges);
        ranges.dedup_by(|next, kept| {
            let overlaps = next.0 <= kept.1;
            if overlaps {
                kept.1 = kept.1.max(next.1);
            }
            overlaps
        });
        Self(ranges)
    }

    fn contains(&self, at: T) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= at);
        after.checked_sub(1).and_then(|i| self.0.get(i)).is_some_and(|(_, last)| at <= *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::string::String;

    fn set(networks: &[&str]) -> AddressSet {
        networks.iter().map(|network| network.parse::<Range>().unwrap()).collect()
    }

    #[test]
    fn a_network_holds_exactly_its_addresses() {
        let set = set(&["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::ffff:198.51.100.0/120", "203.0.113.0/24"]);
        for (list, is_in) in [
            ("10.0.0.0 10.255.255.255 192.0.2.7 198.51.100.9 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", true),
            ("9.255.255.255 11.0.0.0 192.0.2.6 192.0.2.8 198.51.101.0 2001:db9:: ::", false),
        ] {
            for address in list.split(' ') {
                assert_eq!(set.contains(address.parse().unwrap()), is_in, "{address}");
            }
        }
        let all: AddressSet = ["0.0.0.0/0".parse::<Range>().unwrap()].into_iter().collect();
        assert!(all.contains("255.255.255.255".parse().unwrap()) && !all.contains("::".parse().unwrap()));
    }

    #[test]
    fn addresses_are_read_as_clients_are() {
        for text in ["192.0.2.7", "::ffff:192.0.2.7", "[::ffff:192.0.2.7]", "fe80::7%1", "[fe80::7%eth0]", "::1"] {
            let client = address::parse(text.as_bytes()).unwrap();
            assert!(set(&[text]).contains(client), "{text}");
        }
        assert_eq!("fe80::%1/64".parse::<Range>().unwrap().to_string(), "fe80::/64");
    }

    proptest! {
        /// Addresses of ten bits, so that many networks overlap or are adjacent, for IPv4 and IPv6.
        #[test]
        fn a_search_agrees_with_looking_at_every_network(
            networks in prop::collection::vec((0u32..1024, 22u8..=32), 0..60),
            asked in 0u32..1024,
        ) {
            let networks: Vec<(u32, u8)> = networks
                .into_iter()
                .map(|(address, bits)| (address & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0), bits))
                .collect();
            let naive = networks.iter().any(|(address, bits)| u64::from(asked ^ address) >> (32 - bits) == 0);
            let v4: Vec<String> = networks.iter().map(|(a, b)| format!("0.0.{}.{}/{b}", a >> 8, a & 255)).collect();
            let v6: Vec<String> = networks.iter().map(|(a, b)| format!("fd00::{a:x}/{}", b + 96)).collect();
            for (list, address) in [
                (v4, format!("0.0.{}.{}", asked >> 8, asked & 255)),
                (v6, format!("fd00::{asked:x}")),
            ] {
                let set: AddressSet = list.iter().map(|network| network.parse::<Range>().unwrap()).collect();
                prop_assert_eq!(set.contains(address.parse().unwrap()), naive);
            }
        }
    }
}
