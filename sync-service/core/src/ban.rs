//! Bans: keys that a rule's penalty refuses for a while, at every POP of the fleet.
//!
//! A POP reports a key that it banned. Its region tells its other POPs with their next replies, and through the
//! store the other regions ([`BanList`], which all of them share). [`Bans`] is a region's side: what it
//! heard, what the store has not heard yet, and what each POP has been told.
//!
//! Each key that is news has a number, and each POP a cursor: what comes after it, the POP has not been told. A
//! reply may be lost, so a POP is told of all that still holds again after [`AGAIN_US`]; and where its table is
//! another, at once.

mod list;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::messages::{BOXED_MAX, BOXED_MS_MAX, Boxed, POPS_MAX, RULES_MAX, Report};
use weir_wire::time::Time;

use list::remaining_ms;
pub use list::{BANS_KEPT_MAX, Ban, BanList};

use crate::budget::BudgetId;

/// A ban that lasts so much longer than was known is news, in microseconds. Less than that, reports and
/// the store's answers differ by what they were under way.
const LONGER_US: u64 = 1_000_000;
/// A POP is told of everything again after this, in microseconds.
pub const AGAIN_US: u64 = 60_000_000;
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
    cursors: BTreeMap<String, Cursor>,
}

/// What is known of a key beside how long it holds.
#[derive(Debug)]
struct News {
    number: u64,
    /// Until when it lasted when that was news.
    until_us: u64,
    /// The POP that made it, and its table: it need not be told.
    from: Option<(String, u32)>,
}

/// What a POP has been told: the news up to `number`, and again those from the first to `again` of those up
/// to `goal`.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    table: u32,
    number: u64,
    again: u64,
    goal: u64,
    /// When it was begun to tell it again.
    again_at_us: u64,
    heard_us: u64,
}

/// What is told in one reply.
struct Telling<'a> {
    report: &'a Report,
    rules: &'a mut Vec<String>,
    told: Vec<Boxed>,
}

impl Bans {
    /// Takes in what a report at `now` says; whether it is news to the store.
    pub fn hear(&mut self, now: Time, report: &Report) -> bool {
        let now_us = micros(now);
        self.expire(now_us);
        let mut is_news = false;
        for ban in &report.boxed {
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

    /// What the store is to be given; said again until [`Self::merge`] is told that it was taken.
    pub fn to_share(&mut self, now: Time) -> Vec<Ban> {
        let now_us = micros(now);
        self.expire(now_us);
        let unshared = self.unshared.iter().take(SHARED_MAX);
        let keys = unshared.filter_map(|id| {
            let for_ms = remaining_ms(self.list.until_us(id)?, now_us);
            Some(Ban { id: id.clone(), for_ms })
        });
        keys.collect()
    }

    /// Takes in the fleet's list, as it was when the store took `mine`.
    pub fn merge(&mut self, now: Time, mine: &[Ban], fleet: &[Ban]) {
        let now_us = micros(now);
        self.expire(now_us);
        for key in fleet {
            self.learn(&key.id, now_us, key.for_ms, None);
        }
        for key in mine {
            // Where it was made longer meanwhile, that is still to be said.
            let said_us = now_us.saturating_add(u64::from(key.for_ms) * 1_000 + LONGER_US);
            if self.list.until_us(&key.id).is_none_or(|until_us| until_us < said_us) {
                self.unshared.remove(&key.id);
            }
        }
    }

    /// What the sender of `report` has not been told yet, and with what room is left what it is to be told
    /// again; at most [`BOXED_MAX`] keys. Adds the rules they refer to to `rules`, of which there are never more
    /// than [`RULES_MAX`].
    pub fn tell(&mut self, now: Time, report: &Report, rules: &mut Vec<String>) -> Vec<Boxed> {
        let now_us = micros(now);
        self.expire(now_us);
        let mut cursor = self.cursor(now_us, report);
        let mut telling = Telling { report, rules, told: Vec::new() };
        let known = cursor.number;
        cursor.number = self.tell_of(known, self.latest, now_us, &mut telling);
        if cursor.again >= cursor.goal && now_us.saturating_sub(cursor.again_at_us) >= AGAIN_US {
            (cursor.again, cursor.goal, cursor.again_at_us) = (0, known, now_us);
        }
        cursor.again = self.tell_of(cursor.again, cursor.goal, now_us, &mut telling);
        self.cursors.insert(report.pop.clone(), cursor);
        telling.told
    }

    /// Tells of the news after `from`, up to `to`; returns the number of the last it told, `to` where that was all.
    fn tell_of(&self, from: u64, to: u64, now_us: u64, telling: &mut Telling<'_>) -> u64 {
        let Telling { report, rules, told } = telling;
        let mut last = from;
        if from >= to {
            return from;
        }
        for (number, id) in self.by_number.range(from + 1..=to) {
            let from = self.news.get(id).and_then(|news| news.from.as_ref());
            let is_its_own = from.is_some_and(|(pop, table)| *pop == report.pop && *table == report.table);
            let for_ms = self.list.until_us(id).map_or(0, |until_us| remaining_ms(until_us, now_us));
            if !is_its_own && for_ms > 0 {
                if told.len() >= BOXED_MAX {
                    return last;
                }
                let Some(rule) = index_of(&id.rule, rules) else { return last };
                told.push(Boxed { rule, value: id.value.clone(), for_ms });
            }
            last = *number;
        }
        to
    }

    /// How many keys are banned, as far as is known here.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes that `id` is banned for so long from `now_us`; whether that is news.
    fn learn(&mut self, id: &BudgetId, now_us: u64, for_ms: u32, from: Option<(String, u32)>) -> bool {
        let until_us = now_us.saturating_add(u64::from(for_ms.min(BOXED_MS_MAX)) * 1_000);
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

    /// The sender's cursor; a new one, for which there is room, where it is unknown or has another table.
    fn cursor(&mut self, now_us: u64, report: &Report) -> Cursor {
        if !self.cursors.contains_key(&report.pop) && self.cursors.len() >= POPS_MAX as usize {
            let silent = self.cursors.iter().min_by_key(|(_, cursor)| cursor.heard_us);
            if let Some(silent) = silent.map(|(pop, _)| pop.clone()) {
                self.cursors.remove(&silent);
            }
        }
        let new = Cursor {
            table: report.table,
            number: 0,
            again: 0,
            goal: 0,
            again_at_us: now_us,
            heard_us: now_us,
        };
        let known = self.cursors.get(&report.pop).filter(|cursor| cursor.table == report.table);
        Cursor { heard_us: now_us, ..known.copied().unwrap_or(new) }
    }
}

/// The place of `rule` in `rules`, where it is put if there is room.
fn index_of(rule: &str, rules: &mut Vec<String>) -> Option<u16> {
    let known = rules.iter().position(|known| known == rule);
    let index = match known {
        Some(index) => index,
        None if rules.len() < RULES_MAX => {
            rules.push(rule.into());
            rules.len() - 1
        }
        None => return None,
    };
    u16::try_from(index).ok()
}

fn micros(now: Time) -> u64 {
    now.as_nanos() / 1_000
}
