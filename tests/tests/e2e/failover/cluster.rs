//! A cluster: a master dies, and slots move.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use weir_tests::redis::Redis;
use weir_tests::redis_cluster::Cluster;

use super::watch::{FORGOTTEN, Group, kill};
use super::{AT, Asker, Fleet, LASTS, askers, keys_on};
use crate::fleet::measuring;

/// `cluster-node-timeout` where a master is killed.
const TIMEOUT_MS: u32 = 1_000;
/// The same where none is.
const CALM_MS: u32 = 15_000;
/// The master that is killed: the lists of POPs and of bans are its, too.
const VICTIM: usize = 2;
/// The server that is asked who is the master of a key.
const ASKED: usize = 1;
/// The master that slots move from. They move to [`ASKED`].
const FROM: usize = 0;
/// Time for which a slot is half moved: first its keys are not, then they are, as long again.
const HALF_MOVED: Duration = Duration::from_millis(150);

impl Group for Cluster {
    fn servers(&self) -> &[Redis] {
        &self.servers
    }

    fn servers_mut(&mut self) -> &mut [Redis] {
        &mut self.servers
    }

    async fn master(&self, key: &str) -> Option<usize> {
        self.master_of(key, ASKED).await
    }

    /// It is started again, as what supervises servers does, and follows the new master.
    async fn repair(&mut self, victim: usize) {
        self.servers[victim].restart().await;
    }
}

async fn clients_of(cluster: &Cluster) -> Vec<Asker> {
    askers(3, 1, async |key| cluster.master_of(key, ASKED).await.expect("a master for every key")).await
}

// I1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_cluster_master_is_replaced() {
    let place = measuring().await;
    let mut cluster = Cluster::start(TIMEOUT_MS).await;
    let fleet = Fleet::start(&cluster.url(), 1, place).await;
    let askers = clients_of(&cluster).await;
    let keys = keys_on(&askers, VICTIM);
    let happening = async |began: Instant| {
        sleep_until(began + AT.saturating_sub(FORGOTTEN)).await;
        let fail_over = kill(&mut cluster, VICTIM, &keys).await;
        (fail_over, fail_over.in_step(&cluster, &keys[0], 1, began + LASTS).await)
    };
    let (outcome, (fail_over, in_step)) = fleet.load(askers, LASTS, happening).await;
    let (what, is_struck) = ("a cluster's master was killed", |asker: &Asker| asker.shard == VICTIM);
    outcome.assert_kept(what, &is_struck, AT + in_step);
    outcome.assert_strict(what, &is_struck, AT + in_step);
    fail_over.assert_quick();
}

// I1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_while_their_keys_are_in_use() {
    let place = measuring().await;
    let cluster = Cluster::start(CALM_MS).await;
    let fleet = Fleet::start(&cluster.url(), 1, place).await;
    let askers = clients_of(&cluster).await;
    let keys: Vec<String> = askers.iter().filter(|asker| asker.shard == FROM).map(|asker| asker.key.clone()).collect();
    let partial = fleet.partial().await;
    let happening = async |began: Instant| {
        sleep_until(began + AT).await;
        for key in &keys {
            cluster.move_slot_of(key, FROM, ASKED, HALF_MOVED).await;
        }
        began.elapsed().saturating_sub(AT)
    };
    let (outcome, moved) = fleet.load(askers, LASTS, happening).await;
    let what = format!("{} slots moved in {:?}", keys.len(), moved);
    for key in &keys {
        assert_eq!(cluster.master_of(key, ASKED).await, Some(ASKED), "{key}");
    }
    let (partial, is_moved) = (fleet.partial().await - partial, |asker: &Asker| asker.shard == FROM);
    outcome.assert_kept(&what, &is_moved, AT + moved);
    outcome.assert_strict(&what, &|_| false, AT + moved);
    assert_eq!(partial, 0, "replies that were not settled");
}
