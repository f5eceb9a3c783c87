//! State that workers share through the host's shared data: the secret, the slots, and messages among workers.
//!
//! Shared data is one map per VM id, without a size limit and (on Envoy) without removal, so the set of keys is fixed:
//! the identity, the number of slots, one key per slot, and one for each [`SharedValue`]. All VMs without an id have
//! the same map, so there each key begins with a hash of the plugin's name: Istio assigns no VM ids, and plugins with
//! different names must not share state.

use weir_limiter::engine::{Host, LogLevel, SharedValue, SharedValues};
use weir_limiter::response::Header;
use weir_limiter::table::slot::{SLOT_BYTES, Slot};
use weir_limiter::table::{
    IDENTITY_BYTES, LocalSlots, ReadError, Slots, TableIdentity, Version, WriteError, name_hash,
};
use weir_protocol::messages::RuleCounts;

use crate::host::{self, HostStatus};
use crate::metrics;

/// Name of the identity: 16 bytes of secret, 4 of table id.
const IDENTITY_KEY: &[u8] = b"weir.identity";
/// Maximum number of slots in a worker's own memory: 8 MiB of the 1 GiB that a host allows.
const OWN_SLOTS_MAX: u32 = 16_384;
/// Name of the number of slots that were created, as four bytes. Like the names of slots, it contains the digit of the
/// format: a module with another format has slots of its own, and does not treat these as corrupt.
const CREATED_KEY: &[u8] = b"weir.slots5";
/// Length of the longest name.
const KEY_BYTES_MAX: usize = 18;
/// Number of keys besides the slots: the two above, and one for each [`SharedValue`].
const KEYS_BESIDE: u32 = 2 + SharedValue::COUNT;

pub(crate) struct ProcessState {
    shared: SharedTable,
    /// The table in this worker's own memory, if the host has no room for it in shared data.
    own: Option<LocalSlots>,
}

struct SharedTable {
    keys: Keys,
    count: u32,
}

impl Host for ProcessState {
    /// The identity that the first worker of this process created, or a new one. On Envoy the main thread configures a
    /// plugin before any worker does, so no two create one at once. Without shared data, each worker has its own.
    fn identity(&mut self) -> TableIdentity {
        if let Some(known) = self.read_identity() {
            return known;
        }
        let fresh = host::random::<IDENTITY_BYTES>().unwrap_or_else(|| {
            host::log(LogLevel::Warn, "no random numbers: keys are hashed with a secret that can be guessed");
            guessable()
        });
        let _ = self.shared.keys.write(IDENTITY_KEY, &fresh, 0);
        self.read_identity().unwrap_or_else(|| TableIdentity::of(&fresh))
    }

    fn with_values(&mut self, _act: &mut dyn FnMut(&mut SharedValues)) {}

    fn get(&mut self, value: SharedValue) -> Result<(Vec<u8>, Version), ReadError> {
        self.shared.keys.get(key_of(value))
    }

    fn set(&mut self, value: SharedValue, bytes: &[u8], version: Version) -> Result<(), WriteError> {
        self.shared.keys.set(key_of(value), bytes, version)
    }

    fn slots(&mut self) -> &mut dyn Slots {
        match &mut self.own {
            Some(own) => own,
            None => &mut self.shared,
        }
    }

    fn open(&mut self, slots: u32) {
        self.shared.count = slots;
        self.own = (!self.create_slots(slots)).then(|| LocalSlots::new(slots.min(OWN_SLOTS_MAX)));
    }

    /// Envoy's `node.id`, under its current or its older name.
    fn node(&mut self) -> Option<String> {
        let bytes = host::property("xds\0node\0id").or_else(|_| host::property("node\0id")).ok()?;
        String::from_utf8(bytes).ok()
    }

    fn random(&mut self) -> u64 {
        host::random().map_or_else(host::unix_ns, u64::from_le_bytes)
    }

    fn unix_ns(&mut self) -> u64 {
        host::unix_ns()
    }

    fn makes_calls(&mut self) -> bool {
        // Makes no call, because no upstream has an empty name.
        host::http_call("", &[], &[], 1) != Err(HostStatus::UNIMPLEMENTED)
    }

    fn counted(&mut self, turn: u64) -> (Vec<RuleCounts>, usize) {
        metrics::counted(turn)
    }

    fn blocked(&mut self) -> u64 {
        metrics::blocked()
    }

    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8> {
        host::serialized(headers)
    }
}

/// Names of shared values. A value whose format changes gets a new name.
fn key_of(value: SharedValue) -> &'static [u8] {
    match value {
        SharedValue::Contact => b"weir.contact",
        SharedValue::Missed => b"weir.missed",
        SharedValue::Behind => b"weir.behind",
        SharedValue::Greeted => b"weir.greeted",
        SharedValue::Fetch => b"weir.rules.fetch",
        SharedValue::PushedVersions => b"weir.rules.version",
        SharedValue::Refusal => b"weir.rules.refusal",
        SharedValue::Rules => b"weir.rules",
        SharedValue::Handover => b"weir.handover",
    }
}

