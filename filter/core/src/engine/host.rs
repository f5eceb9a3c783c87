//! The interface of an engine to its program: the process's table, values that its workers share, and a few
//! facts. Nothing here blocks.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use super::shared::SharedState;
use crate::decide::Decision;
use crate::response::Header;
use crate::table::Slots;
use weir_protocol::messages::{COUNTED_MAX, RuleCounts};
use weir_rules::RuleSet;

/// The program that an engine runs in.
pub trait Host: Slots + SharedState {
    /// Creates the table, of `slots` slots, if there is none yet.
    fn open(&mut self, slots: u32);

    /// The proxy's own name: the POP's name if the configuration gives none.
    fn node(&mut self) -> Option<String> {
        None
    }

    /// A random number, which no other worker has.
    fn random(&mut self) -> u64;

    /// The wall clock, in nanoseconds since 1970; 0 if there is none.
    fn unix_ns(&mut self) -> u64;

    /// True if calls to weir-sync can be made at all. Called only if the configuration needs them.
    fn makes_calls(&mut self) -> bool {
        true
    }

    /// Features of these rules that the host does not support, each with its place.
    fn refusals(&self, _rules: &RuleSet) -> Vec<String> {
        Vec::new()
    }

    /// Reports a decision to the host, if that publishes more of it than the response does.
    fn decided(&mut self, _decision: &Decision) {}

    /// The decisions since this process began, for a report: of [some rules](reported_in_turn), and the number of
    /// all rules. Empty for a host without these counts.
    fn counted(&mut self, _turn: u64) -> (Vec<RuleCounts>, usize) {
        (Vec::new(), 0)
    }

    /// Number of requests that the `deny` list has blocked since this process began.
    fn blocked(&mut self) -> u64 {
        0
    }

    /// Packs headers into the form that the host takes. They are packed once for all clients with the same
    /// response.
    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8>;
}

/// The differences between hosts.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "hosts differ in one without the others")]
pub struct HostRules {
    /// True if it answers gRPC clients in headers: they get a message instead of a body.
    pub answers_grpc: bool,
    /// True if other workers live on when one ends, and can take over its unreported keys.
    pub has_heirs: bool,
    /// True if [`Host::decided`] is to be called.
    pub hears_decisions: bool,
}

impl Default for HostRules {
    fn default() -> Self {
        Self { answers_grpc: true, has_heirs: true, hears_decisions: false }
    }
}

/// Indices of the rules, out of `rules`, that are reported in `turn`: at most [`COUNTED_MAX`]. Each is
/// reported once in as many turns as that takes.
pub fn reported_in_turn(turn: u64, rules: usize) -> Range<usize> {
    let turns = turns_of(rules);
    let (at, size) = (usize::try_from(turn % turns as u64).unwrap_or(0), rules.div_ceil(turns));
    (at * size).min(rules)..((at + 1) * size).min(rules)
}

/// Number of turns in which this number of rules is reported, at least one.
pub(super) fn turns_of(rules: usize) -> usize {
    rules.div_ceil(COUNTED_MAX).max(1)
}
