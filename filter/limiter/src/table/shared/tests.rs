//! Slots that threads share.

use super::*;
use crate::algorithms::{Bucket, FairShare};
use crate::table::slot::{Cold, Entry, LocalLimits, Tag, Watched};
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::vec::Vec;
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;

#[cfg(loom)]
mod model;

const NOW: Time = Time::from_nanos(1);

fn tag(n: u64) -> Tag {
    Tag::of_key(n + 1, 0)
}

/// Sets the value of the first `keys` keys of the slot to `n`.
fn set_all(slot: &mut Slot, keys: u64, n: u64) {
    let entry = Entry::Cold(Cold { bucket: Bucket::full_at(Time::from_nanos(n)), share: FairShare::WHOLE });
    for key in 0..keys {
        assert!(slot.put(tag(key), &entry, NOW).is_some());
    }
}

/// A watched entry of which one token is admitted, and charged.
fn watched() -> Watched {
    let quota = Quota::from_token_ns(1_000, 100).unwrap();
    let mut entry = Watched::begin(&Cold::NEW, &LocalLimits { quota, local_burst: 100, divisor: 1 }, 1, NOW);
    entry.confirm(1, NOW + 1);
    entry
}

/// The value that all keys of the slot have, and their number.
fn common_value(slot: &Slot) -> (u64, u64) {
    let values: Vec<u64> = slot.entries().map(|(_, entry)| entry.bucket().refilled().as_nanos()).collect();
    let first = values.first().copied().unwrap_or(0);
    assert!(values.iter().all(|n| *n == first), "torn: {values:?}");
    (first, values.len() as u64)
}

#[test]
fn a_write_succeeds_only_from_the_state_that_was_read() {
    let slots = SharedSlots::new(2, 2);
    let (mut one, mut other) = (SlotsHandle::new(Arc::clone(&slots)), SlotsHandle::new(slots));
    let mut slot = Slot::empty();
    let first = one.read(1, &mut slot).unwrap();
    assert_eq!(other.read(1, &mut slot), Ok(first));
    set_all(&mut slot, 3, 7);
    assert_eq!(one.write(1, &mut slot, first), Ok(()));
    assert_eq!(other.write(1, &mut slot, first), Err(WriteError::Conflict));
    let mut seen = Slot::empty();
    let second = other.read(1, &mut seen).unwrap();
    assert_eq!((common_value(&seen), second != first), ((7, 3), true));
    assert_eq!((other.read(2, &mut seen), other.count()), (Err(ReadError::Missing), 2));
    assert_eq!(other.write(2, &mut seen, second), Err(WriteError::Unavailable));
}

