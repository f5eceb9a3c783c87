//! Faults and their times, written down or drawn from a seed; what each is stated to cost; and the times for which
//! parts of a world are in touch all the same.

use fastrand::Rng;
use weir_budget::budget::BudgetId;
use weir_budget::records::UNUSED_KEPT_US;
use weir_budget::store_clock::MARGIN_US;
use weir_protocol::time::SECOND_NS;

use super::setup::{Link, Setup};
use super::store::Loss;
use super::stretch::{self, Span};
use super::sync::Sync;
use super::world::{WARM_UP_NS, World};

/// Something that goes wrong, or comes right again.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The links between POPs and weir-syncs are now like this.
    Near(Link),
    /// The links between weir-syncs and the store are now like this.
    Far(Link),
    /// A POP does not reach its weir-sync (or does again).
    CutPop(usize, bool),
    /// A POP's link is silent for this long, in nanoseconds; then all that was sent arrives in a bunch.
    Silence(usize, u64),
    /// A region does not reach the store (or does again).
    CutRegion(usize, bool),
    /// A POP's clock jumps, in nanoseconds; only back, as no monotonic clock jumps forward.
    PopClock(usize, i64),
    /// The store's clock jumps, in microseconds.
    StoreClock(i64),
    /// The store takes this much longer, in nanoseconds.
    StoreSlow(u64),
    /// The store refuses everything, or answers again.
    StoreUp(bool),
    /// The store goes back to its state of this long ago, in nanoseconds.
    StoreLoses(u64),
    StoreFlushed,
    PopCrash(usize),
    PopStart(usize),
    /// A POP's VMs are replaced; its table stays.
    Reload(usize),
    /// A weir-sync ends, and forgets.
    SyncCrash(usize),
    SyncStart(usize),
}

/// The time of each, in nanoseconds from the begin of the traffic.
pub type Schedule = Vec<(u64, Fault)>;

/// The store ends at `at`, and `gone_ns` later another takes over that lacks the last `behind_ns`.
pub fn failover(at: u64, gone_ns: u64, behind_ns: u64) -> Schedule {
    let back = at + gone_ns;
    // What the new one has was kept before the old one ended.
    vec![(at, Fault::StoreUp(false)), (back, Fault::StoreLoses(gone_ns + behind_ns)), (back, Fault::StoreUp(true))]
}

/// Within the first 38 s, POPs, regions and a weir-sync fail one after the other. Between the seconds of `worst`, the
/// links of POPs, which are `near` otherwise, lose, repeat and delay messages.
pub(super) fn one_after_the_other(near: Link, worst: [u64; 2]) -> Schedule {
    let at = |seconds: u64| seconds * SECOND_NS;
    let [bad, good] = worst.map(at);
    vec![
        (at(7), Fault::CutPop(0, true)),
        (at(13), Fault::CutPop(0, false)),
        (at(16), Fault::PopCrash(1)),
        (at(18), Fault::PopStart(1)),
        (at(21), Fault::Silence(2, 3 * SECOND_NS)),
        (at(26), Fault::CutRegion(0, true)),
        (at(33), Fault::CutRegion(0, false)),
        (at(36), Fault::SyncCrash(0)),
        (at(38), Fault::SyncStart(0)),
        (bad, Fault::Near(Link { loss: 0.4, duplication: 0.3, jitter_ns: SECOND_NS / 2, ..near })),
        (good, Fault::Near(near)),
    ]
}

/// `count` faults between `from` and `until`, in nanoseconds; each is healed again by then.
pub fn random(setup: &Setup, count: usize, from: u64, until: u64, rng: &mut Rng) -> Schedule {
    let mut schedule = Schedule::new();
    for _ in 0..count {
        let begin = rng.u64(from..until);
        let end = (begin + rng.u64(SECOND_NS / 10..6 * SECOND_NS)).min(until);
        schedule.extend(one(setup, begin, end, rng));
    }
    schedule.sort_by_key(|(at, _)| *at);
    schedule
}

/// Time that a POP loses whose clock jumps back, in nanoseconds: the time since a worker read it last, and a step
/// that is too small to be noticed.
pub fn lost_by_jump_ns(by_ns: i64, setup: &Setup) -> u64 {
    by_ns.unsigned_abs().min(setup.interval_ns + 2 * SECOND_NS)
}

