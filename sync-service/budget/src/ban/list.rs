//! The list of bans that regions share through a store.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use weir_protocol::messages::{BAN_MS_MAX, RULE_NAME_MAX};

use crate::budget::BudgetId;
use crate::id::{Hex, TextError, value_of};
use crate::push::LOST_NS;

/// Maximum number of keys on a list; beyond it, those that end soonest are dropped first.
pub const BANS_KEPT_MAX: usize = 10_000;

/// Time for which a reset is sent, in milliseconds; not longer than [`LOST_NS`], or a POP could get and apply it twice.
#[allow(clippy::cast_possible_truncation, reason = "two seconds")]
pub const FORGOTTEN_MS: u32 = (LOST_NS / 1_000_000) as u32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BanState {
    /// Banned by its rule's penalty; extends an earlier ban, and is ignored just after a reset.
    #[default]
    Banned,
    BannedByOperator,
    /// Reset by an operator: the key is no longer banned, and POPs forget it.
    Forgotten,
}

/// A banned or reset key as regions exchange it. Its text form is `<rule> <value in hex>`, without the time,
/// followed by ` -` if it is a reset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BannedKey {
    pub id: BudgetId,
    /// Remaining time in milliseconds; at most [`BAN_MS_MAX`].
    pub for_ms: u32,
    /// State of the key. In the keys that a list returns, an operator's ban is [`BanState::Banned`].
    pub state: BanState,
}

impl BannedKey {
    pub fn is_forgotten(&self) -> bool {
        self.state == BanState::Forgotten
    }
}

impl fmt::Display for BannedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.is_forgotten() { FORGOTTEN } else { "" };
        write!(f, "{} {}{end}", self.id.rule, Hex(&self.id.value))
    }
}

/// Suffix of a reset key's text form.
pub const FORGOTTEN: &str = " -";

impl FromStr for BannedKey {
    type Err = TextError;

    /// Parses a key, with `for_ms` 0.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let (text, state) = match text.strip_suffix(FORGOTTEN) {
            Some(text) => (text, BanState::Forgotten),
            None => (text, BanState::Banned),
        };
        let parts = text.rsplit_once(' ').filter(|(rule, _)| (1..=RULE_NAME_MAX).contains(&rule.len()));
        let id = parts.and_then(|(rule, value)| Some(BudgetId::new(rule.into(), value_of(value)?)));
        id.map(|id| Self { id, for_ms: 0, state }).ok_or(TextError("<rule> <value in hex>"))
    }
}

/// Banned and reset keys with their ends, in microseconds of any one clock. Each region keeps a list, and so does a
/// store that has none of its own.
#[derive(Debug, Default)]
pub struct BanList {
    stands: BTreeMap<BudgetId, BanEntry>,
    /// Keys by end and text: first those that are not in `kept`, then the others.
    by_end: BTreeSet<End>,
    /// Keys that are not dropped in favour of others.
    kept: BTreeSet<BudgetId>,
}

