//! A Redis Cluster: its parts fail, move and come back by themselves.

use std::time::{Duration, Instant};

use weir_budget::budget::PlanEntry;
use weir_store::address::NodeMap;
use weir_store::redis::{Options, Redis as RedisStore};
use weir_store::{ChargeBatch, Store, StoreError};
use weir_tests::redis::budget_key;
use weir_tests::redis_cluster::Cluster;
use weir_tests::wait::until;

use crate::refusing::refusal;
use crate::suite::CALM_MS;
use crate::{TIMEOUT, assert_hardly_any_waited, charge, count, entry, id, in_reach, open, options, slow};

/// Enough keys that each master has some.
const KEYS: u8 = 60;

async fn with_a_store(timeout_ms: u32) -> (Cluster, RedisStore) {
    with_a_store_of(timeout_ms, options()).await
}

async fn with_a_store_of(timeout_ms: u32, options: Options) -> (Cluster, RedisStore) {
    let cluster = Cluster::start(timeout_ms).await;
    let store = RedisStore::new(&cluster.url(), options).unwrap();
    in_reach(&store).await;
    // Every master is connected to.
    until("every key to be charged", async || charge_all(&store, 0).await.iter().all(Result::is_ok).then_some(()))
        .await;
    (cluster, store)
}

/// Charges every key up to `admitted` tokens; what each was charged.
async fn charge_all(store: &RedisStore, admitted: u64) -> Vec<Result<u64, StoreError>> {
    let entries: Vec<PlanEntry> =
        (0..KEYS).map(|key| entry(&[key], slow(), vec![count(1, admitted, admitted)])).collect();
    let accounts = store.charge(&ChargeBatch { replica: "fra", pop: "fra1", entries: &entries }).await;
    accounts.into_iter().map(|account| account.map(|account| account.charged)).collect()
}

/// The keys whose master is `server`, according to server `asked`.
async fn keys_of(cluster: &Cluster, server: usize, asked: usize) -> Vec<bool> {
    let mut keys = Vec::new();
    for key in 0..KEYS {
        keys.push(cluster.master_of(&budget_key(&id(&[key])), asked).await == Some(server));
    }
    keys
}

#[tokio::test]
async fn a_dead_master_fails_only_its_own_keys() {
    let (mut cluster, store) = with_a_store(CALM_MS).await;
    let dead = keys_of(&cluster, 0, 1).await;
    assert!(dead.iter().any(|is_dead| *is_dead) && dead.iter().any(|is_dead| !is_dead));
    cluster.servers[0].kill();
    let (began, mut admitted, mut took) = (Instant::now(), 0, Vec::new());
    while began.elapsed() < TIMEOUT * 4 {
        admitted += 1;
        let asked_at = Instant::now();
        for (charged, is_dead) in charge_all(&store, admitted).await.into_iter().zip(&dead) {
            assert_eq!(charged.is_err(), *is_dead, "{charged:?}");
            assert!(charged.is_err() || charged == Ok(1), "{charged:?}");
        }
        took.push(asked_at.elapsed());
    }
    store.ping().await.expect("most of it is in reach");
    assert_hardly_any_waited(&took);
    cluster.servers[0].restart().await;
    until("all keys to be charged", async || {
        charge_all(&store, admitted).await.iter().all(Result::is_ok).then_some(())
    })
    .await;
    assert!(charge_all(&store, admitted + 1).await.into_iter().all(|charged| charged == Ok(1)));
}

