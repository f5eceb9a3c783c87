//! The watched keys a worker has met: what it owes a report, and the credit of its thinning.
//!
//! Shared data cannot be enumerated, so each worker remembers for itself which watched keys it
//! touched. Two workers may both report a key: counts are cumulative, and the receiver takes the
//! maximum.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::key::KeyValue;
use crate::slot::Tag;
use crate::time::{SECOND_NS, Time};
use crate::wire::{AdmitRatio, KEYS_MAX};

/// Watched keys a worker remembers at most.
const WATCH_MAX: usize = 4_096;
/// How many keys are looked at for one that may make room for another.
const NEIGHBOURS_MAX: usize = 8;
/// What a key takes in a report beside its value, in bytes, at most or nearly so: an epoch, and counts.
const KEY_BYTES: u64 = 20;
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
    /// What the latest report said of it, answered or not, that has not come to nothing.
    said: u64,
    /// What the latest answered report said of it, or would have if there had been anything to say.
    reported: u64,
    /// What `asked` was when it was last looked for what is due.
    looked: u64,
    /// What the latest request asked for, ...
    cost: u32,
    /// ... and the dearest.
    dearest: u32,
    /// Something happened that no report has said.
    pub(crate) dirty: bool,
    /// Since when, if it is dirty.
    pub(crate) dirty_since: Time,
    touched_at: Time,
    /// When it was last put into a report, or met.
    said_at: Time,
    /// Whether weir-sync last called it hot, or gave it a lease.
    is_hot: bool,
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
    /// False if there is no room.
    pub(crate) fn learn(&mut self, tag: Tag, rule: u16, value: &KeyValue, slot: u32, now: Time) -> bool {
        let has_room = self.has_room(tag);
        if has_room {
            self.entry(tag, rule, value, slot, now).soil(now);
        }
        has_room
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
            said: 0,
            reported: 0,
            looked: 0,
            cost: 1,
            dearest: 1,
            dirty: false,
            dirty_since: now,
            touched_at: now,
            said_at: now,
            is_hot: false,
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

    /// What the dearest request for the key asked for, as far as it is known here.
    pub(crate) fn dearest(&self, tag: Tag) -> u32 {
        self.keys.get(&tag.bits()).map_or(0, |key| key.dearest)
    }

    fn credit(&mut self, tag: Tag) -> &mut u32 {
        match self.keys.get_mut(&tag.bits()) {
            Some(key) => &mut key.credit,
            None => &mut self.shared_credit,
        }
    }

    /// Forgets a key that has nothing to say, among a few that lie next to `tag`, rather one that is not hot; false
    /// if all have.
    fn make_room(&mut self, tag: Tag) -> bool {
        let quiet = self.neighbours(tag).filter(|(_, key)| !key.dirty && key.waiting == 0);
        let quiet = quiet.min_by_key(|(_, key)| key.is_hot).map(|(tag, _)| *tag);
        quiet.is_some_and(|tag| self.keys.remove(&tag).is_some())
    }

    /// Forgets a key that is not hot, although it has something to say, for one that is. Its counts stay in shared
    /// data, and are said when it is asked for again and has room. False if all of a few are hot.
    pub(crate) fn push_out_for(&mut self, tag: Tag) -> bool {
        let light = self.neighbours(tag).find(|(_, key)| !key.matters()).map(|(tag, _)| *tag);
        light.is_some_and(|tag| self.keys.remove(&tag).is_some())
    }

    fn neighbours(&self, tag: Tag) -> impl Iterator<Item = (&u64, &WatchedKey)> {
        self.keys.range(tag.bits()..).chain(self.keys.range(..tag.bits())).take(NEIGHBOURS_MAX)
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

    /// Tags of the keys to report at `now`, in at most `bytes`. In a list that fills up, all are due that have
    /// something to say. Where not all fit, hot ones have up to three quarters of the room, so that many others do not
    /// keep them waiting; of each kind those come first that were said longest ago.
    pub(crate) fn due(&mut self, bytes: u64, now: Time) -> Vec<u64> {
        let since_ns = now.nanos_since(core::mem::replace(&mut self.looked_at, now));
        self.keys.values_mut().for_each(|key| key.look(since_ns));
        let is_crowded = self.is_crowded();
        let due = self.keys.iter().filter(|(_, key)| key.dirty && (is_crowded || key.is_due(now)));
        let mut due: Vec<_> = due.map(|(tag, key)| Due::of(*tag, key)).collect();
        let all_bytes: u64 = due.iter().map(|due| due.bytes).sum();
        if all_bytes > bytes || due.len() > KEYS_MAX {
            due = Due::first(due, bytes);
        }
        for due in &due {
            if let Some(key) = self.keys.get_mut(&due.tag) {
                key.said_at = now;
            }
        }
        due.into_iter().map(|due| due.tag).collect()
    }

    /// Keys that have something to say.
    pub(crate) fn unsaid(&self) -> impl Iterator<Item = &WatchedKey> {
        self.keys.values().filter(|key| key.dirty)
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

/// A key that is due to be reported.
struct Due {
    tag: u64,
    said_at: Time,
    matters: bool,
    bytes: u64,
}

impl Due {
    fn of(tag: u64, key: &WatchedKey) -> Self {
        let bytes = bytes_of(key.value.as_bytes());
        Self { tag, said_at: key.said_at, matters: key.matters(), bytes }
    }

    /// As many of `due` as fit.
    fn first(mut due: Vec<Self>, bytes: u64) -> Vec<Self> {
        due.sort_unstable_by_key(|due| (!due.matters, due.said_at));
        let (mut first, mut late, mut used) = (Vec::new(), Vec::new(), 0);
        for due in due {
            let room = if due.matters { bytes / 4 * 3 } else { bytes };
            if used + due.bytes <= room && first.len() < KEYS_MAX {
                used += due.bytes;
                first.push(due);
            } else if due.matters {
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

/// About how many bytes a report takes to say something of the key with this value.
pub(crate) fn bytes_of(value: &[u8]) -> u64 {
    KEY_BYTES + value.len() as u64
}

impl WatchedKey {
    /// Whether it goes before others.
    fn matters(&self) -> bool {
        self.is_hot || self.waiting > 0
    }

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

    /// Tokens asked for that no report of this worker has said; from now on one does.
    pub(crate) fn say_asked(&mut self) -> u64 {
        self.asked.wrapping_sub(core::mem::replace(&mut self.said, self.asked))
    }

    /// A report came to nothing that was the first to say what was asked for after `said`.
    pub(crate) fn unsay_asked(&mut self, said: u64) {
        let (unsaid, known) = (self.asked.wrapping_sub(said), self.asked.wrapping_sub(self.said));
        // Nor is it about a key that was forgotten and met again.
        if (known..u64::MAX / 2).contains(&unsaid) {
            self.said = said;
        }
    }

    /// Tokens asked for since its latest answered report, but for draws: however quickly those are answered, it says
    /// how often the key is asked for.
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
        self.is_hot = warm_burst.is_none();
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

    /// It is hot, and not warm any more.
    pub(crate) fn heat(&mut self) {
        (self.warm, self.is_hot) = (None, true);
    }

    fn count(&mut self, cost: u32, now: Time) {
        self.asked_unadded = self.asked_unadded.saturating_add(cost);
        self.asked = self.asked.wrapping_add(u64::from(cost));
        (self.cost, self.dearest) = (cost, cost.max(self.dearest));
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

    /// How many bytes so many keys take.
    fn bytes_for(keys: u64) -> u64 {
        keys * bytes_of(value().as_bytes())
    }

    fn met(keys: u64) -> WatchList {
        let mut list = WatchList::default();
        for n in 1..=keys {
            assert!(list.touch(Tag::of_key(n, 0), 0, &value(), 0, 1, Time::from_nanos(n)));
        }
        list
    }

    #[test]
    fn every_dirty_key_gets_its_turn() {
        let mut list = met(5);
        assert_eq!(list.due(bytes_for(3), Time::from_nanos(10)), [1, 2, 3]);
        assert_eq!(list.due(bytes_for(3), Time::from_nanos(20)), [4, 5, 1]);
        assert_eq!(list.due(bytes_for(5), Time::from_nanos(30)), [1, 2, 3, 4, 5]);
        assert_eq!(list.due(bytes_for(3) - 1, Time::from_nanos(40)).len(), 2);
    }

    #[test]
    fn a_hot_key_goes_first_but_not_without_end() {
        let mut list = met(20);
        (11..=20).for_each(|n| list.get_mut(n).unwrap().heat());
        assert_eq!(list.due(bytes_for(4), Time::from_nanos(100)), [11, 12, 13, 1]);
        assert_eq!(list.due(bytes_for(4), Time::from_nanos(101)), [14, 15, 16, 2]);
        (1..=10).for_each(|n| list.get_mut(n).unwrap().dirty = false);
        assert_eq!(list.due(bytes_for(4), Time::from_nanos(102)).len(), 4, "what others leave is theirs");
    }

    #[test]
    fn a_hot_key_pushes_out_one_that_is_not() {
        let mut list = met(3);
        list.get_mut(1).unwrap().heat();
        assert!(list.push_out_for(Tag::of_key(1, 0)));
        assert!(list.get_mut(1).is_some() && list.get_mut(2).is_none());
        list.get_mut(3).unwrap().heat();
        assert!(!list.push_out_for(Tag::of_key(1, 0)));
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
