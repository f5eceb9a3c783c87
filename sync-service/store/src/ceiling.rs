//! Limit on the number of live keys per rule that a weir-sync keeps in Redis.
//!
//! A client that can make up a rule's keys (addresses, header values) makes up keys in Redis. Each lives slightly
//! longer than its budget needs to fill, so a flood of them takes memory from other rules and programs. A key beyond
//! the limit is not sent to Redis; it is handled as if its part of the store were out of reach.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use weir_budget::budget::BudgetId;
use weir_budget::id::{Carried, Hashed};

use super::{StoreError, lock};

/// Minimum interval between two searches for expired keys when there is no room.
const SWEEP: Duration = Duration::from_secs(1);
/// Minimum interval between two log lines about one rule's limit.
const PAUSE: Duration = Duration::from_mins(1);
/// Assumed lifetime of a key until Redis has answered.
const ASSUMED_LIFETIME: Duration = Duration::from_mins(1);
/// Maximum number of rules; without a rule set in the store, POPs may report any.
const RULES_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct Ceiling {
    most: usize,
    rules: Mutex<Rules>,
}

type Rules = HashMap<String, Keys>;

#[derive(Debug)]
struct Keys {
    /// End of each key's life, by the hash of its name.
    alive: Hashed<u64, Instant, BuildHasherDefault<Carried>>,
    swept_at: Instant,
    warned_at: Option<Instant>,
}

impl Ceiling {
    pub(super) fn new(most: usize) -> Self {
        Self { most, rules: Mutex::default() }
    }

    /// Returns `Ok` for each key that there is room for; the key then counts from now on.
    pub(super) fn admit<'a>(
        &self,
        now: Instant,
        ids: impl Iterator<Item = &'a BudgetId>,
    ) -> Vec<Result<(), StoreError>> {
        let mut rules = lock(&self.rules);
        ids.map(|id| self.admit_one(&mut rules, now, id)).collect()
    }

    pub(super) fn keep<'a>(&self, now: Instant, kept: impl Iterator<Item = (&'a BudgetId, Duration)>) {
        let mut rules = lock(&self.rules);
        for (id, kept) in kept {
            let keys = rules.get_mut(&id.rule);
            if let Some(until) = keys.and_then(|keys| keys.alive.get_mut(&hash_of(id))) {
                *until = now + kept;
            }
        }
    }

    fn admit_one(&self, rules: &mut Rules, now: Instant, id: &BudgetId) -> Result<(), StoreError> {
        if !rules.contains_key(&id.rule) {
            if rules.len() >= RULES_MAX {
                rules.retain(|_, keys| keys.sweep(now) > 0);
            }
            if rules.len() >= RULES_MAX {
                return Err(StoreError::Full(self.most));
            }
            let none = Keys { alive: Hashed::default(), swept_at: now, warned_at: None };
            rules.insert(id.rule.clone(), none);
        }
        let Some(keys) = rules.get_mut(&id.rule) else { return Ok(()) };
        let hash = hash_of(id);
        if keys.alive.contains_key(&hash) {
            return Ok(());
        }
        if keys.alive.len() >= self.most && now.duration_since(keys.swept_at) >= SWEEP {
            keys.sweep(now);
        }
        if keys.alive.len() >= self.most {
            if keys.warned_at.is_none_or(|at| now.duration_since(at) >= PAUSE) {
                keys.warned_at = Some(now);
                tracing::warn!(
                    rule = id.rule,
                    store_keys_max = self.most,
                    "the rule has as many keys in the store as it may; others get the region's own share of their quota"
                );
            }
            return Err(StoreError::Full(self.most));
        }
        keys.alive.insert(hash, now + ASSUMED_LIFETIME);
        Ok(())
    }
}

impl Keys {
    fn sweep(&mut self, now: Instant) -> usize {
        self.swept_at = now;
        self.alive.retain(|_, until| *until > now);
        self.alive.len()
    }
}

fn hash_of(id: &BudgetId) -> u64 {
    BuildHasherDefault::<Carried>::default().hash_one(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(rule: &str, n: u64) -> BudgetId {
        BudgetId::new(rule.into(), n.to_be_bytes().to_vec())
    }

    #[test]
    fn a_flood_of_keys_stays_below_the_ceiling() {
        let (ceiling, start) = (Ceiling::new(100), Instant::now());
        let at = |s: u64| start + Duration::from_secs(s);
        let admits = |s: u64, rule: &str, n: u64| {
            let id = id(rule, n);
            let is_admitted = ceiling.admit(at(s), [&id].into_iter()).remove(0).is_ok();
            ceiling.keep(at(s), [(&id, Duration::from_mins(1))].into_iter());
            is_admitted
        };
        assert_eq!((0..1_000).filter(|n| admits(0, "login", *n)).count(), 100);
        assert!(admits(30, "login", 5), "one that is there is kept for longer");
        assert!(admits(30, "other", 1_000), "each rule has its own");
        assert!(!admits(59, "login", 1_000));
        assert_eq!((2_000..3_000).filter(|n| admits(61, "login", *n)).count(), 99);
    }
}
