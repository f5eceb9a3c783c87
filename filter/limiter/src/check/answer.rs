//! The decision for evaluated hits, with penalties and bans; cached refusals; and the quota status for the client,
//! which is that of the strictest rule among those that publish theirs.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::algorithms::{Admission, BucketStatus, Cell, fixed_window};
use crate::check::cells::Cells;
use crate::check::decision::{Beside, Hit, HitDecision, LimitReason, PendingDecision, Policy, QuotaStatus};
use crate::check::rules::CompiledRules;
use crate::check::terms::KeyId;
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::table::slot::{Cold, Entry, Tag, Watched};
use crate::table::{LoadedSlot, Slots, Updated};
use crate::{FIBONACCI, RuleIndex};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::Rule;
use weir_rules::algorithm::Algorithm;
use weir_rules::key::KeyValue;
use weir_rules::limit::Penalty;

/// Wait for clients refused because the POP is offline, in nanoseconds.
const DENIED_WAIT_NS: u64 = SECOND_NS;

impl Limiter {
    /// Allows the request of `hits`. `written` are the slots that were committed for it.
    pub(crate) fn allow(&mut self, hits: &[Hit], written: &[LoadedSlot], now: Time) -> PendingDecision {
        let mut strictest: Option<(RuleIndex, BucketStatus)> = None;
        let mut hold_ns = 0;
        for hit in hits {
            self.counters.count(hit.rule, |counts| &mut counts.allowed);
            self.counters.add(CountedEvent::Evicted, hit.result.evicted);
            self.counters.add(CountedEvent::Overflowed, u32::from(hit.result.is_shared));
            self.record_end_action(hit, written, now);
            hold_ns = hit.result.taken.map_or(0, |taken| taken.hold_ns).max(hold_ns);
            let HitDecision::Fits(bucket) = hit.result.decision else { continue };
            if strictest.is_none_or(|(other, s)| self.rules.is_stricter((hit.rule, bucket), (other, s))) {
                strictest = Some((hit.rule, bucket));
            }
        }
        PendingDecision::Allow { strictest, hold_ns }
    }

    /// Refuses the request by the rule with the longest wait, and caches refusals of keys without tokens.
    pub(crate) fn refuse(&mut self, hits: &[Hit], slots: &mut dyn Slots, now: Time) -> PendingDecision {
        let mut longest: Option<(LimitReason, RuleIndex, u64)> = None;
        let mut consider = |reason, rule, wait_ns| {
            if longest.is_none_or(|(.., known_ns)| known_ns < wait_ns) {
                longest = Some((reason, rule, wait_ns));
            }
        };
        let mut is_unpaid = false;
        for hit in hits {
            let wait_ns = match hit.result.decision {
                HitDecision::Fits(_) => continue,
                HitDecision::Unpaid => {
                    is_unpaid = true;
                    continue;
                }
                HitDecision::Denied => return self.refused(LimitReason::Deny, hit.rule, DENIED_WAIT_NS),
                HitDecision::Banned { wait_ns } => {
                    self.local_cache.remember(hit.tag, Denial { cost: 1, is_ban: true, until: now + wait_ns }, now);
                    consider(LimitReason::Ban, hit.rule, wait_ns);
                    continue;
                }
                HitDecision::Thinned { wait_ns } => wait_ns,
                HitDecision::Short { wait_ns } => {
                    if self.may_remember(hit.rule) {
                        let denial = Denial { cost: hit.cost, is_ban: false, until: now + wait_ns };
                        self.local_cache.remember(hit.tag, denial, now);
                    }
                    self.counters.add(CountedEvent::Overflowed, u32::from(hit.result.is_shared));
                    wait_ns
                }
            };
            if !hit.watched && hit.result.tag == hit.tag {
                self.watch_refused(hit, slots, now);
            }
            let is_counted = !(self.current.only_asks || self.current.is_booking);
            if let Some(penalty) = self.rules.get(hit.rule).and_then(|rule| rule.penalty).filter(|_| is_counted) {
                self.strike(hit, &penalty, slots, now);
            }
            consider(LimitReason::Limit, hit.rule, wait_ns);
        }
        match longest {
            Some((reason, rule, wait_ns)) => self.refused(reason, rule, wait_ns),
            None if is_unpaid => PendingDecision::Wait,
            None => PendingDecision::UNCOUNTED,
        }
    }

