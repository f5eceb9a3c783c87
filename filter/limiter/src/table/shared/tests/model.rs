//! Threads that share a slot, in every order that they may run in with [`PREEMPTIONS`], and with every write that
//! they may not have seen yet: `make model`.
//!
//! `LOOM_MAX_PREEMPTIONS=3 make model` allows more interruptions, and takes longer.
//!
//! Tests of I3.

use super::*;
use loom::thread::{self, JoinHandle};

/// Maximum number of interruptions of a thread that could go on. Two are enough for most faults (Musuvathi and Qadeer,
/// "Iterative context bounding for systematic testing of multithreaded programs", 2007).
const PREEMPTIONS: usize = 2;
/// Steps of one run.
const STEPS_MAX: usize = 10_000;
/// The keys of each slot.
const KEYS: [u64; 2] = [0, 1];

/// The first value of each key; far from those of another slot.
fn begin(slot: u32) -> u64 {
    1 + 10 * u64::from(slot)
}

/// Runs `threads` in every order. In the end no slot is held, and each buffer has one owner.
fn model(slots: u32, threads: impl Fn(&Arc<SharedSlots>) + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(PREEMPTIONS));
    model.max_branches = STEPS_MAX;
    model.check(move || {
        let shared = SharedSlots::new(slots, 2);
        for slot in 0..slots {
            let mut handle = SlotsHandle::new(Arc::clone(&shared));
            let (mut room, version) = read(&mut handle, slot);
            for key in KEYS {
                room.put(tag(key), &Entry::Cold(entry_of(begin(slot))), NOW);
            }
            handle.write(slot, &mut room, version).unwrap();
        }
        threads(&shared);
        let heads = shared.heads.iter().map(|head| {
            assert!(!head.state().is_held());
            head.state().buffer
        });
        let spare = shared.spare.iter().map(|place| place.load(Ordering::Relaxed));
        let mut numbers: Vec<u32> = heads.chain(spare.filter(|number| *number != NONE)).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..u32::try_from(shared.buffers.len()).unwrap()));
    });
}

/// Runs two threads, and then passes the slots and the sum of the threads' results to `check`. Each of them is the
/// first to run once: loom remembers only the last access to a word, and so misses orders that begin with a reader.
fn in_every_order(
    slots: u32,
    one: fn(&mut SlotsHandle) -> u64,
    other: fn(&mut SlotsHandle) -> u64,
    check: fn(&Arc<SharedSlots>, u64),
) {
    for (first, second) in [(one, other), (other, one)] {
        model(slots, move |slots| {
            let thread = beside(slots, second);
            let changes = first(&mut SlotsHandle::new(Arc::clone(slots)));
            check(slots, changes + thread.join().unwrap());
        });
    }
}

/// Runs `does` in another thread, with a handle of its own.
fn beside(slots: &Arc<SharedSlots>, does: impl FnOnce(&mut SlotsHandle) -> u64 + 'static) -> JoinHandle<u64> {
    let mut handle = SlotsHandle::new(Arc::clone(slots));
    thread::spawn(move || does(&mut handle))
}

/// An entry with `n` in each of its words.
fn entry_of(n: u64) -> Cold {
    Cold { bucket: Bucket::full_at(Time::from_nanos(n)), share: FairShare::from_bits(n) }
}

fn one_more(Cold { bucket, share }: Cold) -> Cold {
    Cold { bucket: Bucket::full_at(bucket.refilled() + 1), share: FairShare::from_bits(share.bits() + 1) }
}

/// Each word of the entries of these keys.
fn words(slot: &Slot, keys: &[u64]) -> Vec<u64> {
    let of = |key: &u64| match slot.get(tag(*key)) {
        Some(Entry::Cold(cold)) => [cold.bucket.refilled().as_nanos(), cold.share.bits()],
        other => panic!("a key is lost: {other:?}"),
    };
    keys.iter().flat_map(of).collect()
}

fn read(handle: &mut SlotsHandle, slot: u32) -> (Slot, Version) {
    let mut room = Slot::empty();
    loop {
        if let Ok(version) = handle.read(slot, &mut room) {
            return (room, version);
        }
    }
}

/// Adds one to these keys of slot 0 in place. Returns the number of times it succeeded.
fn change(handle: &mut SlotsHandle, keys: &[u64]) -> u64 {
    change_of(handle, &[0], keys)
}

