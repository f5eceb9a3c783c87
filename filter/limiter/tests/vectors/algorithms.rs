//! The algorithms: short runs written out, and a long one of each as a number.
//!
//! `algorithms.json` has for each `limit`, `length_ns` (of the buckets: nanoseconds per token), `hash` and
//! `steps`: what is done, when, for how many, and what comes of it. `taken` is followed by the cells, each
//! `until:word` in decimal and hexadecimal.

use serde_json::Value;
use weir_limiter::algorithms::{self, Admission, BucketStatus, CELLS_MAX, Cell, NEVER_NS, Receipt};
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;
use weir_rules::algorithm::{Algorithm, Concurrency, WindowLimit};

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// One key, and what was taken of it last.
struct Key {
    algorithm: Algorithm,
    hash: u64,
    cells: Vec<Cell>,
    receipt: Receipt,
}

impl Key {
    fn of(vector: &Value) -> Self {
        let number = |name: &str| vector[name].as_u64().unwrap();
        let (limit, length_ns) = (u32::try_from(number("limit")).unwrap(), number("length_ns"));
        let algorithm = match vector["algorithm"].as_str().unwrap() {
            "token_bucket" => Algorithm::TokenBucket(Quota::from_token_ns(length_ns, limit).unwrap()),
            "fixed_window" => Algorithm::FixedWindow(WindowLimit::new(limit, length_ns).unwrap()),
            "sliding_window" => Algorithm::SlidingWindow(WindowLimit::new(limit, length_ns).unwrap()),
            "sliding_log" => Algorithm::SlidingLog(WindowLimit::new(limit, length_ns).unwrap()),
            "leaky_bucket" => Algorithm::LeakyBucket(Quota::from_token_ns(length_ns, limit).unwrap()),
            "concurrency" => Algorithm::Concurrency(Concurrency::new(limit, length_ns).unwrap()),
            other => panic!("{other}"),
        };
        let hash = u64::from_str_radix(vector["hash"].as_str().unwrap(), 16).unwrap();
        let cells = vec![Cell::NEW; algorithm.cells()];
        assert!(cells.len() <= CELLS_MAX);
        Self { algorithm, hash, cells, receipt: Receipt::NONE }
    }

    fn does(&mut self, what: &str, now: Time, n: u32) -> String {
        match what {
            "take" => match algorithms::take(&self.algorithm, &mut self.cells, self.hash, n, now) {
                Admission::Taken(taken) if taken.hold_ns == 0 => self.took(taken.receipt),
                Admission::Taken(taken) => format!("held {} {}", taken.hold_ns, self.took(taken.receipt)),
                Admission::Short { wait_ns: NEVER_NS } => "never".into(),
                Admission::Short { wait_ns } => format!("short {wait_ns}"),
            },
            "charge" => {
                let receipt = algorithms::charge(&self.algorithm, &mut self.cells, self.hash, n, now);
                self.took(receipt)
            }
            "give_back" => {
                algorithms::give_back(&self.algorithm, &mut self.cells, self.receipt, n, now);
                self.took(self.receipt)
            }
            "status" => {
                let BucketStatus { remaining, more_ns, full_ns } =
                    algorithms::status(&self.algorithm, &self.cells, now);
                format!("{remaining} {more_ns} {full_ns}")
            }
            other => panic!("{other}"),
        }
    }

    fn took(&mut self, receipt: Receipt) -> String {
        self.receipt = receipt;
        let cells = self.cells.iter().map(|cell| format!(" {}:{:x}", cell.until.as_nanos(), cell.word));
        cells.fold("taken".to_owned(), |text, cell| text + &cell)
    }

    /// 20,000 steps of each algorithm, at times that step back now and then.
    fn long_run(&mut self) -> String {
        let (mut rnd, mut now, mut taken, mut digest) = (super::Lcg(42), 1u64 << 40, 0, 0u64);
        for _ in 0..20_000 {
            now = now + rnd.below(1_400_000_000) - rnd.below(350_000_000);
            let n = u32::try_from(rnd.below(4)).unwrap();
            let what = ["take", "take", "take", "take", "take", "take", "charge", "give_back"];
            let what = what[usize::try_from(rnd.below(8)).unwrap()];
            let time = Time::from_nanos(now);
            let found = self.does(what, time, n) + &self.does("status", time, 0);
            taken += u32::from(found.starts_with("taken") || found.starts_with("held"));
            for byte in found.bytes() {
                digest = (digest.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        }
        format!("{taken} {digest:016x}")
    }
}

fn vectors() -> Vec<Value> {
    serde_json::from_str(include_str!("algorithms.json")).unwrap()
}

#[test]
fn algorithms() {
    let mut algorithms = 0;
    for vector in vectors() {
        let mut key = Key::of(&vector);
        for step in vector["steps"].as_array().unwrap() {
            let (what, n) = (step[0].as_str().unwrap(), step[2].as_u64().unwrap());
            let now = Time::from_nanos(step[1].as_u64().unwrap());
            let found = key.does(what, now, u32::try_from(n).unwrap());
            assert_eq!(found, step[3].as_str().unwrap(), "{} {step}", vector["algorithm"]);
        }
        algorithms += 1;
    }
    assert_eq!(algorithms, 6);
}

#[test]
fn long_runs_of_algorithms() {
    let vectors = vectors();
    let found = vectors.iter().map(|vector| Key::of(&vector["long_run_of"]).long_run());
    let expected: Vec<&str> = vectors.iter().map(|vector| vector["long_run"].as_str().unwrap()).collect();
    assert_eq!(found.collect::<Vec<_>>(), expected);
}
