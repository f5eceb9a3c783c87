//! Fractions of numbers for the code that runs for each key of a report. They use 64 bits where the product
//! fits, as a 128-bit division takes several times as long.

/// Returns `number * times / over`, rounded down and saturated at `u64::MAX`. `over == 0` counts as 1.
pub(crate) fn scaled(number: u64, times: u64, over: u64) -> u64 {
    let over = over.max(1);
    number.checked_mul(times).map_or_else(
        || u64::try_from(u128::from(number) * u128::from(times) / u128::from(over)).unwrap_or(u64::MAX),
        |product| product / over,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_what_wide_numbers_give(bits in prop::array::uniform3((any::<u64>(), 0..64_u32))) {
            let [number, times, over] = bits.map(|(bits, less)| bits >> less);
            let wide = u128::from(number) * u128::from(times) / u128::from(over.max(1));
            prop_assert_eq!(u128::from(scaled(number, times, over)), wide.min(u128::from(u64::MAX)));
        }
    }
}
