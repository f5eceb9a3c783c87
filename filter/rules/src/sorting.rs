//! A sort of small code size. Core's sort takes kilobytes for each type.

use alloc::vec::Vec;

/// The items in ascending order. The sort (Shell's) is not stable.
pub fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    sort(items.len(), &mut |low, high| {
        let are_swapped = items.get(high) < items.get(low);
        if are_swapped {
            items.swap(low, high);
        }
        are_swapped
    });
    items
}

/// Sorts `len` items. `order` swaps two of them if they are not in order, and returns true if so.
fn sort(len: usize, order: &mut dyn FnMut(usize, usize) -> bool) {
    let mut gap = len;
    while gap > 1 {
        // Each pass leaves little to do for the next one, with a smaller gap. The last gap is 1.
        gap = (gap * 5 / 11).max(1);
        for end in gap..len {
            let mut at = end;
            while at >= gap && order(at - gap, at) {
                at -= gap;
            }
        }
    }
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
