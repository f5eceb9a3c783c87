//! The list of boxed keys that regions share through a store.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use weir_limiter::wire::{BOXED_MS_MAX, KEY_BYTES_MAX, RULE_NAME_MAX};

use super::remaining_ms;
use crate::budget::BudgetId;

/// The most keys on a list; beyond it, those that end soonest go first.
pub const BOXED_KEPT_MAX: usize = 10_000;

/// A boxed key as regions tell each other of it. Its text form is `<rule> <value in hex>`, without the time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoxedKey {
    /// The rule and the key.
    pub id: BudgetId,
    /// For how long from now, in milliseconds; at most [`BOXED_MS_MAX`].
    pub for_ms: u32,
}

impl fmt::Display for BoxedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.id.rule)?;
        self.id.value.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is no boxed key: written by another version, or by nobody of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxedKeyError;

impl fmt::Display for BoxedKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected <rule> <value in hex>")
    }
}

impl core::error::Error for BoxedKeyError {}

impl FromStr for BoxedKey {
    type Err = BoxedKeyError;

    /// Reads a key that is boxed for 0 ms.
    fn from_str(text: &str) -> Result<Self, BoxedKeyError> {
        let (rule, value) = text.rsplit_once(' ').ok_or(BoxedKeyError)?;
        let value = from_hex(value).ok_or(BoxedKeyError)?;
        if !(1..=RULE_NAME_MAX).contains(&rule.len()) {
            return Err(BoxedKeyError);
        }
        Ok(Self { id: BudgetId { rule: rule.into(), value }, for_ms: 0 })
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_hex || !(2..=2 * KEY_BYTES_MAX).contains(&text.len()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}

/// Keys by until when they are boxed, on some clock in microseconds; at most [`BOXED_KEPT_MAX`]. For a store
/// that has no better, and within a region.
#[derive(Debug, Default)]
pub struct BoxedList {
    until_us: BTreeMap<BudgetId, u64>,
    /// The same, soonest end first, then by text.
    by_end: BTreeSet<(u64, String, Vec<u8>)>,
}

impl BoxedList {
    /// Puts a region's boxed keys on the list at `now_us`; returns all that are on it.
    pub fn exchange(&mut self, mine: &[BoxedKey], now_us: u64) -> Vec<BoxedKey> {
        self.expire(now_us);
        for key in mine {
            self.add(&key.id, now_us.saturating_add(u64::from(key.for_ms.min(BOXED_MS_MAX)) * 1_000), now_us);
        }
        self.live(now_us)
    }

    /// All that are boxed at `now_us` for a millisecond or more.
    pub fn live(&self, now_us: u64) -> Vec<BoxedKey> {
        let live = self.until_us.iter().filter_map(|(id, until_us)| {
            let for_ms = remaining_ms(*until_us, now_us);
            (for_ms > 0).then(|| BoxedKey { id: id.clone(), for_ms })
        });
        live.collect()
    }

    /// Boxes `id` until `until_us`, or for as long as it is already, if that is longer. Returns those that
    /// went: their time is over at `now_us`, or they end soonest and there is no room.
    pub fn add(&mut self, id: &BudgetId, until_us: u64, now_us: u64) -> Vec<BudgetId> {
        let known_us = self.until_us(id);
        if known_us.is_none_or(|known_us| until_us > known_us) {
            if let Some(known_us) = known_us {
                self.by_end.remove(&(known_us, id.rule.clone(), id.value.clone()));
            }
            self.until_us.insert(id.clone(), until_us);
            self.by_end.insert((until_us, id.rule.clone(), id.value.clone()));
        }
        let mut gone = self.expire(now_us);
        while self.until_us.len() > BOXED_KEPT_MAX {
            let Some(first) = self.pop_first() else { break };
            gone.push(first);
        }
        gone
    }

    /// Drops those whose time is over at `now_us`, and returns them.
    pub fn expire(&mut self, now_us: u64) -> Vec<BudgetId> {
        let mut gone = Vec::new();
        while self.by_end.first().is_some_and(|(until_us, ..)| *until_us <= now_us) {
            gone.extend(self.pop_first());
        }
        gone
    }

    /// Until when `id` is boxed.
    pub fn until_us(&self, id: &BudgetId) -> Option<u64> {
        self.until_us.get(id).copied()
    }

    /// How many are on it.
    pub fn len(&self) -> usize {
        self.until_us.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.until_us.is_empty()
    }

    fn pop_first(&mut self) -> Option<BudgetId> {
        let (_, rule, value) = self.by_end.pop_first()?;
        let id = BudgetId { rule, value };
        self.until_us.remove(&id);
        Some(id)
    }
}
