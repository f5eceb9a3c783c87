//! The watched keys a worker has met: what it owes a report, and the credit of its thinning.
//!
//! Shared data cannot be enumerated, so each worker remembers for itself which watched keys it
//! touched. Two workers may both report a key: counts are cumulative, and the receiver takes the
//! maximum.

use alloc::collections::BTreeMap;

use crate::key::KeyValue;
use crate::slot::Tag;
use crate::time::{SECOND_NS, Time};
use crate::wire::AdmitRatio;

/// Watched keys a worker remembers at most.
const WATCH_MAX: usize = 4_096;
/// How many keys are looked at for one that may make room for another.
const NEIGHBOURS_MAX: usize = 8;
/// A warm key is reported this often, in nanoseconds.
pub(crate) const WARM_NS: u64 = 2 * SECOND_NS;
/// A warm key is reported before its turn once it was asked for one part in so many of its burst.
const LUMP_PART: u32 = 8;
/// The shortest span that a rate is taken from, in nanoseconds.
const SPAN_NS_MIN: u64 = SECOND_NS / 4;
/// A key untouched for so long is forgotten, in nanoseconds.
const FORGET_NS: u64 = 60 * SECOND_NS;

/// A watched key, as one worker knows it.
#[derive(Clone, Debug)]
pub(crate) struct WatchedKey {
    pub(crate) rule: u16,
    pub(crate) value: KeyValue,
    pub(crate) slot: u32,
    /// Tokens asked for and not yet added to the shared entry's `asked`.
    pub(crate) asked_unadded: u32,
    /// Tokens that this worker was asked for; wraps.
    pub(crate) asked: u64,
    /// What the latest answered report or draw said of `asked`.
    answered: u64,
    /// What the latest answered report said of it, or would have if there had been anything to say.
    reported: u64,
    /// What `asked` was when it was last looked for what is due.
    looked: u64,
    /// What the latest request asked for.
    cost: u32,
    /// Something happened that no report has said.
    pub(crate) dirty: bool,
    /// Since when, if it is dirty.
    pub(crate) dirty_since: Time,
    touched_at: Time,
    /// A strict rule's tokens that requests wait for.
    pub(crate) waiting: u32,
    /// What it was asked for when weir-sync last called it warm.
    warm: Option<Warm>,
    /// Before then it has nothing to say, unless it is asked for.
    rests_until: Time,
    /// Error diffusion: the part of a request that is due, in steps of the admit ratio.
    credit: u32,
}

/// A key that weir-sync called warm: far from its quota.
#[derive(Clone, Copy, Debug)]
struct Warm {
    /// When the report was made that was answered so.
    since: Time,
    /// What it was asked for until then, in thousandths of a token per second.
    milli: u64,
    /// Tokens asked for that are not to wait for its turn.
    lump: u32,
    /// Whether it was asked for much more, of late.
    has_grown: bool,
}

/// The watched keys of one worker.
#[derive(Default)]
pub(crate) struct WatchList {
    keys: BTreeMap<u64, WatchedKey>,
    /// The credit of all keys that found no room in the list.
    shared_credit: u32,
    /// When it was last looked for what is due.
    looked_at: Time,
}

impl WatchList {
    /// Takes in a watched key that was not asked for here, with something to say since `now`.
    pub(crate) fn learn(&mut self, tag: Tag, rule: u16, value: &KeyValue, slot: u32, now: Time) {
        if self.has_room(tag) {
            self.entry(tag, rule, value, slot, now).soil(now);
        }
    }

    /// Counts a request of `cost` tokens for a watched key; false if the list is full of keys with something
    /// to say, and does not know this one.
    pub(crate) fn touch(
        &mut self,
        tag: Tag,
        rule: u16,
        value: &KeyValue,
        slot: u32,
        cost: u32,
        now: Time,
    ) -> bool {
        let has_room = self.has_room(tag);
        if has_room {
            self.entry(tag, rule, value, slot, now).count(cost, now);
        }
        has_room
    }