fn one(setup: &Setup, begin: u64, end: u64, rng: &mut Rng) -> Schedule {
    let (pop, region) = (rng.usize(0..setup.pops), rng.usize(0..setup.regions));
    let sync = rng.usize(0..setup.regions * setup.syncs_per_region);
    match rng.u8(0..14) {
        0 => vec![(begin, Fault::Near(bad(setup.near, rng))), (end, Fault::Near(setup.near))],
        1 => vec![(begin, Fault::Far(bad(setup.far, rng))), (end, Fault::Far(setup.far))],
        2 => vec![(begin, Fault::CutPop(pop, true)), (end, Fault::CutPop(pop, false))],
        3 => vec![(begin, Fault::CutRegion(region, true)), (end, Fault::CutRegion(region, false))],
        4 => vec![(begin, Fault::PopClock(pop, -rng.i64(1..600_000_000_000)))],
        5 => vec![(begin, Fault::StoreClock(rng.i64(-2_000_000..2_000_000)))],
        6 => vec![(begin, Fault::StoreSlow(rng.u64(0..SECOND_NS))), (end, Fault::StoreSlow(0))],
        7 => vec![(begin, Fault::StoreUp(false)), (end, Fault::StoreUp(true))],
        8 => vec![(begin, Fault::StoreLoses(rng.u64(0..=begin.min(2 * SECOND_NS))))],
        9 => failover(begin, end - begin, rng.u64(0..SECOND_NS)),
        10 => vec![(begin, Fault::PopCrash(pop)), (end, Fault::PopStart(pop))],
        12 => vec![(begin, Fault::Silence(pop, end - begin))],
        11 => vec![(begin, Fault::SyncCrash(sync)), (end, Fault::SyncStart(sync))],
        _ if rng.u8(0..4) == 0 => vec![(begin, Fault::StoreFlushed)],
        _ => vec![(begin, Fault::Reload(pop))],
    }
}

fn bad(link: Link, rng: &mut Rng) -> Link {
    Link {
        delay_ns: link.delay_ns * rng.u64(1..=5),
        jitter_ns: rng.u64(0..SECOND_NS / 2),
        loss: rng.f64() / 2.0,
        duplication: rng.f64() / 2.0,
    }
}

/// A jump of the store's clock that is longer is seen by each weir-sync that was in touch with it, in microseconds.
pub(super) const SEEN_US: u64 = 3 * MARGIN_US;

impl World {
    pub(super) fn suffer(&mut self, now: u64, fault: &Fault) {
        let since = now.saturating_sub(WARM_UP_NS);
        match *fault {
            Fault::Near(link) => self.network.near = link,
            Fault::Far(link) => self.network.far = link,
            Fault::CutPop(pop, is_cut) => self.network.cut_pops[pop] = is_cut,
            Fault::Silence(pop, ns) => self.network.silent_until[pop] = now + ns,
            Fault::CutRegion(region, is_cut) => self.network.cut_regions[region] = is_cut,
            Fault::PopClock(pop, by_ns) => self.jump_pop(pop, by_ns.min(0), since),
            Fault::StoreClock(by_us) => self.jump_store(by_us, now),
            Fault::StoreSlow(ns) => self.store.slow_ns = ns,
            Fault::StoreUp(is_up) => self.store.is_up = is_up,
            Fault::StoreLoses(_) | Fault::StoreFlushed => {
                for loss in self.store.lose(now) {
                    self.state_loss(&loss, since);
                }
                // What was leased before may be leased again: a burst at most.
                let strict = self.reference.accounts_mut().filter(|(_, _, account)| account.sharing.strict);
                strict.for_each(|(_, _, account)| account.lend(account.quota.fill_ns()));
            }
            Fault::PopCrash(pop) => self.crash_pop(pop, since),
            Fault::PopStart(pop) if !self.pops[pop].is_up => self.pops[pop].start(&mut self.rng, now),
            Fault::PopStart(_) => {}
            Fault::Reload(pop) => self.pops[pop].reload(&mut self.rng, now),
            Fault::SyncCrash(sync) => self.syncs[sync].crash(),
            Fault::SyncStart(sync) => self.syncs[sync].start(now),
        }
        debug_assert!(now >= WARM_UP_NS, "faults happen to a fleet that is up");
    }

    /// A POP whose clock goes back takes what refilled between its last reading and the jump for spent, and may
    /// report it. A lease that it holds ends that much later.
    fn jump_pop(&mut self, pop: usize, by_ns: i64, now: u64) {
        self.pops[pop].clock.jump(by_ns);
        let lost_ns = lost_by_jump_ns(by_ns, &self.setup);
        for (_, _, account) in self.reference.accounts_mut() {
            account.phantom += lost_ns.div_ceil(account.quota.token_ns());
            account.owed.charge(lost_ns, now);
            if account.sharing.strict {
                account.lend(account.quota.fill_ns());
            }
        }
    }

    /// A jump of the store's clock that weir-sync sees adds no time, but the store drops budgets by that clock, and
    /// forgives what those lack that are not in debt (docs/budgets.md).
    fn jump_store(&mut self, by_us: i64, now: u64) {
        self.store.jump(by_us);
        let since = now.saturating_sub(WARM_UP_NS);
        let ahead_us = u64::try_from(by_us).unwrap_or(0);
        let is_seen = ahead_us > SEEN_US && self.syncs.iter().all(Sync::knows_the_stores_clock);
        if is_seen {
            for (rule, key) in self.reference.accounts().map(|(rule, key, _)| (rule, key)).collect::<Vec<_>>() {
                let dropped_ns = self.store.dropped_ns(&self.reference.id(rule, key), now);
                self.reference.account_mut(rule, key).is_forgiven(dropped_ns, since);
            }
            return;
        }
        let forward_ns = ahead_us * 1_000;
        for (_, _, account) in self.reference.accounts_mut() {
            account.is_forgiven(forward_ns, since);
            // Refill that a full budget seems to have lost pays for late reports.
            account.lend(forward_ns.min(UNUSED_KEPT_US * 1_000));
        }
    }

