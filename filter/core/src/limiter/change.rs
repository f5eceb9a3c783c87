//! Changing the table outside a decision: a compare-and-swap loop for slots, and one for watched entries on top.

use super::state::Limiter;
use crate::RuleIndex;
use crate::counters::Event;
use crate::fleet::Exchange;
use crate::table::slot::{Cold, Entry, Slot, Unheard, Watched};
use crate::table::{EntryPlace, Loaded, Slots, Updated};
use weir_wire::time::Time;

/// How often a change that conflicts with another worker's is tried. A change that fails is tried
/// again at the next report.
const UPDATES_MAX: u32 = 8;

impl Limiter {
    /// Changes slot `index` by compare-and-swap; nothing is written if `change` returns none.
    pub(crate) fn change_slot<T>(
        &mut self,
        index: u32,
        slots: &mut dyn Slots,
        change: impl Fn(&mut Slot) -> Option<T>,
    ) -> Updated<T> {
        let mut result = Updated::Failed;
        for _ in 0..UPDATES_MAX {
            let (mut loaded, _) = Loaded::read(slots, index, Slot::default());
            if !loaded.is_known() {
                break;
            }
            let Some(changed) = change(&mut loaded.slot) else {
                result = Updated::Gone;
                break;
            };
            if loaded.write(slots).is_ok() {
                result = Updated::Written(changed);
                break;
            }
            self.counters.add(Event::CasRetried, 1);
        }
        result
    }

    /// What this POP may give of the quota of `rule` before the fleet has heard of a key.
    pub(crate) fn unheard(&self, rule: RuleIndex) -> Option<Unheard> {
        let parts = self.exchange.as_ref().map_or(1, Exchange::cold_parts);
        self.terms.get(usize::from(rule)).map(|terms| terms.unheard(parts))
    }

    /// Changes the watched entry at `place`. If there is none and `unheard` is given, the key becomes watched first.
    pub(crate) fn update_watched(
        &mut self,
        place: EntryPlace,
        unheard: Option<Unheard>,
        slots: &mut dyn Slots,
        now: Time,
        change: impl Fn(&mut Watched),
    ) -> Updated<Watched> {
        self.change_slot(place.slot, slots, |slot| {
            let begin = |cold: &Cold| unheard.map(|unheard| Watched::begin(cold, &unheard, 0, now));
            let mut watched = match slot.get(place.tag) {
                Some(Entry::Watched(watched)) => watched,
                Some(Entry::Cold(cold)) => begin(&cold)?,
                // It begins with its debt; what it took of its even share before it lost its place goes unreported.
                None => Watched { bucket: slot.lodge(place.tag, now).entry.bucket(), ..begin(&Cold::NEW)? },
            };
            change(&mut watched);
            slot.put(place.tag, &Entry::Watched(watched), now)?;
            Some(watched)
        })
    }
}
