//! An estimate of the number of keys in the table, from a few slots that are sampled in each tick.

use super::slot::Slot;
use super::slots::Slots;
use weir_protocol::time::Time;

/// Slots sampled in a tick; this takes some ten microseconds.
const SLOTS_PER_TICK: u32 = 16;
/// Slots that are enough for an estimate to within a few percent: keys are spread over slots at random.
const SLOTS_MAX: u32 = 128;

/// A sample of the table's slots.
#[derive(Default)]
pub struct Sample {
    /// Index of the next slot to sample.
    next: u32,
    looked_at: u32,
    keys: usize,
    room: Slot,
}

impl Sample {
    /// Samples a few slots at `now`. Once there are enough, returns the approximate number of keys in the
    /// whole table.
    pub fn look(&mut self, slots: &mut dyn Slots, now: Time) -> Option<u64> {
        let count = slots.count().max(1);
        for _ in 0..SLOTS_PER_TICK.min(count) {
            if slots.read(self.next, &mut self.room).is_ok() {
                self.keys += self.room.keys_at(now);
            }
            self.looked_at += 1;
            self.next = if self.next + 1 < count { self.next + 1 } else { 0 };
        }
        if self.looked_at < SLOTS_MAX.min(count) {
            return None;
        }
        let (keys, looked_at) = (core::mem::take(&mut self.keys), core::mem::take(&mut self.looked_at));
        u64::try_from(keys).ok().map(|keys| keys * u64::from(count) / u64::from(looked_at.max(1)))
    }
}
