//! Status of the POPs, as each reports it about once a second: connectivity, clock, and version of the module.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_protocol::messages::{POPS_MAX, Report};
use weir_protocol::time::{SECOND_NS, Time};

/// Time after which a silent POP is forgotten, in nanoseconds.
const SILENT_NS: u64 = 60 * SECOND_NS;

/// A POP's last status report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopStatus {
    /// Its name.
    pub pop: String,
    /// Its connectivity: 0 fresh, 1 stale, 2 fallback.
    pub step: u8,
    /// Lead of its wall clock over ours when its report arrived, in milliseconds; none if it has no clock.
    pub clock_ms: Option<i64>,
    /// The version of its module.
    pub module: String,
    /// Reason why it refused a newer rule set; empty if it did not.
    pub refusal: String,
    /// Age of this status, in milliseconds.
    pub age_ms: u64,
}

/// Status of the POPs that report here.
#[derive(Debug, Default)]
pub struct Statuses {
    pops: BTreeMap<String, (Time, PopStatus)>,
    swept_at: Time,
}

impl Statuses {
    /// Records the status in `report`, which arrives at `now`, `unix_us` microseconds since 1970.
    pub fn observe(&mut self, now: Time, unix_us: u64, report: &Report) {
        self.sweep(now);
        let Some(status) = &report.status else { return };
        if self.pops.len() >= POPS_MAX as usize && !self.pops.contains_key(&report.pop) {
            return;
        }
        let ours = i64::try_from(unix_us / 1_000).unwrap_or(i64::MAX);
        let theirs = Some(status.unix_ms).filter(|ms| *ms > 0).and_then(|ms| i64::try_from(ms).ok());
        let said = PopStatus {
            pop: report.pop.clone(),
            step: status.step,
            clock_ms: theirs.map(|theirs| theirs.saturating_sub(ours)),
            module: status.module.clone(),
            refusal: status.refusal.clone(),
            age_ms: 0,
        };
        self.pops.insert(report.pop.clone(), (now, said));
    }

    /// Status of at most `most` POPs. If there are more, those with the worst connectivity come first, then
    /// those with the largest clock errors.
    pub fn said(&self, now: Time, most: usize) -> Vec<PopStatus> {
        let aged = |(at, said): &(Time, PopStatus)| {
            let age_ms = now.nanos_since(*at) / 1_000_000;
            PopStatus { age_ms, ..said.clone() }
        };
        let mut all: Vec<PopStatus> = self.pops.values().map(aged).collect();
        if all.len() > most {
            all.sort_by_key(|pop| Reverse((pop.step, pop.clock_ms.map(i64::unsigned_abs))));
            all.truncate(most);
        }
        all
    }

    /// Forgets silent POPs, at most once a second.
    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) >= SECOND_NS {
            self.swept_at = now;
            self.pops.retain(|_, (at, _)| now.nanos_since(*at) < SILENT_NS);
        }
    }
}

/// Merges the statuses from all weir-syncs, by POP; the newest one wins.
pub fn together(said: impl IntoIterator<Item = PopStatus>) -> BTreeMap<String, PopStatus> {
    let mut pops: BTreeMap<String, PopStatus> = BTreeMap::new();
    for status in said {
        match pops.get_mut(&status.pop) {
            Some(known) if known.age_ms <= status.age_ms => {}
            Some(known) => *known = status,
            None => drop(pops.insert(status.pop.clone(), status)),
        }
    }
    pops
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, vec};
    use weir_protocol::messages::StatusReport;

    fn report(pop: &str, step: u8, unix_ms: u64) -> Report {
        let status = Some(StatusReport { step, unix_ms, module: "0.1.0".into(), ..StatusReport::default() });
        Report { pop: pop.into(), status, ..Report::default() }
    }

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * SECOND_NS)
    }

    #[test]
    fn the_last_word_counts_until_a_minute_of_silence() {
        let mut statuses = Statuses::default();
        statuses.observe(at(1), 10_000_000, &report("fra1", 2, 9_500));
        statuses.observe(at(2), 11_000_000, &report("fra1", 0, 14_000));
        statuses.observe(at(2), 11_000_000, &report("fra2", 1, 0));
        statuses.observe(at(3), 12_000_000, &Report { pop: "fra1".into(), ..Report::default() });
        let said = statuses.said(at(4), 9);
        let of = |pop: &PopStatus| (pop.pop.clone(), pop.step, pop.clock_ms, pop.age_ms);
        assert_eq!(
            said.iter().map(of).collect::<Vec<_>>(),
            [("fra1".into(), 0, Some(3_000), 2_000), ("fra2".into(), 1, None, 2_000)]
        );
        assert_eq!(statuses.said(at(4), 1)[0].pop, "fra2", "the one that is worst off");
        let older = PopStatus { age_ms: 2_001, step: 2, ..said[0].clone() };
        assert_eq!(together([older.clone(), said[0].clone(), older])["fra1"].step, 0);
        statuses.observe(at(63), 0, &Report::default());
        assert_eq!(statuses.said(at(63), 9), vec![]);
    }

    #[test]
    fn made_up_names_take_bounded_room() {
        let mut statuses = Statuses::default();
        for n in 0..2 * POPS_MAX {
            statuses.observe(at(1), 0, &report(&format!("p{n}"), 0, u64::MAX));
        }
        assert_eq!(statuses.said(at(1), usize::MAX).len(), POPS_MAX as usize);
    }
}