    fn has_room(&mut self, tag: Tag) -> bool {
        self.keys.len() < WATCH_MAX || self.keys.contains_key(&tag.bits()) || self.make_room(tag)
    }

    fn entry(&mut self, tag: Tag, rule: u16, value: &KeyValue, slot: u32, now: Time) -> &mut WatchedKey {
        self.keys.entry(tag.bits()).or_insert_with(|| WatchedKey {
            rule,
            value: *value,
            slot,
            asked_unadded: 0,
            asked: 0,
            answered: 0,
            reported: 0,
            looked: 0,
            cost: 1,
            dirty: false,
            dirty_since: now,
            touched_at: now,
            waiting: 0,
            warm: None,
            rests_until: Time::ZERO,
            credit: first_credit(tag),
        })
    }

    /// Counts a request of `cost` tokens for a key if it is known here.
    pub(crate) fn touch_known(&mut self, tag: Tag, cost: u32, now: Time) {
        if let Some(key) = self.keys.get_mut(&tag.bits()) {
            key.count(cost, now);
        }
    }

    /// Adds `ratio` to the key's credit; whether a whole request is due.
    ///
    /// Error diffusion, whatever requests cost: over any run of n requests, ratio x n are due, give or take one, and evenly
    /// spread. Keys that found no room in the list share one credit.
    pub(crate) fn is_due(&mut self, tag: Tag, ratio: AdmitRatio) -> bool {
        let credit = self.credit(tag);
        *credit = credit.saturating_add(ratio.bits());
        *credit >= AdmitRatio::ONE.bits()
    }

    fn credit(&mut self, tag: Tag) -> &mut u32 {
        match self.keys.get_mut(&tag.bits()) {
            Some(key) => &mut key.credit,
            None => &mut self.shared_credit,
        }
    }

    /// Forgets a key that has nothing to say, among a few that lie next to `tag`; false if all have.
    fn make_room(&mut self, tag: Tag) -> bool {
        let next = self.keys.range(tag.bits()..).chain(self.keys.range(..tag.bits()));
        let quiet =
            next.take(NEIGHBOURS_MAX).find(|(_, key)| !key.dirty && key.waiting == 0).map(|(tag, _)| *tag);
        quiet.is_some_and(|tag| self.keys.remove(&tag).is_some())
    }

    /// Settles the key's credit after the decision: a request let through uses one up, and one that
    /// was not leaves at most one.
    pub(crate) fn settle(&mut self, tag: Tag, admitted: bool) {
        let (credit, one) = (self.credit(tag), AdmitRatio::ONE.bits());
        *credit = if admitted { credit.saturating_sub(one) } else { (*credit).min(one) };
    }

    pub(crate) fn get_mut(&mut self, tag: u64) -> Option<&mut WatchedKey> {
        self.keys.get_mut(&tag)
    }

    pub(crate) fn remove(&mut self, tag: u64) {
        self.keys.remove(&tag);
    }

    /// Gives each key's rule the index that `to` says, and forgets the keys of rules that have none.
    pub(crate) fn renumber(&mut self, to: impl Fn(u16) -> Option<u16>) {
        self.keys.retain(|_, key| to(key.rule).map(|rule| key.rule = rule).is_some());
    }

    /// Tags of up to `most` keys that are due to be reported at `now`, beginning behind `after` and
    /// going round. In a list that fills up, all are that have something to say.
    pub(crate) fn due_after(&mut self, after: u64, most: usize, now: Time) -> alloc::vec::Vec<u64> {
        let since_ns = now.nanos_since(core::mem::replace(&mut self.looked_at, now));
        self.keys.values_mut().for_each(|key| key.look(since_ns));
        let is_crowded = self.is_crowded();
        let behind = self.keys.range(after.saturating_add(1)..);
        let before = self.keys.range(..=after);
        let due = behind.chain(before).filter(|(_, key)| key.dirty && (is_crowded || key.is_due(now)));
        due.map(|(tag, _)| *tag).take(most).collect()
    }

