//! Changes to the table outside a decision: a compare-and-swap loop for slots, and one for watched entries on
//! top of it.

use super::state::Limiter;
use crate::RuleIndex;
use crate::counters::CountedEvent;
use crate::decide::in_flight;
use crate::fleet::SyncState;
use crate::table::slot::{Cold, Entry, Slot, Unheard, Watched};
use crate::table::{EntryPlace, LoadedSlot, Slots, Updated};
use weir_protocol::time::Time;
use weir_rules::algorithm::Concurrency;

/// Most attempts of a change that conflicts with other workers' writes. A change that fails is tried again at
/// the next report.
const UPDATES_MAX: u32 = 8;

impl Limiter {
    /// Changes slot `index` by compare-and-swap. Writes nothing if `change` returns none.
    pub(crate) fn change_slot<T>(
        &mut self,
        index: u32,
        slots: &mut dyn Slots,
        change: impl Fn(&mut Slot) -> Option<T>,
    ) -> Updated<T> {
        let (mut result, mut room) = (Updated::Failed, self.room.take().unwrap_or_default());
        for _ in 0..UPDATES_MAX {
            let (mut loaded, _) = LoadedSlot::read(slots, index, room);
            let done = change_once(&mut loaded, slots, &change);
            room = loaded.slot;
            if let Some(done) = done {
                result = done;
                break;
            }
            self.counters.add(CountedEvent::CasRetried, 1);
        }
        self.room = Some(room);
        result
    }

    /// Maximum number and duration of requests in flight under `rule`, if the fleet counts them.
    pub(crate) fn flight(&self, rule: RuleIndex) -> Option<Concurrency> {
        self.terms.get(usize::from(rule)).and_then(|terms| terms.in_flight)
    }

    /// The POP's limits for a key of `rule` without a grant.
    pub(crate) fn unheard(&self, rule: RuleIndex) -> Option<Unheard> {
        let parts = self.exchange.as_ref().map_or(1, SyncState::cold_rate_divisor);
        self.terms.get(usize::from(rule)).map(|terms| terms.unheard(parts))
    }

    /// Changes the watched entry at `place`. If there is none and `unheard` is given, the key becomes watched
    /// first.
    pub(crate) fn update_watched(
        &mut self,
        place: EntryPlace,
        unheard: Option<Unheard>,
        slots: &mut dyn Slots,
        now: Time,
        change: &dyn Fn(&mut Watched),
    ) -> Updated<Watched> {
        self.update_counted(place, None, unheard, slots, now, &|watched, _| change(watched))
    }

    /// [`Limiter::update_watched`] with a `change` that also gets the number of requests in flight, or 0 if
    /// the fleet does not count them.
    pub(crate) fn update_counted(
        &mut self,
        place: EntryPlace,
        flight: Option<Concurrency>,
        unheard: Option<Unheard>,
        slots: &mut dyn Slots,
        now: Time,
        change: &dyn Fn(&mut Watched, u32),
    ) -> Updated<Watched> {
        self.change_slot(place.slot, slots, |slot| {
            let begin = |cold: &Cold| unheard.map(|unheard| Watched::begin(cold, &unheard, 0, now));
            let mut watched = match slot.get(place.tag) {
                Some(Entry::Watched(watched)) => watched,
                Some(Entry::Cold(cold)) => begin(&cold)?,
                // The key starts with its debt. Its use of the fair share before it lost its place is not
                // reported.
                None => {
                    Watched { bucket: slot.find_or_new(place.tag, now).entry.bucket(), ..begin(&Cold::NEW)? }
                }
            };
            let in_flight = flight.map_or(0, |flight| in_flight(slot, place.tag, &flight, now));
            change(&mut watched, in_flight);
            slot.put(place.tag, &Entry::Watched(watched), now)?;
            Some(watched)
        })
    }
}

/// Changes the slot that was read, and writes it back. None if another worker wrote it meanwhile.
fn change_once<T>(
    loaded: &mut LoadedSlot,
    slots: &mut dyn Slots,
    change: impl Fn(&mut Slot) -> Option<T>,
) -> Option<Updated<T>> {
    if !loaded.is_known() {
        return Some(Updated::Failed);
    }
    let Some(changed) = change(&mut loaded.slot) else { return Some(Updated::Gone) };
    loaded.write(slots).is_ok().then_some(Updated::Written(changed))
}
