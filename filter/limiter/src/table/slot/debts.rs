//! Debts of evicted keys, three bytes each.
//!
//! If more keys are in debt than a slot has entries, the smallest debts are kept here, as a label and the time at which
//! the bucket is full again. This is the Space-Saving algorithm of Metwally, Agrawal and El Abbadi ("Efficient
//! Computation of Frequent and Top-k Elements in Data Streams", 2005), over counts that decay. A flood's tail is stored
//! ever more coarsely, never too low.
//!
//! * A **label** is the group of the key's rule and eight bits of the key. All keys with a debt's label owe it.
//! * A **time** has seven significant bits, and is rounded up. It is relative to the slot's *base*, the
//!   latest time at which the debts changed; debts paid by then are dropped.
//! * If there would be more than [`DEBTS_MAX`], the smallest debt of the group with the most is merged into a
//!   shared one. Every key of the group without an entry owes it, so new keys start with less.
//!
//! **No key owes less for being evicted.** A debt leaves this list when it is paid, or when another debt that is at
//! least as large also covers it. So a key's bucket is never fuller than if it had kept its entry (I3). Some are
//! emptier: a key shares its label with another by a chance of 1 in 256 for each debt of its group, and every new key
//! of a group with merged debts owes those. With few rules, most have a group of their own: 16 groups keep a flood on
//! one rule apart from another rule's clients, who owe less if that rule is faster. Debts are cut to [`DEBT_NS_MAX`].

use core::cmp::Reverse;

use crate::algorithms::Bucket;
use crate::table::slot::layout::{DEBTS_COUNT, DEBTS_MAX, Slot};
use crate::table::slot::tag::{DEBT_NS_MAX, Debt, KEY_BITS, KEY_MASK, LABEL_SHIFT, Tag, label_of};
use weir_protocol::time::Time;

const GROUPS: usize = 1 << Tag::GROUP_BITS;

const _: () = assert!(LABEL_SHIFT + KEY_BITS + Tag::GROUP_BITS == 24);
// Even if every group has a merged debt, there are others left to merge.
const _: () = assert!(DEBTS_MAX > GROUPS);

/// The highest debts of a key: under its own label, and shared by its group.
pub(super) struct Owed {
    pub(super) own: Bucket,
    pub(super) shared: Bucket,
}

impl Slot {
    /// The debts of the key `tag`, which has no entry.
    pub(super) fn owed(&self, tag: Tag) -> Owed {
        let mut owed = Owed { own: Bucket::FULL, shared: Bucket::FULL };
        if self.debts() == 0 {
            return owed;
        }
        let (label, base) = (label_of(tag), self.base());
        for debt in self.all_debts() {
            let until = Bucket::full_at(debt.until(base));
            if debt.label() == label {
                owed.own = owed.own.max(until);
            } else if debt.label() == label & !KEY_MASK {
                owed.shared = owed.shared.max(until);
            }
        }
        owed
    }

    /// Stores the debt of the evicted key `tag`, paid at `until`, or at the latest [`DEBT_NS_MAX`] after `now`.
    pub(super) fn keep_debt(&mut self, tag: Tag, until: Time, now: Time) {
        if until <= now {
            return;
        }
        let base = if self.debts() == 0 { now } else { self.base().max(now) };
        self.forget_paid(base);
        // `until` is after `now`, so the debt is unpaid. If the clock stepped back, it is raised to after the base.
        let debt = Debt::new(label_of(tag), until.min(now + DEBT_NS_MAX).max(base + 1), base);
        if self.raise(debt) {
            return;
        }
        if self.debts() >= DEBTS_MAX {
            self.merge_least();
        }
        let i = self.debts();
        if i < DEBTS_MAX {
            self.set_count(DEBTS_COUNT, i + 1);
            self.set_debt(i, debt);
        }
    }

    pub(super) fn forget_debt(&mut self, tag: Tag) {
        if let Some(i) = (0..self.debts()).find(|i| self.debt_at(*i).label() == label_of(tag)) {
            self.drop_debt(i);
        }
    }

    /// Number of debts that are not paid at `now`.
    pub(super) fn debts_at(&self, now: Time) -> usize {
        let base = self.base();
        self.all_debts().filter(|debt| now < debt.until(base)).count()
    }

