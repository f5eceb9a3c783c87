//! A stretch of time in which nothing is wrong: what was admitted in it, compared with what would be admitted by an
//! ideal limiter that begins as deep in debt as the fleet truly is.

use std::collections::BTreeSet;

use weir_budget::divide::{TARGET_NS, TARGET_PART};
use weir_protocol::quota::Quota;
use weir_protocol::time::SECOND_NS;

use super::account::{Account, Meter, Overdrawn, Tally};
use super::faults::{Fault, Schedule};
use super::ideal::{At, AtPops, Ideal};
use super::ledger::Reported;
use super::pop::Pop;
use super::reference::floor_of;
use super::setup::Setup;
use super::world::{WARM_UP_NS, World};

/// The shortest stretch that is compared, in nanoseconds.
pub(super) const SHORTEST_NS: u64 = 4 * SECOND_NS;

/// The begin and the end of a stretch, in nanoseconds from the begin of the traffic.
pub(super) type Span = (u64, u64);

/// The times before `end` in which nothing is wrong.
pub(super) fn clean(schedule: &Schedule, setup: &Setup, end: u64) -> Vec<Span> {
    let mut broken = BTreeSet::new();
    let (mut spans, mut clean_since, mut lasting_until) = (Vec::new(), Some(0), 0);
    for (at, fault) in schedule {
        if let Some(since) = clean_since.take() {
            spans.push((since, *at));
        }
        let lasts_ns = match change(fault, setup) {
            Change::Breaks(what) => {
                broken.insert(what);
                0
            }
            Change::Heals(what) => {
                broken.remove(&what);
                0
            }
            Change::Lasts(ns) => ns,
        };
        lasting_until = lasting_until.max(at + lasts_ns);
        if broken.is_empty() {
            clean_since = Some(lasting_until + setup.recovery_ns());
        }
    }
    if let Some(since) = clean_since {
        spans.push((since, end));
    }
    spans.retain(|(from, to)| *from + SHORTEST_NS <= *to);
    spans
}

/// A fault: its kind, and its place.
type What = (u8, usize);

enum Change {
    Breaks(What),
    Heals(What),
    /// It heals by itself after this many nanoseconds.
    Lasts(u64),
}

fn change(fault: &Fault, setup: &Setup) -> Change {
    let (is_broken, what) = match *fault {
        Fault::Near(link) => (link != setup.near, (0, 0)),
        Fault::Far(link) => (link != setup.far, (1, 0)),
        Fault::CutPop(pop, is_cut) => (is_cut, (2, pop)),
        Fault::CutRegion(region, is_cut) => (is_cut, (3, region)),
        Fault::StoreSlow(ns) => (ns > 0, (4, 0)),
        Fault::StoreUp(is_up) => (!is_up, (5, 0)),
        Fault::PopCrash(pop) => (true, (6, pop)),
        Fault::PopStart(pop) => (false, (6, pop)),
        Fault::SyncCrash(sync) => (true, (7, sync)),
        Fault::SyncStart(sync) => (false, (7, sync)),
        Fault::Silence(_, ns) => return Change::Lasts(ns),
        Fault::PopClock(..) | Fault::StoreClock(_) | Fault::StoreLoses(_) | Fault::StoreFlushed | Fault::Reload(_) => {
            return Change::Lasts(0);
        }
    };
    if is_broken { Change::Breaks(what) } else { Change::Heals(what) }
}

/// The comparison at the end of a stretch: one client under one rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    pub(super) rule: usize,
    pub(super) key: u32,
    pub(super) span: Span,
    /// Tokens that were asked for, and admitted.
    pub(super) tally: Tally,
    /// The same in region 0, ...
    pub(super) region_0: Tally,
    /// ... and what a bucket of its floor alone, empty at first, would have admitted there.
    pub(super) by_floor: u64,
    /// Admissions of an ideal limiter that begins with the largest debt, and keeps back the target of the loop.
    pub(super) least: u64,
    /// Admissions of an ideal limiter that begins with the smallest debt.
    pub(super) most: u64,
    pub(super) overdrawn: Overdrawn,
    /// Tokens that were admitted and that will never be reported.
    pub(super) unreported: u64,
    /// True if the budget knew the client when it began.
    pub(super) was_known: bool,
    /// The tokens that the budget has saved up and gives out later: the amount by which it lacks less at the end than
    /// the bucket of the ideal limiter that admits the least, as far as that was not so at the begin.
    pub(super) saved: f64,
}

