//! The local cache: refusals of keys that cannot have a token yet, so that a flood from one key costs a table look-up
//! only when a token may have come. A fixed array of pairs: a third key with the same place replaces the refusal that
//! expires first, which only costs look-ups.

use alloc::vec::Vec;

use crate::check::decision::LimitReason;
use crate::table::slot::Tag;
use weir_protocol::time::{SECOND_NS, Time};

const KEYS: usize = 4_096;
/// Longest validity of a refusal, in nanoseconds: no reset by another worker is missed for longer.
const TRUSTED_NS_MAX: u64 = SECOND_NS / 2;

/// A refusal of a key, for requests of this cost or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    /// Cost of the refused request. A cheaper one may fit sooner.
    pub(crate) cost: u32,
    pub(crate) is_ban: bool,
    /// Time at which that many tokens are there.
    pub(crate) until: Time,
}

impl Denial {
    pub(crate) fn reason(&self) -> LimitReason {
        if self.is_ban { LimitReason::Ban } else { LimitReason::Limit }
    }
}

#[derive(Clone, Copy)]
struct Remembered {
    tag: u64,
    trusted_until: Time,
    denial: Denial,
}

pub(crate) struct LocalCache {
    entries: Vec<Remembered>,
    /// The latest `trusted_until` of all refusals.
    trusted_until: Time,
    /// Keys whose refusals were dropped, if that is recorded; at most [`KEYS`].
    forgotten: Option<Vec<Tag>>,
}

impl LocalCache {
    pub(crate) fn new() -> Self {
        let denial = Denial { cost: 0, is_ban: false, until: Time::ZERO };
        let empty = Remembered { tag: 0, trusted_until: Time::ZERO, denial };
        Self { entries: alloc::vec![empty; KEYS], trusted_until: Time::ZERO, forgotten: None }
    }

    /// True if any refusal may be in force at `now`.
    pub(crate) fn is_worth_asking(&self, now: Time) -> bool {
        now < self.trusted_until
    }

    /// The refusal in force at `now` for a request of `tag` that costs `cost`.
    pub(crate) fn get(&self, tag: Tag, cost: u32, now: Time) -> Option<Denial> {
        let same = self.pair(tag).iter().filter(|entry| entry.tag == tag.bits() && now < entry.trusted_until);
        same.map(|entry| entry.denial).find(|denial| cost >= denial.cost)
    }

    pub(crate) fn forget(&mut self, tag: Tag) {
        for entry in self.pair_mut(tag).iter_mut().filter(|entry| entry.tag == tag.bits()) {
            entry.trusted_until = Time::ZERO;
        }
        if let Some(forgotten) = self.forgotten.as_mut().filter(|forgotten| forgotten.len() < KEYS) {
            forgotten.push(tag);
        }
    }

    /// Starts to record the keys whose refusals are dropped.
    pub(crate) fn record_forgotten(&mut self) {
        self.forgotten = Some(Vec::new());
    }

    /// Takes the recorded keys. If there were more than [`KEYS`], refusals of the rest expire within half a second.
    pub(crate) fn take_forgotten(&mut self) -> Vec<Tag> {
        self.forgotten.as_mut().map(core::mem::take).unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.iter_mut().for_each(|entry| (entry.tag, entry.trusted_until) = (0, Time::ZERO));
    }

    pub(crate) fn remember(&mut self, tag: Tag, denial: Denial, now: Time) {
        let trusted_until = denial.until.min(now + TRUSTED_NS_MAX);
        self.trusted_until = self.trusted_until.max(trusted_until);
        let place = self.pair_mut(tag).iter_mut().min_by_key(|entry| (entry.tag != tag.bits(), entry.trusted_until));
        if let Some(place) = place {
            *place = Remembered { tag: tag.bits(), trusted_until, denial };
        }
    }

    fn pair(&self, tag: Tag) -> &[Remembered] {
        let at = place(tag);
        self.entries.get(at..at + 2).unwrap_or_default()
    }

    fn pair_mut(&mut self, tag: Tag) -> &mut [Remembered] {
        let at = place(tag);
        self.entries.get_mut(at..at + 2).unwrap_or_default()
    }
}

/// Index of the pair for `tag`. Tags are hashes, so their low bits will do.
fn place(tag: Tag) -> usize {
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are as good as any")]
    let low = tag.bits() as usize;
    (low % KEYS) & !1
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Time = Time::from_nanos(SECOND_NS);

    fn denial(ns: u64) -> Denial {
        Denial { cost: 1, is_ban: false, until: T0 + ns }
    }

    // I3
    #[test]
    fn a_refusal_is_valid_for_half_a_second_until_a_token_comes_or_it_is_forgotten() {
        let (mut cache, tag, other) = (LocalCache::new(), Tag::of_key(9, 0), Tag::of_key(8, 0));
        assert!(!cache.is_worth_asking(T0));
        for (until_ns, cost, after_ns, is_refused) in [
            (100, 5, 99, true),
            (100, 6, 99, true),
            (100, 4, 99, false),
            (100, 5, 100, false),
            (3_600 * SECOND_NS, 5, SECOND_NS / 2 - 1, true),
            (3_600 * SECOND_NS, 5, SECOND_NS / 2, false),
        ] {
            cache.remember(tag, Denial { cost: 5, ..denial(until_ns) }, T0);
            assert_eq!(cache.get(tag, cost, T0 + after_ns).is_some(), is_refused, "{cost} after {after_ns} ns");
            assert!(!is_refused || cache.is_worth_asking(T0 + after_ns));
        }
        cache.remember(other, denial(100), T0);
        cache.forget(tag);
        assert_eq!((cache.get(tag, 5, T0), cache.get(other, 1, T0)), (None, Some(denial(100))));
        cache.clear();
        assert_eq!(cache.get(other, 1, T0), None);
    }

    #[test]
    fn keys_that_meet_displace_and_never_answer_for_each_other() {
        let mut cache = LocalCache::new();
        let [a, b, c] = [5, 5 + KEYS as u64, 4 + 2 * KEYS as u64].map(|tag| Tag::of_key(tag, 0));
        cache.remember(a, denial(100), T0);
        assert_eq!(cache.get(b, 1, T0), None);
        cache.remember(b, denial(200), T0);
        assert!(cache.get(a, 1, T0).is_some() && cache.get(b, 1, T0).is_some(), "two have room");
        cache.remember(c, denial(100), T0);
        assert_eq!([a, b, c].map(|tag| cache.get(tag, 1, T0).is_some()), [false, true, true]);
    }
}
