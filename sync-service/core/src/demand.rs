//! Turns cumulative counts into requests per second: a sliding window per bucket, summed per budget.
//!
//! A window holds a few samples of a cumulative count, so repeated and overtaken reports do no harm, and a
//! bucket that falls silent fades out within [`WINDOW_NS`] by itself.
//!
//! Several weir-syncs may serve one region, and each gets only some of a POP's reports. Each counts what it is the
//! first to hear of (what was asked for since the POP's last report, to whichever of them), so that their sum is the
//! region's demand. A weir-sync that is the only one counts all that is new to it.

use alloc::vec::Vec;

use weir_wire::time::{SECOND_NS, Time};

use crate::bounded::Bounded;
use crate::budget::{BudgetId, COUNT_MAX, Demand, SourceId};
use crate::scaled::scaled;
use crate::sorted::Sorted;

/// Over how long demand is measured, in nanoseconds (W in the design).
pub const WINDOW_NS: u64 = SECOND_NS / 2;
/// The most buckets that are measured for one budget; any beyond is left out of the sum.
pub const BUCKETS_MAX: usize = 1_024;
/// If a bucket was silent for this long, in nanoseconds, what is new counts as asked for just now: a bucket with demand
/// reports, so there was none before.
const GAP_NS: u64 = 2 * WINDOW_NS;
/// A warm key is reported about every two seconds: what comes after such a silence, in nanoseconds, was asked for all
/// through it. If it comes sooner, the key has grown. A bucket that reports to other weir-syncs meanwhile is silent for
/// as long at most.
pub(crate) const WARM_GAP_NS: core::ops::RangeInclusive<u64> = 3 * SECOND_NS / 2..=5 * SECOND_NS / 2;
/// After this long without a sign of another weir-sync of the region, in nanoseconds, there is none.
const ALONE_NS: u64 = 10 * SECOND_NS;
/// Samples closer than this replace each other, in nanoseconds.
const SPACING_NS: u64 = WINDOW_NS / 8;
/// The most samples of a window: those inside it, the one before it, and the newest.
pub const SAMPLES_MAX: usize = 10;

// One sample per spacing inside the window, one at its edge, and the newest.
const _: () = assert!(WINDOW_NS / SPACING_NS + 2 <= SAMPLES_MAX as u64);

/// The demand for each budget at the POPs that report here; for one that finds no room it is taken from the report at
/// hand alone.
#[derive(Debug, Default)]
pub struct Demands {
    budgets: Bounded<Buckets>,
    /// When it last heard of another weir-sync of the region.
    others_at: Option<Time>,
}

/// One budget's buckets.
#[derive(Debug, Default)]
struct Buckets {
    /// By POP, then epoch.
    windows: Sorted<SourceId, Window>,
    heard_at: Time,
    is_in_debt: bool,
    is_warm: bool,
    /// The most that one POP is believed to be asked for, in thousandths of a token per second.
    most_milli: u64,
}

/// What a report says of the demand for a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// Tokens, since its epoch began.
    pub asked: u64,
    /// Those of them that its worker has reported to no weir-sync before.
    pub recently: u64,
    /// How long ago the oldest unconfirmed one was asked for, in nanoseconds.
    pub span_ns: u64,
    /// The most that its POP is believed to be asked for, in thousandths of a token per second.
    pub most_milli: u64,
}

impl Said {
    /// The demand if nothing else is known.
    pub(crate) fn alone(&self) -> Demand {
        let milli = per_second_milli(self.recently, WINDOW_NS).min(self.most_milli);
        Demand { milli, askers: u32::from(self.recently > 0) }
    }
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Asked for, admitted or not.
    pub asked: u64,
    /// Admitted.
    pub admitted: u64,
}

/// What is known of a budget once a bucket of it has reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// The demand for it.
    pub(crate) demand: Demand,
    /// What the bucket's POP is asked for, in thousandths of a token per second.
    pub(crate) own_milli: u64,
    /// What was new to this weir-sync.
    pub(crate) new: Counts,
}

