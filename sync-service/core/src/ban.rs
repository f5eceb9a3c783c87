//! Bans: keys that a rule's penalty refuses for a while, at every POP of the fleet.
//!
//! A POP reports a key that it banned. Its region tells its other POPs with their next replies, and the other regions
//! through the store ([`BanList`], which all of them share). [`Bans`] is a region's side: what it heard, what the store
//! has not heard yet, and what each POP has been told.
//!
//! Each ban that is news gets a number, and it is noted for each POP up to which number it was told. If a reply is
//! lost, its POP is told again from there on (see [`crate::push`]).
//!
//! An operator bans keys, too, whatever their rule; and resets them: POPs are told to forget such a key, by a ban of no
//! length, and so is each region ([`crate::hub::Hub::forget`]). What an operator says replaces what was said before. So a
//! POP that may know of a longer ban is told to forget the key, and then of the ban. What a penalty says just after a key
//! was reset does not replace that: it is of before, as a rule.
//!
//! The bans that operators ordered are known to every region by themselves ([`Bans::stand_by`]), whatever the list has room for
//! and whichever keys a rule counts by when it gets another tier.

mod list;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::messages::{BAN_MS_MAX, BANS_MAX, Ban, Report};
use weir_wire::time::Time;

pub use list::{BANS_KEPT_MAX, BanList, BannedKey, FORGOTTEN, FORGOTTEN_MS, Said};
use list::{Stands, remaining_ms};

use crate::budget::BudgetId;
use crate::push::{Notes, Told, index_of};

/// A ban that lasts so much longer than was known is news, in microseconds. Smaller differences come from the time that
/// reports and the store's answers are under way.
const LONGER_US: u64 = 1_000_000;
/// The same in milliseconds, of orders.
const SLACK_MS: u64 = LONGER_US / 1_000;
/// A key that was reset so much later than was known was reset again, in microseconds: no answer of the store takes longer.
const AGAIN_US: u64 = 500_000;
/// The most keys that the store is given at once; the rest wait for the next time.
pub const SHARED_MAX: usize = 1_000;

/// The bans that a region knows of.
#[derive(Debug, Default)]
pub struct Bans {
    list: BanList,
    news: BTreeMap<BudgetId, News>,
    by_number: BTreeMap<u64, BudgetId>,
    /// The number of the latest news, ...
    latest: u64,
    /// ... and of the latest when the store was last asked: it cannot have heard of what came after that.
    asked: u64,
    /// Heard from POPs or operators, and not yet in the store; whether it is an operator's word.
    unshared: BTreeMap<BudgetId, bool>,
    /// The bans that operators' orders ask for, and when each order ends, in milliseconds since 1970.
    ordered: BTreeMap<BudgetId, u64>,
    told: Told<UpTo>,
}

/// The most keys that orders ban at a time; beyond it, those that came last are banned as far as there is room.
pub const ORDERED_MAX: usize = 2_000;

