//! Log of refused requests and of POPs' refused claims, at a bounded rate.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use weir_budget::report_limits::{Refusal, RefusedClaimReason};

use crate::lock;
use crate::metrics::{Metrics, RefusedClaim};

/// Interval after which the same refusal is logged again.
const PAUSE: Duration = Duration::from_mins(1);
/// Maximum number of distinct refusals. Further ones are not logged until there is room.
const REFUSALS_MAX: usize = 1_000;

const CLIENT_TEXT_BYTES_MAX: usize = 128;
const REASON_BYTES_MAX: usize = 1_024;

/// Text chosen by a client, for the log. A long text is cut, and its length appended.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    cut(text, CLIENT_TEXT_BYTES_MAX)
}

fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    let head = text.floor_char_boundary(bytes_max);
    match text.get(..head).filter(|_| head < text.len()) {
        Some(head) => format!("{head}... ({} bytes)", text.len()).into(),
        None => text.into(),
    }
}

#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<(IpAddr, String), Seen>>);

#[derive(Debug)]
struct Seen {
    logged_at: Instant,
    since: u64,
}

impl Refusals {
    /// Logs that a request from `peer` was refused, at most once a minute for the same reason.
    pub(crate) fn log(&self, peer: IpAddr, reason: &str) {
        self.log_at(Instant::now(), peer, cut(reason, REASON_BYTES_MAX).into_owned());
    }

    fn log_at(&self, now: Instant, peer: IpAddr, reason: String) -> bool {
        let mut seen = lock(&self.0);
        let is_recent = |seen: &Seen| now.duration_since(seen.logged_at) < PAUSE;
        if seen.len() >= REFUSALS_MAX {
            seen.retain(|_, seen| is_recent(seen));
        }
        let has_room = seen.len() < REFUSALS_MAX;
        let key = (peer, reason);
        match seen.get_mut(&key) {
            Some(seen) if is_recent(seen) => {
                seen.since += 1;
                return false;
            }
            Some(seen) => {
                tracing::warn!(%peer, times_since = seen.since + 1, "refused again: {}", key.1);
                *seen = Seen { logged_at: now, since: 0 };
            }
            None if has_room => {
                tracing::warn!(%peer, "refused: {}", key.1);
                seen.insert(key, Seen { logged_at: now, since: 0 });
            }
            None => return false,
        }
        true
    }
}

/// Maximum number of pairs of POP and reason; further ones are counted together.
const SEEN_MAX: usize = 10_000;
const OTHERS: &str = "";

/// Counts of refused claims by POP and reason, each logged at most once a minute.
#[derive(Debug, Default)]
pub(crate) struct RefusedClaims(Mutex<HashMap<(String, RefusedClaimReason), Seen>>);

impl RefusedClaims {
    /// Counts the refused claims of `pop`, and logs those that are due.
    pub(crate) fn record(&self, pop: &str, refused: &[Refusal], metrics: &Metrics) {
        for refusal in refused {
            let pop = self.log_at(Instant::now(), pop, refusal);
            let claim = RefusedClaim { pop, reason: words(refusal.reason).0 };
            metrics.report_limits_exceeded.get_or_create(&claim).inc_by(refusal.count);
        }
    }

    /// Logs a refusal, unless its like was logged within the last minute. Returns the POP that it is counted under.
    fn log_at(&self, now: Instant, pop: &str, refusal: &Refusal) -> String {
        let mut seen = lock(&self.0);
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
            let (since, what) = (known.since, words(refusal.reason).1);
            tracing::warn!(pop, rule, claimed, expected, times = since, "refused what a POP claims: {what}");
            *known = Seen { logged_at: now, since: 0 };
        }
        counted
    }
}

/// Name of a reason in metrics, and its words in the log.
fn words(reason: RefusedClaimReason) -> (&'static str, &'static str) {
    match reason {
        RefusedClaimReason::Rule => {
            ("rule", "no rule set that is kept has this rule with this quota; does the POP run rules of its own?")
        }
        RefusedClaimReason::Newer => (
            "newer",
            "a rule of a newer rule set than this weir-sync knows; it is charged once the store has returned that",
        ),
        RefusedClaimReason::Tokens => {
            ("tokens", "more tokens of a key than its bucket can have admitted; they are charged as it refills")
        }
        RefusedClaimReason::Keys => (
            "keys",
            "more keys at once than its share; they get the region's own share of their quota until there is room",
        ),
        RefusedClaimReason::Ban => ("ban", "a ban that the rule does not impose, or too many at once"),
        RefusedClaimReason::Cost => ("cost", "a request that cost more than the rule allows; that much is charged"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    // I2
    #[test]
    fn a_flood_of_refusals_is_logged_once_a_minute_and_bounded() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let peer = |n: u32| IpAddr::from(Ipv4Addr::from(n));
        let logged =
            |at_s: u64, n: u32| refusals.log_at(start + Duration::from_secs(at_s), peer(n), "401 Unauthorized".into());
        assert!(logged(0, 1));
        assert!(!(0..1_000).any(|_| logged(59, 1)), "the same again");
        assert!(logged(60, 1) && !logged(61, 1), "a minute later");
        let others = (2..10_000).filter(|n| logged(61, *n)).count();
        assert_eq!(others, REFUSALS_MAX - 1);
        assert!(logged(130, 10_001), "once the others are old");
        assert!(refusals.0.lock().unwrap().len() < REFUSALS_MAX);
    }

    fn refusal(reason: RefusedClaimReason, count: u64) -> Refusal {
        Refusal { reason, count, rule: "login".into(), claimed: 900, expected: 40 }
    }

    #[test]
    fn refusals_are_counted_by_a_bounded_number_of_pops() {
        let (metrics, _) = Metrics::new("eu");
        let refused = RefusedClaims::default();
        let count = |pop: &str, reason| {
            metrics.report_limits_exceeded.get_or_create(&RefusedClaim { pop: pop.into(), reason }).get()
        };
        refused.record(
            "fra1",
            &[refusal(RefusedClaimReason::Tokens, 3), refusal(RefusedClaimReason::Ban, 1)],
            &metrics,
        );
        refused.record("fra1", &[refusal(RefusedClaimReason::Tokens, 2)], &metrics);
        assert_eq!((count("fra1", "tokens"), count("fra1", "ban")), (5, 1));
        for n in 0..2 * SEEN_MAX {
            refused.record(&format!("made-up-{n}"), &[refusal(RefusedClaimReason::Keys, 1)], &metrics);
        }
        assert!(refused.0.lock().unwrap().len() <= SEEN_MAX + 1);
        assert_eq!(count(OTHERS, "keys"), SEEN_MAX as u64 + 2);
        refused.record("fra1", &[refusal(RefusedClaimReason::Tokens, 1)], &metrics);
        assert_eq!(count("fra1", "tokens"), 6, "one that was known before still counts for itself");
    }
}
