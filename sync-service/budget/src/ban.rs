//! Bans: keys that are refused for some time at every POP of the fleet, by a rule's penalty or by an operator.
//!
//! Path of a penalty's ban:
//!
//! 1. At a POP, `strike` in weir-limiter's `check/answer.rs` counts a key's limited requests. At the last strike it
//!    writes the ban into the key's slot, for all workers; `check/evaluate.rs` refuses the key from then on.
//! 2. The POP lists the ban in its reports ([`Report::bans`]) until one of them is answered.
//! 3. [`crate::report_limits`] drops a ban that the rule does not impose, and shortens one that is too long.
//! 4. [`Bans::observe`] records it under a new number. For each POP, the number up to which it was sent bans is kept,
//!    and set back if a reply is lost, so that the bans from there on are sent again (see [`crate::push`]).
//! 5. weir-sync shares it with the other regions at once ([`crate::hub::Hub::share_bans`]), through a [`BanList`] in
//!    the store (`bans.lua` for Redis). They read that list every interval ([`Bans::merge`]).
//! 6. Each region sends it to its POPs with their next replies ([`Bans::push`]), but not back to the POP that made it.
//! 7. At the POP, `apply_bans` in weir-limiter's `sync/grants.rs` writes it into the key's slot.
//!
//! Path of an operator's ban, of a key of any rule (files of `sync-service/src`):
//!
//! 1. `put_override` in `routes/keys.rs` reads the ban (`overrides/request.rs`) and stores it as an override
//!    (`put_override` in `rules/overrides.rs`; `overrides.lua` for Redis).
//! 2. `ban_keys` in `report.rs` records it here ([`crate::hub::Hub::ban`], [`Bans::order`]) and shares it at once,
//!    as in step 5 above. Steps 6 and 7 follow.
//! 3. Every interval, `listen` in `report.rs` reads the overrides that ban keys (`banned` in `rules/overrides.rs`) and
//!    passes them to [`Bans::stand_by`]. So each region has these bans, whether the store's list has room or not.
//! 4. `lift_override` in `routes/keys.rs` ends the ban with a reset of the key (`unban_keys` in `report.rs`). If an
//!    override is withdrawn elsewhere, [`Bans::stand_by`] resets its key.
//!
//! A reset is a ban of length zero: POPs forget the key, and so does each region ([`crate::hub::Hub::forget`]). An
//! operator's ban replaces an earlier one: a POP that may have a longer ban is first sent a ban of length zero, which
//! ends only that ban. A reset that the POP was not sent yet comes before both. A penalty's ban just after a reset was
//! most likely made before it, and does not replace it.

mod list;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::{BAN_MS_MAX, BANS_MAX, Ban, Report};
use weir_protocol::time::Time;

pub use list::{BANS_KEPT_MAX, BanList, BanState, BannedKey, FORGOTTEN, FORGOTTEN_MS};
use list::{BanEntry, remaining_ms, until_us};

use crate::budget::BudgetId;
use crate::push::{PushState, PushStates, index_of};

/// A ban is new if it ends later than the known one by this, in microseconds: more than messages take.
const LONGER_US: u64 = 1_000_000;
const SLACK_MS: u64 = LONGER_US / 1_000;
/// A reset is new if it ends later than the known one by this, in microseconds: no store reply takes longer.
const AGAIN_US: u64 = 500_000;
/// Maximum number of keys sent to the store in one exchange; the rest wait for the next one.
pub const SHARED_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub struct Bans {
    list: BanList,
    news: BTreeMap<BudgetId, News>,
    by_number: BTreeMap<u64, BudgetId>,
    latest: u64,
    /// Bans and resets that the store does not have yet; true for an operator's.
    unshared: BTreeMap<BudgetId, bool>,
    /// Keys banned by operators' overrides, with the end of each override in milliseconds since 1970.
    ordered: BTreeMap<BudgetId, u64>,
    pushed: PushStates<UpTo>,
}

/// Maximum number of keys that overrides ban; those beyond it are banned only while the list has room.
pub const ORDERED_MAX: usize = 2_000;

/// Question to the store that adds the keys banned or reset here and reads the fleet's list.
#[derive(Debug)]
pub struct BanListing {
    pub items: Vec<BannedKey>,
    /// Number of the latest change when the question was asked; the answer may lack later ones.
    latest: u64,
}

/// State of a key besides the end of its ban.
#[derive(Debug)]
struct News {
    number: u64,
    received_us: u64,
    /// End of the ban, or of the time for which POPs are sent the reset, when this was recorded.
    until_us: u64,
    is_forgotten: bool,
    /// True if it replaces earlier bans, which POPs have to forget first.
    is_anew: bool,
    /// Number and end of the last reset, which POPs receive before a ban that came after it.
    reset: Option<(u64, u64)>,
    /// The POP that made the ban, with its table; that POP is not sent the ban.
    from: Option<(String, u32)>,
}

