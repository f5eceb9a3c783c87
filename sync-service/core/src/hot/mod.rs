//! Hot keys: which they are, and which POPs have to be told.
//!
//! A key is hot when the fleet asks for a large part of its quota, or its level has fallen: then every
//! POP must hold an allowance for it before its client arrives there. Regions hear of each other's hot
//! keys through the store ([`HotList`]), and tell their POPs with the next reply. A key that rests, because nobody asks
//! for it, and whose budget is far from full or was spread over many POPs, is told too, but at leisure: its allowance
//! does not change. It is looked at ever more seldom, and at once when another region names it as hot.

mod list;
mod told;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_limiter::quota::Quota;
use weir_limiter::sharing::Sharing;
use weir_limiter::time::{SECOND_NS, Time};
use weir_limiter::wire::{AdmitRatio, Grant, Pushed, Report};

use told::Notes;

pub use list::{HotKey, HotKeyError, HotList, LISTED_MS, RANK_MAX};
pub use told::{PUSH_BYTES_PER_S, TOLD_MAX};

use crate::budget::{Account, BudgetId};
use crate::divide::Division;

/// The most hot keys a region keeps; beyond it those that rest go first, then those that matter least.
pub const HOT_MAX: usize = 4_096;
/// Among how many keys the one is looked for that is to make room.
const NEIGHBOURS_MAX: usize = 8;
/// A hot key that no account confirms for so long, in nanoseconds, is not pushed any more.
const HOT_NS: u64 = SECOND_NS;
/// The same for a key that rests, after its turn to be looked at.
const RESTING_LOST_NS: u64 = 10 * SECOND_NS;
/// How soon a region looks at the budget of a key that has come to rest, in nanoseconds, and sees to it that the
/// others hear of it. Each time after that takes twice as long, ...
pub const RESTING_NS: u64 = 2 * SECOND_NS;
/// ... up to this.
pub const RESTING_NS_MAX: u64 = 32 * SECOND_NS;
/// The most resting keys that are looked at together; all get their turn within [`RESTING_NS`].
const RESTING_PEEKS_MAX: usize = HOT_MAX / 8;

/// A key becomes hot when it is asked for more than a half of its rate, or its level is below a half of
/// its burst.
const HOT_PART: u64 = 2;
/// It stays so until it is asked for less than a quarter, and lacks less than a quarter.
const STAYS_HOT_PART: u64 = 4;

/// How closely a key is to be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// Far from its quota: nobody else need hear of it.
    Warm,
    /// Nobody asks for it now; but its budget is far from full, or its client was seen at many POPs at once and may
    /// return to all of them.
    Resting,
    /// Close to its quota.
    Hot,
}

impl Heat {
    /// The one of a key that is asked for `demand_milli` thousandths of a token a second.
    pub fn of(quota: Quota, account: &Account, demand_milli: u128, was_hot: bool) -> Self {
        let part = if was_hot { STAYS_HOT_PART } else { HOT_PART };
        let rate_milli = u128::from(SECOND_NS) * 1_000 / u128::from(quota.token_ns());
        let is_busy = demand_milli.saturating_mul(u128::from(part)) > rate_milli;
        let lacks = account.deficit_ns.saturating_mul(part) > quota.fill_ns();
        if is_busy || lacks && demand_milli > 0 {
            Self::Hot
        } else if lacks || account.spread > 1 {
            Self::Resting
        } else {
            Self::Warm
        }
    }
}

/// How much it matters that POPs hear of a key: first what its budget lacks, in thousandths of a burst, then what is
/// asked for, in thousandths of the rate. A client that asks once for each of many keys makes each of them weigh little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32, u32);

