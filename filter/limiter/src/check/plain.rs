//! Rule sets that qualify for the fast path, prepared for it.
//!
//! A rule set is *plain* if each of its rules counts every request in token buckets at a fixed cost, and the rules use
//! few distinct keys. The client's address alone, as a key, has an even faster path.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::OWN_MEMORY;
use crate::algorithms::{Portion, missing_ns};
use crate::check::terms::{KeyCache, KeyId, RuleTerms};
use crate::table::slot::Tag;
use crate::table::{CHANGED_MAX, EntryChange, HashSecret, KeyHash, SHORT_BYTES_MAX};
use weir_protocol::quota::Quota;
use weir_protocol::sharing::OnSyncLoss;
use weir_rules::address::Prefixes;
use weir_rules::algorithm::Algorithm;
use weir_rules::cost::Cost;
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::request::{Attribute, Fetched, Request, Values};
use weir_rules::{RuleSet, address};

/// A plain rule set, with state of the last request.
pub(crate) struct Plain {
    pub(super) rules: Vec<PlainRule>,
    /// The first key that is the client's address: its index among the keys, and its prefixes.
    address: Option<(usize, Prefixes)>,
    others: Vec<OtherKey>,
    /// True if all rules have `on_sync_loss: local`. The fast path then also serves while the POP is offline.
    pub(super) is_local: bool,
    client: Client,
    /// Attributes of the last request, for the other keys.
    values: Values,
    pub(super) found: EntryPlaces,
}

/// A key other than the client's address.
#[derive(Clone, Copy)]
struct OtherKey {
    number: usize,
    id: KeyId,
    /// One of the rules that count by this key.
    rule: usize,
}

/// The last client's address as the host stated it.
#[derive(Default)]
struct Client {
    /// Buffer for the address, for hosts that do not have it in memory.
    room: Vec<u8>,
    text: Vec<u8>,
    hash: Option<KeyHash>,
}

/// Places of the last request's entries.
pub(super) struct EntryPlaces {
    pub(super) changes: Vec<EntryChange>,
    /// One slot per key; at most [`CHANGED_MAX`].
    pub(super) slots: Vec<u32>,
}

/// The inputs that the other keys are built from.
pub(super) struct Making<'a> {
    pub(super) rules: &'a RuleSet,
    pub(super) keys: &'a mut KeyCache,
    pub(super) fleet_secret: &'a FleetSecret,
    pub(super) secret: &'a HashSecret,
}

pub(super) struct PlainRule {
    pub(super) salt: u64,
    pub(super) portion: Portion,
    /// Nanoseconds of refill that a bucket always lacks, because it holds at most the local burst.
    pub(super) missing_ns: u64,
    pub(super) quota: Quota,
    pub(super) local_burst: u32,
    pub(super) cost: u32,
}

impl Plain {
    /// The plain form of these rules; `None` if they are not plain.
    pub(crate) fn of(rules: &RuleSet, terms: &[RuleTerms]) -> Option<Box<Self>> {
        if !OWN_MEMORY || !rules.counts_all_alike() {
            return None;
        }
        let each = || rules.rules().iter().zip(terms);
        let (mut ids, mut address, mut others) = (Vec::new(), None, Vec::new());
        for (rule, (spec, terms)) in each().map(|(rule, terms)| (&rule.key, terms)).enumerate() {
            let (number, id) = (ids.len(), terms.key);
            if ids.contains(&id) {
                continue;
            }
            ids.push(id);
            match spec.prefixes().filter(|_| spec.is_address() && address.is_none()) {
                Some(prefixes) => address = Some((number, prefixes)),
                None => others.push(OtherKey { number, id, rule }),
            }
        }
        if !(1..=CHANGED_MAX).contains(&ids.len()) {
            return None;
        }
        let plain = each().map(|(rule, terms)| PlainRule::of(terms).filter(|_| rule.after.is_none()));
        let change = |terms: &RuleTerms| {
            Some(EntryChange::of(Tag::of_key(0, terms.salt), ids.iter().position(|id| *id == terms.key)?))
        };
        Some(Box::new(Self {
            rules: plain.collect::<Option<_>>()?,
            address,
            others,
            is_local: terms.iter().all(|terms| terms.on_sync_loss == OnSyncLoss::Local),
            client: Client::default(),
            values: Values::default(),
            found: EntryPlaces {
                changes: terms.iter().map(change).collect::<Option<_>>()?,
                slots: ids.iter().map(|_| 0).collect(),
            },
        }))
    }

