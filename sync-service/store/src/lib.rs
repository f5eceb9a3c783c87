//! Budgets, rule sets and overrides of a fleet: one trait, [`Store`], in memory ([`memory`]) or in Redis ([`redis`]).
//!
//! A store only does what must be atomic: charge a budget, acquire from a strict one, count the live POPs, put a rule
//! set. It has its own clock, so that all weir-syncs that share it agree on the time. Both stores compute the same to
//! the bit. One test suite (`tests/tests/stores/`) runs over both, and over clusters and sentinels of Redis.
//!
//! The arithmetic of budgets is weir-budget's; the Lua scripts are translations of it. Rule sets, overrides and top
//! keys are opaque texts here. weir-sync decides when to charge, and what to do without a store.
//!
//! ```
//! use std::time::Duration;
//! use weir_budget::{budget::{BudgetId, PlanEntry}, records::Count};
//! use weir_protocol::{quota::Quota, sharing::Sharing};
//! use weir_store::{ChargeBatch, Store, memory::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new(1_000, Duration::from_secs(10));
//! // A POP has admitted 70 requests of a client, whose quota is 100 at once and 10 a second.
//! let quota = Quota::from_token_ns(100_000_000, 100)?;
//! let client = BudgetId::new("per-address".into(), vec![4, 32, 192, 0, 2, 1]);
//! let mut entry = PlanEntry::new(client, quota, Sharing::of(quota));
//! entry.counts.push(Count { epoch: 1, admitted: 70, unconfirmed: 70, span_us: 0, missing: 0, made_ms: 1 });
//! let batch = ChargeBatch { replica: "eu/a", pop: "fra1", entries: &[entry] };
//! // They are charged once, however often they are reported.
//! for charged in [70, 0] {
//!     assert_eq!(store.charge(&batch).await.remove(0)?.charged, charged);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`address`] reads the store's address; [`dial`] connects, with TLS, passwords and sentinels; `link` keeps a
//! connection; [`keys`] has the names of Redis's keys. [`rules`] and [`fleet`] have the trait's types for rule sets and
//! for POPs. [`stream`] appends the audit log's lines to a Redis Stream.

#![allow(missing_docs, reason = "a name that says all needs no comment")]

pub mod address;
mod ceiling;
mod clock;
pub mod dial;
pub mod fleet;
pub mod keys;
mod link;
pub mod memory;
pub mod redis;
pub mod rules;
pub mod stream;
mod trouble;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use thiserror::Error;
use weir_budget::ban::BannedKey;
use weir_budget::budget::{Account, BudgetId, PlanEntry};
use weir_budget::escrow::{AcquireRequest, AcquireResult};
use weir_budget::hot::HotKey;
use weir_budget::pops::PopRuleSet;
use weir_protocol::refill_policy::RefillPolicy;

use fleet::Seen;
use rules::{Current, OverrideChange, RulesChange, RulesResult, StoredCanary, StoredOverrides, StoredVersion};

pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Future of a method with several items: a result for each, in order, since a part of a store may be out of reach.
pub type Each<'a, T> = Pin<Box<dyn Future<Output = Vec<Result<T, StoreError>>> + Send + 'a>>;

pub const TOP_KEYS_MS: u64 = 5_000;
/// Maximum number of weir-syncs whose top keys are kept; beyond it, the oldest are dropped first.
pub const TOP_KEYS_REPLICAS_MAX: usize = weir_budget::budget::REPLICAS_MAX;

#[derive(Clone, Copy, Debug)]
pub struct ChargeBatch<'a> {
    pub replica: &'a str,
    pub pop: &'a str,
    pub entries: &'a [PlanEntry],
}

