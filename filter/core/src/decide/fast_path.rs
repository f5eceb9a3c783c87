//! The quick path, for most requests where the table is in the program's own memory.
//!
//! A request under plain rules changes its entries in place. Everything else is left to the general path,
//! before anything is changed: a new key, a key that becomes watched, is refused by its admit ratio or is
//! missing on this worker's watch list, a short bucket, a slot with a ban, a request that lacks a part of a
//! key, a POP that is offline. Both paths have the same result, because they call the same functions on an
//! entry. The exception is a change that another thread overtakes half-way: part of it may remain, and the
//! general path then takes those tokens once more.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::decision::{Decision, LimitReason};
use super::evaluate::{cold_after_taking, most_of, rate_divisor_of, watched_after_taking};
use super::plain::{EntryPlaces, Making, Plain, PlainRule};
use super::terms::RuleTerms;
use crate::OWN_MEMORY;
use crate::RuleIndex;
use crate::buckets::{BucketStatus, TakeResult};
use crate::counters::CountedEvent;
use crate::fleet::SyncState;
use crate::fleet::connectivity::Connectivity;
use crate::limiter::Limiter;
use crate::local::{Denial, WatchList};
use crate::table::slot::{Cold, Entry, Unheard, Watched};
use crate::table::{EntryChange, Slots};
use weir_protocol::time::Time;
use weir_rules::request::Request;

impl PlainRule {
    /// The entry after a request; none if the general path must decide. `parts` is the fleet's rate divisor
    /// for cold keys; none outside a fleet.
    #[inline]
    fn take(&self, cold: Cold, parts: Option<u32>, now: Time) -> Option<Cold> {
        let bucket = cold.bucket.lacking(self.missing_ns, now);
        let TakeResult::Taken(after) = bucket.take_portion(&self.portion, now) else { return None };
        let unheard = parts.map(|parts| Unheard { quota: self.quota, local_burst: self.local_burst, parts });
        cold_after_taking(cold, after, unheard.as_ref(), self.cost, now)
    }

    /// [`PlainRule::take`] for a watched entry that is open.
    #[inline(never)]
    fn take_watched(&self, watched: Watched, terms: &RuleTerms, now: Time) -> Option<Watched> {
        let entry = Entry::Watched(watched);
        let (burst, parts) =
            (most_of(&entry, self.cost, terms, now), rate_divisor_of(&entry, self.cost, now));
        let bucket = watched.bucket.held_to(&self.quota, burst, now);
        let TakeResult::Taken(after) = bucket.take_slowly(&self.quota, self.cost, parts, now) else {
            return None;
        };
        Some(watched_after_taking(watched, after, self.cost, now))
    }
}

/// Changes each entry for one request; none if the general path must decide. Returns true if an entry is
/// watched: the request must then be counted on the watch list, which has its key.
#[inline]
fn take_all(
    (changes, rules): (&mut [EntryChange], &[PlainRule]),
    (terms, watch): (&[RuleTerms], &WatchList),
    parts: Option<u32>,
    now: Time,
) -> Option<bool> {
    let mut is_one_watched = false;
    for (i, (change, rule)) in changes.iter_mut().zip(rules).enumerate() {
        match &mut change.entry {
            Entry::Cold(cold) => *cold = rule.take(*cold, parts, now)?,
            Entry::Watched(watched) => {
                let terms = terms.get(i).filter(|_| watched.is_open(now) && watch.knows(change.tag))?;
                *watched = rule.take_watched(*watched, terms, now)?;
                is_one_watched = true;
            }
        }
    }
    Some(is_one_watched)
}

/// The result of the quick path.
#[derive(Clone, Copy)]
pub(crate) enum FastPath {
    /// The request is allowed.
    Passed,
    /// The local cache refuses the request for this rule.
    Refused(RuleIndex, Denial),
    /// The general path must decide.
    Left,
}

impl Limiter {
    /// Decides a request on the quick path, if it qualifies.
    #[inline]
    pub(crate) fn try_fast_path(
        &mut self,
        request: &mut dyn Request,
        slots: &mut dyn Slots,
        now: Time,
    ) -> FastPath {
        if OWN_MEMORY && self.plain.is_some() && slots.changes_in_place() {
            self.take_in_place(request, slots, now).unwrap_or(FastPath::Left)
        } else {
            FastPath::Left
        }
    }