    fn all_debts(&self) -> impl Iterator<Item = Debt> + '_ {
        (0..self.debts()).map(|i| self.debt_at(i))
    }

    /// Raises the debt with the same label to this one; false if there is none.
    fn raise(&mut self, debt: Debt) -> bool {
        let base = self.base();
        let Some(i) = (0..self.debts()).find(|i| self.debt_at(*i).label() == debt.label()) else {
            return false;
        };
        if self.debt_at(i).until(base) < debt.until(base) {
            self.set_debt(i, debt);
        }
        true
    }

    /// Drops the debts paid by `base`, and makes that the base. The times of the others stay the same.
    fn forget_paid(&mut self, base: Time) {
        let (before, mut i) = (self.base(), 0);
        while i < self.debts() {
            if self.debt_at(i).until(before) <= base { self.drop_debt(i) } else { i += 1 }
        }
        self.set_base(base);
    }

    /// Merges the smallest debt of the group with the most debts into the one that the group shares.
    fn merge_least(&mut self) {
        let base = self.base();
        // A group's first merge frees nothing: the merged debt becomes the shared one.
        for _ in 0..=GROUPS {
            let of_keys = (0..self.debts()).map(|i| (i, self.debt_at(i))).filter(|(_, debt)| !debt.is_shared());
            let mut sizes = [0_u8; GROUPS];
            for (_, debt) in of_keys.clone() {
                if let Some(size) = sizes.get_mut(debt.group()) {
                    *size += 1;
                }
            }
            let rank = |debt: &Debt| (Reverse(sizes.get(debt.group()).copied()), debt.until(base));
            let Some((least, _)) = of_keys.min_by_key(|(_, debt)| rank(debt)) else { return };
            let shared = self.debt_at(least).shared();
            if self.raise(shared) {
                return self.drop_debt(least);
            }
            self.set_debt(least, shared);
        }
    }

    fn drop_debt(&mut self, i: usize) {
        let last = self.debts().saturating_sub(1);
        self.set_debt(i, self.debt_at(last));
        self.set_count(DEBTS_COUNT, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::slot::tag::STEP_BITS_MIN;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use weir_protocol::time::SECOND_NS;

    const T0: Time = Time::from_nanos(1_000_000 * SECOND_NS + 12_345);

    fn tag(group: u64, key: u64) -> Tag {
        Tag::of_key(key, group << 58)
    }

    #[test]
    fn a_debt_is_rounded_up_by_at_most_a_64th() {
        for owes in (0..58).flat_map(|bits| [1_u64 << bits, (1 << bits) + 1, (2 << bits) - 1]) {
            for base in [T0, T0 + 999_999_999, Time::ZERO] {
                let until = base + owes.min(DEBT_NS_MAX);
                let kept = Debt::new(9, until, base).until(base);
                let more = kept.nanos_since(until);
                assert!(kept >= until && more <= (owes / 61).max(1 << STEP_BITS_MIN), "{owes}: {more}");
            }
        }
        const { assert!(DEBT_NS_MAX > weir_protocol::quota::FILL_NS_MAX + 86_400 * SECOND_NS) }
    }

    proptest! {
        /// Compares with a map that forgets nothing.
        // I3
        #[test]
        fn no_key_owes_less_than_its_debt(
            steps in prop::collection::vec((0u64..16, 0u64..300, 0u64..40, 0u64..500), 1..300),
        ) {
            let (mut slot, mut model, mut now) = (Slot::empty(), BTreeMap::new(), T0);
            for (group, key, owes_s, step_ms) in steps {
                now += step_ms * 1_000_000;
                let until = now + owes_s * SECOND_NS;
                slot.keep_debt(tag(group, key), until, now);
                let known = model.entry((group, key)).or_insert(until);
                *known = until.max(*known);
                for (&(group, key), &until) in &model {
                    let Owed { own, shared } = slot.owed(tag(group, key));
                    prop_assert!(until <= now || until <= own.max(shared).refilled());
                }
                prop_assert!(slot.debts() <= DEBTS_MAX);
                let sealed = slot.sealed().to_vec();
                prop_assert!(slot.unseal(sealed));
            }
        }
    }
}
