//! What a POP may claim: no more than its own buckets can have admitted.
//!
//! A POP's bucket admits at most burst + rate x t (I3). So whatever a POP says it admitted of a key, a *meter* lets no
//! more through than that: a token bucket of the key's rate that holds [`BURSTS`] bursts. It is more than one, as a POP
//! that starts anew has a full bucket. Time counts from the POP's last report of the key, however long ago, since an
//! honest POP reports what it admitted meanwhile; it is told by the POP's own clock, which is believed as far as ours
//! has come. What is claimed beyond that is not charged until the meter has refilled.
//!
//! Meters are bounded: where a POP claims more keys at once than its share, the rest is not charged until there is room.
//! Refused is a key of a rule that is in none of the rule sets that are kept, and a ban that no rule of theirs imposes.
//!
//! Strict rules have no meters: their budgets give no more than they have, whoever asks.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use weir_wire::messages::{Key, POPS_MAX, Report, Rule};
use weir_wire::quota::Quota;
use weir_wire::time::{SECOND_NS, Time};

use crate::ban::BANS_KEPT_MAX;
use crate::budget::{BudgetId, COUNT_MAX};
use crate::divide::{HORIZON_NS, SURPLUS};
use crate::source::{Count, MADE_MS_MAX};

/// How many bursts a POP may claim at once, ...
pub const BURSTS: u64 = 4;
/// ... and how much more of the rate, in nanoseconds: reports are held up, one more than another.
pub const LATE_NS: u64 = 2 * SECOND_NS;
/// A POP's clock may be quicker by one part in this many.
const DRIFT_PART: u64 = 64;
/// How far back a POP's first word of a key may reach, in nanoseconds, beside the time for which the POP itself was
/// silent: it may have had more urgent keys to report.
pub const SPAN_NS: u64 = 30 * SECOND_NS;
/// A POP is asked for at most so many times what a budget ever gives out in a second.
pub const DEMAND_TIMES: u64 = 100;
/// The most keys that one POP may claim at once, ...
pub const OF_ONE_POP_MAX: usize = 65_536;
/// ... and all POPs, ...
pub const METERS_MAX: usize = 1 << 19;
/// ... but each at least its even share of these, however many POPs there are: then it is twice as many at most.
pub const EVEN_SHARE: usize = METERS_MAX / POPS_MAX as usize;
/// A meter that is full is kept for so long after its key was last reported, in nanoseconds; ...
const KEPT_NS: u64 = 10 * SECOND_NS;
/// ... and for so long if the store has not charged all that it let through, and the POP has at most half its share: the
/// POP claims that again, which a new meter would not know.
const UNSETTLED_KEPT_NS: u64 = 120 * SECOND_NS;
/// The most bans that a POP may announce at once, as many as a list keeps, in nanoseconds of their refill; ...
const BANS_NS: u64 = 10 * SECOND_NS;
/// ... and how soon it may announce one more.
const BAN_NS: u64 = BANS_NS / BANS_KEPT_MAX as u64;
/// How many epochs of a key are told apart: reports overtake each other.
const EPOCHS_MAX: usize = 4;

const MS_NS: u64 = SECOND_NS / 1_000;

/// Why a claim was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It is of a rule that the fleet does not have, or with another quota.
    Rule,
    /// It is of a newer rule set than is known here.
    Newer,
    /// More tokens than the POP's bucket can have admitted.
    Tokens,
    /// More keys than the POP's share.
    Keys,
    /// A ban that no rule imposes, a longer one, or too many.
    Ban,
}

/// What a report claimed and was refused, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// How many keys or bans.
    pub count: u64,
    /// The rule of the first of them.
    pub rule: String,
    /// What that one claimed: tokens, keys, or a ban in milliseconds.
    pub claimed: u64,
    /// What was expected at most.
    pub expected: u64,
}

/// A rule that the fleet may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRule {
    /// As POPs name it in reports.
    pub rule: Rule,
    /// For how long it bans a key, in milliseconds; 0 if it has no penalty.
    pub ban_ms: u32,
}

/// What the POPs have claimed of late.
#[derive(Debug, Default)]
pub struct Claims {
    /// The rules of the versions that are kept, by name. Without a pushed rule set none are known, and POPs have theirs
    /// from elsewhere.
    rules: Option<BTreeMap<String, Vec<KnownRule>>>,
    /// The newest of these versions.
    newest: u64,
    pops: BTreeMap<String, Pop>,
    /// Meters of all POPs.
    meters: usize,
    swept_at: Time,
    refusals: Vec<Refusal>,
}