/// What is known of a bucket when it reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hearing {
    /// The last answer called its key warm.
    pub is_warm: bool,
    /// Other weir-syncs get some of its reports.
    pub is_shared: bool,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.asked = self.asked.saturating_add(other.asked);
        self.admitted = self.admitted.saturating_add(other.admitted);
    }

    /// The part of these of `part` in `whole`.
    pub(crate) fn part(self, part: u64, whole: u64) -> Self {
        let of = |count: u64| {
            let part = u128::from(count) * u128::from(part.min(whole)) / u128::from(whole.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        Self { asked: of(self.asked), admitted: of(self.admitted) }
    }
}

impl Demands {
    /// Measures for at most `budgets_max` budgets.
    pub fn with_budgets_max(budgets_max: usize) -> Self {
        Self { budgets: Bounded::new(budgets_max), ..Self::default() }
    }

    /// Another weir-sync of the region is there at `now`, and gets some of the POPs' reports.
    pub fn hear_of_others(&mut self, now: Time) {
        self.others_at = Some(now);
    }

    /// Takes what a report says of a bucket, as of `now`. Returns the budget's demand.
    pub fn observe(&mut self, now: Time, id: &BudgetId, source: &SourceId, said: &Said) -> Demand {
        self.hear(now, id, source, said, 0).demand
    }

    /// The same of a bucket that has `admitted` so many tokens. Other workers of its POP may tell others what they were asked
    /// for, so of what was admitted the part of what is asked for here counts as new.
    pub(crate) fn hear(
        &mut self,
        now: Time,
        id: &BudgetId,
        source: &SourceId,
        said: &Said,
        admitted: u64,
    ) -> Heard {
        let is_shared = self.is_shared(now);
        let is_needed = |known: &Buckets| known.is_heard(now, is_shared);
        let Some(budget) = self.budgets.get_or_insert(now, id, Buckets::default, is_needed) else {
            let new = Counts { asked: said.recently, admitted: said.recently };
            return Heard { demand: said.alone(), own_milli: 0, new };
        };
        let (place, new) = budget.observe(now, source, said, admitted, is_shared);
        let (demand, own_milli) = budget.demand_and_own(now, place);
        Heard { demand, own_milli, new }
    }

    /// A budget's demand as of `now`.
    pub fn current(&self, now: Time, id: &BudgetId) -> Demand {
        self.budgets.get(id).map(|budget| budget.demand(now)).unwrap_or_default()
    }

    /// What `pop` is asked for as of `now`, in thousandths of a token per second.
    pub fn of_pop(&self, now: Time, id: &BudgetId, pop: &str) -> u64 {
        self.budgets.get(id).map_or(0, |budget| budget.of_pop(now, pop))
    }

    /// Whether `pop` was asked for it of late.
    pub fn is_asked_of(&self, now: Time, id: &BudgetId, pop: &str) -> bool {
        let silence_ns = if self.is_shared(now) { *WARM_GAP_NS.end() } else { GAP_NS };
        let windows = self.budgets.get(id).into_iter().flat_map(|budget| budget.windows_of(pop));
        let mut last = windows.filter_map(|window| window.samples.last());
        last.any(|last| now.nanos_since(last.at) <= silence_ns)
    }

    /// Notes whether a budget is in debt, for [`Demands::debts`], and whether its POPs are now told that it is warm.
    pub fn note(&mut self, id: &BudgetId, is_in_debt: bool, is_warm: bool) {
        if let Some(budget) = self.budgets.get_mut(id) {
            (budget.is_in_debt, budget.is_warm) = (is_in_debt, is_warm);
        }
    }

    /// Budgets heard of lately, and how many of those are in debt.
    pub fn debts(&self, now: Time) -> (usize, usize) {
        let is_shared = self.is_shared(now);
        let heard = self.budgets.iter().filter(|(_, budget)| budget.is_heard(now, is_shared));
        heard.fold((0, 0), |(all, in_debt), (_, budget)| (all + 1, in_debt + usize::from(budget.is_in_debt)))
    }

    /// Whether other weir-syncs get some of the POPs' reports.
    pub(crate) fn is_shared(&self, now: Time) -> bool {
        self.others_at.is_some_and(|at| now.nanos_since(at) < ALONE_NS)
    }
}

impl Buckets {
    /// Takes what a report says of the bucket `source`; returns where a window of its POP is, if there is one, and what is new
    /// of the bucket.
    fn observe(
        &mut self,
        now: Time,
        source: &SourceId,
        said: &Said,
        admitted: u64,
        is_shared: bool,
    ) -> (Option<usize>, Counts) {
        (self.heard_at, self.most_milli) = (now, said.most_milli);
        if self.windows.len() >= BUCKETS_MAX {
            self.windows.retain(|_, window| !window.is_silent(now));
            self.mark_siblings();
        }
        let has_room = self.windows.len() < BUCKETS_MAX;
        let order = |known: &SourceId| (&known.pop, known.epoch).cmp(&(&source.pop, source.epoch));
        let place = match self.windows.place(order) {
            Ok(place) => Some(place),
            Err(vacancy) if has_room => {
                let place = self.windows.put(vacancy, source.clone(), Window::default());
                self.mark_siblings();
                Some(place)
            }
            Err(_) => None,
        };
        let Some(window) = place.and_then(|place| self.windows.at(place)) else {
            let sibling = self.windows.iter().position(|(known, _)| known.pop == source.pop);
            return (sibling, Counts { asked: said.recently, admitted: said.recently });
        };
        let (told, seen) = (window.told, window.seen.unwrap_or(0));
        window.observe(now, said, Hearing { is_warm: self.is_warm, is_shared });
        let asked = window.told - told;
        let given = admitted.saturating_sub(window.admitted);
        window.admitted = window.admitted.max(admitted);
        (place, Counts { asked, admitted: part_of(given, asked, said.asked.saturating_sub(seen)) })
    }

    /// Notes of each window whether the one before it is of the same POP.
    fn mark_siblings(&mut self) {
        let mut before = None;
        for (source, window) in self.windows.iter_mut() {
            window.is_sibling = before == Some(&source.pop);
            before = Some(&source.pop);
        }
    }

    /// The windows of a POP's buckets.
    fn windows_of<'a>(&'a self, pop: &'a str) -> impl Iterator<Item = &'a Window> {
        self.windows.iter().filter(move |(source, _)| source.pop == pop).map(|(_, window)| window)
    }

    /// What `pop` is asked for, in thousandths of a token per second.
    fn of_pop(&self, now: Time, pop: &str) -> u64 {
        let milli = self.windows_of(pop).map(|window| window.milli(now)).fold(0, u64::saturating_add);
        milli.min(self.most_milli)
    }

    fn demand(&self, now: Time) -> Demand {
        self.demand_and_own(now, None).0
    }

    /// The demand, and what the POP of the window at `place` is asked for of it, in thousandths of a token per second.
    fn demand_and_own(&self, now: Time, place: Option<usize>) -> (Demand, u64) {
        let (mut milli, mut askers, mut own_milli) = (0_u64, 0, 0);
        let (mut of_pop, mut is_own) = (0_u64, false);
        for (at, (_, window)) in self.windows.iter().enumerate() {
            let before = if window.is_sibling { of_pop } else { 0 };
            is_own = is_own && window.is_sibling || Some(at) == place;
            of_pop = before.saturating_add(window.milli(now)).min(self.most_milli);
            milli = milli.saturating_add(of_pop - before);
            askers += u32::from(before == 0 && of_pop > 0);
            if is_own {
                own_milli = of_pop;
            }
        }
        (Demand { milli: milli.min(COUNT_MAX), askers }, own_milli)
    }

    /// Whether it was heard of lately.
    fn is_heard(&self, now: Time, is_shared: bool) -> bool {
        let kept_ns = if self.is_warm || is_shared { *WARM_GAP_NS.end() } else { GAP_NS };
        now.nanos_since(self.heard_at) <= kept_ns
    }
}

/// Samples of the demand for one bucket, as far as this weir-sync was the first to hear of it; oldest first.
#[derive(Clone, Debug, Default)]
pub struct Window {
    samples: Vec<Sample>,
    /// The largest count seen.
    seen: Option<u64>,
    /// The sum of what was new here.
    told: u64,
    /// The largest count of admitted tokens seen.
    admitted: u64,
    /// Whether other weir-syncs were told of a part of what was asked for before the latest report.
    is_elsewhere: bool,
    /// Whether the window before it, among its budget's, is of the same POP.
    is_sibling: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Time,
    told: u64,
}

impl Window {
    /// Takes what is said at `now`.
    pub fn observe(&mut self, now: Time, said: &Said, hearing: Hearing) {
        let told_before = self.told;
        let gap_ns = self.samples.last().map_or(u64::MAX, |last| now.nanos_since(last.at));
        let new = said.asked.saturating_sub(self.seen.unwrap_or(0));
        self.is_elsewhere = hearing.is_shared && self.seen.is_some() && new > said.recently;
        let is_steady = gap_ns <= GAP_NS
            || hearing.is_warm && WARM_GAP_NS.contains(&gap_ns)
            || self.is_elsewhere && gap_ns <= *WARM_GAP_NS.end();
        let is_known = is_steady && !hearing.is_shared;
        self.told = self.told.saturating_add(if is_known { new } else { new.min(said.recently) });
        self.seen = self.seen.max(Some(said.asked));
        if !is_steady {
            self.samples.clear();
            // As if the last report had come half a window ago, as far apart as reports are. Where reports were lost,
            // as long ago as the span of this one.
            let span_ns = said.span_ns.clamp(WINDOW_NS / 2, *WARM_GAP_NS.end());
            let at = Time::from_nanos(now.as_nanos().saturating_sub(span_ns));
            self.samples.push(Sample { at, told: told_before });
        }
        self.push(now);
        while self.samples.get(1).is_some_and(|next| now.nanos_since(next.at) >= WINDOW_NS) {
            self.samples.remove(0);
        }
    }

    /// What the bucket is asked for at `now`, in thousandths of a token per second.
    pub fn milli(&self, now: Time) -> u64 {
        let [first, next, ..] = self.samples.as_slice() else { return 0 };
        let last = self.samples.last().unwrap_or(next);
        let apart_ns = next.at.nanos_since(first.at);
        // A bucket that is warm, or that others hear too, says no more for as long again; and the workers of a POP report
        // a warm one one after the other.
        let (is_seldom, lasts_ns) = if self.is_elsewhere {
            (apart_ns > WINDOW_NS / 2, apart_ns + WINDOW_NS / 2)
        } else {
            (apart_ns > GAP_NS, *WARM_GAP_NS.end())
        };
        if is_seldom && now.nanos_since(last.at) <= lasts_ns {
            return per_second_milli(last.told.saturating_sub(first.told), last.at.nanos_since(first.at));
        }
        // Those outside come first, and mostly there is one.
        let outside = self.samples.iter().take_while(|sample| now.nanos_since(sample.at) >= WINDOW_NS);
        let base = outside.last().unwrap_or(first);
        per_second_milli(last.told.saturating_sub(base.told), now.nanos_since(base.at).max(WINDOW_NS))
    }

    /// The sum of what this weir-sync was the first to hear of.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// How many samples are held, at most [`SAMPLES_MAX`].
    pub fn samples_len(&self) -> usize {
        self.samples.len()
    }

    fn push(&mut self, now: Time) {
        let newest = Sample { at: now, told: self.told };
        let previous = self.samples.len().checked_sub(2).and_then(|i| self.samples.get(i)).copied();
        match self.samples.last_mut() {
            // Two at once, or a clock that stepped back.
            Some(last) if now <= last.at => last.told = self.told,
            Some(last) if previous.is_some_and(|p| last.at.nanos_since(p.at) < SPACING_NS) => *last = newest,
            _ => self.samples.push(newest),
        }
    }

    fn is_silent(&self, now: Time) -> bool {
        self.samples.last().is_none_or(|last| now.nanos_since(last.at) > WINDOW_NS)
    }
}

/// Of `tokens` of a bucket, the part of those who asked for `own` of `all` that were asked for; rounded up, so that what was
/// admitted does not look limited.
pub fn part_of(tokens: u64, own: u64, all: u64) -> u64 {
    if own >= all {
        return tokens;
    }
    tokens.checked_mul(own).map_or_else(
        || {
            let part = (u128::from(tokens) * u128::from(own)).div_ceil(u128::from(all));
            u64::try_from(part).unwrap_or(u64::MAX)
        },
        |parts| parts.div_ceil(all),
    )
}

/// `tokens` in `span_ns` nanoseconds as thousandths of a token per second, rounded down.
fn per_second_milli(tokens: u64, span_ns: u64) -> u64 {
    scaled(tokens, SECOND_NS * 1_000, span_ns).min(COUNT_MAX)
}
