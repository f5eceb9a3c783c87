//! The end of a request: releases and charges. Also the booking of past requests.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use crate::algorithms::{Bucket, Cell, Receipt, concurrency};
use crate::check::cells::{Cells, algorithm_at};
use crate::check::decision::{EndAction, EndActionKind, Hit, ReservedTokens, Scratch};
use crate::check::evaluate::{after_taking, hold, rate_divisor_of};
use crate::check::rules::MatchResult;
use crate::check::strict::{cell_of, free};
use crate::check::terms::RuleTerms;
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::sync::Consume;
use crate::table::slot::{Cold, Entry, LocalLimits, Slot, Tag, Watched};
use crate::table::{EntryPlace, LoadedSlot, NamedKey, Slots, Updated, change_slot};
use crate::{RuleIndex, algorithms};
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::time::Time;
use weir_rules::Rule;
use weir_rules::algorithm::Algorithm;
use weir_rules::request::Request;

impl Limiter {
    /// Records the action for the end of the request of `hit`, whose slot is among `written`.
    pub(crate) fn record_end_action(&mut self, hit: &Hit, written: &[LoadedSlot], now: Time) {
        let Some(rule) = self.rules.get(hit.rule) else { return };
        let algorithm = rule.in_cells().unwrap_or(rule.algorithm);
        let what = match (algorithm, hit.result.taken, &rule.after) {
            (Algorithm::Concurrency(_), Some(taken), _) => {
                EndActionKind::Release { receipt: taken.receipt, cost: hit.cost }
            }
            (Algorithm::LeakyBucket(_), ..) => return,
            (.., after) if after.is_some() || self.current.is_reserving => {
                let acquired = if self.reserves(hit.rule) { self.current.acquired_for(hit.tag) } else { None };
                let reserved = if acquired.is_some() {
                    ReservedTokens { tokens: hit.cost, epoch: acquired, ..ReservedTokens::NOTHING }
                } else if rule.reserves || self.current.is_reserving && after.is_none() {
                    ReservedTokens::by(hit, written, now)
                } else {
                    ReservedTokens::NOTHING
                };
                EndActionKind::Charge { after: after.clone(), reserved }
            }
            _ => return,
        };
        let Some(terms) = self.rules.terms_of(hit.rule) else { return };
        self.current.afterwards.push(EndAction {
            what,
            algorithm,
            place: EntryPlace { tag: hit.result.tag, slot: hit.slot },
            value: *self.rules.keys.value(hit.key),
            salt: terms.salt,
        });
    }

    /// Releases the place in flight of `done`, if it is a release.
    #[allow(clippy::needless_pass_by_value, reason = "it is done once")]
    pub fn release(&mut self, done: EndAction, slots: &mut dyn Slots, now: Time) {
        let EndActionKind::Release { receipt, cost } = done.what else { return };
        let (place, algorithm) = (done.place, &done.algorithm);
        // A token bucket's key has such a cell only if the fleet counts its requests in flight.
        let is_shared = !place.tag.is_cell();
        let released = self.change_slot(place.slot, slots, |slot| {
            let mut cells = Cells::at(slot, if is_shared { cell_of(place.tag) } else { place.tag }, 1);
            let free_before = algorithms::status(algorithm, cells.all(), now).remaining;
            algorithms::give_back(algorithm, cells.all_mut(), receipt, cost, now);
            if is_shared {
                let free_now = algorithms::status(algorithm, cells.all(), now).remaining;
                free(slot, place.tag, free_now.saturating_sub(free_before), now);
            }
            cells.store(slot, now)
        });
        if matches!(released, Updated::Failed) {
            // The place is freed when it expires.
            self.counters.add(CountedEvent::Unreleased, 1);
        }
        // A report may now return the place to the budget.
        if is_shared
            && self.sync.is_some()
            && let Some(rule) = self.rules.with_salt(done.salt)
        {
            self.local_cache.forget(place.tag);
            self.learn_of(&NamedKey { place, rule, value: done.value }, now);
        }
    }

    pub(crate) fn settle_own(&mut self, epoch: u32, cost: u32) {
        let is_settled = self.sync.as_mut().is_some_and(|sync| sync.settle_own(epoch, cost));
        self.counters.add(CountedEvent::Uncharged, u32::from(!is_settled));
    }

