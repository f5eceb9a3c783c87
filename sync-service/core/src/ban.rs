//! Bans: keys that a rule's penalty refuses for a while, at every POP of the fleet.
//!
//! A POP reports a key that it banned. Its region tells its other POPs with their next replies, and the other regions
//! through the store ([`BanList`], which all of them share). [`Bans`] is a region's side: what it heard, what the store
//! has not heard yet, and what each POP has been told.
//!
//! Each ban that is news gets a number, and it is noted for each POP up to which number it was told. If a reply is
//! lost, its POP is told again from there on (see [`crate::push`]).

mod list;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::messages::{BAN_MS_MAX, BANS_MAX, Ban, Report};
use weir_wire::time::Time;

use list::remaining_ms;
pub use list::{BANS_KEPT_MAX, BanList, BannedKey};

use crate::budget::BudgetId;
use crate::push::{Notes, Told, index_of};

/// A ban that lasts so much longer than was known is news, in microseconds. Smaller differences come from the time that
/// reports and the store's answers are under way.
const LONGER_US: u64 = 1_000_000;
/// The most keys that the store is given at once; the rest wait for the next time.
pub const SHARED_MAX: usize = 1_000;

/// The bans that a region knows of.
#[derive(Debug, Default)]
pub struct Bans {
    list: BanList,
    news: BTreeMap<BudgetId, News>,
    by_number: BTreeMap<u64, BudgetId>,
    /// The number of the latest news.
    latest: u64,
    /// Heard from POPs, and not yet in the store.
    unshared: BTreeSet<BudgetId>,
    told: Told<UpTo>,
}

/// What is known of a key beside how long its ban lasts.
#[derive(Debug)]
struct News {
    number: u64,
    /// The end of the ban when it was last news.
    until_us: u64,
    /// The POP that made the ban, and its table: it need not be told.
    from: Option<(String, u32)>,
}

/// The number of the last news that a POP was told of.
#[derive(Debug, Default)]
struct UpTo(u64);

impl Notes for UpTo {
    /// The number of the last news that it was told of before.
    type Letter = u64;

    fn take_back(&mut self, before: u64) {
        self.0 = self.0.min(before);
    }

    fn forget(&mut self) {
        self.0 = 0;
    }

    fn len(&self) -> usize {
        0
    }
}

impl Bans {
    /// Takes in what a report at `now` says; returns whether it is news to the store.
    pub fn hear(&mut self, now: Time, report: &Report) -> bool {
        let now_us = micros(now);
        self.expire(now_us);
        let mut is_news = false;
        for ban in &report.bans {
            // Checked when the report was read.
            let Some(rule) = report.rules.get(usize::from(ban.rule)) else { continue };
            let id = BudgetId { rule: rule.name.clone(), value: ban.value.clone() };
            let from = Some((report.pop.clone(), report.table));
            if self.learn(&id, now_us, ban.for_ms, from) {
                self.unshared.insert(id);
                is_news = true;
            }
        }
        is_news
    }

    /// The bans to give to the store; each is given again until [`Self::merge`] hears that it was taken.
    pub fn to_share(&mut self, now: Time) -> Vec<BannedKey> {
        let now_us = micros(now);
        self.expire(now_us);
        let unshared = self.unshared.iter().take(SHARED_MAX);
        let keys = unshared.filter_map(|id| {
            let for_ms = remaining_ms(self.list.until_us(id)?, now_us);
            Some(BannedKey { id: id.clone(), for_ms })
        });
        keys.collect()
    }

    /// Takes in the fleet's list, as it was when the store took `mine`.
    pub fn merge(&mut self, now: Time, mine: &[BannedKey], fleet: &[BannedKey]) {
        let now_us = micros(now);
        self.expire(now_us);
        for key in fleet {
            self.learn(&key.id, now_us, key.for_ms, None);
        }
        for key in mine {
            // If the ban was made longer meanwhile, the store has yet to hear of it.
            let said_us = now_us.saturating_add(u64::from(key.for_ms) * 1_000 + LONGER_US);
            if self.list.until_us(&key.id).is_none_or(|until_us| until_us < said_us) {
                self.unshared.remove(&key.id);
            }
        }
    }

    /// What the sender of `report` has not been told yet; at most [`BANS_MAX`] keys. Adds the rules that they refer to
    /// to `rules`, as far as there is room.
    pub fn tell(
        &mut self,
        now: Time,
        report: &Report,
        is_repeated: bool,
        rules: &mut Vec<String>,
    ) -> Vec<Ban> {
        let now_us = micros(now);
        self.expire(now_us);
        let Self { told, by_number, news, list, latest, .. } = self;
        told.tell(now, report, is_repeated, |up_to| {
            let (before, mut bans) = (up_to.0, Vec::new());
            up_to.0 = *latest;
            for (number, id) in by_number.range(before + 1..) {
                let from = news.get(id).and_then(|news| news.from.as_ref());
                let is_its_own =
                    from.is_some_and(|(pop, table)| *pop == report.pop && *table == report.table);
                let for_ms = list.until_us(id).map_or(0, |until_us| remaining_ms(until_us, now_us));
                if is_its_own || for_ms == 0 {
                    continue;
                }
                let rule = if bans.len() < BANS_MAX { index_of(&id.rule, rules) } else { None };
                let Some(rule) = rule else {
                    up_to.0 = number - 1;
                    break;
                };
                bans.push(Ban { rule, value: id.value.clone(), for_ms });
            }
            let letter = (!bans.is_empty()).then_some(before);
            (bans, letter)
        })
    }

    /// How many keys are banned, as far as is known here.
    pub fn banned(&self) -> usize {
        self.list.banned()
    }

    /// For how long `id` is banned, if it is, in milliseconds.
    pub fn banned_ms(&self, now: Time, id: &BudgetId) -> Option<u32> {
        let until_us = self.list.until_us(id)?;
        Some(remaining_ms(until_us, micros(now))).filter(|ms| *ms > 0)
    }

    /// Notes that `id` is banned for so long from `now_us`; returns whether that is news.
    fn learn(&mut self, id: &BudgetId, now_us: u64, for_ms: u32, from: Option<(String, u32)>) -> bool {
        let until_us = now_us.saturating_add(u64::from(for_ms.min(BAN_MS_MAX)) * 1_000);
        let is_news = match self.news.get(id) {
            Some(known) => until_us > known.until_us.saturating_add(LONGER_US),
            None => for_ms > 0,
        };
        for dropped in self.list.add(id, until_us, now_us) {
            self.forget(&dropped);
        }
        if !is_news || self.list.until_us(id).is_none() {
            return false;
        }
        self.latest += 1;
        if let Some(before) = self.news.insert(id.clone(), News { number: self.latest, until_us, from }) {
            self.by_number.remove(&before.number);
        }
        self.by_number.insert(self.latest, id.clone());
        true
    }

    fn expire(&mut self, now_us: u64) {
        for dropped in self.list.expire(now_us) {
            self.forget(&dropped);
        }
    }

    fn forget(&mut self, id: &BudgetId) {
        if let Some(news) = self.news.remove(id) {
            self.by_number.remove(&news.number);
        }
        self.unshared.remove(id);
    }
}

fn micros(now: Time) -> u64 {
    now.as_nanos() / 1_000
}
