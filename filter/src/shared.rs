//! What workers agree on through the host's shared data: the secret and the slots.
//!
//! Shared data is one map per VM id, without a size limit and (on Envoy) without removal, so every
//! key in it is known beforehand: the identity, what was heard of weir-sync, when a worker greeted, how many
//! slots there are, one key per slot.

use weir_limiter::key::Secret;
use weir_limiter::limiter::TableIdentity;
use weir_limiter::slot::{SLOT_BYTES, Slot};
use weir_limiter::table::{LocalSlots, ReadError, Slots, Version, WriteError};
use weir_limiter::time::Time;

use crate::host::{self, Status};

/// Holds the identity: 16 bytes of secret, 4 of table id.
const IDENTITY_KEY: &[u8] = b"weir.identity";
const IDENTITY_BYTES: usize = 20;
/// The most slots a worker keeps in its own memory: 8 MiB, of the 1 GiB at most that a host gives it.
const OWN_SLOTS_MAX: u32 = 16_384;
/// Holds what was last heard of weir-sync: how many POPs are live, as four bytes, and when, as eight
/// bytes of the monotonic clock. What one worker hears, all believe, and a new one is not alone in the
/// world until its first answer.
const HEARD_KEY: &[u8] = b"weir.heard";
/// Holds when a worker last sent a report, as eight bytes of the monotonic clock.
const GREETED_KEY: &[u8] = b"weir.greeted";
/// Holds how many slots were made, as four bytes.
const CREATED_KEY: &[u8] = b"weir.slots";

/// The identity that the first worker of this process made, or one made now.
///
/// On Envoy the main thread configures a plugin before any worker does, so the first is alone. Where
/// shared data is missing, the worker is on its own and so is its identity.
pub(crate) fn identity() -> TableIdentity {
    if let Some(known) = read_identity() {
        return known;
    }
    let fresh = host::random::<IDENTITY_BYTES>().unwrap_or_else(|| {
        log::warn!("the host has no randomness: keys are hashed with a secret that can be guessed");
        guessable()
    });
    let _ = host::set_shared_data(IDENTITY_KEY, &fresh, 0);
    read_identity().unwrap_or_else(|| identity_of(&fresh))
}

fn read_identity() -> Option<TableIdentity> {
    let (bytes, _) = host::shared_data(IDENTITY_KEY).ok()?;
    <[u8; IDENTITY_BYTES]>::try_from(bytes).ok().map(|bytes| identity_of(&bytes))
}

fn identity_of(bytes: &[u8; IDENTITY_BYTES]) -> TableIdentity {
    let (mut secret, mut table_id) = ([0; 16], [0; 4]);
    secret.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    table_id.iter_mut().zip(bytes.iter().skip(16)).for_each(|(to, from)| *to = *from);
    TableIdentity { secret: Secret::new(secret), table_id: u32::from_le_bytes(table_id) }
}

fn guessable() -> [u8; IDENTITY_BYTES] {
    let clocks = [host::unix_ns(), host::monotonic_ns().unwrap_or(0)];
    let mut bytes = [0; IDENTITY_BYTES];
    bytes.iter_mut().zip(clocks.into_iter().flat_map(u64::to_le_bytes)).for_each(|(to, from)| *to = from);
    bytes
}

/// Live POPs, and when a worker of this process last heard of weir-sync.
pub(crate) fn heard() -> Option<(u32, Time)> {
    let (bytes, _) = host::shared_data(HEARD_KEY).ok()?;
    let (pops, at) = bytes.split_first_chunk::<4>()?;
    let at = u64::from_le_bytes(at.try_into().ok()?);
    Some((u32::from_le_bytes(*pops), Time::from_nanos(at)))
}

/// Tells the other workers how many POPs are live, and that weir-sync answered at `at`.
pub(crate) fn set_heard(pops: u32, at: Time) {
    let mut bytes = [0; 12];
    let word = pops.to_le_bytes().into_iter().chain(at.as_nanos().to_le_bytes());
    bytes.iter_mut().zip(word).for_each(|(to, from)| *to = from);
    set_corrected_later(HEARD_KEY, &bytes);
}

