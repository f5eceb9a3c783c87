//! When an anomaly begins, and when it is over.

/// A day, in minutes: what lasts longer is usual by then.
const LONGEST: u64 = 24 * 60;

/// What was found in a minute, and what is usual.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// What was found.
    pub found: f64,
    /// What is usual.
    pub usual: f64,
    /// Where the usual band ends.
    pub bound: f64,
}

/// An anomaly begins or ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Whether it begins.
    pub is_begin: bool,
    /// What was found: the most of it, at the end.
    pub reading: Reading,
    /// When it began.
    pub since: u64,
}

/// Begins after some minutes in a row, and ends after some.
#[derive(Clone, Debug)]
pub struct Alarm {
    begin_after: u32,
    end_after: u32,
    /// Minutes in a row that speak for a change.
    run: u32,
    ringing: Option<Ringing>,
}

#[derive(Clone, Copy, Debug)]
struct Ringing {
    since: u64,
    most: Reading,
    latest: Reading,
}

impl Alarm {
    /// Begins after so many strange minutes, and ends after so many calm ones.
    pub fn new(begin_after: u32, end_after: u32) -> Self {
        Self { begin_after, end_after, run: 0, ringing: None }
    }

    /// Whether an anomaly is under way.
    pub fn is_ringing(&self) -> bool {
        self.ringing.is_some()
    }

    /// The last minute's reading, as of an anomaly that is under way.
    pub fn goes_on(&self) -> Option<Turn> {
        self.ringing.map(|Ringing { since, latest, .. }| Turn { is_begin: true, reading: latest, since })
    }

    /// Whether the last minute was calm, and no anomaly is under way.
    pub fn is_calm(&self) -> bool {
        self.ringing.is_none() && self.run == 0
    }

    /// Takes in a minute: `is_strange` may begin an anomaly, `is_calm` may end one.
    pub fn minute(&mut self, minute: u64, reading: Reading, is_strange: bool, is_calm: bool) -> Option<Turn> {
        let speaks = if self.ringing.is_some() { is_calm } else { is_strange };
        self.run = if speaks { self.run + 1 } else { 0 };
        match &mut self.ringing {
            None if self.run >= self.begin_after => {
                let since = (minute + 1).saturating_sub(u64::from(self.run));
                self.run = 0;
                self.ringing = Some(Ringing { since, most: reading, latest: reading });
                Some(Turn { is_begin: true, reading, since })
            }
            None => None,
            Some(ringing) => {
                ringing.latest = reading;
                if reading.found > ringing.most.found {
                    ringing.most = reading;
                }
                let Ringing { since, most, .. } = *ringing;
                if self.run < self.end_after && minute.saturating_sub(since) < LONGEST {
                    return None;
                }
                self.run = 0;
                self.ringing = None;
                Some(Turn { is_begin: false, reading: most, since })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The minutes at which it turns, if so many are found each minute and more than 10 is strange.
    fn turns(found: impl IntoIterator<Item = u32>) -> Vec<(u64, bool, u64, f64)> {
        let mut alarm = Alarm::new(2, 3);
        let turn = |(minute, found): (usize, u32)| {
            let reading = Reading { found: f64::from(found), usual: 1.0, bound: 10.0 };
            let minute = minute as u64;
            let turn = alarm.minute(minute, reading, found > 10, found < 5)?;
            Some((minute, turn.is_begin, turn.since, turn.reading.found))
        };
        found.into_iter().enumerate().filter_map(turn).collect()
    }

    #[test]
    fn it_begins_and_ends_after_some_minutes_in_a_row() {
        assert_eq!(turns([1, 20, 1, 20, 1, 1]), []);
        assert_eq!(
            turns([1, 20, 30, 7, 90, 1, 1, 7, 1, 1, 1, 1]),
            [(2, true, 1, 30.0), (10, false, 1, 90.0)]
        );
    }

    #[test]
    fn what_lasts_a_day_is_usual() {
        let turns = turns((0..=LONGEST).map(|_| 20));
        assert_eq!(turns, [(1, true, 0, 20.0), (LONGEST, false, 0, 20.0)]);
    }
}
