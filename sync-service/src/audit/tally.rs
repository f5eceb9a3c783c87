//! Counts of admitted and limited tokens by key and POP, from reports.
//!
//! A report contains two kinds of numbers for a key: the bucket's counts since the beginning of its epoch, over all
//! workers of the POP; and the demand at the reporting worker since its last report to any weir-sync. A row stores the
//! last counts of the epoch. Of the difference, only the reporting worker's part is added, because the other workers
//! report the rest, perhaps to another weir-sync. The limited tokens are the demand minus the admitted tokens, over all
//! reports of an interval: a bucket counts admitted tokens at once, but demand only when its worker reports. The number
//! of rows is bounded. Keys without a row are left out; the limited tokens in their reports are counted separately.
//!
//! Reports of strict rules contain only admitted tokens.

use weir_budget::demand::part_of;
use weir_budget::id::{EntryRef, Hashed};
use weir_protocol::messages::{Key, POPS_MAX, Report};

pub(crate) const ROWS_MAX: usize = 100_000;
const RULES_MAX: usize = 100_000;
const KEPT_MS: u64 = 120_000;
/// Divisor of an interval's demand that yields the maximum admitted before its demand was reported.
const EARLY_PART: u64 = 4;

#[derive(Debug)]
pub(crate) struct Tally {
    pops: Hashed<String, Hashed<String, OfRule>>,
    rows_max: usize,
    rows: usize,
    rules: usize,
    omitted: u64,
    has_intervals: bool,
}

#[derive(Debug, Default)]
struct OfRule {
    keys: Hashed<Box<[u8]>, Row>,
    /// Counts of keys without a row, since the last minute was taken.
    minute: Counts,
}

#[derive(Debug, Default)]
struct Row {
    epoch: u64,
    asked: u64,
    admitted: u64,
    reported_ms: u64,
    interval: Counts,
    /// Times of the first and of the last report with limited tokens in the interval.
    limited_ms: Option<(u64, u64)>,
    minute: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    asked: u64,
    admitted: u64,
}

#[derive(Debug)]
pub(crate) struct LimitedKey {
    pub(crate) rule: String,
    /// Value of the key in canonical form.
    pub(crate) value: Box<[u8]>,
    /// Admitted and limited tokens.
    pub(crate) admitted: u64,
    pub(crate) limited: u64,
    /// Times of the first and of the last report with limited tokens, in milliseconds since 1970.
    pub(crate) first_ms: u64,
    pub(crate) last_ms: u64,
}

#[derive(Debug)]
pub(crate) struct Minute {
    pub(crate) rule: String,
    pub(crate) sums: Counts,
    /// Keys that were limited, with the number of limited tokens.
    pub(crate) keys: Vec<(Box<[u8]>, u64)>,
}

impl Tally {
    /// Tally with at most `rows_max` rows. Without intervals, only minutes are counted.
    pub(crate) fn new(rows_max: usize, has_intervals: bool) -> Self {
        Self { pops: Hashed::new(), rows_max, rows: 0, rules: 0, omitted: 0, has_intervals }
    }

