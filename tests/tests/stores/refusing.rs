//! A Redis that answers, and refuses what weir-sync has to do there: the error has the reason, and the Redis is no
//! store.

use std::io::Write;
use std::sync::{Arc, Mutex, Once};

use tracing_subscriber::fmt::MakeWriter;
use weir_store::redis::Redis as RedisStore;
use weir_store::{Store, StoreError};
use weir_tests::port;
use weir_tests::redis::{Redis, Setup, acl};
use weir_tests::wait::until;

use crate::server::Server;
use crate::{charge, count, entry, in_reach, open, slow};

/// The log of this test's thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// Until what is returned beside it is dropped.
    pub(crate) fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        // For threads without a log, too: a place that logs is else found to have no reader, and forgotten for all.
        static OTHERS: Once = Once::new();
        OTHERS.call_once(|| tracing_subscriber::fmt().with_writer(std::io::sink).init());
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The warnings with `text` in them.
    fn warnings(&self, text: &str) -> usize {
        self.lines(" WARN ", text).len()
    }

    /// The lines of a level with `text` in them.
    pub(crate) fn lines(&self, level: &str, text: &str) -> Vec<String> {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.lines().filter(|line| line.contains(level) && line.contains(text)).map(str::to_owned).collect()
    }
}

/// A Redis with a user with the permissions `rules`, and where that user finds it.
pub(crate) async fn with_a_user(rules: &str) -> (Redis, String) {
    let redis = Redis::start().await;
    set_user(&redis, rules).await;
    let url = redis.url().replace("redis://", "redis://weir:correct-horse@");
    (redis, url)
}

async fn set_user(redis: &Redis, rules: &str) {
    let mut command = redis::cmd("ACL");
    command.arg(&["SETUSER", "weir", "reset", "on", ">correct-horse"]).arg(rules.split(' ').collect::<Vec<_>>());
    command.query_async::<()>(&mut redis.connection().await).await.unwrap();
}

/// The reason why `store` is not in reach, once it has tried; it must not be for a moment.
pub(crate) async fn refusal(store: &RedisStore) -> StoreError {
    until("the refusal", async || {
        let error = store.ping().await.expect_err("it passes for a store");
        (!error.to_string().contains("not connected yet")).then_some(error)
    })
    .await
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    for lacking in ["time", "zadd", "pexpire", "hset", "evalsha", "script"] {
        let (_redis, url) = with_a_user(&format!("{} -{lacking}", acl())).await;
        let store = open(&url);
        let error = refusal(&store).await;
        let text = error.to_string().to_lowercase();
        assert_eq!(error.kind(), "refused", "{lacking}: {error}");
        assert!(text.contains(lacking) && text.contains("acl"), "{lacking}: {text}");
        assert!(!text.contains("out of reach") && !text.contains("horse"), "{lacking}: {text}");
        assert_eq!(charge(&store, entry(b"a", slow(), vec![count(1, 5, 5)])).await.unwrap_err(), error);
    }
}

#[tokio::test]
async fn a_revoked_permission_is_noticed_until_it_returns() {
    let (redis, url) = with_a_user(acl()).await;
    let store = open(&url);
    in_reach(&store).await;
    set_user(&redis, &format!("{} -time", acl())).await;
    // Nobody reports: the probe finds out.
    let error = until("the refusal", async || store.ping().await.err()).await;
    assert_eq!(error.kind(), "refused", "{error}");
    set_user(&redis, acl()).await;
    in_reach(&store).await;
}

#[tokio::test]
async fn a_refused_weir_sync_logs_once_and_is_not_ready() {
    let (log, _guard) = Log::start();
    let (_redis, url) = with_a_user(&format!("{} -time", acl())).await;
    let server = Server::start("fra", &url).await;
    let ready = until("the refusal", async || {
        let ready = server.page("/readyz").await;
        assert_eq!(ready.status, 503, "{}", ready.text());
        (log.warnings("TIME") > 0).then_some(ready)
    })
    .await;
    assert!(!ready.text().contains("horse"), "{}", ready.text());
    // It tries again and again.
    let refused = r#"weir_sync_store_errors_total{region="fra",kind="refused"} 5"#;
    until("some reports to be refused", async || {
        assert!(!server.greet("fra1").await.settled.is_all());
        server.page("/metrics").await.text().contains(refused).then_some(())
    })
    .await;
    assert!(server.page("/metrics").await.text().contains(r#"weir_sync_store_up{region="fra"} 0"#));
    assert_eq!((log.warnings("TIME"), log.warnings("the store refused")), (1, 1));
}

#[tokio::test]
async fn a_single_node_of_a_cluster_is_refused() {
    let bus = port::free().to_string();
    let settings = ["--cluster-enabled", "yes", "--cluster-port", &bus].map(str::to_owned).to_vec();
    let redis = Redis::start_with(Setup { settings, ..Setup::default() }).await;
    let refused = async |store: &RedisStore, has_slots: bool| {
        let error = refusal(store).await;
        assert_eq!(error.kind(), "refused", "{error}");
        assert!(error.to_string().contains(if has_slots { "redis+cluster://" } else { "cluster" }), "{error}");
    };
    refused(&open(&redis.url()), false).await;
    let mut connection = redis.connection().await;
    let mut command = redis::cmd("CLUSTER");
    command.arg(&["ADDSLOTSRANGE", "0", "16383"]).query_async::<()>(&mut connection).await.unwrap();
    until("the cluster to be up", async || {
        redis::cmd("GET").arg("a").query_async::<Option<String>>(&mut connection).await.ok()
    })
    .await;
    // This node has all slots, and takes each key by itself.
    refused(&open(&redis.url()), true).await;
}

/// A Redis with little memory, and a store that has looked at it; what was warned of.
async fn warned_of(policy: &str) -> usize {
    let (log, _guard) = Log::start();
    let settings = ["--maxmemory", "64mb", "--maxmemory-policy", policy].map(str::to_owned).to_vec();
    let mut redis = Redis::start_with(Setup { settings, ..Setup::default() }).await;
    let store = open(&redis.url());
    in_reach(&store).await;
    redis.kill();
    until("the store to know", async || store.ping().await.err()).await;
    redis.restart().await;
    in_reach(&store).await;
    log.warnings("noeviction")
}

#[tokio::test]
async fn an_evicting_redis_is_warned_about_once() {
    assert_eq!(warned_of("allkeys-lru").await, 1);
    assert_eq!(warned_of("volatile-ttl").await, 1);
    assert_eq!(warned_of("noeviction").await, 0);
}

#[tokio::test]
async fn a_flapping_redis_is_logged_once_with_its_address() {
    let (log, _guard) = Log::start();
    let mut redis = Redis::start().await;
    let store = open(&redis.url());
    in_reach(&store).await;
    for _ in 0..3 {
        redis.kill();
        until("no connection to be taken", async || {
            let error = store.ping().await.err()?;
            error.to_string().contains("Connection refused").then_some(())
        })
        .await;
        redis.restart().await;
        in_reach(&store).await;
    }
    let refused = log.lines(" WARN ", "Connection refused");
    assert!(refused.len() == 1 && refused[0].contains(&redis.address().to_string()), "{refused:#?}");
    let connected = log.lines(" INFO ", "connected to the store");
    assert!(connected.len() == 1 && connected[0].contains(&redis.address().to_string()), "{connected:#?}");
    until("the recovery to be logged", async || (log.lines(" INFO ", "answers again").len() == 1).then_some(())).await;
}
