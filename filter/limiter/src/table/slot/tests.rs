use super::entry::{Bounded, COUNT_MAX, Hold, SharingState, UNCONFIRMED_NS_MAX};
use super::tag::{Moment, STEP_BITS, epoch_of};
use super::*;
use crate::algorithms::{Bucket, FairShare};
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_protocol::messages::AdmitRatio;
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::time::SECOND_NS;

const T0: Time = Time::from_nanos(1_000 * SECOND_NS);

fn cold(full_in_s: u64) -> Entry {
    Entry::Cold(Cold { bucket: Bucket::full_at(T0 + full_in_s * SECOND_NS), share: FairShare::WHOLE })
}

/// The time as a slot stores it.
fn lease_until(time: Time) -> Time {
    Time::from_nanos(time.as_nanos() >> STEP_BITS << STEP_BITS)
}

fn watched(full_in_s: u64, lease_s: u64, unconfirmed: u32) -> Entry {
    Entry::Watched(Watched {
        bucket: Bucket::full_at(T0 + full_in_s * SECOND_NS),
        until: lease_until(T0 + lease_s * SECOND_NS),
        epoch: 3,
        admitted: unconfirmed + 4,
        charged: 4,
        kind: SharingState::Bounded(Bounded {
            asked: unconfirmed + 5,
            unconfirmed_since: Moment::of(T0),
            hold: Hold::Grant { ratio: AdmitRatio::of(1, 3), burst: 7, divisor: 3 },
        }),
    })
}

/// Tags from 1 on have different labels.
fn tag(n: u64) -> Tag {
    Tag::of_key(n + 1, 0)
}

/// A full slot: the key of every place owes `debt_s` seconds of refill.
fn indebted(debt_s: u64) -> Slot {
    let mut slot = Slot::empty();
    for n in 0..KEYS_PER_SLOT as u64 {
        assert_eq!(slot.put(tag(n), &cold(debt_s), T0), Some(0));
    }
    slot
}

/// For how many seconds the bucket of `n` is not full.
fn owes_s(slot: &Slot, n: u64) -> u64 {
    slot.find_or_new(tag(n), T0).entry.bucket().fill_ns(T0) / SECOND_NS
}

#[test]
fn a_changed_byte_is_noticed() {
    let mut slot = indebted(5);
    slot.put(tag(99), &cold(7), T0);
    let sealed = *slot.sealed();
    let mut read = Slot::empty();
    for i in 0..SLOT_BYTES {
        let mut bytes = sealed;
        bytes[i] ^= 1;
        let is_sound = read.unseal(bytes.to_vec());
        // Only the one debt is read, not what lies behind it.
        assert_eq!(is_sound, i >= 408 + 3, "byte {i}");
        assert!(!is_sound || read.entries().eq(slot.entries()));
    }
    for bytes in [&sealed[1..], &[0; SLOT_BYTES], &[]] {
        assert!(!read.unseal(bytes.to_vec()));
    }
}

// I7
#[test]
fn a_lease_or_an_unreported_count_keeps_an_entry() {
    let debt = |n| watched(9, 0, n);
    for (kept, entry) in [
        (true, watched(0, 9, 0)),
        (true, debt(1)),
        (true, watched(0, 0, 1)),
        (false, watched(0, 0, 0)),
        (false, debt(0)),
    ] {
        let mut slot = Slot::empty();
        for n in 0..WATCHED_MAX as u64 {
            assert_eq!(slot.put(tag(n), &entry, T0), Some(0));
        }
        // Newcomers find a place, but not always room to be watched.
        for n in 20..40 {
            assert!(slot.put(tag(n), &cold(50), T0 + 1).is_some());
        }
        assert_eq!(slot.put(tag(20), &watched(50, 9, 0), T0 + 1).is_none(), kept, "{entry:?}");
        assert_eq!(slot.get(tag(0)).is_some(), kept, "{entry:?}");
        assert!(kept || owes_s(&slot, 0) == entry.bucket().fill_ns(T0) / SECOND_NS, "{entry:?}");
    }
    // Counts that are never confirmed do not keep their place for ever.
    let Entry::Watched(w) = watched(0, 0, 1) else { unreachable!() };
    assert!(Entry::Watched(w).is_spent(T0 + UNCONFIRMED_NS_MAX + 1));
}