/// Order of an entry: true if its key is kept, its end, and the rule and value of its key.
type End = (bool, u64, String, Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BanEntry {
    pub(super) until_us: u64,
    pub(super) is_forgotten: bool,
}

impl BanList {
    /// Adds a region's keys to the list at `now_us`; returns all keys on it.
    pub fn exchange(&mut self, mine: &[BannedKey], now_us: u64) -> Vec<BannedKey> {
        self.expire(now_us);
        for key in mine {
            let until_us = until_us(now_us, key.for_ms);
            drop(match key.state {
                BanState::Banned => self.add(&key.id, until_us, now_us),
                _ => self.put(&key.id, until_us, key.is_forgotten(), now_us),
            });
        }
        self.live(now_us)
    }

    /// Entries with at least a millisecond left at `now_us`.
    pub fn live(&self, now_us: u64) -> Vec<BannedKey> {
        let live = self.stands.iter().filter_map(|(id, stands)| {
            let for_ms = remaining_ms(stands.until_us, now_us);
            let state = if stands.is_forgotten { BanState::Forgotten } else { BanState::Banned };
            (for_ms > 0).then(|| BannedKey { id: id.clone(), for_ms, state })
        });
        live.collect()
    }

    /// Bans `id` until `until_us`, unless a longer ban or a reset is on the list. Returns the dropped keys.
    pub fn add(&mut self, id: &BudgetId, until_us: u64, now_us: u64) -> Vec<BudgetId> {
        let is_longer = |known: &BanEntry| !known.is_forgotten && until_us > known.until_us;
        if self.stands.get(id).is_none_or(is_longer) {
            return self.put(id, until_us, false, now_us);
        }
        self.expire(now_us)
    }

    /// Puts `id` on the list until `until_us`, replacing its entry. Returns the dropped keys.
    pub fn put(&mut self, id: &BudgetId, until_us: u64, is_forgotten: bool, now_us: u64) -> Vec<BudgetId> {
        self.remove(id);
        self.stands.insert(id.clone(), BanEntry { until_us, is_forgotten });
        self.by_end.insert(self.end_of(until_us, id));
        let mut gone = self.expire(now_us);
        while self.stands.len() > BANS_KEPT_MAX {
            let Some(first) = self.pop_first() else { break };
            gone.push(first);
        }
        gone
    }

    pub fn expire(&mut self, now_us: u64) -> Vec<BudgetId> {
        let mut gone = Vec::new();
        let first = |ends: &BTreeSet<End>, is_kept| {
            let mut ends = ends.range((is_kept, 0, String::new(), Vec::new())..);
            ends.next().filter(|end| end.0 == is_kept && end.1 <= now_us).map(id_of)
        };
        while let Some(id) = first(&self.by_end, false).or_else(|| first(&self.by_end, true)) {
            self.remove(&id);
            gone.push(id);
        }
        gone
    }

    pub(super) fn stands(&self, id: &BudgetId) -> Option<BanEntry> {
        self.stands.get(id).copied()
    }

    /// Returns the end of the ban of `id`, or `None` if it is not banned or was reset.
    pub fn until_us(&self, id: &BudgetId) -> Option<u64> {
        self.stands(id).filter(|stands| !stands.is_forgotten).map(|stands| stands.until_us)
    }

    pub fn banned(&self) -> usize {
        self.stands.values().filter(|stands| !stands.is_forgotten).count()
    }

    pub(super) fn keep(&mut self, kept: BTreeSet<BudgetId>) {
        let moved: Vec<_> = self.kept.symmetric_difference(&kept).cloned().collect();
        self.kept = kept;
        for id in moved {
            let Some(known) = self.stands(&id) else { continue };
            let (is_kept, until_us, rule, value) = self.end_of(known.until_us, &id);
            self.by_end.remove(&(!is_kept, until_us, rule.clone(), value.clone()));
            self.by_end.insert((is_kept, until_us, rule, value));
        }
    }

    /// Drops the ban that ends first, or the first reset if there are no bans. Keys in `kept` are dropped last.
    fn pop_first(&mut self) -> Option<BudgetId> {
        let is_ban = |id: &BudgetId| self.until_us(id).is_some();
        let ban = self.by_end.iter().take_while(|(is_kept, ..)| !is_kept).map(id_of).find(is_ban);
        let first = ban.or_else(|| self.by_end.first().map(id_of))?;
        self.remove(&first);
        Some(first)
    }

    fn remove(&mut self, id: &BudgetId) {
        if let Some(known) = self.stands.remove(id) {
            self.by_end.remove(&self.end_of(known.until_us, id));
        }
    }

    fn end_of(&self, until_us: u64, id: &BudgetId) -> End {
        (self.kept.contains(id), until_us, id.rule.clone(), id.value.clone())
    }
}

fn id_of((.., rule, value): &End) -> BudgetId {
    BudgetId::new(rule.clone(), value.clone())
}

pub(super) fn until_us(now_us: u64, for_ms: u32) -> u64 {
    now_us.saturating_add(u64::from(for_ms.min(BAN_MS_MAX)) * 1_000)
}

/// Whole milliseconds from `now_us` to `until_us`, rounded down, so that passing a ban on does not prolong it.
pub(super) fn remaining_ms(until_us: u64, now_us: u64) -> u32 {
    u32::try_from(until_us.saturating_sub(now_us) / 1_000).unwrap_or(BAN_MS_MAX).min(BAN_MS_MAX)
}
