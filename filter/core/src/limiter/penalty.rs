//! The penalty box: counting a key's limited requests, and refusing it for a time.
//!
//! Both are cells beside the key's own, in its slot, so that all workers count together and no eviction ends
//! a ban. A key that is boxed here goes on the next reports until one is answered; weir-sync tells
//! all POPs.

use super::place::{Place, Updated};
use super::state::{Hit, Limiter};
use crate::algorithm::{Answer, Cell, fixed_window};
use crate::counters::Event;
use crate::slot::{Cold, Entry, Slot, Tag};
use crate::table::Slots;
use weir_rules::penalty::Penalty;
use weir_wire::messages::Reply;
use weir_wire::time::Time;

/// Which of a key's tags counts its limited requests; the tags before it are for a log's cells.
const STRIKES: u8 = 8;
/// Which of a key's tags says that it is boxed.
const BOX: u8 = 9;

/// When the ban of the key `tag` ends, if it is boxed at `now`.
pub(super) fn boxed_until(slot: &Slot, tag: Tag, now: Time) -> Option<Time> {
    let until = slot.get(tag.beside(BOX))?.bucket().refilled();
    (now < until).then_some(until)
}

fn put_in_box(slot: &mut Slot, tag: Tag, until: Time, now: Time) -> Option<()> {
    let until = boxed_until(slot, tag, now).map_or(until, |known| known.max(until));
    let cell = Cell { until, word: 0 };
    slot.put(tag.beside(BOX), &Entry::Cold(Cold::of_cell(cell)), now).map(|_| ())
}

impl Limiter {
    /// Counts a limited request of a key whose rule has a penalty box, and boxes the key if that was one too many.
    pub(super) fn strike(&mut self, hit: &Hit, penalty: &Penalty, slots: &mut dyn Slots, now: Time) {
        let until = now + penalty.deny_for_ns();
        let changed = self.change_slot(hit.slot, slots, |slot| {
            let tag = hit.tag.beside(STRIKES);
            let known = slot.get(tag).map_or(Cell::NEW, |entry| entry_cell(&entry));
            let Answer::Taken(after) = fixed_window::take(&penalty.strikes, known, hit.tag.bits(), 1, now)
            else {
                return None;
            };
            let is_over = fixed_window::standing(&penalty.strikes, after, now).remaining == 0;
            // Once out of the box, the key starts again from zero.
            let after = if is_over { Cell::NEW } else { after };
            slot.put(tag, &Entry::Cold(Cold::of_cell(after)), now)?;
            if is_over {
                put_in_box(slot, hit.tag, until, now)?;
            }
            Some(is_over)
        });
        if matches!(changed, Updated::Written(true)) {
            self.counters.add(Event::Boxed, 1);
            if let Some(exchange) = &mut self.exchange {
                exchange.tell_of_box(hit.rule, *self.keys.value(hit.key), until);
            }
        }
    }

    /// Takes in the keys that were boxed elsewhere.
    pub(super) fn box_pushed(&mut self, reply: &Reply, slots: &mut dyn Slots, now: Time) {
        for boxed in &reply.boxed {
            let Some(name) = reply.rules.get(usize::from(boxed.rule)) else { continue };
            let Some((rule, _, Place { tag, slot })) = self.find(name, &boxed.value, slots.count()) else {
                continue;
            };
            if self.rule(rule).is_none_or(|rule| rule.penalty.is_none()) {
                continue;
            }
            let until = now + u64::from(boxed.for_ms) * 1_000_000;
            // If the slot has no room, this POP boxes the key when it is limited too often here.
            let _ = self.change_slot(slot, slots, |slot| put_in_box(slot, tag, until, now));
        }
    }
}

fn entry_cell(entry: &Entry) -> Cell {
    if let Entry::Cold(cold) = entry { cold.cell() } else { Cell::NEW }
}
