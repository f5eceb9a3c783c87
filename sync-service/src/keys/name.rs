//! Names of keys for operators, and the budgets that a name stands for under a rule.
//!
//! | key | text |
//! |---|---|
//! | an IPv4 address | `192.0.2.7` |
//! | a network, or an IPv6 prefix | `192.0.2.0/24`, `2001:db8:1:2::/64` |
//! | all requests | `all` |
//! | all requests that lack a part of the key | `lacking` |
//! | a value, under a rule with `log_key` | `text:abc`; behind an address, `192.0.2.7 text:abc` |
//! | anything else | `hex:` and the key's bytes: parts other than addresses leave a POP as a hash |
//!
//! [`read`] parses everything that [`show`] writes. It also accepts an IPv6 address without a prefix length, and cuts
//! it to a /64, as a rule by `client_address` does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;
use weir_budget::budget::BudgetId;
use weir_budget::id::Hex;
use weir_protocol::messages::{KEY_BYTES_MAX, RULE_NAME_MAX};
use weir_rules::address::{IPV4_BITS, IPV6_BITS, Prefixes, bare};
use weir_rules::key::KeyValue;
use weir_rules::{Rule, RuleSet};

const HEX: &str = "hex:";
const TEXT: &str = "text:";
const WORDS: [(&str, KeyValue); 2] = [("all", KeyValue::ALL), ("lacking", KeyValue::LACKING)];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "expected a key: an address (192.0.2.7), a network (192.0.2.0/24, 2001:db8:1:2::/64), `all`, `lacking`, `text:` \
     and a value (of a rule with log_key), or `hex:` and 1 to 64 bytes, as `weir-sync keys` shows it"
)]
pub(crate) struct NameError;

/// Name of the key with these bytes, in canonical form.
pub(crate) fn show(value: &[u8]) -> String {
    if let Some((word, _)) = WORDS.iter().find(|(_, key)| key.as_bytes() == value) {
        return (*word).into();
    }
    match parts(value) {
        Some((address, bits, [])) => network(address, bits),
        _ => in_clear(value).unwrap_or_else(|| format!("{HEX}{}", Hex(value))),
    }
}

/// Name of a key with a value in clear, or `None` if the value is not printable text.
fn in_clear(value: &[u8]) -> Option<String> {
    let (address, text) = KeyValue::clear_part(value)?;
    let text = str::from_utf8(text).ok().filter(|text| !text.chars().any(char::is_control))?;
    if address.is_empty() {
        return Some(format!("{TEXT}{text}"));
    }
    let (address, bits, _) = parts(address)?;
    Some(format!("{} {TEXT}{text}", network(address, bits)))
}

pub(crate) fn read(text: &str) -> Result<Vec<u8>, NameError> {
    if let Some((_, key)) = WORDS.iter().find(|(word, _)| *word == text) {
        return Ok(key.as_bytes().to_vec());
    }
    if let Some(digits) = text.strip_prefix(HEX) {
        return bytes_of(digits).ok_or(NameError);
    }
    if let Some((address, clear)) = text.split_once(TEXT) {
        let address = match address.strip_suffix(' ') {
            Some(address) => of_address(address)?,
            None if address.is_empty() => Vec::new(),
            None => return Err(NameError),
        };
        return KeyValue::clear(&address, clear.as_bytes()).ok_or(NameError);
    }
    of_address(text)
}

fn of_address(text: &str) -> Result<Vec<u8>, NameError> {
    let (text, bits) = match text.split_once('/') {
        Some((text, bits)) => (text, Some(bits.parse().ok().filter(|_| !bits.starts_with('+')).ok_or(NameError)?)),
        None => (text, None),
    };
    let address = bare(text).ok_or(NameError)?;
    let most = if address.is_ipv4() { IPV4_BITS } else { IPV6_BITS };
    let prefixes = match bits {
        Some(bits) if (1..=most).contains(&bits) => Prefixes { ipv4: bits, ipv6: bits },
        Some(_) => return Err(NameError),
        None => Prefixes::default(),
    };
    // Requests never have mapped addresses, and a prefix of one would be another prefix in IPv4.
    let canonical = address.to_canonical();
    if bits.is_some() && canonical != address {
        return Err(NameError);
    }
    Ok(KeyValue::of_address(canonical, prefixes).as_bytes().to_vec())
}