/// One client's stretch that is under way.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    begin: u64,
    least: Ideal,
    most: Ideal,
    rules: Vec<Begun>,
    regions: usize,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    tally: Tally,
    region_0: Tally,
    floor: Option<(Quota, Meter)>,
    by_floor: u64,
    unreported: u64,
    was_known: bool,
    /// The most that is owed, and the part of it that is known, in nanoseconds of refill.
    owed_ns: u64,
    known_ns: u64,
}

impl Stretch {
    /// It begins at `now`, with the client's accounts by rule.
    ///
    /// `at_pops` are the POPs' own buckets, by rule: grants only ever lower them.
    pub(super) fn begin<'a>(
        accounts: impl Iterator<Item = &'a mut Account>,
        at_pops: Vec<AtPops>,
        setup: &Setup,
        now: u64,
    ) -> Self {
        let accounts: Vec<_> = accounts.collect();
        let owed = |account: &Account| {
            let mut owed = account.owed;
            owed.charge(account.cold_ns, now);
            owed
        };
        let least = accounts.iter().map(|account| (account.quota, owed(account), target_ns(account.quota)));
        let most = accounts.iter().map(|account| (account.quota, account.debt, 0));
        let (least, most) = (Ideal::new(least).with_buckets_at_pops(at_pops), Ideal::new(most));
        let begun = |account: &mut Account| {
            let overdrawn = account.overdrawn(now);
            account.overdrawn_of_stretch = Overdrawn::new(overdrawn, account.rate(), now + setup.settling_ns());
            let floor = floor_of(account.quota, &account.sharing).map(|floor| within(floor, account.quota, setup));
            let floor = floor.map(|quota| (quota, Meter::empty(quota, now)));
            Begun {
                tally: account.tally,
                region_0: account.region_0(setup.regions),
                floor,
                by_floor: 0,
                unreported: account.unreported,
                was_known: account.is_known,
                owed_ns: owed(account).deficit_ns(now),
                known_ns: account.known.deficit_ns(now),
            }
        };
        let rules = accounts.into_iter().map(begun).collect();
        Self { begin: now, least, most, rules, regions: setup.regions }
    }

    /// A request.
    ///
    /// `fan_outs` are what is remembered about its client, by rule.
    pub(super) fn offer(&mut self, costs: &[(usize, u32)], at: At, fan_outs: impl Iterator<Item = u32>) {
        let At { pop, now, .. } = at;
        self.least.remember(fan_outs);
        // docs/budgets.md: such a request is refused, whatever the budget holds.
        if !at.is_crowded {
            self.least.take(costs, at);
        }
        self.most.take(costs, at);
        if !pop.is_multiple_of(self.regions) {
            return;
        }
        for &(rule, cost) in costs {
            let Begun { floor, by_floor, .. } = &mut self.rules[rule];
            if floor.as_mut().is_some_and(|(quota, meter)| meter.take_if_there(*quota, cost, now)) {
                *by_floor += u64::from(cost);
            }
        }
    }

    pub(super) fn end(&self, rule: usize, key: u32, account: &Account, now: u64) -> Compared {
        let Begun { tally, region_0, by_floor, unreported, was_known, owed_ns, known_ns, .. } = self.rules[rule];
        // What was owed beyond what is known is paid back once nothing more is known to be owed.
        let owed_more_ns = owed_ns.saturating_sub(known_ns.max(now - self.begin));
        let lacks_ns = self.least.deficit_ns(rule, now).saturating_sub(owed_more_ns);
        let mut known = account.known;
        let saved_ns = lacks_ns.saturating_sub(known.deficit_ns(now));
        Compared {
            rule,
            key,
            span: (self.begin, now),
            tally: account.tally.since(tally),
            region_0: account.region_0(self.regions).since(region_0),
            by_floor,
            least: self.least.admitted(rule).saturating_sub(account.undecided),
            most: self.most.admitted(rule),
            overdrawn: account.overdrawn_of_stretch,
            unreported: account.unreported.saturating_sub(unreported),
            was_known,
            saved: saved_ns as f64 / account.quota.token_ns() as f64,
        }
    }
}

