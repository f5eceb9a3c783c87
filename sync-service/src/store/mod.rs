//! Where the budgets live: one trait, an embedded store ([`memory`]) and Redis ([`redis`]).
//!
//! A store only does what must be atomic: charge a budget, draw on a strict one, count the live POPs, put a rule set.
//! It keeps its own clock, so that all that share it agree on the time. Both stores do the same to the bit, and one
//! test suite (`tests/tests/stores/`) runs over both, and over clusters and sentinels of the latter.

pub mod address;
pub mod canary;
mod ceiling;
mod clock;
pub mod dial;
pub mod keys;
pub mod link;
pub mod memory;
pub mod orders;
pub mod redis;
pub mod rules;
pub mod stream;
mod trouble;

use std::future::Future;
use std::pin::Pin;

use thiserror::Error;
use weir_budget::ban::BannedKey;
use weir_budget::budget::{Account, BudgetId};
use weir_budget::escrow::{Draw, Drawn};
use weir_budget::hot::HotKey;
use weir_budget::plan::Entry;
use weir_budget::pops::PopNote;
use weir_wire::law::Law;

use crate::fleet::Seen;
use orders::{Change, Current, Orders};
use rules::{Kept, Put, Stored};

/// What a store's method returns.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The same for each of several things that were asked, in their order: a part of a store may be out of reach.
pub type Each<'a, T> = Pin<Box<dyn Future<Output = Vec<Result<T, StoreError>>> + Send + 'a>>;

/// For how long it counts what a weir-sync said of its busy keys, in milliseconds.
pub const BUSY_MS: u64 = 5_000;
/// Of how many weir-syncs that is kept; beyond it, what is oldest goes first.
pub const BUSY_MEMBERS_MAX: usize = weir_budget::budget::MEMBERS_MAX;

/// What one report says, budget by budget.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The member that charges: `region/replica`.
    pub member: &'a str,
    /// The POP that the counts are of.
    pub pop: &'a str,
    /// A charge per budget.
    pub entries: &'a [Entry],
}

/// Keeps budgets. Every method answers within the store's time-out.
pub trait Store: Send + Sync {
    /// Charges every entry (see [`weir_budget::budget::Budget::charge`]) and returns an account for
    /// each. One that fails may have been charged; charging again is harmless.
    fn charge<'a>(&'a self, batch: &'a Batch<'a>) -> Each<'a, Account>;

    /// Draws on strict budgets in the name of `pop` (see [`weir_budget::escrow::Escrow::draw`]) and
    /// returns what each gave. One that fails may have given; the next draw's answer contains it.
    fn draw<'a>(&'a self, pop: &'a str, draws: &'a [Draw]) -> Each<'a, Drawn>;

    /// Forgets the budget of `id`, and the strict ones by each of `laws`: the next charge or draw finds it full. Fails if
    /// not all of it is done, which may be done again.
    fn forget<'a>(&'a self, id: &'a BudgetId, laws: &'a [Law]) -> Answer<'a, ()>;

    /// Notes that `pop` is alive and returns how many POPs are, at least 1. Beyond
    /// [`weir_wire::messages::POPS_MAX`], those heard of longest ago go first.
    fn register<'a>(&'a self, pop: &'a str) -> Answer<'a, u32>;

    /// Puts a region's hot keys on the list that all share and returns the list (see
    /// [`weir_budget::hot::HotList`]).
    fn hot<'a>(&'a self, mine: &'a [HotKey]) -> Answer<'a, Vec<HotKey>>;

    /// Puts a region's bans and the keys to forget on the list that all share and returns the list, in no order: for how
    /// long from now each is banned, or told to be forgotten (see [`weir_budget::ban::BanList`]).
    fn bans<'a>(&'a self, mine: &'a [BannedKey]) -> Answer<'a, Vec<BannedKey>>;

    /// Puts a rule set as a new version (see [`rules`]), or says why not.
    fn put_rules<'a>(&'a self, put: &'a Put<'a>) -> Answer<'a, Stored>;

    /// Begins or ends a canary, or says why not (see [`canary`]).
    fn change_canary<'a>(&'a self, change: &'a canary::Change<'a>) -> Answer<'a, canary::Outcome>;

    /// The canary that runs, if one does.
    fn canary(&self) -> Answer<'_, Option<canary::Kept>>;

    /// The current version of the rule set, if one was ever put.
    fn rules_version(&self) -> Answer<'_, Option<u64>>;

    /// The document of a version that is kept.
    fn get_rules(&self, version: u64) -> Answer<'_, Option<String>>;

    /// The versions that are kept, the newest first.
    fn kept_rules(&self) -> Answer<'_, Vec<Kept>>;

    /// The version of the rule set, and the numbers of the orders and of the canary, of one moment.
    fn current(&self) -> Answer<'_, Current>;

    /// Drops the orders that have ended, makes `change`, if there is one, and says how they are (see [`orders`]).
    fn orders<'a>(&'a self, change: Option<&'a Change<'a>>) -> Answer<'a, Orders>;

    /// Notes what `member` (`region/replica`) has heard of POPs; each note expires as a POP does.
    fn note_pops<'a>(&'a self, member: &'a str, pops: &'a [PopNote]) -> Answer<'a, ()>;

    /// Every POP of the fleet that has a note (see [`crate::fleet::seen`]), by name.
    fn fleet(&self) -> Answer<'_, Vec<Seen>>;

    /// Keeps for [`BUSY_MS`] what `member` (`region/replica`) says of its busy keys (see [`crate::keys::shared`]), in place of
    /// what it said before; an empty text is none.
    fn say_busy<'a>(&'a self, member: &'a str, text: &'a str) -> Answer<'a, ()>;

    /// What every member says of its busy keys, and its name.
    fn busy(&self) -> Answer<'_, Vec<(String, String)>>;

    /// How often the store's clock jumped ahead.
    fn clock_jumps(&self) -> u64 {
        0
    }

    /// Whether it outlives this process.
    fn is_lasting(&self) -> bool {
        true
    }

    /// Whether the store is in reach; an error says why not.
    fn ping(&self) -> Answer<'_, ()>;

    /// The servers in reach that draws go to, where they count only once a replica has them.
    fn masters(&self) -> Vec<Master> {
        Vec::new()
    }
}