    /// Finds the places of the request's entries; `None` if the request lacks a key.
    #[inline]
    pub(super) fn find(&mut self, request: &mut dyn Request, slot_count: u32, making: Making<'_>) -> Option<()> {
        if let Some((number, prefixes)) = self.address {
            let hash = self.client.hash(request, prefixes, making.secret)?;
            self.found.put(&self.rules, number, hash, slot_count);
            if self.others.is_empty() {
                return Some(());
            }
        }
        self.find_others(request, making, slot_count)
    }

    #[inline(never)]
    fn find_others(&mut self, request: &mut dyn Request, making: Making<'_>, slot_count: u32) -> Option<()> {
        let Making { rules, keys, fleet_secret, secret } = making;
        let mut fetched = Fetched::new(request, rules.attributes(), &mut self.values);
        keys.next_request();
        for OtherKey { number, id, rule } in &self.others {
            let spec = &rules.rules().get(*rule)?.key;
            let hash = keys.hash(*id, spec, &mut fetched, (fleet_secret, secret)).ok()?;
            self.found.put(&self.rules, *number, hash, slot_count);
        }
        Some(())
    }
}

impl EntryPlaces {
    #[inline]
    fn put(&mut self, rules: &[PlainRule], number: usize, hash: KeyHash, slot_count: u32) {
        if let Some(slot) = self.slots.get_mut(number) {
            *slot = hash.slot(slot_count);
        }
        for (change, rule) in self.changes.iter_mut().zip(rules) {
            if change.slot == number {
                change.tag = Tag::of_key(hash.tag, rule.salt);
            }
        }
    }
}

impl PlainRule {
    fn of(terms: &RuleTerms) -> Option<Self> {
        let Cost::Fixed(cost) = terms.cost else { return None };
        let is_bucket = matches!(terms.algorithm, Algorithm::TokenBucket(_)) && !terms.is_calendar;
        let is_fleets = terms.is_strict || terms.in_flight.is_some() || terms.has_turns;
        let is_plain = is_bucket
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

impl Client {
    /// The hash of the client's key; `None` if the address is unreadable.
    #[inline]
    fn hash(&mut self, request: &mut dyn Request, prefixes: Prefixes, secret: &HashSecret) -> Option<KeyHash> {
        let Self { room, text: last, hash } = self;
        let is_there = request.read_attribute(&Attribute::SourceAddress, room, &mut |text| {
            // The next request is often from the same connection.
            if text != last.as_slice() {
                *hash = hash_of_text(text, prefixes, secret);
                last.clear();
                last.extend_from_slice(text);
            }
        });
        if is_there { self.hash } else { None }
    }
}

#[inline]
fn hash_of_text(text: &[u8], prefixes: Prefixes, secret: &HashSecret) -> Option<KeyHash> {
    // Dotted IPv4 first: its result fits a register. Reading the general result back from memory stalls.
    match address::dotted(text) {
        Some(address) => Some(hash_of(address.into(), prefixes, secret)),
        None => address::parse(text).map(|address| hash_of(address, prefixes, secret)),
    }
}

/// The hash of an address key, over the bytes of its [`weir_rules::key::KeyValue`].
#[inline]
fn hash_of(address: IpAddr, prefixes: Prefixes, secret: &HashSecret) -> KeyHash {
    let (cut, bits) = prefixes.cut(address);
    let size = 2 + usize::from(bits).div_ceil(8);
    // Built as numbers: reading bytes back together that were written one by one is slow.
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
            let (prefixes, secret) = (Prefixes { ipv4, ipv6 }, HashSecret::new(secret));
            let key = KeyValue::of_address(address, prefixes);
            prop_assert_eq!(hash_of(address, prefixes, &secret), secret.hash(key.as_bytes()));
        }
    }
}
