//! Penalties: counting a key's limited requests, and banning it for a time.
//!
//! Both are cells beside the key's own entry, in the same slot: all workers share the count, and no eviction
//! ends a ban. A key that is banned here is named in reports until one of them is answered; weir-sync sends
//! the ban to all POPs.

use super::hit::Hit;
use crate::buckets::algorithm::{Admission, Cell, fixed_window};
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::table::slot::{Cold, Entry, Slot, Tag};
use crate::table::{Slots, Updated};
use weir_protocol::time::Time;
use weir_rules::penalty::Penalty;

/// Number of the cell, beside a key's own, that counts limited requests. Lower numbers are a log's cells.
const STRIKES: u8 = 8;
/// Number of the cell that holds a key's ban; the last one.
const BAN: u8 = 9;

/// End of the ban of the key `tag`; none if it is not banned at `now`.
// Rarely called, so it is kept out of line.
#[inline(never)]
pub(crate) fn banned_until(slot: &Slot, tag: Tag, now: Time) -> Option<Time> {
    let until = slot.get(tag.beside(BAN))?.bucket().refilled();
    (now < until).then_some(until)
}

/// Bans the key `tag` until `until`, even if a longer ban is known, and changes nothing else. None if the slot has
/// no room.
pub(crate) fn replace_ban(slot: &mut Slot, tag: Tag, until: Time, now: Time) -> Option<()> {
    slot.remove(tag.beside(BAN));
    put_ban(slot, tag, until, now)
}

/// Bans the key `tag` until `until`, or until a known ban ends if that is later. None if the slot has no
/// room.
pub(crate) fn put_ban(slot: &mut Slot, tag: Tag, until: Time, now: Time) -> Option<()> {
    let until = banned_until(slot, tag, now).map_or(until, |known| known.max(until));
    let cell = Cell { until, word: 0 };
    slot.record_ban();
    slot.put(tag.beside(BAN), &Entry::Cold(Cold::of_cell(cell)), now).map(|_| ())
}

/// Removes all cells and entries of the key `tag`, so that it starts anew.
pub(crate) fn forget(slot: &mut Slot, tag: Tag) {
    slot.forget(tag, BAN);
}

impl Limiter {
    /// Counts a limited request of a key whose rule has a penalty, and bans the key once its strikes are used
    /// up.
    pub(crate) fn strike(&mut self, hit: &Hit, penalty: &Penalty, slots: &mut dyn Slots, now: Time) {
        let until = now + penalty.deny_for_ns();
        let changed = self.change_slot(hit.slot, slots, |slot| {
            let tag = hit.tag.beside(STRIKES);
            let known = slot.get(tag).map_or(Cell::NEW, |entry| entry_cell(&entry));
            let Admission::Taken(after) = fixed_window::take(&penalty.strikes, known, hit.tag.bits(), 1, now)
            else {
                return None;
            };
            let is_over = fixed_window::standing(&penalty.strikes, after, now).remaining == 0;
            // After the ban the count starts again at zero.
            let after = if is_over { Cell::NEW } else { after };
            slot.put(tag, &Entry::Cold(Cold::of_cell(after)), now)?;
            if is_over {
                put_ban(slot, hit.tag, until, now)?;
            }
            Some(is_over)
        });
        if matches!(changed, Updated::Written(true)) {
            self.counters.add(CountedEvent::Banned, 1);
            if let Some(exchange) = &mut self.exchange {
                exchange.tell_of_ban(hit.rule, *self.keys.value(hit.key), until);
            }
        }
    }
}

fn entry_cell(entry: &Entry) -> Cell {
    if let Entry::Cold(cold) = entry { cold.cell() } else { Cell::NEW }
}