/// A replaced master without news of that: it still serves its keys, and answers.
/// Its replacement may have a later epoch, or one that all know. (Redis 7.2 and Valkey pass on what one
/// node is made to forget, so they cannot be brought to this by it.)
#[tokio::test]
async fn an_outdated_master_is_ignored() {
    let (cluster, store) = with_a_store(CALM_MS).await;
    // Links are asked in the order of their addresses: the first one is the outdated one.
    let old = (0..3).min_by_key(|server| cluster.servers[*server].port()).unwrap();
    let other = (old + 1) % 3;
    let keys = keys_of(&cluster, old, other).await;
    let node = async |server: usize, words: &[&str]| {
        let mut command = redis::cmd("CLUSTER");
        command.arg(words).query_async::<String>(&mut cluster.servers[server].operator().await).await.unwrap()
    };
    let id = node(old, &["MYID"]).await;
    let (nodes, replica) = until("the other to know the replica", async || {
        let nodes = node(other, &["NODES"]).await;
        let line = nodes.lines().find(|line| line.contains("slave") && line.contains(&id))?;
        let port = line.split([':', '@']).nth(1)?.parse::<u16>().ok()?;
        Some((nodes.clone(), cluster.servers.iter().position(|server| server.port() == port)?))
    })
    .await;
    for line in nodes.lines().filter(|line| !line.starts_with(&id)) {
        node(old, &["FORGET", line.split(' ').next().unwrap()]).await;
    }
    node(replica, &["FAILOVER", "TAKEOVER"]).await;
    until("the others to follow", async || (keys_of(&cluster, replica, other).await == keys).then_some(())).await;
    assert!(node(old, &["INFO"]).await.contains("cluster_state:ok"));
    assert_eq!(keys_of(&cluster, old, old).await, keys, "it takes itself for their master");
    let mut admitted = 0;
    let mut report = async || {
        admitted += 1;
        charge_all(&store, admitted).await
    };
    until("the new master to be charged", async || {
        let charged = report().await;
        let stats = cluster.servers[replica].section("commandstats").await;
        (charged.iter().all(Result::is_ok) && stats.contains("cmdstat_evalsha:")).then_some(())
    })
    .await;
    // It makes good what the old one was charged meanwhile.
    assert!(report().await.iter().all(Result::is_ok));
    let at_the_old: u32 = cluster.servers[old].info("commandstats", "cmdstat_evalsha:calls=").await;
    let began = Instant::now();
    // Several looks long.
    while began.elapsed() < Duration::from_secs(3) {
        let charged = report().await;
        assert!(charged.iter().all(|charged| *charged == Ok(1)), "{charged:?}");
    }
    let after: u32 = cluster.servers[old].info("commandstats", "cmdstat_evalsha:calls=").await;
    assert_eq!(after, at_the_old, "its replies are ignored");
}

/// Each of two masters redirects to the other for the key.
#[tokio::test]
async fn only_a_key_without_a_master_is_refused() {
    let (cluster, store) = with_a_store(CALM_MS).await;
    let key = budget_key(&id(b"lost"));
    let (one, other) = match cluster.master_of(&key, 0).await.unwrap() {
        0 => (0, 1),
        master => (master, 0),
    };
    let cluster_at = async |server: usize, words: &[&str]| -> redis::Value {
        let mut connection = cluster.servers[server].operator().await;
        redis::cmd("CLUSTER").arg(words).query_async(&mut connection).await.unwrap()
    };
    let text = |value: redis::Value| -> String { redis::from_redis_value(value).unwrap() };
    let other_id = text(cluster_at(other, &["MYID"]).await);
    let slot: i64 = redis::from_redis_value(cluster_at(one, &["KEYSLOT", &key]).await).unwrap();
    cluster_at(one, &["SETSLOT", &slot.to_string(), "NODE", &other_id]).await;
    let refused =
        until("the refusal", async || charge(&store, entry(b"lost", slow(), vec![count(1, 1, 1)])).await.err()).await;
    let error = refused.to_string();
    assert!(error.contains("moving this key") && !error.contains("redis+cluster://"), "{error}");
    assert!(charge_all(&store, 1).await.into_iter().all(|charged| charged == Ok(1)), "no master is to blame");
}

#[tokio::test]
async fn nodes_are_reached_at_their_announced_addresses() {
    let cluster = Cluster::start(CALM_MS).await;
    for server in &cluster.servers {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("cluster-announce-ip").arg("192.0.2.1");
        let () = command.query_async(&mut server.operator().await).await.unwrap();
    }
    let pairs: Vec<_> =
        cluster.servers.iter().map(|server| format!("192.0.2.1:{0}=127.0.0.1:{0}", server.port())).collect();
    let nodes = NodeMap::read(&pairs.join(",")).unwrap();
    let store = RedisStore::new(&cluster.url(), Options { nodes, ..options() }).unwrap();
    until("every key to be charged", async || charge_all(&store, 1).await.iter().all(Result::is_ok).then_some(()))
        .await;
}

#[tokio::test]
async fn a_user_without_cluster_info_is_refused() {
    let cluster = Cluster::start_masters().await;
    for server in &cluster.servers {
        let mut command = redis::cmd("ACL");
        command.arg(&["SETUSER", "weir-user", "-cluster|info"]);
        let () = command.query_async(&mut server.operator().await).await.unwrap();
    }
    let error = refusal(&open(&cluster.url())).await.to_string();
    assert!(error.contains("cluster|info") && error.contains("ACL"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_no_cluster_is_refused() {
    let redis = weir_tests::redis::Redis::start().await;
    let error = refusal(&open(&redis.url().replace("redis://", "redis+cluster://"))).await.to_string();
    assert!(error.contains("cluster support disabled"), "{error}");
}
