//! A POP's fair share of a quota, as used by a cold key.
//!
//! While every POP keeps a key within its fair share, the sum is within the quota by construction, and the key need not
//! be reported. The share is a bucket of burst / divisor that refills at rate / divisor, where `divisor` is the rate
//! divisor for cold keys. It counts tokens, not time, because used tokens must not change with the number of POPs.
//!
//! Tests of I4.

use weir_protocol::quota::Quota;
use weir_protocol::time::Time;

/// Units of a share per token.
const PARTS: u32 = 4_096;
/// Tokens of a burst that a key may use even if it cannot be reported. Many new keys need no more.
const UNREPORTED_MIN: u32 = 8;
/// A share's clock ticks every 2^16 ns and wraps after three days. A key that is idle for half of that may find its
/// share still used, and is then watched earlier than necessary.
const TICK_SHIFT: u32 = 16;

/// The used part of a fair share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FairShare {
    /// Used tokens, in units of 1 / [`PARTS`].
    used: u32,
    /// Time of the last use, in ticks.
    at: u32,
}

impl FairShare {
    pub const WHOLE: Self = Self { used: 0, at: 0 };

    pub fn used(tokens: u32, now: Time) -> Self {
        Self { used: tokens.saturating_mul(PARTS), at: ticks(now) }
    }

    /// The share as a number, for storage.
    pub const fn bits(self) -> u64 {
        (self.at as u64) << 32 | self.used as u64
    }

    pub const fn from_bits(bits: u64) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        Self { used: bits as u32, at: (bits >> 32) as u32 }
    }

    /// The share after `tokens` more are used at rate divisor `divisor`; `None` if fewer are left.
    pub fn take(self, quota: &Quota, tokens: u32, divisor: u32, now: Time) -> Option<Self> {
        let most = u64::from(quota.burst()) * u64::from(PARTS) / u64::from(divisor.max(1));
        Some(self.overdraw(quota, tokens, divisor, now)).filter(|share| u64::from(share.used) <= most)
    }

    /// The share after `tokens` more that cannot be reported. Beyond the share and a few tokens, fails with the wait
    /// in nanoseconds.
    pub fn take_unreported(self, quota: &Quota, tokens: u32, divisor: u32, now: Time) -> Result<Self, u64> {
        let after = self.overdraw(quota, tokens, divisor, now);
        let part = u64::from(quota.burst()) * u64::from(PARTS) / u64::from(divisor.max(1));
        let most = part.max(u64::from(tokens.max(UNREPORTED_MIN.min(quota.burst()))) * u64::from(PARTS));
        match u128::from(u64::from(after.used).saturating_sub(most)) {
            0 => Ok(after),
            lacks => {
                let wait_ns = lacks * u128::from(quota.token_ns()) * u128::from(divisor.max(1));
                Err(u64::try_from(wait_ns.div_ceil(u128::from(PARTS))).unwrap_or(u64::MAX))
            }
        }
    }

    /// The share after `tokens` more are used, even if fewer are left.
    #[must_use]
    pub fn overdraw(self, quota: &Quota, tokens: u32, divisor: u32, now: Time) -> Self {
        let refilled = self.refilled(quota, divisor, now);
        let used = refilled.used.saturating_add(tokens.saturating_mul(PARTS));
        Self { used, ..refilled }
    }

    /// The share after `tokens` are given back; at most unused.
    #[must_use]
    pub fn give_back(self, tokens: u32) -> Self {
        Self { used: self.used.saturating_sub(tokens.saturating_mul(PARTS)), ..self }
    }

    /// Whole tokens used at `now`, rounded up.
    pub fn tokens_used(self, quota: &Quota, divisor: u32, now: Time) -> u32 {
        self.refilled(quota, divisor, now).used.div_ceil(PARTS)
    }

    /// Ticks since the last use; zero if `now` is earlier, as another worker's time may be.
    pub fn age(self, now: Time) -> u32 {
        let age = ticks(now).wrapping_sub(self.at);
        if age > u32::MAX / 2 { 0 } else { age }
    }

    fn refilled(self, quota: &Quota, divisor: u32, now: Time) -> Self {
        if self.used == 0 {
            return Self { used: 0, at: ticks(now) };
        }
        if self.age(now) == 0 {
            return self;
        }
        // Below 2^60, so if `part_ns` saturates, nothing refills either way.
        let age_ns = u64::from(self.age(now)) << TICK_SHIFT;
        let part_ns = quota.token_ns().saturating_mul(divisor.max(1).into());
        match u32::try_from(age_ns * u64::from(PARTS) / part_ns) {
            Ok(refilled) if refilled < self.used => {
                // The clock advances by the ticks that the refill took, rounded; the remainder counts next time.
                let took_ns = u64::from(refilled) * part_ns / u64::from(PARTS);
                let took = (took_ns + (1 << (TICK_SHIFT - 1))) >> TICK_SHIFT;
                let at = self.at.wrapping_add(u32::try_from(took).unwrap_or(u32::MAX));
                Self { used: self.used - refilled, at }
            }
            _ => Self { used: 0, at: ticks(now) },
        }
    }
}

