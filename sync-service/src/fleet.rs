//! Which rule sets the points of presence run, as their reports say.
//!
//! A weir-sync notes in the store, each interval, what it has heard since the last: so every weir-sync can
//! answer for the whole fleet. A POP has several workers, which may run different rule sets for a moment, and
//! report to different replicas; the POP then counts as running the lowest.

use std::collections::BTreeMap;

use weir_limiter::time::{SECOND_NS, Time};
use weir_limiter::wire::Report;

use crate::store::POPS_MAX;

/// The most workers that are remembered here.
pub const WORKERS_MAX: usize = 4 * POPS_MAX;
/// The most notes that a store keeps; beyond it, the oldest go first.
pub const NOTES_MAX: usize = 2 * POPS_MAX;
/// Beside others of its POP, a worker that says nothing for so long does not count, in nanoseconds.
const IDLE_NS: u64 = 2 * SECOND_NS;

/// What is noted of a POP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The POP's name.
    pub pop: String,
    /// The lowest version that a worker runs; 0 is the plugin configuration's.
    pub version: u64,
    /// The latest version that a worker refused; 0 if none.
    pub refused: u64,
}

/// A note in a store.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    /// Who made it: `region/replica`.
    pub member: &'a str,
    /// Of which POP.
    pub pop: &'a str,
    /// See [`Noted::version`].
    pub version: u64,
    /// See [`Noted::refused`].
    pub refused: u64,
    /// When, in microseconds of the store's clock.
    pub at_us: u64,
}

/// A POP as the whole fleet sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub pop: String,
    /// The region of the weir-sync that has heard of it last.
    pub region: String,
    /// That weir-sync.
    pub replica: String,
    /// See [`Noted::version`].
    pub version: u64,
    /// See [`Noted::refused`].
    pub refused: u64,
    /// How long ago that was, in microseconds.
    pub age_us: u64,
}

/// What `notes` say at `now_us`, by POP. Of several notes one replica made of a POP the latest counts; of those of
/// several replicas the lowest version, among all that are about as new as the newest.
pub fn seen<'a>(notes: impl Iterator<Item = Note<'a>>, now_us: u64) -> Vec<Seen> {
    let mut latest: BTreeMap<(&str, &str), Note<'_>> = BTreeMap::new();
    for note in notes {
        let of = latest.entry((note.pop, note.member)).or_insert(note);
        if of.at_us <= note.at_us {
            *of = note;
        }
    }
    let mut pops: BTreeMap<&str, Vec<Note<'_>>> = BTreeMap::new();
    for ((pop, _), note) in latest {
        pops.entry(pop).or_default().push(note);
    }
    pops.into_iter().filter_map(|(pop, notes)| one(pop, notes, now_us)).collect()
}

fn one(pop: &str, mut notes: Vec<Note<'_>>, now_us: u64) -> Option<Seen> {
    let newest = notes.iter().copied().max_by_key(|note| note.at_us)?;
    notes.retain(|note| newest.at_us - note.at_us <= IDLE_NS / 1_000);
    let (region, replica) = newest.member.split_once('/').unwrap_or((newest.member, ""));
    Some(Seen {
        pop: pop.to_owned(),
        region: region.to_owned(),
        replica: replica.to_owned(),
        version: notes.iter().map(|note| note.version).min()?,
        refused: notes.iter().map(|note| note.refused).max()?,
        age_us: now_us.saturating_sub(newest.at_us),
    })
}

/// What the workers that report here run.
#[derive(Debug, Default)]
pub struct Workers {
    pops: BTreeMap<String, BTreeMap<u64, Worker>>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    version: u64,
    refused: u64,
    heard_at: Time,
    is_noted: bool,
}

