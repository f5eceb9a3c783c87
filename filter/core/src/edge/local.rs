//! A site in this program's own memory.

use alloc::string::String;
use alloc::vec::Vec;

use super::site::{Heard, RulesWord, Shared, Site, is_time_to_greet};
use crate::key::Secret;
use crate::limiter::TableIdentity;
use crate::response::Header;
use crate::table::slot::Slot;
use crate::table::{LocalSlots, ReadError, Slots, Version, WriteError};
use weir_wire::time::Time;

/// A site in this program's own memory, for workers that run one at a time: for simulations, examples and tests.
pub struct LocalSite {
    /// The proxy's own name.
    pub node: Option<String>,
    /// The next worker's random number.
    pub random: u64,
    /// What the wall clock reads.
    pub unix_ns: u64,
    identity: TableIdentity,
    slots: LocalSlots,
    heard: Option<Heard>,
    greeted_at: Time,
    fetching_until: Time,
    word: RulesWord,
    rules: (u64, Vec<u8>),
    parted: Vec<u8>,
}

impl LocalSite {
    /// A process that has just begun. Its secret must be random if clients can choose their keys.
    pub fn new(secret: [u8; 16], table_id: u32) -> Self {
        Self {
            node: None,
            random: 0,
            unix_ns: 0,
            identity: TableIdentity { secret: Secret::new(secret), table_id },
            slots: LocalSlots::new(1),
            heard: None,
            greeted_at: Time::ZERO,
            fetching_until: Time::ZERO,
            word: RulesWord::default(),
            rules: (0, Vec::new()),
            parted: Vec::new(),
        }
    }

    /// The site of the process that replaces this one: the same identity and as many slots, all empty.
    #[must_use]
    pub fn restarted(&self) -> Self {
        let mut site = Self::new([0; 16], self.identity.table_id);
        (site.identity, site.slots) = (self.identity, LocalSlots::new(self.slots.count()));
        site
    }
}

impl Slots for LocalSite {
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

impl Shared for LocalSite {
    fn identity(&mut self) -> TableIdentity {
        self.identity
    }

    fn heard(&mut self) -> Option<Heard> {
        self.heard
    }

    fn set_heard(&mut self, heard: &Heard) {
        self.heard = Some(*heard);
    }

    fn is_my_turn_to_greet(&mut self, interval_ns: u64, now: Time) -> bool {
        let is_my_turn = is_time_to_greet(self.greeted_at, interval_ns, now);
        if is_my_turn {
            self.greeted_at = now;
        }
        is_my_turn
    }

    fn is_my_turn_to_fetch(&mut self, fetch_ns: u64, now: Time) -> bool {
        let is_my_turn = self.fetching_until <= now;
        if is_my_turn {
            self.fetching_until = now + fetch_ns;
        }
        is_my_turn
    }

    fn end_fetch(&mut self, at: Time) {
        self.fetching_until = at;
    }

    fn rules_word(&mut self) -> RulesWord {
        self.word
    }

    fn set_rules_word(&mut self, word: RulesWord) {
        self.word = word;
    }

    fn rules(&mut self, version: u64) -> Option<Vec<u8>> {
        (self.rules.0 == version).then(|| self.rules.1.clone())
    }

    fn set_rules(&mut self, version: u64, document: &[u8]) -> bool {
        self.rules = (version, document.to_vec());
        true
    }

    fn leave(&mut self, add: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) {
        if let Some(all) = add(&self.parted) {
            self.parted = all;
        }
    }

    fn take_parted(&mut self) -> Option<Vec<u8>> {
        (!self.parted.is_empty()).then(|| core::mem::take(&mut self.parted))
    }
}

impl Site for LocalSite {
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

    /// One line for each: `name: value`.
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
