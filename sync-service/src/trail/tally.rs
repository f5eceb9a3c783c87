//! What reports tell of each key at each POP: tokens that were admitted, and tokens that were limited.
//!
//! Reports have cumulative counts, and several workers of a POP, or several weir-syncs, hear of the same ones. So a row
//! keeps what it has seen of a key's epoch, and takes what is new in it, but no more than the report says is new to its
//! worker. Rows are bounded; for a key without one, what its worker says is new is taken as left out.

use std::collections::HashMap;

use weir_wire::messages::{Key, POPS_MAX, Report};

/// The most rows: keys at POPs.
pub const ROWS_MAX: usize = 100_000;
/// The most rules at POPs.
const RULES_MAX: usize = 100_000;
/// How long a row is kept that is not reported, in milliseconds.
const KEPT_MS: u64 = 120_000;

/// What is known of every POP.
#[derive(Debug)]
pub struct Tally {
    pops: HashMap<String, HashMap<String, OfRule>>,
    rows_max: usize,
    rows: usize,
    rules: usize,
    left_out: u64,
}

/// What a POP reports of a rule.
#[derive(Debug, Default)]
struct OfRule {
    keys: HashMap<Box<[u8]>, Row>,
    /// Since the last minute was taken.
    minute: Sums,
}

#[derive(Debug, Default)]
struct Row {
    epoch: u64,
    asked: u64,
    admitted: u64,
    heard_ms: u64,
    /// Since the last interval was taken.
    counts: Counts,
    /// Tokens limited since the last minute was taken.
    minute: u64,
}

/// What a key was given and refused at a POP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens admitted.
    pub admitted: u64,
    /// Tokens limited.
    pub limited: u64,
    /// When it was first heard that some were limited, in milliseconds since 1970, ...
    pub first_ms: u64,
    /// ... and when last.
    pub last_ms: u64,
}

/// What keys of a rule were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Tokens asked for, admitted or not.
    pub asked: u64,
    /// Those of them that were limited.
    pub limited: u64,
}

/// A key that was limited at a POP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The rule's name.
    pub rule: String,
    /// The key's value in canonical form.
    pub value: Box<[u8]>,
    /// What it was given and refused.
    pub counts: Counts,
}

/// A minute of a rule at a POP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minute {
    /// The rule's name.
    pub rule: String,
    /// All keys together.
    pub sums: Sums,
    /// The keys that were limited, and by how many tokens.
    pub keys: Vec<(Box<[u8]>, u64)>,
}

impl Default for Tally {
    fn default() -> Self {
        Self::new(ROWS_MAX)
    }
}

impl Tally {
    /// With at most `rows_max` rows.
    pub fn new(rows_max: usize) -> Self {
        Self { pops: HashMap::new(), rows_max, rows: 0, rules: 0, left_out: 0 }
    }

    /// Takes in a report.
    pub fn hear(&mut self, now_ms: u64, report: &Report) {
        if !self.pops.contains_key(&report.pop) {
            if report.keys.is_empty() || self.pops.len() >= POPS_MAX as usize {
                return;
            }
            self.pops.insert(report.pop.clone(), HashMap::new());
        }
        let Some(rules) = self.pops.get_mut(&report.pop) else { return };
        for key in &report.keys {
            // Checked when the report was read.
            let Some(rule) = report.rules.get(usize::from(key.rule)) else { continue };
            if !rules.contains_key(&rule.name) && self.rules < RULES_MAX {
                self.rules += 1;
                rules.insert(rule.name.clone(), OfRule::default());
            }
            let of_rule = rules.get_mut(&rule.name);
            let Some(of_rule) = of_rule else {
                self.left_out += limited(key);
                continue;
            };
            if !of_rule.keys.contains_key(&*key.value) && self.rows < self.rows_max {
                self.rows += 1;
                of_rule.keys.insert(key.value.as_slice().into(), Row::default());
            }
            let new = if let Some(row) = of_rule.keys.get_mut(&*key.value) {
                row.hear(now_ms, report.epoch(key), key)
            } else {
                self.left_out += limited(key);
                Sums { asked: key.asked_recently, limited: limited(key) }
            };
            of_rule.minute.asked += new.asked;
            of_rule.minute.limited += new.limited;
        }
    }

    /// The POPs that have rows.
    pub fn pops(&self) -> Vec<String> {
        self.pops.keys().cloned().collect()
    }

    /// The keys that were limited at `pop` since the last call.
    pub fn take_limited(&mut self, pop: &str) -> Vec<Limited> {
        let mut taken = Vec::new();
        for (rule, of_rule) in self.pops.get_mut(pop).into_iter().flatten() {
            for (value, row) in &mut of_rule.keys {
                let counts = std::mem::take(&mut row.counts);
                if counts.limited > 0 {
                    taken.push(Limited { rule: rule.clone(), value: value.clone(), counts });
                }
            }
        }
        taken
    }

