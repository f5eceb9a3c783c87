//! The limit of a rule, its algorithm, and the cost of a request.

pub mod after;
pub mod algorithm;
pub mod cost;

use serde_json::Value;

use self::algorithm::{Algorithm, Concurrency, LOG_MAX, WindowLimit};
use crate::reading::Fields;
use weir_protocol::calendar::{Calendar, EAST_MIN_MAX};
use weir_protocol::messages::BAN_MS_MAX;
use weir_protocol::quota::{Period, Quota, QuotaError, Rate, Span, TOKENS_MAX};
use weir_protocol::refill_policy::{self, RefillPolicy};
use weir_protocol::sharing::Sharing;
use weir_protocol::time::SECOND_NS;

/// Longest wait in a leaky bucket's queue, in seconds.
const QUEUE_S_MAX: u64 = 30;
const EXPIRES_S_DEFAULT: u32 = 300;
/// Maximum expiry of a request in flight, in seconds: one day.
const EXPIRES_S_MAX: u32 = 86_400;

/// Largest multiple of the rule's quota that a tier or a wider prefix may have.
pub(crate) const TIMES_MAX: u32 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlgorithmName {
    TokenBucket,
    FixedWindow,
    SlidingWindow,
    /// Sliding log, with the maximum limit.
    SlidingLog(u32),
    LeakyBucket,
    Concurrency,
    /// Calendar windows, in local time that is this number of minutes ahead of UTC.
    Quota(i32),
}

const KINDS: [(&str, AlgorithmName); 7] = [
    ("token_bucket", AlgorithmName::TokenBucket),
    ("fixed_window", AlgorithmName::FixedWindow),
    ("sliding_window", AlgorithmName::SlidingWindow),
    ("sliding_log", AlgorithmName::SlidingLog(LOG_MAX)),
    ("leaky_bucket", AlgorithmName::LeakyBucket),
    ("concurrency", AlgorithmName::Concurrency),
    ("quota", AlgorithmName::Quota(0)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub algorithm: Algorithm,
    /// The limit as a rate and a burst. Except for a token bucket, the rate refills the whole limit within one window
    /// or expiry.
    pub quota: Quota,
    /// The rate as written, or a multiple of it; `None` if there is none, or if it is too large to be written.
    pub rate: Option<Rate>,
}

impl Limit {
    pub(crate) const fn of(quota: Quota, rate: Option<Rate>) -> Self {
        Self { algorithm: Algorithm::TokenBucket(quota), quota, rate }
    }

    /// Converts a strictly shared limit to a token bucket, and sets the budget's refill policy. Others are unchanged.
    #[must_use]
    pub(crate) fn shared_by(self, sharing: &mut Sharing) -> Self {
        if !sharing.strict {
            return self;
        }
        // Spans of rates and expiries are whole seconds.
        let seconds = |ns: u64| u32::try_from(ns / SECOND_NS).unwrap_or(u32::MAX);
        let windows = |window: &WindowLimit| Calendar::every(seconds(window.length_ns()), 0);
        sharing.refill_policy = match &self.algorithm {
            Algorithm::FixedWindow(window) => RefillPolicy::Window(windows(window)),
            Algorithm::SlidingWindow(window) => RefillPolicy::Sliding(windows(window)),
            Algorithm::SlidingLog(window) => RefillPolicy::Log(seconds(window.length_ns())),
            Algorithm::Concurrency(concurrency) => RefillPolicy::InFlight(seconds(concurrency.expires_ns())),
            Algorithm::LeakyBucket(_) => RefillPolicy::Queue,
            Algorithm::TokenBucket(_) => return self,
        };
        Self { algorithm: Algorithm::TokenBucket(self.quota), ..self }
    }

    /// The limit multiplied by `times` over the same time; an error if it exceeds the algorithm's maximum.
    pub fn times(&self, times: u32) -> Result<Self, QuotaError> {
        let limit = self.algorithm.limit().checked_mul(times).ok_or(QuotaError::Burst)?;
        let token_ns = self.quota.token_ns().div_ceil(u64::from(times.max(1)));
        let quota = Quota::from_token_ns(token_ns, self.quota.burst().saturating_mul(times))?;
        let window = |window: &WindowLimit| WindowLimit::new(limit, window.length_ns());
        let algorithm = match &self.algorithm {
            Algorithm::TokenBucket(_) => Some(Algorithm::TokenBucket(quota)),
            Algorithm::FixedWindow(one) => window(one).map(Algorithm::FixedWindow),
            Algorithm::SlidingWindow(one) => window(one).map(Algorithm::SlidingWindow),
            Algorithm::SlidingLog(one) => window(one).filter(|_| limit <= LOG_MAX).map(Algorithm::SlidingLog),
            Algorithm::LeakyBucket(_) => Some(Algorithm::LeakyBucket(quota)),
            Algorithm::Concurrency(concurrency) => {
                Concurrency::new(limit, concurrency.expires_ns()).map(Algorithm::Concurrency)
            }
        };
        let rate = self.rate.and_then(|rate| rate.times(times));
        algorithm.map(|algorithm| Self { algorithm, quota, rate }).ok_or(QuotaError::Burst)
    }
}

/// A penalty: conditions and duration of a ban, at every POP, for a client that is limited repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// Maximum number of a key's limited requests in a window. The request that reaches it bans the key.
    pub strikes: WindowLimit,
    pub deny_for_ms: u32,
}

