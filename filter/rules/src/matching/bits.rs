//! A bit set of small numbers: the places of conditions in a list.

use alloc::vec::Vec;

/// A set of places in a list, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// The empty set, with room for `len` places.
    pub(crate) fn none(len: usize) -> Self {
        Self(alloc::vec![0; len.div_ceil(64)])
    }

    /// The set of all `len` places.
    pub(super) fn all(len: usize) -> Self {
        let mut bits = Self::none(len);
        for place in 0..len {
            bits.add(place);
        }
        bits
    }

    pub(crate) fn add(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    pub(super) fn remove(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word &= !(1 << (place % 64));
        }
    }

    pub(super) fn copy_from(&mut self, other: &Self) {
        self.0.clone_from(&other.0);
    }

    pub(super) fn unite(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    pub(crate) fn intersect(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
    }

    /// True if every place is also in `other`.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(word, other)| word & !other == 0)
    }

    /// The places, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..).step_by(64).zip(&self.0).flat_map(|(base, &word)| {
            let ones = |left: &u64| Some(left & left.wrapping_sub(1));
            core::iter::successors(Some(word), ones)
                .take_while(|left| *left != 0)
                .map(move |left| base + left.trailing_zeros() as usize)
        })
    }
}
