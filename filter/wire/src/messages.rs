//! The messages of the budget loop: what a point of presence reports, what weir-sync grants.
//!
//! **Form.** One version byte, then the message in [postcard](https://postcard.jamesmunns.com/wire-format)
//! (integers are varints, so a hot key costs a few bytes). Sent as [`CONTENT_TYPE`].
//!
//! **Counts are cumulative.** A report says how much a bucket has admitted and been asked for since
//! the bucket's epoch began, not since the last report. A report that is lost, repeated, overtaken
//! by the next one or sent by two workers is therefore harmless: the receiver takes the maximum per
//! `(pop, epoch)`. A reply confirms the counts of those keys that it says are settled, and no others. The sequence
//! number only tells a stale report from a fresh one.
//!
//! **Versions.** Each end reads the latest version and the one before ([`Version`]), and weir-sync answers in the one
//! that it was asked in. So weir-syncs are upgraded first, and POPs after them; a POP that meets an older weir-sync
//! speaks the version before. What differs between the two: in the version before, a reply is settled as a whole or
//! not at all.
//!
//! **Push rides on replies.** A POP reports every interval, even with nothing to say but that it is up. So
//! pushed news reaches it within one interval, and no connection is held open for that.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::quota::Quota;
use crate::sharing::Sharing;

/// A version of the messages; a receiver refuses any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The one before.
    Before = 5,
    /// The latest.
    #[default]
    Latest = 6,
}

impl Version {
    /// Every version that is read, the latest first.
    pub const ALL: [Self; 2] = [Self::Latest, Self::Before];

    /// The byte that a message of this version begins with.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Makes an encoded message one of this version: a report in any case, a reply if [`Settled::But`] is not in it. They
    /// have the same form in both.
    pub fn put(self, message: &mut [u8]) {
        if let Some(first) = message.first_mut() {
            *first = self.byte();
        }
    }

    fn of(byte: u8) -> Result<Self, WireError> {
        Self::ALL.into_iter().find(|version| version.byte() == byte).ok_or(WireError::Version(byte))
    }
}

/// The media type both messages travel as.
pub const CONTENT_TYPE: &str = "application/vnd.weir.sync";
/// The path a report is sent to, by POST.
pub const REPORT_PATH: &str = "/v1/report";
/// The longest name of a POP, in bytes.
pub const POP_NAME_MAX: usize = 64;
/// The longest name of a rule, in bytes.
pub const RULE_NAME_MAX: usize = 64;
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64;
/// The most rules one report may refer to.
pub const RULES_MAX: usize = 1_000;
/// The most keys one report may carry; the rest wait for the next.
pub const KEYS_MAX: usize = 1_000;
/// The largest message either end accepts, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// The most parts that a grant divides a rate into.
pub const PARTS_MAX: u32 = 4_095;
/// The most bans one message may carry; the rest wait for the next.
pub const BANS_MAX: usize = 250;
/// The longest that a key may be banned, in milliseconds: a week.
pub const BAN_MS_MAX: u32 = 7 * 86_400_000;
/// The path a rule set is fetched from, by GET, with `?version=N`.
pub const RULES_PATH: &str = "/v1/rules";
/// The most POPs that a fleet has.
pub const POPS_MAX: u32 = 10_000;
/// The most workers that share what their POP may report.
pub const WORKERS_MAX: u32 = 128;

// A report with every field at its limit must fit.
const _: () = assert!(
    KEYS_MAX * (KEY_BYTES_MAX + 64) + RULES_MAX * (RULE_NAME_MAX + 24) + BANS_MAX * (KEY_BYTES_MAX + 10)
        < MESSAGE_BYTES_MAX
);

/// What one worker of a POP tells weir-sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The POP's name, the same for all its workers.
    pub pop: String,
    /// A random name of the worker's VM.
    pub worker: u64,
    /// Counts this worker's reports, from 1.
    pub sequence: u64,
    /// A random name of the POP's table: an epoch is unique within one table only.
    pub table: u32,
    /// When it was made, in milliseconds of the POP's monotonic clock, which all workers of a table share.
    pub made_ms: u64,
    /// How many POPs the fleet has, as last told by a weir-sync that knew; 0 if none ever did. A weir-sync that starts
    /// without its store uses this.
    pub pops: u32,
    /// Which rule set the worker runs.
    pub running: Running,
    /// Which replies to its reports it got.
    pub replies: Replies,
    /// The rules that `keys` refer to.
    pub rules: Vec<Rule>,
    /// The keys with something to report. A report without keys is a greeting, which counts the POP as live.
    pub keys: Vec<Key>,
    /// Keys that were banned here; every POP is to hear of them.
    pub bans: Vec<Ban>,
}

