//! A sort of small code size. Core's sort takes kilobytes for each type.

use alloc::vec::Vec;

/// The items in ascending order. The sort (Shell's) is not stable.
pub fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    let mut gap = items.len();
    while gap > 1 {
        // Each pass leaves little to do for the next one, with a smaller gap. The last gap is 1.
        gap = (gap * 5 / 11).max(1);
        for end in gap..items.len() {
            let mut at = end;
            while at >= gap && items.get(at) < items.get(at - gap) {
                items.swap(at, at - gap);
                at -= gap;
            }
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorting_agrees_with_core(items: Vec<u8>) {
            let mut expected = items.clone();
            expected.sort_unstable();
            prop_assert_eq!(sorted(items), expected);
        }
    }
}
