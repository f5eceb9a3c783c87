//! The end of a request: releases and charges.

use super::cells::{Cells, algorithm_at};
use super::end_action::{EndAction, EndActionKind, ReservedTokens};
use super::evaluate::{after_taking, rate_divisor_of};
use super::flight::{cell_of, free};
use super::hit::Hit;
use super::reserve;
use crate::RuleIndex;
use crate::buckets::Bucket;
use crate::buckets::algorithm::{self, Cell, Receipt};
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::table::slot::{Cold, Entry, Slot, Unheard};
use crate::table::{EntryPlace, LoadedSlot, NamedKey, Slots, Updated};
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;
use weir_rules::algorithm::Algorithm;

impl Limiter {
    /// Records the action for the end of the request of `hit`, which fits. Its slot is among `written`.
    pub(crate) fn record_end_action(&mut self, hit: &Hit, written: &[LoadedSlot], now: Time) {
        let Some(rule) = self.rule(hit.rule) else { return };
        let algorithm = rule.in_cells().unwrap_or(rule.algorithm);
        let what = match (algorithm, hit.judged.taken, &rule.after) {
            (Algorithm::Concurrency(_), Some(taken), _) => {
                EndActionKind::Release { receipt: taken.receipt, cost: hit.cost }
            }
            (Algorithm::LeakyBucket(_), ..) => return,
            (.., after) if after.is_some() || self.is_reserving => {
                let drawn = if self.reserves(hit.rule) { self.drawn_for(hit.tag) } else { None };
                let reserved = if drawn.is_some() {
                    ReservedTokens { tokens: hit.cost, epoch: drawn, ..ReservedTokens::NOTHING }
                } else if rule.reserves || self.is_reserving && after.is_none() {
                    ReservedTokens::by(hit, written, now)
                } else {
                    ReservedTokens::NOTHING
                };
                EndActionKind::Charge { after: after.clone(), reserved }
            }
            _ => return,
        };
        let Some(terms) = self.terms.get(usize::from(hit.rule)) else { return };
        self.afterwards.push(EndAction {
            what,
            algorithm,
            place: EntryPlace { tag: hit.judged.tag, slot: hit.slot },
            value: *self.keys.value(hit.key),
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
            let free_before = algorithm::standing(algorithm, cells.all(), now).remaining;
            algorithm::give_back(algorithm, cells.all_mut(), receipt, cost, now);
            if is_shared {
                let free_now = algorithm::standing(algorithm, cells.all(), now).remaining;
                free(slot, place.tag, free_now.saturating_sub(free_before), now);
            }
            cells.store(slot, now)
        });
        if matches!(released, Updated::Failed) {
            // The place is freed when it expires.
            self.counters.add(CountedEvent::Unreleased, 1);
        }
        // A report may now give the place back to the budget.
        if is_shared && let Some(rule) = self.rule_of(&done) {
            self.local_cache.forget(place.tag);
            self.learn_of(&NamedKey { place, rule, value: done.value }, now);
        }
    }

    /// The index of the rule; none if the rule is not in force or the POP does not report.
    pub(super) fn rule_of(&self, done: &EndAction) -> Option<RuleIndex> {
        let rule = self.terms.iter().position(|terms| terms.salt == done.salt);
        rule.and_then(RuleIndex::of).filter(|_| self.exchange.is_some())
    }

    /// Charges `cost` tokens to the bucket of `done`, if it is a charge, even into debt. Reserved tokens
    /// count towards the cost; if more were reserved, the rest is given back.
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
        let rule = self.rule_of(&done);
        let unheard = rule.and_then(|rule| self.unheard(rule));
        let charged = self.change_slot(done.place.slot, slots, |slot| match &done.algorithm {
            Algorithm::TokenBucket(quota) => {
                settle_bucket(&done, reserved, unheard.as_ref(), cost, quota, slot, now)
            }
            _ => settle_cells(&done, reserved, cost, slot, now).map(|_| false),
        });
        match charged {
            // A report may have been made before this charge, so the key is to be reported again.
            Updated::Written(is_watched) => {
                if let Some(rule) = rule.filter(|_| is_watched) {
                    self.learn_of(&NamedKey { place: done.place, rule, value: done.value }, now);
                }
            }
            Updated::Gone | Updated::Failed => self.counters.add(CountedEvent::Uncharged, 1),
        }
    }
}

