//! The fast path, for most requests where the table is in the program's own memory.
//!
//! A request under plain rules changes its entries in place. Everything else is left to the general path, before
//! anything is changed: a new key, a key that becomes watched, is refused by its admit ratio or is missing on this
//! worker's watch list, a bucket with too few tokens, a slot with a ban, a request that lacks a part of a key, a POP
//! that is offline.
//!
//! Both paths have the same result, because they call the same functions on an entry. The exception is a change that
//! another thread overtakes half-way: part of it may remain, and the general path then takes those tokens once more.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::algorithms::{Admission, BucketStatus};
use crate::check::Denial;
use crate::check::decision::Decision;
use crate::check::evaluate::{cold_after_taking, most_of, rate_divisor_of, watched_after_taking};
use crate::check::plain::{EntryPlaces, Making, Plain, PlainRule};
use crate::check::terms::RuleTerms;
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::sync::connectivity::Connectivity;
use crate::sync::{SyncClient, WatchList};
use crate::table::slot::{Cold, Entry, LocalLimits, Watched};
use crate::table::{EntryChange, Slots};
use crate::{OWN_MEMORY, RuleIndex};
use weir_protocol::time::Time;
use weir_rules::request::Request;

impl PlainRule {
    /// The entry after a request; `None` if the general path must decide. The `divisor` is `None` outside a fleet.
    #[inline]
    fn take(&self, cold: Cold, divisor: Option<u32>, now: Time) -> Option<Cold> {
        let bucket = cold.bucket.lacking(self.missing_ns, now);
        let Admission::Taken(after) = bucket.take_portion(&self.portion, now) else { return None };
        let limits = divisor.map(|divisor| LocalLimits { quota: self.quota, local_burst: self.local_burst, divisor });
        cold_after_taking(cold, after, limits.as_ref(), self.cost, now)
    }

    /// [`PlainRule::take`] for a watched entry that is open.
    #[inline(never)]
    fn take_watched(&self, watched: Watched, terms: &RuleTerms, now: Time) -> Option<Watched> {
        let entry = Entry::Watched(watched);
        let (burst, divisor) = (most_of(&entry, self.cost, terms, now), rate_divisor_of(&entry, self.cost, now));
        let bucket = watched.bucket.held_to(&self.quota, burst, now);
        let Admission::Taken(after) = bucket.take_slowly(&self.quota, self.cost, divisor, now) else {
            return None;
        };
        Some(watched_after_taking(watched, after, self.cost, now))
    }
}

/// Changes each entry for one request; `None` if the general path must decide. True if an entry is watched: the request
/// must then be counted on the watch list, which contains its key.
#[inline]
fn take_all(
    (changes, rules): (&mut [EntryChange], &[PlainRule]),
    (terms, watch): (&[RuleTerms], &WatchList),
    divisor: Option<u32>,
    now: Time,
) -> Option<bool> {
    let mut is_one_watched = false;
    for (i, (change, rule)) in changes.iter_mut().zip(rules).enumerate() {
        match &mut change.entry {
            Entry::Cold(cold) => *cold = rule.take(*cold, divisor, now)?,
            Entry::Watched(watched) => {
                let terms = terms.get(i).filter(|_| watched.is_open(now) && watch.contains(change.tag))?;
                *watched = rule.take_watched(*watched, terms, now)?;
                is_one_watched = true;
            }
        }
    }
    Some(is_one_watched)
}

#[derive(Clone, Copy)]
pub(crate) enum FastPath {
    Passed,
    /// The local cache refuses the request for this rule.
    Refused(RuleIndex, Denial),
}

/// Decides a request on the fast path; `None` if the general path must decide.
#[inline]
pub(crate) fn try_fast_path(
    limiter: &mut Limiter,
    request: &mut dyn Request,
    slots: &mut dyn Slots,
    now: Time,
) -> Option<FastPath> {
    if OWN_MEMORY && limiter.rules.plain.is_some() && slots.changes_in_place() {
        take_in_place(limiter, request, slots, now)
    } else {
        None
    }
}

