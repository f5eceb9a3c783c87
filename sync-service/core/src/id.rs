//! What budgets are called, and how what is known of one is found.
//!
//! A report's key is looked up in a dozen places. So its name is hashed once, copies share it, and two copies are found to be equal
//! by where they lie.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{BuildHasher as _, BuildHasherDefault, Hash, Hasher};
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering as Atomic};

use siphasher::sip::SipHasher13;
use weir_wire::time::{SECOND_NS, Time};

use crate::hashed::{Carried, Equivalent, Hashed};

/// Names that nobody else has are forgotten this often, in nanoseconds, ...
const SWEEP_NS: u64 = 60 * SECOND_NS;
/// ... and when there are twice as many as then, but at least so many.
const SWEEP_MIN: usize = 1_024;

/// Names a budget: one rule, one key. Ordered by key, then rule: keys differ sooner.
#[derive(Clone)]
pub struct BudgetId(Arc<Name>);

/// A map by the hash that a budget's name carries.
pub type ByBudget<V> = Hashed<BudgetId, V, BuildHasherDefault<Carried>>;

/// What a [`BudgetId`] is.
pub struct Name {
    /// The rule's name.
    pub rule: String,
    /// The key's value in canonical form.
    pub value: Vec<u8>,
    hash: u64,
}

/// A [`BudgetId`] whose parts are elsewhere, to look up what is known of a budget by hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    rule: &'a str,
    value: &'a [u8],
    hash: u64,
}

impl BudgetId {
    /// The budget of this rule and this key's value in canonical form.
    pub fn new(rule: String, value: Vec<u8>) -> Self {
        let hash = RuleName::new(&rule).hash(&value);
        Self(Arc::new(Name { rule, value, hash }))
    }

    /// What the budget that `rule` and `value` name is ordered by.
    pub(crate) fn order<'a>(rule: &'a str, value: &'a [u8]) -> (&'a [u8], &'a str) {
        (value, rule)
    }
}

/// A rule's name, hashed once for all of its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleName<'a> {
    name: &'a str,
    /// What its keys' values are hashed with.
    keys: [u64; 2],
}

impl<'a> RuleName<'a> {
    pub(crate) fn new(name: &'a str) -> Self {
        let seed = seed_of_names();
        let of_rule = SipHasher13::new_with_keys(seed, !seed).hash(name.as_bytes());
        Self { name, keys: [seed, of_rule] }
    }

    /// The name of this rule's budget for this key.
    pub(crate) fn of(&self, value: &'a [u8]) -> Named<'a> {
        Named { rule: self.name, value, hash: self.hash(value) }
    }

    fn hash(&self, value: &[u8]) -> u64 {
        let [seed, of_rule] = self.keys;
        SipHasher13::new_with_keys(seed, of_rule).hash(value)
    }
}

impl Deref for BudgetId {
    type Target = Name;

    fn deref(&self) -> &Name {
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
        Arc::ptr_eq(one, other)
            || one.hash == other.hash && one.value == other.value && one.rule == other.rule
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

/// What a map by hash puts in for a key that is new.
impl From<&Self> for BudgetId {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

impl Ord for BudgetId {
    fn cmp(&self, other: &Self) -> Ordering {
        Self::order(&self.rule, &self.value).cmp(&Self::order(&other.rule, &other.value))
    }
}

impl PartialOrd for BudgetId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The names that are in use, each once.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: ByBudget<()>,
    swept_at: Time,
    /// How many were in use then.
    left: usize,
}

impl Names {
    /// The name of this rule's budget for this key.
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
        let id = BudgetId(Arc::new(Name { rule: rule.into(), value: value.into(), hash }));
        self.known.insert(id.clone(), ());
        id
    }
}

/// What names are hashed with; 0 until the first one is.
static SEED: AtomicU64 = AtomicU64::new(0);

/// Hashes names with these `random` bits, so that nobody can choose keys that collide. Called before the first name is made; without
/// it the seed is where this process's memory lies.
pub fn seed(random: u64) {
    // Names that are there already keep their hashes.
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn at(s: u64) -> Time {
        Time::from_nanos(s * SECOND_NS)
    }

    #[test]
    fn a_name_is_the_same_however_it_was_made() {
        let mut names = Names::default();
        let one = names.get(at(1), RuleName::new("r").of(&[1, 2]));
        assert!(Arc::ptr_eq(&one.0, &names.get(at(1), RuleName::new("r").of(&[1, 2])).0));
        assert_eq!(one, BudgetId::new("r".into(), vec![1, 2]));
        let others = [("r", vec![1]), ("r", vec![]), ("s", vec![1, 2])];
        for (rule, value) in others {
            assert_ne!(one, BudgetId::new(rule.into(), value));
        }
        let mut map = ByBudget::default();
        map.insert(one, 7);
        assert_eq!(map.get(&BudgetId::new("r".into(), vec![1, 2])), Some(&7));
        assert_eq!(map.get(&RuleName::new("r").of(&[1, 2])), Some(&7));
    }

    #[test]
    fn names_that_nobody_has_any_more_are_forgotten() {
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