/// Which replies to its reports a worker got. What a lost reply pushed is pushed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replies {
    /// It no longer waits for a reply to any report up to this sequence.
    pub done: u64,
    /// The latest report whose reply it gave up on.
    pub lost: u64,
}

/// Which rule set a worker runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its version; 0 is the one in the plugin configuration.
    pub version: u64,
    /// The latest pushed version that it could not use; 0 if none.
    pub refused: u64,
}

/// A ban: a key that a rule's penalty refuses for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// Index into the message's `rules`.
    pub rule: u16,
    /// The key's value in canonical form.
    pub value: Vec<u8>,
    /// For how long from now, in milliseconds; at most [`BAN_MS_MAX`].
    pub for_ms: u32,
}

/// A rule as weir-sync needs it: whose budget, and how large.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Names the budget together with the key.
    pub name: String,
    /// How large the budget is.
    pub quota: Quota,
    /// How POPs share it.
    pub sharing: Sharing,
}

/// One bucket's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Index into [`Report::rules`].
    pub rule: u16,
    /// The key's value in canonical form, the same at every POP.
    pub value: Vec<u8>,
    /// Identifies, within the table, the time that the counts cover; a new epoch's counts start at zero.
    pub epoch: u32,
    /// Tokens admitted since the epoch began.
    pub admitted: u64,
    /// The part of `admitted` that no reply has confirmed yet: what to charge if the receiver has no
    /// record of this epoch (it was restarted or flushed, or it forgot).
    pub unconfirmed: u64,
    /// How long before the report the first of the unconfirmed tokens may have been admitted, in
    /// milliseconds. The budget has refilled since, so it is not charged as if all were taken now.
    pub span_ms: u32,
    /// For a warm key, which is reported late: how many tokens the bucket lacks until it is full. At most that
    /// many of the unconfirmed tokens were admitted too recently to have been refilled.
    pub missing: u32,
    /// Tokens asked for, admitted or not, since the epoch began.
    pub asked: u64,
    /// The part of `asked` that is in no earlier report of this worker, failed reports aside: the demand to
    /// assume if the receiver has no record of this epoch, or if other receivers hear some of the reports.
    pub asked_recently: u64,
    /// For a strict rule, how many tokens beyond `admitted` the POP wants debited in advance.
    pub ahead: u32,
}

impl Report {
    /// The epoch of `key`, unique among all epochs that its POP ever had.
    pub fn epoch(&self, key: &Key) -> u64 {
        u64::from(self.table) << 32 | u64::from(key.epoch)
    }
}

/// What weir-sync answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The sequence number of the report this answers.
    pub sequence: u64,
    /// Live POPs in the fleet, at least 1: an even share is a quota divided by this.
    pub pops: u32,
    /// Whether `pops` is a guess: the sender knows of no POPs but those that report to it.
    pub is_guess: bool,
    /// Which of the report's keys are charged: their counts are confirmed. What is granted for the others comes out of the
    /// region's own share, unless they are charged in part.
    pub settled: Settled,
    /// An allowance for each key of the report, in the report's order. Empty if there is nothing to say
    /// about them; then nothing changes.
    pub grants: Vec<Allowance>,
    /// The version of the rule set that the fleet is to run; 0 if none was ever pushed.
    pub rule_set: u64,
    /// The names of the rules that `pushed` and `bans` refer to.
    pub rules: Vec<String>,
    /// Grants for hot keys that the report did not name, so that the POP holds them before the key's
    /// client arrives there.
    pub pushed: Vec<Pushed>,
    /// Keys that were banned elsewhere recently.
    pub bans: Vec<Ban>,
    /// How many workers of the POP report keys, and so share what it may report; 0 if unknown.
    pub workers: u32,
}

/// Which keys of a report are charged in full. The others' budgets are out of reach, or what they claim is refused or more
/// than their POP may claim at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// A part: a bit for each key, in the report's order and from the lowest bit of each byte, says that it is not.
    But(Vec<u8>),
}

impl Settled {
    /// What is to be said of these keys, in the report's order: whether each is charged.
    pub fn of(charged: impl ExactSizeIterator<Item = bool>) -> Self {
        let keys = charged.len();
        let (mut but, mut failed) = (alloc::vec![0; keys.div_ceil(8)], 0);
        for (place, _) in charged.enumerate().filter(|(_, is_charged)| !is_charged) {
            if let Some(bits) = but.get_mut(place / 8) {
                *bits |= 1 << (place % 8);
                failed += 1;
            }
        }
        match failed {
            0 => Self::All,
            failed if failed == keys => Self::None,
            _ => Self::But(but),
        }
    }