    /// True if the local cache may repeat this rule's refusal until the wait is over: no request in flight and no
    /// reserved token can return, and no penalty counts refusals.
    fn may_remember(&self, rule: RuleIndex) -> bool {
        let rule = self.rules.get(rule);
        rule.is_some_and(|rule| {
            let is_reserved = (rule.reserves || self.current.may_reserve) && !rule.sharing.strict;
            let comes_back = is_reserved || matches!(rule.algorithm, Algorithm::Concurrency(_));
            !comes_back && rule.penalty.is_none()
        })
    }

    /// Counts and returns a refusal by `rule`.
    pub(crate) fn refused(&mut self, reason: LimitReason, rule: RuleIndex, wait_ns: u64) -> PendingDecision {
        let is_denied = reason == LimitReason::Deny;
        self.counters.count(rule, |counts| if is_denied { &mut counts.denied } else { &mut counts.limited });
        PendingDecision::Refuse(reason, rule, BucketStatus::refused(wait_ns))
    }

    /// Makes a refused key watched: the refusal means that it has used up its fair share.
    pub(crate) fn watch_refused(&mut self, hit: &Hit, slots: &mut dyn Slots, now: Time) {
        // The fleet shares only token buckets and quotas.
        let is_reported = self.sync.is_some() && self.rules.get(hit.rule).is_some_and(Rule::is_shared);
        let Some(limits) = self.local_limits(hit.rule).filter(|_| is_reported) else { return };
        let mut loaded = self.load(slots, hit.slot);
        let mut placement = loaded.slot.find_or_new(hit.tag, now);
        let (has_place, was_cold) = (placement.has_place(), matches!(placement.entry, Entry::Cold(_)));
        if let Some(terms) = self.rules.terms_of(hit.rule) {
            terms.changes.carry_over(&mut placement, &loaded.slot, now);
        }
        let watched = match placement.entry {
            Entry::Cold(cold) if has_place => Entry::Watched(Watched::begin(&cold, &limits, 0, now)),
            // The key continues under the grant that it had before its rule changed.
            Entry::Watched(_) if was_cold => placement.entry,
            _ => return,
        };
        let is_written = loaded.slot.put(hit.tag, &watched, now).is_some() && loaded.write(slots).is_ok();
        self.rooms.push(loaded.slot);
        if is_written {
            let has_room = self.watch.touch(&self.rules.named(hit), hit.cost, None, now);
            self.counters.add(CountedEvent::SyncDropped, u32::from(!has_room));
        }
    }
}

// The local cache.

/// Number of refusals that the local cache has room for.
const REFUSALS: usize = 4_096;
/// Maximum validity of a cached refusal, in nanoseconds. A reset by another worker may go unnoticed for this long.
const TRUSTED_NS_MAX: u64 = SECOND_NS / 2;

/// A refusal of a key, for requests of this cost or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    /// Cost of the refused request. A cheaper request may fit sooner.
    pub(crate) cost: u32,
    pub(crate) is_ban: bool,
    /// Time at which `cost` tokens are available.
    pub(crate) until: Time,
}

impl Denial {
    pub(crate) fn reason(&self) -> LimitReason {
        if self.is_ban { LimitReason::Ban } else { LimitReason::Limit }
    }
}

#[derive(Clone, Copy)]
struct Remembered {
    tag: u64,
    trusted_until: Time,
    denial: Denial,
}

/// Refusals of keys that cannot have a token yet, so that a flood from one key needs a table look-up only when a token
/// may have come. A fixed array of pairs: a third key in a pair replaces the refusal that expires first.
pub(crate) struct LocalCache {
    entries: Vec<Remembered>,
    /// The latest `trusted_until` of all refusals.
    trusted_until: Time,
    /// Keys whose refusals were dropped, if these are recorded; at most [`REFUSALS`].
    forgotten: Option<Vec<Tag>>,
}