/// The same of each of these slots, together.
fn change_of(handle: &mut SlotsHandle, slots: &[u32], keys: &[u64]) -> u64 {
    let of_slot = |slot| keys.iter().map(move |key| EntryChange::of(tag(*key), slot));
    let mut changes: Vec<EntryChange> = (0..slots.len()).flat_map(of_slot).collect();
    u64::from(handle.change_in_place(slots, &mut changes, &mut |changes| {
        for change in changes {
            let Entry::Cold(cold) = change.entry else { panic!("it is cold") };
            change.entry = Entry::Cold(one_more(cold));
        }
        true
    }))
}

/// The same by a copy of the slot.
fn copy(handle: &mut SlotsHandle, slot: u32, keys: &[u64]) -> u64 {
    loop {
        let (mut room, version) = read(handle, slot);
        for key in keys {
            let Some(Entry::Cold(cold)) = room.get(tag(*key)) else { panic!("a key is lost") };
            room.put(tag(*key), &Entry::Cold(one_more(cold)), NOW);
        }
        if handle.write(slot, &mut room, version).is_ok() {
            return 1;
        }
    }
}

/// One or the other, as a request does. Returns how many changes there may be: one that was overtaken is made once
/// more.
fn change_or_copy(handle: &mut SlotsHandle, keys: &[u64]) -> u64 {
    if change(handle, keys) == 1 { 1 } else { 1 + copy(handle, 0, keys) }
}

/// One key of each of two slots, where they are or by copies.
fn change_both_or_copy(handle: &mut SlotsHandle, slots: [u32; 2]) -> u64 {
    if change_of(handle, &slots, &[0]) == 1 {
        return 1;
    }
    for slot in slots {
        copy(handle, slot, &[0]);
    }
    2
}

/// A copy, from a read that holds the slot.
fn hold_and_copy(handle: &mut SlotsHandle) -> u64 {
    as_one_that_keeps_losing(handle);
    copy(handle, 0, &[0])
}

/// Makes the next read of slot 0 hold it.
fn as_one_that_keeps_losing(handle: &mut SlotsHandle) {
    (handle.lost, handle.losses) = (0, LOSSES_MAX);
}

/// Asserts that each word of these keys of slot 0 has `least` to `most` changes.
fn has_changes(slots: &Arc<SharedSlots>, keys: &[u64], least: u64, most: u64) {
    slot_has_changes(slots, 0, keys, least, most);
}

fn slot_has_changes(slots: &Arc<SharedSlots>, index: u32, keys: &[u64], least: u64, most: u64) {
    let (slot, _) = read(&mut SlotsHandle::new(Arc::clone(slots)), index);
    let words = words(&slot, keys);
    assert!(words.iter().all(|word| (least..=most).contains(&(word - begin(index)))), "{words:?}: {least} to {most}");
}

/// Reads slot 0, of which others change these entries together, at most twice. Unless it is held, all words are of
/// one state.
fn read_whole(handle: &mut SlotsHandle, keys: &[u64]) -> u64 {
    let (slot, Version(version)) = read(handle, 0);
    let words = words(&slot, keys);
    let is_held = HeadState { version, buffer: NONE }.is_held();
    assert!(is_held || words.iter().all(|word| *word == words[0]), "torn: {words:?}");
    assert!(words.iter().all(|word| word - begin(0) <= 2), "from nowhere: {words:?}");
    0
}

#[test]
fn two_changes_in_place_lose_nothing() {
    let change = |handle: &mut SlotsHandle| change_or_copy(handle, &[0]);
    in_every_order(1, change, change, |slots, most| has_changes(slots, &[0], 2, most));
}

#[test]
fn a_change_in_place_and_a_copy_lose_nothing() {
    let change = |handle: &mut SlotsHandle| change_or_copy(handle, &[0]);
    in_every_order(1, change, |handle| copy(handle, 0, &[0]), |slots, most| has_changes(slots, &[0], 2, most));
}

#[test]
fn a_watched_entrys_change_and_a_copy_lose_nothing() {
    const KEY: u64 = 7;
    model(1, |slots| {
        let mut handle = SlotsHandle::new(Arc::clone(slots));
        let (mut room, version) = read(&mut handle, 0);
        room.put(tag(KEY), &Entry::Watched(watched()), NOW);
        handle.write(0, &mut room, version).unwrap();
        let other = beside(slots, |handle| copy(handle, 0, &[0]));
        let is_made = handle.change_in_place(&[0], &mut [EntryChange::of(tag(KEY), 0)], &mut |changes| {
            let Entry::Watched(mut entry) = changes[0].entry else { panic!("it is watched") };
            entry.count_admitted(1, NOW);
            changes[0].entry = Entry::Watched(entry);
            true
        });
        other.join().unwrap();
        let Some(Entry::Watched(entry)) = read(&mut handle, 0).0.get(tag(KEY)) else { panic!("it is lost") };
        assert!(entry.admitted == 2 || entry.admitted == 1 && !is_made, "{} {is_made}", entry.admitted);
        has_changes(slots, &[0], 1, 1);
    });
}