    /// Whether all keys are charged.
    pub fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether the key at this place in the report is charged.
    pub fn covers(&self, place: usize) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::But(but) => but.get(place / 8).is_some_and(|bits| bits >> (place % 8) & 1 == 0),
        }
    }
}

impl Reply {
    /// The reply's bytes in this version. The one before has no word for a part of the keys, and is told of none.
    pub fn encode_as(mut self, version: Version) -> Vec<u8> {
        if version == Version::Before && matches!(self.settled, Settled::But(_)) {
            self.settled = Settled::None;
        }
        let mut bytes = self.encode();
        version.put(&mut bytes);
        bytes
    }
}

/// A grant for a key that a POP did not ask about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pushed {
    /// Index into [`Reply::rules`].
    pub rule: u16,
    /// The key's value in canonical form.
    pub value: Vec<u8>,
    /// The quota that the grant is a part of. A POP whose rule has another quota, older or newer, ignores the grant.
    pub quota: Quota,
    /// What the POP may do with it.
    pub grant: Grant,
}

/// What weir-sync says about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allowance {
    /// Far from its quota: no other POP needs to hear of it, and it is reported less often.
    Warm,
    /// Close to its quota.
    Hot(Grant),
    /// A key of a strict rule.
    Leased(Leased),
}

impl Allowance {
    /// The grant, if the key is hot.
    pub fn grant(&self) -> Option<&Grant> {
        if let Self::Hot(grant) = self { Some(grant) } else { None }
    }
}

/// Tokens that were debited from the budget in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// All tokens debited for the key's epoch since it began, including those it has admitted since.
    pub charged: u64,
    /// How long they may be spent, in milliseconds from when the report was made.
    pub lease_ms: u32,
    /// If fewer tokens were debited than wanted: how long after the answer there may be more, in
    /// milliseconds; 0 if unknown.
    pub wait_ms: u64,
    /// What the budget has left, if the quota is a calendar's.
    pub left: u32,
}

impl Leased {
    /// No lease: the epoch is over, or the store is out of reach.
    pub const NONE: Self = Self { charged: 0, lease_ms: 0, wait_ms: 0, left: 0 };

    /// `charged` tokens that may be spent for `lease_ms`; nothing more is known.
    pub const fn of(charged: u64, lease_ms: u32) -> Self {
        Self { charged, lease_ms, ..Self::NONE }
    }
}

/// What a POP may do with one hot key now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The fraction of the key's requests to let through.
    pub ratio: AdmitRatio,
    /// The most that the POP's bucket may have held when it made the report, in thousandths of a
    /// token; negative is debt. The POP subtracts what it has admitted since.
    pub level_milli: i64,
    /// The most tokens that the POP's bucket may hold while the grant is valid.
    pub burst: u32,
    /// While the grant is valid, the POP's bucket refills at the rate divided by this; a number above
    /// [`PARTS_MAX`] counts as [`PARTS_MAX`].
    pub parts: u32,
    /// How long the grant is valid, in milliseconds from its arrival.
    pub lease_ms: u32,
}

/// A fraction from 0 to 1, in steps of 2^-30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct AdmitRatio(u32);

impl AdmitRatio {
    /// Admit nothing.
    pub const ZERO: Self = Self(0);
    /// Admit everything the bucket has.
    pub const ONE: Self = Self(1 << 30);

    /// `part / whole`, rounded down; 1 if `part` is at least `whole`, even if both are zero.
    pub const fn of(part: u64, whole: u64) -> Self {
        if part >= whole {
            return Self::ONE;
        }
        // part < whole, so the quotient is below 2^30 and the cast loses nothing.
        #[allow(clippy::cast_possible_truncation, reason = "below 2^30, see above")]
        Self(((part as u128 * Self::ONE.0 as u128) / whole as u128) as u32)
    }

    /// In steps of 2^-30.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// From steps of 2^-30; anything above 1 is 1.
    pub const fn from_bits(bits: u32) -> Self {
        if bits > Self::ONE.0 { Self::ONE } else { Self(bits) }
    }
}

impl From<AdmitRatio> for u32 {
    fn from(ratio: AdmitRatio) -> Self {
        ratio.0
    }
}

impl TryFrom<u32> for AdmitRatio {
    type Error = &'static str;

    fn try_from(bits: u32) -> Result<Self, Self::Error> {
        if bits > Self::ONE.0 { Err("an admit ratio above 1") } else { Ok(Self(bits)) }
    }
}

