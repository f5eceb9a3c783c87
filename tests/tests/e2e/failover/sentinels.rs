//! Sentinels, timed as docs/redis.md has them: the one master dies, or its successor is replaced as well.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use weir_tests::redis::Redis;
use weir_tests::redis_sentinels::Sentinels;

use super::watch::{FORGOTTEN, Group, kill};
use super::{AT, Fleet, LASTS, askers, keys_on};
use crate::fleet::measuring;

/// For how many masters' worth of clients.
const CLIENTS: usize = 3;
/// The length of a load with two fail-overs: the sentinels wait some ten seconds before they make a replica of a
/// living master.
const LASTS_TWICE: Duration = Duration::from_secs(45);

impl Group for Sentinels {
    fn servers(&self) -> &[Redis] {
        &self.servers
    }

    fn servers_mut(&mut self) -> &mut [Redis] {
        &mut self.servers
    }

    async fn master(&self, _key: &str) -> Option<usize> {
        Self::master(self).await
    }

    /// The sentinels do: there is another replica.
    async fn repair(&mut self, _victim: usize) {}
}

/// Kills the master of a group with `replicas`, under a load, and then has the sentinels replace its successor `again`.
/// As many replicas confirm acquires as the successor has.
async fn fails_over(what: &str, replicas: usize, lasts: Duration, again: bool) {
    let place = measuring().await;
    let mut group = Sentinels::start_with(replicas).await;
    let confirm = u32::try_from(replicas - 1).expect("a few");
    let fleet = Fleet::start(&group.url(), confirm, place).await;
    let askers = askers(1, CLIENTS, async |_| 0).await;
    let keys = keys_on(&askers, 0);
    let happening = async |began: Instant| {
        sleep_until(began + AT.saturating_sub(FORGOTTEN)).await;
        let fail_over = kill(&mut group, 0, &keys).await;
        if again {
            group.fail_over_by(0).await;
        }
        (fail_over, fail_over.in_step(&group, &keys[0], confirm, began + lasts).await)
    };
    let (outcome, (fail_over, in_step)) = fleet.load(askers, lasts, happening).await;
    outcome.assert_kept(what, &|_| true, AT + in_step);
    outcome.assert_strict(what, &|_| true, AT + in_step);
    fail_over.assert_quick();
}

// I1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_is_replaced_by_sentinels() {
    fails_over("a sentinels' master was killed", 2, LASTS, false).await;
}

/// Strict rules are denied until the former master follows the new one: there is no other replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_fail_overs_in_a_row_leave_no_replica() {
    fails_over("a sentinels' master was killed, and its successor replaced", 2, LASTS_TWICE, true).await;
}

/// Of two replicas either may replace a master that lives, so both confirm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_replica_survives_two_fail_overs() {
    fails_over("the same with three replicas", 3, LASTS_TWICE, true).await;
}
