//! In which shape budgets are kept while weir-syncs of two versions share a Redis, and that a budget is one budget meanwhile.

use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use weir_sync::store::redis::{budget_hash_key, budget_key};
use weir_sync::store::{Store, StoreError};
use weir_tests::kept_budget::{KeptBudget, Number};
use weir_tests::redis::Redis;

use crate::quota::unix_us;
use crate::{charge, charge_as, connected, count, entry, id, in_reach, open, slow};

/// What a weir-sync of the version before notes: a POP that it has heard of, and no word of strings.
const OLD: &str = "ams/0 0 0 ams1";

async fn note_an_old_one(connection: &mut MultiplexedConnection) {
    let () = connection.zadd("weir:fleet", OLD, unix_us()).await.unwrap();
}

/// Whether budget "a" is a hash, and whether it is a string.
async fn shapes(connection: &mut MultiplexedConnection) -> (bool, bool) {
    let (hash, string) = (budget_hash_key(&id(b"a")), budget_key(&id(b"a")));
    redis::pipe().exists(hash).exists(string).query_async(connection).await.unwrap()
}

/// A hash in which 60 tokens are charged, and a string of a minute before, in which there are 10 of them.
async fn rolled_back(redis: &Redis, connection: &mut MultiplexedConnection) {
    let (key, first) = (budget_key(&id(b"a")), || entry(b"a", slow(), vec![count(1, 10, 10)]));
    charge(&connected(redis).await, first()).await.unwrap();
    let mut string = KeptBudget::read(connection, &key).await.unwrap();
    let () = connection.del(&key).await.unwrap();
    note_an_old_one(connection).await;
    let hashes = connected(redis).await;
    charge(&hashes, first()).await.unwrap();
    let more = charge(&hashes, entry(b"a", slow(), vec![count(1, 60, 50)])).await.unwrap();
    assert_eq!((more.charged, shapes(connection).await), (50, (true, false)));
    string.set(Number::At, string.get(Number::At) - 60_000_000.0);
    string.write(connection, &key).await;
}

#[tokio::test]
async fn a_string_of_before_a_rollback_does_not_replace_the_hash() {
    let redis = Redis::start().await;
    let mut connection = redis.connection().await;
    rolled_back(&redis, &mut connection).await;
    let store = connected(&redis).await;
    let account = charge(&store, entry(b"a", slow(), vec![count(1, 60, 0)])).await.unwrap();
    assert_eq!(account.charged, 0, "what the hash has is not charged again");
    assert_eq!(account.deficit_ns.div_ceil(slow().token_ns()), 60);
    assert_eq!(shapes(&mut connection).await, (true, false));
}

#[tokio::test]
async fn a_hash_of_a_rollback_replaces_the_string_of_before() {
    let redis = Redis::start().await;
    let mut connection = redis.connection().await;
    rolled_back(&redis, &mut connection).await;
    let () = connection.zrem("weir:fleet", OLD).await.unwrap();
    let store = connected(&redis).await;
    let account = charge(&store, entry(b"a", slow(), vec![count(1, 60, 0)])).await.unwrap();
    assert_eq!(account.charged, 0, "what the hash has is not charged again");
    assert_eq!(account.deficit_ns.div_ceil(slow().token_ns()), 60);
    assert_eq!(shapes(&mut connection).await, (false, true));
}

#[tokio::test]
async fn a_weir_sync_that_has_just_started_charges_nothing_before_it_knows_the_shape() {
    let redis = Redis::start().await;
    let mut connection = redis.connection().await;
    note_an_old_one(&mut connection).await;
    let (store, said) = (open(&redis.url()), || entry(b"a", slow(), vec![count(1, 5, 5)]));
    assert_eq!(store.note_pops("fra/0", &[]).await, Err(StoreError::Connecting));
    assert_eq!(charge(&store, said()).await, Err(StoreError::Connecting));
    in_reach(&store).await;
    assert_eq!(charge(&store, said()).await.unwrap().charged, 5);
    assert_eq!(shapes(&mut connection).await, (true, false), "the one of the version before has hashes");
}

/// How often the notes were read whole.
async fn reads(connection: &mut MultiplexedConnection) -> u32 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.unwrap();
    let of_range = stats.lines().find_map(|line| line.strip_prefix("cmdstat_zrange:calls="));
    of_range.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn the_answer_to_one_weir_sync_serves_the_others() {
    let redis = Redis::start().await;
    let mut connection = redis.connection().await;
    let mut asked = Vec::new();
    for replica in (0..12).map(|n| ["fra/0", "fra/1", "fra/2"][n % 3]) {
        let store = connected(&redis).await;
        let before = reads(&mut connection).await;
        charge_as(&store, replica, "fra1", entry(b"a", slow(), vec![count(1, 5, 5)])).await.unwrap();
        asked.push(reads(&mut connection).await - before);
    }
    assert!(!asked[..3].contains(&0), "{asked:?}: each of these has a note that is new");
    assert!(asked.contains(&0), "{asked:?}: nobody was told what another had been told");
    note_an_old_one(&mut connection).await;
    let store = connected(&redis).await;
    charge_as(&store, "fra/0", "fra1", entry(b"a", slow(), vec![count(1, 5, 0)])).await.unwrap();
    assert_eq!(shapes(&mut connection).await, (true, false), "one more note is heard of at once");
}

#[tokio::test]
async fn a_region_whose_name_begins_with_a_digit_knows_strings_too() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    charge_as(&store, "1eu/0", "1eu1", entry(b"a", slow(), vec![count(1, 5, 5)])).await.unwrap();
    assert_eq!(shapes(&mut connection).await, (false, true));
}
