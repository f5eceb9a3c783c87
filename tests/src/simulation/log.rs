//! The outcome of each request, if a world keeps that, the rule sets that operators put meanwhile, and the bytes on the
//! wire.

use std::collections::BTreeSet;
use std::rc::Rc;

use weir_budget::budget::BudgetId;
use weir_budget::hot::HotKey;

use super::setup::Setup;
use super::sync::RuleSet;
use super::world::{WARM_UP_NS, World};

/// A request that is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    /// The time of its decision, in nanoseconds from the begin of the traffic.
    pub(super) at: u64,
    pub(super) pop: usize,
    pub(super) key: u32,
    pub(super) path: u8,
    pub(super) cost: u32,
    /// True if it was let through.
    pub(super) passed: bool,
    /// True if its POP banned its client for it.
    pub(super) bans: bool,
}

/// A POP's change to a rule set that was put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    pub(super) pop: usize,
    /// The rule set, counted from 1.
    pub(super) version: u64,
    /// The time at which all of its workers ran it, in nanoseconds from the begin of the traffic.
    pub(super) at: u64,
}

impl World {
    /// An operator puts a rule set.
    pub(super) fn put(&mut self, which: usize) {
        let (_, rules) = &self.setup.puts[which];
        let document: Rc<[u8]> = Setup::document(rules).into_bytes().into();
        self.store.rule_set = RuleSet { version: which as u64 + 1, document };
    }

    pub(super) fn record_rule_set(&mut self, now: u64, pop: usize) {
        if self.setup.puts.is_empty() {
            return;
        }
        let version = self.pops[pop].rule_set();
        let before = self.took.iter().rev().find(|took| took.pop == pop).map_or(0, |took| took.version);
        if version != before {
            self.took.push(Took { pop, version, at: now - WARM_UP_NS });
        }
    }
}

/// The bytes that HTTP adds to a report and its reply together: an estimate of HTTP/1.1 headers.
const FRAMING_BYTES: u64 = 250;

/// Traffic on the wire, by POP, and the keys that were named as hot.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    bytes: Vec<u64>,
    hot: BTreeSet<BudgetId>,
    /// The time up to which it counts, in nanoseconds from the begin of the traffic.
    pub(super) until: u64,
}

impl Wire {
    pub(super) fn new(pops: usize) -> Self {
        Self { bytes: vec![0; pops], hot: BTreeSet::new(), until: 0 }
    }

    /// Counts from now on.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.bytes.len());
    }

    pub(super) fn reported(&mut self, pop: usize, report: &[u8]) {
        self.bytes[pop] += report.len() as u64 + FRAMING_BYTES;
    }

    pub(super) fn replied(&mut self, pop: usize, reply: &[u8]) {
        self.bytes[pop] += reply.len() as u64;
    }

    /// A region named these keys as hot.
    pub(super) fn are_hot(&mut self, keys: &[HotKey]) {
        for key in keys {
            if !self.hot.contains(&key.id) {
                self.hot.insert(key.id.clone());
            }
        }
    }

    /// Bytes of the POP that has the most, up and down, in thousands a second.
    pub(super) fn kilobytes(&self) -> f64 {
        let most = self.bytes.iter().copied().max().unwrap_or(0);
        most as f64 / (self.until as f64 / 1e9) / 1_000.0
    }

    /// Keys that were ever hot.
    pub(super) fn hot_len(&self) -> usize {
        self.hot.len()
    }
}