/// What one POP has claimed.
#[derive(Debug)]
struct Pop {
    heard_at: Time,
    /// How long it was silent, of which so much may still have to be reported, in nanoseconds.
    silence_ns: u64,
    table: u32,
    /// How far our clock is ahead of its table's by its quickest report, in milliseconds.
    ahead_ms: i64,
    meters: BTreeMap<BudgetId, Meter>,
    swept_at: Time,
    /// What it lacks of all bans that it may announce, in nanoseconds of their refill, when it was last heard.
    bans_lack_ns: u64,
}

/// What a POP has claimed of a key.
#[derive(Debug)]
struct Meter {
    /// What it lacks of being full, in nanoseconds of refill, or holds beyond, if negative, ...
    lacks_ns: i64,
    /// ... at this time.
    at: Time,
    heard_at: Time,
    epochs: Vec<Counted>,
}

/// The tokens of an epoch that were let through.
#[derive(Clone, Copy, Debug)]
struct Counted {
    epoch: u64,
    passed: u64,
    /// The part of them that the store has charged.
    settled: u64,
}

/// What of a key's counts is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) admitted: u64,
    pub(crate) unconfirmed: u64,
    /// Whether that is not all: the rest has to wait until the meter has refilled.
    pub(crate) is_clipped: bool,
}

/// A report whose claims are looked at.
pub(crate) struct Visit<'a> {
    now: Time,
    /// When the report was made, by our clock; no later than now.
    made_at: Time,
    /// None where there are too many POPs.
    pop: Option<&'a mut Pop>,
    meters: &'a mut usize,
    /// The most keys that the POP may claim at once.
    share: usize,
    /// Whether each of the report's rules is known.
    known: Vec<bool>,
    /// Whether the POP runs a newer rule set than is known.
    is_newer: bool,
    refusals: &'a mut Vec<Refusal>,
}

impl Claims {
    /// The fleet has these rules, of all versions that are kept up to `newest`.
    pub fn know_rules(&mut self, newest: u64, rules: Vec<KnownRule>) {
        self.newest = newest;
        let known = self.rules.insert(BTreeMap::new());
        for rule in rules {
            known.entry(rule.rule.name.clone()).or_default().push(rule);
        }
    }

    /// What was refused since the last call.
    pub fn refusals(&mut self) -> Vec<Refusal> {
        mem::take(&mut self.refusals)
    }

    /// How many meters there are.
    pub fn meters_len(&self) -> usize {
        self.meters
    }

    /// Looks at what `report` claims, which arrived at `now`.
    pub(crate) fn visit(&mut self, now: Time, report: &Report) -> Visit<'_> {
        self.hear(now, report);
        let known = report.rules.iter().map(|rule| find(self.rules.as_ref(), rule).is_ok()).collect();
        let share = if self.meters < METERS_MAX { OF_ONE_POP_MAX } else { EVEN_SHARE };
        let pop = self.pops.get_mut(&report.pop);
        let made_at = pop.as_ref().map_or(now, |pop| pop.made_at(report));
        let (is_newer, refusals) = (report.running.version > self.newest, &mut self.refusals);
        Visit { now, made_at, pop, meters: &mut self.meters, share, known, is_newer, refusals }
    }

    /// Drops the bans of `report` that its POP may not announce.
    pub(crate) fn check_bans(&mut self, now: Time, report: &mut Report) {
        if report.bans.is_empty() {
            return;
        }
        self.hear(now, report);
        let Self { rules, pops, refusals, .. } = self;
        let Some(pop) = pops.get_mut(&report.pop) else { return report.bans.clear() };
        let of = &report.rules;
        report.bans.retain(|ban| {
            // Checked when the report was read.
            let Some(rule) = of.get(usize::from(ban.rule)) else { return false };
            let expected =
                find(rules.as_ref(), rule).map_or(0, |known| known.map_or(u32::MAX, |known| known.ban_ms));
            let has_room = pop.bans_lack_ns + BAN_NS <= BANS_NS;
            if ban.for_ms > expected || !has_room {
                refuse(refusals, Reason::Ban, rule, u64::from(ban.for_ms), u64::from(expected));
                return false;
            }
            pop.bans_lack_ns += BAN_NS;
            true
        });
    }

    /// The store has charged these counts of `pop`.
    pub(crate) fn settle(&mut self, pop: &str, id: &BudgetId, counts: &[Count]) {
        let Some(meter) = self.pops.get_mut(pop).and_then(|pop| pop.meters.get_mut(id)) else { return };
        for count in counts {
            if let Some(known) = meter.epochs.iter_mut().find(|known| known.epoch == count.epoch) {
                known.settled = known.settled.max(count.admitted);
            }
        }
    }

    /// The POP of `report` is there.
    fn hear(&mut self, now: Time, report: &Report) {
        self.sweep(now);
        if let Some(pop) = self.pops.get_mut(&report.pop) {
            pop.hear(now, report);
        } else if self.pops.len() < POPS_MAX as usize || self.forget_silent() {
            self.pops.insert(report.pop.clone(), Pop::new(now, report));
        }
    }

    /// Forgets full meters now and then.
    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) < SECOND_NS {
            return;
        }
        self.swept_at = now;
        for pop in self.pops.values_mut().filter(|pop| now.nanos_since(pop.swept_at) >= KEPT_NS) {
            self.meters -= pop.sweep(now);
        }
    }

    /// Forgets the POP that has been silent for longest, of those without meters. False if there is none.
    fn forget_silent(&mut self) -> bool {
        let idle = self.pops.iter().filter(|(_, pop)| pop.meters.is_empty());
        let silent = idle.min_by_key(|(_, pop)| pop.heard_at).map(|(name, _)| name.clone());
        silent.is_some_and(|name| self.pops.remove(&name).is_some())
    }
}

