//! Demand in requests per second: a sliding window over the cumulative counts of each bucket, summed per budget.
//!
//! Counts are cumulative, so repeated and overtaken reports have no effect. The demand of a bucket that stops reporting
//! fades within [`WINDOW_NS`], or, if its key is warm, once its next report is overdue. Of several weir-syncs that
//! serve one region, each counts the demand since the POP's previous report to any of them, so their sum is the
//! region's. A weir-sync that serves its region alone counts all demand that is new to it.

use alloc::vec::Vec;

use weir_protocol::time::{SECOND_NS, Time};

use crate::budget::{BudgetId, COUNT_MAX, Demand, SourceId};
use crate::id::BoundedMap;
use crate::scaled;
use crate::sorted::Sorted;

/// Window over which demand is measured, in nanoseconds (W in the design).
pub const WINDOW_NS: u64 = SECOND_NS / 2;
/// Maximum number of buckets measured for one budget; any beyond it are left out of the sum.
pub const BUCKETS_MAX: usize = 1_024;
/// Silence, in nanoseconds, after which demand counts from now on: with demand, the bucket would have reported.
const GAP_NS: u64 = 2 * WINDOW_NS;
/// Silence between two reports of a warm key, which come every two seconds, in nanoseconds. Demand after it is spread
/// over all of it; a sooner report shows that demand has grown. A bucket that also reports elsewhere is never silent
/// for longer.
pub(crate) const WARM_GAP_NS: core::ops::RangeInclusive<u64> = 3 * SECOND_NS / 2..=5 * SECOND_NS / 2;
/// Time without a sign of another weir-sync in the region after which none is assumed, in nanoseconds.
const ALONE_NS: u64 = 10 * SECOND_NS;
/// Samples closer together than this replace each other, in nanoseconds.
const SPACING_NS: u64 = WINDOW_NS / 8;
/// Maximum number of samples in a window: those inside it, the one before it, and the newest.
const SAMPLES_MAX: usize = 10;

const _: () = assert!(WINDOW_NS / SPACING_NS + 2 <= SAMPLES_MAX as u64);

/// Demand of each budget at the POPs that report here; without room for a budget, that of the current report alone.
#[derive(Debug, Default)]
pub struct Demands {
    budgets: BoundedMap<Buckets>,
    /// Time of the last sign of another weir-sync in the region.
    others_at: Option<Time>,
}

