//! Evaluates hits on a copy of a slot, and takes their tokens there.

use alloc::vec::Vec;

use crate::algorithms::{Admission, Admitted, Bucket, BucketStatus, Cell, concurrency};
use crate::check::cells::{Cells, evaluate_cells};
use crate::check::decision::{CurrentRequest, Hit, HitDecision, HitResult};
use crate::check::rules::CompiledRules;
use crate::check::terms::RuleTerms;
use crate::counters::{CountedEvent, Counters};
use crate::limiter::Limiter;
use crate::sync::{SyncClient, WatchList, evaluate_consumed};
use crate::table::LoadedSlot;
use crate::table::slot::{Cold, Entry, LocalLimits, Placement, Slot, Tag, Watched};
use weir_protocol::messages::AdmitRatio;
use weir_protocol::quota::Quota;
use weir_protocol::sharing::OnSyncLoss;
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::algorithm::Algorithm;
use weir_rules::cost::Cost;

/// Wait added for a key that its admit ratio refuses, in nanoseconds: until its demand has left the measuring window
/// (0.5 s) and the next grant has arrived (0.25 s).
const THINNED_WAIT_NS: u64 = SECOND_NS * 3 / 4;
/// Maximum wait for a key that finds no room to be watched, in nanoseconds; by then there may be room.
const CROWDED_WAIT_NS_MAX: u64 = SECOND_NS;

