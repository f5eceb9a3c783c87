//! The watch list: a worker's watched keys, with their unreported state and the credit for their admit ratio.
//!
//! Shared data cannot be enumerated, so each worker keeps its own list. Two workers may both report a key:
//! counts are cumulative, and weir-sync takes the maximum.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::RuleIndex;
use crate::sync::calls::ReportedKey;
use crate::sync::watched_key::{WatchedKey, bytes_of};
use crate::table::NamedKey;
use crate::table::slot::Tag;
use weir_protocol::messages::{AdmitRatio, KEYS_MAX};
use weir_protocol::time::{SECOND_NS, Time};

const WATCH_MAX: usize = 4_096;
/// Number of keys searched for one that can make room.
const NEIGHBOURS_MAX: usize = 8;
const FORGET_NS: u64 = 60 * SECOND_NS;

#[derive(Default)]
pub(crate) struct WatchList {
    /// Sorted by tag.
    keys: Vec<(u64, Box<WatchedKey>)>,
    /// Credit shared by all keys that found no room on the list.
    shared_credit: u32,
    /// Time of the last search for due keys.
    looked_at: Time,
}

impl WatchList {
    /// Adds a watched key without a request here, with something to report since `now`; false without room.
    pub(crate) fn learn(&mut self, key: &NamedKey, now: Time) -> bool {
        self.entry(key, now).map(|known| known.mark_changed(now)).is_some()
    }

    /// Counts a request of `cost` tokens for a watched key. `unconfirmed` are its entry's unconfirmed tokens, if known.
    /// False if the key is not on the list and none of its neighbours can make room.
    pub(crate) fn touch(&mut self, key: &NamedKey, cost: u32, unconfirmed: Option<u32>, now: Time) -> bool {
        self.entry(key, now).map(|known| known.count(cost, unconfirmed, now)).is_some()
    }

    /// Offers each key with something to report to `take`, which returns true if it took the key over.
    pub(crate) fn hand_over(&mut self, mut take: impl FnMut(&mut WatchedKey) -> bool) {
        for key in self.all_mut().filter(|key| key.dirty) {
            key.dirty = !take(key);
        }
    }

    /// Takes over another worker's key, whose rule is `rule` here; false without room.
    pub(crate) fn take_over(&mut self, key: &mut WatchedKey, rule: RuleIndex, now: Time) -> bool {
        let name = NamedKey { rule, ..key.name };
        self.entry(&name, now).map(|known| known.take_over(key)).is_some()
    }

    /// The key's entry, new if necessary; `None` without room.
    #[inline(never)]
    fn entry(&mut self, key: &NamedKey, now: Time) -> Option<&mut WatchedKey> {
        let tag = key.place.tag;
        let at = match self.place(tag.bits()) {
            Ok(at) => at,
            Err(mut at) => {
                if self.keys.len() >= WATCH_MAX {
                    if !self.make_room(tag) {
                        return None;
                    }
                    // The dropped key may have been before it.
                    at = self.place(tag.bits()).unwrap_or_else(|at| at);
                }
                self.keys.insert(at, (tag.bits(), Box::new(WatchedKey::new(key, now))));
                at
            }
        };
        self.keys.get_mut(at).map(|(_, key)| &mut **key)
    }

