//! How full the table is: a few slots looked at in each tick, and what that comes to for all.

use weir_limiter::slot::Slot;
use weir_limiter::table::Slots;
use weir_wire::time::Time;

/// Slots looked at in a tick; some ten microseconds.
const SLOTS_PER_TICK: u32 = 16;
/// Slots that say what all come to, to within a few parts in a hundred: keys are spread over slots at random.
const SLOTS_MAX: u32 = 128;

/// A sample of the table's slots.
#[derive(Default)]
pub(crate) struct Sample {
    /// The slot that is looked at next.
    next: u32,
    looked_at: u32,
    keys: usize,
    room: Slot,
}

impl Sample {
    /// Looks at a few slots at `now`; once those are enough, of how many keys the whole table has something to say.
    pub(crate) fn look(&mut self, slots: &mut dyn Slots, now: Time) -> Option<u64> {
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
        let (keys, looked_at) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.looked_at));
        u64::try_from(keys).ok().map(|keys| keys * u64::from(count) / u64::from(looked_at.max(1)))
    }
}
