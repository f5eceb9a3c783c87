//! The list of bans that regions share through a store.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use weir_wire::messages::{BAN_MS_MAX, RULE_NAME_MAX};

use crate::budget::BudgetId;
use crate::push::LOST_NS;
use crate::text::{Hex, TextError, value_of};

/// The most keys on a list; beyond it, those that end soonest go first.
pub const BANS_KEPT_MAX: usize = 10_000;

/// For how long it is told that a key is to be forgotten, in milliseconds. No longer than after which a lost message is
/// told again, whether it was lost or not: a POP that hears of it twice forgets twice.
#[allow(clippy::cast_possible_truncation, reason = "two seconds")]
pub const FORGOTTEN_MS: u32 = (LOST_NS / 1_000_000) as u32;

/// What is said of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Said {
    /// It is banned, by its rule's penalty: for longer, if it is banned already. Not just after it was forgotten, when POPs
    /// may still speak of before.
    #[default]
    Banned,
    /// An operator bans it, whatever was said before.
    Ordered,
    /// An operator resets it: it is banned no more, and POPs forget it.
    Forgotten,
}

/// A key that is banned or to be forgotten, as regions tell each other of it. Its text form is `<rule> <value in hex>`,
/// without the time, and ` -` behind it if it is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BannedKey {
    /// The rule and the key.
    pub id: BudgetId,
    /// For how long from now, in milliseconds; at most [`BAN_MS_MAX`].
    pub for_ms: u32,
    /// What is said of it. A list does not say which bans are an operator's.
    pub said: Said,
}

impl BannedKey {
    /// Whether it is to be forgotten.
    pub fn is_forgotten(&self) -> bool {
        self.said == Said::Forgotten
    }

    /// Until when it stands on the list if it is put there at `now_us`.
    fn until_us(&self, now_us: u64) -> u64 {
        now_us.saturating_add(u64::from(self.for_ms.min(BAN_MS_MAX)) * 1_000)
    }
}

impl fmt::Display for BannedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.is_forgotten() { FORGOTTEN } else { "" };
        write!(f, "{} {}{end}", self.id.rule, Hex(&self.id.value))
    }
}

/// The end of the text of a key that is to be forgotten.
pub const FORGOTTEN: &str = " -";

impl FromStr for BannedKey {
    type Err = TextError;

    /// Reads a key, with a ban of 0 ms.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let (text, said) = match text.strip_suffix(FORGOTTEN) {
            Some(text) => (text, Said::Forgotten),
            None => (text, Said::Banned),
        };
        let parts = text.rsplit_once(' ').filter(|(rule, _)| (1..=RULE_NAME_MAX).contains(&rule.len()));
        let id = parts.and_then(|(rule, value)| Some(BudgetId::new(rule.into(), value_of(value)?)));
        id.map(|id| Self { id, for_ms: 0, said }).ok_or(TextError("<rule> <value in hex>"))
    }
}

/// What is said of each key, and until when, on some clock in microseconds; at most [`BANS_KEPT_MAX`] keys. Used within a
/// region, and by a store without a better one.
#[derive(Debug, Default)]
pub struct BanList {
    stands: BTreeMap<BudgetId, Stands>,
    /// The same, soonest end first, then by text, ...
    by_end: BTreeSet<End>,
    /// ... but for those of `kept`.
    kept_by_end: BTreeSet<End>,
    /// What no other key takes the place of.
    kept: BTreeSet<BudgetId>,
}

/// When something ends to stand on the list, and of which key.
type End = (u64, String, Vec<u8>);

/// What stands on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stands {
    pub(super) until_us: u64,
    pub(super) is_forgotten: bool,
}

impl BanList {
    /// Puts what a region says on the list at `now_us`; returns all that is on it.
    pub fn exchange(&mut self, mine: &[BannedKey], now_us: u64) -> Vec<BannedKey> {
        self.expire(now_us);
        for key in mine {
            match key.said {
                Said::Banned => drop(self.add(&key.id, key.until_us(now_us), now_us)),
                Said::Ordered | Said::Forgotten => {
                    drop(self.put(&key.id, key.until_us(now_us), key.is_forgotten(), now_us));
                }
            }
        }
        self.live(now_us)
    }

    /// All that stands at `now_us` for a millisecond or more.
    pub fn live(&self, now_us: u64) -> Vec<BannedKey> {
        let live = self.stands.iter().filter_map(|(id, stands)| {
            let for_ms = remaining_ms(stands.until_us, now_us);
            let said = if stands.is_forgotten { Said::Forgotten } else { Said::Banned };
            (for_ms > 0).then(|| BannedKey { id: id.clone(), for_ms, said })
        });
        live.collect()
    }