    /// Index of the key `tag`; if it is not on the list, the index that it would have.
    fn place(&self, tag: u64) -> Result<usize, usize> {
        self.keys.binary_search_by_key(&tag, |(known, _)| *known)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut WatchedKey> {
        self.keys.iter_mut().map(|(_, key)| &mut **key)
    }

    /// [`WatchList::touch`] for a key that may be on the list; otherwise nothing is counted.
    pub(crate) fn touch_known(&mut self, tag: Tag, cost: u32, unconfirmed: Option<u32>, now: Time) {
        if let Some(key) = self.get_mut(tag.bits()) {
            key.count(cost, unconfirmed, now);
        }
    }

    pub(crate) fn contains(&self, tag: Tag) -> bool {
        self.place(tag.bits()).is_ok()
    }

    /// Adds `ratio` to the key's credit; true if the credit is enough for one request. This is error diffusion,
    /// independent of the requests' costs: of any n consecutive requests, ratio x n are admitted, give or take one, and
    /// evenly spread. Keys that found no room on the list share one credit.
    pub(crate) fn is_due(&mut self, tag: Tag, ratio: AdmitRatio) -> bool {
        let credit = self.credit(tag);
        *credit = credit.saturating_add(ratio.bits());
        *credit >= AdmitRatio::ONE.bits()
    }

    /// Cost of the key's most expensive request; 0 if the key is not on the list.
    pub(crate) fn dearest(&self, tag: Tag) -> u32 {
        self.place(tag.bits()).ok().and_then(|at| self.keys.get(at)).map_or(0, |(_, key)| key.dearest)
    }

    fn credit(&mut self, tag: Tag) -> &mut u32 {
        match self.place(tag.bits()).ok().and_then(|at| self.keys.get_mut(at)) {
            Some((_, key)) => &mut key.credit,
            None => &mut self.shared_credit,
        }
    }

    /// Drops one of a few keys next to `tag` that has nothing to report, hot keys last; false if all have.
    fn make_room(&mut self, tag: Tag) -> bool {
        let quiet = self.neighbours(tag).filter(|(_, key)| !key.dirty);
        let quiet = quiet.min_by_key(|(_, key)| key.is_hot).map(|(tag, _)| *tag);
        quiet.is_some_and(|tag| self.remove(tag))
    }

    /// Drops one of a few keys next to `tag` that is not hot, to make room for a hot one. Unreported state of the
    /// dropped key is reported once there is demand for it again and room. False if all of the few are hot.
    pub(crate) fn push_out_for(&mut self, tag: Tag) -> bool {
        let light = self.neighbours(tag).find(|(_, key)| !key.is_hot).map(|(tag, _)| *tag);
        light.is_some_and(|tag| self.remove(tag))
    }

    fn neighbours(&self, tag: Tag) -> impl Iterator<Item = &(u64, Box<WatchedKey>)> {
        let at = self.place(tag.bits()).unwrap_or_else(|at| at);
        self.keys.iter().skip(at).chain(self.keys.iter().take(at)).take(NEIGHBOURS_MAX)
    }

    /// Settles the key's credit after the decision. An admitted request uses up one; otherwise at most one is kept.
    pub(crate) fn settle(&mut self, tag: Tag, admitted: bool) {
        let (credit, one) = (self.credit(tag), AdmitRatio::ONE.bits());
        *credit = if admitted { credit.saturating_sub(one) } else { (*credit).min(one) };
    }

    // Out of line: one copy in the module instead of one per look-up.
    #[inline(never)]
    pub(crate) fn get_mut(&mut self, tag: u64) -> Option<&mut WatchedKey> {
        let at = self.place(tag).ok()?;
        self.keys.get_mut(at).map(|(_, key)| &mut **key)
    }

    pub(crate) fn remove(&mut self, tag: u64) -> bool {
        self.place(tag).map(|at| self.keys.remove(at)).is_ok()
    }

    /// Replaces each key's rule index by `to`, and drops keys of rules without one.
    pub(crate) fn renumber(&mut self, to: impl Fn(RuleIndex) -> Option<RuleIndex>) {
        self.keys.retain_mut(|(_, key)| to(key.name.rule).map(|rule| key.name.rule = rule).is_some());
    }

    /// Tags of the keys to report at `now`, in at most `bytes`. If the list is filling up, every key with something to
    /// report is due. If not all fit, hot keys go first, in up to three quarters of the room, so that a crowd of
    /// others cannot delay them. Within each kind, keys go by the weight of the time since their last report. `weigh`
    /// returns the weight of a nanosecond, given the rule, the tokens and the nanoseconds. The tokens are the demand
    /// here since that report or, if more, the POP's unconfirmed ones: a client that spreads its requests sends few to
    /// each worker.
    pub(crate) fn due(&mut self, bytes: u64, now: Time, weigh: impl Fn(RuleIndex, u64, u64) -> u64) -> Vec<u64> {
        let since_ns = now.nanos_since(core::mem::replace(&mut self.looked_at, now));
        self.all_mut().for_each(|key| key.look(since_ns));
        let is_crowded = self.is_crowded();
        let due = self.keys.iter().filter(|(_, key)| key.dirty && (is_crowded || key.is_due(now)));
        let of = |(tag, key): &(u64, Box<WatchedKey>)| {
            let waits_ns = now.nanos_since(key.reported_at);
            let tokens = key.unreported().max(key.unconfirmed.into());
            let weight = weigh(key.name.rule, tokens, waits_ns).saturating_mul(waits_ns);
            let bytes = bytes_of(key.name.value.as_bytes());
            Due { is_hot: Reverse(key.is_hot), weight: Reverse(weight), tag: *tag, bytes }
        };
        let mut due: Vec<_> = due.map(of).collect();
        let all_bytes: u64 = due.iter().map(|due| due.bytes).sum();
        if all_bytes > bytes || due.len() > KEYS_MAX {
            due = Due::first(due, bytes);
        }
        for due in &due {
            if let Some(key) = self.get_mut(due.tag) {
                key.reported_at = now;
            }
        }
        due.into_iter().map(|due| due.tag).collect()
    }

    pub(crate) fn report_again(&mut self, keys: &[ReportedKey]) {
        for reported in keys.iter().filter(|reported| !reported.is_unplaced) {
            if let Some(key) = self.get_mut(reported.place.tag.bits()) {
                key.mark_changed(reported.dirty_since);
            }
        }
    }

    /// Undoes a report of these keys, as if it had never been made.
    pub(crate) fn undo_report(&mut self, keys: &[ReportedKey]) {
        self.report_again(keys);
        for reported in keys.iter().filter(|reported| !reported.is_unplaced) {
            if let Some(key) = self.get_mut(reported.place.tag.bits()) {
                key.restore_unreported(reported.asked.wrapping_sub(reported.asked_recently));
            }
        }
    }

    /// Makes every key with something to report due.
    pub(crate) fn hurry(&mut self) {
        self.all_mut().for_each(WatchedKey::hurry);
    }

    pub(crate) fn unreported(&self) -> impl Iterator<Item = &WatchedKey> {
        self.keys.iter().map(|(_, key)| &**key).filter(|key| key.dirty)
    }

    /// True if the list is more than half full.
    pub(crate) fn is_crowded(&self) -> bool {
        self.keys.len() > WATCH_MAX / 2
    }

    /// Drops keys without recent demand that have nothing to report.
    pub(crate) fn forget_idle(&mut self, now: Time) {
        self.keys.retain(|(_, key)| key.dirty || now.nanos_since(key.touched_at) < FORGET_NS);
    }
}

/// A key that is due to be reported. The most urgent sorts first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    is_hot: Reverse<bool>,
    weight: Reverse<u64>,
    tag: u64,
    bytes: u64,
}

