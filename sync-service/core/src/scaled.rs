//! Fractions of numbers, for what every report asks of each of its keys: in 64 bits where that fits, as a division of 128 bits
//! takes several times as long.

/// `number` x `times` / `over`, rounded down; what is larger than a number can be is the largest. By zero it is divided as by one.
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