    /// The budget of a key is forgotten by an operator's reset: what it owed is forgiven.
    pub(super) fn forget(&mut self, id: &BudgetId, now: u64) {
        self.store.forget(id);
        if let Some((rule, key)) = self.reference.named(id) {
            let account = self.reference.account_mut(rule, key);
            let owed_ns = account.debt.deficit_ns(now).max(account.known.deficit_ns(now));
            account.is_forgiven(owed_ns, now);
        }
    }

    fn state_loss(&mut self, loss: &Loss, now: u64) {
        let Some((rule, key)) = self.reference.named(&loss.id) else { return };
        let account = self.reference.account_mut(rule, key);
        account.is_forgiven(loss.forgiven_ns, now);
    }

    /// A new table brings a new burst, unless it is paid in advance; what the old one had not reported is lost.
    fn crash_pop(&mut self, pop: usize, now: u64) {
        if !self.pops[pop].is_up {
            return;
        }
        self.pops[pop].crash();
        let named: Vec<_> = self.reference.accounts().map(|(rule, key, _)| (rule, key)).collect();
        for (rule, key) in named {
            let id = self.reference.id(rule, key);
            let reported = self.store.reported(&id).map_or(0, |reported| reported.of_pop(&self.pops[pop].name));
            let account = self.reference.account_mut(rule, key);
            let at_pop = &mut account.pops[pop];
            at_pop.meter = super::account::Meter::default();
            // What an earlier crash lost is not lost again: the count of lost tokens is an upper limit.
            let lost = at_pop.tally.admitted - reported.min(at_pop.tally.admitted);
            account.lost += lost;
            if !account.sharing.strict {
                account.is_forgiven(account.quota.token_ns() * lost.min(account.quota.burst().into()), now);
                account.lend(account.quota.fill_ns());
            }
        }
    }
}

/// The parts that have to be whole for news to go from one POP to another, or from an operator to a POP.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// Between these POPs of one region, which have one weir-sync: the store is not needed.
    Within(usize, usize),
    /// Between these POPs, through the store.
    Between(usize, usize),
    FromStore(usize),
}

impl Way {
    fn is_hurt_by(self, fault: &Fault, setup: &Setup) -> bool {
        let ends = match self {
            Self::Within(from, to) | Self::Between(from, to) => [from, to],
            Self::FromStore(to) => [to, to],
        };
        let is_region = |region: usize| ends.iter().any(|pop| pop % setup.regions == region);
        let by_store = !matches!(self, Self::Within(..));
        match *fault {
            Fault::CutPop(pop, _)
            | Fault::Silence(pop, _)
            | Fault::PopCrash(pop)
            | Fault::PopStart(pop)
            | Fault::PopClock(pop, _)
            | Fault::Reload(pop) => ends.contains(&pop),
            Fault::SyncCrash(sync) | Fault::SyncStart(sync) => is_region(sync / setup.syncs_per_region),
            Fault::CutRegion(region, _) => by_store && is_region(region),
            // A weir-sync answers a report only when its store has answered or timed out.
            Fault::Near(_) | Fault::Far(_) | Fault::StoreSlow(_) => true,
            Fault::StoreUp(_) | Fault::StoreLoses(_) | Fault::StoreFlushed | Fault::StoreClock(_) => by_store,
        }
    }

    /// The times before `end` in which it is whole, each from the moment at which it is repaired.
    pub(super) fn whole(self, schedule: &Schedule, setup: &Setup, end: u64) -> Vec<Span> {
        let mine = schedule.iter().filter(|(_, fault)| self.is_hurt_by(fault, setup)).cloned().collect();
        let settled = stretch::clean(&mine, setup, end).into_iter();
        settled.map(|(from, to)| (from.saturating_sub(setup.recovery_ns()), to)).collect()
    }

    /// Time that existing news takes on it once it is repaired, in nanoseconds: a lost report times out and the next
    /// one has it, and each message is then under way once.
    pub(super) fn takes_ns(self, setup: &Setup) -> u64 {
        let turns = setup.interval_ns * setup.syncs_per_region as u64;
        let store_ns = match self {
            Self::Within(..) => 2 * setup.store_timeout_ns,
            _ => setup.interval_ns + 3 * setup.round_trip_ns(),
        };
        setup.timeout_ns + 2 * (turns + setup.interval_ns) + setup.round_trip_ns() + store_ns
    }

    /// The time at which news of `at` is known at its end, before `until`, allowing `more_ns` for lost messages. `None`
    /// if it is not whole for long enough, or if the news is `lost` by then: nothing has it any more.
    pub(super) fn known_at(
        self,
        (schedule, setup): (&Schedule, &Setup),
        (at, until): Span,
        more_ns: u64,
        lost: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let known = |(from, to): Span| {
            let known_at = from.max(at) + self.takes_ns(setup) + more_ns;
            (known_at <= to.min(until) && !lost(known_at)).then_some(known_at)
        };
        self.whole(schedule, setup, until).into_iter().find_map(known)
    }
}
