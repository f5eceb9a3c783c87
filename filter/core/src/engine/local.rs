//! A host in this program's own memory.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::host::Host;
use super::shared::{SharedState, SharedValue, SharedValues};
use crate::key::HashSecret;
use crate::limiter::TableIdentity;
use crate::response::Header;
use crate::table::slot::Slot;
use crate::table::{LocalSlots, ReadError, Slots, Version, WriteError};
use weir_rules::RuleSet;

/// A host in this program's own memory, for workers that run one at a time: for simulations, examples and
/// tests.
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
        let mut site = Self::new([0; 16], self.identity.table_id);
        (site.identity, site.slots) = (self.identity, LocalSlots::new(self.slots.count()));
        site
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