    /// Whether it fills up.
    pub(crate) fn is_crowded(&self) -> bool {
        self.keys.len() > WATCH_MAX / 2
    }

    /// Forgets keys that nobody asked for and that have nothing to say.
    pub(crate) fn forget_idle(&mut self, now: Time) {
        self.keys
            .retain(|_, key| key.dirty || key.waiting > 0 || now.nanos_since(key.touched_at) < FORGET_NS);
    }
}

impl WatchedKey {
    /// Whether it is to be reported now: a warm key in its own time, or at once where it is asked for
    /// twice as much as when it was called warm, or for a good part of its burst.
    fn is_due(&self, now: Time) -> bool {
        if now < self.rests_until && self.asked_recently() == 0 && self.waiting == 0 {
            return false;
        }
        let Some(warm) = self.warm else { return true };
        let since_ns = now.nanos_since(warm.since);
        since_ns >= WARM_NS || warm.has_grown || self.asked_recently() > u64::from(warm.lump)
    }

    /// Notes what it was asked for in the last `since_ns` nanoseconds.
    fn look(&mut self, since_ns: u64) {
        let asked = self.asked.wrapping_sub(core::mem::replace(&mut self.looked, self.asked));
        if let Some(warm) = &mut self.warm {
            let expected_milli = u128::from(warm.milli) * u128::from(since_ns) / u128::from(SECOND_NS);
            // Two requests more are no growth.
            let slack_milli = 2_000 * u128::from(self.cost);
            warm.has_grown |= u128::from(asked) * 1_000 > 2 * expected_milli + slack_milli;
        }
    }

    /// Tokens asked for since this worker's latest answered report or draw.
    pub(crate) fn asked_recently(&self) -> u64 {
        self.asked.wrapping_sub(self.answered)
    }

    /// The same, but for draws: however quickly those are answered, it says how often the key is asked for.
    pub(crate) fn asked_since_report(&self) -> u64 {
        self.asked.wrapping_sub(self.reported)
    }

    /// A report is answered that said `asked`; or none was to be made.
    pub(crate) fn reported(&mut self, asked: u64) {
        let is_late = asked.wrapping_sub(self.reported) > u64::MAX / 2;
        if !is_late {
            self.reported = asked;
        }
    }

    /// A report that was made at `sent_at` is answered, and what it said of this key is known: `asked`
    /// tokens asked for until then, those not known before since `since`. Reports may be answered out of order.
    /// A key that is warm has the `burst` of its rule.
    pub(crate) fn answered(&mut self, asked: u64, since: Time, sent_at: Time, warm_burst: Option<u32>) {
        let new = asked.wrapping_sub(self.answered);
        let is_late = new > u64::MAX / 2;
        if is_late {
            return;
        }
        self.answered = asked;
        let span_ns = sent_at.nanos_since(self.warm.map_or(since, |warm| warm.since));
        let milli = u128::from(new) * 1_000 * u128::from(SECOND_NS) / u128::from(span_ns.max(SPAN_NS_MIN));
        let milli = u64::try_from(milli).unwrap_or(u64::MAX);
        self.warm =
            warm_burst.map(|burst| Warm { since: sent_at, milli, lump: burst / LUMP_PART, has_grown: false });
    }

    /// Whether weir-sync has called it warm.
    pub(crate) fn is_warm(&self) -> bool {
        self.warm.is_some()
    }

    /// It is not warm any more.
    pub(crate) fn heat(&mut self) {
        self.warm = None;
    }

    fn count(&mut self, cost: u32, now: Time) {
        self.asked_unadded = self.asked_unadded.saturating_add(cost);
        self.asked = self.asked.wrapping_add(u64::from(cost));
        self.cost = cost;
        self.soil(now);
        self.touched_at = now;
    }

