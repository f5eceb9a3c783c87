//! Looking at a key's local state without changing it: for simulations and tests.

use super::state::Limiter;
use crate::decide::slot_of;
use crate::local::Prefetch;
use crate::table::slot::{Entry, Slot, Tag};
use crate::table::{Loaded, Slots};
use weir_rules::key::KeyValue;

impl Limiter {
    /// Tokens that this worker has withdrawn of the even share of the key with the canonical bytes `value` under the rule at
    /// `rule`, and that are neither spent nor given back.
    pub fn prefetched(&self, rule: usize, value: &[u8]) -> u64 {
        let prefetch = self.tag_of(rule, value).and_then(|tag| self.deny_cache.prefetch(tag));
        let Some(prefetch) = prefetch.filter(Prefetch::is_of_share) else { return 0 };
        let cost = self.terms.get(rule).map_or(1, |terms| terms.cost.usual());
        u64::from(prefetch.left()) * u64::from(cost)
    }

    /// Tokens that this worker's prefetches paid with for that key, and that its entry does not count yet.
    pub fn unadded(&self, rule: usize, value: &[u8]) -> u64 {
        let tag = self.tag_of(rule, value);
        let key = self.watch.unsaid().find(|key| Some(key.name.place.tag) == tag);
        key.map_or(0, |key| key.admitted_unadded.into())
    }

    fn tag_of(&self, rule: usize, value: &[u8]) -> Option<Tag> {
        let (terms, value) = (self.terms.get(rule)?, KeyValue::from_bytes(value)?);
        Some(Tag::of_key(self.secret.hash(value.as_bytes()).tag, terms.salt))
    }

    /// The entry, if there is one, of the key with the canonical bytes `value` under the rule at `rule`.
    pub fn entry(&self, rule: usize, value: &[u8], slots: &mut dyn Slots) -> Option<Entry> {
        let salt = self.terms.get(rule)?.salt;
        let hash = self.secret.hash(KeyValue::from_bytes(value)?.as_bytes());
        let slot = slot_of(hash.place, slots.count());
        let (loaded, _) = Loaded::read(slots, slot, Slot::default());
        loaded.slot.get(Tag::of_key(hash.tag, salt))
    }
}
