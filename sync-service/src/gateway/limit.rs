//! Limits that callers define, consumed from the store with each check.
//!
//! Such a limit holds for the whole fleet. It is a token bucket whose burst is the limit and which refills once
//! per window, or a counter per window. Its budget works like that of a strict rule ([`weir_budget::escrow`])
//! but without leases: one exchange with the store consumes the whole weight of the check, or nothing. So no
//! check waits for tokens that another gateway holds, and the store alone decides.

use std::time::Duration;

use weir_budget::budget::BudgetId;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, ClaimKind};
use weir_limiter::key::HashSecret as Hasher;
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;

use super::request::CheckPurpose;
use crate::config::Secret;

/// Rules that own these budgets: token buckets, and counts of windows, which may be kept for long. No rule of
/// an operator can have a slash in its name, and no report from outside may use these names.
pub const RULES: [&str; 2] = ["ratelimit/check", PER_UNIT];
/// The second of these rules.
pub(super) const PER_UNIT: &str = "ratelimit/descriptor";

/// Check of a limit that its caller defines.
#[derive(Clone, Debug)]
pub struct LimitCheck {
    /// Key that the check counts for.
    pub key: String,
    /// Size of the limit, and the time in which it refills completely.
    pub quota: Quota,
    /// Refill policy: continuous, or in windows of fixed length.
    pub refill_policy: RefillPolicy,
    /// Tokens that the check costs.
    pub weight: u32,
    /// Purpose of the check.
    pub purpose: CheckPurpose,
}

/// Answer to a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitAnswer {
    /// True if the tokens were consumed.
    pub is_allowed: bool,
    /// Tokens that are left.
    pub remaining: u32,
    /// Time until the limit is full again.
    pub reset_after: Duration,
    /// For a refused check: time until the tokens are there, if no other check consumes any.
    pub retry_after: Duration,
}

/// Hash that hides keys from the store.
pub(super) struct KeyHasher(Hasher);

impl KeyHasher {
    /// Keyed with `secret`, which is the same at every gateway. Without a secret, anybody can compute the
    /// hashes.
    pub(super) fn hidden_by(secret: Option<&Secret>) -> Self {
        let known = Hasher::new(*b"weir limit keys.");
        let secret = secret.map(|secret| known.hash(secret.expose().as_bytes()));
        Self(secret.map_or(known, |hash| Hasher::new(bytes(hash.place, hash.tag))))
    }

    /// ID of the budget. Token buckets of different sizes are different budgets, so one key may have several. A
    /// count of a window is independent of the limit, so it stays valid when the limit changes.
    fn id(&self, check: &LimitCheck) -> BudgetId {
        let [of_buckets, of_windows] = RULES;
        let (rule, size) = match check.refill_policy {
            RefillPolicy::Continuous => (of_buckets, [check.quota.token_ns(), check.quota.burst().into()]),
            _ => (of_windows, [0; 2]),
        };
        let size = size.map(u64::to_le_bytes);
        let hash = self.0.hash(&[size.as_flattened(), check.key.as_bytes()].concat());
        BudgetId::new(rule.into(), bytes(hash.place, hash.tag).to_vec())
    }
}

fn bytes(left: u64, right: u64) -> [u8; 16] {
    (u128::from(left) << 64 | u128::from(right)).to_be_bytes()
}

/// Exchange with the store that consumes the whole weight or nothing, charges it, or refunds it. A peek only
/// reads.
pub(super) fn acquire(keys: &KeyHasher, check: &LimitCheck) -> AcquireRequest {
    let claims = match check.purpose {
        CheckPurpose::Take => vec![Claim::take(check.weight)],
        CheckPurpose::Peek => vec![],
        CheckPurpose::Charge => vec![Claim::at_once(ClaimKind::Charge, check.weight)],
        CheckPurpose::Refund => vec![Claim::at_once(ClaimKind::Refund, check.weight)],
    };
    AcquireRequest {
        id: keys.id(check),
        quota: check.quota,
        lease_us: 0,
        refill_policy: check.refill_policy,
        window: None,
        claims,
    }
}

fn left_of_window(check: &LimitCheck, drawn: &AcquireResult) -> Option<Duration> {
    let calendar = check.refill_policy.windows()?;
    Some(Duration::from_micros(calendar.window(drawn.now_us).end_us.saturating_sub(drawn.now_us)))
}

pub(super) fn answer(check: &LimitCheck, drawn: &AcquireResult) -> LimitAnswer {
    let (quota, weight) = (check.quota, check.weight);
    let remaining = drawn.left(quota);
    let is_allowed = drawn.leases.first().map_or(remaining >= weight, |lease| lease.charged >= weight.into());
    let weighs_ns = u64::from(weight).saturating_mul(quota.token_ns());
    let short_ns = drawn.deficit_ns.saturating_add(weighs_ns).saturating_sub(quota.fill_ns());
    let in_window = left_of_window(check, drawn);
    let retry_after = in_window.unwrap_or(Duration::from_nanos(short_ns.max(1)));
    LimitAnswer {
        is_allowed,
        remaining,
        reset_after: in_window.unwrap_or(Duration::from_nanos(drawn.deficit_ns)),
        retry_after: if is_allowed { Duration::ZERO } else { retry_after },
    }
}

