//! A host of tests, here and in the crate `weir-tests`, which includes this file.

use std::string::String;

use weir_limiter::engine::{Host, SharedValues};
use weir_limiter::table::{HashSecret, LocalSlots, Slots, TableIdentity};

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
        Self { identity: self.identity, slots: LocalSlots::new(self.slots.count()), ..Self::new([0; 16], 0) }
    }
}

impl Host for LocalHost {
    fn identity(&mut self) -> TableIdentity {
        self.identity
    }

    fn with_values(&mut self, act: &mut dyn FnMut(&mut SharedValues)) {
        act(&mut self.values);
    }

    fn slots(&mut self) -> &mut dyn Slots {
        &mut self.slots
    }

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
}
