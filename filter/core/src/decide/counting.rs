//! Counting requests for watched keys, and watching keys that were refused.

use alloc::vec::Vec;

use super::hit::Hit;
use crate::counters::Event;
use crate::limiter::Limiter;
use crate::table::slot::{Entry, Slot, Watched};
use crate::table::{NamedKey, Slots};
use weir_rules::Rule;
use weir_wire::time::Time;

impl Limiter {
    /// Counts the request for its key, once, if the key is watched.
    pub(crate) fn count_if_watched(&mut self, hit: &mut Hit, slot: &Slot, now: Time) {
        if !hit.watched && slot.is_watched(hit.tag) {
            hit.watched = true;
            let is_hot = |slot: &Slot| matches!(slot.get(hit.tag), Some(Entry::Watched(w)) if now < w.until);
            // The drop is counted already, be it of this key or of the one that it pushes out.
            if !self.count_watched(hit, now) && is_hot(slot) && self.watch.push_out_for(hit.tag) {
                self.watch.touch(&self.named(hit), hit.cost, now);
            }
        }
    }

    /// The key of `hit`, by its rule and its place.
    #[inline(never)]
    pub(crate) fn named(&self, hit: &Hit) -> NamedKey {
        NamedKey { place: hit.place(), rule: hit.rule, value: *self.keys.value(hit.key) }
    }

    /// Counts the request on the watch list; false if that has no room.
    fn count_watched(&mut self, hit: &Hit, now: Time) -> bool {
        let has_room = self.watch.touch(&self.named(hit), hit.cost, now);
        self.counters.add(Event::SyncDropped, u32::from(!has_room));
        has_room
    }

    /// A key that was refused is past its even share, so it becomes watched.
    pub(crate) fn watch_refused(
        &mut self,
        hit: &Hit,
        slots: &mut dyn Slots,
        rooms: &mut Vec<Slot>,
        now: Time,
    ) {
        // Other algorithms than the token bucket count in each POP alone.
        let is_heard = self.exchange.is_some() && self.rule(hit.rule).is_some_and(Rule::is_shared);
        let Some(unheard) = self.unheard(hit.rule).filter(|_| is_heard) else { return };
        let mut loaded = self.load(slots, hit.slot, rooms);
        let Some(Entry::Cold(cold)) = loaded.slot.get(hit.tag) else { return };
        let watched = Entry::Watched(Watched::begin(&cold, &unheard, 0, now));
        // On a conflict the next refusal does it.
        if loaded.slot.put(hit.tag, &watched, now).is_some() && loaded.write(slots).is_ok() {
            self.count_watched(hit, now);
        }
    }
}
