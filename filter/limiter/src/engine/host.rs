//! Interface of an engine to its program: the table, the values that workers share, a few facts. Nothing blocks.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::check::Decision;
use crate::response::Header;
use crate::table::{HashSecret, LocalSlots, ReadError, Slots, TableIdentity, Version, WriteError};
use weir_protocol::messages::{REFUSAL_MAX, RuleCounts};
use weir_protocol::time::Time;
use weir_rules::RuleSet;
use weir_rules::document::DOCUMENT_BYTES_MAX;

/// Maximum number of attempts of an ending worker to store its handover if others keep writing first.
const LEAVES_MAX: u32 = 8;
/// Bit set in the number of POPs if that is a guess.
const GUESS: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushedVersions {
    /// Version of the shared document; 0 if there is none.
    pub version: u64,
    /// Latest version that could not be used; 0 if there is none.
    pub refused: u64,
}

/// A value that workers share. Times are eight bytes of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SharedValue {
    /// weir-sync's last reply to any worker: live POPs in four bytes (the highest bit marks a guess), then the time.
    Contact,
    /// Time of the last failed report for which weir-sync is to blame.
    Missed,
    /// Nanoseconds by which the host's clock is behind the POP's since it stepped back: eight bytes, signed.
    Behind,
    /// Time of the last greeting of any worker.
    Greeted,
    /// Time before which no worker may begin to fetch a rule set.
    Fetch,
    /// Announcement of changes of [`SharedValue::Rules`]: its version and the latest refused one, eight bytes each.
    PushedVersions,
    /// Reason why a rule set was refused: eight bytes of its version, then text.
    Refusal,
    /// Pushed rule set: eight bytes of version, then the document.
    Rules,
    /// Handover of ended workers: names of the keys to be reported, until another worker takes them.
    Handover,
}

impl SharedValue {
    pub const COUNT: u32 = Self::Handover as u32 + 1;
}

/// Shared values in this program's own memory, each with its version; zero if missing.
#[derive(Default)]
pub struct SharedValues {
    values: [(Vec<u8>, u32); SharedValue::COUNT as usize],
    /// Parsed rule set of [`SharedValue::Rules`], and its version.
    parsed: Option<(u64, Arc<RuleSet>)>,
}

impl SharedValues {
    fn get(&self, value: SharedValue) -> Result<(Vec<u8>, Version), ReadError> {
        let known = self.values.get(value as usize).filter(|(_, version)| *version > 0);
        let (bytes, version) = known.ok_or(ReadError::Missing)?;
        Ok((bytes.clone(), Version(*version)))
    }

    fn set(&mut self, value: SharedValue, bytes: &[u8], version: Version) -> Result<(), WriteError> {
        let (known, current) = self.values.get_mut(value as usize).ok_or(WriteError::Unavailable)?;
        if *current != version.0 {
            return Err(WriteError::Conflict);
        }
        (*known, *current) = (bytes.to_vec(), current.wrapping_add(1).max(1));
        Ok(())
    }
}

/// The program that an engine runs in. A worker that shares nothing still reads back the values that it wrote.
pub trait Host {
    /// The process's identity, including the secret for its keys; made by its first worker.
    fn identity(&mut self) -> TableIdentity;

    /// Applies `act` to the values in the program's own memory. A host that shares them in another way does nothing
    /// here, and implements [`Host::get`] and [`Host::set`].
    fn with_values(&mut self, act: &mut dyn FnMut(&mut SharedValues));

    fn get(&mut self, value: SharedValue) -> Result<(Vec<u8>, Version), ReadError> {
        let mut found = Err(ReadError::Unavailable);
        self.with_values(&mut |values| found = values.get(value));
        found
    }

    /// Replaces a shared value if it still has this version.
    fn set(&mut self, value: SharedValue, bytes: &[u8], version: Version) -> Result<(), WriteError> {
        let mut done = Err(WriteError::Unavailable);
        self.with_values(&mut |values| done = values.set(value, bytes, version));
        done
    }

    fn slots(&mut self) -> &mut dyn Slots;

    /// Creates the table with `slots` slots, unless it exists.
    fn open(&mut self, slots: u32);

    /// The proxy's own name, used as the POP's name if the configuration states none.
    fn node(&mut self) -> Option<String> {
        None
    }

    /// A random number that no other worker gets.
    fn random(&mut self) -> u64;

    /// The wall clock, in nanoseconds since 1970; 0 if there is none.
    fn unix_ns(&mut self) -> u64;

    /// True if calls to weir-sync can be made at all. Only called if the configuration needs them.
    fn makes_calls(&mut self) -> bool {
        true
    }

    /// Errors for features that the host does not support, each with its place.
    fn refusals(&self, _rules: &RuleSet) -> Vec<String> {
        Vec::new()
    }

