//! The interface of an engine to its program: the process's table, values that its workers share, and a few
//! facts. Nothing here blocks.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::check::Decision;
use crate::engine::shared::{SharedState, SharedValue, SharedValues};
use crate::key::{HashSecret, TableIdentity};
use crate::response::Header;
use crate::table::slot::Slot;
use crate::table::{LocalSlots, ReadError, Slots, Version, WriteError};
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

    /// The decisions since this process began: of [some rules](reported_in_turn), and the number of all rules. Empty
    /// for a host without these counts.
    fn counted(&mut self, _turn: u64) -> (Vec<RuleCounts>, usize) {
        (Vec::new(), 0)
    }

    /// Number of requests that the `deny` list has blocked since this process began.
    fn blocked(&mut self) -> u64 {
        0
    }

    /// Packs headers into the form that the host takes, once for all clients with the same response.
    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8>;
}

/// The differences between hosts.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "hosts differ in one without the others")]
pub struct HostRules {
    /// True if it answers gRPC clients in headers: they get a message instead of a body.
    pub answers_grpc: bool,
    /// True if other workers live on when one ends, and can take over its unreported keys.
    pub has_handover: bool,
    /// True if [`Host::decided`] is to be called.
    pub observes_decisions: bool,
}

impl Default for HostRules {
    fn default() -> Self {
        Self { answers_grpc: true, has_handover: true, observes_decisions: false }
    }
}

/// Indices of the rules, out of `rules`, that are reported in `turn`: at most [`COUNTED_MAX`].
pub fn reported_in_turn(turn: u64, rules: usize) -> Range<usize> {
    let turns = turns_of(rules);
    let (at, size) = (usize::try_from(turn % turns as u64).unwrap_or(0), rules.div_ceil(turns));
    (at * size).min(rules)..((at + 1) * size).min(rules)
}

/// Number of turns in which this number of rules is reported.
pub(super) fn turns_of(rules: usize) -> usize {
    rules.div_ceil(COUNTED_MAX).max(1)
}

/// A host in this program's own memory, for workers that run one at a time.
pub struct LocalHost {
    /// The proxy's own name.
    pub node: Option<String>,
    /// Random number for the next worker.
    pub random: u64,
    /// The wall clock, in nanoseconds since 1970.
    pub unix_ns: u64,
    identity: TableIdentity,
    slots: LocalSlots,
    values: SharedValues,
}

impl LocalHost {
    /// Creates the host of a new process. Its secret must be random if clients can choose their keys.
    pub fn new(secret: [u8; 16], table_id: u32) -> Self {
        Self {
            node: None,
            random: 0,
            unix_ns: 0,
            identity: TableIdentity { secret: HashSecret::new(secret), table_id },
            slots: LocalSlots::new(1),
            values: SharedValues::default(),
        }
    }

    /// The host of the process that replaces this one: the same identity and number of slots, all empty.
    #[must_use]
    pub fn restarted(&self) -> Self {
        let mut host = Self::new([0; 16], self.identity.table_id);
        (host.identity, host.slots) = (self.identity, LocalSlots::new(self.slots.count()));
        host
    }
}

impl Slots for LocalHost {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        self.slots.read(index, into)
    }

    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError> {
        self.slots.write(index, slot, version)
    }

    fn count(&self) -> u32 {
        self.slots.count()
    }
}

impl SharedState for LocalHost {
    fn identity(&mut self) -> TableIdentity {
        self.identity
    }

    fn get(&mut self, value: SharedValue) -> Result<(Vec<u8>, Version), ReadError> {
        self.values.get(value)
    }

    fn set(&mut self, value: SharedValue, bytes: &[u8], version: Version) -> Result<(), WriteError> {
        self.values.set(value, bytes, version)
    }

    fn parsed(&mut self, version: u64) -> Option<Arc<RuleSet>> {
        self.values.parsed(version)
    }

    fn keep_parsed(&mut self, version: u64, rules: &Arc<RuleSet>) {
        self.values.keep_parsed(version, rules);
    }
}

impl Host for LocalHost {
    fn open(&mut self, slots: u32) {
        if self.slots.count() < slots {
            self.slots = LocalSlots::new(slots);
        }
    }

    fn node(&mut self) -> Option<String> {
        self.node.clone()
    }

    fn random(&mut self) -> u64 {
        self.random
    }

    fn unix_ns(&mut self) -> u64 {
        self.unix_ns
    }

    /// Packs one line for each header: `name: value`.
    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8> {
        let mut lines = Vec::new();
        for (name, value) in headers {
            for part in [name, ": ", value, "\n"] {
                lines.extend_from_slice(part.as_bytes());
            }
        }
        lines
    }
}
