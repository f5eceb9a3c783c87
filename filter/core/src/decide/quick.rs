//! The quick path: most requests, where the table is the program's own memory.
//!
//! A rule set is *plain* if each of its rules counts every request by the same prefix of the client's address, in token
//! buckets, at a fixed cost. A request under plain rules whose key is cold takes its tokens where the entry is. Everything
//! else is left to the general path before anything is changed: a newcomer, a key that is watched, or becomes so, or whose
//! bucket is short, a slot with a ban, a POP that is out of touch. Both come to the same, because what is done to an entry
//! is done by the same functions.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::Decision;
use super::hit::slot_of;
use super::judge::cold_after_taking;
use super::keys::KeyId;
use super::terms::RuleTerms;
use crate::RuleIndex;
use crate::buckets::{Standing, Take};
use crate::fleet::Exchange;
use crate::fleet::ladder::Step;
use crate::key::{KeyHash, Secret};
use crate::limiter::Limiter;
use crate::table::slot::{Cold, Tag, Unheard};
use crate::table::{ColdChange, Slots};
use weir_rules::RuleSet;
use weir_rules::address::{self, Prefixes};
use weir_rules::algorithm::Algorithm;
use weir_rules::cost::Cost;
use weir_rules::request::{Attribute, Request};
use weir_wire::quota::Quota;
use weir_wire::sharing::WhenUnsynced;
use weir_wire::time::Time;

/// A plain rule set, and the last request.
pub(crate) struct Plain {
    rules: Vec<PlainRule>,
    prefixes: Prefixes,
    /// Whether the rules decide by themselves while the POP is out of touch.
    is_local: bool,
    /// Whether a client that is let through is told how it stands.
    tells_standing: bool,
    /// What the host said of the client's address, and what it said before.
    text: Vec<u8>,
    last_text: Vec<u8>,
    /// The hash of the key of `last_text`.
    last: Option<KeyHash>,
    /// For each rule, the entry.
    changes: Vec<ColdChange>,
}

/// What is needed of a rule.
struct PlainRule {
    salt: u64,
    quota: Quota,
    local_burst: u32,
    cost: u32,
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
            text: Vec::new(),
            last_text: Vec::new(),
            last: None,
            changes: each.map(|(_, terms)| ColdChange::of(Tag::of_key(0, terms.salt))).collect(),
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
        is_plain.then_some(Self {
            salt: terms.salt,
            quota: terms.quota,
            local_burst: terms.local_burst,
            cost,
        })
    }

    /// The entry after a request; none if this is not for the quick path. `parts` is given in a fleet.
    #[inline]
    fn take(&self, cold: Cold, parts: Option<u32>, now: Time) -> Option<Cold> {
        let burst = if self.local_burst == 0 { 0 } else { self.local_burst.max(self.cost) };
        let bucket = cold.bucket.held_to(&self.quota, burst, now);
        let Take::Taken(after) = bucket.take(&self.quota, self.cost, now) else { return None };
        let unheard = parts.map(|parts| Unheard { quota: self.quota, local_burst: self.local_burst, parts });
        cold_after_taking(cold, after, unheard.as_ref(), self.cost, now)
    }
}

impl Limiter {
    /// Lets a request through by the quick path. False if nothing was changed: the general path is to decide it.
    #[inline]
    pub(crate) fn try_quickly(
        &mut self,
        request: &mut dyn Request,
        slots: &mut dyn Slots,
        now: Time,
    ) -> bool {
        self.plain.is_some() && slots.changes_in_place() && self.take_in_place(request, slots, now)
    }

    #[inline(never)]
    fn take_in_place(&mut self, request: &mut dyn Request, slots: &mut dyn Slots, now: Time) -> bool {
        let is_usual = !self.only_asks && !self.may_reserve && self.in_hand.is_empty();
        let ladder = self.exchange.as_ref().map(|exchange| exchange.ladder);
        let Some(plain) = self.plain.as_deref_mut().filter(|_| is_usual) else { return false };
        let is_in_touch = plain.is_local || ladder.is_some_and(|ladder| ladder.step(now) < Step::Fallback);
        if !is_in_touch || request.times() != 1 {
            return false;
        }
        let Some(hash) = plain.hash(request, &self.secret) else {
            return false;
        };
        let Plain { rules, changes, .. } = plain;
        for (change, rule) in changes.iter_mut().zip(&*rules) {
            change.tag = Tag::of_key(hash.tag, rule.salt);
        }
        if self.deny_cache.is_worth_asking(now) {
            let is_denied = |(change, rule): (&ColdChange, &PlainRule)| {
                self.deny_cache.get(change.tag, rule.cost, now).is_some()
            };
            if changes.iter().zip(&*rules).any(is_denied) {
                return false;
            }
        }
        let parts = self.exchange.as_ref().map(Exchange::cold_parts);
        let mut judge = |changes: &mut [ColdChange]| {
            changes.iter_mut().zip(&*rules).all(|(change, rule)| {
                let after = rule.take(change.entry, parts, now);
                after.map(|after| change.entry = after).is_some()
            })
        };
        let slot = slot_of(hash.place, slots.count());
        let passes = slots.change_cold(slot, changes, &mut judge);
        if passes {
            self.counters.count_allowed(rules.len());
        }
        passes
    }

    /// Whether clients that pass quickly are told how they stand.
    pub(crate) fn tells_standing(&self) -> bool {
        self.plain.as_ref().is_some_and(|plain| plain.tells_standing)
    }

    /// What [`Limiter::try_quickly`] came to.
    pub(crate) fn passed(&self, now: Time) -> Decision {
        let mut strictest: Option<(RuleIndex, Standing)> = None;
        if let Some(plain) = &self.plain {
            for ((rule, change), i) in plain.rules.iter().zip(&plain.changes).zip(0..) {
                let standing = Standing::allowed(change.entry.bucket, &rule.quota, now);
                let found = (RuleIndex::new(i), standing);
                if strictest.is_none_or(|known| self.is_stricter(found, known)) {
                    strictest = Some(found);
                }
            }
        }
        Decision::Allow { strictest, hold_ns: 0, afterwards: Vec::new() }
    }
}

impl Plain {
    /// The hash of the client's key; none if its address cannot be read.
    #[inline]
    fn hash(&mut self, request: &mut dyn Request, secret: &Secret) -> Option<KeyHash> {
        if !request.attribute_into(&Attribute::SourceAddress, &mut self.text) {
            return None;
        }
        // The next request is often from the same connection.
        if self.text != self.last_text {
            self.last = address::parse(&self.text).map(|address| hash_of(address, self.prefixes, secret));
            core::mem::swap(&mut self.text, &mut self.last_text);
        }
        self.last
    }
}

/// The hash of the key that an address is: of the bytes that [`weir_rules::key::KeyValue`] has.
#[inline]
fn hash_of(address: IpAddr, prefixes: Prefixes, secret: &Secret) -> KeyHash {
    let (cut, bits) = prefixes.cut(address);
    let covered = usize::from(bits).div_ceil(8);
    match cut {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            let key = [4, bits, a, b, c, d];
            secret.hash(key.get(..2 + covered).unwrap_or(&key))
        }
        IpAddr::V6(v6) => {
            let mut key = [0; 18];
            let head = [6, bits].into_iter().chain(v6.octets());
            key.iter_mut().zip(head).for_each(|(to, from)| *to = from);
            secret.hash(key.get(..2 + covered).unwrap_or(&key))
        }
    }
}