    /// Applies a report. `known[i]` is true if its rule `i` belongs to the fleet's rule set.
    pub(crate) fn observe(&mut self, now_ms: u64, report: &Report, known: &[bool]) {
        let is_known = |key: &Key| known.get(usize::from(key.rule)) == Some(&true);
        if !self.pops.contains_key(&report.pop) {
            if !report.keys.iter().any(is_known) || self.pops.len() >= POPS_MAX as usize {
                return;
            }
            self.pops.insert(report.pop.clone(), Hashed::new());
        }
        let Some(rules) = self.pops.get_mut(&report.pop) else { return };
        // Keys of the same rule are adjacent.
        for keys in report.keys.chunk_by(|key, next| key.rule == next.rule) {
            let Some(first) = keys.first().filter(|key| is_known(key)) else { continue };
            // The index was validated when the report was decoded.
            let Some(rule) = report.rules.get(usize::from(first.rule)) else { continue };
            let mut of_rule = match rules.entry_ref(rule.name.as_str()) {
                EntryRef::Occupied(known) => Some(known.into_mut()),
                EntryRef::Vacant(room) if self.rules < RULES_MAX => {
                    self.rules += 1;
                    Some(room.insert(OfRule::default()))
                }
                EntryRef::Vacant(_) => None,
            };
            for key in keys {
                let row = of_rule.as_mut().and_then(|of| of.row(&key.value, &mut self.rows, self.rows_max));
                if let Some(row) = row {
                    let new = row.observe(now_ms, report.epoch(key), key);
                    row.count(now_ms, new, self.has_intervals);
                    continue;
                }
                let asked = key.asked_recently;
                let omitted = Counts { asked, admitted: asked - limited(key) };
                if self.has_intervals {
                    self.omitted = self.omitted.saturating_add(omitted.limited());
                }
                if let Some(of_rule) = &mut of_rule {
                    of_rule.minute.add(omitted);
                }
            }
        }
    }

    pub(crate) fn pops(&self) -> Vec<String> {
        self.pops.keys().cloned().collect()
    }

    /// Takes the keys that were limited at `pop` since the last call.
    pub(crate) fn take_limited(&mut self, pop: &str) -> Vec<LimitedKey> {
        let mut taken = Vec::new();
        for (rule, of_rule) in self.pops.get_mut(pop).into_iter().flatten() {
            for (value, row) in &mut of_rule.keys {
                let counts = row.interval.take();
                let (admitted, limited) = (counts.admitted, counts.limited());
                if let Some((first_ms, last_ms)) = row.limited_ms.take().filter(|_| limited > 0) {
                    let (rule, value) = (rule.clone(), value.clone());
                    taken.push(LimitedKey { rule, value, admitted, limited, first_ms, last_ms });
                }
            }
        }
        taken
    }

    /// Takes the number of limited tokens of keys without a row since the last call.
    pub(crate) fn take_omitted(&mut self) -> u64 {
        std::mem::take(&mut self.omitted)
    }

    /// Takes the counts of each rule at `pop` since the last call. Removes rows without a report for two minutes.
    pub(crate) fn take_minutes(&mut self, now_ms: u64, pop: &str) -> Vec<Minute> {
        let Some(rules) = self.pops.get_mut(pop) else { return Vec::new() };
        let mut taken = Vec::new();
        for (rule, of_rule) in rules.iter_mut() {
            let (mut sums, mut keys) = (std::mem::take(&mut of_rule.minute), Vec::new());
            for (value, row) in &mut of_rule.keys {
                let of_key = row.minute.take();
                sums.add(of_key);
                if of_key.limited() > 0 {
                    keys.push((value.clone(), of_key.limited()));
                }
            }
            taken.push(Minute { rule: rule.clone(), sums, keys });
            let rows = of_rule.keys.len();
            let is_pending = |row: &Row| row.interval.limited() > 0;
            of_rule.keys.retain(|_, row| is_pending(row) || now_ms.saturating_sub(row.reported_ms) < KEPT_MS);
            self.rows -= rows - of_rule.keys.len();
        }
        let known = rules.len();
        rules.retain(|_, of_rule| !of_rule.keys.is_empty());
        self.rules -= known - rules.len();
        if rules.is_empty() {
            self.pops.remove(pop);
        }
        taken
    }
}

impl OfRule {
    fn row(&mut self, value: &[u8], rows: &mut usize, rows_max: usize) -> Option<&mut Row> {
        match self.keys.entry_ref(value) {
            EntryRef::Occupied(known) => Some(known.into_mut()),
            EntryRef::Vacant(_) if *rows >= rows_max => None,
            EntryRef::Vacant(room) => {
                *rows += 1;
                Some(room.insert_with_key(value.into(), Row::default()))
            }
        }
    }
}