pub(super) struct Evaluation<'a> {
    pub(super) rules: &'a CompiledRules,
    pub(super) sync: Option<&'a SyncClient>,
    pub(super) current: &'a CurrentRequest,
    watch: &'a mut WatchList,
    counters: &'a mut Counters,
    rooms: &'a mut Vec<Slot>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn of(limiter: &'a mut Limiter) -> Self {
        let Limiter { rules, sync, current, watch, counters, rooms, .. } = limiter;
        Self { rules, sync: sync.as_ref(), current, watch, counters, rooms }
    }

    /// Takes the tokens of the hits in `loaded` from its copy of the slot; true if all fit, so that it may be written.
    pub(super) fn evaluate_slot(&mut self, loaded: &mut LoadedSlot, hits: &mut [Hit], now: Time) -> bool {
        let (mut fits, rules) = (true, self.rules);
        for hit in hits.iter_mut().filter(|hit| hit.slot == loaded.index) {
            let Some(terms) = rules.terms_of(hit.rule) else { continue };
            // Most slots have no watched key and no ban.
            let is_plain = loaded.slot.is_plain();
            if !is_plain {
                // For a key that is already watched. The call below is for a key that just became watched.
                self.count_if_watched(hit, &loaded.slot, now);
            }
            let may_be_banned = terms.has_penalty || !is_plain && loaded.slot.has_bans();
            let until = if may_be_banned { loaded.slot.banned_until(hit.tag, now) } else { None };
            match until {
                Some(until) => {
                    let wait_ns = until.nanos_since(now);
                    hit.result = HitResult::refused(HitDecision::Banned { wait_ns }, hit.tag);
                }
                // The response states the cost, so a copy is evaluated and nothing is taken yet.
                None if terms.is_charged_after => {
                    let mut copy = self.rooms.pop().unwrap_or_default();
                    copy.copy_from(&loaded.slot);
                    self.evaluate(hit, terms, &mut copy, now);
                    self.rooms.push(copy);
                }
                None if terms.reserves || self.current.may_reserve && terms.may_reserve() => {
                    self.evaluate_reserving(hit, terms, &mut loaded.slot, now);
                }
                None => self.evaluate(hit, terms, &mut loaded.slot, now),
            }
            if !loaded.slot.is_plain() {
                self.count_if_watched(hit, &loaded.slot, now);
            }
            fits &= matches!(hit.result.decision, HitDecision::Fits(_));
        }
        fits
    }

    /// Counts the request on the watch list, once, if its key is watched.
    fn count_if_watched(&mut self, hit: &mut Hit, slot: &Slot, now: Time) {
        if !hit.watched
            && slot.is_watched(hit.tag)
            && let Some(Entry::Watched(watched)) = slot.get(hit.tag)
        {
            hit.watched = true;
            let (name, unconfirmed) = (self.rules.named(hit), Some(watched.unconfirmed()));
            let has_room = self.watch.touch(&name, hit.cost, unconfirmed, now);
            self.counters.add(CountedEvent::SyncDropped, u32::from(!has_room));
            // The dropped key, this one or the one it displaces, is already counted.
            if !has_room && now < watched.until && self.watch.push_out_for(hit.tag) {
                self.watch.touch(&name, hit.cost, unconfirmed, now);
            }
        }
    }

    /// Evaluates a hit on a bucket with reserved tokens. If the rule or the host demands it, reserves the tokens taken.
    fn evaluate_reserving(&mut self, hit: &mut Hit, terms: &RuleTerms, slot: &mut Slot, now: Time) {
        let cell = hold(slot, hit.tag, &terms.quota, now);
        self.evaluate(hit, terms, slot, now);
        let is_reserving = terms.reserves || self.current.is_reserving;
        if !is_reserving || !matches!(hit.result.decision, HitDecision::Fits(_)) {
            return;
        }
        let divisor = rate_divisor_of(&slot.find_or_new(hit.tag, now).entry, hit.cost, now);
        let (cell, receipt) = concurrency::reserve(cell, hit.tag.bits(), hit.cost.saturating_mul(divisor), now);
        // Without room for the cell, the tokens stay taken.
        let is_stored = Cells::one(hit.tag.beside(1), cell).store(slot, now).is_some();
        hit.result.taken = is_stored.then_some(Admitted { receipt, hold_ns: 0 });
    }

    pub(super) fn pops(&self) -> u32 {
        self.sync.map_or(1, |sync| sync.pops)
    }

    /// The rule's `on_sync_loss`, if the POP is offline for it.
    fn offline(&self, hit: &Hit, terms: &RuleTerms) -> Option<OnSyncLoss> {
        // A rule in shadow must not make a request wait.
        if terms.is_strict && hit.is_shadow {
            return Some(OnSyncLoss::Local);
        }
        let is_lost = if terms.is_strict {
            self.current.connectivity.is_lost_for_strict || self.current.in_vain.contains(&hit.tag)
        } else {
            self.current.connectivity.is_lost
        };
        is_lost.then_some(terms.on_sync_loss)
    }

    #[inline]
    pub(super) fn evaluate(&mut self, hit: &mut Hit, terms: &RuleTerms, slot: &mut Slot, now: Time) {
        if !matches!(terms.algorithm, Algorithm::TokenBucket(_)) {
            hit.result = evaluate_cells(hit, terms, &terms.algorithm, slot, now);
            return;
        }
        let quota = &terms.quota;
        let mut placement = slot.find_or_new(hit.tag, now);
        if !terms.changes.is_empty() {
            terms.changes.carry_over(&mut placement, slot, now);
        }
        let limits = self.sync.map(|sync| terms.local_limits(sync.cold_rate_divisor()));
        if let (Some(limits), Entry::Cold(cold), false) = (&limits, &mut placement.entry, placement.owed.is_full(now)) {
            cold.share = limits.share_of_debt(placement.owed, now);
        }
        let result = |hit: &mut Hit, decision| {
            hit.result = HitResult { is_shared: placement.is_shared, ..HitResult::refused(decision, placement.tag) };
        };
        // The tokens were consumed from the budget, so they count whatever has been received since.
        if terms.is_strict
            && let Some(taken) = self.current.taken_for(hit.tag)
        {
            hit.result = evaluate_consumed(hit, taken, terms, (&placement, slot), now);
            return;
        }
        if let Entry::Watched(watched) = &placement.entry
            && terms.is_calendar
            && let wait_ns @ 1.. = watched.barred_ns(now)
        {
            return result(hit, HitDecision::Short { wait_ns });
        }
        let offline = self.offline(hit, terms);
        if offline == Some(OnSyncLoss::Deny) {
            return result(hit, HitDecision::Denied);
        }
        if terms.is_strict && offline.is_none() {
            hit.result = self.spend(hit, placement, terms, slot, now);
            return;
        }
        let is_share = offline == Some(OnSyncLoss::Share);
        if terms.is_strict
            && let Some(result) = self.evaluate_offline(hit, &placement, terms, is_share, slot, now)
        {
            hit.result = result;
            return;
        }
        if let Entry::Watched(watched) = &mut placement.entry
            && !is_share
            && !terms.is_strict
        {
            watched.forgive_share(quota);
        }
        let has_costs = matches!(terms.cost, Cost::Header { .. });
        let dearest = if has_costs { self.watch.dearest(hit.tag).max(hit.cost) } else { hit.cost };
        let burst = most_of(&placement.entry, dearest, terms, now);
        let divisor = rate_divisor_of(&placement.entry, hit.cost, now);
        let bucket = placement.entry.bucket().held_to(quota, burst, now);
        let taken = match offline {
            Some(OnSyncLoss::Share) => bucket.take_share(quota, hit.cost, self.pops(), now),
            _ => bucket.take_slowly(quota, hit.cost, divisor, now),
        };
        // A strict rule's entry holds no admit ratio.
        let ratio = if terms.is_strict { None } else { self.thins(hit, &placement.entry, now) };
        if let Some(ratio) = ratio {
            // The wait covers the bucket's debt, too.
            let debt_ns = if let Admission::Short { wait_ns } = taken { wait_ns } else { 0 };
            return result(hit, HitDecision::Thinned { wait_ns: debt_ns.max(thinned_wait_ns(ratio)) });
        }
        let after = match taken {
            Admission::Taken(after) => after,
            // For a request of more than the burst, the wait lasts until the bucket is full.
            Admission::Short { .. } if hit.cost > quota.burst() => {
                return result(hit, HitDecision::Short { wait_ns: bucket.fill_ns(now) });
            }
            Admission::Short { wait_ns } => return result(hit, HitDecision::Short { wait_ns }),
        };
        let mut entry = after_taking(placement.entry, after, limits.as_ref(), hit.cost, now);
        // A charge of more than a burst to a fair share is owed only while the POP is offline.
        if let Entry::Watched(watched) = &mut entry
            && is_share
            && !terms.is_strict
            && u64::from(self.pops()) * u64::from(hit.cost) > u64::from(quota.burst())
        {
            watched.owe_share(hit.cost, self.pops());
        }
        let put = slot.put_back(&placement, &entry, now).ok_or(0);
        let evicted = match put.or_else(|_| self.crowd(&placement, &entry, limits.as_ref(), hit.cost, slot, now)) {
            Ok(evicted) => evicted,
            Err(wait_ns) => return result(hit, HitDecision::Short { wait_ns }),
        };
        let status = BucketStatus::allowed(after, quota, now);
        result(hit, HitDecision::Fits(status));
        hit.result.evicted = evicted;
    }

    /// Takes tokens for a key that should become `watched` but finds no room in its slot. Within its fair share it
    /// stays cold; beyond that, it replaces a watched key with less to report. Returns the number of evicted entries,
    /// or the wait in nanoseconds if there is no such key.
    fn crowd(
        &mut self,
        placement: &Placement,
        watched: &Entry,
        limits: Option<&LocalLimits>,
        cost: u32,
        slot: &mut Slot,
        now: Time,
    ) -> Result<u32, u64> {
        self.counters.add(CountedEvent::SyncDropped, 1);
        let Entry::Watched(watched) = watched else { return Ok(0) };
        let cold = match placement.entry {
            Entry::Cold(cold) => cold,
            // The key was watched before its rule changed.
            Entry::Watched(Watched { bucket, .. }) => Cold { bucket, ..Cold::NEW },
        };
        let Some(LocalLimits { quota, divisor, .. }) = limits else { return Ok(0) };
        match cold.share.take_unreported(quota, cost, *divisor, now) {
            Ok(share) => {
                let entry = Entry::Cold(Cold { bucket: watched.bucket, share });
                Ok(slot.put(placement.tag, &entry, now).unwrap_or(0))
            }
            Err(wait_ns) => slot.watch_instead(placement.tag, watched, now).ok_or(wait_ns.min(CROWDED_WAIT_NS_MAX)),
        }
    }

    /// The key's admit ratio, if it refuses this request.
    fn thins(&mut self, hit: &mut Hit, entry: &Entry, now: Time) -> Option<AdmitRatio> {
        let Entry::Watched(watched) = entry else { return None };
        let ratio = watched.ratio_at(now);
        // A request that is evaluated again after a conflict has already used its credit.
        if ratio == AdmitRatio::ONE || core::mem::replace(&mut hit.thinned, true) {
            return None;
        }
        (!self.watch.is_due(hit.tag, ratio)).then_some(ratio)
    }
}

