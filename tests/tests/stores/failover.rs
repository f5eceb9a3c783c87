//! Fail-overs under a load of reports that does not wait for answers: none fails, and what is alive is charged on.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use weir_protocol::messages::{BudgetRule, Key, Reply, Report};
use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;
use weir_store::Store;
use weir_tests::redis::budget_key;
use weir_tests::redis_cluster::{Cluster, operate};
use weir_tests::redis_sentinels::Sentinels;
use weir_tests::wait::until;

use crate::server::Server;
use crate::{charge, entry, id, in_reach, open, slow};

const POPS: u32 = 4;
const KEYS: u8 = 40;
const INTERVAL: Duration = Duration::from_millis(250);
/// Time that a POP waits for an answer.
const POP_TIMEOUT: Duration = Duration::from_secs(1);
/// The time at which something happens, and the time for which reports go on after it.
const AT: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(3);
/// The longest time until a master that has taken over is charged.
const USED_WITHIN: Duration = Duration::from_secs(2);

/// The outcome of one report.
struct Outcome {
    sent: Duration,
    took: Duration,
    reply: Reply,
}

/// POP `pop` has admitted `admitted` tokens of each key, none of which is confirmed.
pub(crate) fn report(pop: u32, admitted: u64) -> Report {
    let report = Report { pop: format!("pop{pop}"), sequence: admitted, ..report_of(KEYS.into(), slow(), admitted) };
    let keys = report.keys.into_iter().map(|key| Key { asked_recently: 1, ..key }).collect();
    Report { keys, ..report }
}

/// A report of so many keys with this quota, of each of which `admitted` tokens were admitted and none is confirmed.
pub(crate) fn report_of(keys: u32, quota: Quota, admitted: u64) -> Report {
    let rules = vec![BudgetRule { name: "per-address".into(), quota, sharing: Sharing::of(quota) }];
    let key = |value: u32| Key {
        value: value.to_be_bytes().to_vec(),
        epoch: 1,
        admitted,
        unconfirmed: admitted,
        asked: admitted,
        asked_recently: admitted,
        ..Key::default()
    };
    let keys = (0..keys).map(key).collect();
    Report { pop: "fra1".into(), worker: 1, sequence: 1, table: 1, rules, keys, ..Report::default() }
}

/// Sends reports of all POPs, each when it is due, from [`AT`] before `happening` until [`AFTER`] it. Returns the
/// outcome of each, and how long after the first `happening` was over.
async fn load(server: &Arc<Server>, happening: impl Future<Output = ()>) -> (Vec<Outcome>, Duration) {
    let (began, over) = (Instant::now(), Cell::new(None));
    let happening = async {
        tokio::time::sleep(AT).await;
        happening.await;
        over.set(Some(began.elapsed()));
    };
    let reporting = async {
        let (mut reports, mut admitted) = (JoinSet::new(), 0);
        while over.get().is_none_or(|over| began.elapsed() < over + AFTER) {
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
    };
    let (outcomes, ()) = tokio::join!(reporting, happening);
    (outcomes, over.get().expect("it is over"))
}

/// Checks that every report was answered in time and with a grant for each key, and that all of those that were sent
/// [`USED_WITHIN`] after `over` were charged; prints the cost of a fail-over.
fn check(what: &str, outcomes: &[Outcome], over: Duration) {
    let slowest = outcomes.iter().map(|outcome| outcome.took).max().unwrap();
    let alone = outcomes.iter().filter(|outcome| !outcome.reply.settled.is_all());
    let last = alone.clone().map(|outcome| outcome.sent).max().unwrap_or_default();
    println!(
        "{what}: {} reports, the slowest took {slowest:?}; {} were not charged wholly, the last of them sent after {last:?}, \
         and it was over after {over:?}",
        outcomes.len(),
        alone.count()
    );
    assert!(outcomes.iter().all(|outcome| outcome.reply.grants.len() == usize::from(KEYS)), "{what}");
    assert!(slowest < POP_TIMEOUT, "{what}: {slowest:?}");
    assert!(last <= over + USED_WITHIN, "{what}: not charged, though sent after {last:?}");
}

/// Every token is on record once.
async fn is_charged(url: &str, outcomes: &[Outcome]) {
    let store = open(url);
    in_reach(&store).await;
    let admitted = u64::try_from(outcomes.len()).unwrap();
    for key in 0..KEYS {
        let account = charge(&store, entry(&u32::from(key).to_be_bytes(), slow(), vec![])).await.unwrap();
        assert_eq!(account.deficit_ns.div_ceil(slow().token_ns()), admitted, "key {key}");
    }
    store.ping().await.unwrap();
}

#[tokio::test]
async fn a_killed_cluster_master_is_replaced() {
    let mut cluster = Cluster::start(1_000).await;
    let server = Arc::new(Server::start("fra", &cluster.url()).await);
    server.ready().await;
    let killing = async {
        cluster.servers[0].kill();
        for key in 0..KEYS {
            let key = budget_key(&id(&u32::from(key).to_be_bytes()));
            until("another master", async || cluster.master_of(&key, 1).await.filter(|master| *master != 0)).await;
        }
    };
    let (outcomes, over) = load(&server, killing).await;
    check("a master of a cluster was killed", &outcomes, over);
    is_charged(&cluster.url(), &outcomes).await;
}

#[tokio::test]
async fn slots_of_a_cluster_move() {
    let cluster = Cluster::start(15_000).await;
    let server = Arc::new(Server::start("fra", &cluster.url()).await);
    server.ready().await;
    let moving = async {
        let mut ids: Vec<String> = Vec::new();
        for server in &cluster.servers[..2] {
            ids.push(redis::cmd("CLUSTER").arg("MYID").query_async(&mut server.operator().await).await.unwrap());
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
    let (outcomes, over) = load(&server, moving).await;
    check("1,000 slots moved", &outcomes, over);
    let alone = outcomes.iter().filter(|outcome| !outcome.reply.settled.is_all() && outcome.sent >= AT).count();
    assert_eq!(alone, 0, "every report was charged");
    is_charged(&cluster.url(), &outcomes).await;
}

#[tokio::test]
async fn a_killed_master_is_replaced_by_sentinels() {
    let mut group = Sentinels::start().await;
    let server = Arc::new(Server::start("fra", &group.url()).await);
    server.ready().await;
    let killing = async {
        group.servers[0].kill();
        until("another master", async || group.master().await.filter(|master| *master != 0)).await;
    };
    let (outcomes, over) = load(&server, killing).await;
    check("a sentinels' master was killed", &outcomes, over);
    is_charged(&group.url(), &outcomes).await;
}
