//! What workers share through the host's shared data: the secret, the slots, and what they tell each other.
//!
//! Shared data is one map per VM id, without a size limit and (on Envoy) without removal, so all keys are known
//! beforehand: the identity, what was heard from weir-sync, when a worker greeted, what ended workers left, how many
//! slots there are, one key per slot, and three for pushed rule sets.

use weir_limiter::edge::{Heard, RulesWord, Shared, Site, is_time_to_greet};
use weir_limiter::key::Secret;
use weir_limiter::limiter::TableIdentity;
use weir_limiter::response::Header;
use weir_limiter::table::slot::{SLOT_BYTES, Slot};
use weir_limiter::table::{LocalSlots, ReadError, Slots, Version, WriteError};
use weir_rules::RuleSet;
use weir_rules::document::DOCUMENT_BYTES_MAX;
use weir_wire::time::Time;

use crate::host::{self, Status};
use crate::nginx;

/// Holds the identity: 16 bytes of secret, 4 of table id.
const IDENTITY_KEY: &[u8] = b"weir.identity";
const IDENTITY_BYTES: usize = 20;
/// The most slots that a worker keeps in its own memory: 8 MiB, of the 1 GiB that a host gives it at most.
const OWN_SLOTS_MAX: u32 = 16_384;
/// Holds what was last heard from weir-sync: how many POPs are live, as four bytes (the highest bit says that it is a
/// guess), and when, as eight bytes of the monotonic clock. What one worker hears holds for all, so a new worker need
/// not wait for its own first answer.
const HEARD_KEY: &[u8] = b"weir.heard";
/// Holds when a worker last greeted, as eight bytes of the monotonic clock.
const GREETED_KEY: &[u8] = b"weir.greeted";
/// Holds the pushed rule set: eight bytes of version, then the document.
const RULES_KEY: &[u8] = b"weir.rules";
/// Tells workers whether [`RULES_KEY`] has changed: eight bytes of its version, and eight of the latest version
/// that was refused.
const RULES_WORD_KEY: &[u8] = b"weir.rules.version";
/// Holds the time before which no worker may begin to fetch a rule set, as eight bytes of the monotonic clock.
const FETCH_KEY: &[u8] = b"weir.rules.fetch";
/// Holds how many slots were made, as four bytes. Like the slots' names, it carries the format's digit: a module with
/// another format has slots of its own, and does not take these for corrupt ones.
const CREATED_KEY: &[u8] = b"weir.slots5";
/// Holds the names of the keys that ended workers left to be reported, until another worker takes them. It is made
/// when a worker begins, and is mostly empty.
const PARTED_KEY: &[u8] = b"weir.parted5";

/// The number of keys besides the slots: all of the above.
const KEYS_BESIDE: u32 = 8;
/// How often an ending worker tries to leave what it has, if others keep writing first.
const LEAVES_MAX: u32 = 8;

/// The process of this worker, by where its table is: in shared data, or in this worker's own memory if the host has no
/// room for it there.
pub(crate) enum Process {
    Shared { count: u32 },
    Own(LocalSlots),
}

impl Default for Process {
    /// The process before its table is opened.
    fn default() -> Self {
        Self::Shared { count: 1 }
    }
}