impl World {
    /// Begins to compare what is admitted with an ideal limiter that begins where the budgets are.
    pub(super) fn begin_stretch(&mut self, now: u64) {
        for (rule, key, unreported) in self.look_around() {
            let id = self.reference.id(rule, key);
            let kept_ns = self.store.deficit_ns(&id, WARM_UP_NS + now);
            let is_known = self.store.charged(&id) > 0;
            let cold_ns = if now > 0 { self.cold_ns(rule, key, now) } else { 0 };
            let account = self.reference.account_mut(rule, key);
            (account.is_known, account.cold_ns) = (is_known, cold_ns);
            // The budget knows best what a fault cost: debt that it forgave is not paid back, and what it charged
            // because a clock went back is.
            if now > 0 && !account.sharing.strict {
                let owed_ns = kept_ns + unreported * account.quota.token_ns();
                let debt_ns = account.debt.deficit_ns(now);
                account.owed.set(owed_ns, now);
                // Debt that was lost cannot be paid back.
                if account.forgiven > 0.0 {
                    account.debt.set(owed_ns.min(debt_ns), now);
                }
                account.known.set(owed_ns.min(debt_ns), now);
            }
        }
        let news = (self.setup.interval_ns, self.setup.terms.interval_ns);
        let pops = &mut self.pops;
        let withheld = self.reference.withheld();
        let at_pops = |rule: usize, key| {
            // A strict rule's bucket holds what was leased.
            let missing = |pop: &mut Pop| withheld[rule].map(|_| pop.missing(rule, key, now)).unwrap_or_default();
            let missing = pops.iter_mut().map(missing).collect();
            AtPops::new(missing, withheld[rule].unwrap_or(0), news)
        };
        self.reference.begin_stretch(&self.setup, now, at_pops);
    }

    /// Tokens of `key` admitted at POPs where it is cold, in nanoseconds of refill: half of a fair share at most.
    fn cold_ns(&mut self, rule: usize, key: u32, now: u64) -> u64 {
        let account = self.reference.account(rule, key);
        if account.sharing.strict {
            return 0;
        }
        let (quota, parts) = (account.quota, 2 * self.pops.len() as u64);
        let most = u64::from(quota.burst()).div_ceil(parts);
        let cold = self.pops.iter_mut().filter(|pop| pop.is_up);
        cold.map(|pop| pop.cold(rule, key, (quota, parts), now).min(most) * quota.token_ns()).sum()
    }

    /// Counts the tokens that will never be reported, and those not decided yet. Returns, by rule and key, the tokens
    /// that POPs admitted and will still report, and that are not charged.
    fn look_around(&mut self) -> Vec<(usize, u32, u64)> {
        let named: Vec<_> = self.reference.accounts().map(|(rule, key, _)| (rule, key)).collect();
        let look = |(rule, key)| {
            let id = self.reference.id(rule, key);
            let reported = self.store.reported(&id);
            let (mut unreported, mut uncharged) = (self.reference.account(rule, key).tally.admitted, 0);
            unreported = unreported.saturating_sub(reported.map_or(0, Reported::total));
            let mut undecided = 0;
            for pop in self.pops.iter_mut().filter(|pop| pop.is_up) {
                if let Some((source, admitted, confirmed)) = pop.counted(rule, key) {
                    let reported = reported.map_or(0, |reported| reported.of_source(&source));
                    unreported = unreported.saturating_sub(admitted.saturating_sub(reported));
                    uncharged += self.store.uncharged_of(&id, &source, admitted, confirmed);
                }
                let waiting = pop.waiting(key).filter(|asked| self.rules_of[usize::from(asked.path)].contains(&rule));
                undecided += waiting.map(|asked| u64::from(self.reference.cost(rule, asked.cost))).sum::<u64>();
            }
            let account = self.reference.account_mut(rule, key);
            (account.unreported, account.undecided) = (unreported, undecided);
            (rule, key, uncharged)
        };
        named.into_iter().map(look).collect()
    }

    /// Ends the comparison at `now` and keeps its result.
    pub(super) fn end_stretch(&mut self, now: u64) {
        self.look_around();
        self.compared.extend(self.reference.end_stretch(now));
    }
}

/// A floor of `quota` whose burst is at most what a POP may admit on one grant while the budget is in debt: what
/// refills until the next grant.
fn within(floor: Quota, quota: Quota, setup: &Setup) -> Quota {
    let most = (setup.terms.interval_ns / quota.token_ns()).max(1);
    let burst = floor.burst().min(u32::try_from(most).unwrap_or(u32::MAX));
    Quota::from_token_ns(floor.token_ns(), burst).unwrap_or(floor)
}

/// The level that the loop steers for, in nanoseconds of refill (`x_target` in docs/budgets.md).
pub(super) fn target_ns(quota: Quota) -> u64 {
    (quota.fill_ns() / TARGET_PART + TARGET_NS).min(quota.fill_ns())
}
