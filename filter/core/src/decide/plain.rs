//! Which rule sets the quick path is for.
//!
//! A rule set is *plain* if each of its rules counts every request by the same prefix of the client's address, in token
//! buckets, at a fixed cost.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::keys::KeyId;
use super::terms::RuleTerms;
use crate::buckets::{Portion, missing_ns};
use crate::key::{KeyHash, SHORT_BYTES_MAX, Secret};
use crate::table::Change;
use crate::table::slot::Tag;
use weir_rules::RuleSet;
use weir_rules::address::{self, Prefixes};
use weir_rules::algorithm::Algorithm;
use weir_rules::cost::Cost;
use weir_rules::request::{Attribute, Request};
use weir_wire::quota::Quota;
use weir_wire::sharing::WhenUnsynced;

/// A plain rule set, and the last request.
pub(crate) struct Plain {
    pub(super) rules: Vec<PlainRule>,
    prefixes: Prefixes,
    /// Whether the rules decide by themselves while the POP is out of touch.
    pub(super) is_local: bool,
    /// Whether a client that is let through is told how it stands.
    pub(super) tells_standing: bool,
    /// Room for the client's address, where the host does not have it in memory.
    room: Vec<u8>,
    /// What the host said of the last client's address.
    last_text: Vec<u8>,
    /// The hash of the key of `last_text`.
    last: Option<KeyHash>,
    /// For each rule, the entry.
    pub(super) changes: Vec<Change>,
}

/// What is needed of a rule.
pub(super) struct PlainRule {
    pub(super) salt: u64,
    /// What its requests take.
    pub(super) portion: Portion,
    /// What its buckets lack at least, because they hold no more than the local burst.
    pub(super) missing_ns: u64,
    pub(super) quota: Quota,
    pub(super) local_burst: u32,
    pub(super) cost: u32,
}

impl Plain {
    /// The plain rule set that these rules are; none if they are not.
    pub(crate) fn of(rules: &RuleSet, terms: &[RuleTerms]) -> Option<Box<Self>> {
        let first = rules.rules().first().filter(|_| rules.counts_all_alike())?;
        let key = terms.first()?.key;
        let each = rules.rules().iter().zip(terms);
        let plain: Option<Vec<PlainRule>> = each
            .clone()
            .map(|(rule, terms)| PlainRule::of(terms, key).filter(|_| rule.after.is_none()))
            .collect();
        Some(Box::new(Self {
            rules: plain?,
            prefixes: first.key.prefixes().filter(|_| first.key.is_address())?,
            is_local: terms.iter().all(|terms| terms.when_unsynced == WhenUnsynced::Local),
            tells_standing: rules.rules().iter().any(|rule| rule.response.on_allowed),
            room: Vec::new(),
            last_text: Vec::new(),
            last: None,
            changes: each.map(|(_, terms)| Change::of(Tag::of_key(0, terms.salt))).collect(),
        }))
    }
}

impl PlainRule {
    fn of(terms: &RuleTerms, key: KeyId) -> Option<Self> {
        let Cost::Fixed(cost) = terms.cost else { return None };
        let is_bucket = matches!(terms.algorithm, Algorithm::TokenBucket(_)) && !terms.is_calendar;
        let is_fleets = terms.is_strict || terms.in_flight.is_some() || terms.has_turns;
        let is_plain = is_bucket
            && terms.key == key
            && terms.is_enforced()
            && !(is_fleets || terms.has_penalty || terms.is_charged_after || terms.reserves);
        let burst = if terms.local_burst == 0 { 0 } else { terms.local_burst.max(cost) };
        is_plain.then_some(Self {
            salt: terms.salt,
            portion: Portion::of(&terms.quota, cost),
            missing_ns: missing_ns(&terms.quota, burst),
            quota: terms.quota,
            local_burst: terms.local_burst,
            cost,
        })
    }
}

impl Plain {
    /// The hash of the client's key; none if its address cannot be read.
    #[inline]
    pub(super) fn hash(&mut self, request: &mut dyn Request, secret: &Secret) -> Option<KeyHash> {
        let Self { prefixes, room, last_text, last, .. } = self;
        let is_there = request.read_attribute(&Attribute::SourceAddress, room, &mut |text| {
            // The next request is often from the same connection.
            if text != last_text.as_slice() {
                *last = hash_of_text(text, *prefixes, secret);
                last_text.clear();
                last_text.extend_from_slice(text);
            }
        });
        if is_there { self.last } else { None }
    }
}

/// The hash of the key of the client with this address; none if it cannot be read.
#[inline]
fn hash_of_text(text: &[u8], prefixes: Prefixes, secret: &Secret) -> Option<KeyHash> {
    // The usual form by itself: it comes in a register. One that may be IPv6 comes in memory, and is waited for.
    match address::dotted(text) {
        Some(address) => Some(hash_of(address.into(), prefixes, secret)),
        None => address::parse(text).map(|address| hash_of(address, prefixes, secret)),
    }
}

/// The hash of the key that an address is: of the bytes that [`weir_rules::key::KeyValue`] has.
#[inline]
fn hash_of(address: IpAddr, prefixes: Prefixes, secret: &Secret) -> KeyHash {
    let (cut, bits) = prefixes.cut(address);
    let size = 2 + usize::from(bits).div_ceil(8);
    // As numbers: bytes that are written one by one are slow to read together.
    match cut {
        IpAddr::V4(v4) => {
            let octets = u128::from(v4.to_bits().swap_bytes());
            secret.hash_short(octets << 16 | u128::from(bits) << 8 | 4, size)
        }
        IpAddr::V6(v6) if size <= SHORT_BYTES_MAX => {
            secret.hash_short(v6.to_bits().swap_bytes() << 16 | u128::from(bits) << 8 | 6, size)
        }
        IpAddr::V6(v6) => {
            let mut key = [0; 18];
            let head = [6, bits].into_iter().chain(v6.octets());
            key.iter_mut().zip(head).for_each(|(to, from)| *to = from);
            secret.hash(key.get(..size).unwrap_or(&key))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_rules::key::KeyValue;

    proptest! {
        #[test]
        fn an_address_is_hashed_as_its_key_is(address: IpAddr, ipv4 in 1u8..=32, ipv6 in 1u8..=128, secret: [u8; 16]) {
            let (prefixes, secret) = (Prefixes { ipv4, ipv6 }, Secret::new(secret));
            let key = KeyValue::of_address(address, prefixes);
            prop_assert_eq!(hash_of(address, prefixes, &secret), secret.hash(key.as_bytes()));
        }
    }
}