impl Shared for Process {
    /// The identity that the first worker of this process made, or a new one.
    ///
    /// On Envoy the main thread configures a plugin before any worker does, so no two make one at once. Without
    /// shared data, each worker has an identity of its own.
    fn identity(&mut self) -> TableIdentity {
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

    fn heard(&mut self) -> Option<Heard> {
        let (bytes, _) = host::shared_data(HEARD_KEY).ok()?;
        let (pops, at) = bytes.split_first_chunk::<4>()?;
        let at = u64::from_le_bytes(at.try_into().ok()?);
        let pops = u32::from_le_bytes(*pops);
        Some(Heard { pops: pops & !GUESS, is_guess: pops & GUESS != 0, at: Time::from_nanos(at) })
    }

    fn set_heard(&mut self, heard: &Heard) {
        let mut bytes = [0; 12];
        let pops = if heard.is_guess { heard.pops | GUESS } else { heard.pops };
        let word = pops.to_le_bytes().into_iter().chain(heard.at.as_nanos().to_le_bytes());
        bytes.iter_mut().zip(word).for_each(|(to, from)| *to = from);
        set_corrected_later(HEARD_KEY, &bytes);
    }

    fn is_my_turn_to_greet(&mut self, interval_ns: u64, now: Time) -> bool {
        let (before, cas) = time(GREETED_KEY);
        if !is_time_to_greet(before, interval_ns, now) {
            return false;
        }
        let taken = host::set_shared_data(GREETED_KEY, &now.as_nanos().to_le_bytes(), cas);
        // If another worker was faster, that one greets. If shared data fails, every worker greets.
        taken != Err(Status::CAS_MISMATCH) || time(GREETED_KEY).0 == before
    }

    fn rules_word(&mut self) -> RulesWord {
        let (bytes, _) = host::shared_data(RULES_WORD_KEY).unwrap_or_default();
        match bytes.split_first_chunk::<8>() {
            Some((version, refused)) => RulesWord {
                version: u64::from_le_bytes(*version),
                refused: refused.try_into().map_or(0, u64::from_le_bytes),
            },
            None => RulesWord::default(),
        }
    }

    fn set_rules_word(&mut self, word: RulesWord) {
        let bytes = [word.version.to_le_bytes(), word.refused.to_le_bytes()];
        set_corrected_later(RULES_WORD_KEY, bytes.as_flattened());
    }

    fn rules(&mut self, version: u64) -> Option<Vec<u8>> {
        let (mut bytes, _) = host::shared_data(RULES_KEY).ok()?;
        let (head, document) = bytes.split_first_chunk::<8>()?;
        if u64::from_le_bytes(*head) != version || document.len() > DOCUMENT_BYTES_MAX {
            return None;
        }
        Some(bytes.split_off(8))
    }

    fn set_rules(&mut self, version: u64, document: &[u8]) -> bool {
        let bytes = [&version.to_le_bytes(), document].concat();
        let cas = host::shared_data(RULES_KEY).map_or(0, |(_, cas)| cas);
        host::set_shared_data(RULES_KEY, &bytes, cas).is_ok()
    }

    fn is_my_turn_to_fetch(&mut self, fetch_ns: u64, now: Time) -> bool {
        let (before, cas) = time(FETCH_KEY);
        // A time further ahead than that was given by another clock.
        if before > now && before.nanos_since(now) <= fetch_ns {
            return false;
        }
        let taken = host::set_shared_data(FETCH_KEY, &(now + fetch_ns).as_nanos().to_le_bytes(), cas);
        // If shared data fails, every worker fetches.
        taken != Err(Status::CAS_MISMATCH) || time(FETCH_KEY).0 == before
    }

    fn end_fetch(&mut self, at: Time) {
        set_corrected_later(FETCH_KEY, &at.as_nanos().to_le_bytes());
    }

    /// Made ahead, because on Envoy the first write of a key overwrites another worker's.
    fn open_parted(&mut self) {
        if host::shared_data(PARTED_KEY) == Err(Status::NOT_FOUND) {
            let _ = host::set_shared_data(PARTED_KEY, &[], 0);
        }
    }

    fn leave(&mut self, add: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) {
        for _ in 0..LEAVES_MAX {
            let Ok((left, cas)) = host::shared_data(PARTED_KEY) else { return };
            let Some(all) = add(&left) else { return };
            if host::set_shared_data(PARTED_KEY, &all, cas) != Err(Status::CAS_MISMATCH) {
                return;
            }
        }
    }

    fn take_parted(&mut self) -> Option<Vec<u8>> {
        let (bytes, cas) = host::shared_data(PARTED_KEY).ok().filter(|(bytes, _)| !bytes.is_empty())?;
        host::set_shared_data(PARTED_KEY, &[], cas).is_ok().then_some(bytes)
    }
}

impl Site for Process {
    fn open(&mut self, slots: u32) {
        *self = Self::opened(slots);
    }