    /// True if gRPC clients are answered in headers, with a message instead of a body.
    fn answers_grpc(&self) -> bool {
        true
    }

    /// True if the engine is to call [`Host::decided`].
    fn observes_decisions(&self) -> bool {
        false
    }

    /// Reports a decision to a host that publishes more about it than the response does.
    fn decided(&mut self, _decision: &Decision) {}

    /// The decisions of [some rules](crate::counters::reported_in_turn) since this process began, and the number of all
    /// rules. Empty for a host without these counts.
    fn counted(&mut self, _turn: u64) -> (Vec<RuleCounts>, usize) {
        (Vec::new(), 0)
    }

    /// Number of requests that the `deny` list has blocked since this process began.
    fn blocked(&mut self) -> u64 {
        0
    }

    /// Packs headers in the host's format, once for all clients with the same response. The default format is the
    /// lengths and bytes that [`unpacked`] reads.
    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8> {
        let mut packed = Vec::new();
        for text in headers.iter().flat_map(|(name, value)| [*name, &**value]) {
            packed.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_le_bytes());
            packed.extend_from_slice(text.as_bytes());
        }
        packed
    }
}

/// The names and values that [`Host::pack`] packed in the default format.
pub fn unpacked(mut packed: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut next = move || {
        let (length, rest) = packed.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        packed = rest;
        Some(text)
    };
    core::iter::from_fn(move || Some((next()?, next()?)))
}

// The values that the workers of one process share besides the slots.

