//! Names of budgets, as text and hashed, and maps from them.
//!
//! A report's key is looked up in a dozen places. So its name is hashed once, copies share it, and two copies are
//! compared by address first. A hash map's order differs in each run: where order affects a result, there is a tree, or
//! the extracted items are sorted.
//!
//! The default hash is fast, with a seed from this process's address space. Keys that clients choose have a stronger
//! hash, so that they cannot be made to collide; it is stored with the name for all maps ([`Carried`]).

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::fmt::Write as _;
use core::hash::{BuildHasher as _, BuildHasherDefault, Hash, Hasher};
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering as Atomic};

use hashbrown::Equivalent;
pub use hashbrown::hash_map::EntryRef;
use siphasher::sip::SipHasher13;
use thiserror::Error;
use weir_protocol::messages::KEY_BYTES_MAX;
use weir_protocol::time::{SECOND_NS, Time};

/// Interval at which names without other owners are dropped, in nanoseconds.
const SWEEP_NS: u64 = 60 * SECOND_NS;
/// Minimum number of names for an earlier sweep, which happens at twice the number left by the last one.
const SWEEP_MIN: usize = 1_024;

/// Name of a budget: one rule, one key. Ordered by key, then rule, because keys differ sooner.
#[derive(Clone)]
pub struct BudgetId(Arc<BudgetName>);

/// Hash map that uses the hash stored in a budget's name.
pub type ByBudget<V> = Hashed<BudgetId, V, BuildHasherDefault<Carried>>;

pub struct BudgetName {
    pub rule: String,
    /// The key's value in canonical form.
    pub value: Vec<u8>,
    hash: u64,
}

/// Borrowed form of a [`BudgetId`], for look-ups by hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    rule: &'a str,
    value: &'a [u8],
    hash: u64,
}

impl BudgetId {
    pub fn new(rule: String, value: Vec<u8>) -> Self {
        let hash = RuleName::new(&rule).hash(&value);
        Self(Arc::new(BudgetName { rule, value, hash }))
    }
}

/// A rule's name, hashed once for all of its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleName<'a> {
    name: &'a str,
    /// Seeds for hashing the values of its keys.
    keys: [u64; 2],
}

impl<'a> RuleName<'a> {
    pub(crate) fn new(name: &'a str) -> Self {
        let seed = seed_of_names();
        let of_rule = SipHasher13::new_with_keys(seed, !seed).hash(name.as_bytes());
        Self { name, keys: [seed, of_rule] }
    }

    pub(crate) fn of(&self, value: &'a [u8]) -> Named<'a> {
        Named { rule: self.name, value, hash: self.hash(value) }
    }

    fn hash(&self, value: &[u8]) -> u64 {
        let [seed, of_rule] = self.keys;
        SipHasher13::new_with_keys(seed, of_rule).hash(value)
    }
}

impl Deref for BudgetId {
    type Target = BudgetName;

    fn deref(&self) -> &BudgetName {
        &self.0
    }
}

impl fmt::Debug for BudgetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetId").field("rule", &self.rule).field("value", &self.value).finish()
    }
}

impl PartialEq for BudgetId {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&self.0, &other.0);
        Arc::ptr_eq(one, other) || one.hash == other.hash && one.value == other.value && one.rule == other.rule
    }
}

impl Eq for BudgetId {}

impl Hash for BudgetId {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.hash);
    }
}

impl Hash for Named<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.hash);
    }
}

impl Equivalent<BudgetId> for Named<'_> {
    fn equivalent(&self, id: &BudgetId) -> bool {
        self.hash == id.hash && self.value == id.value && self.rule == id.rule
    }
}

/// Lets a hash map insert a new key from a reference.
impl From<&Self> for BudgetId {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

impl Ord for BudgetId {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.value, &self.rule).cmp(&(&other.value, &other.rule))
    }
}

impl PartialOrd for BudgetId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Names in use, each stored once.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: ByBudget<()>,
    swept_at: Time,
    /// Number of names in use after the last sweep.
    left: usize,
}

impl Names {
    /// Returns the shared name of a budget, adding it if it is new.
    pub(crate) fn get(&mut self, now: Time, named: Named<'_>) -> BudgetId {
        if let Some((known, ())) = self.known.get_key_value(&named) {
            return known.clone();
        }
        let is_due = now.nanos_since(self.swept_at) >= SWEEP_NS;
        if is_due || self.known.len() >= SWEEP_MIN.max(2 * self.left) {
            self.known.retain(|id, ()| Arc::strong_count(&id.0) > 1);
            (self.swept_at, self.left) = (now, self.known.len());
        }
        let Named { rule, value, hash } = named;
        let id = BudgetId(Arc::new(BudgetName { rule: rule.into(), value: value.into(), hash }));
        self.known.insert(id.clone(), ());
        id
    }
}