    /// Envoy's `node.id`, under its present name or the older one.
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

    /// On nginx this cannot be tried here; the first report shows it.
    fn makes_calls(&mut self) -> bool {
        nginx::IS_HOST || host::has_http_calls()
    }

    fn refusals(&self, rules: &RuleSet) -> Vec<String> {
        nginx::refusals(rules)
    }

    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8> {
        host::serialized(headers)
    }
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

/// Set in the number of POPs if that is a guess.
const GUESS: u32 = 1 << 31;

/// The time at `key`, zero if there is none, and its compare-and-swap number.
fn time(key: &[u8]) -> (Time, u32) {
    let (bytes, cas) = host::shared_data(key).unwrap_or_default();
    let at = <[u8; 8]>::try_from(bytes).map_or(0, u64::from_le_bytes);
    (Time::from_nanos(at), cas)
}

fn number(key: &[u8]) -> Option<u32> {
    let (bytes, _) = host::shared_data(key).ok()?;
    <[u8; 4]>::try_from(bytes).ok().map(u32::from_le_bytes)
}

/// Writes a value without a retry: if this conflicts with another write, a later one corrects it.
fn set_corrected_later(key: &[u8], value: &[u8]) {
    let cas = host::shared_data(key).map_or(0, |(_, cas)| cas);
    let _ = host::set_shared_data(key, value, cas);
}

impl Process {
    /// Makes the slots that are not there yet, and checks that the host keeps them.
    ///
    /// They are made ahead, because on Envoy the first write of a key overwrites whatever another worker
    /// wrote in between.
    fn opened(count: u32) -> Self {
        let created = number(CREATED_KEY).unwrap_or(0);
        let mut empty = Slot::empty();
        for index in created..count {
            let name = slot_name(index);
            let missing = host::shared_data(&name) == Err(Status::NOT_FOUND);
            if missing && host::set_shared_data(&name, empty.sealed(), 0).is_err() {
                break;
            }
        }
        // A store that is too small either refuses the last slot, or drops the first one for it.
        let is_there = |index: u32| host::shared_data(&slot_name(index)).is_ok();
        if read_identity().is_none() || !is_there(0) || !is_there(count.saturating_sub(1)) {
            log::warn!(
                "the host's shared data does not hold the table: every worker keeps buckets of its own, so a client \
                 may get its quota once per worker. Give it room for {count} slots of {SLOT_BYTES} bytes and \
                 {KEYS_BESIDE} other keys (on nginx, shm_kv * {}m), or lower table.addresses",
                nginx::store_mib(count)
            );
            return Self::Own(LocalSlots::new(count.min(OWN_SLOTS_MAX)));
        }
        if created < count {
            set_corrected_later(CREATED_KEY, &count.to_le_bytes());
        }
        Self::Shared { count }
    }
}

/// The key of slot `index`. nginx tells keys apart by CRC-32 alone, and names that differ only in four
/// adjacent bytes never have the same one.
fn slot_name(index: u32) -> [u8; 12] {
    let mut name = *b"weir.s5.____";
    name.iter_mut().skip(8).zip(index.to_le_bytes()).for_each(|(to, from)| *to = from);
    name
}

impl Slots for Process {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        match self {
            Self::Own(slots) => slots.read(index, into),
            Self::Shared { .. } => match host::shared_data(&slot_name(index)) {
                Ok((bytes, cas)) => {
                    let is_whole = into.unseal(bytes);
                    if is_whole { Ok(Version(cas)) } else { Err(ReadError::Corrupt(Version(cas))) }
                }
                Err(Status::NOT_FOUND) => Err(ReadError::Missing),
                Err(_) => Err(ReadError::Unavailable),
            },
        }
    }

    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError> {
        match self {
            Self::Own(slots) => slots.write(index, slot, version),
            Self::Shared { .. } => match host::set_shared_data(&slot_name(index), slot.sealed(), version.0) {
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