    /// Charges `cost` tokens to the bucket of `done`, if it is a charge, even into debt. Reserved tokens count towards
    /// the cost; reserved tokens beyond it are given back.
    #[allow(clippy::needless_pass_by_value, reason = "it is done once")]
    pub fn charge(&mut self, done: EndAction, cost: u32, slots: &mut dyn Slots, now: Time) {
        let EndActionKind::Charge { reserved, .. } = done.what else { return };
        if let Some(epoch) = reserved.epoch {
            return self.settle_own(epoch, cost);
        }
        let is_bucket = matches!(done.algorithm, Algorithm::TokenBucket(_));
        if cost == reserved.tokens && (reserved.receipt.is_none() || !is_bucket) {
            return;
        }
        let rule = self.rules.with_salt(done.salt);
        let limits = rule.filter(|_| self.sync.is_some()).and_then(|rule| self.local_limits(rule));
        let Self { rules, rooms, counters, .. } = self;
        let terms = rule.and_then(|rule| rules.terms_of(rule));
        let charged = change_slot(rooms, counters, (done.place.slot, slots), |slot| match &done.algorithm {
            Algorithm::TokenBucket(quota) => {
                settle_bucket(&done, reserved, (terms, limits.as_ref()), cost, quota, slot, now)
            }
            _ => settle_cells(&done, reserved, cost, slot, now).map(|_| false),
        });
        match charged {
            // A report may have been made before this charge, so the key must be reported again.
            Updated::Written(is_watched) => {
                if let Some(rule) = rule.filter(|_| is_watched) {
                    self.learn_of(&NamedKey { place: done.place, rule, value: done.value }, now);
                }
            }
            Updated::Gone | Updated::Failed => self.counters.add(CountedEvent::Uncharged, 1),
        }
    }
}

/// [`settle_cells`] for a token bucket. True if the key is watched with more to report; `None` without room.
fn settle_bucket(
    done: &EndAction,
    reserved: ReservedTokens,
    limits: (Option<&RuleTerms>, Option<&LocalLimits>),
    cost: u32,
    quota: &Quota,
    slot: &mut Slot,
    now: Time,
) -> Option<bool> {
    let tag = done.place.tag;
    let cell = hold(slot, tag, quota, now);
    let ended =
        reserved.receipt.map_or(0, |receipt| end(cell, slot, tag, (receipt, reserved.tokens, reserved.divisor), now));
    match cost.checked_sub(reserved.tokens) {
        Some(0) => Some(false),
        Some(more) => charge_bucket(done, limits, more, slot, now),
        None => {
            let rest = ended.min(reserved.tokens.saturating_sub(cost));
            let mut placement = slot.find_or_new(tag, now);
            give_back_bounded(&mut placement.entry, quota, rest, reserved.divisor);
            slot.put_back(&placement, &placement.entry, now).map(|_| false)
        }
    }
}

/// Charges a token bucket. True if the key is watched; `None` without room.
fn charge_bucket(
    done: &EndAction,
    (terms, limits): (Option<&RuleTerms>, Option<&LocalLimits>),
    cost: u32,
    slot: &mut Slot,
    now: Time,
) -> Option<bool> {
    let mut placement = slot.find_or_new(done.place.tag, now);
    if let Some(terms) = terms {
        terms.changes.carry_over(&mut placement, slot, now);
    }
    let known = placement.entry;
    // Under a grant the bucket refills more slowly, which is done by charging a multiple.
    let times = rate_divisor_of(&known, cost, now);
    let mut cells = [Cell { until: known.bucket().refilled(), word: 0 }];
    algorithms::charge(&done.algorithm, &mut cells, done.place.tag.bits(), cost.saturating_mul(times), now);
    let [cell] = cells;
    let after = Bucket::full_at(cell.until);
    let entry = after_taking(known, after, limits, cost, now);
    if slot.put_back(&placement, &entry, now).is_some() {
        return Some(matches!(entry, Entry::Watched(_)));
    }
    // Without room to be watched, the key records this as overdrawn share and reports it once there is room.
    let share = if let Entry::Cold(cold) = known { cold.share } else { Cold::NEW.share };
    let limits = limits?;
    let share = share.overdraw(&limits.quota, cost, limits.divisor, now);
    slot.put(done.place.tag, &Entry::Cold(Cold { bucket: after, share }), now).map(|_| false)
}

/// Charges cells `cost` tokens less the reserved ones, or gives back the rest.
fn settle_cells(done: &EndAction, reserved: ReservedTokens, cost: u32, slot: &mut Slot, now: Time) -> Option<u32> {
    let tag = done.place.tag;
    let algorithm = algorithm_at(tag, &done.algorithm);
    let mut cells = Cells::at(slot, tag, algorithm.cells());
    match cost.checked_sub(reserved.tokens).filter(|more| *more > 0) {
        Some(more) => {
            algorithms::charge(&algorithm, cells.all_mut(), tag.bits(), more, now);
        }
        None => algorithms::give_back(&algorithm, cells.all_mut(), reserved.receipt?, reserved.tokens - cost, now),
    }
    cells.store(slot, now)
}