/// Why a message could not be read. Each says what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// No bytes at all.
    Empty,
    /// A version that is none of [`Version::ALL`].
    Version(u8),
    /// Larger than [`MESSAGE_BYTES_MAX`].
    TooLarge(usize),
    /// Not a message of the expected kind.
    Malformed,
    /// Readable, but a field is out of its limits; names the field.
    Limit(&'static str),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the message is empty: expected a version byte and a body"),
            Self::Version(v) => {
                let [latest, before] = Version::ALL.map(Version::byte);
                write!(f, "the message has version {v}, expected {latest} or {before}")
            }
            Self::TooLarge(n) => {
                write!(f, "the message has {n} bytes, expected at most {MESSAGE_BYTES_MAX}")
            }
            Self::Malformed => f.write_str("the message's body is malformed"),
            Self::Limit(field) => write!(f, "a field is out of its limits: {field}"),
        }
    }
}

impl core::error::Error for WireError {}

/// A message of the budget loop.
pub trait Message: Serialize + DeserializeOwned {
    /// Checks what decoding does not: that every field is within its limits.
    fn validate(&self) -> Result<(), WireError>;

    /// The message's bytes, in the latest version.
    fn encode(&self) -> Vec<u8> {
        // Neither message holds anything postcard cannot write (no sequence of unknown length);
        // should that change, the receiver refuses the lone version byte.
        postcard::to_extend(self, alloc::vec![Version::Latest.byte()]).unwrap_or_default()
    }

    /// The message in `bytes`, checked.
    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        Self::read(bytes).map(|(_, message)| message)
    }

    /// The message in `bytes`, checked, and its version.
    fn read(bytes: &[u8]) -> Result<(Version, Self), WireError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(WireError::TooLarge(bytes.len()));
        }
        let (&first, body) = bytes.split_first().ok_or(WireError::Empty)?;
        let version = Version::of(first)?;
        let (message, rest) = postcard::take_from_bytes::<Self>(body).map_err(|_| WireError::Malformed)?;
        if !rest.is_empty() {
            return Err(WireError::Malformed);
        }
        message.validate()?;
        Ok((version, message))
    }
}

impl Message for Report {
    fn validate(&self) -> Result<(), WireError> {
        let name_fits = |name: &str, max: usize| (1..=max).contains(&name.len());
        expect("pop", name_fits(&self.pop, POP_NAME_MAX))?;
        expect("pops", self.pops <= POPS_MAX)?;
        expect("rules", self.rules.len() <= RULES_MAX)?;
        for rule in &self.rules {
            expect("rules[].name", name_fits(&rule.name, RULE_NAME_MAX))?;
            expect("rules[].sharing", rule.sharing.fits(rule.quota))?;
        }
        expect("keys", self.keys.len() <= KEYS_MAX)?;
        for key in &self.keys {
            expect("keys[].rule", usize::from(key.rule) < self.rules.len())?;
            expect("keys[].value", (1..=KEY_BYTES_MAX).contains(&key.value.len()))?;
            expect("keys[].admitted", key.admitted <= key.asked && key.unconfirmed <= key.admitted)?;
            expect("keys[].asked_recently", key.asked_recently <= key.asked)?;
        }
        check_bans(&self.bans, self.rules.len())
    }
}

impl Message for Reply {
    fn validate(&self) -> Result<(), WireError> {
        expect("pops", (1..=POPS_MAX).contains(&self.pops))?;
        expect("grants", self.grants.len() <= KEYS_MAX)?;
        let bits = if let Settled::But(but) = &self.settled { Some(but.len()) } else { None };
        expect("settled", bits.is_none_or(|bytes| bytes == self.grants.len().div_ceil(8)))?;
        expect("rules", self.rules.len() <= RULES_MAX)?;
        expect("pushed", self.pushed.len() <= KEYS_MAX)?;
        let is_named = |pushed: &Pushed| usize::from(pushed.rule) < self.rules.len();
        expect("pushed[].rule", self.pushed.iter().all(is_named))?;
        check_bans(&self.bans, self.rules.len())
    }
}

fn check_bans(bans: &[Ban], rules: usize) -> Result<(), WireError> {
    let fits = |ban: &Ban| {
        usize::from(ban.rule) < rules
            && (1..=KEY_BYTES_MAX).contains(&ban.value.len())
            && ban.for_ms <= BAN_MS_MAX
    };
    expect("bans", bans.len() <= BANS_MAX)?;
    expect("bans[]", bans.iter().all(fits))
}

fn expect(field: &'static str, is_within_limits: bool) -> Result<(), WireError> {
    if is_within_limits { Ok(()) } else { Err(WireError::Limit(field)) }
}