impl Row {
    /// Applies a key's counts, and returns the reporting worker's part of the difference.
    fn observe(&mut self, now_ms: u64, epoch: u64, key: &Key) -> Counts {
        self.reported_ms = now_ms;
        let &Key { asked, admitted, asked_recently, .. } = key;
        if self.epoch != epoch {
            (self.epoch, self.asked, self.admitted) = (epoch, asked, admitted);
            let own = asked.min(asked_recently);
            return Counts { asked: own, admitted: own - limited(key) };
        }
        let new = (asked.saturating_sub(self.asked), admitted.saturating_sub(self.admitted));
        (self.asked, self.admitted) = (self.asked.max(asked), self.admitted.max(admitted));
        let own = new.0.min(asked_recently);
        Counts { asked: own, admitted: part_of(new.1, own, new.0) }
    }

    fn count(&mut self, now_ms: u64, new: Counts, has_intervals: bool) {
        self.minute.add(new);
        if !has_intervals {
            return;
        }
        self.interval.add(new);
        if new.limited() > 0 {
            let first_ms = self.limited_ms.map_or(now_ms, |(first_ms, _)| first_ms);
            self.limited_ms = Some((first_ms, now_ms));
        }
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.asked = self.asked.saturating_add(other.asked);
        self.admitted = self.admitted.saturating_add(other.admitted);
    }

    pub(crate) fn limited(self) -> u64 {
        self.asked.saturating_sub(self.admitted)
    }

    /// Takes the counts. Tokens that were admitted before their demand was reported are kept for the next time.
    fn take(&mut self) -> Self {
        let Self { asked, admitted } = *self;
        let early = admitted.saturating_sub(asked).min(asked / EARLY_PART);
        *self = Self { asked: 0, admitted: early };
        Self { asked, admitted: admitted.min(asked) }
    }
}

/// Estimate of the limited tokens in a report of a key without history: the fraction limited since the beginning of its
/// epoch, but at most the tokens that do not wait to be charged. For a strict rule nothing waits, and no tokens are
/// known to be limited.
fn limited(key: &Key) -> u64 {
    let own = key.asked.min(key.asked_recently);
    let of_epoch = own - part_of(key.admitted, own, key.asked).min(own);
    of_epoch.min(key.asked_recently.saturating_sub(key.unconfirmed))
}

#[cfg(test)]
mod tests {
    use weir_protocol::messages::BudgetRule;
    use weir_protocol::quota::{Period, Quota, Rate};
    use weir_protocol::sharing::Sharing;

    use super::*;

    /// A report of one key: its epoch, then admitted, unconfirmed, asked and asked recently.
    fn report(pop: &str, value: &[u8], epoch: u32, counts: [u64; 4]) -> Report {
        let quota = Quota::new(Rate::new(1, Period::Second).unwrap(), 1).unwrap();
        let [admitted, unconfirmed, asked, asked_recently] = counts;
        let value = value.to_vec();
        let key = Key { value, epoch, admitted, unconfirmed, asked, asked_recently, ..Key::default() };
        let rules = vec![BudgetRule { name: "login".into(), quota, sharing: Sharing::of(quota) }];
        Report { pop: pop.into(), table: 1, rules, keys: vec![key], ..Report::default() }
    }

    fn counts(tally: &mut Tally, pop: &str) -> Vec<(u64, u64, u64, u64)> {
        let row = |LimitedKey { admitted, limited, first_ms, last_ms, .. }| (admitted, limited, first_ms, last_ms);
        tally.take_limited(pop).into_iter().map(row).collect()
    }

