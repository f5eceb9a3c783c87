//! Consuming a strict rule's tokens directly from the budget, in hosts next to the store.
//!
//! A lease suits a key in frequent demand. For any other key it costs two exchanges and an entry that is rarely used
//! again. Here the budget debits and spends the tokens in one step instead, and nothing is kept or reported.
//!
//! A request consumes only if nothing else is missing: its only strict rule holds no token for it, and all other rules
//! have enough. Consumed tokens cannot be given back: they are lost to the client if another rule refuses after all.

use alloc::vec::Vec;

use crate::RuleIndex;
use crate::algorithms::{Bucket, BucketStatus};
use crate::check::{AcquireState, Decision, Hit, HitDecision, HitResult, RuleTerms, Scratch};
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::sync::report::{AHEAD_MIN, INTERVAL_NS, unreported_of};
use crate::table::Slots;
use crate::table::slot::{Cold, Entry, Placement, Slot, Tag, Watched};
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::OnSyncLoss;
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::key::KeyValue;
use weir_rules::request::Request;

/// A key consumes while its budget has less than 1 / this left, because others need the rest.
const LOW_PART: u32 = 4;
/// Wait of a client if the budget stated none, in nanoseconds.
const UNKNOWN_WAIT_NS: u64 = SECOND_NS;

/// The tokens to consume for the current request, which must wait; `None` if acquiring is better.
pub(crate) fn take(limiter: &mut Limiter, now: Time) -> Option<Consume> {
    let takes = limiter
        .takes
        .as_mut()
        .filter(|_| limiter.current.connectivity.acquired == AcquireState::NotYet && !limiter.current.only_asks)?;
    let scratch = limiter.scratch.take()?;
    let lacking = |hit: &&Hit| !matches!(hit.result.decision, HitDecision::Fits(_));
    let mut lacks = scratch.hits.iter().filter(lacking);
    let take = match (lacks.next(), lacks.next()) {
        (Some(hit), None) if hit.result.decision == HitDecision::Unpaid => {
            let is_often = takes.recent(hit.tag).is_some_and(|recent| recent.is_often(now));
            let is_leased = is_often || has_some(&scratch, hit, now);
            let value = *limiter.rules.keys.value(hit.key);
            let take = Consume { rule: hit.rule, value, tokens: hit.cost, tag: hit.tag };
            let is_strict = |rule| limiter.rules.get(rule).is_some_and(|rule| rule.sharing.strict);
            let is_alone = !scratch.hits.iter().any(|other| other.tag != hit.tag && is_strict(other.rule));
            Some(take).filter(|take| !is_leased && is_alone && may_consume(limiter, take.rule))
        }
        _ => None,
    };
    limiter.scratch = Some(scratch);
    limiter.counters.add(CountedEvent::Paused, u32::from(take.is_some()));
    take
}

/// True if the rule's tokens are spent at once, not held until the request ends, and are not turns.
fn may_consume(limiter: &Limiter, rule: RuleIndex) -> bool {
    let is_spent = |refill_policy| !matches!(refill_policy, RefillPolicy::InFlight(_) | RefillPolicy::Queue);
    !limiter.reserves(rule) && limiter.rules.get(rule).is_some_and(|rule| is_spent(rule.sharing.refill_policy))
}

/// Tokens that a token bucket's key acquires beyond its need: few, because they are outstanding for a while.
pub(crate) fn chunk_beside(limiter: &Limiter, quota: Quota) -> u32 {
    let refilled = u32::try_from(INTERVAL_NS / quota.token_ns().max(1)).unwrap_or(u32::MAX);
    if limiter.takes.is_some() { unreported_of(RefillPolicy::Continuous, quota).min(refilled) } else { 0 }
}

/// Decides a request again after the budget's reply to `take`, which is `None` if the budget is unreachable.
pub(crate) fn decide_taken(
    limiter: &mut Limiter,
    take: &Consume,
    taken: Option<ConsumeReply>,
    request: &mut dyn Request,
    slots: &mut dyn Slots,
    now: Time,
) -> Decision {
    let Some(known) = limiter.takes.as_mut() else {
        return limiter.decide_again(false, request, slots, now);
    };
    let burst = limiter.rules.set.rules().get(usize::from(take.rule)).map_or(0, |rule| rule.quota.burst());
    if let (Some(taken), Some(recent)) = (taken, known.recent(take.tag)) {
        recent.is_low = taken.left < burst / LOW_PART;
    }
    if taken.is_some_and(|taken| taken.is_taken) {
        // Another request may have been refused meanwhile.
        limiter.local_cache.forget(take.tag);
    }
    limiter.current.consumed = taken.map(|taken| (take.tag, taken));
    let decision = limiter.decide_again(taken.is_some(), request, slots, now);
    limiter.current.consumed = None;
    decision
}

