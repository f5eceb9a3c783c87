//! Turns cumulative counts into requests per second: a sliding window per bucket, summed per budget.
//!
//! A window holds a few samples of a cumulative count, so repeated and overtaken reports do no harm, and a
//! bucket that falls silent fades out within [`WINDOW_NS`] by itself.
//!
//! Several weir-syncs may serve one region, and each gets only some of a POP's reports. Each counts what it is the
//! first to hear of (what was asked for since the POP's last report, to whichever of them), so that their sum is the
//! region's demand. A weir-sync that is the only one counts all that is new to it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use weir_wire::time::{SECOND_NS, Time};

use crate::budget::{BudgetId, COUNT_MAX, Demand, SourceId};
use crate::sorted::Sorted;

/// Over how long demand is measured, in nanoseconds (W in the design).
pub const WINDOW_NS: u64 = SECOND_NS / 2;
/// The most budgets that demand is measured for; the demand of any beyond is taken from the report
/// at hand alone.
pub const BUDGETS_MAX: usize = 100_000;
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

/// The demand for each budget at the POPs that report here.
#[derive(Debug)]
pub struct Demands {
    budgets: BTreeMap<BudgetId, Asked>,
    budgets_max: usize,
    swept_at: Time,
    /// When it last heard of another weir-sync of the region.
    others_at: Option<Time>,
}

/// One budget's buckets.
#[derive(Debug, Default)]
struct Asked {
    windows: Sorted<SourceId, Window>,
    heard_at: Time,
    is_in_debt: bool,
    is_warm: bool,
}

/// What a report says of the demand for a bucket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said {
    /// Tokens, since its epoch began.
    pub asked: u64,
    /// Those of them that its worker has reported to no weir-sync before.
    pub recently: u64,
    /// How long ago the oldest unconfirmed one was asked for, in nanoseconds.
    pub span_ns: u64,
}

/// What is known of a bucket when it reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hearing {
    /// The last answer called its key warm.
    pub is_warm: bool,
    /// Other weir-syncs get some of its reports.
    pub is_shared: bool,
}

impl Default for Demands {
    fn default() -> Self {
        Self::with_budgets_max(BUDGETS_MAX)
    }
}

impl Demands {
    /// Measures for at most `budgets_max` budgets.
    pub fn with_budgets_max(budgets_max: usize) -> Self {
        Self { budgets: BTreeMap::new(), budgets_max, swept_at: Time::ZERO, others_at: None }
    }

    /// Another weir-sync of the region is there at `now`, and gets some of the POPs' reports.
    pub fn hear_of_others(&mut self, now: Time) {
        self.others_at = Some(now);
    }

    /// Takes what a report says of a bucket, as of `now`. Returns the budget's demand.
    pub fn observe(&mut self, now: Time, id: &BudgetId, source: &SourceId, said: &Said) -> Demand {
        self.sweep(now);
        let is_shared = self.is_shared(now);
        let has_room = self.budgets.len() < self.budgets_max;
        let budget = match self.budgets.get_mut(id) {
            Some(budget) => budget,
            None if has_room => self.budgets.entry(id.clone()).or_default(),
            None => {
                let milli = per_second_milli(said.recently, WINDOW_NS);
                return Demand { milli, askers: u32::from(said.recently > 0) };
            }
        };
        budget.heard_at = now;
        if budget.windows.len() >= BUCKETS_MAX {
            budget.windows.retain(|_, window| !window.is_silent(now));
        }
        let has_room = budget.windows.len() < BUCKETS_MAX;
        let window = match budget.windows.find(|known| known.cmp(source)) {
            Ok(window) => Some(window),
            Err(place) if has_room => budget.windows.put(place, source.clone(), Window::default()),
            Err(_) => None,
        };
        if let Some(window) = window {
            window.observe(now, said, Hearing { is_warm: budget.is_warm, is_shared });
        }
        budget.demand(now)
    }

    /// A budget's demand as of `now`.
    pub fn current(&self, now: Time, id: &BudgetId) -> Demand {
        self.budgets.get(id).map(|budget| budget.demand(now)).unwrap_or_default()
    }

    /// What `pop` is asked for as of `now`, in thousandths of a token per second.
    pub fn of_pop(&self, now: Time, id: &BudgetId, pop: &str) -> u64 {
        let windows = self.budgets.get(id).into_iter().flat_map(|budget| budget.windows.iter());
        let own = windows.filter(|(source, _)| source.pop == pop).map(|(_, window)| window.milli(now));
        own.fold(0, u64::saturating_add)
    }

