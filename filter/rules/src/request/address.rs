//! Client addresses: parsing the host's text, and cutting an address to a prefix.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub const IPV4_BITS: u8 = 32;
pub const IPV6_BITS: u8 = 128;

/// Parses the peer address that a host reports; `None` for a socket path or anything else.
///
/// Known forms: `1.2.3.4:567`, `[2001:db8::1]:567`, a bare address, and any of these with a zone (`fe80::1%eth0`),
/// which is dropped. IPv4-mapped IPv6 (RFC 4291, 2.5.5.2) folds to IPv4.
pub fn parse(text: &[u8]) -> Option<IpAddr> {
    dotted(text).map(IpAddr::V4).or_else(|| any_form(text))
}

/// Parses `1.2.3.4` and `1.2.3.4:567` in one pass; `None` for other forms, which [`parse`] reads.
pub fn dotted(text: &[u8]) -> Option<Ipv4Addr> {
    let (mut bits, mut at) = (0u32, 0);
    for place in 0..4 {
        if place > 0 {
            text.get(at).filter(|byte| **byte == b'.')?;
            at += 1;
        }
        let (begin, mut number) = (at, 0u32);
        while let Some(digit) = text.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
            number = number.wrapping_mul(10).wrapping_add(u32::from(digit));
            at += 1;
        }
        let digits = at - begin;
        // Leading zeros are left to `any_form`.
        let is_octet = matches!((digits, number), (1, _) | (2, 10..) | (3, 100..=255));
        bits = is_octet.then_some(bits << 8 | number)?;
    }
    let is_end = match text.get(at..)?.split_first() {
        None => true,
        Some((b':', port)) => is_plain_port(port),
        Some(_) => false,
    };
    is_end.then_some(Ipv4Addr::from_bits(bits))
}

/// True if the text is a port in digits. `false` may be wrong.
fn is_plain_port(text: &[u8]) -> bool {
    let is_number = (1..=5).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    is_number && (text.len() < 5 || text < b"65536".as_slice())
}

fn any_form(text: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(text).ok()?;
    let host = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (after.is_empty() || after.strip_prefix(':').is_some_and(is_port)).then_some(host)?
        }
        None => match text.split_once(':') {
            Some((host, port)) if !port.as_bytes().contains(&b':') => is_port(port).then_some(host)?,
            _ => text,
        },
    };
    without_zone(host).map(|address| address.to_canonical())
}

/// An address without a port, in brackets or not, as written: an IPv4-mapped address stays IPv6.
pub fn bare(text: &str) -> Option<IpAddr> {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    without_zone(inner.unwrap_or(text))
}

fn without_zone(text: &str) -> Option<IpAddr> {
    text.split_once('%').map_or(text, |(address, _zone)| address).parse().ok()
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefixes {
    /// Leading bits of an IPv4 address, 1 to [`IPV4_BITS`].
    pub ipv4: u8,
    /// Leading bits of an IPv6 address, 1 to [`IPV6_BITS`].
    pub ipv6: u8,
}

impl Default for Prefixes {
    /// A whole IPv4 address, and an IPv6 /64, the least that a subscriber gets (RFC 6177).
    fn default() -> Self {
        Self { ipv4: IPV4_BITS, ipv6: 64 }
    }
}

impl Prefixes {
    /// `address` with all bits after the prefix cleared, and the prefix length.
    pub fn cut(self, address: IpAddr) -> (IpAddr, u8) {
        match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(u32::from(IPV4_BITS.saturating_sub(self.ipv4)));
                (Ipv4Addr::from_bits(v4.to_bits() & mask.unwrap_or(0)).into(), self.ipv4)
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(u32::from(IPV6_BITS.saturating_sub(self.ipv6)));
                (Ipv6Addr::from_bits(v6.to_bits() & mask.unwrap_or(0)).into(), self.ipv6)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    fn parsed(text: &str) -> Option<std::string::String> {
        parse(text.as_bytes()).map(|a| a.to_string())
    }

    #[test]
    fn every_form_that_a_host_uses_is_read() {
        for (address, texts) in [
            ("1.2.3.4", "1.2.3.4:567 1.2.3.4:0 1.2.3.4 [::ffff:1.2.3.4]:567 ::ffff:1.2.3.4"),
            ("2001:db8::1", "[2001:db8::1]:567 [2001:db8::1] 2001:db8::1"),
            ("fe80::1", "fe80::1%eth0 [fe80::1%2]:80"),
        ] {
            for text in texts.split(' ') {
                assert_eq!(parsed(text).as_deref(), Some(address), "{text}");
            }
        }
    }

    #[test]
    fn a_malformed_address_is_refused() {
        let texts = " /var/run/envoy.sock @abstract 1.2.3:80 [::1 [::1]x [::1]:x 1.2.3.4:99999 localhost :80 1.2.3.4:";
        for text in texts.split(' ') {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert_eq!(parse(&[0xff, 0xfe]), None);
    }

    proptest! {
        #[test]
        fn the_short_way_reads_what_the_long_way_reads(
            text in "[0-9]{1,3}(\\.[0-9]{1,3}){3}(:[0-9]{0,6})?|[0-9.:+]{0,22}|\
                     (0|1|255|256)(\\.(0|00|255|256)){3}:?(0|65535|65536)",
        ) {
            let (short, long) = (dotted(text.as_bytes()).map(IpAddr::V4), any_form(text.as_bytes()));
            prop_assert!(short.is_none() || short == long, "{} is {:?}, not {:?}", text, short, long);
        }

        #[test]
        fn the_short_way_reads_every_plain_address(bits: u32, port: u16) {
            let address = Ipv4Addr::from_bits(bits);
            prop_assert_eq!(dotted(std::format!("{address}:{port}").as_bytes()), Some(address));
            prop_assert_eq!(dotted(address.to_string().as_bytes()), Some(address));
        }
    }

    #[test]
    fn an_address_is_cut_to_its_prefix() {
        let cut = |prefixes: Prefixes, text: &str| prefixes.cut(text.parse().unwrap()).0.to_string();
        let prefixes = Prefixes::default();
        assert_eq!(cut(prefixes, "1.2.3.4"), "1.2.3.4");
        assert_eq!(cut(prefixes, "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        let prefixes = Prefixes { ipv4: 20, ipv6: 48 };
        assert_eq!(cut(prefixes, "1.2.255.4"), "1.2.240.0");
        assert_eq!(cut(prefixes, "2001:db8:1:2::1"), "2001:db8:1::");
        assert_eq!(cut(Prefixes { ipv4: 1, ipv6: 1 }, "255.0.0.1"), "128.0.0.0");
    }
}