#[test]
fn two_copies_of_the_slot_lose_no_change() {
    let copy = |handle: &mut SlotsHandle| copy(handle, 0, &[0]);
    in_every_order(1, copy, copy, |slots, _| has_changes(slots, &[0], 2, 2));
}

#[test]
fn a_reader_beside_changes_in_place_sees_whole_entries() {
    let twice = |handle: &mut SlotsHandle| change(handle, &[0]) + change(handle, &[0]);
    let read = |handle: &mut SlotsHandle| read_whole(handle, &[0]);
    in_every_order(1, twice, read, |slots, made| has_changes(slots, &[0], made, made));
}

#[test]
fn a_reader_beside_copies_sees_whole_entries() {
    let twice = |handle: &mut SlotsHandle| copy(handle, 0, &KEYS) + copy(handle, 0, &KEYS);
    in_every_order(1, twice, |handle| read_whole(handle, &KEYS), |slots, _| has_changes(slots, &KEYS, 2, 2));
}

#[test]
fn a_repeated_loser_holds_and_releases_the_slot() {
    let change = |handle: &mut SlotsHandle| change_or_copy(handle, &[0]);
    in_every_order(1, change, hold_and_copy, |slots, most| has_changes(slots, &[0], 2, most));
}

#[test]
fn two_repeated_losers_both_have_their_turn() {
    in_every_order(1, hold_and_copy, hold_and_copy, |slots, _| has_changes(slots, &[0], 2, 2));
}

#[test]
fn a_stopped_holder_of_the_slot_blocks_no_thread() {
    model(1, |slots| {
        let mut holder = SlotsHandle::new(Arc::clone(slots));
        as_one_that_keeps_losing(&mut holder);
        let (mut slot, version) = read(&mut holder, 0);
        let others = KEYS.map(|key| beside(slots, move |handle| change_or_copy(handle, &[key])));
        for other in others {
            other.join().unwrap();
        }
        has_changes(slots, &KEYS, 1, 2);
        assert_eq!(holder.write(0, &mut slot, version), Err(WriteError::Conflict), "it was overtaken");
    });
}

#[test]
fn a_reader_never_sees_what_its_buffer_is_used_for_next() {
    // The second copy is in the buffer that slot 0 had.
    let copies = |handle: &mut SlotsHandle| copy(handle, 0, &KEYS) + copy(handle, 1, &KEYS);
    in_every_order(2, copies, |handle| read_whole(handle, &KEYS), |slots, _| has_changes(slots, &KEYS, 1, 1));
}

#[test]
fn a_change_never_reaches_the_slot_that_has_the_buffer_next() {
    let copies = |handle: &mut SlotsHandle| copy(handle, 0, &[0]) + copy(handle, 1, &[0]);
    let change = |handle: &mut SlotsHandle| change_or_copy(handle, &[0]);
    in_every_order(2, copies, change, |slots, most| {
        has_changes(slots, &[0], 2, most - 1);
        let (slot, _) = read(&mut SlotsHandle::new(Arc::clone(slots)), 1);
        assert_eq!(words(&slot, &KEYS), [1, 1, 0, 0].map(|changes| begin(1) + changes));
    });
}

/// The threads take the slots in opposite orders. Without a copy no change is overtaken.
#[test]
fn changes_in_opposite_orders_lose_nothing() {
    in_every_order(
        2,
        |handle| change_of(handle, &[0, 1], &[0]),
        |handle| change_of(handle, &[1, 0], &[0]),
        |slots, made| {
            for slot in [0, 1] {
                slot_has_changes(slots, slot, &[0], made, made);
                slot_has_changes(slots, slot, &[1], 0, 0);
            }
        },
    );
}

#[test]
fn a_change_of_two_slots_and_a_copy_lose_nothing() {
    in_every_order(
        2,
        |handle| change_both_or_copy(handle, [0, 1]),
        |handle| copy(handle, 1, &[0]),
        |slots, most| {
            slot_has_changes(slots, 0, &[0], 1, most - 1);
            slot_has_changes(slots, 1, &[0], 2, most);
        },
    );
}

#[test]
fn a_reader_beside_changes_of_two_slots_sees_whole_entries() {
    let twice = |handle: &mut SlotsHandle| change_of(handle, &[0, 1], &[0]) + change_of(handle, &[0, 1], &[0]);
    let read = |handle: &mut SlotsHandle| read_whole(handle, &[0]);
    in_every_order(2, twice, read, |slots, made| has_changes(slots, &[0], made, made));
}
