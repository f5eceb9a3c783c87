//! One suite for every store: what holds for budgets in memory holds for budgets in a real Redis.

mod equality;
mod failing;
mod refusing;
mod sentinels;
mod server;
mod slow;
#[macro_use]
mod suite;
mod audit_log;
mod bans;
mod canary;
mod ceiling;
mod clock;
mod clock_equality;
mod cluster;
mod connecting;
mod overrides;
mod prefix;
mod quota;
mod replicas;
mod rules;
mod strict;
mod strict_equality;
mod together;
mod top_keys;

use std::time::Duration;

use weir_budget::budget::{Account, BudgetId, Count, PlanEntry};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_store::address::NodeMap;
use weir_store::dial::LoginFiles;
use weir_store::memory::MemoryStore;
use weir_store::redis::{Options, Redis as RedisStore};
use weir_store::{ChargeBatch, Store, StoreError};
use weir_tests::redis::Redis;
use weir_tests::wait::until;

/// Time for which a POP counts as alive in these tests: long enough for the slowest machine to report two
/// things within it.
const POP_TTL: Duration = Duration::from_secs(2);

/// Time that an answer of Redis may take in tests of slow answers.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The same in all others, so that a busy machine fails none of them.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fails if most of these took as long as an answer that does not come: a busy machine delays a few.
fn assert_hardly_any_waited(took: &[Duration]) {
    let waited = took.iter().filter(|took| **took >= TIMEOUT).count();
    assert!(2 * waited < took.len(), "{waited} of {} waited for an answer: {took:?}", took.len());
}

fn memory() -> MemoryStore {
    memory_with(POP_TTL)
}

/// A store in memory where a POP counts as alive for `pop_ttl`.
fn memory_with(pop_ttl: Duration) -> MemoryStore {
    MemoryStore::new(1_000, pop_ttl)
}

/// A store on `redis`, connected.
async fn connected(redis: &Redis) -> RedisStore {
    connected_with(redis, POP_TTL).await
}

/// The same where a POP counts as alive for `pop_ttl`.
async fn connected_with(redis: &Redis, pop_ttl: Duration) -> RedisStore {
    connected_at(&redis.url(), pop_ttl).await
}

/// A patient store at `url`, connected, where a POP counts as alive for `pop_ttl`.
async fn connected_at(url: &str, pop_ttl: Duration) -> RedisStore {
    let store = RedisStore::new(url, Options { pop_ttl, response_timeout: PATIENCE, ..options() }).unwrap();
    in_reach(&store).await;
    store
}

/// The demand, which is there in full.
fn all<T>(answers: Vec<Result<T, StoreError>>) -> Vec<T> {
    answers.into_iter().collect::<Result<_, _>>().unwrap()
}

fn open(url: &str) -> RedisStore {
    open_with(url, &LoginFiles::default())
}

/// A store that takes the password and the certificates from files.
fn open_with(url: &str, files: &LoginFiles) -> RedisStore {
    RedisStore::new(url, Options { files: files.clone(), ..options() }).unwrap()
}

fn options() -> Options {
    Options {
        prefix: "weir".into(),
        response_timeout: TIMEOUT,
        pop_ttl: POP_TTL,
        files: LoginFiles::default(),
        nodes: NodeMap::default(),
        wait: None,
        keys_max: 1_000_000,
    }
}

async fn in_reach(store: &dyn Store) {
    until("the store to be in reach", async || store.ping().await.ok()).await;
}

fn quota(count: u32, period: Period, burst: u32) -> Quota {
    Quota::new(Rate::new(count, period).unwrap(), burst).unwrap()
}

/// So slow that nothing refills while a test runs: a token is worth a day.
fn slow() -> Quota {
    quota(1, Period::Day, 100)
}

fn id(value: &[u8]) -> BudgetId {
    BudgetId::new("per-address".into(), value.to_vec())
}

fn count(epoch: u64, admitted: u64, unconfirmed: u64) -> Count {
    Count { epoch, admitted, unconfirmed, span_us: 0, missing: 0, made_ms: 0 }
}

fn entry(value: &[u8], quota: Quota, counts: Vec<Count>) -> PlanEntry {
    PlanEntry { counts, ..PlanEntry::new(id(value), quota, Sharing::of(quota)) }
}

/// Charges one budget in the name of region "fra" and POP "fra1".
async fn charge(store: &dyn Store, entry: PlanEntry) -> Result<Account, StoreError> {
    charge_as(store, "fra", "fra1", entry).await
}

async fn charge_as(store: &dyn Store, replica: &str, pop: &str, entry: PlanEntry) -> Result<Account, StoreError> {
    let batch = ChargeBatch { replica, pop, entries: &[entry] };
    let mut accounts = store.charge(&batch).await;
    assert_eq!(accounts.len(), 1);
    accounts.remove(0)
}