/// Seed for hashing names; 0 until it is set.
static SEED: AtomicU64 = AtomicU64::new(0);

/// Sets the hash seed to `random` bits, so that clients cannot choose keys that collide. Call it before making names.
pub fn seed(random: u64) {
    // Existing names keep their hashes, so only the first call sets the seed.
    let _ = SEED.compare_exchange(0, random | 1, Atomic::Relaxed, Atomic::Relaxed);
}

fn seed_of_names() -> u64 {
    let known = SEED.load(Atomic::Relaxed);
    if known != 0 {
        return known;
    }
    seed(hashbrown::DefaultHashBuilder::default().hash_one(0_u8));
    SEED.load(Atomic::Relaxed)
}

pub type Hashed<K, V, S = hashbrown::DefaultHashBuilder> = hashbrown::HashMap<K, V, S>;

/// Hasher that returns the hash stored in a key unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried(u64);

impl Hasher for Carried {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    /// Unused: keys with a stored hash write nothing else.
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }
}

const BUDGETS_MAX: usize = 100_000;

#[derive(Debug)]
pub(crate) struct BoundedMap<T> {
    budgets: ByBudget<T>,
    budgets_max: usize,
    swept_at: Time,
}

impl<T> Default for BoundedMap<T> {
    fn default() -> Self {
        Self::new(BUDGETS_MAX)
    }
}

impl<T> BoundedMap<T> {
    pub(crate) fn new(budgets_max: usize) -> Self {
        Self { budgets: ByBudget::default(), budgets_max, swept_at: Time::ZERO }
    }

    pub(crate) fn get(&self, id: &BudgetId) -> Option<&T> {
        self.budgets.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &BudgetId) -> Option<&mut T> {
        self.budgets.get_mut(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&BudgetId, &T)> {
        self.budgets.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.budgets.len()
    }

    pub(crate) fn remove(&mut self, id: &BudgetId) {
        // The map is usually empty: skip hashing the key then.
        if !self.budgets.is_empty() {
            self.budgets.remove(id);
        }
    }

    /// Returns the entry of `id`, inserting `new()` if it is missing, or `None` if the map is full. At most once a
    /// second, entries for which `is_needed` is false are removed first.
    pub(crate) fn get_or_insert(
        &mut self,
        now: Time,
        id: &BudgetId,
        new: impl FnOnce() -> T,
        is_needed: impl Fn(&T) -> bool,
    ) -> Option<&mut T> {
        if now.nanos_since(self.swept_at) >= SECOND_NS {
            self.swept_at = now;
            self.budgets.retain(|_, kept| is_needed(kept));
        }
        let has_room = self.len() < self.budgets_max;
        match self.budgets.entry_ref(id) {
            EntryRef::Occupied(kept) => Some(kept.into_mut()),
            EntryRef::Vacant(room) => has_room.then(|| room.insert(new())),
        }
    }
}

/// Error for a text in an unexpected form, written by another version or another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected {0}")]
pub struct TextError(pub(crate) &'static str);

#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl Hex<'_> {
    /// Appends the digits to `text`; formatting would take several times as long.
    pub fn add_to(self, text: &mut String) {
        text.extend(self.digits());
    }

    fn digits(&self) -> impl Iterator<Item = char> {
        let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
        self.0.iter().flat_map(move |byte| [digit(byte >> 4), digit(byte & 15)])
    }
}

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digits().try_for_each(|digit| f.write_char(digit))
    }
}

/// Parses a key's value written by [`Hex`]; it has 1 to [`KEY_BYTES_MAX`] bytes.
pub(crate) fn value_of(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_hex || !(2..=2 * KEY_BYTES_MAX).contains(&text.len()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::from_nanos(s * SECOND_NS)
    }

    #[test]
    fn names_that_are_not_in_use_are_forgotten() {
        let mut names = Names::default();
        let kept = names.get(at(1), RuleName::new("r").of(&[0]));
        for n in 0..100_000_u32 {
            let _ = names.get(at(1), RuleName::new("r").of(&n.to_be_bytes()));
            assert!(names.known.len() <= SWEEP_MIN);
        }
        let _ = names.get(at(70), RuleName::new("r").of(&[1]));
        assert_eq!(names.known.len(), 2);
        assert!(Arc::ptr_eq(&kept.0, &names.get(at(70), RuleName::new("r").of(&[0])).0));
    }
}