/// Charges a token bucket `cost` tokens less the reserved ones, or gives back the rest. Returns true if the
/// key is watched and has more to report; none if there is no room.
fn settle_bucket(
    done: &EndAction,
    reserved: ReservedTokens,
    unheard: Option<&Unheard>,
    cost: u32,
    quota: &Quota,
    slot: &mut Slot,
    now: Time,
) -> Option<bool> {
    let tag = done.place.tag;
    let cell = reserve::hold(slot, tag, quota, now);
    let ended = reserved
        .receipt
        .map_or(0, |receipt| reserve::end(cell, slot, tag, (receipt, reserved.tokens, reserved.parts), now));
    match cost.checked_sub(reserved.tokens) {
        Some(0) => Some(false),
        Some(more) => charge_bucket(done, unheard, more, slot, now),
        None => {
            let rest = ended.min(reserved.tokens.saturating_sub(cost));
            reserve::return_to_bucket(done, reserved, rest, quota, slot, now).map(|_| false)
        }
    }
}

/// Charges a token bucket. Returns true if the key is watched; none if there is no room.
fn charge_bucket(
    done: &EndAction,
    unheard: Option<&Unheard>,
    cost: u32,
    slot: &mut Slot,
    now: Time,
) -> Option<bool> {
    let known = slot.find_or_new(done.place.tag, now).entry;
    // Under a lease the bucket refills more slowly, which is done by charging a multiple.
    let times = rate_divisor_of(&known, cost, now);
    let mut cells = [Cell { until: known.bucket().refilled(), word: 0 }];
    algorithm::charge(&done.algorithm, &mut cells, done.place.tag.bits(), cost.saturating_mul(times), now);
    let [cell] = cells;
    let after = Bucket::full_at(cell.until);
    let entry = after_taking(known, after, unheard, cost, now);
    if slot.put(done.place.tag, &entry, now).is_some() {
        return Some(matches!(entry, Entry::Watched(_)));
    }
    // Without room to be watched, the key counts this as overdrawn share and reports it once there is room.
    let (Entry::Cold(cold), Some(unheard)) = (known, unheard) else { return None };
    let share = cold.share.overdraw(&unheard.quota, cost, unheard.parts, now);
    slot.put(done.place.tag, &Entry::Cold(Cold { bucket: after, share }), now).map(|_| false)
}

/// Gives back `n` tokens of `receipt` to the cells of `done`.
fn return_to_cells(done: &EndAction, receipt: Receipt, n: u32, slot: &mut Slot, now: Time) -> Option<u32> {
    let algorithm = algorithm_at(done.place.tag, &done.algorithm);
    let mut cells = Cells::at(slot, done.place.tag, algorithm.cells());
    algorithm::give_back(&algorithm, cells.all_mut(), receipt, n, now);
    cells.store(slot, now)
}

/// Charges cells `cost` tokens less the reserved ones, or gives back the rest.
fn settle_cells(
    done: &EndAction,
    reserved: ReservedTokens,
    cost: u32,
    slot: &mut Slot,
    now: Time,
) -> Option<u32> {
    if let Some(rest) = reserved.tokens.checked_sub(cost) {
        return return_to_cells(done, reserved.receipt?, rest, slot, now);
    }
    let algorithm = algorithm_at(done.place.tag, &done.algorithm);
    let mut cells = Cells::at(slot, done.place.tag, algorithm.cells());
    algorithm::charge(&algorithm, cells.all_mut(), done.place.tag.bits(), cost - reserved.tokens, now);
    cells.store(slot, now)
}
