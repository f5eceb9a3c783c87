use super::entry::{COUNT_MAX, STEP_BITS, UNCONFIRMED_NS_MAX, epoch_of};
use super::*;
use crate::bucket::Bucket;
use crate::quota::{Period, Quota, Rate};
use crate::share::Share;
use crate::time::SECOND_NS;
use crate::wire::AdmitRatio;
use proptest::prelude::*;
use std::collections::BTreeMap;

const T0: Time = Time::from_nanos(1_000 * SECOND_NS);
const OVERFLOW: Tag = Tag::of_overflow(7);

fn cold(full_in_s: u64) -> Entry {
    Entry::Cold(Cold { bucket: Bucket::full_at(T0 + full_in_s * SECOND_NS), share: Share::WHOLE })
}

/// As a slot keeps it.
fn lease_until(time: Time) -> Time {
    Time::from_nanos(time.as_nanos() >> STEP_BITS << STEP_BITS)
}

fn watched(full_in_s: u64, lease_s: u64, unconfirmed: u32) -> Entry {
    Entry::Watched(Watched {
        bucket: Bucket::full_at(T0 + full_in_s * SECOND_NS),
        lease_until: lease_until(T0 + lease_s * SECOND_NS),
        unheard_since: Moment::of(T0),
        epoch: 3,
        admitted: unconfirmed + 4,
        asked: unconfirmed + 5,
        charged: 4,
        ratio: AdmitRatio::of(1, 3),
        burst: 7,
        parts: 3,
    })
}

fn tag(n: u64) -> Tag {
    Tag::of_key(n, 0)
}

/// A slot whose every key owes tokens for `debt_s` seconds.
fn indebted(debt_s: u64) -> Slot {
    let mut slot = Slot::empty();
    for n in 0..KEYS_PER_SLOT as u64 {
        assert_eq!(slot.put(tag(n), &cold(debt_s), T0), Some(0));
    }
    slot
}

#[test]
fn a_key_costs_32_bytes() {
    assert_eq!(SLOT_BYTES / KEYS_PER_SLOT, 32);
}

#[test]
fn reads_what_it_sealed() {
    let mut slot = indebted(5);
    slot.put(OVERFLOW, &cold(1), T0);
    let mut read = Slot::empty();
    assert!(read.unseal(slot.clone().sealed().to_vec()) && read.entries().eq(slot.entries()));
}

#[test]
fn a_changed_byte_is_noticed() {
    let mut slot = indebted(5);
    let sealed = *slot.sealed();
    let mut read = Slot::empty();
    for i in 0..SLOT_BYTES {
        let mut bytes = sealed;
        bytes[i] ^= 1;
        let is_sound = read.unseal(bytes.to_vec());
        // Of the rest of the header and the four units without an entry nothing is read.
        assert_eq!(is_sound, (16..128).contains(&i), "byte {i}");
        assert!(!is_sound || read.entries().eq(slot.entries()));
    }
    for bytes in [&sealed[1..], &[0; SLOT_BYTES], &[]] {
        assert!(!read.unseal(bytes.to_vec()));
    }
}

#[test]
fn a_key_with_debt_is_never_dropped_for_a_newcomer() {
    let mut slot = indebted(5);
    assert_eq!(slot.put(tag(99), &cold(1), T0), None);
    assert_eq!(slot.lodge(tag(99), OVERFLOW, T0).tag, OVERFLOW);
    for n in 0..KEYS_PER_SLOT as u64 {
        assert_eq!(slot.get(tag(n)), Some(cold(5)));
    }
}

#[test]
fn a_full_bucket_makes_room() {
    let mut slot = indebted(5);
    let later = T0 + 5 * SECOND_NS;
    assert_eq!(slot.lodge(tag(99), OVERFLOW, later).tag, tag(99));
    assert_eq!(slot.put(tag(99), &cold(9), later), Some(1));
    assert_eq!(slot.get(tag(99)), Some(cold(9)));
}

#[test]
fn newcomers_to_a_slot_of_debtors_share_one_bucket() {
    let mut slot = indebted(50);
    let first = slot.lodge(tag(98), OVERFLOW, T0);
    assert_eq!(slot.put(first.tag, &cold(7), T0), Some(0));
    let second = slot.lodge(tag(99), OVERFLOW, T0);
    assert_eq!((second.tag, second.entry), (OVERFLOW, cold(7)));
}

#[test]
fn more_rules_than_overflow_units_share_the_one_full_soonest() {
    let mut slot = indebted(50);
    for rule in 0..OVERFLOW_UNITS as u64 {
        assert_eq!(slot.put(Tag::of_overflow(rule), &cold(9 - rule), T0), Some(0));
    }
    let shared = slot.lodge(tag(99), Tag::of_overflow(77), T0);
    assert_eq!(shared.tag, Tag::of_overflow(OVERFLOW_UNITS as u64 - 1));
    assert_eq!(slot.put(shared.tag, &cold(20), T0), Some(0));
}

#[test]
fn a_lease_or_an_unreported_count_keeps_an_entry() {
    for (kept, entry) in [
        (true, watched(0, 9, 0)),
        (true, watched(0, 0, 1)),
        (true, watched(9, 0, 0)),
        (false, watched(0, 0, 0)),
    ] {
        let mut slot = Slot::empty();
        for n in 0..KEYS_PER_SLOT as u64 / 2 {
            assert_eq!(slot.put(tag(n), &entry, T0), Some(0));
        }
        assert_eq!(slot.put(tag(99), &cold(1), T0 + 1).is_none(), kept, "{entry:?}");
    }
    // What nobody ever confirmed does not stay for ever.
    let Entry::Watched(w) = watched(0, 0, 1) else { unreachable!() };
    assert!(Entry::Watched(w).is_spent(T0 + UNCONFIRMED_NS_MAX + 1));
}

