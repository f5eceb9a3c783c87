//! Stores the entries of a decision and gives back its tokens, and changes watched entries outside of one.

use alloc::vec::Vec;

use crate::algorithms::Receipt;
use crate::check::cells::give_back_cells;
use crate::check::current::{Hit, Scratch};
use crate::check::evaluate::{Evaluation, hold, rate_divisor_of};
use crate::check::settle::{end, give_back_tokens};
use crate::check::strict::{cell_of, in_flight};
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::table;
use crate::table::slot::{Cold, Entry, LocalLimits, Slot, Watched};
use crate::table::{EntryPlace, LoadedSlot, Slots, Updated, WriteError};
use weir_protocol::time::Time;
use weir_rules::algorithm::Concurrency;

/// Most retries of a write that conflicts with another worker's. Each retry means that another request was
/// decided, and slots that threads share favour a writer that keeps losing. So only an extremely contended
/// slot comes near this.
const WRITES_MAX: u32 = 32;

impl Limiter {
    pub(crate) fn load(&mut self, slots: &mut dyn Slots, index: u32, rooms: &mut Vec<Slot>) -> LoadedSlot {
        let (loaded, mishap) = LoadedSlot::read(slots, index, rooms.pop().unwrap_or_default());
        if let Some(mishap) = mishap {
            self.counters.add(mishap, 1);
        }
        loaded
    }

    /// Writes an evaluated slot. On a conflict, reads and evaluates it again; false if a hit no longer fits then.
    pub(crate) fn commit(
        &mut self,
        loaded: &mut LoadedSlot,
        hits: &mut [Hit],
        slots: &mut dyn Slots,
        rooms: &mut Vec<Slot>,
        now: Time,
    ) -> bool {
        for _ in 0..WRITES_MAX {
            if !loaded.is_known() {
                forget_taken(hits, loaded);
                return true;
            }
            match loaded.write(slots) {
                Ok(()) => return true,
                Err(WriteError::Unavailable) => {
                    self.counters.add(CountedEvent::Unavailable, 1);
                    forget_taken(hits, loaded);
                    return true;
                }
                Err(WriteError::Conflict) => self.counters.add(CountedEvent::CasRetried, 1),
            }
            *loaded = self.load(slots, loaded.index, rooms);
            if !Evaluation::of(self).evaluate_slot(loaded, hits, now) {
                return false;
            }
        }
        self.counters.add(CountedEvent::CasGaveUp, 1);
        forget_taken(hits, loaded);
        true
    }

    /// Changes slot `index` by compare-and-swap. Writes nothing if `change` returns none.
    pub(crate) fn change_slot<T>(
        &mut self,
        index: u32,
        slots: &mut dyn Slots,
        change: impl Fn(&mut Slot) -> Option<T>,
    ) -> Updated<T> {
        table::change_slot(&mut self.room, &mut self.counters, (index, slots), change)
    }

    /// Changes the watched entry at `place`. If there is none and `limits` is given, the key becomes watched
    /// first.
    pub(crate) fn update_watched(
        &mut self,
        place: EntryPlace,
        limits: Option<LocalLimits>,
        slots: &mut dyn Slots,
        now: Time,
        change: &dyn Fn(&mut Watched),
    ) -> Updated<Watched> {
        self.update_counted(place, None, limits, slots, now, &|watched, _| change(watched))
    }

    /// [`Limiter::update_watched`] with a `change` that also gets the number of requests in flight, or 0 if
    /// the fleet does not count them.
    pub(crate) fn update_counted(
        &mut self,
        place: EntryPlace,
        flight: Option<Concurrency>,
        limits: Option<LocalLimits>,
        slots: &mut dyn Slots,
        now: Time,
        change: &dyn Fn(&mut Watched, u32),
    ) -> Updated<Watched> {
        self.change_slot(place.slot, slots, |slot| {
            let begin = |cold: &Cold| limits.map(|limits| Watched::begin(cold, &limits, 0, now));
            let mut watched = match slot.get(place.tag) {
                Some(Entry::Watched(watched)) => watched,
                Some(Entry::Cold(cold)) => begin(&cold)?,
                // The key starts with its debt. Its use of the fair share before it lost its place is not
                // reported.
                None => Watched { bucket: slot.find_or_new(place.tag, now).entry.bucket(), ..begin(&Cold::NEW)? },
            };
            let in_flight = flight.map_or(0, |flight| in_flight(slot, place.tag, &flight, now));
            change(&mut watched, in_flight);
            slot.put(place.tag, &Entry::Watched(watched), now)?;
            Some(watched)
        })
    }
}

/// Marks a slot as not written, so that its hits have nothing to give back or to release.
fn forget_taken(hits: &mut [Hit], loaded: &mut LoadedSlot) {
    loaded.give_up();
    for hit in hits.iter_mut().filter(|hit| hit.slot == loaded.index) {
        // A turn from the fleet's budget is in no slot, so it is kept.
        hit.result.taken = hit.result.taken.filter(|taken| taken.receipt == Receipt::NONE);
    }
}

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
            for _ in 0..WRITES_MAX {
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
        if self.current.taken_for(hit.tag).is_some() {
            return;
        }
        // If the response states the cost, nothing was taken except a reservation.
        let Some(rule) = self.rules.get(hit.rule).filter(|rule| rule.after.is_none() || rule.reserves) else {
            return;
        };
        if !rule.is_shared() {
            return give_back_cells(hit, hit.result.tag, &rule.algorithm, slot, now);
        }
        if let Some(algorithm) = rule.in_cells() {
            give_back_cells(hit, cell_of(hit.tag), &algorithm, slot, now);
        }
        let (quota, is_strict) = (rule.quota, rule.sharing.strict);
        // Tokens that a request acquired for itself alone are in no entry.
        let Some(mut entry) = slot.get(hit.result.tag).filter(|_| self.current.acquired_for(hit.tag).is_none()) else {
            return;
        };
        let divisor = rate_divisor_of(&entry, hit.cost, now);
        // Under a token bucket, only a reservation has a receipt. Under a strict rule, the receipt is a
        // request in flight.
        if let Some(taken) = hit.result.taken.filter(|_| !is_strict) {
            let cell = hold(slot, hit.tag, &quota, now);
            end(cell, slot, hit.tag, (taken.receipt, hit.cost, divisor), now);
        }
        // Under a bounded rule, tokens that the budget was charged for stay charged. Under a strict rule, the
        // budget was debited beforehand.
        let least = |watched: &Watched| if is_strict { 0 } else { watched.charged };
        give_back_tokens(&mut entry, &quota, hit.cost, divisor, least);
        // Always fits: the entry exists already.
        let _ = slot.put(hit.result.tag, &entry, now);
    }
}