/// Storage of budgets. Every method returns within the store's time-out.
pub trait Store: Send + Sync {
    /// Charges every entry (see [`weir_budget::budget::Budget::charge`]) and returns an account for each. An
    /// entry that fails may have been charged; charging it again is harmless.
    fn charge<'a>(&'a self, batch: &'a ChargeBatch<'a>) -> Each<'a, Account>;

    /// Acquires tokens of strict budgets in the name of `pop` (see [`weir_budget::escrow::Escrow::acquire`]) and
    /// returns the results. An acquire that fails may have debited tokens; the next acquire's result includes them.
    fn acquire<'a>(&'a self, pop: &'a str, acquires: &'a [AcquireRequest]) -> Each<'a, AcquireResult>;

    /// Forgets the budget of `id`, and the strict ones under `refill_policies`. If it fails, it may be repeated.
    fn forget<'a>(&'a self, id: &'a BudgetId, refill_policies: &'a [RefillPolicy]) -> StoreFuture<'a, ()>;

    /// Records that `pop` is alive; returns the number of live POPs, at most [`weir_protocol::messages::POPS_MAX`].
    fn register<'a>(&'a self, pop: &'a str) -> StoreFuture<'a, u32>;

    /// Adds hot keys to the list that all regions share, and returns it (see [`weir_budget::hot::HotList`]).
    fn hot<'a>(&'a self, mine: &'a [HotKey]) -> StoreFuture<'a, Vec<HotKey>>;

    /// Adds bans and resets to the list that all regions share, and returns it (see [`weir_budget::ban::BanList`]).
    fn bans<'a>(&'a self, mine: &'a [BannedKey]) -> StoreFuture<'a, Vec<BannedKey>>;

    /// Stores a rule set as a new version, or begins or ends a canary (see [`rules`]); may refuse it with the reason.
    fn change_rules<'a>(&'a self, change: &'a RulesChange<'a>) -> StoreFuture<'a, RulesResult>;

    fn canary(&self) -> StoreFuture<'_, Option<StoredCanary>>;

    fn get_rules(&self, version: u64) -> StoreFuture<'_, Option<String>>;

    fn kept_rules(&self) -> StoreFuture<'_, Vec<StoredVersion>>;

    /// Returns the numbers of the rule set, the overrides and the canary, read at one moment.
    fn current(&self) -> StoreFuture<'_, Current>;

    /// Makes `change`, if there is one, and returns all overrides that have not ended (see [`rules`]).
    fn overrides<'a>(&'a self, change: Option<&'a OverrideChange<'a>>) -> StoreFuture<'a, StoredOverrides>;

    /// Stores the rule sets of the POPs of `replica` (`region/replica`); each record expires like a POP.
    fn store_pop_records<'a>(&'a self, replica: &'a str, pops: &'a [PopRuleSet]) -> StoreFuture<'a, ()>;

    /// Returns every POP of which a replica has stored a record (see [`fleet::seen`]), by name.
    fn fleet(&self) -> StoreFuture<'_, Vec<Seen>>;

    /// Stores the top keys of `replica`, a text, for [`TOP_KEYS_MS`]; an empty text removes them.
    fn store_top_keys<'a>(&'a self, replica: &'a str, text: &'a str) -> StoreFuture<'a, ()>;

    fn top_keys(&self) -> StoreFuture<'_, Vec<(String, String)>>;

    fn clock_jumps(&self) -> u64 {
        0
    }

    /// True if its data outlives this process.
    fn is_lasting(&self) -> bool {
        true
    }

    fn ping(&self) -> StoreFuture<'_, ()>;

    /// Servers in reach whose acquires count only once replicas confirm them.
    fn masters(&self) -> Vec<Master> {
        Vec::new()
    }
}

#[derive(Clone, Debug)]
pub struct Master {
    pub server: String,
    /// Result of the last confirmation: an error if too few replicas confirmed it.
    pub confirms: Result<(), StoreError>,
}

/// Error of a store. None of the texts contains a password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    #[error("the store is out of reach: not connected yet")]
    Connecting,
    #[error("the store is out of reach: {0}")]
    Unreachable(String),
    /// There was no answer within this time, in milliseconds.
    #[error("the store did not answer within {0} ms")]
    Slow(u128),
    #[error(
        "too few replicas have confirmed an acquire within {0} ms; see that the server has store_wait_replicas of them, \
         in step (INFO replication), or raise store_wait_ms"
    )]
    Unconfirmed(u128),
    #[error("the store refused: {0}")]
    Refused(String),
    /// The rule has this number of keys, the maximum.
    #[error("the rule has {0} keys in the store, the most that store_keys_max allows")]
    Full(usize),
    #[error("the store's answer is not what was expected: {0}")]
    Invalid(&'static str),
}

impl StoreError {
    pub const KINDS: [&str; 6] = ["unreachable", "slow", "unconfirmed", "refused", "full", "invalid"];

    /// True if the store did not answer at all, or not in time.
    pub fn is_out_of_reach(&self) -> bool {
        matches!(self, Self::Connecting | Self::Unreachable(_) | Self::Slow(_))
    }

    /// True if the operation may have been carried out, with only the answer lost.
    pub fn may_be_done(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Slow(_) | Self::Unconfirmed(_) | Self::Invalid(_) => true,
            Self::Connecting | Self::Refused(_) | Self::Full(_) => false,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connecting | Self::Unreachable(_) => "unreachable",
            Self::Slow(_) => "slow",
            Self::Unconfirmed(_) => "unconfirmed",
            Self::Refused(_) => "refused",
            Self::Full(_) => "full",
            Self::Invalid(_) => "invalid",
        }
    }
}

/// Wall clock, in microseconds since 1970.
pub fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Locks `mutex`. Nothing that runs under a lock panics; if it did, the data would still be valid.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