pub(crate) fn evaluate_consumed(
    hit: &Hit,
    taken: ConsumeReply,
    terms: &RuleTerms,
    (placement, slot): (&Placement, &mut Slot),
    now: Time,
) -> HitResult {
    let quota = &terms.quota;
    let mut evicted = 0;
    let decision = if taken.is_taken {
        evicted = charge_bucket(hit.cost, terms, placement, slot, now);
        let bucket = Bucket::FULL.held_to(quota, taken.left, now);
        HitDecision::Fits(BucketStatus::allowed(bucket, quota, now))
    } else {
        let wait_ns = match taken.wait_ms.saturating_mul(1_000_000) {
            0 => UNKNOWN_WAIT_NS,
            // For a request of more than the burst, the wait lasts until the bucket is full.
            _ if hit.cost > quota.burst() && !terms.is_calendar => {
                quota.token_ns().saturating_mul(quota.burst().saturating_sub(taken.left).into())
            }
            known_ns => known_ns,
        };
        HitDecision::Short { wait_ns }
    };
    HitResult { evicted, ..HitResult::refused(decision, hit.tag) }
}

/// Also charges the bucket that `on_sync_loss` uses. Returns the number of entries that were evicted for it.
fn charge_bucket(cost: u32, terms: &RuleTerms, placement: &Placement, slot: &mut Slot, now: Time) -> u32 {
    if terms.on_sync_loss == OnSyncLoss::Deny || terms.is_calendar {
        return 0;
    }
    let bucket = placement.entry.bucket().charged(&terms.quota, cost, now);
    let entry = match placement.entry {
        Entry::Watched(watched) => Entry::Watched(Watched { bucket, ..watched }),
        Entry::Cold(cold) => Entry::Cold(Cold { bucket, ..cold }),
    };
    // Always fits: a slot has room for any cold bucket, and a watched entry exists already.
    slot.put_back(placement, &entry, now).unwrap_or(0)
}

/// True if a lease left some tokens, but too few. The request then acquires the rest.
fn has_some(scratch: &Scratch, hit: &Hit, now: Time) -> bool {
    let loaded = scratch.loaded.iter().find(|loaded| loaded.index == hit.slot);
    let entry = loaded.map(|loaded| loaded.slot.find_or_new(hit.tag, now).entry);
    matches!(entry, Some(Entry::Watched(watched)) if watched.on_hand(now) > 0)
}

/// Number of keys for which recent use is remembered.
const KEYS: usize = 4_096;
/// Time after a lease in which the key gets another one, in nanoseconds.
const LEASED_NS: u64 = SECOND_NS;

/// Tokens that a request consumes from the budget, all or none.
#[derive(Clone, Debug)]
pub struct Consume {
    /// Index of the rule in the rules in force.
    pub rule: RuleIndex,
    pub value: KeyValue,
    pub tokens: u32,
    pub(crate) tag: Tag,
}

/// A budget's reply to a [`Consume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumeReply {
    /// True if all tokens were debited.
    pub is_taken: bool,
    pub left: u32,
    /// Milliseconds until the missing tokens may be available; 0 if unknown.
    pub wait_ms: u64,
}

pub(crate) struct ConsumeState {
    recent: Vec<Recent>,
}

/// A key that consumed recently. Two keys with the same place displace each other, and count as rarely used.
#[derive(Clone, Copy, Default)]
pub(super) struct Recent {
    tag: u64,
    /// Start of the current interval, and the number of requests in it.
    since: Time,
    count: u64,
    leased_at: Option<Time>,
    pub(super) is_low: bool,
}

impl Default for ConsumeState {
    fn default() -> Self {
        Self { recent: alloc::vec![Recent::default(); KEYS] }
    }
}

impl ConsumeState {
    pub(super) fn recent(&mut self, tag: Tag) -> Option<&mut Recent> {
        let place = usize::try_from(tag.bits() % KEYS as u64).unwrap_or_default();
        let recent = self.recent.get_mut(place)?;
        if recent.tag != tag.bits() {
            *recent = Recent { tag: tag.bits(), ..Recent::default() };
        }
        Some(recent)
    }
}

impl Recent {
    /// Counts one more request; true if the key is in demand often enough to be worth a lease.
    pub(super) fn is_often(&mut self, now: Time) -> bool {
        if self.count == 0 || now.nanos_since(self.since) >= INTERVAL_NS {
            (self.since, self.count) = (now, 0);
        }
        self.count += 1;
        let had_lease = self.leased_at.is_some_and(|at| now.nanos_since(at) < LEASED_NS);
        let is_often = !self.is_low && (self.count > AHEAD_MIN || had_lease);
        if is_often {
            self.leased_at = Some(now);
        }
        is_often
    }
}