impl Weight {
    /// The one of a key that is asked for `demand_milli` thousandths of a token a second.
    pub fn of(quota: Quota, account: &Account, demand_milli: u128) -> Self {
        let part = |number: u128| u32::try_from(number).unwrap_or(u32::MAX);
        let lacks = u128::from(account.deficit_ns) * 1_000 / u128::from(quota.fill_ns().max(1));
        Self(
            part(lacks),
            part(demand_milli.saturating_mul(u128::from(quota.token_ns())) / u128::from(SECOND_NS)),
        )
    }

    /// Whether its budget is in debt.
    fn is_debt(self) -> bool {
        self.0 > 1_000
    }

    /// The rank of a hot key on the list that regions share: by how many bursts its budget lacks.
    fn rank(self) -> u8 {
        match self.0 {
            0..=1_000 => 1,
            1_001..=2_000 => 2,
            2_001..=8_000 => 3,
            _ => RANK_MAX,
        }
    }
}

/// The hot keys a region knows, and what its POPs hold of them.
#[derive(Debug, Default)]
pub struct HotKeys {
    hot: BTreeMap<BudgetId, Known>,
    resting: BTreeMap<BudgetId, Known>,
    told: Notes,
    swept_at: Time,
    /// Keys that found no room, or had to make it.
    dropped: u64,
    /// The last that was given to a key.
    serial: u64,
}

#[derive(Clone, Debug)]
struct Known {
    quota: Quota,
    sharing: Sharing,
    /// What POPs hold that the key is not asked of.
    grant: Grant,
    /// Whether one POP at most is asked for it.
    is_alone: bool,
    /// When its account was seen.
    at: Time,
    /// When it was last seen on the shared list or put there.
    listed_at: Time,
    /// How long after that it is to be looked at, if it rests.
    look_ns: u64,
    weight: Weight,
    /// Names the key while it is kept, shorter than its id: what a POP holds is noted for each key and each POP.
    serial: u64,
}

impl HotKeys {
    /// Divides a budget with `divided`, which is told whether its key was hot when its account was last seen, and
    /// notes the outcome as [`HotKeys::note`] does.
    pub fn divide(
        &mut self,
        id: &BudgetId,
        quota: Quota,
        sharing: &Sharing,
        now: Time,
        divided: impl FnOnce(bool) -> Division,
    ) -> Division {
        let division = match self.hot.get_mut(id) {
            Some(known) => {
                let division = divided(true);
                if division.heat == Heat::Hot && !sharing.strict {
                    known.renew(quota, sharing, &division, now);
                    return division;
                }
                division
            }
            None => divided(false),
        };
        self.note(id, quota, sharing, &division, now);
        division
    }

    /// Notes what a budget's newest account says: a key that is hot or rests is kept, one that is warm
    /// goes.
    pub fn note(&mut self, id: &BudgetId, quota: Quota, sharing: &Sharing, division: &Division, now: Time) {
        let is_watched = division.heat != Heat::Warm && !sharing.strict;
        let keys = if division.heat == Heat::Hot { &mut self.hot } else { &mut self.resting };
        if let Some(known) = keys.get_mut(id).filter(|_| is_watched) {
            known.renew(quota, sharing, division, now);
            return;
        }
        let known = self.hot.remove(id).or_else(|| self.resting.remove(id));
        if !is_watched {
            return;
        }
        let is_hot = division.heat == Heat::Hot;
        if self.hot.len() + self.resting.len() >= HOT_MAX && !self.make_room(id, is_hot, division.weight) {
            return;
        }
        let (listed_at, serial) =
            known.map_or((Time::ZERO, self.serial + 1), |known| (known.listed_at, known.serial));
        self.serial = self.serial.max(serial);
        let (sharing, grant, weight) = (sharing.clone(), division.elsewhere, division.weight);
        let known = Known {
            quota,
            sharing,
            grant,
            at: now,
            listed_at,
            look_ns: RESTING_NS,
            weight,
            is_alone: division.is_alone,
            serial,
        };
        let keys = if is_hot { &mut self.hot } else { &mut self.resting };
        keys.insert(id.clone(), known);
    }