    /// Bans `id` until `until_us`, or as long as it already is, if that is longer; not while it is to be forgotten. Returns
    /// those that went: their time is over at `now_us`, or they end soonest and there is no room.
    pub fn add(&mut self, id: &BudgetId, until_us: u64, now_us: u64) -> Vec<BudgetId> {
        let is_longer = |known: &Stands| !known.is_forgotten && until_us > known.until_us;
        if self.stands.get(id).is_none_or(is_longer) {
            return self.put(id, until_us, false, now_us);
        }
        self.expire(now_us)
    }

    /// Puts `id` on the list until `until_us`, whatever was said of it before. Returns those that went.
    pub fn put(&mut self, id: &BudgetId, until_us: u64, is_forgotten: bool, now_us: u64) -> Vec<BudgetId> {
        self.remove(id);
        self.stands.insert(id.clone(), Stands { until_us, is_forgotten });
        self.ends_of(id).insert(end_of(until_us, id));
        let mut gone = self.expire(now_us);
        while self.stands.len() > BANS_KEPT_MAX {
            let Some(first) = self.pop_first() else { break };
            gone.push(first);
        }
        gone
    }

    /// Drops those whose time is over at `now_us`, and returns them.
    pub fn expire(&mut self, now_us: u64) -> Vec<BudgetId> {
        let mut gone = Vec::new();
        let first_of =
            |ends: &BTreeSet<End>| ends.first().filter(|(until_us, ..)| *until_us <= now_us).map(id_of);
        while let Some(id) = first_of(&self.by_end).or_else(|| first_of(&self.kept_by_end)) {
            self.remove(&id);
            gone.push(id);
        }
        gone
    }

    /// What stands of `id`.
    pub(super) fn stands(&self, id: &BudgetId) -> Option<Stands> {
        self.stands.get(id).copied()
    }

    /// Until when `id` is banned.
    pub fn until_us(&self, id: &BudgetId) -> Option<u64> {
        self.stands(id).filter(|stands| !stands.is_forgotten).map(|stands| stands.until_us)
    }

    /// How many are banned.
    pub fn banned(&self) -> usize {
        self.stands.values().filter(|stands| !stands.is_forgotten).count()
    }

    /// From now on no other key takes the place of these.
    pub(super) fn keep(&mut self, kept: BTreeSet<BudgetId>) {
        let before = core::mem::take(&mut self.kept);
        let moved: Vec<_> =
            before.symmetric_difference(&kept).filter_map(|id| Some((id, self.stands(id)?))).collect();
        for (id, Stands { until_us, .. }) in moved {
            let end = end_of(until_us, id);
            let (from, to) = if kept.contains(id) {
                (&mut self.by_end, &mut self.kept_by_end)
            } else {
                (&mut self.kept_by_end, &mut self.by_end)
            };
            from.remove(&end);
            to.insert(end);
        }
        self.kept = kept;
    }

    /// Drops the ban that ends first, or, if there are only keys to forget, the first of these; what is kept last.
    fn pop_first(&mut self) -> Option<BudgetId> {
        let is_ban = |id: &BudgetId| self.until_us(id).is_some();
        let ban = self.by_end.iter().map(id_of).find(is_ban);
        let first = ban.or_else(|| self.by_end.first().or_else(|| self.kept_by_end.first()).map(id_of))?;
        self.remove(&first);
        Some(first)
    }

    fn remove(&mut self, id: &BudgetId) {
        if let Some(known) = self.stands.remove(id) {
            self.ends_of(id).remove(&end_of(known.until_us, id));
        }
    }

    fn ends_of(&mut self, id: &BudgetId) -> &mut BTreeSet<End> {
        if self.kept.contains(id) { &mut self.kept_by_end } else { &mut self.by_end }
    }
}

fn end_of(until_us: u64, id: &BudgetId) -> End {
    (until_us, id.rule.clone(), id.value.clone())
}

fn id_of((_, rule, value): &End) -> BudgetId {
    BudgetId::new(rule.clone(), value.clone())
}

/// Whole milliseconds from `now_us` to `until_us`, rounded down: a ban that is passed on and on gets no longer.
pub(super) fn remaining_ms(until_us: u64, now_us: u64) -> u32 {
    u32::try_from(until_us.saturating_sub(now_us) / 1_000).unwrap_or(BAN_MS_MAX).min(BAN_MS_MAX)
}