impl LocalCache {
    pub(crate) fn new() -> Self {
        let denial = Denial { cost: 0, is_ban: false, until: Time::ZERO };
        let empty = Remembered { tag: 0, trusted_until: Time::ZERO, denial };
        Self { entries: alloc::vec![empty; REFUSALS], trusted_until: Time::ZERO, forgotten: None }
    }

    /// True if any refusal may be valid at `now`.
    pub(crate) fn is_worth_asking(&self, now: Time) -> bool {
        now < self.trusted_until
    }

    /// The refusal valid at `now` for a request of `tag` that costs `cost`.
    pub(crate) fn get(&self, tag: Tag, cost: u32, now: Time) -> Option<Denial> {
        let same = self.pair(tag).iter().filter(|entry| entry.tag == tag.bits() && now < entry.trusted_until);
        same.map(|entry| entry.denial).find(|denial| cost >= denial.cost)
    }

    pub(crate) fn forget(&mut self, tag: Tag) {
        for entry in self.pair_mut(tag).iter_mut().filter(|entry| entry.tag == tag.bits()) {
            entry.trusted_until = Time::ZERO;
        }
        if let Some(forgotten) = self.forgotten.as_mut().filter(|forgotten| forgotten.len() < REFUSALS) {
            forgotten.push(tag);
        }
    }

    /// Starts recording the keys whose refusals are dropped.
    pub(crate) fn record_forgotten(&mut self) {
        self.forgotten = Some(Vec::new());
    }

    /// Takes the recorded keys. Beyond [`REFUSALS`], keys are missing; their refusals expire within half a second.
    pub(crate) fn take_forgotten(&mut self) -> Vec<Tag> {
        self.forgotten.as_mut().map(core::mem::take).unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.iter_mut().for_each(|entry| (entry.tag, entry.trusted_until) = (0, Time::ZERO));
    }

    pub(crate) fn remember(&mut self, tag: Tag, denial: Denial, now: Time) {
        let trusted_until = denial.until.min(now + TRUSTED_NS_MAX);
        self.trusted_until = self.trusted_until.max(trusted_until);
        let place = self.pair_mut(tag).iter_mut().min_by_key(|entry| (entry.tag != tag.bits(), entry.trusted_until));
        if let Some(place) = place {
            *place = Remembered { tag: tag.bits(), trusted_until, denial };
        }
    }

    fn pair(&self, tag: Tag) -> &[Remembered] {
        let at = place(tag);
        self.entries.get(at..at + 2).unwrap_or_default()
    }

    fn pair_mut(&mut self, tag: Tag) -> &mut [Remembered] {
        let at = place(tag);
        self.entries.get_mut(at..at + 2).unwrap_or_default()
    }
}

/// Index of the pair for `tag`. Tags are hashes, so the low bits suffice.
fn place(tag: Tag) -> usize {
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are as good as any")]
    let low = tag.bits() as usize;
    (low % REFUSALS) & !1
}

// Penalties: counting a key's limited requests, and banning it for a time.
//
// Both are cells beside the key's own entry, in the same slot: all workers share the count, and no eviction ends a ban.
// Reports name a key that is banned here until one of them is answered; weir-sync sends the ban to all POPs.

/// Number of the cell, beside a key's own, that counts limited requests. Lower numbers are a log's cells.
const STRIKES: u8 = 8;