/// The entry after `cost` tokens are taken. A cold key beyond its fair share becomes watched if there are `limits`.
#[inline]
pub(crate) fn after_taking(entry: Entry, after: Bucket, limits: Option<&LocalLimits>, cost: u32, now: Time) -> Entry {
    match entry {
        Entry::Watched(watched) => Entry::Watched(watched_after_taking(watched, after, cost, now)),
        Entry::Cold(cold) => match (cold_after_taking(cold, after, limits, cost, now), limits) {
            (None, Some(limits)) => {
                let begun = Watched::begin(&cold, limits, cost, now);
                Entry::Watched(Watched { bucket: after, ..begun })
            }
            (still_cold, _) => Entry::Cold(still_cold.unwrap_or(cold)),
        },
    }
}

#[inline]
pub(super) fn cold_after_taking(
    cold: Cold,
    after: Bucket,
    limits: Option<&LocalLimits>,
    cost: u32,
    now: Time,
) -> Option<Cold> {
    let share = match limits {
        Some(limits) => cold.share.take(&limits.quota, cost, limits.divisor, now)?,
        None => cold.share,
    };
    Some(Cold { bucket: after, share })
}

pub(super) fn watched_after_taking(mut watched: Watched, after: Bucket, cost: u32, now: Time) -> Watched {
    watched.bucket = after;
    watched.count_admitted(cost, now);
    watched
}