// Tokens that a request reserves until its cost is known. The bucket is charged at once. A cell beside it counts the
// reserved tokens, and that part of the bucket does not refill meanwhile. Otherwise the bucket could refill first, get
// the tokens back afterwards, and admit more than a burst at once (I3). Windows and logs record what they still hold.

impl ReservedTokens {
    /// The reservation of `hit`; nothing unless its slot is among those `written`.
    pub(super) fn by(hit: &Hit, written: &[LoadedSlot], now: Time) -> Self {
        let is_written = |loaded: &&LoadedSlot| loaded.index == hit.slot && loaded.is_known();
        written.iter().find(is_written).map_or(Self::NOTHING, |loaded| {
            let divisor = rate_divisor_of(&loaded.slot.find_or_new(hit.result.tag, now).entry, hit.cost, now);
            Self { tokens: hit.cost, divisor, receipt: hit.result.taken.map(|taken| taken.receipt), epoch: None }
        })
    }
}

/// Releases a reservation of `tokens` from the cell of the key `tag`; returns the number that was still reserved.
pub(super) fn end(
    cell: Cell,
    slot: &mut Slot,
    tag: Tag,
    (receipt, tokens, divisor): (Receipt, u32, u32),
    now: Time,
) -> u32 {
    let after = concurrency::end_reservation(cell, receipt, tokens.saturating_mul(divisor), now);
    // Always fits: the cell exists already.
    let _ = Cells::one(tag.beside(1), after).store(slot, now);
    let ended = concurrency::reserved(cell, now).saturating_sub(concurrency::reserved(after, now));
    u32::try_from(ended / u64::from(divisor.max(1))).unwrap_or(u32::MAX)
}

/// [`give_back_tokens`] for a bounded rule's key, even if the budget was charged for the tokens.
fn give_back_bounded(entry: &mut Entry, quota: &Quota, tokens: u32, divisor: u32) {
    give_back_tokens(entry, quota, tokens, divisor, |_| 0);
    if let Entry::Watched(watched) = entry {
        // Otherwise `charged - admitted` tokens would count as leased if the rule became strict.
        watched.charged = watched.charged.min(watched.admitted);
    }
}

