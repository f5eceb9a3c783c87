//! What weir-syncs store for each other for some time, in memory.

use std::collections::BTreeMap;

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

    /// Drops the values older than `ttl_us`, and returns the others.
    pub(super) fn live(&mut self, now_us: u64, ttl_us: u64) -> &BTreeMap<K, (u64, V)> {
        self.0.retain(|_, (at_us, _)| now_us.saturating_sub(*at_us) <= ttl_us);
        &self.0
    }
}