impl Visit<'_> {
    /// Why a claim of this key is refused, if the fleet is not known to have its `rule`.
    pub(crate) fn doubt(&mut self, rule: &Rule, key: &Key) -> Option<Reason> {
        if self.known.get(usize::from(key.rule)).copied().unwrap_or_default() {
            return None;
        }
        let reason = if self.is_newer { Reason::Newer } else { Reason::Rule };
        refuse(self.refusals, reason, rule, key.unconfirmed, 0);
        Some(reason)
    }

    /// What is let through of what `key` claims of the budget `id`; `None` if there are too many keys.
    pub(crate) fn take(&mut self, id: &BudgetId, rule: &Rule, epoch: u64, key: &Key) -> Option<Passed> {
        let (now, share) = (self.now, self.share);
        let pop = self.pop.as_deref_mut();
        let Some(meter) = pop.and_then(|pop| pop.meter(now, self.made_at, id, key, share, self.meters))
        else {
            refuse(self.refusals, Reason::Keys, rule, share as u64 + 1, share as u64);
            return None;
        };
        meter.heard_at = now;
        let most = meter.refill(self.made_at, rule.quota);
        let claimed = meter.claimed(epoch, key);
        if claimed > most {
            refuse(self.refusals, Reason::Tokens, rule, claimed, most);
        }
        Some(meter.pass(epoch, key, claimed, claimed.min(most), rule.quota))
    }
}

impl Pop {
    fn new(now: Time, report: &Report) -> Self {
        Self {
            heard_at: now,
            silence_ns: 0,
            table: report.table,
            ahead_ms: ahead_ms(now, report),
            meters: BTreeMap::new(),
            swept_at: now,
            bans_lack_ns: 0,
        }
    }

    fn hear(&mut self, now: Time, report: &Report) {
        let gap_ns = now.nanos_since(mem::replace(&mut self.heard_at, now));
        self.silence_ns = gap_ns.max(self.silence_ns.saturating_sub(gap_ns));
        self.bans_lack_ns = self.bans_lack_ns.saturating_sub(gap_ns);
        let ahead_ms = ahead_ms(now, report);
        let is_same = self.table == report.table;
        self.ahead_ms = if is_same { self.ahead_ms.min(ahead_ms) } else { ahead_ms };
        self.table = report.table;
    }

    /// When `report`, which was heard, was made by our clock.
    fn made_at(&self, report: &Report) -> Time {
        let ms = made_ms(report).saturating_add(self.ahead_ms);
        Time::from_nanos(u64::try_from(ms).unwrap_or(0).saturating_mul(MS_NS))
    }

    /// The meter of `id`. A new one is full, and has what refilled while the POP may not have reported the key. `None`
    /// if the POP has its `share` of them; `all` is their number at all POPs.
    fn meter(
        &mut self,
        now: Time,
        made_at: Time,
        id: &BudgetId,
        key: &Key,
        share: usize,
        all: &mut usize,
    ) -> Option<&mut Meter> {
        if !self.meters.contains_key(id) {
            if self.meters.len() >= share && now.nanos_since(self.swept_at) >= SECOND_NS {
                *all -= self.sweep(now);
            }
            if self.meters.len() >= share {
                return None;
            }
            let unheard_ns = (u64::from(key.span_ms) * MS_NS).min(SPAN_NS + self.silence_ns);
            let lacks_ns = -i64::try_from(unheard_ns).unwrap_or(0);
            self.meters
                .insert(id.clone(), Meter { lacks_ns, at: made_at, heard_at: now, epochs: Vec::new() });
            *all += 1;
        }
        self.meters.get_mut(id)
    }

