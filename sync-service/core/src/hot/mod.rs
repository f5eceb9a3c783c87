//! Hot keys: which they are, and who has to be told.
//!
//! A key is hot when the fleet asks for a large part of its quota, or its level has fallen: then every
//! POP must hold an allowance for it before its client arrives there. Regions hear of each other's hot
//! keys through the store ([`HotList`]), and tell their POPs with the next reply. A key that rests after
//! it was spread over many POPs is told too, but at leisure: its allowance does not change.

mod list;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_limiter::quota::Quota;
use weir_limiter::sharing::Sharing;
use weir_limiter::time::{SECOND_NS, Time};
use weir_limiter::wire::{AdmitRatio, Grant, KEYS_MAX, Pushed, Report};

pub use list::{HotKey, HotKeyError, HotList, LISTED_US};

use crate::budget::{Account, BudgetId};
use crate::divide::Division;

/// The most hot keys a region keeps; beyond it those that rest go first, then newcomers are not told of.
pub const HOT_MAX: usize = 4_096;
/// A hot key that no account confirms for so long, in nanoseconds, is not pushed any more.
const HOT_NS: u64 = SECOND_NS;
/// The same for a key that rests.
const RESTING_LOST_NS: u64 = 10 * SECOND_NS;
/// How often a region looks at the budget of a key that rests, in nanoseconds, and sees to it that the
/// others hear of it.
pub const RESTING_NS: u64 = 2 * SECOND_NS;
/// The most resting keys that are looked at together; all get their turn within [`RESTING_NS`].
const RESTING_PEEKS_MAX: usize = HOT_MAX / 8;
/// A POP that holds the same grant is told again after this, in nanoseconds: well within its lease.
const AGAIN_NS: u64 = SECOND_NS;
/// A grant is the same while its ratio differs by less than one part in this many.
const SAME_PART: u32 = 16;

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
    /// As far, but a client who was seen at many POPs at once may return to all of them.
    Resting,
    /// Close to its quota.
    Hot,
}

impl Heat {
    /// Of a key that is asked for `demand_milli` thousandths of a token a second.
    pub fn of(quota: Quota, account: &Account, demand_milli: u128, was_hot: bool) -> Self {
        let part = if was_hot { STAYS_HOT_PART } else { HOT_PART };
        let rate_milli = u128::from(SECOND_NS) * 1_000 / u128::from(quota.token_ns());
        let is_busy = demand_milli.saturating_mul(u128::from(part)) > rate_milli;
        if is_busy || account.deficit_ns.saturating_mul(part) > quota.fill_ns() {
            Self::Hot
        } else if account.spread > 1 {
            Self::Resting
        } else {
            Self::Warm
        }
    }
}

/// The hot keys a region knows, and what its POPs hold of them.
#[derive(Debug, Default)]
pub struct HotKeys {
    hot: BTreeMap<BudgetId, Known>,
    resting: BTreeMap<BudgetId, Known>,
    /// By POP, its table and the version of its rules: one that lost what it held is told again, and one that did
    /// not take what was told, as its rule had another quota. Of each, by [`Known::serial`].
    told: BTreeMap<(String, u32, u64), BTreeMap<u64, Told>>,
    swept_at: Time,
    /// The last that was given to a key.
    serial: u64,
}