/// Decodes a segment of a URL's path; `None` if it is not percent-encoded UTF-8.
pub(crate) fn from_path(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => 16 * digit(rest.next()?)? + digit(rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Address or network that a key begins with, as text; `None` without one. The key may have other parts.
pub(crate) fn address(value: &[u8]) -> Option<String> {
    parts(value).map(|(address, bits, _)| network(address, bits))
}

/// True if `value` begins with an address inside the network `outer`, which is itself the key of an address.
pub(crate) fn is_within(value: &[u8], outer: &[u8]) -> bool {
    let (Some((address, bits, _)), Some((outer, outer_bits, _))) = (parts(value), parts(outer)) else {
        return false;
    };
    let (cut, _) = Prefixes { ipv4: outer_bits, ipv6: outer_bits }.cut(address);
    bits >= outer_bits && cut == outer
}

/// Splits canonical bytes into an address, the length of its prefix, and the rest; `None` without an address.
fn parts(value: &[u8]) -> Option<(IpAddr, u8, &[u8])> {
    let (&[family, bits], rest) = value.split_first_chunk()?;
    let (most, mut octets) = match family {
        4 => (IPV4_BITS, [0; 16]),
        6 => (IPV6_BITS, [0; 16]),
        _ => return None,
    };
    let covered = usize::from(bits).div_ceil(8);
    let (prefix, rest) = rest.split_at_checked(covered).filter(|_| (1..=most).contains(&bits))?;
    octets.get_mut(..covered)?.copy_from_slice(prefix);
    let address: IpAddr = if family == 4 {
        let [a, b, c, d, ..] = octets;
        Ipv4Addr::new(a, b, c, d).into()
    } else {
        Ipv6Addr::from(octets).into()
    };
    let is_cut = Prefixes { ipv4: bits, ipv6: bits }.cut(address).0 == address;
    // Requests never have mapped addresses, and `read` accepts none.
    (is_cut && address.to_canonical() == address).then_some((address, bits, rest))
}

fn network(address: IpAddr, bits: u8) -> String {
    if address.is_ipv4() && bits == IPV4_BITS { address.to_string() } else { format!("{address}/{bits}") }
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = digits.bytes().map(digit).collect();
    let digits = digits.filter(|it| it.len() % 2 == 0 && (2..=2 * KEY_BYTES_MAX).contains(&it.len()))?;
    Some(digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| 16 * byte + digit)).collect())
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Reason why a rule and a text name no key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum WhichError {
    #[error("the current rule set has no rule `{0}`; `weir-sync rules get` shows it")]
    Rule(String),
    #[error(transparent)]
    Name(#[from] NameError),
    /// The text is a value in clear, but POPs hash the values of this rule.
    #[error(
        "POPs report the keys of `{0}` by their hash: expected `hex:` and the key's bytes, as `weir-sync keys` shows \
         them and `weir-sync explain --live` finds them by a request; or a rule with log_key"
    )]
    Hashed(String),
    #[error("`{rule}` counts by /{expected}, found /{found}: expected an address, or a network of that size")]
    Prefix { rule: String, expected: u8, found: u8 },
}

/// Keys that `text` names under `rule`. The name of a written rule also covers its tiers, which count separately. An
/// address is cut to the rule's prefix.
pub(crate) fn ids(rules: &RuleSet, rule: &str, text: &str) -> Result<Vec<BudgetId>, WhichError> {
    let named = rules.rules().iter().find(|known| known.name == rule);
    let named = named.ok_or_else(|| WhichError::Rule(rule.into()))?;
    let value = value_under(named, text)?;
    let is_tier =
        |other: &Rule| named.is_written() && other.place() == named.place() && other.variant.wider_times.is_none();
    let meant = rules.rules().iter().filter(|other| other.name == named.name || is_tier(other));
    Ok(meant.map(|rule| BudgetId::new(rule.name.clone(), value.clone())).collect())
}

/// Key that `text` names under a rule of which only the name is known.
pub(crate) fn ids_of_unknown(rule: &str, text: &str) -> Result<Vec<BudgetId>, WhichError> {
    if !(1..=RULE_NAME_MAX).contains(&rule.len()) {
        return Err(WhichError::Rule(rule.into()));
    }
    Ok(vec![BudgetId::new(rule.into(), read(text)?)])
}

