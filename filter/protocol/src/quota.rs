//! Quotas: a rate and a burst.

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::time::SECOND_NS;

/// Maximum number of tokens per period of a rate, and of a burst.
pub const TOKENS_MAX: u32 = 1_000_000;
/// Longest time in which an empty bucket fills: 400 days, in nanoseconds.
pub const FILL_NS_MAX: u64 = 400 * 86_400 * SECOND_NS;

// A bucket's debt may be several times its burst; the sum must stay within 64 bits.
const _: () = assert!(FILL_NS_MAX < u64::MAX / 256);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    Second,
    Minute,
    Hour,
    Day,
}

impl Period {
    pub const ALL: [Self; 4] = [Self::Second, Self::Minute, Self::Hour, Self::Day];

    /// Length in seconds, abbreviation in the canonical form, and other accepted spellings.
    const fn spelled(self) -> (u64, &'static str, [&'static str; 3]) {
        match self {
            Self::Second => (1, "s", ["sec", "second", "seconds"]),
            Self::Minute => (60, "m", ["min", "minute", "minutes"]),
            Self::Hour => (3_600, "h", ["hr", "hour", "hours"]),
            Self::Day => (86_400, "d", ["day", "day", "days"]),
        }
    }

    pub const fn nanos(self) -> u64 {
        SECOND_NS * self.spelled().0
    }

    pub const fn letter(self) -> &'static str {
        self.spelled().1
    }

    /// The period that `word` stands for, such as `m`, `min`, `minute` or `minutes`.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.letter() == word || period.spelled().2.contains(&word))
    }
}

const UNITS_MAX: u32 = 1_000;

/// A length of time of 1 to 1,000 units, written `s`, `15m`, `2hours` or `1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    units: u32,
    period: Period,
}

impl Span {
    pub const fn nanos(self) -> u64 {
        self.period.nanos() * self.units as u64
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.units > 1 {
            write!(f, "{}", self.units)?;
        }
        f.write_str(self.period.letter())
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (units, word) = text.split_at_checked(digits).ok_or(SpanError)?;
        let units = if units.is_empty() { 1 } else { units.parse().map_err(|_| SpanError)? };
        let period = Period::named(word).ok_or(SpanError)?;
        if (1..=UNITS_MAX).contains(&units) { Ok(Self { units, period }) } else { Err(SpanError) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected a whole number from 1 to {}, then s, m, h or d, as in \"15m\"", UNITS_MAX)]
pub struct SpanError;

/// Tokens per span, written `50/s`, `100/minute`, `5/15m` or `1000/d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    count: u32,
    span: Span,
}

impl Rate {
    /// `count` tokens per `period`; `None` unless `count` is from 1 to [`TOKENS_MAX`].
    pub const fn new(count: u32, period: Period) -> Option<Self> {
        Self::over(count, Span { units: 1, period })
    }

    pub const fn over(count: u32, span: Span) -> Option<Self> {
        if count == 0 || count > TOKENS_MAX {
            return None;
        }
        Some(Self { count, span })
    }

    pub const fn count(self) -> u32 {
        self.count
    }

    pub const fn span(self) -> Span {
        self.span
    }

    /// The rate multiplied by `times`; `None` if that is zero or more than [`TOKENS_MAX`] tokens per span.
    pub const fn times(self, times: u32) -> Option<Self> {
        match self.count.checked_mul(times) {
            Some(count) => Self::over(count, self.span),
            None => None,
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.span)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected a whole number from 1 to {}, then /s, /m, /h or /d, as in \"50/s\" or \"5/15m\"", TOKENS_MAX)]
pub struct RateError;

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (count, span) = text.split_once('/').ok_or(RateError)?;
        let count = count.bytes().all(|b| b.is_ascii_digit()).then_some(count).ok_or(RateError)?;
        let span = span.parse().map_err(|SpanError| RateError)?;
        Self::over(count.parse().map_err(|_| RateError)?, span).ok_or(RateError)
    }
}

/// Rate and burst of a rule.
///
/// Buckets count nanoseconds of refill, not tokens: one token is worth [`Quota::token_ns`], rounded **up**. A bucket
/// therefore never refills faster than its rate, and at most 0.1 % slower (near the highest rate, 1,000,000/s).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u64, u32)")]
pub struct Quota {
    token_ns: NonZeroU64,
    burst: u32,
}

