//! Acquires that wait for a replica: what they cost, and what is known where none answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use weir_budget::escrow::AcquireResult;
use weir_protocol::refill_policy::RefillPolicy;
use weir_store::redis::{Options, Redis as RedisStore, Wait};
use weir_store::{Store, StoreError};
use weir_tests::link::Link;
use weir_tests::redis::{Redis, Setup, escrow_key};
use weir_tests::redis_cluster::Cluster;
use weir_tests::redis_sentinels::Sentinels;
use weir_tests::wait::until;

use crate::refusing::Log;
use crate::server::Server;
use crate::strict::{LONG_US, acquire, ask, claim};
use crate::{TIMEOUT, charge, count, entry, id, in_reach, open, options, slow};

/// Time that a replica may take.
const WAIT: Duration = Duration::from_millis(300);

/// A master, and a replica at the end of a link.
struct Pair {
    master: Redis,
    replica: Redis,
    link: Link,
}

impl Pair {
    /// Both, in step; messages between them take `delay` one way.
    async fn start(delay: Duration) -> Self {
        let master = Redis::start_with(settings(&["--repl-diskless-sync-delay", "0"])).await;
        let link = Link::start(master.address(), Duration::ZERO).await;
        let port = link.address().port().to_string();
        let replica = Redis::start_with(settings(&["--replicaof", "127.0.0.1", &port])).await;
        let mut pair = Self { master, replica, link };
        until("the replica to be in step", async || {
            let state: String = pair.replica.info("replication", "master_link_status:").await;
            (state == "up").then_some(())
        })
        .await;
        pair.link.slow_down(delay);
        pair
    }

    /// The number of `WAIT`s that the master got.
    async fn waits(&self) -> u32 {
        self.master.info("commandstats", "cmdstat_wait:calls=").await
    }
}

fn settings(all: &[&str]) -> Setup {
    Setup { settings: all.iter().map(|text| (*text).to_owned()).collect(), ..Setup::default() }
}

/// A store at `url` whose acquires wait for a replica, once all of its masters have one.
async fn waiting_at(url: &str) -> Arc<RedisStore> {
    waiting_with(url, Options { wait: Some(Wait { replicas: 1, limit: WAIT }), ..options() }).await
}

/// The same with these options.
async fn waiting_with(url: &str, options: Options) -> Arc<RedisStore> {
    let store = Arc::new(RedisStore::new(url, options).unwrap());
    until("replicas to answer", async || {
        let masters = store.masters();
        (!masters.is_empty() && masters.iter().all(|master| master.confirms.is_ok())).then_some(())
    })
    .await;
    store
}

/// Acquires `ahead` tokens of the key `value` in the name of an epoch of its own.
async fn tokens(store: &dyn Store, value: &[u8], epoch: u64, ahead: u32) -> Result<AcquireResult, StoreError> {
    ask(store, "fra1", acquire(value, slow(), LONG_US, vec![claim(epoch, 0, ahead)])).await
}

/// The results of acquires of this many keys at once, a token each.
async fn at_once(store: &Arc<RedisStore>, keys: u8) -> Vec<Result<AcquireResult, StoreError>> {
    let acquire = |key| {
        let store = Arc::clone(store);
        async move { tokens(&*store, &[key], 1, 1).await }
    };
    (0..keys).map(acquire).collect::<JoinSet<_>>().join_all().await
}

#[tokio::test]
async fn concurrent_acquires_share_one_wait() {
    let pair = Pair::start(Duration::from_millis(40)).await;
    let store = waiting_at(&pair.master.url()).await;
    let before = pair.waits().await;
    let began = Instant::now();
    let acquired = at_once(&store, 50).await;
    let (took, waits) = (began.elapsed(), pair.waits().await - before);
    assert!(
        acquired.iter().all(|acquired| acquired.as_ref().is_ok_and(|acquired| acquired.given == 1)),
        "{acquired:?}"
    );
    // The first, those that came while it was on its way, and a probe.
    assert!(waits <= 3, "{waits} for 50 acquires");
    assert!(took < 2 * WAIT, "{took:?}");
}

#[tokio::test]
async fn acquires_fail_in_time_without_a_replica() {
    let mut pair = Pair::start(Duration::ZERO).await;
    let store = waiting_at(&pair.master.url()).await;
    pair.link.silence();
    // Longer than the store is probed every.
    let ends = Instant::now() + Duration::from_secs(3);
    let (mut asked, mut tries) = (0, Vec::new());
    while Instant::now() < ends {
        let began = Instant::now();
        // It comes while the others wait, and waits for them first.
        let late = async {
            tokio::time::sleep(WAIT / 4).await;
            tokens(&*store, &[0], 2, 1).await
        };
        let charging = async {
            charge(&*store, entry(b"a", slow(), vec![count(1, 3, 3)])).await.expect("what does not wait goes on");
            began.elapsed()
        };
        let (mut acquired, late, charged) = tokio::join!(at_once(&store, 20), late, charging);
        acquired.push(late);
        tries.push(charged);
        for error in acquired.into_iter().map(|acquired| acquired.expect_err("no replica has it")) {
            assert_eq!(error.kind(), "unconfirmed", "{error}");
            asked += 1;
        }
        assert!(began.elapsed() < TIMEOUT + 2 * WAIT, "{:?}", began.elapsed());
        store.ping().await.expect("the master is in reach");
    }
    assert!(asked >= 60, "{asked}");
    assert!(tries.iter().min().is_some_and(|took| *took < WAIT), "{tries:?}");
    pair.link.heal().await;
    // What was debited meanwhile is given now.
    until("the replica's word", async || {
        let acquired = tokens(&*store, &[0], 1, 1).await.ok()?;
        assert_eq!((acquired.leases[0].charged, acquired.given), (1, 0));
        Some(())
    })
    .await;
}

