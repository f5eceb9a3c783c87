//! State machine that begins and ends an anomaly.

/// Maximum duration of an anomaly in minutes: a day. A level that lasts longer is considered usual.
const LONGEST: u64 = 24 * 60;

/// Value found in a minute, beside the usual one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Value found.
    pub found: f64,
    /// Usual value.
    pub usual: f64,
    /// Upper end of the usual band.
    pub bound: f64,
}

/// Beginning or end of an anomaly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlarmTransition {
    /// True for a beginning, false for an end.
    pub is_begin: bool,
    /// Reading at the beginning; at the end, the highest reading of the anomaly.
    pub reading: Reading,
    /// Minute in which the anomaly began.
    pub since: u64,
}

/// Begins an anomaly after a number of strange minutes in a row, and ends it after a number of calm ones.
#[derive(Clone, Debug)]
pub struct Alarm {
    begin_after: u32,
    end_after: u32,
    /// Consecutive minutes that indicate a change of state.
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
    /// Begins after `begin_after` strange minutes in a row and ends after `end_after` calm ones.
    pub fn new(begin_after: u32, end_after: u32) -> Self {
        Self { begin_after, end_after, run: 0, ringing: None }
    }

    /// True while an anomaly is under way.
    pub fn is_ringing(&self) -> bool {
        self.ringing.is_some()
    }

    /// Reading of the last minute, if an anomaly is under way.
    pub fn goes_on(&self) -> Option<AlarmTransition> {
        self.ringing.map(|Ringing { since, latest, .. }| AlarmTransition {
            is_begin: true,
            reading: latest,
            since,
        })
    }

    /// True if the last minute was calm and no anomaly is under way.
    pub fn is_calm(&self) -> bool {
        self.ringing.is_none() && self.run == 0
    }

    /// Applies the next minute. `is_strange` counts toward a beginning, `is_calm` toward an end.
    pub fn minute(
        &mut self,
        minute: u64,
        reading: Reading,
        is_strange: bool,
        is_calm: bool,
    ) -> Option<AlarmTransition> {
        let speaks = if self.ringing.is_some() { is_calm } else { is_strange };
        self.run = if speaks { self.run + 1 } else { 0 };
        match &mut self.ringing {
            None if self.run >= self.begin_after => {
                let since = (minute + 1).saturating_sub(u64::from(self.run));
                self.run = 0;
                self.ringing = Some(Ringing { since, most: reading, latest: reading });
                Some(AlarmTransition { is_begin: true, reading, since })
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
                Some(AlarmTransition { is_begin: false, reading: most, since })
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