fn guessable() -> [u8; IDENTITY_BYTES] {
    let clocks = [host::unix_ns(), host::monotonic_ns().unwrap_or(0)];
    let mut bytes = [0; IDENTITY_BYTES];
    bytes.iter_mut().zip(clocks.into_iter().flat_map(u64::to_le_bytes)).for_each(|(to, from)| *to = from);
    bytes
}

struct Keys {
    /// Value to XOR with the first four bytes of each name: a hash of the plugin's name, or 0 if the VM has an id.
    mark: u32,
}

impl Keys {
    fn of_plugin() -> Self {
        // A host that does not reveal the ids of its VMs is treated as one that assigns them.
        let has_no_id = host::property("plugin_vm_id").is_ok_and(|id| id.is_empty());
        Self { mark: if has_no_id { name_hash(&host::property("plugin_name").unwrap_or_default()) } else { 0 } }
    }

    /// The value of this name, and its compare-and-swap number.
    fn read(&self, name: &[u8]) -> Result<(Vec<u8>, u32), HostStatus> {
        host::shared_data(self.key(name, &mut [0; KEY_BYTES_MAX]))
    }

    fn write(&self, name: &[u8], bytes: &[u8], cas: u32) -> Result<(), HostStatus> {
        host::set_shared_data(self.key(name, &mut [0; KEY_BYTES_MAX]), bytes, cas)
    }

    #[inline(never)]
    fn key<'a>(&self, name: &[u8], key: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
        key.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        if let Some(first) = key.first_chunk_mut::<4>() {
            *first = (u32::from_le_bytes(*first) ^ self.mark).to_le_bytes();
        }
        key.get(..name.len()).unwrap_or(key)
    }

    fn get(&self, name: &[u8]) -> Result<(Vec<u8>, Version), ReadError> {
        match self.read(name) {
            Ok((bytes, cas)) => Ok((bytes, Version(cas))),
            Err(HostStatus::NOT_FOUND) => Err(ReadError::Missing),
            Err(_) => Err(ReadError::Unavailable),
        }
    }

    fn set(&self, name: &[u8], bytes: &[u8], version: Version) -> Result<(), WriteError> {
        self.write(name, bytes, version.0).map_err(|status| match status {
            HostStatus::CAS_MISMATCH => WriteError::Conflict,
            _ => WriteError::Unavailable,
        })
    }
}

impl ProcessState {
    pub(crate) fn new() -> Self {
        Self { shared: SharedTable { keys: Keys::of_plugin(), count: 1 }, own: None }
    }

    #[inline(never)]
    fn read_identity(&self) -> Option<TableIdentity> {
        let (bytes, _) = self.shared.keys.read(IDENTITY_KEY).ok()?;
        <[u8; IDENTITY_BYTES]>::try_from(bytes).ok().map(|bytes| TableIdentity::of(&bytes))
    }

    /// Creates the missing slots; false if the host does not keep them. They are created in advance, because on Envoy
    /// the first write of a key overwrites what another worker wrote in between.
    fn create_slots(&self, count: u32) -> bool {
        let (created, cas) = self.shared.keys.read(CREATED_KEY).unwrap_or_default();
        let created = <[u8; 4]>::try_from(created).map_or(0, u32::from_le_bytes);
        let mut empty = Slot::empty();
        for index in created..count {
            let name = slot_name(index);
            let missing = self.shared.keys.read(&name) == Err(HostStatus::NOT_FOUND);
            if missing && self.shared.keys.write(&name, empty.sealed(), 0).is_err() {
                break;
            }
        }
        // A store that is too small either refuses the last slot, or drops the first one for it.
        let is_there = |index: u32| self.shared.keys.read(&slot_name(index)).is_ok();
        if self.read_identity().is_none() || !is_there(0) || !is_there(count.saturating_sub(1)) {
            let text = format!(
                "shared data does not hold the table: a client may get its quota once per worker. Give it room for \
                 {count} slots of {SLOT_BYTES} bytes and {KEYS_BESIDE} other keys, or lower table.addresses"
            );
            host::log(LogLevel::Warn, &text);
            return false;
        }
        if created < count {
            // If this conflicts with another write, the next worker that starts corrects it.
            let _ = self.shared.keys.write(CREATED_KEY, &count.to_le_bytes(), cas);
        }
        true
    }
}

/// Name of slot `index`. A host may identify keys by CRC-32: names differ in four adjacent bytes, so the sums differ.
fn slot_name(index: u32) -> [u8; 12] {
    let mut name = *b"weir.s5.____";
    name.iter_mut().skip(8).zip(index.to_le_bytes()).for_each(|(to, from)| *to = from);
    name
}

impl Slots for SharedTable {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        let (bytes, version) = self.keys.get(&slot_name(index))?;
        if into.unseal(bytes) { Ok(version) } else { Err(ReadError::Corrupt(version)) }
    }

    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError> {
        self.keys.set(&slot_name(index), slot.sealed(), version)
    }

    fn count(&self) -> u32 {
        self.count
    }
}
