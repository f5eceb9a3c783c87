//! Sets of networks, searched by bisection.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use crate::request::address::{self, IPV4_BITS, IPV6_BITS, Prefixes};
use crate::sorting::sorted;

/// A network (RFC 4632): its first address, and the number of leading bits that its addresses share. IPv4-mapped
/// networks are IPv4 networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    pub first: IpAddr,
    pub bits: u8,
}

const UNREADABLE: &str = "expected an address or a network, as in 10.0.0.0/8 or 2001:db8::1";

impl FromStr for Range {
    type Err = &'static str;

    /// Parses `10.0.0.0/8`, `2001:db8::/32`, or a single address in any form of client addresses without a port.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let written = address::bare(address).ok_or_else(|| match address::parse(address.as_bytes()) {
            Some(_) => "expected an address or a network without a port",
            None => UNREADABLE,
        })?;
        let whole = if written.is_ipv4() { IPV4_BITS } else { IPV6_BITS };
        let read = |bits: &str| {
            let is_number = bits.len() <= 3 && bits.bytes().all(|b| b.is_ascii_digit());
            bits.parse().ok().filter(|bits| is_number && *bits <= whole)
        };
        let bits = bits.map_or(Some(whole), read).ok_or(UNREADABLE)?;
        let folded = written.to_canonical();
        // A mapped network is an IPv4 network if it lies within the mapped block, ::ffff:0:0/96.
        let (first, bits) = match bits.checked_sub(IPV6_BITS - IPV4_BITS) {
            Some(rest) if folded.is_ipv4() && written.is_ipv6() => (folded, rest),
            _ => (written, bits),
        };
        let range = Self { first, bits };
        // Bits after the prefix are most likely a mistake.
        range.contains(first).then_some(range).ok_or("expected a network whose address is zero behind its prefix")
    }
}

impl Range {
    pub fn contains(self, address: IpAddr) -> bool {
        (Prefixes { ipv4: self.bits, ipv6: self.bits }).cut(address).0 == self.first
    }
}

/// The form in rules: `192.0.2.7`, `10.0.0.0/8`.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, bits } = self;
        let whole = if first.is_ipv4() { IPV4_BITS } else { IPV6_BITS };
        if *bits < whole { write!(f, "{first}/{bits}") } else { write!(f, "{first}") }
    }
}

/// Networks in order, none within another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet(Vec<Range>);

impl FromIterator<Range> for AddressSet {
    fn from_iter<I: IntoIterator<Item = Range>>(networks: I) -> Self {
        let mut networks = sorted(networks.into_iter().collect());
        // Two networks are either nested or disjoint.
        networks.dedup_by(|next, kept| kept.contains(next.first));
        Self(networks)
    }
}

impl AddressSet {
    pub fn contains(&self, address: IpAddr) -> bool {
        let after = self.0.partition_point(|range| range.first <= address);
        after.checked_sub(1).and_then(|i| self.0.get(i)).is_some_and(|range| range.contains(address))
    }

    pub fn has_whole_family(&self) -> bool {
        self.0.iter().any(|range| range.bits == 0)
    }

    /// Each network as written in rules: `10.0.0.0/8`, `2001:db8::1`. Networks within others are left out.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(Range::to_string)
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
        /// Ten-bit addresses, so that many networks overlap or are adjacent, for IPv4 and IPv6.
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