impl Quota {
    pub const fn new(rate: Rate, burst: u32) -> Result<Self, QuotaError> {
        Self::from_token_ns(rate.span.nanos().div_ceil(rate.count as u64), burst)
    }

    pub const fn from_token_ns(token_ns: u64, burst: u32) -> Result<Self, QuotaError> {
        if burst == 0 || burst > TOKENS_MAX {
            return Err(QuotaError::Burst);
        }
        match (NonZeroU64::new(token_ns), token_ns.checked_mul(burst as u64)) {
            (Some(token_ns), Some(1..=FILL_NS_MAX)) if token_ns.get() >= SECOND_NS / TOKENS_MAX as u64 => {
                Ok(Self { token_ns, burst })
            }
            _ => Err(QuotaError::Fill),
        }
    }

    pub const fn token_ns(self) -> u64 {
        self.token_ns.get()
    }

    pub const fn burst(self) -> u32 {
        self.burst
    }

    pub const fn fill_ns(self) -> u64 {
        self.token_ns() * self.burst as u64
    }

    /// Refill of `ns` nanoseconds in millionths of a token, rounded down.
    pub const fn refill_micro(self, ns: u64) -> u128 {
        ns as u128 * 1_000_000 / self.token_ns() as u128
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuotaError {
    #[error("expected a whole number from 1 to {}", TOKENS_MAX)]
    Burst,
    /// The bucket would take more than [`FILL_NS_MAX`] to fill, or refill faster than 1,000,000/s.
    #[error("an empty bucket must fill within 400 days: lower the burst or raise the rate")]
    Fill,
}

/// Validates a received quota, a tuple of the fields in order.
impl TryFrom<(u64, u32)> for Quota {
    type Error = QuotaError;

    fn try_from((token_ns, burst): (u64, u32)) -> Result<Self, QuotaError> {
        Self::from_token_ns(token_ns, burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn a_printed_rate_is_read_back() {
        for text in ["1/s", "50/s", "100/m", "5000/h", "5/15m", "7/1000d", "1000000/d"] {
            assert_eq!(rate(text).to_string(), text);
        }
    }

    #[test]
    fn common_words_for_a_unit_are_read() {
        for (text, printed) in
            [("100/minute", "100/m"), ("10/second", "10/s"), ("5/15min", "5/15m"), ("7/2days", "7/2d")]
        {
            assert_eq!(rate(text).to_string(), printed);
        }
        assert_eq!("30seconds".parse::<Span>().unwrap().to_string(), "30s");
    }

    #[test]
    fn a_malformed_rate_is_refused() {
        let words = "50 50/ /s 0/s -1/s +1/s 1.5/s 1000001/s 50/S 50/ms 50/Minute 50/month 50/0m 50/1001m 50/15 50/+1m \
                     50/4294967297m 1e3/s";
        for text in words.split(' ').chain(["", " 50/s", "50 /s"]) {
            assert_eq!(text.parse::<Rate>(), Err(RateError), "{text:?}");
        }
    }

    #[test]
    fn a_quota_never_refills_faster_than_its_rate() {
        for text in ["3/s", "7/m", "999999/s", "1000000/s", "11/d"] {
            let rate = rate(text);
            let quota = Quota::new(rate, 1).unwrap();
            let in_period = quota.refill_micro(rate.span().nanos());
            let asked = u128::from(rate.count()) * 1_000_000;
            assert!(in_period <= asked && in_period >= asked * 999 / 1000, "{text}: {in_period}");
        }
    }

    #[test]
    fn a_bucket_that_takes_years_to_fill_is_refused() {
        assert_eq!(Quota::new(rate("1/d"), 401), Err(QuotaError::Fill));
        assert!(Quota::new(rate("1/d"), 400).is_ok());
        assert_eq!(Quota::new(rate("1/s"), 0), Err(QuotaError::Burst));
        assert_eq!(Quota::new(rate("1/s"), TOKENS_MAX + 1), Err(QuotaError::Burst));
    }
}
