//! Giving back what a request took in some slots, when it is refused after all because another slot turned out short.

use alloc::vec::Vec;

use super::hit::{Hit, Scratch};
use super::judge::parts_of;
use crate::counters::Event;
use crate::limiter::Limiter;
use crate::table::slot::{Entry, Slot};
use crate::table::{Loaded, Slots, WriteError};
use weir_wire::time::Time;

impl Limiter {
    /// Gives back what the request took that was decided last and let through, by a rule that counted it. Until then, no
    /// worker may look at the slots.
    pub(crate) fn take_back(&mut self, slots: &mut dyn Slots, now: Time) {
        let Some(mut scratch) = self.scratch.take() else { return };
        let Scratch { hits, loaded, rooms, .. } = &mut *scratch;
        self.give_back(loaded, hits, slots, rooms, now);
        self.scratch = Some(scratch);
    }

    /// Gives back what the hits took in these slots, if they were written.
    pub(crate) fn give_back(
        &mut self,
        written: &[Loaded],
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
                    Err(WriteError::Conflict) => self.counters.add(Event::CasRetried, 1),
                    Ok(()) | Err(WriteError::Unavailable) => break,
                }
            }
        }
    }

    fn give_back_one(&self, hit: &Hit, slot: &mut Slot, now: Time) {
        // If the response tells the cost, nothing was taken.
        let Some(rule) = self.rule(hit.rule).filter(|rule| rule.after.is_none()) else { return };
        if !rule.is_shared() {
            return Self::give_back_cells(hit, &rule.algorithm, slot, now);
        }
        let (quota, is_strict) = (rule.quota, rule.sharing.strict);
        let Some(mut entry) = slot.get(hit.judged.tag) else { return };
        let taken = parts_of(&entry, hit.cost, now).saturating_mul(hit.cost);
        *entry.bucket_mut() = entry.bucket().give_back(&quota, taken);
        match &mut entry {
            Entry::Cold(cold) => cold.share = cold.share.give_back(hit.cost),
            Entry::Watched(watched) => {
                // A bounded rule's tokens that are charged already stay so; a strict rule's were paid for before.
                let least = if is_strict { 0 } else { watched.charged };
                watched.admitted = watched.admitted.saturating_sub(hit.cost).max(least);
            }
        }
        // The entry is there, so it has its room.
        let _ = slot.put(hit.judged.tag, &entry, now);
    }
}