impl dyn Host + '_ {
    /// Replaces a shared value without a retry. If it conflicts with another write, a later one corrects it.
    pub(super) fn replace(&mut self, value: SharedValue, bytes: &[u8]) -> Result<(), WriteError> {
        let version = self.get(value).map_or(Version::NONE, |(_, version)| version);
        self.set(value, bytes, version)
    }

    /// A shared time, zero if missing, and its version.
    pub(super) fn time(&mut self, value: SharedValue) -> (Time, Version) {
        let (bytes, version) = self.get(value).unwrap_or((Vec::new(), Version::NONE));
        (Time::from_nanos(<[u8; 8]>::try_from(bytes).map_or(0, u64::from_le_bytes)), version)
    }

    pub(super) fn set_time(&mut self, value: SharedValue, at: Time) {
        let _ = self.replace(value, &at.as_nanos().to_le_bytes());
    }

    /// Replaces the time `before` by `at`; false if another worker was faster. If nothing is shared, every
    /// worker succeeds.
    pub(super) fn take_turn(&mut self, value: SharedValue, (before, version): (Time, Version), at: Time) -> bool {
        let taken = self.set(value, &at.as_nanos().to_le_bytes(), version);
        taken != Err(WriteError::Conflict) || self.time(value).0 == before
    }

    /// weir-sync's last reply to any worker: the number of live POPs, true if it is a guess, and the time.
    pub(super) fn contact(&mut self) -> Option<(u32, bool, Time)> {
        let (bytes, _) = self.get(SharedValue::Contact).ok()?;
        let (pops, at) = bytes.split_first_chunk::<4>()?;
        let at = Time::from_nanos(u64::from_le_bytes(at.try_into().ok()?));
        let pops = u32::from_le_bytes(*pops);
        Some((pops & !GUESS, pops & GUESS != 0, at))
    }

    pub(super) fn set_contact(&mut self, pops: u32, is_guess: bool, at: Time) {
        let pops = if is_guess { pops | GUESS } else { pops };
        let bytes = [&pops.to_le_bytes()[..], &at.as_nanos().to_le_bytes()].concat();
        let _ = self.replace(SharedValue::Contact, &bytes);
    }

    /// Takes the turn to greet, if no worker has greeted for `interval_ns`. Returns the time of the previous greeting;
    /// `None` if it is not this worker's turn. Ticks are sometimes a little early, so nine tenths of the interval
    /// suffice. A greeting in the future was recorded with another clock.
    pub(super) fn turn_to_greet(&mut self, interval_ns: u64, now: Time) -> Option<Time> {
        let greeted = self.time(SharedValue::Greeted);
        let is_due = greeted.0 > now || now.nanos_since(greeted.0) >= interval_ns / 10 * 9;
        (is_due && self.take_turn(SharedValue::Greeted, greeted, now)).then_some(greeted.0)
    }

    /// Takes the turn to fetch a rule set, for at most `fetch_ns`; false if another worker is fetching one.
    pub(super) fn is_my_turn_to_fetch(&mut self, fetch_ns: u64, now: Time) -> bool {
        let fetch = self.time(SharedValue::Fetch);
        // A time further ahead is from another clock.
        let is_fetching = fetch.0 > now && fetch.0.nanos_since(now) <= fetch_ns;
        !is_fetching && self.take_turn(SharedValue::Fetch, fetch, now + fetch_ns)
    }

    /// Ends this worker's fetch. The next one may begin at `next`.
    pub(super) fn end_fetch(&mut self, next: Time) {
        self.set_time(SharedValue::Fetch, next);
    }

    pub(super) fn pushed_versions(&mut self) -> PushedVersions {
        let (bytes, _) = self.get(SharedValue::PushedVersions).unwrap_or((Vec::new(), Version::NONE));
        bytes.split_first_chunk::<8>().map_or(PushedVersions::default(), |(version, refused)| PushedVersions {
            version: u64::from_le_bytes(*version),
            refused: refused.try_into().map_or(0, u64::from_le_bytes),
        })
    }

    pub fn set_pushed_versions(&mut self, versions: PushedVersions) {
        let bytes = [versions.version.to_le_bytes(), versions.refused.to_le_bytes()];
        let _ = self.replace(SharedValue::PushedVersions, bytes.as_flattened());
    }

    /// The bytes after the version of a shared value, if it has this `version`.
    fn versioned(&mut self, value: SharedValue, version: u64, bytes_max: usize) -> Option<Vec<u8>> {
        let (mut bytes, _) = self.get(value).ok()?;
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        (u64::from_le_bytes(*head) == version && rest.len() <= bytes_max).then(|| bytes.split_off(8))
    }

    pub(super) fn refusal(&mut self, version: u64) -> Option<String> {
        String::from_utf8(self.versioned(SharedValue::Refusal, version, REFUSAL_MAX)?).ok()
    }

    pub(super) fn set_refusal(&mut self, version: u64, why: &str) {
        let _ = self.replace(SharedValue::Refusal, &[&version.to_le_bytes(), why.as_bytes()].concat());
    }

    /// The shared document, if it has this `version`.
    pub(super) fn rules(&mut self, version: u64) -> Option<Vec<u8>> {
        self.versioned(SharedValue::Rules, version, DOCUMENT_BYTES_MAX)
    }

    /// Shares a document with the other workers; true if they will find it.
    pub fn set_rules(&mut self, version: u64, document: &[u8]) -> bool {
        self.replace(SharedValue::Rules, &[&version.to_le_bytes(), document].concat()).is_ok()
    }

    /// The parsed rule set of this version, if another worker of this program keeps it, which saves parsing it again.
    pub(super) fn parsed(&mut self, version: u64) -> Option<Arc<RuleSet>> {
        let mut parsed = None;
        self.with_values(&mut |values| parsed.clone_from(&values.parsed));
        parsed.filter(|(known, _)| *known == version).map(|(_, rules)| rules)
    }

    pub(super) fn keep_parsed(&mut self, version: u64, rules: &Arc<RuleSet>) {
        self.with_values(&mut |values| values.parsed = Some((version, Arc::clone(rules))));
    }

    /// Creates a value when a worker begins, because on Envoy the first write of a key overwrites another worker's.
    pub(super) fn open_value(&mut self, value: SharedValue) {
        if self.get(value) == Err(ReadError::Missing) {
            let _ = self.set(value, &[], Version::NONE);
        }
    }

    /// Adds the handover of a worker that ends. `add` gets the current one; it returns a new one if it adds anything.
    pub(super) fn leave(&mut self, add: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) {
        for _ in 0..LEAVES_MAX {
            let Ok((left, version)) = self.get(SharedValue::Handover) else { return };
            let Some(all) = add(&left) else { return };
            if self.set(SharedValue::Handover, &all, version) != Err(WriteError::Conflict) {
                return;
            }
        }
    }

    /// Takes the handover of ended workers, unless it is empty or another worker takes it.
    pub(super) fn take_handover(&mut self) -> Option<Vec<u8>> {
        let (bytes, version) = self.get(SharedValue::Handover).ok().filter(|(bytes, _)| !bytes.is_empty())?;
        self.set(SharedValue::Handover, &[], version).is_ok().then_some(bytes)
    }
}

/// A host in this program's own memory, for workers that run one at a time.
pub struct LocalHost {
    pub node: Option<String>,
    /// Random number for the next worker.
    pub random: u64,
    /// Wall clock, in nanoseconds since 1970.
    pub unix_ns: u64,
    identity: TableIdentity,
    slots: LocalSlots,
    values: SharedValues,
}

impl LocalHost {
    /// Creates the host of a new process. The secret must be random if clients can choose their keys.
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

    /// The host of the process that replaces this one, with the same identity and number of slots, all empty.
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

    /// Packs one line for each header: `name: value`.
    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8> {
        let line = |(name, value): &Header<'_>| [name, ": ", value, "\n"].concat();
        headers.iter().flat_map(|header| line(header).into_bytes()).collect()
    }
}
