//! A host's monotonic clock that steps back, as when a virtual machine is moved.
//!
//! Tests of I8.

use super::*;
use proptest::prelude::*;

const STEP_NS: u64 = 300 * SECOND_NS;
const MS: u64 = 1_000_000;

/// The reading of the host's clock `ns` after T0, behind by `behind_ns`.
fn read(ns: u64, behind_ns: u64) -> Time {
    Time::from_nanos(T0.as_nanos() + ns - behind_ns)
}

fn passes(engine: &mut Engine, host: &mut LocalHost, now: Time) -> bool {
    let mut open = OpenRequest::new(1);
    let passed = asked(engine, &mut open, host, now) == "continue";
    if passed {
        engine.end(&mut open, host, now);
    }
    passed
}

/// Everything that is kept with a time: what was taken stays taken, and comes back when it would have come back.
#[test]
fn a_step_back_gives_nothing_and_holds_nothing_back() {
    for (fields, back_ms) in [
        (r#""rate": "10/s", "burst": 10"#, 100),
        (r#""algorithm": "fixed_window", "rate": "10/s""#, 1_000),
        (r#""algorithm": "sliding_window", "rate": "10/s""#, 2_000),
        (r#""algorithm": "sliding_log", "rate": "10/s""#, 1_000),
        (r#""algorithm": "leaky_bucket", "rate": "1/s""#, 1_000),
        (r#""rate": "10/s", "burst": 10, "penalty": {"after": 2, "within": "1m", "deny_for": "3s"}"#, 3_000),
    ] {
        let mut host = host();
        let mut engines = [0, 1].map(|_| configured(fields, false, &mut host).0);
        while passes(&mut engines[0], &mut host, read(0, 0)) {}
        assert!(!passes(&mut engines[1], &mut host, read(0, 0)), "{fields}");
        for worker in [0, 1] {
            assert!(!passes(&mut engines[worker], &mut host, read(MS, STEP_NS)), "at once: {fields}");
        }
        // The time between the last reading and the step is lost.
        let late = read((back_ms + 2) * MS, STEP_NS);
        assert!(passes(&mut engines[1], &mut host, late), "{fields}");
        let configuration = format!(r#"{{"rules": [{}]}}"#, rule(fields));
        let begun = Engine::configure(configuration.as_bytes(), &mut host, late);
        assert_eq!(begun.expect("good rules").0.time(late), engines[1].time(late), "a new worker knows: {fields}");
    }
}

/// The worker that notices the step first may have been idle since its last tick.
#[test]
fn a_step_back_loses_the_refill_since_the_last_reading_of_the_first_to_notice_and_no_more() {
    let mut host = host();
    let mut engines = [0, 1].map(|_| configured(r#""rate": "10/s", "burst": 10"#, false, &mut host).0);
    let passed = |engines: &mut [Engine; 2], host: &mut LocalHost, worker: usize, now| {
        (0..20).filter(|_| passes(&mut engines[worker], host, now)).count()
    };
    assert_eq!(passed(&mut engines, &mut host, 0, read(0, 0)), 10);
    assert_eq!(passed(&mut engines, &mut host, 0, read(900 * MS, 0)), 9);
    // The other has not read the clock since, so these 900 ms are lost to both, once.
    for (worker, ms, expected) in
        [(1, 900, 0), (0, 900, 0), (0, 1_799, 0), (0, 1_850, 0), (1, 1_900, 1), (0, 2_900, 10)]
    {
        assert_eq!(passed(&mut engines, &mut host, worker, read(ms * MS, STEP_NS)), expected, "{worker} at {ms}");
    }
}

/// The time between the last reading and the step back is not given when the clock returns.
#[test]
fn time_lost_to_a_step_back_stays_lost() {
    let steps = [(0, 6, Some(10)), (0, 4, None), (0, 2, None), (0, 4, None), (0, 75, Some(0)), (0, 9, None)];
    Workers::new().follow(&steps.map(|(worker, ms, back_s)| (worker, ms, back_s, 1))).expect("within the quota");
}

/// Three workers whose requests are held to burst and rate by the time that truly passes.
struct Workers {
    host: LocalHost,
    engines: [Engine; 3],
    ns: u64,
    behind_ns: u64,
    /// Time at which the ideal bucket is full again.
    full_at: u64,
    /// Time at which each worker last read the clock.
    read_at: [u64; 3],
    /// When the clock last stepped.
    stepped_at: u64,
}

/// A worker, milliseconds until it acts, seconds by which the clock steps before that (less than 10: it returns), and
/// whether the worker ticks, too (if 0).
type Act = (usize, u64, Option<u64>, u8);

impl Workers {
    fn new() -> Self {
        let mut host = host();
        let engines = [0, 1, 2].map(|_| configured(r#""rate": "10/s", "burst": 5"#, true, &mut host).0);
        Self { host, engines, ns: 0, behind_ns: 0, full_at: 0, read_at: [0; 3], stepped_at: 0 }
    }

    fn follow(&mut self, acts: &[Act]) -> Result<(), String> {
        for &(worker, ms, back_s, act) in acts {
            // A tick is due once a second, and in between two steps.
            let due = self.ns + ms * MS;
            for resting in 0..self.engines.len() {
                let has_missed_a_step = back_s.is_some() && self.read_at[resting] <= self.stepped_at;
                if has_missed_a_step || due - self.read_at[resting] > SECOND_NS {
                    self.tick(resting);
                }
            }
            self.ns = due;
            self.stepped_at = if back_s.is_some() { due } else { self.stepped_at };
            self.behind_ns = match back_s {
                Some(0..10) => 0,
                Some(back) => (self.behind_ns + back * 5 * SECOND_NS).min(T0.as_nanos() + self.ns),
                None => self.behind_ns,
            };
            if act == 0 {
                self.tick(worker);
            }
            self.request(worker)?;
        }
        Ok(())
    }

    fn tick(&mut self, worker: usize) {
        self.engines[worker].tick(&mut self.host, read(self.ns, self.behind_ns));
        self.read_at[worker] = self.ns;
    }

    fn request(&mut self, worker: usize) -> Result<(), String> {
        self.read_at[worker] = self.ns;
        if passes(&mut self.engines[worker], &mut self.host, read(self.ns, self.behind_ns)) {
            self.full_at = self.ns.max(self.full_at) + SECOND_NS / 10;
            if self.full_at > self.ns + SECOND_NS / 2 {
                return Err(format!("too many at {}", self.ns));
            }
        }
        Ok(())
    }
}

proptest! {
    /// I3 and I8, by the time that truly passes: steps of the clock at any moment, noticed by any worker first.
    #[test]
    fn clock_steps_at_workers_admit_no_more_than_the_quota(
        acts in prop::collection::vec((0usize..3, 0u64..400, prop::option::weighted(0.05, 0u64..20), 0u8..8), 1..400),
    ) {
        prop_assert_eq!(Workers::new().follow(&acts), Ok(()));
    }
}