/// What is known of a key beside how long its ban lasts.
#[derive(Debug)]
struct News {
    number: u64,
    /// When it was heard here.
    heard_us: u64,
    /// The end of the ban, or of the time for which it is told to forget the key, when it was last news.
    until_us: u64,
    is_forgotten: bool,
    /// Whether it replaces what was said before: POPs are to forget that.
    is_anew: bool,
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
            let id = BudgetId::new(rule.name.clone(), ban.value.clone());
            let from = Some((report.pop.clone(), report.table));
            if self.learn(&id, now_us, ban.for_ms, from) {
                self.unshared.entry(id).or_default();
                is_news = true;
            }
        }
        is_news
    }

    /// An operator bans `id` at `now` for so long, and at least for as long as it takes until all regions have heard.
    pub fn order(&mut self, now: Time, id: BudgetId, for_ms: u32) {
        self.put(&id, micros(now), for_ms.max(FORGOTTEN_MS), false);
        // Unless there is no room: then it is known by its order alone.
        if self.news.contains_key(&id) {
            self.unshared.insert(id, true);
        }
    }

    /// These are the bans that operators' orders ask for, each with its end in milliseconds since 1970, which are `date_ms` at `now`.
    /// What is missing of them is told; a ban whose order was taken back is not there any more. Returns the keys that are to
    /// be forgotten for that.
    ///
    /// A key that was just reset stays so: its order is being taken back.
    pub fn stand_by(&mut self, now: Time, date_ms: u64, orders: &[(BudgetId, u64)]) -> Vec<BudgetId> {
        let now_us = micros(now);
        self.expire(now_us);
        let all: BTreeMap<_, _> = orders.iter().cloned().collect();
        // Those that are banned already keep their place.
        let (known, new): (Vec<_>, Vec<_>) = all.iter().partition(|(id, _)| self.ordered.contains_key(*id));
        let wanted: BTreeMap<_, _> = known
            .into_iter()
            .chain(new)
            .take(ORDERED_MAX)
            .map(|(id, until_ms)| (id.clone(), *until_ms))
            .collect();
        let before = core::mem::replace(&mut self.ordered, wanted.clone());
        if !before.keys().eq(wanted.keys()) {
            self.list.keep(wanted.keys().cloned().collect());
        }
        let lifted = before.iter().filter(|(id, until_ms)| {
            let ends_us = self.list.until_us(id).unwrap_or_default();
            !all.contains_key(*id) && **until_ms > date_ms + SLACK_MS && ends_us > now_us + LONGER_US
        });
        let lifted: Vec<BudgetId> = lifted.map(|(id, _)| id.clone()).collect();
        for id in &lifted {
            self.put(id, now_us, FORGOTTEN_MS, true);
        }
        for (id, until_ms) in wanted {
            let for_ms = until_ms.saturating_sub(date_ms);
            let is_known = before.get(&id) == Some(&until_ms) && self.list.stands(&id).is_some();
            if !is_known && for_ms > SLACK_MS {
                self.learn(&id, now_us, u32::try_from(for_ms).unwrap_or(BAN_MS_MAX), None);
            }
        }
        lifted
    }

    /// An operator resets `id` at `now`.
    pub fn reset(&mut self, now: Time, id: BudgetId) {
        self.put(&id, micros(now), FORGOTTEN_MS, true);
        self.unshared.insert(id, true);
    }

    /// Whether it was heard at `since` or later that `id` is to be forgotten.
    pub fn is_forgotten_since(&self, id: &BudgetId, since: Time) -> bool {
        self.news.get(id).is_some_and(|news| news.is_forgotten && news.heard_us >= micros(since))
    }

    /// The bans to give to the store; each is given again until [`Self::merge`] hears that it was taken.
    pub fn to_share(&mut self, now: Time) -> Vec<BannedKey> {
        let now_us = micros(now);
        self.expire(now_us);
        self.asked = self.latest;
        // What an operator says first.
        let of = |is_order: bool| self.unshared.iter().filter(move |(_, known)| **known == is_order);
        let unshared = of(true).chain(of(false)).take(SHARED_MAX);
        let keys = unshared.filter_map(|(id, is_order)| {
            let stands = self.list.stands(id)?;
            let said = match stands.is_forgotten {
                true => Said::Forgotten,
                false if *is_order => Said::Ordered,
                false => Said::Banned,
            };
            Some(BannedKey { id: id.clone(), for_ms: remaining_ms(stands.until_us, now_us), said })
        });
        keys.collect()
    }

    /// Takes in the fleet's list, as it was when the store took `mine`, which it was asked last; returns the keys that are to
    /// be forgotten, and that is news.
    pub fn merge(&mut self, now: Time, mine: &[BannedKey], fleet: &[BannedKey]) -> Vec<BudgetId> {
        let now_us = micros(now);
        self.expire(now_us);
        let mut forgotten = Vec::new();
        for key in fleet {
            let is_shared = self.is_asked(&key.id) && mine.iter().any(|mine| mine.id == key.id);
            if self.unshared.get(&key.id) == Some(&true) && !is_shared {
                // The store is yet to hear what an operator said here meanwhile.
                continue;
            }
            let known = self.news.get(&key.id).map(|news| (news.is_forgotten, news.until_us));
            let until_us = until_us(now_us, key.for_ms);
            if key.is_forgotten() {
                if known.is_none_or(|(is_known, known_us)| !is_known || until_us > known_us + AGAIN_US) {
                    self.put(&key.id, now_us, key.for_ms, true);
                    self.unshared.remove(&key.id);
                    forgotten.push(key.id.clone());
                }
            } else if known.is_some_and(|(is_known, _)| is_known) {
                // It was banned after that.
                self.put(&key.id, now_us, key.for_ms, false);
                self.unshared.remove(&key.id);
            } else if known.is_some_and(|(_, known_us)| until_us + LONGER_US < known_us)
                && !self.unshared.contains_key(&key.id)
            {
                // Only an operator makes a ban shorter.
                self.put(&key.id, now_us, key.for_ms, false);
            } else {
                self.learn(&key.id, now_us, key.for_ms, None);
            }
        }
        for key in mine {
            if self.is_asked(&key.id) {
                self.unshared.remove(&key.id);
            }
        }
        forgotten
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
                let Some(Stands { until_us, is_forgotten }) = list.stands(id) else { continue };
                let for_ms = remaining_ms(until_us, now_us);
                if is_its_own || for_ms == 0 {
                    continue;
                }
                let is_anew = is_forgotten || news.get(id).is_some_and(|news| news.is_anew);
                let words = [is_anew.then_some(0), (!is_forgotten).then_some(for_ms)];
                let has_room = bans.len() + words.iter().flatten().count() <= BANS_MAX;
                let rule = if has_room { index_of(&id.rule, rules) } else { None };
                let Some(rule) = rule else {
                    up_to.0 = number - 1;
                    break;
                };
                let ban = |for_ms| Ban { rule, value: id.value.clone(), for_ms };
                bans.extend(words.into_iter().flatten().map(ban));
            }
            let letter = (!bans.is_empty()).then_some(before);
            (bans, letter)
        })
    }

    /// Until when `id` is banned, as far as is known here.
    pub fn banned_until(&self, id: &BudgetId) -> Option<Time> {
        self.list.until_us(id).map(|until_us| Time::from_nanos(until_us.saturating_mul(1_000)))
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
        let until_us = until_us(now_us, for_ms);
        let is_news = match self.news.get(id) {
            Some(known) => !known.is_forgotten && until_us > known.until_us.saturating_add(LONGER_US),
            None => for_ms > 0,
        };
        for dropped in self.list.add(id, until_us, now_us) {
            self.forget(&dropped);
        }
        if is_news && self.list.until_us(id).is_some() {
            let news =
                News { number: 0, heard_us: now_us, until_us, is_forgotten: false, is_anew: false, from };
            self.tell_of(id, news);
            return true;
        }
        false
    }

    /// Whether the store was asked after what is known of `id` was news.
    fn is_asked(&self, id: &BudgetId) -> bool {
        self.news.get(id).is_none_or(|news| news.number <= self.asked)
    }

    /// Notes what replaces all that was said of `id`.
    fn put(&mut self, id: &BudgetId, now_us: u64, for_ms: u32, is_forgotten: bool) {
        self.expire(now_us);
        let until_us = until_us(now_us, for_ms);
        // A ban that lasts longer takes nothing back.
        let is_longer = |known: &News| known.until_us > until_us.saturating_add(LONGER_US);
        let is_anew =
            self.news.get(id).is_some_and(|known| known.is_anew || known.is_forgotten || is_longer(known));
        let news = News { number: 0, heard_us: now_us, until_us, is_forgotten, is_anew, from: None };
        self.tell_of(id, news);
        for dropped in self.list.put(id, until_us, is_forgotten, now_us) {
            self.forget(&dropped);
        }
    }

    /// Gives `news` of `id` the next number.
    fn tell_of(&mut self, id: &BudgetId, news: News) {
        self.latest += 1;
        let news = News { number: self.latest, ..news };
        if let Some(before) = self.news.insert(id.clone(), news) {
            self.by_number.remove(&before.number);
        }
        self.by_number.insert(self.latest, id.clone());
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

fn until_us(now_us: u64, for_ms: u32) -> u64 {
    now_us.saturating_add(u64::from(for_ms.min(BAN_MS_MAX)) * 1_000)
}

fn micros(now: Time) -> u64 {
    now.as_nanos() / 1_000
}