    /// There is nothing to say before `until`, unless it is asked for; and then there is.
    pub(crate) fn rest(&mut self, until: Time, now: Time) {
        self.soil(now);
        self.rests_until = until;
    }

    /// There is something to say that began at `since`.
    pub(crate) fn soil(&mut self, since: Time) {
        self.dirty_since = if self.dirty { self.dirty_since.min(since) } else { since };
        self.dirty = true;
    }
}

/// The first credit comes from the key's hash, which differs from POP to POP (the secret does), so
/// that they do not let their first request through all at once.
fn first_credit(tag: Tag) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "any bits of a hash will do")]
    let bits = (tag.bits() >> 20) as u32;
    bits % AdmitRatio::ONE.bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Prefixes;
    use proptest::prelude::*;

    fn value() -> KeyValue {
        KeyValue::of_address("192.0.2.1".parse().unwrap(), Prefixes::default())
    }

    #[test]
    fn the_list_is_bounded() {
        let mut list = WatchList::default();
        for n in 0..WATCH_MAX as u64 {
            assert!(list.touch(Tag::of_key(n, 0), 0, &value(), 0, 1, Time::ZERO));
        }
        assert!(!list.touch(Tag::of_key(1 << 40, 0), 0, &value(), 0, 1, Time::ZERO));
        assert!(list.touch(Tag::of_key(1, 0), 0, &value(), 0, 1, Time::ZERO));
        assert_eq!(list.keys.len(), WATCH_MAX);
    }

    #[test]
    fn a_key_with_nothing_to_say_makes_room() {
        let mut list = WatchList::default();
        for n in 0..WATCH_MAX as u64 {
            assert!(list.touch(Tag::of_key(n, 0), 0, &value(), 0, 1, Time::ZERO));
        }
        list.get_mut(102).unwrap().dirty = false;
        assert!(!list.touch(Tag::of_key((1 << 40) + 5, 0), 0, &value(), 0, 1, Time::ZERO));
        list.get_mut(3).unwrap().dirty = false;
        assert!(list.touch(Tag::of_key((1 << 40) + 5, 0), 0, &value(), 0, 1, Time::ZERO));
        assert!(list.get_mut(3).is_none());
        assert_eq!(list.keys.len(), WATCH_MAX);
    }

    #[test]
    fn a_key_without_room_is_thinned_all_the_same() {
        let (mut list, tag) = (WatchList::default(), Tag::of_key(9, 0));
        assert!((0..100).all(|_| !list.is_due(tag, AdmitRatio::ZERO)));
        let due = (0..100).filter(|_| {
            let due = list.is_due(tag, AdmitRatio::of(1, 4));
            list.settle(tag, due);
            due
        });
        assert_eq!(due.count(), 25);
    }

    #[test]
    fn every_dirty_key_gets_its_turn() {
        let mut list = WatchList::default();
        (1..=5).for_each(|n| assert!(list.touch(Tag::of_key(n, 0), 0, &value(), 0, 1, Time::ZERO)));
        assert_eq!(list.due_after(0, 3, Time::ZERO), [1, 2, 3]);
        assert_eq!(list.due_after(3, 3, Time::ZERO), [4, 5, 1]);
    }

    proptest! {
        #[test]
        fn error_diffusion_admits_the_ratio(part in 0u32..=1_000, requests in 1u32..5_000) {
            let (mut list, tag, ratio) = (WatchList::default(), Tag::of_key(77, 0), AdmitRatio::of(part.into(), 1_000));
            let mut admitted = 0u32;
            for _ in 0..requests {
                list.touch(tag, 0, &value(), 0, 1, Time::ZERO);
                let due = list.is_due(tag, ratio);
                list.settle(tag, due);
                admitted += u32::from(due);
            }
            let exact = f64::from(requests) * f64::from(part) / 1_000.0;
            prop_assert!((f64::from(admitted) - exact).abs() <= 1.0 + 1e-3, "{} of {}", admitted, exact);
        }
    }
}