impl Due {
    /// The most urgent of `due`, up to `bytes`.
    fn first(due: Vec<Self>, bytes: u64) -> Vec<Self> {
        let (mut first, mut late, mut used) = (Vec::new(), Vec::new(), 0);
        // A heap's sort takes a fraction of the code of a slice's.
        for due in BinaryHeap::from(due).into_sorted_vec() {
            let room = if due.is_hot.0 { bytes / 4 * 3 } else { bytes };
            if used + due.bytes <= room && first.len() < KEYS_MAX {
                used += due.bytes;
                first.push(due);
            } else if due.is_hot.0 {
                late.push(due);
            }
        }
        for due in late {
            if used + due.bytes <= bytes && first.len() < KEYS_MAX {
                used += due.bytes;
                first.push(due);
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::EntryPlace;
    use proptest::prelude::*;
    use weir_rules::address::Prefixes;
    use weir_rules::key::KeyValue;

    const RULE: RuleIndex = RuleIndex::new(0);

    fn value() -> KeyValue {
        KeyValue::of_address("192.0.2.1".parse().unwrap(), Prefixes::default())
    }

    fn key(n: u64) -> NamedKey {
        NamedKey { place: EntryPlace { tag: Tag::of_key(n, 0), slot: 0 }, rule: RULE, value: value() }
    }

    // I2
    #[test]
    fn the_list_is_bounded() {
        let mut list = WatchList::default();
        for n in 0..WATCH_MAX as u64 {
            assert!(list.touch(&key(n), 1, None, Time::ZERO));
        }
        assert!(!list.touch(&key(1 << 40), 1, None, Time::ZERO));
        assert!(list.touch(&key(1), 1, None, Time::ZERO));
        assert_eq!(list.keys.len(), WATCH_MAX);
    }

    /// Bytes of `keys` keys in a report.
    fn bytes_for(keys: u64) -> u64 {
        keys * bytes_of(value().as_bytes())
    }

    fn met(keys: u64) -> WatchList {
        let mut list = WatchList::default();
        for n in 1..=keys {
            assert!(list.touch(&key(n), 1, None, Time::from_nanos(n)));
        }
        list
    }

    #[test]
    fn every_dirty_key_gets_its_turn() {
        let mut list = met(5);
        assert_eq!(list.due(bytes_for(3), Time::from_nanos(10), |_, _, _| 1), [1, 2, 3]);
        assert_eq!(list.due(bytes_for(3), Time::from_nanos(20), |_, _, _| 1), [4, 5, 1]);
        assert_eq!(list.due(bytes_for(5), Time::from_nanos(30), |_, _, _| 1), [1, 2, 3, 4, 5]);
        assert_eq!(list.due(bytes_for(3) - 1, Time::from_nanos(40), |_, _, _| 1).len(), 2);
    }

    /// Each key has its turn, however high the demand for others.
    #[test]
    fn a_key_in_high_demand_is_reported_more_often() {
        let (mut list, mut named) = (met(40), [0; 41]);
        for round in 1..=100 {
            let now = Time::from_nanos(100 * round);
            for n in 1..=40 {
                assert!(list.touch(&key(n), if n == 7 { 50 } else { 1 }, None, now));
            }
            for tag in list.due(bytes_for(4), now, |_, tokens, _| tokens) {
                list.get_mut(tag).unwrap().take_unreported();
                named[usize::try_from(tag).unwrap()] += 1;
            }
        }
        let others = || (1..=40).filter(|n| *n != 7).map(|n| named[n]);
        assert!(named[7] >= 50 && others().all(|times| times >= 5), "{named:?}");
    }

    #[test]
    fn demand_at_all_workers_counts_for_a_keys_priority() {
        let (mut list, now) = (met(5), Time::from_nanos(100));
        assert!(list.touch(&key(2), 20, Some(20), now));
        assert!(list.touch(&key(4), 1, Some(60), now));
        assert_eq!(list.due(bytes_for(1), now, |_, tokens, _| tokens.saturating_sub(10)), [4]);
    }

    #[test]
    fn a_hot_key_goes_first_but_not_without_end() {
        let mut list = met(20);
        (11..=20).for_each(|n| list.get_mut(n).unwrap().mark_hot());
        assert_eq!(list.due(bytes_for(4), Time::from_nanos(100), |_, _, _| 1), [11, 12, 13, 1]);
        assert_eq!(list.due(bytes_for(4), Time::from_nanos(101), |_, _, _| 1), [14, 15, 16, 2]);
        (1..=10).for_each(|n| list.get_mut(n).unwrap().dirty = false);
        assert_eq!(list.due(bytes_for(4), Time::from_nanos(102), |_, _, _| 1).len(), 4, "what others leave is theirs");
    }

    proptest! {
        #[test]
        fn error_diffusion_admits_the_ratio(part in 0u32..=1_000, requests in 1u32..5_000) {
            let (mut list, tag, ratio) = (WatchList::default(), Tag::of_key(77, 0), AdmitRatio::of(part.into(), 1_000));
            let mut admitted = 0u32;
            for _ in 0..requests {
                list.touch(&key(77), 1, None, Time::ZERO);
                let due = list.is_due(tag, ratio);
                list.settle(tag, due);
                admitted += u32::from(due);
            }
            let exact = f64::from(requests) * f64::from(part) / 1_000.0;
            prop_assert!((f64::from(admitted) - exact).abs() <= 1.0 + 1e-3, "{} of {}", admitted, exact);
        }
    }
}
