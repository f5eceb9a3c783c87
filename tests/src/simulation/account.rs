//! One key under one rule: what was truly offered and admitted, and what an ideal bucket would have admitted.

use std::collections::VecDeque;
use std::iter::Sum;

use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;
use weir_protocol::time::SECOND_NS;

/// A bucket that may go below empty: its deficit in nanoseconds of refill, and when it was that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    deficit_ns: u64,
    at: u64,
}

impl Meter {
    pub fn empty(quota: Quota, now: u64) -> Self {
        Self { deficit_ns: quota.fill_ns(), at: now }
    }

    /// Its deficit at `now`. If `now` is before the last, no time has passed.
    pub fn deficit_ns(&mut self, now: u64) -> u64 {
        self.deficit_ns = self.deficit_ns.saturating_sub(now.saturating_sub(self.at));
        self.at = self.at.max(now);
        self.deficit_ns
    }

    /// Forgives this much of its deficit at `now`.
    pub fn forgive(&mut self, forgiven_ns: u64, now: u64) {
        self.deficit_ns = self.deficit_ns(now).saturating_sub(forgiven_ns);
    }

    /// Takes this many nanoseconds of refill at `now`.
    pub fn charge(&mut self, ns: u64, now: u64) {
        self.deficit_ns = self.deficit_ns(now) + ns;
    }

    pub fn set(&mut self, deficit_ns: u64, now: u64) {
        (self.deficit_ns, self.at) = (deficit_ns, self.at.max(now));
    }

    /// Takes `cost` tokens, there or not; returns its deficit then.
    pub fn take(&mut self, quota: Quota, cost: u32, now: u64) -> u64 {
        self.deficit_ns = self.deficit_ns(now) + quota.token_ns() * u64::from(cost);
        self.deficit_ns
    }

    pub fn has_room(&mut self, quota: Quota, cost: u32, now: u64) -> bool {
        self.deficit_ns(now) + quota.token_ns() * u64::from(cost) <= quota.fill_ns()
    }

    pub fn take_if_there(&mut self, quota: Quota, cost: u32, now: u64) -> bool {
        let fits = self.has_room(quota, cost, now);
        if fits {
            self.take(quota, cost, now);
        }
        fits
    }
}

/// The cost of requests, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub offered: u64,
    pub admitted: u64,
}

impl Tally {
    #[must_use]
    pub fn since(self, then: Self) -> Self {
        Self { offered: self.offered - then.offered, admitted: self.admitted - then.admitted }
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            offered: sum.offered + one.offered,
            admitted: sum.admitted + one.admitted,
        })
    }
}

/// One POP's part of the key.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtPop {
    pub tally: Tally,
    /// Tokens admitted while the key was cold there, which are not reported.
    pub cold: u64,
    /// The tokens that the POP's table admitted, by the POP's clock as if it never jumped.
    pub meter: Meter,
}

