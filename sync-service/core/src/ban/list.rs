//! The list of bans that regions share through a store.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use weir_wire::messages::{BAN_MS_MAX, RULE_NAME_MAX};

use crate::budget::BudgetId;
use crate::text::{Hex, TextError, value_of};

/// The most keys on a list; beyond it, those that end soonest go first.
pub const BANS_KEPT_MAX: usize = 10_000;

/// A banned key as regions tell each other of it. Its text form is `<rule> <value in hex>`, without the time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BannedKey {
    /// The rule and the key.
    pub id: BudgetId,
    /// For how long from now, in milliseconds; at most [`BAN_MS_MAX`].
    pub for_ms: u32,
}

impl fmt::Display for BannedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id.rule, Hex(&self.id.value))
    }
}

impl FromStr for BannedKey {
    type Err = TextError;

    /// Reads a key, with a ban of 0 ms.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let parts = text.rsplit_once(' ').filter(|(rule, _)| (1..=RULE_NAME_MAX).contains(&rule.len()));
        let id =
            parts.and_then(|(rule, value)| Some(BudgetId { rule: rule.into(), value: value_of(value)? }));
        id.map(|id| Self { id, for_ms: 0 }).ok_or(TextError("<rule> <value in hex>"))
    }
}

/// When the ban of each key ends, on some clock in microseconds; at most [`BANS_KEPT_MAX`] keys. Used within a region,
/// and by a store without a better one.
#[derive(Debug, Default)]
pub struct BanList {
    until_us: BTreeMap<BudgetId, u64>,
    /// The same, soonest end first, then by text.
    by_end: BTreeSet<(u64, String, Vec<u8>)>,
}

impl BanList {
    /// Puts a region's bans on the list at `now_us`; returns all that are on it.
    pub fn exchange(&mut self, mine: &[BannedKey], now_us: u64) -> Vec<BannedKey> {
        self.expire(now_us);
        for key in mine {
            self.add(&key.id, now_us.saturating_add(u64::from(key.for_ms.min(BAN_MS_MAX)) * 1_000), now_us);
        }
        self.live(now_us)
    }

    /// All that are banned at `now_us` for a millisecond or more.
    pub fn live(&self, now_us: u64) -> Vec<BannedKey> {
        let live = self.until_us.iter().filter_map(|(id, until_us)| {
            let for_ms = remaining_ms(*until_us, now_us);
            (for_ms > 0).then(|| BannedKey { id: id.clone(), for_ms })
        });
        live.collect()
    }

    /// Bans `id` until `until_us`, or as long as it already is, if that is longer. Returns those that went: their time
    /// is over at `now_us`, or they end soonest and there is no room.
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
        while self.until_us.len() > BANS_KEPT_MAX {
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

    /// Until when `id` is banned.
    pub fn until_us(&self, id: &BudgetId) -> Option<u64> {
        self.until_us.get(id).copied()
    }

    /// How many are on it.
    pub fn banned(&self) -> usize {
        self.until_us.len()
    }

    fn pop_first(&mut self) -> Option<BudgetId> {
        let (_, rule, value) = self.by_end.pop_first()?;
        let id = BudgetId { rule, value };
        self.until_us.remove(&id);
        Some(id)
    }
}

/// Whole milliseconds from `now_us` to `until_us`, rounded down: a ban that is passed on and on gets no longer.
pub(super) fn remaining_ms(until_us: u64, now_us: u64) -> u32 {
    u32::try_from(until_us.saturating_sub(now_us) / 1_000).unwrap_or(BAN_MS_MAX).min(BAN_MS_MAX)
}