fn value_under(rule: &Rule, text: &str) -> Result<Vec<u8>, WhichError> {
    let Some(prefixes) = rule.key.prefixes().filter(|_| rule.key.is_address()) else {
        let value = read(text)?;
        let is_known = rule.key.is_clear() || KeyValue::clear_part(&value).is_none();
        return if is_known { Ok(value) } else { Err(WhichError::Hashed(rule.name.clone())) };
    };
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(KeyValue::of_address(address.to_canonical(), prefixes).as_bytes().to_vec());
    }
    let value = read(text)?;
    let expected = match value.as_slice() {
        [4, found, ..] if *found != prefixes.ipv4 => Some((prefixes.ipv4, *found)),
        [6, found, ..] if *found != prefixes.ipv6 => Some((prefixes.ipv6, *found)),
        _ => None,
    };
    match expected {
        Some((expected, found)) => Err(WhichError::Prefix { rule: rule.name.clone(), expected, found }),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_of_addresses_are_readable() {
        for (bytes, text) in [
            (&[4, 32, 192, 0, 2, 7][..], "192.0.2.7"),
            (&[4, 24, 192, 0, 2], "192.0.2.0/24"),
            (&[4, 20, 192, 0, 0xf0], "192.0.240.0/20"),
            (&[6, 64, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, 2], "2001:db8:1:2::/64"),
            (&[3], "all"),
            (&[2], "lacking"),
            (&[1, 0xab], "hex:01ab"),
            (b"\x07abc", "text:abc"),
            (b"\x07", "text:"),
            (b"\x07text: caf\xc3\xa9", "text:text: caf\u{e9}"),
            (b"\x04\x20\xc0\x00\x02\x07\x07a b", "192.0.2.7 text:a b"),
            // No text, or one that a terminal would act on.
            (b"\x07\xff", "hex:07ff"),
            (b"\x07a\x1bb", "hex:07611b62"),
            (b"192.0.2.1", "hex:3139322e302e322e31"),
            // Not what any POP writes: bits behind the prefix, a prefix too long or none, too few bytes.
            (&[4, 20, 192, 0, 0xff], "hex:0414c000ff"),
            (&[4, 33, 192, 0, 2, 7, 0], "hex:0421c000020700"),
            (&[4, 0], "hex:0400"),
            (&[6, 64, 0x20, 1], "hex:06402001"),
            // A mapped address.
            (&[6, 96, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff], "hex:066000000000000000000000ffff"),
        ] {
            assert_eq!(show(bytes), text);
            assert_eq!(read(text).as_deref(), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn an_address_is_read_as_a_rule_by_address_counts_it() {
        let same = |text, expected| assert_eq!(read(text), read(expected), "{text}");
        same("2001:db8:1:2:3::4", "2001:db8:1:2::/64");
        same("192.0.2.7/24", "192.0.2.0/24");
        same("192.0.2.7/32", "192.0.2.7");
        same("::ffff:192.0.2.7", "192.0.2.7");
        same("[fe80::7%1]", "fe80::/64");
        same("hex:0420C0000207", "192.0.2.7");
        let long = format!("hex:{}", "00".repeat(KEY_BYTES_MAX + 1));
        for bad in ["", "192.0.2", "192.0.2.0/33", "192.0.2.0/0", "192.0.2.0/+8", "::1/129", "::ffff:1.2.3.0/120"] {
            assert_eq!(read(bad), Err(NameError), "{bad:?}");
        }
        for bad in ["192.0.2.7text:a", "x text:a", &format!("text:{}", "a".repeat(KEY_BYTES_MAX))] {
            assert_eq!(read(bad), Err(NameError), "{bad:?}");
        }
        for bad in ["hex:", "hex:0", "hex:0g", "hex:\u{e9}0", "All", "192.0.2.0/", &long] {
            assert_eq!(read(bad), Err(NameError), "{bad:?}");
        }
    }

    #[test]
    fn a_key_of_an_address_and_more_shows_the_address() {
        let both = [&[4, 32, 192, 0, 2, 7, 1][..], &[0xee; 16]].concat();
        assert_eq!(show(&both), format!("hex:0420c000020701{}", "ee".repeat(16)));
        assert_eq!(address(&both).as_deref(), Some("192.0.2.7"));
        assert_eq!(address(&[1, 2, 3]), None);
        let within = |inner: &str, outer: &str| is_within(&read(inner).unwrap(), &read(outer).unwrap());
        assert!(within("192.0.2.7", "192.0.2.0/24") && within("192.0.2.0/24", "192.0.0.0/16"));
        assert!(!within("192.0.3.7", "192.0.2.0/24") && !within("192.0.0.0/16", "192.0.2.0/24"));
        assert!(within("2001:db8::1", "2001:db8::/32") && !within("all", "192.0.2.0/24"));
        assert!(is_within(&both, &read("192.0.2.0/24").unwrap()));
    }

    proptest! {
        #[test]
        fn reads_what_it_writes(value in prop::collection::vec(prop_oneof![0..8_u8, any::<u8>()], 1..=KEY_BYTES_MAX)) {
            prop_assert_eq!(read(&show(&value)), Ok(value));
        }
    }
}