#[test]
fn of_full_buckets_the_one_idle_for_longest_goes_first() {
    let quota = Quota::new(Rate::new(10, Period::Second).unwrap(), 10).unwrap();
    let mut slot = Slot::empty();
    for n in 0..KEYS_PER_SLOT as u64 {
        let used_at = if n == 9 { T0 } else { T0 + n * SECOND_NS };
        let share = Share::WHOLE.take(&quota, 1, 1, used_at).unwrap();
        slot.put(tag(n), &Entry::Cold(Cold { bucket: Bucket::FULL, share }), T0);
    }
    let later = T0 + 100 * SECOND_NS;
    slot.put(tag(0), &cold(500), later);
    assert_eq!(slot.put(tag(99), &cold(500), later), Some(1));
    assert_eq!(slot.get(tag(9)), None);
    assert_eq!(slot.put(tag(98), &cold(500), later), Some(1));
    assert_eq!(slot.get(tag(1)), None);
}

/// Ten a second, ten at once, cut in so many parts.
fn unheard(parts: u32) -> Unheard {
    let quota = Quota::new(Rate::new(10, Period::Second).unwrap(), 10).unwrap();
    Unheard { quota, local_burst: 10, parts }
}

#[test]
fn what_a_share_lost_is_reported_though_the_bucket_has_refilled() {
    let unheard = unheard(4);
    let share = Share::WHOLE.take(&unheard.quota, 2, 4, T0).unwrap();
    let cold = Cold { bucket: Bucket::FULL, share };
    assert_eq!(Watched::begin(&cold, &unheard, 1, T0).admitted, 2 + 1);
    // What the bucket lacks beside is not this key's to report.
    let bucket = Bucket::full_at(T0 + 8 * 100_000_000);
    assert_eq!(Watched::begin(&Cold { bucket, ..cold }, &unheard, 1, T0).admitted, 2 + 1);
}

#[test]
fn what_the_bucket_has_refilled_was_admitted_while_it_did() {
    let (unheard, now) = (unheard(4), T0 + 10 * SECOND_NS);
    let share = Share::WHOLE.overdraw(&unheard.quota, 9, 4, now);
    let since = |lacks: u64, local_burst: u32| {
        let cold = Cold { bucket: Bucket::full_at(now + lacks * 100_000_000), share };
        let begun = Watched::begin(&cold, &Unheard { local_burst, ..unheard }, 1, now);
        begun.unheard_ns(now) / 10_000_000
    };
    // Of nine tokens seven; what the POP withholds of its burst is none that was admitted.
    assert_eq!([since(2, 10), since(9, 10), since(10, 10), since(8, 4)], [69, 0, 0, 69]);
}

#[test]
fn watching_a_key_keeps_its_bucket_or_its_place() {
    let mut slot = Slot::empty();
    slot.put(tag(1), &cold(5), T0);
    assert_eq!(slot.put(tag(1), &watched(5, 0, 1), T0), Some(0));
    assert_eq!(slot.get(tag(1)), Some(watched(5, 0, 1)));
    let mut full = indebted(5);
    assert_eq!(full.put(tag(1), &watched(5, 0, 1), T0), None);
    assert_eq!(full.get(tag(1)), Some(cold(5)));
}

#[test]
fn counters_begin_a_new_epoch_before_they_wrap() {
    let mut w = Watched::begin(&Cold::NEW, &unheard(1), 0, T0);
    (w.admitted, w.asked, w.charged) = (COUNT_MAX + 1, COUNT_MAX + 9, COUNT_MAX - 4);
    let later = T0 + SECOND_NS;
    w.count_admitted(1, later);
    assert_eq!((w.admitted, w.charged, w.epoch), (6, 0, epoch_of(later)));
    // What is only asked for wraps no counter either.
    w.asked = COUNT_MAX + 1;
    w.count_asked(9, later + SECOND_NS);
    assert_eq!((w.admitted, w.asked, w.epoch), (6, 15, epoch_of(later + SECOND_NS)));
}

proptest! {
    /// Beside a map that forgets nothing: a slot holds every entry that still says something.
    #[test]
    fn holds_all_that_matters(ops in prop::collection::vec((0u64..40, 0u64..20, 0u64..3, prop::bool::ANY), 1..200)) {
        let (mut slot, mut model, mut now) = (Slot::empty(), BTreeMap::new(), T0);
        for (key, full_in_s, step_s, watch) in ops {
            now += step_s * SECOND_NS;
            let lodging = slot.lodge(tag(key), OVERFLOW, now);
            if lodging.tag == tag(key) {
                let known = model.get(&key).copied().filter(|entry: &Entry| !entry.is_spent(now));
                if let Some(known) = known { prop_assert_eq!(lodging.entry, known); }
            }
            let ends = now.nanos_since(T0) / SECOND_NS + full_in_s;
            let entry = if watch { watched(ends, ends, 0) } else { cold(ends) };
            if slot.put(lodging.tag, &entry, now).is_some() && lodging.tag == tag(key) {
                model.insert(key, entry);
            }
            for (key, entry) in &model {
                let held = slot.get(tag(*key));
                prop_assert!(entry.is_spent(now) || held == Some(*entry), "key {} lost", key);
            }
            let sealed = slot.sealed().to_vec();
            let mut copy = Slot::empty();
            copy.copy_from(&slot);
            assert!(slot.unseal(sealed) && copy.entries().eq(slot.entries()));
        }
    }
}
