//! A sort of small code size. The compiler instantiates core's sort for each type, at kilobytes each; the
//! lists of a configuration share this one.

use alloc::vec::Vec;

/// Returns the items in ascending order. The sort is not stable.
pub fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    let len = items.len();
    heap_sort(len, &mut items);
    items
}

/// A list whose items are compared and swapped by index.
trait Places {
    fn is_less(&self, one: usize, other: usize) -> bool;
    fn swap(&mut self, one: usize, other: usize);
}

impl<T: Ord> Places for Vec<T> {
    fn is_less(&self, one: usize, other: usize) -> bool {
        self.get(one) < self.get(other)
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one.max(other) < self.len() {
            self.as_mut_slice().swap(one, other);
        }
    }
}

fn heap_sort(len: usize, items: &mut dyn Places) {
    for root in (0..len / 2).rev() {
        sift_down(root, len, items);
    }
    for end in (1..len).rev() {
        items.swap(0, end);
        sift_down(0, end, items);
    }
}

/// Sifts the item at `root` down, up to `end`. The subtrees below `root` must be heaps already.
fn sift_down(mut root: usize, end: usize, items: &mut dyn Places) {
    loop {
        let left = 2 * root + 1;
        if left >= end {
            return;
        }
        let right_is_more = left + 1 < end && items.is_less(left, left + 1);
        let child = left + usize::from(right_is_more);
        if !items.is_less(root, child) {
            return;
        }
        items.swap(root, child);
        root = child;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorts_as_core_does(items: Vec<u8>) {
            let mut expected = items.clone();
            expected.sort_unstable();
            prop_assert_eq!(sorted(items), expected);
        }
    }
}