    #[test]
    fn counts_are_cumulative_and_taken_once() {
        let mut tally = Tally::new(ROWS_MAX, true);
        tally.observe(1_000, &report("fra1", b"a", 1, [5, 5, 8, 8]), &[true]);
        // The same again, as the reply was lost; then by another worker, in its first report.
        tally.observe(1_100, &report("fra1", b"a", 1, [5, 5, 8, 8]), &[true]);
        tally.observe(1_200, &report("fra1", b"a", 1, [5, 5, 18, 18]), &[true]);
        assert_eq!(counts(&mut tally, "fra1"), [(5, 13, 1_000, 1_200)]);
        assert_eq!(counts(&mut tally, "fra1"), [], "nothing since");
        tally.observe(2_000, &report("fra1", b"a", 1, [7, 2, 20, 2]), &[true]);
        assert_eq!(counts(&mut tally, "fra1"), [], "only admitted");
        // A new epoch begins at zero.
        tally.observe(3_000, &report("fra1", b"a", 2, [1, 1, 4, 4]), &[true]);
        assert_eq!(counts(&mut tally, "fra1"), [(1, 3, 3_000, 3_000)]);
        let minutes = tally.take_minutes(60_000, "fra1");
        let [Minute { sums, keys, .. }] = minutes.as_slice() else { panic!("{minutes:?}") };
        assert_eq!((sums.asked, sums.limited(), keys.len(), keys[0].1), (24, 16, 1, 16));
    }

    #[test]
    fn rows_are_bounded_and_go_after_a_while() {
        let mut tally = Tally::new(3, true);
        for n in 0..5_u8 {
            tally.observe(1, &report("fra1", &[n], 1, [0, 0, 7, 7]), &[true]);
        }
        assert_eq!((tally.rows, counts(&mut tally, "fra1").len(), tally.take_omitted()), (3, 3, 14));
        assert_eq!(tally.take_minutes(2, "fra1")[0].sums.limited(), 35, "the sum has all");
        tally.observe(KEPT_MS, &report("fra1", &[0], 1, [0, 0, 8, 1]), &[true]);
        tally.take_minutes(KEPT_MS + 1, "fra1");
        assert_eq!(tally.rows, 1);
        counts(&mut tally, "fra1");
        tally.take_minutes(2 * KEPT_MS, "fra1");
        assert_eq!((tally.rows, tally.rules, tally.pops().len()), (0, 0, 0));
    }

    /// A bucket of which `workers` are asked for 20 tokens each in an interval, and give `admitted` together. They
    /// report one after the other, each to the next of `tallies`, for 80 intervals; none has its tokens confirmed
    /// by the next report of another.
    fn shared(tallies: &mut [Tally], workers: u64, admitted: u64) {
        let (mut asked, mut turn) = (0, 0);
        for interval in 1..=80 {
            for _ in 0..workers {
                asked += 20;
                let given = interval * admitted;
                let receiver = turn % tallies.len();
                tallies[receiver].observe(
                    interval * 250,
                    &report("fra1", b"a", 1, [given, 0, asked.max(given), 20]),
                    &[true],
                );
                turn += 1;
            }
        }
    }

    #[test]
    fn tokens_that_another_worker_admitted_first_are_not_limited() {
        // All is admitted, or one token in twenty is not; by one or several workers, at one or several weir-syncs.
        for (workers, receivers) in [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2), (2, 3), (3, 2)] {
            for limited in [0, workers, 15 * workers] {
                let mut tallies: Vec<_> = (0..receivers).map(|_| Tally::new(ROWS_MAX, true)).collect();
                shared(&mut tallies, workers, 20 * workers - limited);
                let counted = tallies.iter_mut().flat_map(|tally| counts(tally, "fra1"));
                let counted = counted.map(|(_, limited, ..)| limited).sum::<u64>();
                let (asked, expected) = (80 * 20 * workers, 80 * limited);
                let off = if limited == 0 { 0 } else { asked / 25 };
                assert!(
                    counted.abs_diff(expected) <= off,
                    "{counted}, not {expected} of {asked}: {workers} workers, {receivers} weir-syncs"
                );
            }
        }
    }
}