impl Penalty {
    pub fn deny_for_ns(&self) -> u64 {
        u64::from(self.deny_for_ms) * 1_000_000
    }

    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let penalty = fields.take("penalty")?;
        let mut fields = penalty.fields()?;
        let after = fields.require("after", "a number of limited requests");
        let after = after.and_then(|after| after.number(1..=TOKENS_MAX));
        let mut span = |name| fields.require(name, "a time, as in 15m")?.parsed::<Span>();
        let (within, deny_for) = (span("within"), span("deny_for"));
        let deny_for_ms = deny_for.and_then(|span| u32::try_from(span.nanos() / 1_000_000).ok());
        let deny_for_ms = deny_for_ms.filter(|ms| *ms <= BAN_MS_MAX);
        if deny_for.is_some() && deny_for_ms.is_none() {
            fields.record_at("deny_for", "expected at most 7d");
        }
        let strikes = after.zip(within).map(|(after, span)| WindowLimit::new(after, span.nanos()));
        if let Some(None) = strikes {
            fields.record_at("within", "expected at most 400d");
        }
        fields.finish();
        Some(Self { strikes: strikes??, deny_for_ms: deny_for_ms? })
    }
}

/// Reads `algorithm`, and the fields common to all limits of that algorithm.
pub(crate) fn kind(fields: &mut Fields<'_>) -> AlgorithmName {
    let kind = fields.choice("algorithm", &KINDS).unwrap_or(AlgorithmName::TokenBucket);
    let offset = fields.take("utc_offset");
    match (kind, offset) {
        (AlgorithmName::Quota(_), Some(offset)) => {
            let east = offset.value().as_str().and_then(minutes);
            if east.is_none() {
                offset.record_unexpected("a time zone's offset from UTC, as in \"+02:00\"");
            }
            return AlgorithmName::Quota(east.unwrap_or(0));
        }
        (_, Some(offset)) => offset.record("expected only with algorithm: quota"),
        _ => {}
    }
    let mut is_strict = || fields.take("strict").is_some_and(|item| item.value().as_bool() == Some(true));
    match kind {
        // The fleet's budget keeps longer logs than a POP.
        AlgorithmName::SlidingLog(_) if is_strict() => AlgorithmName::SlidingLog(refill_policy::LOG_MAX),
        kind => kind,
    }
}

/// Parses an offset from UTC, such as `+02:00`, to minutes.
fn minutes(text: &str) -> Option<i32> {
    let [sign @ (b'+' | b'-'), digits @ .., b':', tens, ones] = text.as_bytes() else { return None };
    let number = |tens: &u8, ones: &u8| {
        let digit = |byte: &u8| byte.is_ascii_digit().then_some(i32::from(byte & 15));
        Some(10 * digit(tens)? + digit(ones)?)
    };
    let [hour_tens, hour_ones] = digits else { return None };
    let minutes = number(tens, ones).filter(|minutes| *minutes < 60)? + 60 * number(hour_tens, hour_ones)?;
    (minutes <= EAST_MIN_MAX).then_some(if *sign == b'-' { -minutes } else { minutes })
}