impl Limiter {
    /// Counts a limited request for a penalty, and bans the key once its strikes are used up.
    pub(crate) fn strike(&mut self, hit: &Hit, penalty: &Penalty, slots: &mut dyn Slots, now: Time) {
        let until = now + penalty.deny_for_ns();
        let changed = self.change_slot(hit.slot, slots, |slot| {
            let tag = hit.tag.beside(STRIKES);
            let known = Cells::at(slot, tag, 1).first();
            let Admission::Taken(after) = fixed_window::take(&penalty.strikes, known, hit.tag.bits(), 1, now) else {
                return None;
            };
            let is_over = fixed_window::status(&penalty.strikes, after, now).remaining == 0;
            // After the ban the count restarts at zero.
            let after = if is_over { Cell::NEW } else { after };
            slot.put(tag, &Entry::Cold(Cold::of_cell(after)), now)?;
            if is_over {
                slot.ban(hit.tag, until, now)?;
            }
            Some(is_over)
        });
        if matches!(changed, Updated::Written(true)) {
            self.counters.add(CountedEvent::Banned, 1);
            if let Some(sync) = &mut self.sync {
                sync.record_banned(hit.rule, *self.rules.keys.value(hit.key), until);
            }
        }
    }
}

// The quota status.

pub(super) type CountedKey = (RuleIndex, KeyId);

impl CompiledRules {
    /// True if the first rule has a smaller fraction of its burst left than the second.
    pub(crate) fn is_stricter(&self, first: (RuleIndex, BucketStatus), second: (RuleIndex, BucketStatus)) -> bool {
        let burst = |rule| self.get(rule).map_or(1, |rule| u64::from(rule.quota.burst()));
        u64::from(first.1.remaining) * burst(second.0) < u64::from(second.1.remaining) * burst(first.0)
    }

    /// The quota status for an allowed request; `None` if none of these rules publishes its status.
    pub(crate) fn status_of_allowed(
        &self,
        counted: impl Iterator<Item = (CountedKey, BucketStatus)> + Clone,
    ) -> Option<Box<QuotaStatus>> {
        let is_sent = |(rule, _): &CountedKey| self.terms_of(*rule).is_some_and(|terms| terms.sends_status);
        let sent = counted.filter(|(counted, _)| is_sent(counted));
        let strictest = sent.clone().reduce(|known, other| {
            let is_stricter = self.is_stricter((other.0.0, other.1), (known.0.0, known.1));
            if is_stricter { other } else { known }
        });
        strictest.map(|((rule, _), bucket)| Box::new(self.status(rule, bucket, sent.map(|(counted, _)| counted))))
    }

    /// The status of `rule`, with the policies of the other rules that counted the request.
    #[inline]
    pub(crate) fn status(
        &self,
        rule: RuleIndex,
        bucket: BucketStatus,
        counted: impl Iterator<Item = CountedKey> + Clone,
    ) -> QuotaStatus {
        let beside = if self.sends_more { self.beside(rule, counted) } else { None };
        QuotaStatus { rule, bucket, beside }
    }

    #[inline(never)]
    fn beside(&self, rule: RuleIndex, counted: impl Iterator<Item = CountedKey> + Clone) -> Option<Box<Beside>> {
        let is_sent =
            |(other, _): &CountedKey| *other != rule && self.terms_of(*other).is_some_and(|terms| terms.sends_policy);
        let own = counted.clone().find(|(counted, _)| *counted == rule);
        let partition = own.map_or(Vec::new(), |own| self.partition(own));
        let policy = |other: CountedKey| Policy { rule: other.0, partition: self.partition(other) };
        let others: Vec<_> = counted.filter(is_sent).map(policy).collect();
        let is_any = !(partition.is_empty() && others.is_empty());
        is_any.then(|| Box::new(Beside { partition, others }))
    }

    fn partition(&self, (rule, key): CountedKey) -> Vec<u8> {
        let is_clear = self.terms_of(rule).is_some_and(|terms| terms.is_clear);
        let value = || KeyValue::clear_part(self.keys.value(key).as_bytes()).map(|(_, value)| value.to_vec());
        if is_clear { value().unwrap_or_default() } else { Vec::new() }
    }
}

pub(crate) fn allowed(hits: &[Hit]) -> impl Iterator<Item = (CountedKey, BucketStatus)> + Clone {
    hits.iter().filter_map(|hit| match hit.result.decision {
        HitDecision::Fits(bucket) => Some(((hit.rule, hit.key), bucket)),
        _ => None,
    })
}