    /// Drops a key for `id`: one that rests, or one that matters less. False where `id` itself is to stay out.
    fn make_room(&mut self, id: &BudgetId, is_hot: bool, weight: Weight) -> bool {
        self.dropped += 1;
        let (id, weight) = (id.clone(), (is_hot, weight));
        let is_lighter = |light: &(Weight, BudgetId), is_hot| (is_hot, light.0) < weight;
        if let Some((_, light)) = lightest(&self.resting, &id).filter(|light| is_lighter(light, false)) {
            return self.resting.remove(&light).is_some();
        }
        let light = lightest(&self.hot, &id).filter(|light| is_lighter(light, true));
        light.is_some_and(|(_, light)| self.hot.remove(&light).is_some())
    }

    /// How many found no room, or had to make it.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What is noted of what POPs were told.
    pub fn told_len(&self) -> usize {
        self.told.len()
    }

    /// Whether `id` was hot when its account was last seen.
    pub fn is_hot(&self, id: &BudgetId) -> bool {
        self.hot.contains_key(id)
    }

    /// What the other regions have to hear of: the hot keys whose accounts are fresh, and those that rest
    /// and that nobody has named for a while.
    pub fn to_list(&self, now: Time) -> Vec<HotKey> {
        let hot = self.hot.iter().filter(|(_, known)| now.nanos_since(known.at) < HOT_NS);
        let resting = self.resting.iter().filter(|(_, known)| {
            now.nanos_since(known.at) < known.lost_ns(false)
                && now.nanos_since(known.listed_at) >= known.look_ns
        });
        let hot = hot.map(|(id, known)| (id, known, false));
        let all = hot.chain(resting.map(|(id, known)| (id, known, true)));
        all.map(|(id, known, rests)| known.named(id, rests)).collect()
    }

    /// The store has put these keys on the list at `now`.
    pub fn are_listed(&mut self, keys: &[HotKey], now: Time) {
        for key in keys {
            let among = if key.rests { &mut self.resting } else { &mut self.hot };
            if let Some(known) = among.get_mut(&key.id) {
                known.listed_at = now;
            }
        }
    }

    /// Of the fleet's hot keys and those that rest here, those to look at: what is hot anywhere if its account is
    /// older than `age_ns`, what rests in its own time.
    pub fn to_look_at(&mut self, fleet: &[HotKey], age_ns: u64, now: Time) -> Vec<HotKey> {
        let mut unseen = Vec::new();
        for key in fleet {
            let known = match self.resting.get_mut(&key.id) {
                Some(known) => {
                    known.listed_at = now;
                    Some(known)
                }
                None => self.hot.get_mut(&key.id),
            };
            // That it rests elsewhere is no news to a POP that knows it.
            if known.is_none_or(|known| !key.rests && now.nanos_since(known.at) >= age_ns) {
                unseen.push(key.clone());
            }
        }
        let rested = self.resting.iter().filter(|(_, known)| now.nanos_since(known.at) >= known.look_ns);
        unseen.extend(rested.take(RESTING_PEEKS_MAX).map(|(id, known)| known.named(id, true)));
        unseen
    }