/// Reads those of the fields `rate`, `burst`, `queue`, `limit` and `expires_after_s` that `kind` has.
pub(crate) fn read(kind: AlgorithmName, fields: &mut Fields<'_>) -> Option<Limit> {
    let burst = only(fields, "burst", kind == AlgorithmName::TokenBucket, "token_bucket", TOKENS_MAX);
    let queue = only(fields, "queue", kind == AlgorithmName::LeakyBucket, "leaky_bucket", TOKENS_MAX - 1);
    let is_concurrency = kind == AlgorithmName::Concurrency;
    let limit = only(fields, "limit", is_concurrency, "concurrency", TOKENS_MAX);
    let expires_s = only(fields, "expires_after_s", is_concurrency, "concurrency", EXPIRES_S_MAX);
    if is_concurrency {
        if let Some(rate) = fields.take("rate") {
            rate.record("expected limit instead: concurrency counts requests in flight");
        }
        fields.require("limit", "how many requests may be in flight");
        return in_flight(limit?, expires_s.unwrap_or(EXPIRES_S_DEFAULT));
    }
    let item = fields.require("rate", "a rate, as in 50/s")?;
    let rate: Rate = item.parsed()?;
    item.is_text_for(&rate);
    let (count, length_ns) = (rate.count(), rate.span().nanos());
    let window = |of: fn(WindowLimit) -> Algorithm| WindowLimit::new(count, length_ns).map(of);
    let algorithm = match kind {
        AlgorithmName::TokenBucket | AlgorithmName::Concurrency | AlgorithmName::Quota(_) => {
            return token_bucket(fields, rate, burst);
        }
        AlgorithmName::LeakyBucket => return leaky_bucket(fields, rate, queue.unwrap_or(0)),
        AlgorithmName::FixedWindow => window(Algorithm::FixedWindow),
        AlgorithmName::SlidingWindow => window(Algorithm::SlidingWindow),
        AlgorithmName::SlidingLog(most) if count > most => {
            item.record(format_args!(
                "expected a limit from 1 to {most} for sliding_log, {} with `strict: true`: or use sliding_window",
                refill_policy::LOG_MAX
            ));
            return None;
        }
        AlgorithmName::SlidingLog(_) => window(Algorithm::SlidingLog),
    };
    let limit = algorithm.zip(Quota::new(rate, count).ok());
    if limit.is_none() {
        item.record("expected a window of at most 400 days");
    }
    limit.map(|(algorithm, quota)| Limit { algorithm, quota, rate: Some(rate) })
}

/// Reads the number in the field `name`, 1 to `most`; an error unless `fits`.
fn only(fields: &mut Fields<'_>, name: &'static str, fits: bool, algorithm: &str, most: u32) -> Option<u32> {
    let item = fields.take(name)?;
    if !fits {
        item.record(format_args!("expected only with algorithm: {algorithm}"));
        return None;
    }
    item.number(1..=most)
}

fn token_bucket(fields: &Fields<'_>, rate: Rate, burst: Option<u32>) -> Option<Limit> {
    let quota = Quota::new(rate, burst.unwrap_or(rate.count()));
    let quota = quota.map_err(|error| fields.record_at("burst", error)).ok()?;
    Some(Limit::of(quota, Some(rate)))
}

fn leaky_bucket(fields: &Fields<'_>, rate: Rate, queue: u32) -> Option<Limit> {
    let token_ns = rate.span().nanos().div_ceil(u64::from(rate.count()));
    if token_ns.saturating_mul(u64::from(queue)) > QUEUE_S_MAX * SECOND_NS {
        let most = QUEUE_S_MAX * SECOND_NS / token_ns;
        let expected =
            format_args!("expected at most {most}: at this rate the last of more waits over {QUEUE_S_MAX} s");
        fields.record_at("queue", expected);
        return None;
    }
    let quota = Quota::from_token_ns(token_ns, queue.saturating_add(1));
    let quota = quota.map_err(|_| fields.record_at("rate", QuotaError::Fill)).ok()?;
    Some(Limit { algorithm: Algorithm::LeakyBucket(quota), quota, rate: Some(rate) })
}

fn in_flight(limit: u32, expires_s: u32) -> Option<Limit> {
    let length_ns = u64::from(expires_s) * SECOND_NS;
    let concurrency = Concurrency::new(limit, length_ns)?;
    let quota = Quota::from_token_ns((length_ns / u64::from(limit)).max(1_000), limit).ok()?;
    Some(Limit { algorithm: Algorithm::Concurrency(concurrency), quota, rate: None })
}

/// Fields that a rule with `algorithm: quota`, which is always strict, may not have.
const ELSEWHERE: [&str; 4] = ["burst", "strict", "local_burst", "min_share"];

