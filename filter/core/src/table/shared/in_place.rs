//! Changing entries where they are, without a copy of their slot.

use super::atomics::{Ordering, fence, spin_loop};
use super::buffer::{Buffer, watched_words};
use super::{LOOKS_MAX, SlotsHandle};
use crate::buckets::{Bucket, EvenShare};
use crate::table::slot::{Cold, Entry, Watched};
use crate::table::slots::{Change, Judge};
use weir_wire::time::Time;

/// Where a cold entry has its bucket and its share, after its tag.
const BUCKET: usize = 1;
const SHARE: usize = 2;

impl SlotsHandle {
    /// Changes entries of slot `index`, all of `changes` or none.
    #[inline]
    pub(super) fn change(&mut self, index: u32, changes: &mut [Change], judge: Judge<'_>) -> bool {
        let Some(head) = self.slots.head(index) else { return false };
        for _ in 0..LOOKS_MAX {
            let seen = head.state();
            if seen.is_held() {
                spin_loop();
                continue;
            }
            let Some(buffer) = self.slots.buffer(seen) else { return false };
            // What is read and judged here may be torn. Then the head has changed, and nothing is.
            if !buffer.read_entries(changes) || !judge(changes) {
                return false;
            }
            let begun = seen.begun();
            if !head.replace(seen, begun) {
                continue;
            }
            // Whoever reads a word of what follows sees that it is being changed.
            fence(Ordering::Release);
            buffer.write_entries(changes);
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
    /// Reads the entries that are to be changed. False if one of them is not there, or if keys are banned.
    #[inline]
    fn read_entries(&self, changes: &mut [Change]) -> bool {
        let counts = self.counts();
        !counts.has_bans
            && changes.iter_mut().all(|change| {
                let Some(at) = self.find_cold(change.tag, counts.cold) else {
                    return counts.watched_units > 0 && self.read_watched(change, counts.watched_units);
                };
                (change.at, change.entry) = (at, Entry::Cold(self.cold_at(at)));
                true
            })
    }

    #[inline]
    fn cold_at(&self, at: usize) -> Cold {
        let bucket = Bucket::full_at(Time::from_nanos(self.word(at + BUCKET)));
        Cold { bucket, share: EvenShare::from_bits(self.word(at + SHARE)) }
    }

    /// Reads a watched entry that is to be changed, one of those in so many units; false if it is not there.
    #[inline(never)]
    fn read_watched(&self, change: &mut Change, units: usize) -> bool {
        let Some(at) = self.find_watched(change.tag, units) else { return false };
        let words = watched_words(at).map(|at| self.word(at));
        (change.at, change.entry) = (at, Entry::Watched(Watched::from_words(words)));
        true
    }

    #[inline]
    fn write_entries(&self, changes: &[Change]) {
        for Change { at, entry, .. } in changes {
            match entry {
                Entry::Cold(cold) => {
                    self.set(at + BUCKET, cold.bucket.refilled().as_nanos());
                    self.set(at + SHARE, cold.share.bits());
                }
                Entry::Watched(watched) => self.write_watched(*at, watched),
            }
        }
    }

    /// Writes what requests change: others may see some of it before the rest.
    #[inline(never)]
    fn write_watched(&self, at: usize, watched: &Watched) {
        let places = watched_words(at).into_iter().zip(watched.to_words());
        places.take(Watched::WORDS_OF_REQUESTS).for_each(|(at, word)| self.set(at, word));
    }
}