    /// What the sender of `report` has to be told beside what it asked for: rule names, and grants.
    /// Not of a key that it `is_asked` for, while all requests are let through: what was last answered is better.
    pub fn pushes(
        &mut self,
        report: &Report,
        is_asked: impl Fn(&BudgetId) -> bool,
        now: Time,
    ) -> (Vec<String>, Vec<Pushed>) {
        self.sweep(now);
        let name = |rule: u16| report.rules.get(usize::from(rule)).map(|rule| rule.name.as_str());
        let asked = report.keys.iter().filter_map(|key| Some(BudgetId::order(name(key.rule)?, &key.value)));
        let mut asked: Vec<_> = asked.collect();
        asked.sort_unstable();
        let hot = unasked(&self.hot, &asked).map(|(id, known)| (id, known, true));
        let resting = unasked(&self.resting, &asked).map(|(id, known)| (id, known, false));
        let known = hot
            .chain(resting)
            .filter(|(_, known, is_hot)| now.nanos_since(known.at) < known.lost_ns(*is_hot))
            .filter(|(id, known, _)| !(known.is_open() && is_asked(id)));
        let (mut rules, mut pushed): (Vec<String>, Vec<Pushed>) = (Vec::new(), Vec::new());
        for (id, known, is_hot) in self.told.due(report, known, now) {
            let rule = rules.iter().position(|rule| *rule == id.rule).unwrap_or_else(|| {
                rules.push(id.rule.clone());
                rules.len() - 1
            });
            let Ok(rule) = u16::try_from(rule) else { break };
            let grant = if is_hot { known.grant } else { known.refilled(now) };
            pushed.push(Pushed { rule, value: id.value.clone(), quota: known.quota, grant });
        }
        (rules, pushed)
    }

    /// Forgets what nobody confirms, at most once a second.
    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) < SECOND_NS {
            return;
        }
        self.swept_at = now;
        self.hot.retain(|_, known| now.nanos_since(known.at) < HOT_NS);
        self.resting.retain(|_, known| now.nanos_since(known.at) < known.lost_ns(false));
        self.told.sweep(now);
    }
}

impl Known {
    /// Whether its POPs let all requests through, but for what each holds.
    fn is_open(&self) -> bool {
        self.is_alone || self.grant.ratio == AdmitRatio::ONE
    }

    /// Goes by a newer account.
    fn renew(&mut self, quota: Quota, sharing: &Sharing, division: &Division, now: Time) {
        if now.nanos_since(self.at) >= self.look_ns {
            self.look_ns = (2 * self.look_ns).min(RESTING_NS_MAX);
        }
        (self.quota, self.grant, self.weight, self.at) = (quota, division.elsewhere, division.weight, now);
        self.is_alone = division.is_alone;
        if self.sharing != *sharing {
            self.sharing.clone_from(sharing);
        }
    }

    /// After how long without an account it is told no more.
    fn lost_ns(&self, is_hot: bool) -> u64 {
        if is_hot { HOT_NS } else { self.look_ns + RESTING_LOST_NS }
    }

    /// What POPs are to hold at `now` of one that nobody has asked for since its account was seen.
    fn refilled(&self, now: Time) -> Grant {
        let refilled = self.quota.refill_micro(now.nanos_since(self.at)) / 1_000;
        let level_milli = self.grant.level_milli.saturating_add(i64::try_from(refilled).unwrap_or(i64::MAX));
        Grant { level_milli, ..self.grant }
    }

    fn named(&self, id: &BudgetId, rests: bool) -> HotKey {
        let rank = if rests { 0 } else { self.weight.rank() };
        HotKey { id: id.clone(), quota: self.quota, sharing: self.sharing.clone(), rests, rank }
    }
}

/// The lightest among a few of `keys` that lie next to `id`.
fn lightest(keys: &BTreeMap<BudgetId, Known>, id: &BudgetId) -> Option<(Weight, BudgetId)> {
    let next = keys.range(id..).chain(keys.range(..id)).take(NEIGHBOURS_MAX);
    next.min_by_key(|(_, known)| known.weight).map(|(id, known)| (known.weight, id.clone()))
}

/// Of `keys`, those that are not among `asked`, which are in the same order.
fn unasked<'a>(
    keys: &'a BTreeMap<BudgetId, Known>,
    mut asked: &'a [(&'a [u8], &'a str)],
) -> impl Iterator<Item = (&'a BudgetId, &'a Known)> {
    keys.iter().filter(move |(id, _)| {
        let order = BudgetId::order(&id.rule, &id.value);
        while let Some((_, rest)) = asked.split_first().filter(|(first, _)| **first < order) {
            asked = rest;
        }
        asked.first() != Some(&order)
    })
}