    /// Whether `pop` was asked for it of late.
    pub fn is_asked_of(&self, now: Time, id: &BudgetId, pop: &str) -> bool {
        let windows = self.budgets.get(id).into_iter().flat_map(|budget| budget.windows.iter());
        let mut own =
            windows.filter(|(source, _)| source.pop == pop).filter_map(|(_, window)| window.samples.last());
        let silence_ns = if self.is_shared(now) { *WARM_GAP_NS.end() } else { GAP_NS };
        own.any(|last| now.nanos_since(last.at) <= silence_ns)
    }

    /// Whether other weir-syncs get some of the POPs' reports.
    fn is_shared(&self, now: Time) -> bool {
        self.others_at.is_some_and(|at| now.nanos_since(at) < ALONE_NS)
    }

    /// Notes whether a budget is in debt, for [`Demands::debts`], and whether its POPs are now told that it is warm.
    pub fn note(&mut self, id: &BudgetId, is_in_debt: bool, is_warm: bool) {
        if let Some(budget) = self.budgets.get_mut(id) {
            (budget.is_in_debt, budget.is_warm) = (is_in_debt, is_warm);
        }
    }

    /// Budgets heard of lately, and how many of those are in debt.
    pub fn debts(&mut self, now: Time) -> (usize, usize) {
        self.sweep(now);
        let in_debt = self.budgets.values().filter(|budget| budget.is_in_debt);
        (self.budgets.len(), in_debt.count())
    }

    /// Forgets silent budgets, at most once per window, so that a report's cost grows with its own keys only.
    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) < WINDOW_NS {
            return;
        }
        self.swept_at = now;
        let is_shared = self.is_shared(now);
        self.budgets.retain(|_, budget| {
            let kept_ns = if budget.is_warm || is_shared { *WARM_GAP_NS.end() } else { GAP_NS };
            now.nanos_since(budget.heard_at) <= kept_ns
        });
    }
}

impl Asked {
    fn demand(&self, now: Time) -> Demand {
        let mut milli = 0_u64;
        let (mut askers, mut last, mut is_ordered) = (0, None, true);
        let asked = |window: &Window| window.milli(now);
        for (source, window) in self.windows.iter() {
            let part = asked(window);
            milli = milli.saturating_add(part);
            if part > 0 {
                // Sources of one epoch, as most are, come in the order of their POPs.
                let pop = source.pop.as_str();
                is_ordered &= last.is_none_or(|last| last < pop);
                (askers, last) = (askers + 1, Some(pop));
            }
        }
        if !is_ordered {
            let pops = self.windows.iter().filter(|(_, window)| asked(window) > 0);
            askers = pops.map(|(source, _)| source.pop.as_str()).collect::<BTreeSet<_>>().len();
        }
        Demand { milli: milli.min(COUNT_MAX), askers: u32::try_from(askers).unwrap_or(u32::MAX) }
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
    /// Whether other weir-syncs were told of a part of what was asked for before the latest report.
    is_elsewhere: bool,
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
        if let [.., before, last] = self.samples.as_slice() {
            let apart_ns = last.at.nanos_since(before.at);
            // A bucket that is warm, or that others hear too, says no more for as long again.
            let is_seldom = apart_ns > GAP_NS || self.is_elsewhere && apart_ns > WINDOW_NS / 2;
            let lasts_ns = if self.is_elsewhere { apart_ns + WINDOW_NS / 2 } else { *WARM_GAP_NS.end() };
            if is_seldom && now.nanos_since(last.at) <= lasts_ns {
                return per_second_milli(last.told.saturating_sub(before.told), apart_ns);
            }
        }
        if let [before, first, .., last] = self.samples.as_slice()
            && first.at.nanos_since(before.at) > GAP_NS
            && now.nanos_since(last.at) <= *WARM_GAP_NS.end()
        {
            // The workers of a POP report one after the other, and none does so again for as long.
            let apart_ns = last.at.nanos_since(before.at);
            return per_second_milli(last.told.saturating_sub(before.told), apart_ns);
        }
        let outside = self.samples.iter().rfind(|sample| now.nanos_since(sample.at) >= WINDOW_NS);
        let (Some(base), Some(last)) = (outside.or(self.samples.first()), self.samples.last()) else {
            return 0;
        };
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

/// `tokens` in `span_ns` nanoseconds as thousandths of a token per second, rounded down.
fn per_second_milli(tokens: u64, span_ns: u64) -> u64 {
    // In 64 bits where that fits, up to 18 million tokens, which is cheaper.
    let milli = tokens.checked_mul(SECOND_NS * 1_000).map_or_else(
        || {
            let milli = u128::from(tokens) * u128::from(SECOND_NS * 1_000) / u128::from(span_ns.max(1));
            u64::try_from(milli).unwrap_or(u64::MAX)
        },
        |parts| parts / span_ns.max(1),
    );
    milli.min(COUNT_MAX)
}
