//! Keys that nobody asks for any more, and what they cost a real Redis.

use std::time::Duration;

use tokio::time::sleep;
use weir_protocol::messages::{BudgetRule, Key, Report};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::server::Server;

const KEYS: u32 = 200;
/// Over what calls are counted.
const SPAN: Duration = Duration::from_millis(1_500);

/// A report of keys of which nine tenths of a day's quota are used.
fn nearly_used() -> Report {
    let quota = Quota::new(Rate::new(1_000, Period::Day).unwrap(), 1_000).unwrap();
    let key = |n: u32| Key {
        value: n.to_be_bytes().to_vec(),
        epoch: 1,
        admitted: 900,
        unconfirmed: 900,
        asked: 900,
        asked_recently: 900,
        ..Key::default()
    };
    let rules = vec![BudgetRule { name: "daily".into(), quota, sharing: Sharing::of(quota) }];
    let keys = (0..KEYS).map(key).collect();
    Report { pop: "fra1".into(), worker: 1, sequence: 1, table: 1, rules, keys, ..Report::default() }
}

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
    assert!(server.report(&nearly_used()).await.settled.is_all());
    let busy = budgets_read(&redis).await;
    assert!(busy > 2 * u64::from(KEYS), "just asked for, they are looked at every interval: {busy}");
    until("the keys to rest", async || (budgets_read(&redis).await < u64::from(KEYS) / 2).then_some(())).await;
}
