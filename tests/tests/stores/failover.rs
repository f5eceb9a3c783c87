//! Fail-overs under a load of reports that does not wait for answers: none fails, and what is alive is charged on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use weir_sync::store::Store;
use weir_tests::redis_cluster::{Cluster, operate};
use weir_tests::redis_sentinels::Sentinels;
use weir_wire::messages::{Key, Reply, Report, Rule};
use weir_wire::sharing::Sharing;

use crate::server::Server;
use crate::{charge, entry, in_reach, open, slow};

const POPS: u32 = 4;
const KEYS: u8 = 40;
const INTERVAL: Duration = Duration::from_millis(250);
/// How long a POP waits for an answer.
const POP_TIMEOUT: Duration = Duration::from_secs(1);
const LASTS: Duration = Duration::from_secs(10);
/// When something happens.
const AT: Duration = Duration::from_secs(2);

/// What became of one report.
struct Outcome {
    sent: Duration,
    took: Duration,
    reply: Reply,
}

/// POP `pop` has admitted `admitted` tokens of each key, none of which is confirmed.
pub(crate) fn report(pop: u32, admitted: u64) -> Report {
    let rules = vec![Rule { name: "per-address".into(), quota: slow(), sharing: Sharing::of(slow()) }];
    let key = |value| Key {
        value: vec![value],
        epoch: 1,
        admitted,
        unconfirmed: admitted,
        asked: admitted,
        asked_recently: 1,
        ..Key::default()
    };
    let keys = (0..KEYS).map(key).collect();
    Report {
        pop: format!("pop{pop}"),
        worker: 1,
        sequence: admitted,
        table: 1,
        rules,
        keys,
        ..Report::default()
    }
}

/// Reports of all POPs, each when it is due, whatever became of those before; and what became of each.
async fn load(server: &Arc<Server>) -> Vec<Outcome> {
    let (began, mut reports) = (Instant::now(), JoinSet::new());
    let mut admitted = 0;
    while began.elapsed() < LASTS {
        admitted += 1;
        for pop in 0..POPS {
            let (server, sent) = (Arc::clone(server), began.elapsed());
            reports.spawn(async move {
                let asked_at = Instant::now();
                let reply = server.report(&report(pop, admitted)).await;
                Outcome { sent, took: asked_at.elapsed(), reply }
            });
        }
        let next = INTERVAL * u32::try_from(admitted).unwrap();
        tokio::time::sleep(next.saturating_sub(began.elapsed())).await;
    }
    reports.join_all().await
}

/// Checks that every report was answered in time and with a grant for each key; prints what a fail-over cost. Returns
/// how long after [`AT`] reports were charged wholly again.
fn judge(what: &str, outcomes: &[Outcome]) -> Duration {
    let slowest = outcomes.iter().map(|outcome| outcome.took).max().unwrap();
    let alone = outcomes.iter().filter(|outcome| !outcome.reply.settled.is_all());
    let last = alone.clone().map(|outcome| outcome.sent).max().unwrap_or(AT);
    assert!(outcomes.iter().all(|outcome| outcome.reply.grants.len() == usize::from(KEYS)), "{what}");
    assert!(slowest < POP_TIMEOUT, "{what}: {slowest:?}");
    let back = (last + INTERVAL).saturating_sub(AT);
    println!(
        "{what}: {} reports, 0 failed, the slowest took {slowest:?}; {} were not charged wholly; all were again {back:?} after",
        outcomes.len(),
        alone.count()
    );
    back
}

/// Every token is on record once.
async fn is_charged(url: &str, outcomes: &[Outcome]) {
    let store = open(url);
    in_reach(&store).await;
    let admitted = u64::try_from(outcomes.len()).unwrap();
    for key in 0..KEYS {
        let account = charge(&store, entry(&[key], slow(), vec![])).await.unwrap();
        assert_eq!(account.deficit_ns.div_ceil(slow().token_ns()), admitted, "key {key}");
    }
    store.ping().await.unwrap();
}

#[tokio::test]
async fn a_clusters_master_is_killed() {
    let mut cluster = Cluster::start(1_000).await;
    let server = Arc::new(Server::start("fra", &cluster.url()).await);
    server.ready().await;
    let killing = async {
        tokio::time::sleep(AT).await;
        cluster.servers[0].kill();
    };
    let (outcomes, ()) = tokio::join!(load(&server), killing);
    let back = judge("a master of a cluster was killed", &outcomes);
    assert!(back < Duration::from_secs(6), "{back:?}");
    is_charged(&cluster.url(), &outcomes).await;
}

#[tokio::test]
async fn a_clusters_slots_move() {
    let cluster = Cluster::start(15_000).await;
    let server = Arc::new(Server::start("fra", &cluster.url()).await);
    server.ready().await;
    let moving = async {
        tokio::time::sleep(AT).await;
        let mut ids: Vec<String> = Vec::new();
        for server in &cluster.servers[..2] {
            ids.push(
                redis::cmd("CLUSTER").arg("MYID").query_async(&mut server.operator().await).await.unwrap(),
            );
        }
        let address = cluster.servers[1].address().to_string();
        let arguments = [
            "reshard",
            &address,
            "--cluster-from",
            &ids[0],
            "--cluster-to",
            &ids[1],
            "--cluster-slots",
            "1000",
            "--cluster-yes",
        ]
        .map(str::to_owned);
        tokio::task::spawn_blocking(move || operate(&arguments)).await.unwrap();
    };
    let (outcomes, ()) = tokio::join!(load(&server), moving);
    judge("1,000 slots moved", &outcomes);
    let alone =
        outcomes.iter().filter(|outcome| !outcome.reply.settled.is_all() && outcome.sent >= AT).count();
    assert_eq!(alone, 0, "every report was charged");
    is_charged(&cluster.url(), &outcomes).await;
}

#[tokio::test]
async fn a_sentinels_master_is_killed() {
    let mut group = Sentinels::start().await;
    let server = Arc::new(Server::start("fra", &group.url()).await);
    server.ready().await;
    let killing = async {
        tokio::time::sleep(AT).await;
        group.servers[0].kill();
    };
    let (outcomes, ()) = tokio::join!(load(&server), killing);
    let back = judge("a sentinels' master was killed", &outcomes);
    assert!(back < Duration::from_secs(6), "{back:?}");
    is_charged(&group.url(), &outcomes).await;
}