    /// Tokens that were limited since the last call, of keys without a row.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// What was asked of each rule at `pop` since the last call. Rows that were not reported for long go.
    pub fn take_minutes(&mut self, now_ms: u64, pop: &str) -> Vec<Minute> {
        let Some(rules) = self.pops.get_mut(pop) else { return Vec::new() };
        let mut taken = Vec::new();
        for (rule, of_rule) in rules.iter_mut() {
            let limited = of_rule.keys.iter_mut().filter(|(_, row)| row.minute > 0);
            let keys = limited.map(|(value, row)| (value.clone(), std::mem::take(&mut row.minute))).collect();
            taken.push(Minute { rule: rule.clone(), sums: std::mem::take(&mut of_rule.minute), keys });
            let rows = of_rule.keys.len();
            of_rule
                .keys
                .retain(|_, row| row.counts.limited > 0 || now_ms.saturating_sub(row.heard_ms) < KEPT_MS);
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

impl Row {
    /// What is new in a key's counts.
    fn hear(&mut self, now_ms: u64, epoch: u64, key: &Key) -> Sums {
        if self.epoch != epoch {
            (self.epoch, self.asked, self.admitted) = (epoch, 0, 0);
        }
        let asked = key.asked.saturating_sub(self.asked).min(key.asked_recently);
        let admitted = key.admitted.saturating_sub(self.admitted).min(key.unconfirmed).min(asked);
        (self.asked, self.admitted) = (self.asked.max(key.asked), self.admitted.max(key.admitted));
        self.heard_ms = now_ms;
        let limited = asked - admitted;
        self.counts.admitted += admitted;
        self.counts.limited += limited;
        self.minute += limited;
        if limited > 0 {
            let is_first = self.counts.first_ms == 0;
            self.counts.first_ms = if is_first { now_ms } else { self.counts.first_ms };
            self.counts.last_ms = now_ms;
        }
        Sums { asked, limited }
    }
}

/// What a report says was limited of a key, if nothing else is known.
fn limited(key: &Key) -> u64 {
    key.asked_recently.saturating_sub(key.unconfirmed)
}

#[cfg(test)]
mod tests {
    use weir_wire::messages::Rule;
    use weir_wire::quota::{Period, Quota, Rate};
    use weir_wire::sharing::Sharing;

    use super::*;

    /// A report of one key: its epoch, then admitted, unconfirmed, asked and asked recently.
    fn report(pop: &str, value: &[u8], epoch: u32, counts: [u64; 4]) -> Report {
        let quota = Quota::new(Rate::new(1, Period::Second).unwrap(), 1).unwrap();
        let [admitted, unconfirmed, asked, asked_recently] = counts;
        let value = value.to_vec();
        let key = Key { value, epoch, admitted, unconfirmed, asked, asked_recently, ..Key::default() };
        let rules = vec![Rule { name: "login".into(), quota, sharing: Sharing::of(quota) }];
        Report { pop: pop.into(), table: 1, rules, keys: vec![key], ..Report::default() }
    }

    fn counts(tally: &mut Tally, pop: &str) -> Vec<(u64, u64, u64, u64)> {
        let row = |Limited { counts: Counts { admitted, limited, first_ms, last_ms }, .. }| {
            (admitted, limited, first_ms, last_ms)
        };
        tally.take_limited(pop).into_iter().map(row).collect()
    }

    #[test]
    fn counts_are_cumulative_and_told_once() {
        let mut tally = Tally::default();
        tally.hear(1_000, &report("fra1", b"a", 1, [5, 5, 8, 8]));
        // The same again, as the reply was lost; then by another worker, which has said nothing yet.
        tally.hear(1_100, &report("fra1", b"a", 1, [5, 5, 8, 8]));
        tally.hear(1_200, &report("fra1", b"a", 1, [5, 5, 18, 18]));
        assert_eq!(counts(&mut tally, "fra1"), [(5, 13, 1_000, 1_200)]);
        assert_eq!(counts(&mut tally, "fra1"), [], "nothing since");
        tally.hear(2_000, &report("fra1", b"a", 1, [7, 2, 20, 2]));
        assert_eq!(counts(&mut tally, "fra1"), [], "only admitted");
        // A new epoch begins at zero.
        tally.hear(3_000, &report("fra1", b"a", 2, [1, 1, 4, 4]));
        assert_eq!(counts(&mut tally, "fra1"), [(1, 3, 3_000, 3_000)]);
        let minutes = tally.take_minutes(60_000, "fra1");
        let [Minute { sums, keys, .. }] = minutes.as_slice() else { panic!("{minutes:?}") };
        assert_eq!((sums.asked, sums.limited, keys.len(), keys[0].1), (24, 16, 1, 16));
    }

    #[test]
    fn what_another_weir_sync_has_heard_is_not_counted_here() {
        let mut tally = Tally::default();
        tally.hear(1, &report("fra1", b"a", 1, [0, 0, 10, 10]));
        // 90 were reported elsewhere meanwhile.
        tally.hear(2, &report("fra1", b"a", 1, [0, 0, 110, 10]));
        assert_eq!(counts(&mut tally, "fra1")[0].1, 20);
    }

    #[test]
    fn rows_are_bounded_and_go_after_a_while() {
        let mut tally = Tally::new(3);
        for n in 0..5_u8 {
            tally.hear(1, &report("fra1", &[n], 1, [0, 0, 7, 7]));
        }
        assert_eq!((tally.rows, counts(&mut tally, "fra1").len(), tally.take_left_out()), (3, 3, 14));
        assert_eq!(tally.take_minutes(2, "fra1")[0].sums.limited, 35, "the sum has all");
        tally.hear(KEPT_MS, &report("fra1", &[0], 1, [0, 0, 8, 1]));
        tally.take_minutes(KEPT_MS + 1, "fra1");
        assert_eq!(tally.rows, 1);
        counts(&mut tally, "fra1");
        tally.take_minutes(2 * KEPT_MS, "fra1");
        assert_eq!((tally.rows, tally.rules, tally.pops().len()), (0, 0, 0));
    }
}
