//! Changing cold entries where they are, without a copy of their slot.

use super::atomics::{Ordering, fence, spin_loop};
use super::buffer::Buffer;
use super::{LOOKS_MAX, SlotsHandle};
use crate::buckets::{Bucket, EvenShare};
use crate::table::slot::Cold;
use crate::table::slots::{ColdChange, Judge};
use weir_wire::time::Time;

/// Where an entry has its bucket and its share, after its tag.
const BUCKET: usize = 1;
const SHARE: usize = 2;

impl SlotsHandle {
    /// Changes cold entries of slot `index`, all of `changes` or none.
    #[inline]
    pub(super) fn change(&mut self, index: u32, changes: &mut [ColdChange], judge: Judge<'_>) -> bool {
        let Some(head) = self.slots.head(index) else { return false };
        for _ in 0..LOOKS_MAX {
            let seen = head.state();
            if seen.is_held() {
                spin_loop();
                continue;
            }
            let Some(buffer) = self.slots.buffer(seen) else { return false };
            // What is read and judged here may be torn. Then the head has changed, and nothing is.
            if !buffer.read_cold(changes) || !judge(changes) {
                return false;
            }
            let begun = seen.begun();
            if !head.replace(seen, begun) {
                continue;
            }
            // Whoever reads a word of what follows sees that it is being changed.
            fence(Ordering::Release);
            buffer.write_cold(changes);
            if head.replace(begun, seen.next()) {
                return true;
            }
            self.keep(seen.buffer);
            return false;
        }
        false
    }
}

impl Buffer {
    /// Reads the entries that are to be changed. False if one of them is not there or not cold, or if keys are banned.
    #[inline]
    fn read_cold(&self, changes: &mut [ColdChange]) -> bool {
        let counts = self.counts();
        !counts.has_bans
            && changes.iter_mut().all(|change| {
                let Some(at) = self.find_cold(change.tag, counts.cold) else { return false };
                let bucket = Bucket::full_at(Time::from_nanos(self.word(at + BUCKET)));
                let share = EvenShare::from_bits(self.word(at + SHARE));
                (change.at, change.entry) = (at, Cold { bucket, share });
                true
            })
    }

    #[inline]
    fn write_cold(&self, changes: &[ColdChange]) {
        for ColdChange { at, entry, .. } in changes {
            self.set(at + BUCKET, entry.bucket.refilled().as_nanos());
            self.set(at + SHARE, entry.share.bits());
        }
    }
}