/// 10/s with a burst of 10, and this rate divisor.
fn local_limits(divisor: u32) -> LocalLimits {
    let quota = Quota::new(Rate::new(10, Period::Second).unwrap(), 10).unwrap();
    LocalLimits { quota, local_burst: 10, divisor }
}

// I7
#[test]
fn refilled_tokens_were_admitted_during_the_refill() {
    let (limits, now) = (local_limits(4), T0 + 10 * SECOND_NS);
    let share = FairShare::WHOLE.overdraw(&limits.quota, 9, 4, now);
    let since = |lacks: u64, local_burst: u32| {
        let cold = Cold { bucket: Bucket::full_at(now + lacks * 100_000_000), share };
        let begun = Watched::begin(&cold, &LocalLimits { local_burst, ..limits }, 1, now);
        begun.unconfirmed_ns(now) / 10_000_000
    };
    // Seven of nine tokens: what the POP withholds of its burst was never admitted.
    assert_eq!([since(2, 10), since(9, 10), since(10, 10), since(8, 4)], [69, 0, 0, 69]);
}

// I7
#[test]
fn counters_begin_a_new_epoch_before_they_wrap() {
    let mut w = Watched::begin(&Cold::NEW, &local_limits(1), 0, T0);
    (w.admitted, w.charged) = (COUNT_MAX + 1, COUNT_MAX - 4);
    let later = T0 + SECOND_NS;
    w.count_admitted(1, later);
    assert_eq!((w.admitted, w.charged, w.epoch), (6, 0, epoch_of(later)));
    // Counts of what is only asked for do not wrap, either.
    w.count_asked(COUNT_MAX, later + SECOND_NS);
    w.count_asked(9, later + SECOND_NS);
    assert_eq!((w.admitted, w.asked(), w.epoch), (6, 15, epoch_of(later + SECOND_NS)));
}

proptest! {
    /// Compared with a map that forgets nothing: a slot has every entry that holds information, or a debt as large.
    // I3
    #[test]
    fn a_slot_keeps_all_that_matters(ops in prop::collection::vec((0u64..40, 0u64..20, 0u64..3, prop::bool::ANY), 1..200)) {
        let (mut slot, mut model, mut now) = (Slot::empty(), BTreeMap::new(), T0);
        for (key, full_in_s, step_s, watch) in ops {
            now += step_s * SECOND_NS;
            let placement = slot.find_or_new(tag(key), now);
            let known = model.get(&key).copied().filter(|entry: &Entry| !entry.is_spent(now));
            if let Some(known) = known {
                prop_assert!(placement.entry == known || known.is_mere_debt(now));
            }
            let ends = now.nanos_since(T0) / SECOND_NS + full_in_s;
            let entry = if watch { watched(ends, ends, 0) } else { cold(ends) };
            if slot.put(placement.tag, &entry, now).is_some() {
                model.insert(key, entry);
            }
            for (key, entry) in &model {
                let held = slot.get(tag(*key));
                let owes = slot.find_or_new(tag(*key), now).entry.bucket() >= entry.bucket();
                let is_held = held == Some(*entry) || entry.is_mere_debt(now) && owes;
                prop_assert!(entry.is_spent(now) || is_held, "key {} lost", key);
            }
            let sealed = slot.sealed().to_vec();
            let mut copy = Slot::empty();
            copy.copy_from(&slot);
            assert!(slot.unseal(sealed) && copy.entries().eq(slot.entries()));
        }
    }
}
