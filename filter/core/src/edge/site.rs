//! What an edge needs of the program it runs in: the process's table, values that its workers share, and a few
//! facts. Nothing here blocks.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use super::shared::Shared;
use crate::decide::Decision;
use crate::response::Header;
use crate::table::Slots;
use weir_rules::RuleSet;
use weir_wire::messages::{COUNTED_MAX, RuleCounts};

/// The program that an edge runs in.
pub trait Site: Slots + Shared {
    /// Makes the table, of `slots` slots, if there is none yet.
    fn open(&mut self, slots: u32);

    /// The proxy's own name: the POP's name if the configuration gives none.
    fn node(&mut self) -> Option<String> {
        None
    }

    /// A random number, which no other worker has.
    fn random(&mut self) -> u64;

    /// The wall clock, in nanoseconds since 1970; 0 if there is none.
    fn unix_ns(&mut self) -> u64;

    /// Whether calls to weir-sync can be made at all. Asked only if the configuration wants them.
    fn makes_calls(&mut self) -> bool {
        true
    }

    /// What these rules ask for that the host cannot do, each with its place.
    fn refusals(&self, _rules: &RuleSet) -> Vec<String> {
        Vec::new()
    }

    /// A request is decided so, for a host that says more of it than an answer does.
    fn decided(&mut self, _decision: &Decision) {}

    /// What was decided since this process began, for a report: of [some rules](said_in_turn), and how many rules there are.
    /// A host that cannot tell says nothing.
    fn counted(&mut self, _turn: u64) -> (Vec<RuleCounts>, usize) {
        (Vec::new(), 0)
    }

    /// How many requests the list `deny` refused since this process began.
    fn blocked(&mut self) -> u64 {
        0
    }

    /// Headers in the form that the host takes. They are made once for all clients that are told the same.
    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8>;
}

/// How hosts differ.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "hosts differ in one without the others")]
pub struct HostRules {
    /// Whether it answers gRPC clients in headers: they get a message instead of a body.
    pub answers_grpc: bool,
    /// Whether other workers live on when one ends, and can report what it did not.
    pub has_heirs: bool,
    /// Whether [`Site::decided`] is to be called.
    pub hears_decisions: bool,
}

impl Default for HostRules {
    fn default() -> Self {
        Self { answers_grpc: true, has_heirs: true, hears_decisions: false }
    }
}

/// The places of the rules, of `rules`, that are said in `turn`: at most [`COUNTED_MAX`], and each once in
/// as many turns as that takes.
pub fn said_in_turn(turn: u64, rules: usize) -> Range<usize> {
    let turns = turns_of(rules);
    let (at, size) = (usize::try_from(turn % turns as u64).unwrap_or(0), rules.div_ceil(turns));
    (at * size).min(rules)..((at + 1) * size).min(rules)
}

/// In how many turns all of so many rules are said, at least one.
pub(super) fn turns_of(rules: usize) -> usize {
    rules.div_ceil(COUNTED_MAX).max(1)
}