/// Gives back `tokens` that were taken from an entry at the rate divisor `divisor`. A watched key's admitted count goes
/// down accordingly, but not below `least`. Budgets keep the highest count of an epoch, so if the count falls below the
/// charged one, the key pays the difference with the tokens it admits next.
pub(super) fn give_back_tokens(
    entry: &mut Entry,
    quota: &Quota,
    tokens: u32,
    divisor: u32,
    least: impl FnOnce(&Watched) -> u32,
) {
    *entry.bucket_mut() = entry.bucket().give_back(quota, divisor.saturating_mul(tokens));
    match entry {
        Entry::Cold(cold) => cold.share = cold.share.give_back(tokens),
        Entry::Watched(watched) => {
            watched.admitted = watched.admitted.saturating_sub(tokens).max(least(watched));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Booking {
    /// Charges tokens that were spent.
    Charge,
    /// Refunds tokens that were charged but not spent.
    Refund,
}

/// [`Engine::book`](crate::engine::Engine::book), on the table.
pub(crate) fn book(
    limiter: &mut Limiter,
    booking: Booking,
    request: &mut dyn Request,
    slots: &mut dyn Slots,
    now: Time,
) -> Result<Vec<Consume>, RuleIndex> {
    let times = request.times();
    let (scratch, met) = find_booked(limiter, request, slots, now);
    let hits = if matches!(met, MatchResult::Counted) { scratch.hits.as_slice() } else { &[] };
    let shadow = if hits.is_empty() { &[] } else { scratch.shadow.as_slice() };
    // Turns in a queue and places in flight cannot be refunded.
    let can_refund = |rule: &Rule| {
        let is_queue = matches!(rule.algorithm, Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_));
        !is_queue && rule.in_cells().is_none()
    };
    let is_fixed = |hit: &&Hit| booking == Booking::Refund && !limiter.rules.get(hit.rule).is_some_and(can_refund);
    let fixed = hits.iter().find(is_fixed);
    let booked = if let Some(hit) = fixed {
        Err(hit.rule)
    } else {
        let booked = hits.iter().chain(shadow);
        Ok(booked.filter_map(|hit| book_hit(limiter, booking, hit, times, slots, now)).collect())
    };
    limiter.scratch = Some(scratch);
    booked
}

/// Drops cached refusals of the request's keys, after tokens were refunded to them.
pub(crate) fn drop_refusals(limiter: &mut Limiter, request: &mut dyn Request, slots: &mut dyn Slots, now: Time) {
    let (scratch, _) = find_booked(limiter, request, slots, now);
    for hit in &scratch.hits {
        limiter.local_cache.forget(hit.tag);
    }
    limiter.scratch = Some(scratch);
}

/// Finds all rules that count the request, regardless of the local cache.
fn find_booked(
    limiter: &mut Limiter,
    request: &mut dyn Request,
    slots: &dyn Slots,
    now: Time,
) -> (Box<Scratch>, MatchResult) {
    let mut scratch = limiter.scratch.take().unwrap_or_default();
    let was_booking = mem::replace(&mut limiter.current.is_booking, true);
    let met = limiter.find_matches(request, &mut scratch, slots.count(), now);
    limiter.current.is_booking = was_booking;
    (scratch, met)
}

/// Books one hit of a request that stands for `times` requests. Returns the amount left for a strict rule's budget.
/// Rules that count requests in flight book nothing, because the request is over.
fn book_hit(
    limiter: &mut Limiter,
    booking: Booking,
    hit: &Hit,
    times: u32,
    slots: &mut dyn Slots,
    now: Time,
) -> Option<Consume> {
    let rule = limiter.rules.get(hit.rule)?;
    let tokens = if rule.after.is_some() { times } else { hit.cost };
    let (algorithm, is_strict, refill_policy) = (rule.algorithm, rule.sharing.strict, rule.sharing.refill_policy);
    if matches!(algorithm, Algorithm::Concurrency(_)) || matches!(refill_policy, RefillPolicy::InFlight(_)) {
        return None;
    }
    limiter.local_cache.forget(hit.tag);
    if is_strict && !hit.is_shadow {
        return book_strict(limiter, booking, hit, tokens, slots, now);
    }
    if let (Algorithm::TokenBucket(_), Booking::Charge) = (algorithm, booking) {
        let what = EndActionKind::Charge { after: None, reserved: ReservedTokens::NOTHING };
        let (value, salt) = (*limiter.rules.keys.value(hit.key), limiter.rules.terms_of(hit.rule)?.salt);
        limiter.charge(EndAction { what, algorithm, place: hit.place(), value, salt }, tokens, slots, now);
        return None;
    }
    let Limiter { rules, rooms, counters, .. } = limiter;
    let terms = rules.terms_of(hit.rule)?;
    let booked = change_slot(rooms, counters, (hit.slot, slots), |slot| {
        if let Algorithm::TokenBucket(quota) = &algorithm {
            hold(slot, hit.tag, quota, now);
            let mut placement = slot.find_or_new(hit.tag, now);
            terms.changes.carry_over(&mut placement, slot, now);
            // The rate divisor at which they were charged is unknown. Giving back more could exceed the quota (I3).
            give_back_bounded(&mut placement.entry, quota, tokens, 1);
            // Without room to be watched, the key waits for its next grant.
            return slot.put_back(&placement, &placement.entry, now).or_else(|| {
                let bucket = placement.entry.bucket();
                slot.put(hit.tag, &Entry::Cold(Cold { bucket, ..Cold::NEW }), now)
            });
        }
        let mut cells = Cells::find_or_new(slot, hit.tag, terms.overflow, &algorithm, now);
        let algorithm = algorithm_at(cells.tag, &algorithm);
        match booking {
            Booking::Charge => {
                algorithms::charge(&algorithm, cells.all_mut(), hit.tag.bits(), tokens, now);
            }
            Booking::Refund => algorithms::refund(&algorithm, cells.all_mut(), tokens, now),
        }
        cells.store(slot, now)
    });
    let is_lost = matches!(booked, Updated::Gone | Updated::Failed);
    counters.add(CountedEvent::Uncharged, u32::from(is_lost));
    None
}

/// Charges the tokens that a strict rule's key holds, and returns the rest for the budget; of a refund, all of it.
fn book_strict(
    limiter: &mut Limiter,
    booking: Booking,
    hit: &Hit,
    tokens: u32,
    slots: &mut dyn Slots,
    now: Time,
) -> Option<Consume> {
    let spent = limiter.change_slot(hit.slot, slots, |slot| {
        let mut placement = slot.find_or_new(hit.tag, now);
        let Entry::Watched(watched) = &mut placement.entry else { return None };
        let spent = if booking == Booking::Charge { watched.on_hand(now).min(tokens) } else { 0 };
        watched.spend(spent, now);
        if booking == Booking::Refund {
            watched.unbar();
        }
        slot.put_back(&placement, &placement.entry, now).map(|_| spent)
    });
    let rest = tokens.saturating_sub(if let Updated::Written(spent) = spent { spent } else { 0 });
    let value = *limiter.rules.keys.value(hit.key);
    (rest > 0).then_some(Consume { rule: hit.rule, value, tokens: rest, tag: hit.tag })
}
