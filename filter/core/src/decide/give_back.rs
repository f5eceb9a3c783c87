//! Giving back tokens of a request that is refused after all, because a later slot turned out short.

use alloc::vec::Vec;

use super::evaluate::rate_divisor_of;
use super::flight::cell_of;
use super::hit::{Hit, Scratch};
use super::reserve::{self, give_back_tokens};
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::table::slot::{Slot, Watched};
use crate::table::{LoadedSlot, Slots, WriteError};
use weir_protocol::time::Time;

impl Limiter {
    /// Gives back the tokens of the last decision, if a rule counted the request and it was let through. No
    /// other worker may see the slots in between.
    pub(crate) fn take_back(&mut self, slots: &mut dyn Slots, now: Time) {
        let Some(mut scratch) = self.scratch.take() else { return };
        let Scratch { hits, loaded, rooms, .. } = &mut *scratch;
        self.give_back(loaded, hits, slots, rooms, now);
        self.scratch = Some(scratch);
    }

    /// Gives back the tokens that `hits` took in the `written` slots.
    pub(crate) fn give_back(
        &mut self,
        written: &[LoadedSlot],
        hits: &[Hit],
        slots: &mut dyn Slots,
        rooms: &mut Vec<Slot>,
        now: Time,
    ) {
        for index in written.iter().filter(|loaded| loaded.is_known()).map(|loaded| loaded.index) {
            for _ in 0..super::steps::WRITES_MAX {
                let mut loaded = self.load(slots, index, rooms);
                for hit in hits.iter().filter(|hit| hit.slot == index) {
                    self.give_back_one(hit, &mut loaded.slot, now);
                }
                let written = loaded.write(slots);
                rooms.push(loaded.slot);
                match written {
                    Err(WriteError::Conflict) => self.counters.add(CountedEvent::CasRetried, 1),
                    Ok(()) | Err(WriteError::Unavailable) => break,
                }
            }
        }
    }

    fn give_back_one(&self, hit: &Hit, slot: &mut Slot, now: Time) {
        // Consumed tokens are spent, and no entry here counts them.
        #[cfg(feature = "takes")]
        if self.taken_for(hit.tag).is_some() {
            return;
        }
        // If the response states the cost, nothing was taken except a reservation.
        let Some(rule) = self.rule(hit.rule).filter(|rule| rule.after.is_none() || rule.reserves) else {
            return;
        };
        if !rule.is_shared() {
            return Self::give_back_cells(hit, hit.judged.tag, &rule.algorithm, slot, now);
        }
        if let Some(algorithm) = rule.in_cells() {
            Self::give_back_cells(hit, cell_of(hit.tag), &algorithm, slot, now);
        }
        let (quota, is_strict) = (rule.quota, rule.sharing.strict);
        // Tokens that a request acquired for itself alone are in no entry.
        let Some(mut entry) = slot.get(hit.judged.tag).filter(|_| self.drawn_for(hit.tag).is_none()) else {
            return;
        };
        let parts = rate_divisor_of(&entry, hit.cost, now);
        // Under a token bucket, only a reservation has a receipt. Under a strict rule, the receipt is a
        // request in flight.
        if let Some(taken) = hit.judged.taken.filter(|_| !is_strict) {
            let cell = reserve::hold(slot, hit.tag, &quota, now);
            reserve::end(cell, slot, hit.tag, (taken.receipt, hit.cost, parts), now);
        }
        // Under a bounded rule, tokens that the budget was charged for stay charged. Under a strict rule, the
        // budget was debited beforehand.
        let least = |watched: &Watched| if is_strict { 0 } else { watched.charged };
        give_back_tokens(&mut entry, &quota, hit.cost, parts, least);
        // Always fits: the entry exists already.
        let _ = slot.put(hit.judged.tag, &entry, now);
    }
}