#[inline(never)]
fn take_in_place(
    limiter: &mut Limiter,
    request: &mut dyn Request,
    slots: &mut dyn Slots,
    now: Time,
) -> Option<FastPath> {
    let is_usual = !limiter.current.only_asks && !limiter.current.may_reserve && limiter.current.acquired.is_empty();
    let connectivity = limiter.sync.as_ref().map(|sync| sync.connectivity);
    let plain = limiter.rules.plain.as_deref_mut().filter(|_| is_usual)?;
    let is_in_touch =
        plain.is_local || connectivity.is_some_and(|connectivity| connectivity.step(now) < Connectivity::Fallback);
    if !is_in_touch || request.times() != 1 {
        return None;
    }
    let (keys, fleet_secret, secret) = (&mut limiter.rules.keys, &limiter.rules.fleet_secret, &limiter.rules.secret);
    plain.find(request, slots.count(), Making { rules: &limiter.rules.set, keys, fleet_secret, secret })?;
    let Plain { rules, found: EntryPlaces { changes, slots: indices }, .. } = plain;
    if limiter.local_cache.is_worth_asking(now) {
        let denials = changes.iter().zip(&*rules).zip(0..).filter_map(|((change, rule), i)| {
            Some((RuleIndex::new(i), limiter.local_cache.get(change.tag, rule.cost, now)?))
        });
        if let Some((rule, denial)) = denials.max_by_key(|(_, denial)| denial.until) {
            return Some(FastPath::Refused(rule, denial));
        }
    }
    let divisor = limiter.sync.as_ref().map(SyncClient::cold_rate_divisor);
    let (terms, watch) = (&*limiter.rules.terms, &limiter.watch);
    let mut is_one_watched = false;
    let mut evaluate = |changes: &mut [EntryChange]| {
        let taken = take_all((changes, rules), (terms, watch), divisor, now);
        taken.map(|watched| is_one_watched = watched).is_some()
    };
    let passes = slots.change_in_place(indices, changes, &mut evaluate);
    if !passes {
        return None;
    }
    limiter.counters.count_allowed(rules.len());
    if is_one_watched {
        count_watched_quickly(limiter, now);
    }
    Some(FastPath::Passed)
}

/// Counts the request just allowed for its watched keys.
#[inline(never)]
fn count_watched_quickly(limiter: &mut Limiter, now: Time) {
    let Some(plain) = &limiter.rules.plain else { return };
    for (change, rule) in plain.found.changes.iter().zip(&plain.rules) {
        if let Entry::Watched(watched) = &change.entry {
            limiter.watch.touch_known(change.tag, rule.cost, Some(watched.unconfirmed()), now);
        }
    }
}

pub(crate) fn refused_quickly(limiter: &mut Limiter, rule: RuleIndex, denial: Denial, now: Time) -> Decision {
    let mut tag = 0;
    if let Some(plain) = &limiter.rules.plain {
        for (change, rule) in plain.found.changes.iter().zip(&plain.rules) {
            limiter.watch.touch_known(change.tag, rule.cost, None, now);
        }
        tag = plain.found.changes.get(usize::from(rule)).map_or(0, |change| change.tag.bits());
    }
    limiter.counters.add(CountedEvent::LocalCacheHits, 1);
    let (reason, wait_ns) = (denial.reason(), denial.until.nanos_since(now));
    limiter.refused(reason, rule, wait_ns);
    let bucket = BucketStatus::refused(wait_ns);
    let jitter_s = limiter.rules.jitter_s(rule, || tag);
    let counted = (0..).map(RuleIndex::new).zip(limiter.rules.terms.iter().map(|terms| terms.key));
    Decision::Refuse { reason, status: limiter.rules.status(rule, bucket, counted), jitter_s }
}

pub(crate) fn passed(limiter: &Limiter, now: Time) -> Decision {
    let all = limiter.rules.plain.iter().flat_map(|plain| plain.rules.iter().zip(&plain.found.changes));
    let counted = all.zip(&limiter.rules.terms).zip(0..).map(|(((rule, change), terms), i)| {
        let bucket = BucketStatus::allowed(change.entry.bucket(), &rule.quota, now);
        ((RuleIndex::new(i), terms.key), bucket)
    });
    let buckets = counted.clone().map(|((rule, _), bucket)| (rule, bucket));
    let strictest = buckets.reduce(|known, other| if limiter.rules.is_stricter(other, known) { other } else { known });
    let status = if limiter.rules.sends_status { limiter.rules.status_of_allowed(counted) } else { None };
    Decision::Allow { strictest, status, shadow: Box::default(), hold_ns: 0, afterwards: Vec::new() }
}