#[derive(Debug, Default)]
struct Buckets {
    /// Sorted by POP, then epoch.
    windows: Sorted<SourceId, DemandWindow>,
    reported_at: Time,
    is_in_debt: bool,
    is_warm: bool,
    most_milli: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct DemandReport {
    /// Tokens asked for since the epoch began.
    pub asked: u64,
    /// Part of `asked` that the worker has not reported to any weir-sync before.
    pub recently: u64,
    /// Accepted number of tokens admitted since the epoch began.
    pub admitted: u64,
    /// Age of the oldest unconfirmed demand, in nanoseconds.
    pub span_ns: u64,
    /// Maximum demand accepted from the POP, in thousandths of a token per second.
    pub most_milli: u64,
}

impl DemandReport {
    pub(crate) fn alone(&self) -> Demand {
        let milli = per_second_milli(self.recently, WINDOW_NS).min(self.most_milli);
        Demand { milli, askers: u32::from(self.recently > 0) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Asked for, admitted or not.
    pub asked: u64,
    pub admitted: u64,
}

/// State of a budget after a bucket's report.
#[derive(Clone, Copy, Debug)]
pub struct DemandUpdate {
    pub demand: Demand,
    pub own_milli: u64,
    pub new: TokenCounts,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct BucketReport {
    pub is_warm: bool,
    /// True if other weir-syncs receive some of its reports.
    pub is_shared: bool,
}

impl TokenCounts {
    pub(crate) fn add(&mut self, other: Self) {
        self.asked = self.asked.saturating_add(other.asked);
        self.admitted = self.admitted.saturating_add(other.admitted);
    }

    pub(crate) fn part(self, part: u64, whole: u64) -> Self {
        let of = |count: u64| scaled(count, part.min(whole), whole);
        Self { asked: of(self.asked), admitted: of(self.admitted) }
    }
}

impl Demands {
    /// Records at `now` that another weir-sync of the region exists and receives some of the POPs' reports.
    pub fn observe_others(&mut self, now: Time) {
        self.others_at = Some(now);
    }

    /// Records a bucket's report at `now`. The fraction of the newly admitted tokens that counts as new here is that of
    /// the demand: other workers of the POP may report theirs to other weir-syncs.
    pub fn observe(&mut self, now: Time, id: &BudgetId, source: &SourceId, report: &DemandReport) -> DemandUpdate {
        let is_shared = self.is_shared(now);
        let is_needed = |known: &Buckets| known.is_reported(now, is_shared);
        let Some(budget) = self.budgets.get_or_insert(now, id, Buckets::default, is_needed) else {
            let new = TokenCounts { asked: report.recently, admitted: report.recently };
            return DemandUpdate { demand: report.alone(), own_milli: 0, new };
        };
        let (place, new) = budget.observe(now, source, report, is_shared);
        let (demand, own_milli) = budget.demand_and_own(now, place);
        DemandUpdate { demand, own_milli, new }
    }

    pub fn current(&self, now: Time, id: &BudgetId) -> Demand {
        self.budgets.get(id).map(|budget| budget.demand_and_own(now, None).0).unwrap_or_default()
    }

    pub fn has_demand(&self, now: Time, id: &BudgetId, pop: &str) -> bool {
        let silence_ns = if self.is_shared(now) { *WARM_GAP_NS.end() } else { GAP_NS };
        let windows = self.budgets.get(id).into_iter().flat_map(|budget| budget.windows.iter());
        let mut last = windows.filter(|(source, _)| source.pop == pop).filter_map(|(_, window)| window.samples.last());
        last.any(|last| now.nanos_since(last.at) <= silence_ns)
    }

    /// Records whether a budget is in debt, for [`Demands::debts`], and whether its POPs were told that it is warm.
    pub fn record(&mut self, id: &BudgetId, is_in_debt: bool, is_warm: bool) {
        if let Some(budget) = self.budgets.get_mut(id) {
            (budget.is_in_debt, budget.is_warm) = (is_in_debt, is_warm);
        }
    }

    /// Number of budgets reported recently, and of those in debt.
    pub fn debts(&self, now: Time) -> (usize, usize) {
        let is_shared = self.is_shared(now);
        let reported = self.budgets.iter().filter(|(_, budget)| budget.is_reported(now, is_shared));
        reported.fold((0, 0), |(all, in_debt), (_, budget)| (all + 1, in_debt + usize::from(budget.is_in_debt)))
    }

    pub(crate) fn is_shared(&self, now: Time) -> bool {
        self.others_at.is_some_and(|at| now.nanos_since(at) < ALONE_NS)
    }
}

impl Buckets {
    /// Records a report of the bucket `source`; returns the index of a window of its POP, if any, and its new counts.
    fn observe(
        &mut self,
        now: Time,
        source: &SourceId,
        report: &DemandReport,
        is_shared: bool,
    ) -> (Option<usize>, TokenCounts) {
        (self.reported_at, self.most_milli) = (now, report.most_milli);
        if self.windows.len() >= BUCKETS_MAX {
            self.windows.retain(|_, window| !window.is_silent(now));
            self.mark_siblings();
        }
        let has_room = self.windows.len() < BUCKETS_MAX;
        let order = |known: &SourceId| (&known.pop, known.epoch).cmp(&(&source.pop, source.epoch));
        let place = match self.windows.place(order) {
            Ok(place) => Some(place),
            Err(vacancy) if has_room => {
                let place = self.windows.put(vacancy, source.clone(), DemandWindow::default());
                self.mark_siblings();
                Some(place)
            }
            Err(_) => None,
        };
        let Some(window) = place.and_then(|place| self.windows.at(place)) else {
            let sibling = self.windows.iter().position(|(known, _)| known.pop == source.pop);
            return (sibling, TokenCounts { asked: report.recently, admitted: report.recently });
        };
        let (counted, seen) = (window.counted, window.seen.unwrap_or(0));
        window.observe(now, report, BucketReport { is_warm: self.is_warm, is_shared });
        let asked = window.counted - counted;
        let given = report.admitted.saturating_sub(window.admitted);
        window.admitted = window.admitted.max(report.admitted);
        (place, TokenCounts { asked, admitted: part_of(given, asked, report.asked.saturating_sub(seen)) })
    }

    /// Marks each window that follows another window of the same POP.
    fn mark_siblings(&mut self) {
        let mut before = None;
        for (source, window) in self.windows.iter_mut() {
            window.is_sibling = before == Some(&source.pop);
            before = Some(&source.pop);
        }
    }

    /// Demand of the budget, and its part at the POP of the window at `place`, in thousandths of a token per second.
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

    fn is_reported(&self, now: Time, is_shared: bool) -> bool {
        let kept_ns = if self.is_warm || is_shared { *WARM_GAP_NS.end() } else { GAP_NS };
        now.nanos_since(self.reported_at) <= kept_ns
    }
}

/// Samples of one bucket's demand that this weir-sync was the first to receive; oldest first.
#[derive(Clone, Debug, Default)]
pub struct DemandWindow {
    samples: Vec<Sample>,
    seen: Option<u64>,
    /// Sum of the demand that this weir-sync was the first to receive.
    pub counted: u64,
    /// Largest count of admitted tokens seen.
    admitted: u64,
    /// True if a part of the demand before the latest report was reported to other weir-syncs.
    is_elsewhere: bool,
    /// True if the previous window of the budget belongs to the same POP.
    is_sibling: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Time,
    counted: u64,
}

impl DemandWindow {
    pub fn observe(&mut self, now: Time, report: &DemandReport, bucket: BucketReport) {
        let counted_before = self.counted;
        let gap_ns = self.samples.last().map_or(u64::MAX, |last| now.nanos_since(last.at));
        let new = report.asked.saturating_sub(self.seen.unwrap_or(0));
        self.is_elsewhere = bucket.is_shared && self.seen.is_some() && new > report.recently;
        let is_steady = gap_ns <= GAP_NS
            || bucket.is_warm && WARM_GAP_NS.contains(&gap_ns)
            || self.is_elsewhere && gap_ns <= *WARM_GAP_NS.end();
        let is_known = is_steady && !bucket.is_shared;
        self.counted = self.counted.saturating_add(if is_known { new } else { new.min(report.recently) });
        self.seen = self.seen.max(Some(report.asked));
        if !is_steady {
            self.samples.clear();
            // Assume that the previous report came half a window ago, as usual; if reports were lost, `span_ns` ago.
            let span_ns = report.span_ns.clamp(WINDOW_NS / 2, *WARM_GAP_NS.end());
            let at = Time::from_nanos(now.as_nanos().saturating_sub(span_ns));
            self.samples.push(Sample { at, counted: counted_before });
        }
        self.push(now);
        while self.samples.get(1).is_some_and(|next| now.nanos_since(next.at) >= WINDOW_NS) {
            self.samples.remove(0);
        }
    }

    /// Demand of the bucket at `now`, in thousandths of a token per second.
    pub fn milli(&self, now: Time) -> u64 {
        let [first, next, ..] = self.samples.as_slice() else { return 0 };
        let last = self.samples.last().unwrap_or(next);
        let apart_ns = next.at.nanos_since(first.at);
        // A warm bucket, or one that also reports elsewhere, may be silent for as long again. The workers of a POP
        // report a warm key in turn.
        let (is_seldom, lasts_ns) = if self.is_elsewhere {
            (apart_ns > WINDOW_NS / 2, apart_ns + WINDOW_NS / 2)
        } else {
            (apart_ns > GAP_NS, *WARM_GAP_NS.end())
        };
        if is_seldom && now.nanos_since(last.at) <= lasts_ns {
            return per_second_milli(last.counted.saturating_sub(first.counted), last.at.nanos_since(first.at));
        }
        // Samples outside the window come first, and usually there is one.
        let outside = self.samples.iter().take_while(|sample| now.nanos_since(sample.at) >= WINDOW_NS);
        let base = outside.last().unwrap_or(first);
        per_second_milli(last.counted.saturating_sub(base.counted), now.nanos_since(base.at).max(WINDOW_NS))
    }

    fn push(&mut self, now: Time) {
        let newest = Sample { at: now, counted: self.counted };
        let previous = self.samples.len().checked_sub(2).and_then(|i| self.samples.get(i)).copied();
        match self.samples.last_mut() {
            // Two reports at the same time, or a clock that stepped back.
            Some(last) if now <= last.at => last.counted = self.counted,
            Some(last) if previous.is_some_and(|p| last.at.nanos_since(p.at) < SPACING_NS) => *last = newest,
            _ => self.samples.push(newest),
        }
    }

    fn is_silent(&self, now: Time) -> bool {
        self.samples.last().is_none_or(|last| now.nanos_since(last.at) > WINDOW_NS)
    }
}

/// Scales `tokens` of a bucket by `own / all`, rounded up so that admitted demand does not look limited.
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

fn per_second_milli(tokens: u64, span_ns: u64) -> u64 {
    scaled(tokens, SECOND_NS * 1_000, span_ns).min(COUNT_MAX)
}