/// One key under one rule.
#[derive(Debug)]
pub struct Account {
    pub quota: Quota,
    pub sharing: Sharing,
    pub tally: Tally,
    /// Tokens of requests that the ideal bucket would have admitted.
    pub ideally: u64,
    /// Tokens that lost data forgave, as stated.
    pub forgiven: f64,
    pub pops: Vec<AtPop>,
    /// The most by which admissions are above burst + rate x t, over any span, in tokens.
    pub overshoot: f64,
    /// The most that this ever was.
    pub overshoot_max: f64,
    /// The same since the stretch under comparison began (see [`super::stretch`]).
    pub overdrawn_of_stretch: Overdrawn,
    /// The largest part of its bound that the overshoot ever was.
    pub bound_part_max: f64,
    /// The amount that faults are stated to give away beyond the bound and that is not paid back yet, in nanoseconds of
    /// refill; and the amount of each POP whose news was late.
    loan_ns: f64,
    loans_ns: Vec<f64>,
    /// Tokens that crashes lost before they were reported, as stated, at most.
    pub lost: u64,
    /// Tokens that may be charged though no POP admitted them, as stated: if a POP's clock goes back, a
    /// bucket looks emptier than it is.
    pub phantom: u64,
    /// The most tokens in a second that began after the settling time.
    pub fullest_second: u64,
    /// The first time at which more was admitted than the ideal bucket held.
    pub first_excess: Option<u64>,
    /// The time at which each token was admitted, if that is kept.
    pub times: Option<Vec<u64>>,
    /// The budget's debt if everything were reported at once, less the debt that faults are stated to forgive.
    pub debt: Meter,
    /// The same with everything that it may charge beyond that, as stated, and nothing forgiven.
    pub owed: Meter,
    /// The same for all that will ever be reported: POPs never report what they admit of a cold key, and cannot
    /// report what a crash loses.
    pub known: Meter,
    /// The fan-out of the budget recently, in bursts.
    pub fan_out: u32,
    /// Tokens admitted, as of the last look, that will never be reported.
    pub unreported: u64,
    /// Tokens of requests that waited to be decided then.
    pub undecided: u64,
    /// True if the budget knew the client when the stretch began.
    pub is_known: bool,
    /// What POPs had admitted of the key until then while it was cold there, in nanoseconds of refill: it is charged
    /// once it turns warm.
    pub cold_ns: u64,
    /// The admissions of the last second, each with its time and tokens, ...
    window: VecDeque<(u64, u32)>,
    /// ... and their sum.
    window_tokens: u64,
    settle_ns: u64,
}

impl Account {
    /// An account at `pops` POPs with nothing seen yet.
    pub fn new(quota: Quota, sharing: Sharing, pops: usize, settle_ns: u64, keeps_times: bool) -> Self {
        Self {
            quota,
            sharing,
            tally: Tally::default(),
            ideally: 0,
            pops: vec![AtPop::default(); pops],
            overshoot: 0.0,
            overshoot_max: 0.0,
            overdrawn_of_stretch: Overdrawn::default(),
            bound_part_max: 0.0,
            loan_ns: 0.0,
            loans_ns: vec![0.0; pops],
            forgiven: 0.0,
            lost: 0,
            phantom: 0,
            fullest_second: 0,
            first_excess: None,
            times: keeps_times.then(Vec::new),
            debt: Meter::default(),
            owed: Meter::default(),
            known: Meter::default(),
            fan_out: 0,
            unreported: 0,
            undecided: 0,
            is_known: false,
            cold_ns: 0,
            window: VecDeque::new(),
            window_tokens: 0,
            settle_ns,
        }
    }

    /// A request of `cost` tokens, which the ideal bucket would have admitted or not.
    pub fn offer(&mut self, pop: usize, cost: u32, ideally: bool) {
        let tokens = u64::from(cost);
        self.tally.offered += tokens;
        self.pops[pop].tally.offered += tokens;
        self.ideally += if ideally { tokens } else { 0 };
    }

    /// The request was admitted.
    pub fn admit(&mut self, pop: usize, cost: u32, now: u64) {
        let tokens = u64::from(cost);
        self.tally.admitted += tokens;
        self.pops[pop].tally.admitted += tokens;
        self.owed.take(self.quota, cost, now);
        let over_ns = self.debt.take(self.quota, cost, now).saturating_sub(self.quota.fill_ns());
        self.overshoot = over_ns as f64 / self.quota.token_ns() as f64;
        self.overshoot_max = self.overshoot_max.max(self.overshoot);
        self.known.take(self.quota, cost, now);
        let overdrawn = self.overdrawn(now);
        self.overdrawn_of_stretch.observe(overdrawn, now);
        if over_ns > 0 && self.first_excess.is_none() {
            self.first_excess = Some(now);
        }
        if let Some(times) = &mut self.times {
            times.extend((0..cost).map(|_| now));
        }
        self.window.push_back((now, cost));
        self.window_tokens += tokens;
        while let Some((_, gone)) = self.window.pop_front_if(|(first, _)| now - *first >= SECOND_NS) {
            self.window_tokens -= u64::from(gone);
        }
        if self.window.front().is_some_and(|(first, _)| *first >= self.settle_ns) {
            self.fullest_second = self.fullest_second.max(self.window_tokens);
        }
    }

