//! Maps whose values end: budgets, and values that weir-syncs store for each other.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

use weir_budget::id::Hashed;

/// Values by name, in the order of their ends.
#[derive(Debug)]
pub(super) struct Expiring<K, V> {
    /// Each value with its end in `by_end`, which is never later than its own.
    values: Hashed<K, (u64, V)>,
    /// Names by their ends. An end that is too early, because the value has changed, is corrected when it is the first.
    by_end: BTreeSet<(u64, K)>,
    /// End of a value, in microseconds: from then on, a new value can replace it without loss.
    ends_us: fn(&V) -> u64,
}

impl<K: Clone + Ord + Hash, V> Expiring<K, V> {
    pub(super) fn new(ends_us: fn(&V) -> u64) -> Self {
        Self { values: Hashed::default(), by_end: BTreeSet::new(), ends_us }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn change<T>(&mut self, id: &K, change: impl FnOnce(&mut V) -> T) -> Option<T> {
        let (known_us, value) = self.values.get_mut(id)?;
        let result = change(value);
        let ends_us = (self.ends_us)(value);
        if ends_us < *known_us {
            self.by_end.remove(&(*known_us, id.clone()));
            self.by_end.insert((ends_us, id.clone()));
            *known_us = ends_us;
        }
        Some(result)
    }

    pub(super) fn insert(&mut self, id: K, value: V) {
        let ends_us = (self.ends_us)(&value);
        self.by_end.insert((ends_us, id.clone()));
        self.values.insert(id, (ends_us, value));
    }

    pub(super) fn remove(&mut self, id: &K) {
        if let Some((end_us, _)) = self.values.remove(id) {
            self.by_end.remove(&(end_us, id.clone()));
        }
    }

    /// Drops the value that ends first, if it ends by `until_us`. Returns true if one was dropped.
    pub(super) fn pop_first(&mut self, until_us: u64) -> bool {
        while self.by_end.first().is_some_and(|(end_us, _)| *end_us <= until_us) {
            let Some((first_us, id)) = self.by_end.pop_first() else { return false };
            let Some((known_us, value)) = self.values.get_mut(&id) else { continue };
            let ends_us = (self.ends_us)(value);
            if ends_us <= first_us {
                self.values.remove(&id);
                return true;
            }
            *known_us = ends_us;
            self.by_end.insert((ends_us, id));
        }
        false
    }
}

/// Values by name, each with the time at which it was stored, in microseconds.
#[derive(Debug)]
pub(super) struct Recent<K, V>(BTreeMap<K, (u64, V)>);

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, V> Recent<K, V> {
    /// Stores a value, and drops those older than `ttl_us`. Beyond `most`, the oldest is dropped.
    pub(super) fn put(&mut self, now_us: u64, ttl_us: u64, most: usize, name: K, value: V) {
        self.0.insert(name, (now_us, value));
        self.live(now_us, ttl_us);
        while self.0.len() > most {
            let oldest = self.0.iter().min_by_key(|(_, (at_us, _))| *at_us).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { break };
            self.0.remove(&oldest);
        }
    }

    pub(super) fn remove(&mut self, name: &K) {
        self.0.remove(name);
    }

    pub(super) fn live(&mut self, now_us: u64, ttl_us: u64) -> &BTreeMap<K, (u64, V)> {
        self.0.retain(|_, (at_us, _)| now_us.saturating_sub(*at_us) <= ttl_us);
        &self.0
    }
}
