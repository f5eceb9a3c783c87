//! The outcome of each request, if a world keeps that, and the rule sets that operators put meanwhile.

use std::rc::Rc;

use super::setup::Setup;
use super::sync::RuleSet;
use super::world::{WARM_UP_NS, World};

/// A request that is decided.
#[derive(Clone, Copy, Debug)]
pub struct Logged {
    /// The time of its decision, in nanoseconds from the begin of the traffic.
    pub at: u64,
    /// Where.
    pub pop: usize,
    /// The client.
    pub key: u32,
    /// The path that it asked for.
    pub path: u8,
    /// The cost that it stated.
    pub cost: u32,
    /// True if it was let through.
    pub passed: bool,
    /// True if its POP banned its client for it.
    pub bans: bool,
}

/// A POP's change to a rule set that was put.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// The POP.
    pub pop: usize,
    /// The rule set, counted from 1.
    pub version: u64,
    /// The time at which all of its workers ran it, in nanoseconds from the begin of the traffic.
    pub at: u64,
}

impl World {
    /// An operator puts a rule set.
    pub(super) fn put(&mut self, which: usize) {
        let (_, rules) = &self.setup.puts[which];
        let document: Rc<[u8]> = Setup::document(rules).into_bytes().into();
        self.store.rule_set = RuleSet { version: which as u64 + 1, document };
    }

    /// Records what a POP runs by now.
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
