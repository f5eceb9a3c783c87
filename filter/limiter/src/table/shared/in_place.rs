//! Changes of entries in place, without a copy of their slot.

use super::buffer::{Head, Ordering, SlotBuffer, fence, spin_loop, watched_words};
use super::{LOOKS_MAX, SlotsHandle};
use crate::algorithms::{Bucket, FairShare};
use crate::table::slot::{Cold, Entry, Watched};
use crate::table::{ChangeFn, EntryChange};
use weir_protocol::time::Time;

/// Offsets of a cold entry's bucket and share, after its tag.
const BUCKET: usize = 1;
const SHARE: usize = 2;

impl SlotsHandle {
    /// Changes entries of these slots: all of `changes`; false if not all were changed.
    #[inline]
    pub(super) fn change(&mut self, indices: &[u32], changes: &mut [EntryChange], evaluate: ChangeFn<'_>) -> bool {
        match *indices {
            [a] => self.change_all([a], changes, evaluate),
            _ => self.change_several(indices, changes, evaluate),
        }
    }

    #[inline(never)]
    fn change_several(&mut self, indices: &[u32], changes: &mut [EntryChange], evaluate: ChangeFn<'_>) -> bool {
        let has_twin = |(i, index)| indices.iter().skip(i + 1).any(|other| other == index);
        match *indices {
            _ if indices.iter().enumerate().any(has_twin) => false,
            [a, b] => self.change_all([a, b], changes, evaluate),
            [a, b, c] => self.change_all([a, b, c], changes, evaluate),
            [a, b, c, d] => self.change_all([a, b, c, d], changes, evaluate),
            _ => false,
        }
    }

    /// Holds all slots or none, and waits for none while it holds another, so no two threads wait for each other. They
    /// may make each other let go a few times, and then take the general path.
    #[inline]
    fn change_all<const N: usize>(
        &mut self,
        indices: [u32; N],
        changes: &mut [EntryChange],
        evaluate: ChangeFn<'_>,
    ) -> bool {
        let slots = &self.slots;
        let Some(heads) = all(indices.map(|index| slots.head(index))) else { return false };
        for _ in 0..LOOKS_MAX {
            let seen = heads.map(Head::state);
            if seen.iter().any(|seen| seen.is_held()) {
                spin_loop();
                continue;
            }
            let Some(buffers) = all(seen.map(|seen| slots.buffer(seen))) else { return false };
            // Entries read and evaluated here may be torn. A head has changed then, and nothing is stored.
            if !read_entries(buffers, changes) || !evaluate(changes) {
                return false;
            }
            let held = heads.iter().zip(seen).take_while(|(head, seen)| head.replace(*seen, seen.begun())).count();
            let are_all_held = held == N;
            if are_all_held {
                // A thread that reads a word of the new contents also sees that the slot is held.
                fence(Ordering::Release);
                write_entries(buffers, changes);
            }
            let mut is_overtaken = false;
            for (head, seen) in heads.iter().zip(seen).take(held) {
                let next = if are_all_held { seen.next() } else { seen };
                if !head.replace(seen.begun(), next) {
                    slots.put_back(seen.buffer);
                    is_overtaken = true;
                }
            }
            if are_all_held {
                return !is_overtaken;
            }
        }
        false
    }
}

/// All of these values; `None` if one is missing.
#[inline]
fn all<T: Copy, const N: usize>(found: [Option<T>; N]) -> Option<[T; N]> {
    let mut all = [found.first().copied()??; N];
    for (one, found) in all.iter_mut().zip(found) {
        *one = found?;
    }
    Some(all)
}

/// Reads the entries to be changed; false if one of them is missing, or if keys are banned.
#[inline]
fn read_entries<const N: usize>(buffers: [&SlotBuffer; N], changes: &mut [EntryChange]) -> bool {
    let counts = buffers.map(SlotBuffer::counts);
    !counts.iter().any(|counts| counts.has_bans)
        && changes.iter_mut().all(|change| {
            let slot = if N == 1 { 0 } else { change.slot };
            let (Some(buffer), Some(counts)) = (buffers.get(slot), counts.get(slot)) else { return false };
            let Some(at) = buffer.find_cold(change.tag, counts.cold) else {
                return counts.watched_units > 0 && buffer.read_watched(change, counts.watched_units);
            };
            (change.at, change.entry) = (at, Entry::Cold(buffer.cold_at(at)));
            true
        })
}

#[inline]
fn write_entries<const N: usize>(buffers: [&SlotBuffer; N], changes: &[EntryChange]) {
    for EntryChange { slot, at, entry, .. } in changes {
        let Some(buffer) = buffers.get(if N == 1 { 0 } else { *slot }) else { continue };
        match entry {
            Entry::Cold(cold) => {
                buffer.set(at + BUCKET, cold.bucket.refilled().as_nanos());
                buffer.set(at + SHARE, cold.share.bits());
            }
            Entry::Watched(watched) => buffer.write_watched(*at, watched),
        }
    }
}

impl SlotBuffer {
    #[inline]
    fn cold_at(&self, at: usize) -> Cold {
        let bucket = Bucket::full_at(Time::from_nanos(self.word(at + BUCKET)));
        Cold { bucket, share: FairShare::from_bits(self.word(at + SHARE)) }
    }

    /// Reads the watched entry of `change`, if it is in the first `units`; false if it is missing.
    #[inline(never)]
    fn read_watched(&self, change: &mut EntryChange, units: usize) -> bool {
        let Some(at) = self.find_watched(change.tag, units) else { return false };
        let words = watched_words(at).map(|at| self.word(at));
        (change.at, change.entry) = (at, Entry::Watched(Watched::from_words(words)));
        true
    }

    /// Writes the words that requests change. A thread that overtakes may continue with some of these words and without
    /// the others: tokens taken but not counted, or counted but not taken, or only the time since which some are
    /// unconfirmed. Each errs on the safe side, because the request that wrote them is decided again, and takes and
    /// counts its tokens.
    #[inline(never)]
    fn write_watched(&self, at: usize, watched: &Watched) {
        let places = watched_words(at).into_iter().zip(watched.to_words());
        places.take(Watched::WORDS_OF_REQUESTS).for_each(|(at, word)| self.set(at, word));
    }
}
