//! A ban that one POP reports, of which every other POP learns; and the request that resets a key.

use serde_json::json;
use weir_protocol::messages::{Ban, Reply, Report};
use weir_sync::config::Config;

use crate::client::{Answer, ask, greeting, one_key, request};
use crate::exchange::replied;
use crate::rules::{ADMIN, put};
use crate::stores::Shared;
use crate::{Server, found, replica};

/// Longer than any test.
const HOUR_MS: u32 = 3_600_000;
/// The key of [`one_key`].
const PATH: &str = "/v1/keys/per-address/hex%3A3139322e302e322e31";

/// A report of `pop` that banned the key of [`one_key`].
fn banning(pop: &str) -> Report {
    let claims = one_key(pop, 1, 1, 1, 1);
    let bans = vec![Ban { rule: 0, value: claims.keys[0].value.clone(), for_ms: HOUR_MS }];
    Report { keys: vec![], bans, ..claims }
}

/// The first answer to `pop` that has bans, or a key to forget.
async fn first_ban(server: &Server, pop: &str) -> Reply {
    let look = async || Some(replied(server, &greeting(pop)).await).filter(|reply| !reply.bans.is_empty());
    found("the ban", look).await
}

/// Time of the only ban, which must be of the key of [`one_key`].
fn banned_ms(reply: &Reply) -> u32 {
    let [ban] = &reply.bans[..] else { panic!("{reply:?}") };
    assert_eq!(reply.rules[usize::from(ban.rule)], "per-address");
    assert_eq!(ban.value, b"192.0.2.1");
    ban.for_ms
}

#[tokio::test]
async fn a_key_banned_at_one_pop_is_pushed_once_to_the_others() {
    for (region, name) in [("fra", "b"), ("iad", "a")] {
        let store = Shared::new(Config::default().pop_ttl);
        let (here, other) = (replica("fra", "a", &store).await, replica(region, name, &store).await);
        let own = replied(&here, &banning("fra1")).await;
        assert!(own.bans.is_empty(), "the one that banned it knows: {own:?}");
        assert!((HOUR_MS / 2..=HOUR_MS).contains(&banned_ms(&first_ban(&other, "pop2").await)));
        // Several intervals, in which both servers read the fleet's list again.
        for _ in 0..20 {
            let again = replied(&other, &greeting("pop2")).await;
            assert!(again.bans.is_empty(), "pushed twice: {again:?}");
            assert!(replied(&here, &greeting("fra1")).await.bans.is_empty());
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let restarted = Report { table: 2, ..greeting("pop2") };
        banned_ms(&replied(&other, &restarted).await);
    }
}

#[tokio::test]
async fn without_the_store_a_ban_reaches_the_regions_own_pops() {
    let store = Shared::new(Config::default().pop_ttl);
    let (here, elsewhere) = (replica("fra", "a", &store).await, replica("iad", "a", &store).await);
    store.set_gone(true);
    assert!(!replied(&here, &banning("fra1")).await.settled.is_all());
    banned_ms(&replied(&here, &greeting("fra2")).await);
    assert!(replied(&elsewhere, &greeting("iad1")).await.bans.is_empty());
    store.set_gone(false);
    banned_ms(&first_ban(&elsewhere, "iad1").await);
}

async fn delete(server: &Server, path: &str, headers: &str) -> Answer {
    ask(server.address, &request("DELETE", path, headers, b"")).await
}

#[tokio::test]
async fn a_reset_needs_the_role_write_and_a_key_in_its_path() {
    let store = Shared::new(Config::default().pop_ttl);
    let server = replica("fra", "a", &store).await;
    assert_eq!(delete(&server, PATH, "").await.status, 401);
    for (path, expected) in [
        ("/v1/keys/per-address", "expected a rule and one of its keys"),
        ("/v1/keys/per-address/", "expected a rule and one of its keys"),
        ("/v1/keys//192.0.2.1", "expected a rule and one of its keys"),
        ("/v1/keys/per-address/192.0.2.0/33", "expected a key: an address (192.0.2.7)"),
        ("/v1/keys/per-address/%zz", "expected a rule and one of its keys"),
        ("/v1/keys/per-address/192.0.2.1?dry_run=true", "expected no query"),
    ] {
        let answer = delete(&server, path, ADMIN).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        assert!(answer.detail().contains(expected), "{path}: {}", answer.detail());
    }
    let rules = json!({"rules": [{"name": "other", "key": ["client_address"], "rate": "5/s"}]});
    put(&server, "if-none-match: *\r\n", &rules).await;
    let unknown = delete(&server, PATH, ADMIN).await;
    assert_eq!((unknown.status, unknown.detail().contains("no rule `per-address`")), (404, true));
    assert_eq!(delete(&server, "/v1/keys/other/192.0.2.1", ADMIN).await.status, 200);
    store.set_gone(true);
    assert_eq!(delete(&server, "/v1/keys/other/192.0.2.1", ADMIN).await.status, 503, "and that is the answer");
}