    /// Forgets the meters that are full; returns how many those were.
    fn sweep(&mut self, now: Time) -> usize {
        self.swept_at = now;
        let before = self.meters.len();
        let unsettled_kept_ns = if before > OF_ONE_POP_MAX / 2 { KEPT_NS } else { UNSETTLED_KEPT_NS };
        self.meters.retain(|_, meter| {
            let kept_ns = if meter.is_settled() { KEPT_NS } else { unsettled_kept_ns };
            meter.lacks_ns > nanos(now.nanos_since(meter.at)) || now.nanos_since(meter.heard_at) < kept_ns
        });
        before - self.meters.len()
    }
}

impl Passed {
    const NOTHING: Self = Self { admitted: 0, unconfirmed: 0, is_clipped: true };
}

impl Meter {
    /// Refills it up to `made_at`; returns how many tokens of `quota` it has then.
    fn refill(&mut self, made_at: Time, quota: Quota) -> u64 {
        let passed_ns = made_at.nanos_since(self.at);
        self.at = self.at.max(made_at);
        self.lacks_ns = self.lacks_ns.saturating_sub(nanos(passed_ns + passed_ns / DRIFT_PART));
        let holds_ns = nanos(BURSTS * quota.fill_ns() + LATE_NS).saturating_sub(self.lacks_ns);
        u64::try_from(holds_ns).unwrap_or(0) / quota.token_ns()
    }

    /// Whether the store has charged all that was let through.
    fn is_settled(&self) -> bool {
        self.epochs.iter().all(|counted| counted.settled >= counted.passed)
    }

    /// How many tokens of an epoch `key` claims that were not let through before.
    fn claimed(&self, epoch: u64, key: &Key) -> u64 {
        let known = self.epochs.iter().find(|known| known.epoch == epoch);
        let admitted = key.admitted.min(COUNT_MAX);
        known.map_or(key.unconfirmed.min(admitted), |known| admitted.saturating_sub(known.passed))
    }

    /// Lets `taken` of the `claimed` tokens through. More than it holds when full is not kept for the next claim.
    fn pass(&mut self, epoch: u64, key: &Key, claimed: u64, taken: u64, quota: Quota) -> Passed {
        let price_ns = nanos(taken.saturating_mul(quota.token_ns()));
        self.lacks_ns = self.lacks_ns.saturating_add(price_ns).max(0);
        let admitted = key.admitted.min(COUNT_MAX);
        let at = self.epochs.iter().position(|known| known.epoch == epoch).unwrap_or_else(|| {
            if self.epochs.len() >= EPOCHS_MAX {
                self.epochs.remove(0);
            }
            let settled = admitted - claimed;
            self.epochs.push(Counted { epoch, passed: settled, settled });
            self.epochs.len() - 1
        });
        let Some(known) = self.epochs.get_mut(at) else { return Passed::NOTHING };
        known.passed += taken;
        let admitted = admitted.min(known.passed);
        let unconfirmed = key.unconfirmed.min(admitted.saturating_sub(known.settled));
        Passed { admitted, unconfirmed, is_clipped: taken < claimed }
    }
}

/// What a POP can be asked for of a key at most, as far as it is believed, in thousandths of a token per second: many
/// times what a budget ever gives out.
pub(crate) fn demand_milli_max(quota: Quota) -> u64 {
    const { assert!(HORIZON_NS == SECOND_NS, "a surplus is given out within a part of a second") };
    let rate_milli = SECOND_NS * 1_000 / quota.token_ns();
    let surplus_milli = SURPLUS * 1_000 * u64::from(quota.burst());
    (rate_milli + surplus_milli).max(1_000) * DEMAND_TIMES
}

/// The rule among those that are kept; `None` if no rules are known. An error if it is not one of them.
fn find<'a>(
    rules: Option<&'a BTreeMap<String, Vec<KnownRule>>>,
    rule: &Rule,
) -> Result<Option<&'a KnownRule>, ()> {
    let Some(rules) = rules else { return Ok(None) };
    let known = rules.get(&rule.name).into_iter().flatten().find(|known| known.rule == *rule);
    known.map(Some).ok_or(())
}

fn refuse(refusals: &mut Vec<Refusal>, reason: Reason, rule: &Rule, claimed: u64, expected: u64) {
    match refusals.iter_mut().find(|known| known.reason == reason) {
        Some(known) => known.count += 1,
        None => refusals.push(Refusal { reason, count: 1, rule: rule.name.clone(), claimed, expected }),
    }
}

fn made_ms(report: &Report) -> i64 {
    report.made_ms.min(MADE_MS_MAX).cast_signed()
}

/// How far our clock is ahead of that of the POP's table, in milliseconds, if `report` took no time.
fn ahead_ms(now: Time, report: &Report) -> i64 {
    (now.as_nanos() / MS_NS).cast_signed().saturating_sub(made_ms(report))
}

fn nanos(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}
