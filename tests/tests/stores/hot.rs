//! The list of hot keys in Redis, as weir-syncs hear of it: by its changes.

use redis::AsyncCommands;
use weir_budget::hot::{HOT_MAX, HotKey};
use weir_protocol::sharing::Sharing;
use weir_sync::store::Store;
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::equality::Random;
use crate::{connected, id, slow};

fn key(value: u64, rests: bool, rank: u8) -> HotKey {
    HotKey { id: id(&value.to_be_bytes()), quota: slow(), sharing: Sharing::of(slow()), rests, rank }
}

#[tokio::test]
async fn a_list_that_is_heard_by_its_changes_is_the_list() {
    let redis = Redis::start().await;
    let (names, hears) = (connected(&redis).await, connected(&redis).await);
    let mut random = Random(7);
    for round in 0..6 {
        for _ in 0..10 {
            let some = (0..20).map(|_| key(random.below(60), random.below(3) == 0, 1)).collect::<Vec<_>>();
            names.hot(&some).await.unwrap();
            hears.hot(&[]).await.unwrap();
        }
        let new = connected(&redis).await;
        // Keys leave the list all the time.
        until("both to be the same", async || {
            let whole = new.hot(&[]).await.unwrap();
            (hears.hot(&[]).await.unwrap() == whole).then_some(())
        })
        .await;
        assert!(round > 0 || !hears.hot(&[]).await.unwrap().is_empty());
    }
}

/// Bytes that Redis sends for one look at the list.
async fn sent(store: &dyn Store, connection: &mut redis::aio::MultiplexedConnection) -> u64 {
    let mut total = async || -> u64 {
        let info: String = redis::cmd("INFO").arg("stats").query_async(connection).await.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        line.unwrap().trim().parse().unwrap()
    };
    let before = total().await;
    store.hot(&[]).await.unwrap();
    total().await - before
}

#[tokio::test]
async fn a_full_list_that_stays_the_same_is_not_sent_again_whoever_else_wants_to_be_on_it() {
    let redis = Redis::start().await;
    let (names, other) = (connected(&redis).await, connected(&redis).await);
    let (hears, mut connection) = (connected(&redis).await, redis.connection().await);
    let full: Vec<_> = (0..HOT_MAX as u64).map(|value| key(value, false, 1)).collect();
    let more: Vec<_> = (0..HOT_MAX as u64).map(|value| key(value + 100_000, false, 1)).collect();
    names.hot(&full).await.unwrap();
    let first = sent(&hears, &mut connection).await;
    assert!(first > 100_000, "{first} bytes of a list of {HOT_MAX}");
    // Whatever INFO itself takes is sent between the two looks at the count, too.
    until("nothing but changes to be sent", async || {
        names.hot(&full).await.unwrap();
        other.hot(&more).await.unwrap();
        (sent(&hears, &mut connection).await < 10_000).then_some(())
    })
    .await;
    assert_eq!(hears.hot(&[]).await.unwrap().len(), HOT_MAX);
    let urgent = key(1 << 40, false, 3);
    other.hot(std::slice::from_ref(&urgent)).await.unwrap();
    let list = hears.hot(&[]).await.unwrap();
    assert!(list.len() == HOT_MAX && list.iter().any(|key| key.id == urgent.id), "one of no rank makes room");
}

#[tokio::test]
async fn what_an_older_weir_sync_lists_is_heard_and_what_this_one_lists_it_hears() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    store.hot(&[key(1, false, 1)]).await.unwrap();
    // It reads the sorted set, and adds to it alone.
    let listed: Vec<(String, f64)> = connection.zrange_withscores("weir:hot", 0, -1).await.unwrap();
    let [(text, rank)] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!(*text, key(1, false, 0).to_string());
    let () = connection.zadd("weir:hot", key(2, false, 1).to_string(), *rank).await.unwrap();
    assert_eq!(connected(&redis).await.hot(&[]).await.unwrap().len(), 2);
}
