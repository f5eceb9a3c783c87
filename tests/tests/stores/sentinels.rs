//! A Redis whose master sentinels name.

use std::time::{Duration, Instant};

use weir_sync::store::Store;
use weir_sync::store::redis::Redis as RedisStore;
use weir_tests::redis_sentinels::{MASTER, Sentinels};
use weir_tests::wait::until;

use crate::{charge, count, entry, in_reach, open, slow};

/// How long a charge that is tried again and again goes unanswered; what was charged stays charged.
async fn outage(store: &RedisStore) -> Duration {
    let began = Instant::now();
    until("charges to go on", async || charge(store, entry(b"a", slow(), vec![count(1, 12, 2)])).await.ok())
        .await;
    began.elapsed()
}

/// Waits until the replica has what the master has.
async fn in_step(group: &Sentinels) {
    let mut connection = group.servers[0].operator().await;
    until("the replica to be in step", async || {
        let mut command = redis::cmd("WAIT");
        let replicas: u32 = command.arg(1).arg(100).query_async(&mut connection).await.ok()?;
        (replicas == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_killed_master_is_replaced_and_what_it_knew_is_known() {
    let mut group = Sentinels::start().await;
    let store = open(&group.url());
    in_reach(&store).await;
    assert_eq!(charge(&store, entry(b"a", slow(), vec![count(1, 10, 10)])).await.unwrap().charged, 10);
    in_step(&group).await;
    group.servers[0].kill();
    let began = Instant::now();
    until("the sentinels to name the other", async || {
        // Each failure asks the sentinels again.
        let _ = charge(&store, entry(b"a", slow(), vec![count(1, 11, 1)])).await;
        (group.master().await == Some(1)).then_some(())
    })
    .await;
    let named = began.elapsed();
    let took = outage(&store).await;
    println!("another master after {named:?}, charges after {took:?} more");
    let account = charge(&store, entry(b"a", slow(), vec![count(1, 13, 13)])).await.unwrap();
    assert_eq!((account.charged, account.deficit_ns.div_ceil(slow().token_ns())), (1, 13), "each token once");
}

#[tokio::test]
async fn a_master_that_is_made_a_replica_is_left() {
    let mut group = Sentinels::start().await;
    group.kill_a_sentinel();
    group.fail_over_by(1).await;
    let store = open(&group.url());
    until("the sentinels to name the other", async || (group.master().await == Some(1)).then_some(())).await;
    in_reach(&store).await;
    assert_eq!(charge(&store, entry(b"a", slow(), vec![count(1, 10, 10)])).await.unwrap().charged, 10);
    until("the old master to follow", async || {
        let role: Vec<redis::Value> =
            redis::cmd("ROLE").query_async(&mut group.servers[0].operator().await).await.ok()?;
        role.first().is_some_and(|role| *role == redis::Value::BulkString(b"slave".into())).then_some(())
    })
    .await;
    group.fail_over_by(1).await;
    until("the sentinels to name the first again", async || (group.master().await == Some(0)).then_some(()))
        .await;
    let took = outage(&store).await;
    println!("charges {took:?} after the sentinels named another");
    assert_eq!(charge(&store, entry(b"a", slow(), vec![count(1, 12, 12)])).await.unwrap().charged, 0);
}

#[tokio::test]
async fn sentinels_that_know_no_such_master_are_quoted() {
    let group = Sentinels::start().await;
    let store = open(&group.url().replace(&format!("/{MASTER}"), "/other"));
    until("the reason", async || {
        let error = store.ping().await.unwrap_err().to_string();
        assert!(!error.contains("horse"), "{error}");
        error.contains("knows no master `other`").then_some(())
    })
    .await;
}