#[test]
fn threads_see_whole_slots_and_lose_no_write() {
    const WRITERS: u64 = 4;
    const WRITES: u64 = 20_000;
    let slots = SharedSlots::new(1, 4);
    let (begin, is_over) = (Barrier::new(5), AtomicBool::new(false));
    let mut handle = SlotsHandle::new(Arc::clone(&slots));
    let mut slot = Slot::empty();
    let version = handle.read(0, &mut slot).unwrap();
    set_all(&mut slot, 1, 0);
    handle.write(0, &mut slot, version).unwrap();
    drop(handle);
    thread::scope(|scope| {
        let writer = || {
            let (mut handle, mut slot) = (SlotsHandle::new(Arc::clone(&slots)), Slot::empty());
            begin.wait();
            for _ in 0..WRITES {
                loop {
                    let version = handle.read(0, &mut slot).unwrap();
                    let (n, keys) = common_value(&slot);
                    // Sometimes another number of keys.
                    set_all(&mut slot, keys.max(1 + n % 9), n + 1);
                    if handle.write(0, &mut slot, version).is_ok() {
                        break;
                    }
                }
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(writer)).collect();
        scope.spawn(|| {
            let (mut handle, mut slot) = (SlotsHandle::new(Arc::clone(&slots)), Slot::empty());
            begin.wait();
            while !is_over.load(Ordering::Relaxed) {
                handle.read(0, &mut slot).unwrap();
                common_value(&slot);
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut handle = SlotsHandle::new(slots);
    handle.read(0, &mut slot).unwrap();
    assert_eq!(common_value(&slot), (WRITERS * WRITES, 9));
}

/// A slot with this number of keys, each with the value 1.
fn written(slots: &Arc<SharedSlots>, keys: u64) -> SlotsHandle {
    let (mut handle, mut slot) = (SlotsHandle::new(Arc::clone(slots)), Slot::empty());
    let version = handle.read(0, &mut slot).unwrap();
    set_all(&mut slot, keys, 1);
    handle.write(0, &mut slot, version).unwrap();
    handle
}

/// Adds one to the value of each of these keys of slot 0.
fn increment(handle: &mut SlotsHandle, keys: &[u64]) -> bool {
    increment_in(handle, &[0], keys.iter().map(|key| (0, *key)))
}

/// Adds one to the value of each of these keys of several slots: its slot's number among `indices`, and the key.
fn increment_in(handle: &mut SlotsHandle, indices: &[u32], keys: impl Iterator<Item = (usize, u64)>) -> bool {
    let mut changes: Vec<EntryChange> = keys.map(|(slot, key)| EntryChange::of(tag(key), slot)).collect();
    handle.change_in_place(indices, &mut changes, &mut |changes| {
        for change in changes {
            let bucket = change.entry.bucket_mut();
            *bucket = Bucket::full_at(bucket.refilled() + 1);
        }
        true
    })
}

/// The value of each key.
fn values(handle: &mut SlotsHandle) -> Vec<u64> {
    let mut slot = Slot::empty();
    handle.read(0, &mut slot).unwrap();
    (0..16).map_while(|key| Some(slot.get(tag(key))?.bucket().refilled().as_nanos())).collect()
}

// I3
#[test]
fn entries_of_several_slots_are_changed_together_or_not_at_all() {
    const SLOTS: u32 = 5;
    for count in 2..=CHANGED_MAX {
        let slots = SharedSlots::new(SLOTS, 1);
        let (mut handle, mut slot) = (SlotsHandle::new(Arc::clone(&slots)), Slot::empty());
        for index in 0..SLOTS {
            let version = handle.read(index, &mut slot).unwrap();
            set_all(&mut slot, 3, u64::from(index) * 10);
            handle.write(index, &mut slot, version).unwrap();
        }
        let mut values = |handle: &mut SlotsHandle| -> Vec<u64> {
            let of = |index| {
                handle.read(index, &mut slot).unwrap();
                slot.get(tag(1)).unwrap().bucket().refilled().as_nanos()
            };
            (0..SLOTS).map(of).collect()
        };
        let change = |handle: &mut SlotsHandle, indices: &[u32], last_key: u64| {
            let key = |slot| (slot, if slot + 1 == count { last_key } else { 1 });
            increment_in(handle, indices, (0..count).map(key))
        };
        let indices: Vec<u32> = (0..SLOTS).rev().take(count).collect();
        let before = values(&mut handle);
        assert!(!change(&mut handle, &indices, 3), "the last is not there");
        let last = slots.head(indices[count - 1]).unwrap();
        let seen = last.state();
        assert!(last.replace(seen, seen.begun()));
        assert!(!change(&mut handle, &indices, 1), "the last is held");
        assert!(last.replace(seen.begun(), seen));
        let mut twins = indices.clone();
        twins[count - 1] = twins[0];
        assert!(!change(&mut handle, &twins, 2), "a slot twice");
        assert_eq!(values(&mut handle), before);
        assert!(change(&mut handle, &indices, 1));
        let more = before.iter().zip(0..).map(|(value, index)| value + u64::from(indices.contains(&index)));
        assert_eq!(values(&mut handle), more.collect::<Vec<_>>());
    }
    let mut handle = SlotsHandle::new(SharedSlots::new(SLOTS, 1));
    assert!(!increment_in(&mut handle, &[0, 1, 2, 3, 4], [].into_iter()), "too many");
    assert!(!increment_in(&mut handle, &[], [].into_iter()), "none");
}

#[test]
fn a_watched_entry_is_changed_without_its_neighbours() {
    for keys in 1..=4u64 {
        let slots = SharedSlots::new(1, 1);
        let (mut handle, mut slot) = (written(&slots, 3), Slot::empty());
        let version = handle.read(0, &mut slot).unwrap();
        for key in 0..keys {
            slot.put(tag(100 + key), &Entry::Watched(watched()), NOW).unwrap();
        }
        handle.write(0, &mut slot, version).unwrap();
        let later = NOW + (1 << 30);
        for key in 0..keys {
            let Some(Entry::Watched(mut expected)) = slot.get(tag(100 + key)) else { panic!("it is watched") };
            expected.bucket = Bucket::full_at(later);
            expected.count_admitted(7, later);
            slot.put(tag(100 + key), &Entry::Watched(expected), NOW).unwrap();
            let mut changes = [EntryChange::of(tag(100 + key), 0), EntryChange::of(tag(0), 0)];
            assert!(handle.change_in_place(&[0], &mut changes, &mut |changes| {
                changes[0].entry = Entry::Watched(expected);
                true
            }));
            let mut read = Slot::empty();
            handle.read(0, &mut read).unwrap();
            assert!(read.entries().eq(slot.entries()), "{key} of {keys}");
        }
    }
}

// I3
#[test]
fn a_writer_that_stops_half_way_blocks_no_other() {
    let slots = SharedSlots::new(1, 2);
    let mut other = written(&slots, 2);
    for round in 1..10 {
        // As a writer does before it changes entries; then it loses its processor.
        let (head, mut stopped) = (slots.head(0).unwrap(), SlotsHandle::new(Arc::clone(&slots)));
        let seen = head.state();
        assert!(head.replace(seen, seen.begun()));
        assert_eq!(values(&mut other), [round, round], "it is read all the same");
        assert!(!increment(&mut other, &[0, 1]), "by the general path");
        let mut slot = Slot::empty();
        let version = other.read(0, &mut slot).unwrap();
        set_all(&mut slot, 2, round + 1);
        assert_eq!(other.write(0, &mut slot, version), Ok(()));
        // It goes on: what it writes is in no slot, and the write fails.
        slots.buffer(seen).unwrap().set(3, 77);
        assert!(!head.replace(seen.begun(), seen.next()));
        stopped.slots.put_back(seen.buffer);
        assert_eq!(values(&mut other), [round + 1, round + 1]);
        assert!(increment(&mut stopped, &[0, 1]) && increment(&mut other, &[0, 1]));
        let version = other.read(0, &mut slot).unwrap();
        set_all(&mut slot, 2, round + 1);
        assert_eq!(other.write(0, &mut slot, version), Ok(()), "nobody lacks a buffer");
    }
}

/// Adds one to the value of each of these keys, in place or else by a copy, as a request does. True if it was done
/// in place.
fn increment_or_copy(handle: &mut SlotsHandle, slot: &mut Slot, keys: &[u64]) -> bool {
    if increment(handle, keys) {
        return true;
    }
    loop {
        let version = handle.read(0, slot).unwrap();
        for key in keys {
            let value = slot.get(tag(*key)).unwrap().bucket().refilled() + 1;
            let cold = Cold { bucket: Bucket::full_at(value), share: FairShare::WHOLE };
            slot.put(tag(*key), &Entry::Cold(cold), NOW);
        }
        if handle.write(0, slot, version).is_ok() {
            return false;
        }
    }
}

// I3
#[test]
fn threads_lose_no_change() {
    const WRITERS: u64 = 4;
    const CHANGES: u64 = 20_000;
    let slots = SharedSlots::new(1, 5);
    let mut handle = written(&slots, 9);
    let (begin, is_over) = (Barrier::new(6), AtomicBool::new(false));
    thread::scope(|scope| {
        let changer = |own: u64| {
            let slots = &slots;
            let begin = &begin;
            move || {
                let (mut handle, mut slot) = (SlotsHandle::new(Arc::clone(slots)), Slot::empty());
                begin.wait();
                // One key of its own, and one that all have.
                let in_place = (0..CHANGES).filter(|_| increment_or_copy(&mut handle, &mut slot, &[own, 8])).count();
                in_place as u64
            }
        };
        let changers: Vec<_> = (0..WRITERS).map(|own| scope.spawn(changer(own))).collect();
        let copier = scope.spawn(|| {
            let (mut handle, mut slot) = (SlotsHandle::new(Arc::clone(&slots)), Slot::empty());
            begin.wait();
            let mut copies = 0;
            while !is_over.load(Ordering::Relaxed) {
                let version = handle.read(0, &mut slot).unwrap();
                let value = slot.get(tag(7)).unwrap().bucket().refilled() + 1;
                let cold = Cold { bucket: Bucket::full_at(value), share: FairShare::WHOLE };
                slot.put(tag(7), &Entry::Cold(cold), NOW);
                copies += u64::from(handle.write(0, &mut slot, version).is_ok());
            }
            copies
        });
        begin.wait();
        let in_place: Vec<u64> = changers.into_iter().map(|changer| changer.join().unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        let puts = copier.join().unwrap();
        let values = values(&mut handle);
        // A change that was overtaken was made once more, but may be there.
        let most = |in_place: &u64| 1 + CHANGES + (CHANGES - in_place);
        for (own, in_place) in in_place.iter().enumerate() {
            assert!((1 + CHANGES..=most(in_place)).contains(&values[own]), "{in_place}: {}", values[own]);
        }
        let (least, twice) = (1 + WRITERS * CHANGES, in_place.iter().map(|n| CHANGES - n).sum::<u64>());
        assert!((least..=least + twice).contains(&values[8]), "{in_place:?}: {}", values[8]);
        assert_eq!((values[7], &values[4..7]), (1 + puts, &[1, 1, 1][..]));
        assert!(puts > 0 && twice < WRITERS * CHANGES / 2, "most are made in place: {in_place:?}, {puts}");
    });
}
