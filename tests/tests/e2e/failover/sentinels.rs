//! Sentinels: the one master dies.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use weir_tests::redis::Redis;
use weir_tests::redis_sentinels::Sentinels;

use super::watch::{FORGOTTEN, Group, kill};
use super::{AT, Fleet, askers, keys_on};
use crate::fleet::measuring;

/// From the kill of the master until all keys have grants from the replica that took over: `down-after-milliseconds` (a
/// second), and what sentinels need to agree and weir-sync to hear of it.
const GRANTS_WITHIN: Duration = Duration::from_secs(7);

/// For how many masters' worth of clients.
const CLIENTS: usize = 3;

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
    async fn mend(&mut self, _victim: usize) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinels_master_is_killed() {
    let place = measuring().await;
    let mut group = Sentinels::start_with(2).await;
    let fleet = Fleet::start(&group.url(), place).await;
    let askers = askers(1, CLIENTS, async |_| 0).await;
    let keys = keys_on(&askers, 0);
    let happening = async |began: Instant| {
        sleep_until(began + AT.saturating_sub(FORGOTTEN)).await;
        kill(&mut group, 0, &keys).await
    };
    let (outcome, fail_over) = fleet.load(askers, happening).await;
    let what = "a sentinels' master was killed";
    fail_over.print();
    outcome.assert_kept(what, &|_| true, AT + fail_over.in_step);
    outcome.assert_strict(what, &|_| true, AT + fail_over.in_step);
    fail_over.assert_quick(GRANTS_WITHIN);
}