/// Number of the latest change that a POP was sent.
#[derive(Debug, Default)]
struct UpTo(u64);

impl PushState for UpTo {
    /// The previous value, restored if the letter is lost.
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
    /// Applies the bans of a report at `now`. Returns true if any of them is new to the store.
    pub fn observe(&mut self, now: Time, report: &Report) -> bool {
        let now_us = micros(now);
        self.expire(now_us);
        let mut is_news = false;
        for ban in &report.bans {
            // Decoding the report has checked the index.
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

    /// Bans `id` for `for_ms`, but at least for [`FORGOTTEN_MS`], after which all regions have received it.
    pub fn order(&mut self, now: Time, id: BudgetId, for_ms: u32) {
        self.put(&id, micros(now), for_ms.max(FORGOTTEN_MS), false);
        // Without room in the list, the ban exists by its override alone.
        if self.news.contains_key(&id) {
            self.unshared.insert(id, true);
        }
    }

    /// Sets the bans of operators' overrides, each with its end in milliseconds since 1970; `date_ms` is `now` in that
    /// unit. Returns the keys whose overrides were withdrawn, to be forgotten. A key just reset stays reset: its
    /// override is being withdrawn.
    pub fn stand_by(&mut self, now: Time, date_ms: u64, overrides: &[(BudgetId, u64)]) -> Vec<BudgetId> {
        let now_us = micros(now);
        self.expire(now_us);
        let all: BTreeMap<_, _> = overrides.iter().cloned().collect();
        // Keys that are banned already keep their place.
        let (known, new): (Vec<_>, Vec<_>) = all.iter().partition(|(id, _)| self.ordered.contains_key(*id));
        let wanted: BTreeMap<_, _> =
            known.into_iter().chain(new).take(ORDERED_MAX).map(|(id, until_ms)| (id.clone(), *until_ms)).collect();
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

    pub fn reset(&mut self, now: Time, id: BudgetId) {
        self.put(&id, micros(now), FORGOTTEN_MS, true);
        self.unshared.insert(id, true);
    }

    pub fn is_forgotten_since(&self, id: &BudgetId, since: Time) -> bool {
        self.news.get(id).is_some_and(|news| news.is_forgotten && news.received_us >= micros(since))
    }

    /// Returns the bans to send to the store. Each is returned again until [`Self::merge`] confirms it.
    pub fn to_share(&mut self, now: Time) -> BanListing {
        let now_us = micros(now);
        self.expire(now_us);
        // Operators' bans come first.
        let of = |is_by_operator: bool| self.unshared.iter().filter(move |(_, known)| **known == is_by_operator);
        let unshared = of(true).chain(of(false)).take(SHARED_MAX);
        let keys = unshared.filter_map(|(id, is_by_operator)| {
            let stands = self.list.stands(id)?;
            let state = match stands.is_forgotten {
                true => BanState::Forgotten,
                false if *is_by_operator => BanState::BannedByOperator,
                false => BanState::Banned,
            };
            Some(BannedKey { id: id.clone(), for_ms: remaining_ms(stands.until_us, now_us), state })
        });
        BanListing { items: keys.collect(), latest: self.latest }
    }

    /// Merges the fleet's list, the store's answer to `listing`. Returns the keys that were reset elsewhere. Changes
    /// recorded since the question take precedence, because the list may lack them.
    pub fn merge(&mut self, now: Time, listing: &BanListing, fleet: &[BannedKey]) -> Vec<BudgetId> {
        let now_us = micros(now);
        self.expire(now_us);
        let mut forgotten = Vec::new();
        for key in fleet {
            let is_sent = || listing.items.iter().any(|mine| mine.id == key.id);
            // A reset ends a penalty's ban that the store does not have yet.
            let outlasts = |is_by_operator: &bool| (*is_by_operator || !key.is_forgotten()) && !is_sent();
            if self.is_newer(&key.id, listing) || self.unshared.get(&key.id).is_some_and(outlasts) {
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
                // It was banned after the reset.
                self.put(&key.id, now_us, key.for_ms, false);
                self.unshared.remove(&key.id);
            } else if known.is_some_and(|(_, known_us)| until_us + LONGER_US < known_us) {
                // Only an operator shortens a ban.
                self.put(&key.id, now_us, key.for_ms, false);
            } else {
                self.learn(&key.id, now_us, key.for_ms, None);
            }
        }
        for key in &listing.items {
            if !self.is_newer(&key.id, listing) {
                self.unshared.remove(&key.id);
            }
        }
        forgotten
    }

    /// Bans that the sender of `report` was not sent yet, at most [`BANS_MAX`]; their rules are added to `rules`.
    pub fn push(&mut self, now: Time, report: &Report, is_repeated: bool, rules: &mut Vec<String>) -> Vec<Ban> {
        let now_us = micros(now);
        self.expire(now_us);
        let Self { pushed, by_number, news, list, latest, .. } = self;
        pushed.push(now, report, is_repeated, |up_to| {
            let (before, mut bans) = (up_to.0, Vec::new());
            up_to.0 = *latest;
            for (number, id) in by_number.range(before + 1..) {
                let from = news.get(id).and_then(|news| news.from.as_ref());
                let is_its_own = from.is_some_and(|(pop, table)| *pop == report.pop && *table == report.table);
                let Some(BanEntry { until_us, is_forgotten }) = list.stands(id) else { continue };
                let for_ms = remaining_ms(until_us, now_us);
                if is_its_own || for_ms == 0 {
                    continue;
                }
                let reset = news.get(id).and_then(|news| news.reset);
                let is_unsent = reset.is_some_and(|(number, until_us)| before < number && now_us < until_us);
                let is_anew = is_unsent || is_forgotten || news.get(id).is_some_and(|news| news.is_anew);
                let words = [is_unsent.then_some(0), is_anew.then_some(0), (!is_forgotten).then_some(for_ms)];
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

    pub fn banned(&self) -> usize {
        self.list.banned()
    }

    pub fn banned_ms(&self, now: Time, id: &BudgetId) -> Option<u32> {
        let until_us = self.list.until_us(id)?;
        Some(remaining_ms(until_us, micros(now))).filter(|ms| *ms > 0)
    }

    /// Records a ban of `id` for `for_ms` from `now_us`. Returns true if it is new.
    fn learn(&mut self, id: &BudgetId, now_us: u64, for_ms: u32, from: Option<(String, u32)>) -> bool {
        let (until_us, known) = (until_us(now_us, for_ms), self.news.get(id));
        // If two POPs made the ban, that of the later report ends sooner than it seems here, so both are sent the
        // longer one. A ban from the store has no POP, or each echo of it would be new.
        let is_anothers = known.is_some_and(|known| known.from.is_some() && from.is_some() && known.from != from);
        let is_news = match known {
            Some(known) => {
                let is_longer = until_us > known.until_us.saturating_add(LONGER_US);
                !known.is_forgotten && (is_longer || is_anothers)
            }
            None => for_ms > 0,
        };
        let until_us = known.filter(|_| is_anothers).map_or(until_us, |known| until_us.max(known.until_us));
        let is_first = known.is_none_or(|known| known.from == from);
        let from = from.filter(|_| is_first);
        for dropped in self.list.add(id, until_us, now_us) {
            self.forget(&dropped);
        }
        if is_news && self.list.until_us(id).is_some() {
            let (is_forgotten, is_anew) = (false, false);
            let reset = self.news.get(id).and_then(|known| known.reset);
            let news = News { number: 0, received_us: now_us, until_us, is_forgotten, is_anew, reset, from };
            self.record_news(id, news);
            return true;
        }
        false
    }

    /// True if the latest change of `id` was recorded after the question of `listing`.
    fn is_newer(&self, id: &BudgetId, listing: &BanListing) -> bool {
        self.news.get(id).is_some_and(|news| news.number > listing.latest)
    }

    /// Records a ban or a reset that replaces everything known about `id`.
    fn put(&mut self, id: &BudgetId, now_us: u64, for_ms: u32, is_forgotten: bool) {
        self.expire(now_us);
        let until_us = until_us(now_us, for_ms);
        // A longer ban withdraws nothing, so POPs need no reset before it.
        let is_longer = |known: &News| known.until_us > until_us.saturating_add(LONGER_US);
        let is_anew = self.news.get(id).is_some_and(|known| known.is_anew || known.is_forgotten || is_longer(known));
        let reset = self
            .news
            .get(id)
            .filter(|_| !is_forgotten)
            .and_then(|known| if known.is_forgotten { Some((known.number, known.until_us)) } else { known.reset });
        let news = News { number: 0, received_us: now_us, until_us, is_forgotten, is_anew, reset, from: None };
        self.record_news(id, news);
        for dropped in self.list.put(id, until_us, is_forgotten, now_us) {
            self.forget(&dropped);
        }
    }

    fn record_news(&mut self, id: &BudgetId, news: News) {
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

fn micros(now: Time) -> u64 {
    now.as_nanos() / 1_000
}
