//! The store's ledger: what every source reported as admitted, and how much of that a budget charged.
//!
//! Reports are never lost. Charges are lost and restored with the store's data. The
//! two must be the same in the end, except for sources that a loss of data excuses.

use std::collections::BTreeMap;

use weir_budget::budget::{Count, SourceId};

/// A budget's charges, by source: the merge by maximum, done once more.
#[derive(Clone, Debug, Default)]
pub(super) struct Charged {
    sources: BTreeMap<SourceId, OnRecord>,
    total: u64,
    /// The counts on records that are forgotten.
    forgotten: BTreeMap<SourceId, u64>,
    twice: u64,
}

#[derive(Clone, Copy, Debug)]
struct OnRecord {
    admitted: u64,
    charged: u64,
}

impl Charged {
    pub(super) fn take(&mut self, pop: &str, count: &Count) {
        let id = SourceId { epoch: count.epoch, pop: pop.into() };
        let begin = OnRecord { admitted: count.admitted - count.unconfirmed.min(count.admitted), charged: 0 };
        if let Some(admitted) = self.forgotten.remove(&id) {
            self.twice += admitted.min(count.admitted).saturating_sub(begin.admitted);
        }
        let record = self.sources.entry(id).or_insert(begin);
        let new = count.admitted.saturating_sub(record.admitted);
        record.admitted += new;
        record.charged += new;
        self.total += new;
    }

    /// The budget has expired, and its records with it. What it charged stays charged.
    pub(super) fn forget_records(&mut self, reported: &mut Reported) {
        self.sources.keys().for_each(|id| reported.excuse(id));
        let records = std::mem::take(&mut self.sources).into_iter();
        self.forgotten.extend(records.map(|(id, record)| (id, record.admitted)));
    }

    /// The part of a source's count that is on record.
    pub(super) fn on_record(&self, source: &SourceId) -> Option<u64> {
        self.sources.get(source).map(|record| record.admitted)
    }

    /// Tokens that were charged twice, since no reply had confirmed them when their record was forgotten.
    pub(super) fn twice(&self) -> u64 {
        self.twice
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

/// The reports of every source of one budget, charged or not.
#[derive(Debug, Default)]
pub(super) struct Reported {
    sources: BTreeMap<SourceId, SourceReport>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SourceReport {
    admitted: u64,
    reported_at: u64,
    /// Its record was lost: only what no reply has confirmed can be charged.
    is_excused: bool,
}

impl Reported {
    pub(super) fn observe(&mut self, pop: &str, count: &Count, now: u64) {
        let report = self.sources.entry(SourceId { epoch: count.epoch, pop: pop.into() }).or_default();
        report.admitted = report.admitted.max(count.admitted);
        report.reported_at = now;
    }

    fn excuse(&mut self, id: &SourceId) {
        if let Some(report) = self.sources.get_mut(id) {
            report.is_excused = true;
        }
    }

    /// The store went back from `now` to `then`: sources that are no longer on record are excused.
    pub(super) fn lose(&mut self, now: &Charged, then: &Charged) {
        let gone = now.sources.keys().filter(|id| !then.sources.contains_key(id));
        gone.for_each(|id| self.excuse(id));
    }

    /// Tokens that all sources of `pop` reported as admitted.
    pub(super) fn of_pop(&self, pop: &str) -> u64 {
        self.sources.iter().filter(|(id, _)| id.pop == pop).map(|(_, report)| report.admitted).sum()
    }

    /// The tokens that a source reported as admitted.
    pub(super) fn of_source(&self, source: &SourceId) -> u64 {
        self.sources.get(source).map_or(0, |report| report.admitted)
    }

    /// Tokens that all sources reported as admitted.
    pub(super) fn total(&self) -> u64 {
        self.sources.values().map(|report| report.admitted).sum()
    }

    /// A source whose count is not charged in full and that has no excuse. The excuses: its record was lost, or it
    /// has reported nothing since the data was lost, at `lost_at`.
    pub(super) fn uncharged(&self, charged: &Charged, lost_at: Option<u64>) -> Option<String> {
        let found = self.sources.iter().find_map(|(id, report)| {
            let record = charged.sources.get(id).map_or(0, |record| record.admitted);
            let is_silent = lost_at.is_some_and(|lost_at| report.reported_at <= lost_at);
            (record < report.admitted && !report.is_excused && !is_silent).then_some((id, report.admitted, record))
        });
        found.map(|(id, reported, record)| {
            format!("{} reported {reported} admitted in epoch {:#x}, on record are {record}", id.pop, id.epoch)
        })
    }
}