/// Reads the limit and the sharing of `algorithm: quota`, for windows in local time `east` minutes ahead of UTC.
pub(crate) fn calendar_terms(fields: &mut Fields<'_>, east: i32) -> Option<(Limit, Sharing)> {
    for &name in &ELSEWHERE {
        if let Some(item) = fields.take(name) {
            item.record("expected no such field beside `algorithm: quota`");
        }
    }
    let item = fields.require("rate", "a rate, as in 10000/day")?;
    let Some((count, unit, calendar)) = calendar_rate(item.value()) else {
        item.record_unexpected(format_args!(
            "a whole number from 1 to {TOKENS_MAX}, then /hour, /day, /week or /month, as in \"10000/day\", for \
             `algorithm: quota`"
        ));
        return None;
    };
    item.is_text_for(&format_args!("{count}/{unit}"));
    let token_ns = (calendar.longest_us() * 1_000).div_ceil(u64::from(count));
    let quota = Quota::from_token_ns(token_ns, count).ok()?;
    let refill_policy = RefillPolicy::Window(calendar.east(east));
    Some((Limit::of(quota, None), Sharing { strict: true, refill_policy, ..Sharing::of(quota) }))
}

fn calendar_rate(value: &Value) -> Option<(u32, &'static str, Calendar)> {
    let (count, unit) = value.as_str()?.split_once('/')?;
    // `/h` and `/d` are accepted as in other rates.
    let unit = match Period::named(unit) {
        Some(Period::Hour) => "hour",
        Some(Period::Day) => "day",
        _ => unit,
    };
    let (unit, calendar) = *Calendar::NAMED.iter().find(|(name, _)| *name == unit)?;
    let count = count.bytes().all(|b| b.is_ascii_digit()).then_some(count)?.parse().ok()?;
    (1..=TOKENS_MAX).contains(&count).then_some((count, unit, calendar))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::ErrorCollector;
    use crate::{Rule, document};
    use serde_json::json;
    use std::format;
    use std::string::{String, ToString};
    use std::vec::Vec;
    use weir_protocol::sharing::OnSyncLoss;

    fn parse(rest: &Value) -> Result<Rule, Vec<String>> {
        let mut rule = json!({"name": "q", "key": ["client_address"], "algorithm": "quota"});
        rule.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        let errors = ErrorCollector::default();
        let rules = document::read(&json!({"rules": [rule]}), &errors);
        let errors_to_text = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect();
        errors.into_result(rules).map(|rules| rules.rules()[0].clone()).map_err(errors_to_text)
    }

    #[test]
    fn a_quota_is_strict_and_its_burst_is_the_count() {
        let [hour, day, week, month] = Calendar::NAMED.map(|(_, calendar)| calendar);
        for (count, unit, calendar) in [
            (999_983, "day", day),
            (1, "month", month),
            (1_000_000, "month", month),
            (5, "hour", hour),
            (5, "week", week),
            (5, "h", hour),
            (10, "days", day),
        ] {
            let rate = format!("{count}/{unit}");
            let rule = parse(&json!({"rate": rate})).unwrap();
            assert_eq!(rule.quota.burst(), count);
            let window_ns = calendar.longest_us() * 1_000;
            assert!((window_ns..window_ns + u64::from(count)).contains(&rule.quota.fill_ns()), "{rate}");
            let whole = Sharing::of(rule.quota);
            assert_eq!(rule.sharing, Sharing { strict: true, refill_policy: RefillPolicy::Window(calendar), ..whole });
            assert!(rule.sharing.fits(rule.quota));
            assert_eq!(rule.on_sync_loss, OnSyncLoss::Deny);
        }
    }

    #[test]
    fn an_offset_moves_the_windows_of_rules_and_tiers() {
        let tiers = json!([{"name": "t", "when": {"methods": ["GET"]}, "rate": "7/month"}]);
        for (offset, east) in [("+00:00", 0), ("-00:00", 0), ("+02:00", 120), ("-05:30", -330), ("+14:00", 840)] {
            let plain = json!({"rate": "5/day", "utc_offset": offset});
            let mut tiered = plain.clone();
            tiered["tiers"] = tiers.clone();
            for (rule, calendar) in [(plain, Calendar::DAY), (tiered, Calendar::MONTH)] {
                let rule = parse(&rule).unwrap();
                assert_eq!(rule.sharing.refill_policy, RefillPolicy::Window(calendar.east(east)), "{offset}");
                assert!(rule.sharing.fits(rule.quota));
            }
        }
    }
}