    /// Up to this much of what the budget owes may be forgiven, in nanoseconds of refill.
    pub fn is_forgiven(&mut self, ns: u64, now: u64) {
        self.forgiven += ns as f64 / self.quota.token_ns() as f64;
        self.debt.forgive(ns, now);
        self.known.forgive(ns, now);
    }

    /// A fault may give away this much, in nanoseconds of refill; it is charged, and paid back.
    pub fn lend(&mut self, ns: u64) {
        self.loan_ns += ns as f64;
    }

    /// A POP's news has been late long enough that it may have given this away; one silence counts once.
    pub fn lend_to(&mut self, pop: usize, ns: f64) {
        self.loans_ns[pop] = self.loans_ns[pop].max(ns);
    }

    /// All POPs were in touch for this many nanoseconds.
    pub fn pay_back(&mut self, mut ns: f64) {
        for loan_ns in self.loans_ns.iter_mut().chain([&mut self.loan_ns]) {
            let paid_ns = loan_ns.min(ns);
            (*loan_ns, ns) = (*loan_ns - paid_ns, ns - paid_ns);
        }
    }

    /// The amount that faults gave away and that is not paid back, in tokens.
    pub fn lent(&self) -> f64 {
        (self.loan_ns + self.loans_ns.iter().sum::<f64>()) / self.quota.token_ns() as f64
    }

    /// The debt of the budget beyond its burst at `now`, in tokens, with all that will ever be reported.
    pub fn overdrawn(&mut self, now: u64) -> f64 {
        let over_ns = self.known.deficit_ns(now).saturating_sub(self.quota.fill_ns());
        over_ns as f64 / self.quota.token_ns() as f64
    }

    /// The tokens asked for and admitted in region 0 of `regions`.
    pub fn region_0(&self, regions: usize) -> Tally {
        self.pops.iter().step_by(regions).map(|pop| pop.tally).sum()
    }

    /// Tokens per second.
    pub fn rate(&self) -> f64 {
        SECOND_NS as f64 / self.quota.token_ns() as f64
    }

    /// Admitted, as a part of what the ideal bucket would have admitted.
    pub fn ratio(&self) -> f64 {
        self.tally.admitted as f64 / self.ideally as f64
    }

    /// Admitted, as a part of what was offered.
    pub fn passed(&self) -> f64 {
        self.tally.admitted as f64 / self.tally.offered as f64
    }

    /// The fullest second, as a part of rate x 1 s + burst.
    pub fn fullest(&self) -> f64 {
        self.fullest_second as f64 / (self.rate() + f64::from(self.quota.burst()))
    }
}

/// The least part of the rate at which an overdraft is paid back.
const PAID_BACK: f64 = 0.8;

/// The overdraft of one budget in a stretch, in tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overdrawn {
    /// Until then it may be overdrawn by what is lent at once to a client that was not known.
    settles_at: u64,
    /// Tokens per second.
    rate: f64,
    /// The most until then.
    pub early: f64,
    /// The most afterwards, beyond what is not yet paid back of `early`.
    pub late: f64,
    /// The time of that, in nanoseconds from the begin of the traffic.
    pub late_at: u64,
}

impl Overdrawn {
    /// It is overdrawn by this much when a stretch begins.
    pub fn new(overdrawn: f64, rate: f64, settles_at: u64) -> Self {
        Self { settles_at, rate, early: overdrawn, late: 0.0, late_at: settles_at }
    }

    /// It is overdrawn by this much at `now`.
    pub fn observe(&mut self, overdrawn: f64, now: u64) {
        let Some(ns) = now.checked_sub(self.settles_at) else {
            self.early = self.early.max(overdrawn);
            return;
        };
        let left = (self.early - PAID_BACK * self.rate * ns as f64 / SECOND_NS as f64).max(0.0);
        if overdrawn - left > self.late {
            (self.late, self.late_at) = (overdrawn - left, now);
        }
    }
}
