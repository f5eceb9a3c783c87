//! The quick path: most requests, where the table is the program's own memory.
//!
//! A request under plain rules whose key is cold takes its tokens where the entry is. Everything
//! else is left to the general path before anything is changed: a newcomer, a key that is watched, or becomes so, or whose
//! bucket is short, a slot with a ban, a POP that is out of touch. Both come to the same, because what is done to an entry
//! is done by the same functions.

use alloc::vec::Vec;

use super::Decision;
use super::hit::slot_of;
use super::judge::cold_after_taking;
use super::plain::{Plain, PlainRule};
use crate::RuleIndex;
use crate::buckets::{Standing, Take};
use crate::fleet::Exchange;
use crate::fleet::ladder::Step;
use crate::limiter::Limiter;
use crate::table::slot::{Cold, Tag, Unheard};
use crate::table::{ColdChange, Slots};
use weir_rules::request::Request;
use weir_wire::time::Time;

impl PlainRule {
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