/// Whether no worker of this process has sent a report for `interval_ns`; if so, this one does.
pub(crate) fn is_my_turn_to_greet(now: Time, interval_ns: u64) -> bool {
    let (before, cas) = greeted();
    // Ticks come a little early now and then; nobody should wait two intervals for that.
    if now.nanos_since(before) < interval_ns / 10 * 9 {
        return false;
    }
    let taken = host::set_shared_data(GREETED_KEY, &now.as_nanos().to_le_bytes(), cas);
    // Another worker was quicker: it greets. A host whose shared data fails lets every worker greet.
    taken != Err(Status::CAS_MISMATCH) || greeted().0 == before
}

/// When a worker of this process last sent a report.
fn greeted() -> (Time, u32) {
    let (bytes, cas) = host::shared_data(GREETED_KEY).unwrap_or_default();
    let at = <[u8; 8]>::try_from(bytes).map_or(0, u64::from_le_bytes);
    (Time::from_nanos(at), cas)
}

fn number(key: &[u8]) -> Option<u32> {
    let (bytes, _) = host::shared_data(key).ok()?;
    <[u8; 4]>::try_from(bytes).ok().map(u32::from_le_bytes)
}

/// Writes a value that a later write corrects, should this one meet another.
fn set_corrected_later(key: &[u8], value: &[u8]) {
    let cas = host::shared_data(key).map_or(0, |(_, cas)| cas);
    let _ = host::set_shared_data(key, value, cas);
}

/// The table: in shared data, or in this worker's own memory where the host has none.
pub(crate) enum Table {
    Shared { count: u32 },
    Own(LocalSlots),
}

impl Table {
    /// Makes the slots that are not there yet.
    ///
    /// They are made ahead because Envoy's first write of a key overwrites whatever another worker
    /// wrote in between.
    pub(crate) fn open(count: u32) -> Self {
        let created = number(CREATED_KEY).unwrap_or(0);
        let mut empty = Slot::empty();
        for index in created..count {
            let name = slot_name(index);
            let missing = host::shared_data(&name) == Err(Status::NOT_FOUND);
            if missing && host::set_shared_data(&name, empty.sealed(), 0).is_err() {
                break;
            }
        }
        if host::shared_data(&slot_name(count.saturating_sub(1))).is_err() {
            log::warn!(
                "the host's shared data does not work: every worker keeps buckets of its own, so a \
                 client may get its quota once per worker"
            );
            return Self::Own(LocalSlots::new(count.min(OWN_SLOTS_MAX)));
        }
        if created < count {
            set_corrected_later(CREATED_KEY, &count.to_le_bytes());
        }
        Self::Shared { count }
    }
}

/// The key of slot `index`. nginx finds keys by CRC-32 alone; names that differ in four adjacent
/// bytes never share one.
fn slot_name(index: u32) -> [u8; 11] {
    let mut name = *b"weir.s.____";
    name.iter_mut().skip(7).zip(index.to_le_bytes()).for_each(|(to, from)| *to = from);
    name
}

impl Slots for Table {
    fn read(&mut self, index: u32, into: &mut Vec<u8>) -> Result<Version, ReadError> {
        match self {
            Self::Own(slots) => slots.read(index, into),
            Self::Shared { .. } => match host::shared_data(&slot_name(index)) {
                Ok((bytes, cas)) => {
                    *into = bytes;
                    Ok(Version(cas))
                }
                Err(Status::NOT_FOUND) => Err(ReadError::Missing),
                Err(_) => Err(ReadError::Unavailable),
            },
        }
    }

    fn write(&mut self, index: u32, bytes: &[u8; SLOT_BYTES], version: Version) -> Result<(), WriteError> {
        match self {
            Self::Own(slots) => slots.write(index, bytes, version),
            Self::Shared { .. } => match host::set_shared_data(&slot_name(index), bytes, version.0) {
                Ok(()) => Ok(()),
                Err(Status::CAS_MISMATCH) => Err(WriteError::Conflict),
                Err(_) => Err(WriteError::Unavailable),
            },
        }
    }

    fn count(&self) -> u32 {
        match self {
            Self::Own(slots) => slots.count(),
            Self::Shared { count } => *count,
        }
    }
}
