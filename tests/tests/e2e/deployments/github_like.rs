use std::time::{SystemTime, UNIX_EPOCH};

use weir_tests::client::Ask;
use weir_tests::load::{repeat, together};

use super::Edge;

const ADDRESS: &str = "203.0.113.7";

fn with_token(path: &str, token: &str) -> Ask {
    Ask::get(path).forwarded_for(ADDRESS).header("authorization", token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_has_60_an_hour_a_token_5000_wherever_it_is_used_and_searches_are_counted_apart() {
    let edge = Edge::start("github-like").await;
    let (anonymous, mut client) = (Ask::get("/users/octo").forwarded_for(ADDRESS), edge.envoy.client());
    let first = client.send(&anonymous).await;
    assert_eq!((first.status, first.header("x-ratelimit-limit")), (200, "60"), "{first:?}");
    assert_eq!(first.number("x-ratelimit-remaining"), 59);
    assert_eq!(repeat(&mut client, &anonymous, 79).await.admitted(), 59);
    let limited = client.send(&anonymous).await;
    assert_eq!((limited.status, limited.header("x-ratelimit-remaining")), (429, "0"), "{limited:?}");
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs();
    let reset_in_s = limited.number("x-ratelimit-reset").saturating_sub(unix_s);
    assert!((50..=61).contains(&reset_in_s), "a Unix time, when the next request may pass: {limited:?}");
    assert_eq!(edge.status(&Ask::get("/users/octo").forwarded_for("203.0.113.8")).await, 200);
    let search = Ask::get("/search/code?q=weir").forwarded_for(ADDRESS);
    edge.assert_limited_after(&search, 10, 10.0 / 60.0).await;

    edge.assert_limited_after(&with_token("/search/code?q=weir", "token one"), 30, 0.5).await;
    assert_eq!(edge.status(&with_token("/search/code?q=weir", "token two")).await, 200);
    let known = client.send(&with_token("/users/octo", "token one")).await;
    assert_eq!((known.status, known.header("x-ratelimit-limit")), (200, "5000"), "{known:?}");
    assert_eq!(known.header("x-ratelimit-remaining"), "4999", "searches are another matter");
    let from = |n: usize| with_token("/repos", "token three").forwarded_for(&format!("198.51.100.{n}"));
    // 9 clients at 9 addresses.
    let tally = together(edge.envoy.clients(9), |n| vec![from(n); 600]).await;
    tally.assert_only_decisions();
    let admitted = tally.admitted();
    assert!(
        (5_000..=5_100).contains(&admitted),
        "5,000, and what an hour's refill gave meanwhile: {admitted}"
    );
}
