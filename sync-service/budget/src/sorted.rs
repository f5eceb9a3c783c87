//! Map for a few pairs, sorted by key in contiguous memory.
//!
//! Most budgets have few sources and one replica. A tree would allocate a node with room for eleven pairs for each, and
//! need an owned key for a look-up; this compares by any function that agrees with the keys' order.

use alloc::vec::Vec;
use core::cmp::Ordering;

/// Sorted pairs. A look-up takes O(log n), an insertion O(n).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sorted<K, V> {
    pairs: Vec<(K, V)>,
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self { pairs: Vec::new() }
    }
}

impl<K, V> Sorted<K, V> {
    /// Value of the key that `order` finds equal to the wanted one, or the position to insert it.
    pub(crate) fn find(&mut self, order: impl FnMut(&K) -> Ordering) -> Result<&mut V, usize> {
        let found = self.place(order);
        found.and_then(|at| self.at(at).ok_or(at))
    }

    /// Returns the index of the key that `order` finds equal, or the position to insert it.
    pub(crate) fn place(&self, mut order: impl FnMut(&K) -> Ordering) -> Result<usize, usize> {
        self.pairs.binary_search_by(|(key, _)| order(key))
    }

    pub(crate) fn at(&mut self, place: usize) -> Option<&mut V> {
        self.pairs.get_mut(place).map(|(_, value)| value)
    }

    pub(crate) fn put(&mut self, at: usize, key: K, value: V) -> usize {
        if self.pairs.len() == self.pairs.capacity() {
            // Grows by a half: there are many of these, and most stay small.
            self.pairs.reserve_exact(self.pairs.len() / 2 + 1);
        }
        let at = at.min(self.pairs.len());
        self.pairs.insert(at, (key, value));
        at
    }

    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&K, &V) -> bool) {
        self.pairs.retain(|(key, value)| is_kept(key, value));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.pairs.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.pairs.iter_mut().map(|(key, value)| (&*key, value))
    }

    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_sorted_list_agrees_with_a_tree(
            steps in prop::collection::vec((0..20_u8, 0..100_u8, any::<bool>()), 0..80)
        ) {
            let (mut sorted, mut tree) = (Sorted::default(), BTreeMap::new());
            for (key, value, is_put) in steps {
                if is_put {
                    match sorted.find(|known: &u8| known.cmp(&key)) {
                        Ok(known) => *known = value,
                        Err(place) => {
                            let at = sorted.put(place, key, value);
                            prop_assert_eq!(sorted.at(at).copied(), Some(value));
                        }
                    }
                    tree.insert(key, value);
                } else {
                    sorted.retain(|known, _| *known != key);
                    tree.remove(&key);
                }
                prop_assert!(sorted.iter().eq(tree.iter()));
                prop_assert_eq!(sorted.len(), tree.len());
                prop_assert_eq!(sorted.find(|known| known.cmp(&key)).ok().copied(), tree.get(&key).copied());
            }
        }
    }
}
