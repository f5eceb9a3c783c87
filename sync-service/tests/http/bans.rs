//! A ban that one POP reports reaches every other POP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use weir_protocol::messages::{Ban, Reply, Report};
use weir_sync::config::Config;

use crate::Server;
use crate::client::{greeting, one_key, report};
use crate::exchange::reply;
use crate::stores::Shared;

/// Far above what anything here takes.
const DEADLINE: Duration = Duration::from_mins(2);
/// Longer than any test.
const HOUR_MS: u32 = 3_600_000;

async fn server(region: &str, replica: &str, store: &Arc<Shared>) -> Server {
    let config = Config { region: region.into(), replica: Some(replica.into()), ..Config::default() };
    Server::start_over(config, store.clone()).await
}

/// A report of `pop` that banned the key of [`one_key`].
fn banning(pop: &str) -> Report {
    let claims = one_key(pop, 1, 1, 1, 1);
    let bans = vec![Ban { rule: 0, value: claims.keys[0].value.clone(), for_ms: HOUR_MS }];
    Report { keys: vec![], bans, ..claims }
}

async fn answered(server: &Server, sent: &Report) -> Reply {
    reply(&report(server.address, "", sent).await)
}

/// The first answer to `pop` that has bans; it comes within the deadline.
async fn first_ban(server: &Server, pop: &str) -> Reply {
    let started = Instant::now();
    loop {
        let reply = answered(server, &greeting(pop)).await;
        if !reply.bans.is_empty() {
            return reply;
        }
        assert!(started.elapsed() < DEADLINE, "{pop} never got the ban");
        sleep(Duration::from_millis(20)).await;
    }
}

fn is_the_key(reply: &Reply) {
    let [ban] = &reply.bans[..] else { panic!("{reply:?}") };
    assert_eq!(reply.rules[usize::from(ban.rule)], "per-address");
    assert_eq!(ban.value, b"192.0.2.1");
    assert!(ban.for_ms <= HOUR_MS && ban.for_ms > HOUR_MS / 2, "{ban:?}");
}

#[tokio::test]
async fn a_key_banned_at_one_pop_is_pushed_once_to_the_others() {
    for (region, replica) in [("fra", "b"), ("iad", "a")] {
        let store = Shared::new(Config::default().pop_ttl);
        let (here, other) = (server("fra", "a", &store).await, server(region, replica, &store).await);
        let own = answered(&here, &banning("fra1")).await;
        assert!(own.bans.is_empty(), "the one that banned it knows: {own:?}");
        is_the_key(&first_ban(&other, "pop2").await);
        // Several intervals, in which both servers read the fleet's list again.
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            let again = answered(&other, &greeting("pop2")).await;
            assert!(again.bans.is_empty(), "pushed twice: {again:?}");
            assert!(answered(&here, &greeting("fra1")).await.bans.is_empty());
            sleep(Duration::from_millis(50)).await;
        }
        let restarted = Report { table: 2, ..greeting("pop2") };
        is_the_key(&answered(&other, &restarted).await);
    }
}

#[tokio::test]
async fn without_the_store_a_ban_reaches_the_regions_own_pops() {
    let store = Shared::new(Config::default().pop_ttl);
    let (here, elsewhere) = (server("fra", "a", &store).await, server("iad", "a", &store).await);
    store.set_gone(true);
    assert!(!answered(&here, &banning("fra1")).await.settled.is_all());
    let own = answered(&here, &greeting("fra2")).await;
    is_the_key(&own);
    assert!(answered(&elsewhere, &greeting("iad1")).await.bans.is_empty());
    store.set_gone(false);
    is_the_key(&first_ban(&elsewhere, "iad1").await);
}
