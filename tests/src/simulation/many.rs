//! A million keys: what goes over the wire, and how many of them are ever hot.

use std::collections::BTreeSet;

use fastrand::Rng;
use weir_budget::budget::BudgetId;
use weir_budget::hot::HotKey;

use super::traffic::{Arrival, Traffic, Zipf, gap_ns};

/// The bytes that HTTP adds to a report and its reply together: an estimate of HTTP/1.1 headers.
const FRAMING_BYTES: u64 = 250;

/// Traffic on the wire, by POP, and the keys that were named as hot.
#[derive(Clone, Debug)]
pub struct Wire {
    bytes: Vec<u64>,
    exchanges: u64,
    hot: BTreeSet<BudgetId>,
}

impl Wire {
    /// Nothing yet.
    pub fn new(pops: usize) -> Self {
        Self { bytes: vec![0; pops], exchanges: 0, hot: BTreeSet::new() }
    }

    /// Counts from now on.
    pub fn reset(&mut self) {
        *self = Self::new(self.bytes.len());
    }

    /// A POP sent a report.
    pub fn reported(&mut self, pop: usize, report: &[u8]) {
        self.bytes[pop] += report.len() as u64 + FRAMING_BYTES;
        self.exchanges += 1;
    }

    /// It was sent a reply.
    pub fn replied(&mut self, pop: usize, reply: &[u8]) {
        self.bytes[pop] += reply.len() as u64;
    }

    /// A region named these keys as hot.
    pub fn are_hot(&mut self, keys: &[HotKey]) {
        for key in keys {
            if !self.hot.contains(&key.id) {
                self.hot.insert(key.id.clone());
            }
        }
    }

    /// Bytes of the POP that has the most.
    pub fn bytes_max(&self) -> u64 {
        self.bytes.iter().copied().max().unwrap_or(0)
    }

    /// Bytes of all POPs.
    pub fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Keys that were ever hot.
    pub fn hot_len(&self) -> usize {
        self.hot.len()
    }
}

/// `per_second` new clients from `first` on, each once at two POPs, for half of a burst of 20 at each: an attacker that
/// makes up keys, and sees to it that each is in debt.
pub fn new_keys(per_second: f64, first: u32, pops: usize) -> Traffic {
    let (mut now, mut key, mut next) = (0, first, None);
    Box::new(move |rng: &mut Rng| {
        if let Some(second) = next.take() {
            return Some(second);
        }
        (now, key) = (now + gap_ns(rng, per_second), key + 1);
        let one = Arrival { at: now, pop: rng.usize(0..pops), key, path: 2, cost: 10 };
        next = Some(Arrival { pop: (one.pop + 1) % pops, ..one });
        Some(one)
    })
}

/// `keys` clients by Zipf's law with exponent 1.1; nine in ten always at one POP, one in ten anywhere.
pub fn crowd(per_second: f64, keys: usize, pops: usize) -> Traffic {
    let ranks = Zipf::new(keys, 1.1);
    let mut now = 0;
    Box::new(move |rng: &mut Rng| {
        now += gap_ns(rng, per_second);
        let key = u32::try_from(ranks.draw(rng)).expect("fits an address");
        // Scattered, so that neighbouring ranks are neither at one POP nor all of one kind.
        let scattered = usize::try_from(key.wrapping_mul(2_654_435_761) >> 4).expect("32 bits");
        let is_spread = scattered % 10 == 0;
        let pop = if is_spread { rng.usize(0..pops) } else { scattered / 10 % pops };
        Some(Arrival { at: now, pop, key, path: 0, cost: 1 })
    })
}
