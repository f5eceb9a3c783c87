//! Counting requests of watched keys, and watching keys that were refused.

use alloc::vec::Vec;

use super::hit::Hit;
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::table::slot::{Entry, Slot, Watched};
use crate::table::{NamedKey, Slots};
use weir_protocol::time::Time;
use weir_rules::Rule;

impl Limiter {
    /// Counts the request on the watch list, once, if its key is watched.
    pub(crate) fn count_if_watched(&mut self, hit: &mut Hit, slot: &Slot, now: Time) {
        if !hit.watched && slot.is_watched(hit.tag) {
            hit.watched = true;
            let is_hot = |slot: &Slot| matches!(slot.get(hit.tag), Some(Entry::Watched(w)) if now < w.until);
            // The drop of a key was counted already, be it this one or the one that it displaces.
            if !self.count_watched(hit, now) && is_hot(slot) && self.watch.push_out_for(hit.tag) {
                self.watch.touch(&self.named(hit), hit.cost, now);
            }
        }
    }

    /// The name of the hit's key: its rule, value and place.
    #[inline(never)]
    pub(crate) fn named(&self, hit: &Hit) -> NamedKey {
        NamedKey { place: hit.place(), rule: hit.rule, value: *self.keys.value(hit.key) }
    }

    /// Counts the request on the watch list; false if the list has no room.
    fn count_watched(&mut self, hit: &Hit, now: Time) -> bool {
        let has_room = self.watch.touch(&self.named(hit), hit.cost, now);
        self.counters.add(CountedEvent::SyncDropped, u32::from(!has_room));
        has_room
    }

    /// Makes a refused key watched: a refusal means that it is past its fair share.
    pub(crate) fn watch_refused(
        &mut self,
        hit: &Hit,
        slots: &mut dyn Slots,
        rooms: &mut Vec<Slot>,
        now: Time,
    ) {
        // Only token buckets and quotas are shared by the fleet.
        let is_heard = self.exchange.is_some() && self.rule(hit.rule).is_some_and(Rule::is_shared);
        let Some(unheard) = self.unheard(hit.rule).filter(|_| is_heard) else { return };
        let mut loaded = self.load(slots, hit.slot, rooms);
        let mut lodging = loaded.slot.find_or_new(hit.tag, now);
        let has_place = lodging.has_place();
        if let Some(terms) = self.terms.get(usize::from(hit.rule)) {
            terms.carry_over(&mut lodging, &loaded.slot, now);
        }
        let watched = match lodging.entry {
            Entry::Cold(cold) if has_place => Entry::Watched(Watched::begin(&cold, &unheard, 0, now)),
            // It goes on under the grant that it had before its rule changed.
            Entry::Watched(_) if !has_place => lodging.entry,
            _ => return,
        };
        // On a conflict, the next refusal tries again.
        if loaded.slot.put(hit.tag, &watched, now).is_some() && loaded.write(slots).is_ok() {
            self.count_watched(hit, now);
        }
    }
}