    #[inline(never)]
    fn take_in_place(
        &mut self,
        request: &mut dyn Request,
        slots: &mut dyn Slots,
        now: Time,
    ) -> Option<FastPath> {
        let is_usual = !self.only_asks && !self.may_reserve && self.in_hand.is_empty();
        let connectivity = self.exchange.as_ref().map(|exchange| exchange.connectivity);
        let plain = self.plain.as_deref_mut().filter(|_| is_usual)?;
        let is_in_touch = plain.is_local
            || connectivity.is_some_and(|connectivity| connectivity.step(now) < Connectivity::Fallback);
        if !is_in_touch || request.times() != 1 {
            return None;
        }
        let (keys, fleet_secret, secret) = (&mut self.keys, &self.fleet_secret, &self.secret);
        plain.find(request, secret, slots.count(), || Making {
            rules: &self.rules,
            keys,
            fleet_secret,
            secret,
        })?;
        let Plain { rules, found: EntryPlaces { changes, slots: indices }, .. } = plain;
        if self.local_cache.is_worth_asking(now) {
            let denials = changes.iter().zip(&*rules).zip(0..).filter_map(|((change, rule), i)| {
                Some((RuleIndex::new(i), self.local_cache.get(change.tag, rule.cost, now)?))
            });
            if let Some((rule, denial)) = denials.max_by_key(|(_, denial)| denial.until) {
                return Some(FastPath::Refused(rule, denial));
            }
        }
        let parts = self.exchange.as_ref().map(SyncState::cold_rate_divisor);
        let (terms, watch) = (&*self.terms, &self.watch);
        let mut is_one_watched = false;
        let mut judge = |changes: &mut [EntryChange]| {
            let taken = take_all((changes, rules), (terms, watch), parts, now);
            taken.map(|watched| is_one_watched = watched).is_some()
        };
        let passes = slots.change_in_place(indices, changes, &mut judge);
        if !passes {
            return None;
        }
        self.counters.count_allowed(rules.len());
        if is_one_watched {
            self.count_watched_quickly(now);
        }
        Some(FastPath::Passed)
    }

    /// Counts the request just allowed for those of its keys that are watched.
    #[inline(never)]
    fn count_watched_quickly(&mut self, now: Time) {
        let Some(plain) = &self.plain else { return };
        for (change, rule) in plain.found.changes.iter().zip(&plain.rules) {
            if let Entry::Watched(_) = change.entry {
                self.watch.touch_known(change.tag, rule.cost, now);
            }
        }
    }

    /// The decision for [`FastPath::Refused`].
    pub(crate) fn refused_quickly(&mut self, rule: RuleIndex, denial: Denial, now: Time) -> Decision {
        let mut tag = 0;
        if let Some(plain) = &self.plain {
            for (change, rule) in plain.found.changes.iter().zip(&plain.rules) {
                self.watch.touch_known(change.tag, rule.cost, now);
            }
            tag = plain.found.changes.get(usize::from(rule)).map_or(0, |change| change.tag.bits());
        }
        self.counters.add(CountedEvent::LocalCacheHits, 1);
        let standing = BucketStatus::refused(denial.until.nanos_since(now));
        self.refused(rule, standing);
        let reason = if denial.is_ban { LimitReason::Ban } else { LimitReason::Limit };
        let jitter_s = self.jitter_s(rule, || tag);
        let counted = (0..).map(RuleIndex::new).zip(self.terms.iter().map(|terms| terms.key));
        Decision::Refuse { reason, status: self.status(rule, standing, counted), jitter_s }
    }

    /// The decision for [`FastPath::Passed`].
    pub(crate) fn passed(&self, now: Time) -> Decision {
        let all = self.plain.iter().flat_map(|plain| plain.rules.iter().zip(&plain.found.changes));
        let counted = all.zip(&self.terms).zip(0..).map(|(((rule, change), terms), i)| {
            let standing = BucketStatus::allowed(change.entry.bucket(), &rule.quota, now);
            ((RuleIndex::new(i), terms.key), standing)
        });
        let standings = counted.clone().map(|((rule, _), standing)| (rule, standing));
        let strictest =
            standings.reduce(|known, other| if self.is_stricter(other, known) { other } else { known });
        let told = if self.is_told { self.status_of_allowed(counted) } else { None };
        Decision::Allow { strictest, told, shadow: Box::default(), hold_ns: 0, afterwards: Vec::new() }
    }
}
