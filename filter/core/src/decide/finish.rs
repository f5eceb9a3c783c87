//! What is done when a request ends: releases and charges.

use alloc::sync::Arc;

use super::afterwards::{Afterwards, What};
use super::cells::{Cells, algorithm_at};
use super::hit::Hit;
use super::judge::{after_taking, parts_of};
use crate::RuleIndex;
use crate::buckets::Bucket;
use crate::buckets::algorithm::{self, Cell};
use crate::counters::Event;
use crate::limiter::Limiter;
use crate::table::slot::{Cold, Entry, Slot, Unheard};
use crate::table::{EntryPlace, NamedKey, Slots, Updated};
use weir_rules::algorithm::Algorithm;
use weir_wire::time::Time;

impl Limiter {
    /// Notes what is to be done when the request of `hit`, which fits, ends.
    pub(crate) fn note_afterwards(&mut self, hit: &Hit) {
        let Some(rule) = self.rule(hit.rule) else { return };
        let what = match (rule.algorithm, hit.judged.taken, &rule.after) {
            (Algorithm::Concurrency(_), Some(taken), _) => {
                What::Release { receipt: taken.receipt, cost: hit.cost }
            }
            (.., Some(after)) => What::Charge(Arc::clone(after)),
            _ => return,
        };
        let Some(terms) = self.terms.get(usize::from(hit.rule)) else { return };
        self.afterwards.push(Afterwards {
            what,
            algorithm: rule.algorithm,
            place: EntryPlace { tag: hit.judged.tag, slot: hit.slot },
            value: *self.keys.value(hit.key),
            salt: terms.salt,
        });
    }

    /// Releases what `done` holds, if it is a release.
    #[allow(clippy::needless_pass_by_value, reason = "it is done once")]
    pub fn release(&mut self, done: Afterwards, slots: &mut dyn Slots, now: Time) {
        let What::Release { receipt, cost } = done.what else { return };
        let released = self.change_slot(done.place.slot, slots, |slot| {
            let mut cells = Cells::at(slot, done.place.tag, 1);
            algorithm::give_back(&done.algorithm, cells.all_mut(), receipt, cost, now);
            cells.store(slot, now)
        });
        if matches!(released, Updated::Failed) {
            // It is released when it expires.
            self.counters.add(Event::Unreleased, 1);
        }
    }

    /// Charges `cost` tokens to the bucket of `done`, if it is a charge; into debt if need be.
    #[allow(clippy::needless_pass_by_value, reason = "it is done once")]
    pub fn charge(&mut self, done: Afterwards, cost: u32, slots: &mut dyn Slots, now: Time) {
        if cost == 0 || !matches!(done.what, What::Charge(_)) {
            return;
        }
        let rule = self.terms.iter().position(|terms| terms.salt == done.salt);
        let rule = rule.and_then(RuleIndex::of).filter(|_| self.exchange.is_some());
        let unheard = rule.and_then(|rule| self.unheard(rule));
        let charged = self.change_slot(done.place.slot, slots, |slot| match done.algorithm {
            Algorithm::TokenBucket(_) => charge_bucket(&done, unheard.as_ref(), cost, slot, now),
            _ => charge_cells(&done, cost, slot, now).map(|_| false),
        });
        match charged {
            // The key's counts may have been reported before this charge was known: report it again.
            Updated::Written(is_watched) => {
                if let Some(rule) = rule.filter(|_| is_watched) {
                    self.learn_of(&NamedKey { place: done.place, rule, value: done.value }, now);
                }
            }
            Updated::Gone | Updated::Failed => self.counters.add(Event::Uncharged, 1),
        }
    }
}

/// Charges a token bucket. Returns whether its key is watched, or none if there is no room.
fn charge_bucket(
    done: &Afterwards,
    unheard: Option<&Unheard>,
    cost: u32,
    slot: &mut Slot,
    now: Time,
) -> Option<bool> {
    let known = slot.lodge(done.place.tag, now).entry;
    // Under a lease, the bucket refills more slowly: it is charged for more.
    let times = parts_of(&known, cost, now);
    let mut cells = [Cell { until: known.bucket().refilled(), word: 0 }];
    algorithm::charge(&done.algorithm, &mut cells, done.place.tag.bits(), cost.saturating_mul(times), now);
    let [cell] = cells;
    let after = Bucket::full_at(cell.until);
    let entry = after_taking(known, after, unheard, cost, now);
    if slot.put(done.place.tag, &entry, now).is_some() {
        return Some(matches!(entry, Entry::Watched(_)));
    }
    // Its slot has no room to watch it: it reports what it took once there is room.
    let (Entry::Cold(cold), Some(unheard)) = (known, unheard) else { return None };
    let share = cold.share.overdraw(&unheard.quota, cost, unheard.parts, now);
    slot.put(done.place.tag, &Entry::Cold(Cold { bucket: after, share }), now).map(|_| false)
}

fn charge_cells(done: &Afterwards, cost: u32, slot: &mut Slot, now: Time) -> Option<u32> {
    let algorithm = algorithm_at(done.place.tag, &done.algorithm);
    let mut cells = Cells::at(slot, done.place.tag, algorithm.cells());
    algorithm::charge(&algorithm, cells.all_mut(), done.place.tag.bits(), cost, now);
    cells.store(slot, now)
}