#[tokio::test]
async fn the_option_sets_how_many_replicas_confirm() {
    let group = Sentinels::start_with(2).await;
    let wait = Wait { replicas: 2, limit: WAIT };
    let store = waiting_with(&group.url(), Options { wait: Some(wait), ..options() }).await;
    tokens(&*store, b"a", 1, 1).await.expect("both have it");
    group.servers[1].freeze().await;
    let denied = tokens(&*store, b"b", 1, 1).await.expect_err("only one has it");
    assert_eq!(denied.kind(), "unconfirmed");
    group.servers[1].thaw();
}

#[tokio::test]
async fn a_silent_replica_is_logged_before_an_acquire_needs_it() {
    let (log, _guard) = Log::start();
    let mut pair = Pair::start(Duration::ZERO).await;
    let server = Server::start_waiting("fra", &pair.master.url(), WAIT).await;
    server.ready().await;
    let metric = async |name: &str| {
        let page = server.page("/metrics").await.text();
        let row = format!("weir_sync_{name}{{region=\"fra\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&row)?.parse::<u32>().ok()).expect("the metric")
    };
    assert_eq!((metric("store_up").await, metric("store_masters_unreplicated").await), (1, 0));
    // A replica that has only just joined may have been late: that must be over for the next warning to be another one.
    let late = log.lines(" WARN ", "too few replicas").len();
    let is_over = async || (log.lines(" INFO ", "confirm acquired tokens again").len() == late).then_some(());
    until("the start to be over", is_over).await;
    pair.link.silence();
    until("it to be no longer ready", async || (server.page("/readyz").await.status == 503).then_some(())).await;
    assert_eq!((metric("store_up").await, metric("store_masters_unreplicated").await), (1, 1));
    assert!(server.greet("fra1").await.settled.is_all(), "what does not wait goes on");
    // It asks again and again, and logs once.
    let before = pair.waits().await;
    until("some more tries", async || (pair.waits().await >= before + 2).then_some(())).await;
    let warnings = log.lines(" WARN ", "too few replicas").split_off(late);
    let address = pair.master.address().to_string();
    assert!(
        warnings.len() == 1 && warnings[0].contains(&address) && warnings[0].contains("store_wait_ms"),
        "{warnings:#?}"
    );
    pair.link.heal().await;
    server.ready().await;
    assert_eq!(metric("store_masters_unreplicated").await, 0);
}

#[tokio::test]
async fn a_dead_replica_affects_only_its_masters_keys() {
    let mut cluster = Cluster::start(15_000).await;
    cluster.in_step().await;
    let store = waiting_at(&cluster.url()).await;
    let server = Server::start_waiting("fra", &cluster.url(), WAIT).await;
    server.ready().await;
    let hurt = cluster.master_of(&escrow_key(RefillPolicy::Continuous, &id(&[0])), 0).await.unwrap();
    let port: u16 = cluster.servers[hurt].info("replication", "slave0:ip=127.0.0.1,port=").await;
    let replica = cluster.servers.iter().position(|server| server.port() == port).expect("its replica");
    cluster.servers[replica].kill();
    until("it to be known", async || {
        let alone = store.masters().into_iter().filter(|master| master.confirms.is_err());
        let alone: Vec<_> = alone.map(|master| master.server).collect();
        (alone == [cluster.servers[hurt].address().to_string()]).then_some(())
    })
    .await;
    let (mut denied, mut given) = (0, 0);
    for key in 0..30 {
        match (
            tokens(&*store, &[key], 1, 1).await,
            cluster.master_of(&escrow_key(RefillPolicy::Continuous, &id(&[key])), 0).await,
        ) {
            (Ok(acquired), Some(master)) if master != hurt => given += acquired.given,
            (Err(error), Some(master)) if master == hurt => {
                assert_eq!(error.kind(), "unconfirmed", "{error}");
                denied += 1;
            }
            (acquired, master) => panic!("key {key} of master {master:?}: {acquired:?}"),
        }
    }
    assert!(denied >= 5 && given >= 10, "{denied} denied, {given} given");
    store.ping().await.unwrap();
    assert_eq!(server.page("/readyz").await.status, 200, "most of it works");
    let alone = r#"weir_sync_store_masters_unreplicated{region="fra"} 1"#;
    assert!(server.page("/metrics").await.text().contains(alone));
}

#[tokio::test]
async fn an_unreplicated_acquire_is_not_granted() {
    let mut pair = Pair::start(Duration::ZERO).await;
    let store = waiting_at(&pair.master.url()).await;
    assert_eq!(tokens(&*store, b"a", 1, 10).await.unwrap().given, 10);
    pair.link.silence();
    let unconfirmed = tokens(&*store, b"a", 2, 90).await;
    assert_eq!(unconfirmed.expect_err("it would be given twice").kind(), "unconfirmed");
    pair.master.kill();
    pair.link.cut().await;
    let mut connection = pair.replica.connection().await;
    let mut promote = redis::cmd("REPLICAOF");
    promote.arg(&["NO", "ONE"]).query_async::<()>(&mut connection).await.unwrap();
    let successor = open(&pair.replica.url());
    in_reach(&successor).await;
    // It knows of the ten that were granted, and gives the others once.
    let rest = tokens(&successor, b"a", 3, 100).await.unwrap();
    assert_eq!((rest.given, rest.outstanding), (90, 100));
}