fn ticks(now: Time) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "wraps on purpose")]
    let ticks = (now.as_nanos() >> TICK_SHIFT) as u32;
    ticks
}

// The largest burst fits.
const _: () = assert!(weir_protocol::quota::TOKENS_MAX < u32::MAX / PARTS);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_protocol::quota::{Period, Rate};
    use weir_protocol::time::SECOND_NS;

    const T0: Time = Time::from_nanos(1_000 * SECOND_NS);

    fn quota() -> Quota {
        Quota::new(Rate::new(100, Period::Second).unwrap(), 100).unwrap()
    }

    #[test]
    fn a_share_is_an_nth_of_burst_and_rate() {
        let mut share = FairShare::WHOLE;
        for taken in 1..=25 {
            share = share.take(&quota(), 1, 4, T0).unwrap();
            assert_eq!(share.tokens_used(&quota(), 4, T0), taken);
        }
        assert_eq!(share.take(&quota(), 1, 4, T0), None);
        assert_eq!(share.take(&quota(), 1, 4, T0 + 39_000_000), None);
        assert!(share.take(&quota(), 1, 4, T0 + 43_000_000).is_some());
        assert_eq!(share.tokens_used(&quota(), 4, T0 + 2 * SECOND_NS), 0);
    }

    #[test]
    fn overdrawn_tokens_count_as_used_until_refunded() {
        let used = FairShare::WHOLE.overdraw(&quota(), 40, 4, T0);
        assert_eq!(used.tokens_used(&quota(), 4, T0), 40);
        assert_eq!(used.give_back(16).take(&quota(), 1, 4, T0), used.give_back(15).take(&quota(), 0, 4, T0));
        assert_eq!(used.give_back(15).take(&quota(), 1, 4, T0), None);
        assert_eq!(used.give_back(41).tokens_used(&quota(), 4, T0), 0);
    }

    #[test]
    fn unreported_admissions_get_a_fair_share_or_a_few_tokens() {
        let share = FairShare::WHOLE.take_unreported(&quota(), 25, 4, T0).unwrap();
        assert_eq!(share.take_unreported(&quota(), 2, 4, T0), Err(80_000_000));
        assert!(share.take_unreported(&quota(), 2, 4, T0 + 79_900_000).is_err());
        assert!(share.take_unreported(&quota(), 2, 4, T0 + 80_100_000).is_ok());
        let few = FairShare::WHOLE.take_unreported(&quota(), 8, 330, T0).unwrap();
        assert!(few.take_unreported(&quota(), 1, 330, T0).is_err());
        assert!(FairShare::WHOLE.take_unreported(&quota(), 50, 330, T0).is_ok(), "what one request costs");
    }

    #[test]
    fn many_small_refills_come_to_the_same_as_one() {
        let mut often = FairShare { used: 20 * PARTS, at: ticks(T0) };
        for ms in 1..=1_000u64 {
            often = often.refilled(&quota(), 330, T0 + ms * 1_000_000);
        }
        let once = FairShare { used: 20 * PARTS, at: ticks(T0) }.refilled(&quota(), 330, T0 + SECOND_NS);
        assert!(often.used.abs_diff(once.used) <= PARTS / 20, "{often:?} {once:?}");
    }
}
