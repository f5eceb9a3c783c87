//! Keys that nobody asks for any more, and what they cost a real Redis.

use std::time::Duration;

use tokio::time::sleep;
use weir_protocol::quota::Period;
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::failover::report_of;
use crate::quota;
use crate::server::Server;

const KEYS: u32 = 200;
/// Over what calls are counted.
const SPAN: Duration = Duration::from_millis(1_500);

/// The number of budgets that scripts read in Redis in [`SPAN`].
async fn budgets_read(redis: &Redis) -> u64 {
    let mut connection = redis.connection().await;
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut connection).await.unwrap();
    sleep(SPAN).await;
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn idle_keys_cause_no_calls() {
    let redis = Redis::start().await;
    let server = Server::start("fra", &redis.url()).await;
    server.ready().await;
    // Nine tenths of a day's quota.
    let nearly_used = report_of(KEYS, quota(1_000, Period::Day, 1_000), 900);
    assert!(server.report(&nearly_used).await.settled.is_all());
    let busy = budgets_read(&redis).await;
    assert!(busy > 2 * u64::from(KEYS), "just asked for, they are looked at every interval: {busy}");
    until("the keys to rest", async || (budgets_read(&redis).await < u64::from(KEYS) / 2).then_some(())).await;
}