#[derive(Clone, Debug)]
struct Known {
    quota: Quota,
    sharing: Sharing,
    /// What POPs hold that the key is not asked of.
    grant: Grant,
    /// When its account was seen.
    at: Time,
    /// When it was last seen on the shared list or put there.
    listed_at: Time,
    /// Names the key while it is kept, shorter than its id: what a POP holds is noted for each key and each POP.
    serial: u64,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    quota: Quota,
    ratio: AdmitRatio,
    burst: u32,
    lease_ms: u32,
    at: Time,
    again_ns: u64,
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
        if self.hot.len() + self.resting.len() >= HOT_MAX
            && (division.heat == Heat::Resting || self.resting.pop_first().is_none())
        {
            return;
        }
        let (listed_at, serial) =
            known.map_or((Time::ZERO, self.serial + 1), |known| (known.listed_at, known.serial));
        self.serial = self.serial.max(serial);
        let (sharing, grant) = (sharing.clone(), division.elsewhere);
        let known = Known { quota, sharing, grant, at: now, listed_at, serial };
        let keys = if division.heat == Heat::Hot { &mut self.hot } else { &mut self.resting };
        keys.insert(id.clone(), known);
    }

    /// Whether `id` was hot when its account was last seen.
    pub fn is_hot(&self, id: &BudgetId) -> bool {
        self.hot.contains_key(id)
    }

    /// What the other regions have to hear of: the hot keys whose accounts are fresh, and those that rest
    /// and that nobody has named for a while.
    pub fn to_list(&mut self, now: Time) -> Vec<HotKey> {
        let hot = self.hot.iter_mut().filter(|(_, known)| now.nanos_since(known.at) < HOT_NS);
        let resting = self.resting.iter_mut().filter(|(_, known)| {
            now.nanos_since(known.at) < RESTING_LOST_NS && now.nanos_since(known.listed_at) >= RESTING_NS
        });
        let named = hot.chain(resting).map(|(id, known)| {
            known.listed_at = now;
            HotKey { id: id.clone(), quota: known.quota, sharing: known.sharing.clone() }
        });
        named.collect()
    }

    /// Of the fleet's hot keys and those that rest here, those to look at: what is hot if its account is
    /// older than `age_ns`, what rests if it is older than [`RESTING_NS`].
    pub fn to_look_at(&mut self, fleet: &[HotKey], age_ns: u64, now: Time) -> Vec<HotKey> {
        let mut unseen = Vec::new();
        for key in fleet {
            if let Some(known) = self.resting.get_mut(&key.id) {
                known.listed_at = now;
            } else if self.hot.get(&key.id).is_none_or(|known| now.nanos_since(known.at) >= age_ns) {
                unseen.push(key.clone());
            }
        }
        let rested = self.resting.iter().filter(|(_, known)| now.nanos_since(known.at) >= RESTING_NS);
        unseen.extend(rested.take(RESTING_PEEKS_MAX).map(|(id, known)| HotKey {
            id: id.clone(),
            quota: known.quota,
            sharing: known.sharing.clone(),
        }));
        unseen
    }

    /// What the sender of `report` has to be told beside what it asked for: rule names, and grants.
    pub fn pushes(&mut self, report: &Report, now: Time) -> (Vec<String>, Vec<Pushed>) {
        self.sweep(now);
        let name = |rule: u16| report.rules.get(usize::from(rule)).map(|rule| rule.name.as_str());
        let asked = report.keys.iter().filter_map(|key| Some(BudgetId::order(name(key.rule)?, &key.value)));
        let mut asked: Vec<_> = asked.collect();
        asked.sort_unstable();
        let told = self.told.entry((report.pop.clone(), report.table, report.running.version)).or_default();
        let (mut rules, mut pushed): (Vec<String>, Vec<Pushed>) = (Vec::new(), Vec::new());
        let hot = unasked(&self.hot, &asked).map(|(id, known)| (id, known, HOT_NS, AGAIN_NS));
        let resting = unasked(&self.resting, &asked)
            .map(|(id, known)| (id, known, RESTING_LOST_NS, u64::from(known.grant.lease_ms) * 1_000_000 / 2));
        for (id, known, lost_ns, again_ns) in hot.chain(resting) {
            if now.nanos_since(known.at) >= lost_ns {
                continue;
            }
            let Some(telling) = Told::due(told.get(&known.serial), known, again_ns, now) else { continue };
            told.insert(known.serial, telling);
            let rule = rules.iter().position(|rule| *rule == id.rule).unwrap_or_else(|| {
                rules.push(id.rule.clone());
                rules.len() - 1
            });
            let Ok(rule) = u16::try_from(rule) else { break };
            pushed.push(Pushed { rule, value: id.value.clone(), quota: known.quota, grant: known.grant });
            if pushed.len() >= KEYS_MAX {
                break;
            }
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
        self.resting.retain(|_, known| now.nanos_since(known.at) < RESTING_LOST_NS);
        for told in self.told.values_mut() {
            told.retain(|_, told| now.nanos_since(told.at) < 2 * told.again_ns);
        }
        self.told.retain(|_, told| !told.is_empty());
    }
}

impl Known {
    /// Goes by a newer account.
    fn renew(&mut self, quota: Quota, sharing: &Sharing, division: &Division, now: Time) {
        (self.quota, self.grant, self.at) = (quota, division.elsewhere, now);
        if self.sharing != *sharing {
            self.sharing.clone_from(sharing);
        }
    }
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

impl Told {
    /// What to note of telling a POP of `known` at `now`; `None` where it still knows. It is told again
    /// after `again_ns`.
    fn due(before: Option<&Self>, known: &Known, again_ns: u64, now: Time) -> Option<Self> {
        match before.filter(|told| told.is_same(known)) {
            // A reply may be lost: what is new is soon said once more.
            None => Some(Self::of(known, now, AGAIN_NS)),
            Some(told) => (now.nanos_since(told.at) >= told.again_ns).then(|| Self::of(known, now, again_ns)),
        }
    }

    fn of(known: &Known, at: Time, again_ns: u64) -> Self {
        let Grant { ratio, burst, lease_ms, .. } = known.grant;
        Self { quota: known.quota, ratio, burst, lease_ms, at, again_ns }
    }

    /// Whether it does for what is known now, too. The level does not count: a bucket goes on from what it was told.
    fn is_same(&self, known: &Known) -> bool {
        let (quota, grant) = (known.quota, &known.grant);
        let (told, ratio) = (self.ratio.bits(), grant.ratio.bits());
        told.abs_diff(ratio) <= told.min(ratio) / SAME_PART
            && self.quota == quota
            && self.burst == grant.burst
            && self.lease_ms.abs_diff(grant.lease_ms) <= self.lease_ms / 2
    }
}
