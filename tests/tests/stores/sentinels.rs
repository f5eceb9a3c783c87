//! A Redis whose master sentinels name.

use std::fs;
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use weir_store::Store;
use weir_store::dial::LoginFiles;
use weir_store::redis::Redis as RedisStore;
use weir_tests::redis::{OPERATOR, budget_key};
use weir_tests::redis_sentinels::{MASTER, Sentinels, WATCHER};
use weir_tests::wait::until;

use crate::refusing::refusal;
use crate::{charge, count, entry, id, in_reach, open, open_with, slow};

/// Time for which a charge that is tried again and again goes unanswered; charged tokens stay charged.
async fn outage(store: &RedisStore) -> Duration {
    let began = Instant::now();
    until("charges to go on", async || charge(store, entry(b"a", slow(), vec![count(1, 12, 2)])).await.ok()).await;
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
async fn a_demoted_master_is_left() {
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
    until("the sentinels to name the first again", async || (group.master().await == Some(0)).then_some(())).await;
    let took = outage(&store).await;
    println!("charges {took:?} after the sentinels named another");
    assert_eq!(charge(&store, entry(b"a", slow(), vec![count(1, 12, 12)])).await.unwrap().charged, 0);
}

#[tokio::test]
async fn an_unknown_master_is_reported_by_sentinels() {
    let group = Sentinels::start().await;
    let store = open(&group.url().replace(&format!("/{MASTER}"), "/other"));
    until("the reason", async || {
        let error = store.ping().await.unwrap_err().to_string();
        assert!(!error.contains("horse"), "{error}");
        error.contains("knows no master `other`").then_some(())
    })
    .await;
}

/// The sentinels cannot ask the old master any more, and weir-sync still can.
#[tokio::test]
async fn a_master_lost_by_the_sentinels_is_left() {
    let group = Sentinels::start().await;
    let store = open(&group.url());
    in_reach(&store).await;
    assert_eq!(charge(&store, entry(b"a", slow(), vec![count(1, 10, 10)])).await.unwrap().charged, 10);
    in_step(&group).await;
    let mut old = group.servers[0].operator().await;
    let mut command = redis::cmd("ACL");
    command.arg(&["SETUSER", OPERATOR, "-@all"]).query_async::<()>(&mut old).await.unwrap();
    until("the sentinels to name the other", async || (group.master().await == Some(1)).then_some(())).await;
    let (began, mut new) = (Instant::now(), group.servers[1].operator().await);
    until("the other to be charged", async || {
        // It would do for the old one.
        let account = charge(&store, entry(b"b", slow(), vec![count(1, 1, 1)])).await;
        let is_there: bool = new.exists(budget_key(&id(b"b"))).await.unwrap();
        (account.is_ok() && is_there).then_some(())
    })
    .await;
    println!("the other was charged {:?} after the sentinels named it", began.elapsed());
    assert_eq!(charge(&store, entry(b"a", slow(), vec![count(1, 12, 2)])).await.unwrap().charged, 2);
}

#[tokio::test]
async fn sentinels_have_credentials_of_their_own() {
    let group = Sentinels::start_guarded().await;
    let (user, password) = WATCHER;
    let file = tempfile::NamedTempFile::new().unwrap();
    let files = LoginFiles {
        sentinel_user: Some(user.into()),
        sentinel_password: Some(file.path().to_str().unwrap().into()),
        ..LoginFiles::default()
    };
    fs::write(file.path(), format!("{password}\n")).unwrap();
    in_reach(&open_with(&group.url(), &files)).await;
    // What the servers know the sentinels need not.
    let without = refusal(&open(&group.url())).await;
    let sentinel = group.addresses()[0].to_string();
    let error = without.to_string();
    assert_eq!(without.kind(), "refused", "{error}");
    assert!(error.contains(&sentinel) && error.contains("store_sentinel_password_file"), "{error}");
    fs::write(file.path(), "battery-staple").unwrap();
    let wrong = refusal(&open_with(&group.url(), &files)).await.to_string();
    assert!(wrong.contains("password") && !wrong.contains("battery"), "{wrong}");
}