/// Maximum number of tokens that the entry's bucket may hold at `now`. Unless zero, it is at least the cost of the
/// `dearest` request, which divided bursts would otherwise never admit.
pub(super) fn most_of(entry: &Entry, dearest: u32, terms: &RuleTerms, now: Time) -> u32 {
    let held = entry.hold_at(now).filter(|_| !terms.is_strict);
    let burst = held.map_or(terms.local_burst, |(burst, _)| burst);
    if burst == 0 { 0 } else { burst.max(dearest) }
}

/// Rate divisor for a request of `cost` tokens. It is smaller for an expensive request, which then waits as long as a
/// request of one token, or as long as at the whole rate if that is longer.
pub(crate) fn rate_divisor_of(entry: &Entry, cost: u32, now: Time) -> u32 {
    entry.hold_at(now).map_or(1, |(_, divisor)| (divisor / cost.max(1)).max(1))
}

/// Wait in nanoseconds for a key with this admit ratio that is not in debt. If its client stops, the budget admits
/// everything again by then. A budget makes up a surplus or lack over one second, so a ratio near 0 needs all of that
/// second and one near 1 hardly any of it.
fn thinned_wait_ns(ratio: AdmitRatio) -> u64 {
    let missing = u64::from(AdmitRatio::ONE.bits() - ratio.bits());
    THINNED_WAIT_NS + SECOND_NS * missing / u64::from(AdmitRatio::ONE.bits())
}

/// Keeps the reserved part of the bucket from refilling, before any other change; returns the cell of that part.
pub(super) fn hold(slot: &mut Slot, tag: Tag, quota: &Quota, now: Time) -> Cell {
    let cell = Cells::at(slot, tag.beside(1), 1).first();
    let held = concurrency::reserved(cell, now);
    if held > 0 {
        let mut placement = slot.find_or_new(tag, now);
        let least = Bucket::full_at(now + quota.token_ns().saturating_mul(held));
        let bucket = placement.entry.bucket_mut();
        *bucket = least.max(*bucket);
        // Always fits: a slot has room for any cold bucket, and a watched entry exists already.
        let _ = slot.put_back(&placement, &placement.entry, now);
    }
    cell
}