impl Workers {
    /// Notes what a report says. Beyond [`WORKERS_MAX`], those silent for 2 s make room, and where none is, the
    /// newcomer is not remembered.
    pub fn hear(&mut self, now: Time, report: &Report) {
        let running = report.running;
        let is_noted = false;
        let worker = Worker { version: running.version, refused: running.refused, heard_at: now, is_noted };
        if let Some(known) = self.pops.get_mut(&report.pop).and_then(|pop| pop.get_mut(&report.worker)) {
            *known = worker;
            return;
        }
        if self.len >= WORKERS_MAX {
            self.forget_idle(now);
        }
        if self.len < WORKERS_MAX {
            self.len += 1;
            self.pops.entry(report.pop.clone()).or_default().insert(report.worker, worker);
        }
    }

    /// The POPs that have been heard since the last call.
    pub fn news(&mut self, now: Time) -> Vec<Noted> {
        self.forget_idle(now);
        let mut news = Vec::new();
        for (pop, workers) in &mut self.pops {
            if workers.values().all(|worker| worker.is_noted) {
                continue;
            }
            let version = workers.values().map(|worker| worker.version).min().unwrap_or_default();
            let refused = workers.values().map(|worker| worker.refused).max().unwrap_or_default();
            news.push(Noted { pop: pop.clone(), version, refused });
            for worker in workers.values_mut() {
                worker.is_noted = true;
            }
        }
        news
    }

    fn forget_idle(&mut self, now: Time) {
        self.pops.retain(|_, workers| {
            workers.retain(|_, worker| now.nanos_since(worker.heard_at) <= IDLE_NS);
            !workers.is_empty()
        });
        self.len = self.pops.values().map(BTreeMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;
    use weir_limiter::wire::Running;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn report(pop: &str, worker: u64, version: u64, refused: u64) -> Report {
        Report { pop: pop.into(), worker, running: Running { version, refused }, ..Report::default() }
    }

    fn noted(pop: &str, version: u64, refused: u64) -> Noted {
        Noted { pop: pop.into(), version, refused }
    }

    #[test]
    fn a_pop_runs_what_its_last_worker_runs() {
        let mut workers = Workers::default();
        for (worker, version) in [(1, 8), (2, 7), (3, 9)] {
            workers.hear(at(0), &report("fra1", worker, version, worker));
        }
        assert_eq!(workers.news(at(0)), [noted("fra1", 7, 3)]);
        assert_eq!(workers.news(at(0)), [], "said already");
        workers.hear(at(1_000), &report("fra1", 1, 9, 0));
        assert_eq!(workers.news(at(1_000)), [noted("fra1", 7, 3)]);
        workers.hear(at(2_001), &report("fra1", 1, 9, 0));
        assert_eq!(workers.news(at(2_001)), [noted("fra1", 9, 0)], "the others are gone");
    }

    #[test]
    fn workers_are_bounded_and_the_silent_make_room() {
        let mut workers = Workers::default();
        for worker in 0..WORKERS_MAX as u64 + 10 {
            workers.hear(at(0), &report("fra1", worker, 1, 0));
        }
        assert_eq!(workers.pops["fra1"].len(), WORKERS_MAX);
        workers.hear(at(2_001), &report("fra2", 1, 1, 0));
        assert_eq!(workers.news(at(2_001)), [noted("fra2", 1, 0)]);
    }

    #[test]
    fn replicas_together_see_the_lowest_and_the_last_that_heard() {
        let note = |member, version, at_us| Note { member, pop: "fra1", version, refused: 0, at_us };
        let together = |notes: &[Note<'_>]| seen(notes.iter().copied(), 3_000_000);
        let both = together(&[note("fra/a", 7, 2_000_000), note("fra/b", 8, 2_500_000)]);
        let expected = Seen {
            pop: "fra1".into(),
            region: "fra".into(),
            replica: "b".into(),
            version: 7,
            refused: 0,
            age_us: 500_000,
        };
        assert_eq!(both, slice::from_ref(&expected));
        let old =
            together(&[note("fra/a", 7, 499_999), note("fra/b", 8, 2_500_000), note("fra/b", 6, 2_400_000)]);
        assert_eq!(old, [Seen { version: 8, ..expected }]);
    }
}
