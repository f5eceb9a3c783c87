//! Decisions of each rule since this process began.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_limiter::engine::reported_in_turn;
use weir_protocol::messages::{RULES_MAX, RuleCounts};

use crate::lock::locked;

/// Maximum number of rules that are counted, including replaced ones. Rules beyond it are not counted.
pub(crate) const RULES_DEFINED_MAX: usize = 4 * RULES_MAX;
/// The counters of a rule.
pub(crate) const OF_RULE: [&str; 4] = ["allowed", "limited", "denied", "shadow_limited"];

/// By rule name.
static DEFINED: Mutex<BTreeMap<String, [u64; OF_RULE.len()]>> = Mutex::new(BTreeMap::new());

/// Starts to count the rule `name`, if it is not counted yet. False if there are too many others.
pub(crate) fn define(name: &str) -> bool {
    let mut defined = locked(&DEFINED);
    let has_room = defined.contains_key(name) || defined.len() < RULES_DEFINED_MAX;
    if has_room {
        defined.entry(name.to_owned()).or_default();
    }
    has_room
}

/// Adds `more` to the counters of the rule `name`, if it is counted.
pub(crate) fn add(name: &str, more: [u32; OF_RULE.len()]) {
    if let Some(counts) = locked(&DEFINED).get_mut(name) {
        for (count, more) in counts.iter_mut().zip(more) {
            *count = count.saturating_add(more.into());
        }
    }
}

/// Counts of the rules [of this turn](reported_in_turn), and the number of all counted rules.
pub(crate) fn counted(turn: u64) -> (Vec<RuleCounts>, usize) {
    let defined = locked(&DEFINED);
    let all: Vec<_> = defined.iter().collect();
    let said = reported_in_turn(turn, all.len()).filter_map(|at| all.get(at));
    let of = |(name, decided): &(&String, &[u64; OF_RULE.len()])| RuleCounts {
        name: (*name).clone(),
        decided: **decided,
    };
    (said.map(of).collect(), all.len())
}

/// Requests that the `deny` list refused.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Adds `more` requests that the `deny` list refused.
pub(crate) fn add_blocked(more: u32) {
    BLOCKED.fetch_add(more.into(), Ordering::Relaxed);
}

/// Number of requests that the `deny` list refused since this process began.
pub(crate) fn blocked() -> u64 {
    BLOCKED.load(Ordering::Relaxed)
}
