//! Reading a key's local state without changing it, for simulations and tests.

use super::state::Limiter;
use crate::decide::slot_of;
use crate::table::slot::{Entry, Slot, Tag};
use crate::table::{LoadedSlot, Slots};
use weir_rules::key::KeyValue;

impl Limiter {
    /// The entry of the key with the canonical bytes `value` under the rule at `rule`; none if it has no
    /// entry.
    pub fn entry(&self, rule: usize, value: &[u8], slots: &mut dyn Slots) -> Option<Entry> {
        let salt = self.terms.get(rule)?.salt;
        let hash = self.secret.hash(KeyValue::from_bytes(value)?.as_bytes());
        let slot = slot_of(hash.place, slots.count());
        let (loaded, _) = LoadedSlot::read(slots, slot, Slot::default());
        loaded.slot.get(Tag::of_key(hash.tag, salt))
    }
}