impl CompiledRules {
    /// Jitter for a refusal of the key `tag` by `rule`: 0 to the rule's `retry_after_jitter_s`, in seconds. It differs
    /// between refusals, so that clients with the same key are spread, too: multiples of [`FIBONACCI`] are far apart.
    #[inline]
    pub(crate) fn jitter_s(&mut self, rule: RuleIndex, tag: impl FnOnce() -> u64) -> u32 {
        let most_s = self.terms_of(rule).map_or(0, |terms| terms.retry_after_jitter_s);
        if most_s == 0 {
            return 0;
        }
        self.dealt = self.dealt.wrapping_add(FIBONACCI);
        // The tag makes keys and workers differ, since all workers start at the same number.
        part_of(tag().wrapping_add(self.dealt), most_s)
    }
}

/// Maps all numbers evenly to 0 to `most_s`.
fn part_of(number: u64, most_s: u32) -> u32 {
    let spread = (u128::from(number) * (u128::from(most_s) + 1)) >> 64;
    // Never fails: `spread` is at most `most_s`.
    u32::try_from(spread).unwrap_or(most_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        /// Even if there are few clients.
        #[test]
        fn the_clients_of_a_key_are_dealt_out_evenly(tag: u64, begin: u64, most_s in 1..60_u32, each in 1..20_u32) {
            let mut counts = vec![0_u32; most_s as usize + 1];
            for n in 0..u64::from(each * (most_s + 1)) {
                let dealt = begin.wrapping_add(n).wrapping_mul(FIBONACCI);
                counts[part_of(tag.wrapping_add(dealt), most_s) as usize] += 1;
            }
            prop_assert!(counts.iter().all(|n| n.abs_diff(each) <= 3), "{each}: {counts:?}");
        }
    }

    const T0: Time = Time::from_nanos(SECOND_NS);

    fn denial(ns: u64) -> Denial {
        Denial { cost: 1, is_ban: false, until: T0 + ns }
    }

    // I3
    #[test]
    fn a_refusal_is_valid_for_half_a_second_until_a_token_comes_or_it_is_forgotten() {
        let (mut cache, tag, other) = (LocalCache::new(), Tag::of_key(9, 0), Tag::of_key(8, 0));
        assert!(!cache.is_worth_asking(T0));
        for (until_ns, cost, after_ns, is_refused) in [
            (100, 5, 99, true),
            (100, 6, 99, true),
            (100, 4, 99, false),
            (100, 5, 100, false),
            (3_600 * SECOND_NS, 5, SECOND_NS / 2 - 1, true),
            (3_600 * SECOND_NS, 5, SECOND_NS / 2, false),
        ] {
            cache.remember(tag, Denial { cost: 5, ..denial(until_ns) }, T0);
            assert_eq!(cache.get(tag, cost, T0 + after_ns).is_some(), is_refused, "{cost} after {after_ns} ns");
            assert!(!is_refused || cache.is_worth_asking(T0 + after_ns));
        }
        cache.remember(other, denial(100), T0);
        cache.forget(tag);
        assert_eq!((cache.get(tag, 5, T0), cache.get(other, 1, T0)), (None, Some(denial(100))));
        cache.clear();
        assert_eq!(cache.get(other, 1, T0), None);
    }

    #[test]
    fn keys_that_meet_displace_and_never_answer_for_each_other() {
        let mut cache = LocalCache::new();
        let [a, b, c] = [5, 5 + REFUSALS as u64, 4 + 2 * REFUSALS as u64].map(|tag| Tag::of_key(tag, 0));
        cache.remember(a, denial(100), T0);
        assert_eq!(cache.get(b, 1, T0), None);
        cache.remember(b, denial(200), T0);
        assert!(cache.get(a, 1, T0).is_some() && cache.get(b, 1, T0).is_some(), "two have room");
        cache.remember(c, denial(100), T0);
        assert_eq!([a, b, c].map(|tag| cache.get(tag, 1, T0).is_some()), [false, true, true]);
    }
}