#[cfg(test)]
mod tests {
    use weir_budget::escrow::Escrow;
    use weir_protocol::calendar::Calendar;

    use super::*;

    fn check(limit: u32, window_ms: u64, weight: u32) -> LimitCheck {
        let quota = Quota::from_token_ns((window_ms * 1_000_000).div_ceil(limit.into()), limit).unwrap();
        LimitCheck {
            key: "alice".into(),
            quota,
            refill_policy: RefillPolicy::Continuous,
            weight,
            purpose: CheckPurpose::Take,
        }
    }

    fn asked(escrow: &mut Escrow, at_ms: u64, check: &LimitCheck) -> LimitAnswer {
        let draw = acquire(&KeyHasher::hidden_by(None), check);
        answer(check, &escrow.acquire(1_000_000_000 + at_ms * 1_000, "gateway/fra/a", &draw))
    }

    #[test]
    fn a_check_takes_all_that_it_weighs_or_nothing() {
        let (mut escrow, of) = (Escrow::default(), |weight| check(10, 1_000, weight));
        let first = asked(&mut escrow, 0, &of(7));
        assert_eq!((first.is_allowed, first.remaining, first.reset_after.as_millis()), (true, 3, 700));
        let second = asked(&mut escrow, 0, &of(4));
        assert_eq!((second.is_allowed, second.remaining, second.retry_after.as_millis()), (false, 3, 100));
        let third = asked(&mut escrow, 0, &of(3));
        assert_eq!((third.is_allowed, third.remaining, third.retry_after.as_millis()), (true, 0, 0));
        assert!(!asked(&mut escrow, 99, &of(1)).is_allowed && asked(&mut escrow, 100, &of(1)).is_allowed);
    }

    #[test]
    fn a_peek_takes_nothing() {
        let peek = LimitCheck { purpose: CheckPurpose::Peek, ..check(10, 1_000, 10) };
        let mut escrow = Escrow::default();
        for _ in 0..3 {
            assert_eq!(
                asked(&mut escrow, 0, &peek),
                LimitAnswer {
                    is_allowed: true,
                    remaining: 10,
                    reset_after: Duration::ZERO,
                    retry_after: Duration::ZERO,
                }
            );
        }
        assert!(asked(&mut escrow, 0, &check(10, 1_000, 1)).is_allowed);
        assert_eq!(asked(&mut escrow, 0, &peek).retry_after.as_millis(), 100);
    }

    #[test]
    fn a_window_gives_what_is_allowed_in_it_and_the_next_one_anew() {
        let of = |limit, weight| LimitCheck {
            refill_policy: RefillPolicy::Window(Calendar::every(10, 0)),
            ..check(limit, 10_000, weight)
        };
        let mut escrow = Escrow::default();
        let first = asked(&mut escrow, 4_000, &of(5, 3));
        assert_eq!((first.is_allowed, first.remaining, first.reset_after.as_millis()), (true, 2, 6_000));
        let second = asked(&mut escrow, 5_000, &of(5, 3));
        assert_eq!((second.is_allowed, second.remaining, second.retry_after.as_millis()), (false, 2, 5_000));
        assert!(asked(&mut escrow, 9_000, &of(5, 2)).is_allowed, "what was refused took nothing");
        assert!(!asked(&mut escrow, 9_000, &of(5, 1)).is_allowed);
        // Another limit is one of the same count.
        assert!(
            asked(&mut escrow, 9_500, &of(6, 1)).is_allowed
                && !asked(&mut escrow, 9_500, &of(4, 1)).is_allowed
        );
        let hidden = KeyHasher::hidden_by(None);
        assert_eq!(hidden.id(&of(5, 3)), hidden.id(&of(6, 1)));
        let next = asked(&mut escrow, 10_000, &of(5, 5));
        assert_eq!((next.is_allowed, next.remaining), (true, 0));
    }

    #[test]
    fn a_window_counts_to_its_last_moment() {
        let of =
            LimitCheck { refill_policy: RefillPolicy::Window(Calendar::every(1, 0)), ..check(1, 1_000, 1) };
        let (keys, mut escrow) = (KeyHasher::hidden_by(None), Escrow::default());
        let mut at = |us: u64| {
            let drawn = escrow.acquire(1_000_000_000 + us, "gateway/fra/a", &acquire(&keys, &of));
            answer(&of, &drawn).is_allowed
        };
        assert_eq!([999_998, 999_999, 1_000_000, 1_000_001].map(&mut at), [true, false, true, false]);
    }

    #[test]
    fn a_key_is_hidden_and_has_a_budget_for_each_limit() {
        let (one, other) = (Secret::new("a secret of the tests"), Secret::new("another one of the tests"));
        let id = |secret: Option<&Secret>, check: &LimitCheck| KeyHasher::hidden_by(secret).id(check);
        let same = check(10, 1_000, 1);
        assert_eq!(id(Some(&one), &same), id(Some(&one), &check(10, 1_000, 3)));
        assert_ne!(id(Some(&one), &same), id(Some(&other), &same));
        assert_ne!(id(None, &same), id(None, &check(10, 2_000, 1)));
        assert_ne!(id(None, &same), id(None, &check(20, 2_000, 1)));
        assert!(!id(None, &same).value.windows(5).any(|part| part == b"alice"));
    }
}