/// A server whose replicas are waited for.
#[derive(Clone, Debug)]
pub struct Master {
    /// Where it is.
    pub server: String,
    /// Whether a replica has confirmed what was sent last; an error says why none has.
    pub confirms: Result<(), StoreError>,
}

/// Why a store did not answer. None of the texts holds a password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Nothing was tried yet.
    #[error("the store is out of reach: not connected yet")]
    Connecting,
    /// There is no connection, and why.
    #[error("the store is out of reach: {0}")]
    Unreachable(String),
    /// No answer in time.
    #[error("the store did not answer within {0} ms")]
    Slow(u128),
    /// It is done, but no replica has it yet.
    #[error(
        "no replica has confirmed a draw within {0} ms; see that the server has a replica, and that it is in step (INFO \
         replication), or raise store_wait_ms"
    )]
    Unconfirmed(u128),
    /// The store answered with an error.
    #[error("the store refused: {0}")]
    Refused(String),
    /// It would be one key of its rule too many.
    #[error("the rule has {0} keys in the store, the most that store_keys_max allows")]
    Full(usize),
    /// The store answered with something else than what was expected.
    #[error("the store's answer is not what was expected: {0}")]
    Nonsense(&'static str),
}

impl StoreError {
    /// Every kind.
    pub const KINDS: [&str; 6] = ["unreachable", "slow", "unconfirmed", "refused", "full", "nonsense"];

    /// Whether the store did not answer at all, or not in time.
    pub fn is_out_of_reach(&self) -> bool {
        matches!(self, Self::Connecting | Self::Unreachable(_) | Self::Slow(_))
    }

    /// Whether what was asked may have been done: only the answer was lost.
    pub fn may_be_done(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Slow(_) | Self::Unconfirmed(_) | Self::Nonsense(_) => true,
            Self::Connecting | Self::Refused(_) | Self::Full(_) => false,
        }
    }

    /// The error's kind, as a metric's label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connecting | Self::Unreachable(_) => "unreachable",
            Self::Slow(_) => "slow",
            Self::Unconfirmed(_) => "unconfirmed",
            Self::Refused(_) => "refused",
            Self::Full(_) => "full",
            Self::Nonsense(_) => "nonsense",
        }
    }
}
