//! The end of a fail-over.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use weir_tests::redis::{OPERATOR, Redis};
use weir_tests::wait::until;

/// The last span of a master that dies, which it has not passed on.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(1);
/// The longest time until a replica that has taken over is used.
const USED_WITHIN: Duration = Duration::from_secs(1);

/// Between two looks at who is the master.
const LOOK: Duration = Duration::from_millis(50);

/// A fail-over, timed from when the master was killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailOver {
    killed: Instant,
    /// Until another server is the master.
    taken_over: Duration,
    /// Until every key of the dead master has been charged there, so that the replies to these reports have grants
    /// from it.
    charged: Duration,
}

impl FailOver {
    /// Panics if keys took longer until they were charged than a second from when a replica had taken over.
    pub(super) fn assert_quick(&self) {
        let Self { taken_over, charged, .. } = self;
        println!("a replica took over after {taken_over:?}, all keys had grants from it after {charged:?}");
        let after = charged.saturating_sub(*taken_over);
        assert!(after <= USED_WITHIN, "{after:?} until a master that was there was used");
    }

    /// Watches until `end`, and returns how long after the kill the group's master last had fewer replicas in
    /// step. Fails if it has fewer at the end.
    pub(super) async fn in_step(&self, group: &impl Group, key: &str, replicas: u32, end: Instant) -> Duration {
        let mut since = None;
        while Instant::now() < end {
            let is_in_step = match group.master(key).await {
                Some(master) => group.servers()[master].is_confirmed_by(replicas).await,
                None => false,
            };
            since = if is_in_step { since.or(Some(self.killed.elapsed())) } else { None };
            sleep(LOOK).await;
        }
        let since = since.expect("the master has its replicas when the load ends");
        println!("it has had {replicas} replicas since {since:?} after the kill");
        since
    }
}

/// Servers, one of which takes over when another dies.
pub(super) trait Group {
    fn servers(&self) -> &[Redis];

    fn servers_mut(&mut self) -> &mut [Redis];

    /// The server that the group takes for the master of `key`.
    async fn master(&self, key: &str) -> Option<usize>;

    /// Sees to it that the new master has a replica, once `victim` is dead.
    async fn repair(&mut self, victim: usize);
}

/// Kills a master whose replicas have been cut off from it for [`FORGOTTEN`], and waits until one of them has its
/// place and has charged all of `keys`, which were the dead master's.
pub(super) async fn kill(group: &mut impl Group, victim: usize, keys: &[String]) -> FailOver {
    let servers = group.servers();
    let (others, master) = (|(at, _): &(usize, &Redis)| *at != victim, &servers[victim]);
    for (_, server) in servers.iter().enumerate().filter(others) {
        follow_with(server, "another password").await;
    }
    let mut connection = master.operator().await;
    let mut hang_up = redis::cmd("CLIENT");
    hang_up.arg("KILL").arg("TYPE").arg("replica");
    let lost: u32 = hang_up.query_async(&mut connection).await.expect("the master hangs up on its replicas");
    assert!(lost > 0, "the master had replicas");
    sleep(FORGOTTEN).await;
    let (known, passed_on) = (budgets(master, keys).await, copies(servers, victim, keys).await);
    assert!(known.is_some_and(|known| known != passed_on), "the replicas are behind");
    group.servers_mut()[victim].kill();
    let killed = Instant::now();
    for (_, server) in group.servers().iter().enumerate().filter(others) {
        follow_with(server, OPERATOR).await;
    }
    let mut before = vec![];
    let successor = until("another server to take over", async || {
        let successor = group.master(&keys[0]).await.filter(|master| *master != victim);
        if successor.is_none() {
            before = copies(group.servers(), victim, keys).await;
        }
        successor
    })
    .await;
    let taken_over = killed.elapsed();
    assert_eq!(before.len(), keys.len(), "a replica had every budget");
    until("all keys to be charged there", async || {
        let now = budgets(&group.servers()[successor], keys).await?;
        now.iter().zip(&before).all(|(now, before)| now != before).then_some(())
    })
    .await;
    let charged = killed.elapsed();
    group.repair(victim).await;
    FailOver { killed, taken_over, charged }
}

/// Has a server show this password when it next connects to its master.
async fn follow_with(server: &Redis, password: &str) {
    let (mut connection, mut command) = (server.operator().await, redis::cmd("CONFIG"));
    let set = command.arg("SET").arg("masterauth").arg(password).query_async::<()>(&mut connection);
    set.await.unwrap_or_else(|e| panic!("no other password for the master: {e}"));
}

/// The budgets of `keys` as a replica of `victim` has them.
async fn copies(servers: &[Redis], victim: usize, keys: &[String]) -> Vec<Vec<u8>> {
    for (_, server) in servers.iter().enumerate().filter(|(at, _)| *at != victim) {
        if let Some(budgets) = budgets(server, keys).await {
            return budgets;
        }
    }
    vec![]
}

/// The budgets of `keys` as a server has them, master or replica; none if one of them is not its own.
async fn budgets(server: &Redis, keys: &[String]) -> Option<Vec<Vec<u8>>> {
    let mut connection = server.operator().await;
    // A replica in a cluster answers only on a connection that is fine with its being behind; any other does anyway.
    let _ = redis::cmd("READONLY").query_async::<()>(&mut connection).await;
    let mut budgets = Vec::with_capacity(keys.len());
    for key in keys {
        budgets.push(redis::cmd("DUMP").arg(key).query_async(&mut connection).await.ok()?);
    }
    Some(budgets)
}
