//! Metrics and log of claims that POPs made and were refused, logged once a minute for each POP and reason.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_budget::report_limits::{KnownRule, Refusal, RefusedClaimReason};
use weir_protocol::messages::BudgetRule;
use weir_rules::RuleSet;

use crate::metrics::{Metrics, RefusedClaim};

/// Minimum interval between two log lines about the same POP and reason.
const PAUSE: Duration = Duration::from_mins(1);
/// Maximum number of pairs of POP and reason; those beyond it are counted together.
const SEEN_MAX: usize = 10_000;
/// Name of the POP for those beyond the maximum.
const OTHERS: &str = "";

/// Refusals so far.
#[derive(Debug, Default)]
pub struct RefusedClaims(Mutex<HashMap<(String, RefusedClaimReason), Seen>>);

#[derive(Debug)]
struct Seen {
    logged_at: Instant,
    since: u64,
}

impl RefusedClaims {
    /// Counts the refusals of `pop`, and logs those that are due.
    pub fn note(&self, pop: &str, refused: &[Refusal], metrics: &Metrics) {
        for refusal in refused {
            let pop = self.log_at(Instant::now(), pop, refusal);
            let claim = RefusedClaim { pop, reason: name(refusal.reason) };
            metrics.report_limits_exceeded.get_or_create(&claim).inc_by(refusal.count);
        }
    }

    /// Logs a refusal, unless that was done within the last minute. Returns the POP that it is counted for.
    fn log_at(&self, now: Instant, pop: &str, refusal: &Refusal) -> String {
        // Nothing panics while it holds this lock; if it did, the data would still be valid.
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (pop.to_owned(), refusal.reason);
        if seen.len() >= SEEN_MAX && !seen.contains_key(&key) {
            OTHERS.clone_into(&mut key.0);
        }
        let counted = key.0.clone();
        let is_new = !seen.contains_key(&key);
        let known = seen.entry(key).or_insert(Seen { logged_at: now, since: 0 });
        known.since += refusal.count;
        if is_new || now.duration_since(known.logged_at) >= PAUSE {
            let Refusal { rule, claimed, expected, .. } = refusal;
            let (since, what) = (known.since, words(refusal.reason));
            tracing::warn!(pop, rule, claimed, expected, times = since, "refused what a POP claims: {what}");
            *known = Seen { logged_at: now, since: 0 };
        }
        counted
    }
}

/// Rules of a rule set that POPs may report.
pub fn known_rules(rules: &RuleSet) -> impl Iterator<Item = KnownRule> {
    rules.rules().iter().map(|rule| KnownRule {
        rule: BudgetRule { name: rule.name.clone(), quota: rule.quota, sharing: rule.sharing.clone() },
        ban_ms: rule.penalty.map_or(0, |penalty| penalty.deny_for_ms),
        cost_max: rule.most_cost(),
    })
}

fn name(reason: RefusedClaimReason) -> &'static str {
    match reason {
        RefusedClaimReason::Rule => "rule",
        RefusedClaimReason::Newer => "newer",
        RefusedClaimReason::Tokens => "tokens",
        RefusedClaimReason::Keys => "keys",
        RefusedClaimReason::Ban => "ban",
        RefusedClaimReason::Cost => "cost",
    }
}

fn words(reason: RefusedClaimReason) -> &'static str {
    match reason {
        RefusedClaimReason::Rule => {
            "no rule set that is kept has this rule with this quota; does the POP run rules of its own?"
        }
        RefusedClaimReason::Newer => {
            "a rule of a newer rule set than this weir-sync has heard of; it is charged once the store says which"
        }
        RefusedClaimReason::Tokens => {
            "more tokens of a key than its bucket can have admitted; they are charged as it refills"
        }
        RefusedClaimReason::Keys => {
            "more keys at once than its share; they get the region's own share of their quota until there is room"
        }
        RefusedClaimReason::Ban => "a ban that the rule does not impose, or too many at once",
        RefusedClaimReason::Cost => {
            "a request that cost more than the rule says at most; that much is charged"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(reason: RefusedClaimReason, count: u64) -> Refusal {
        Refusal { reason, count, rule: "login".into(), claimed: 900, expected: 40 }
    }

    #[test]
    fn refusals_are_counted_by_pop_and_a_flood_of_pops_takes_bounded_room() {
        let (metrics, _) = Metrics::new("eu");
        let refused = RefusedClaims::default();
        let count = |pop: &str, reason| {
            metrics.report_limits_exceeded.get_or_create(&RefusedClaim { pop: pop.into(), reason }).get()
        };
        refused.note(
            "fra1",
            &[refusal(RefusedClaimReason::Tokens, 3), refusal(RefusedClaimReason::Ban, 1)],
            &metrics,
        );
        refused.note("fra1", &[refusal(RefusedClaimReason::Tokens, 2)], &metrics);
        assert_eq!((count("fra1", "tokens"), count("fra1", "ban")), (5, 1));
        for n in 0..2 * SEEN_MAX {
            refused.note(&format!("made-up-{n}"), &[refusal(RefusedClaimReason::Keys, 1)], &metrics);
        }
        assert!(refused.0.lock().unwrap().len() <= SEEN_MAX + 1);
        assert_eq!(count(OTHERS, "keys"), SEEN_MAX as u64 + 2);
        refused.note("fra1", &[refusal(RefusedClaimReason::Tokens, 1)], &metrics);
        assert_eq!(count("fra1", "tokens"), 6, "one that was known before still counts for itself");
    }

    #[test]
    fn a_refusal_is_logged_once_a_minute_and_says_how_often_it_happened() {
        let (refused, start) = (RefusedClaims::default(), Instant::now());
        let since = |at_s: u64| {
            refused.log_at(start + Duration::from_secs(at_s), "fra1", &refusal(RefusedClaimReason::Rule, 1));
            refused.0.lock().unwrap()[&("fra1".to_owned(), RefusedClaimReason::Rule)].since
        };
        assert_eq!([0, 1, 59, 60, 61].map(since), [0, 1, 2, 0, 1], "0 is just logged");
    }
}
