//! Several weir-syncs of one region: each report of a POP is counted once.

use weir_sync::config::Config;

use crate::Server;
use crate::client::{one_key, report};
use crate::exchange::reply;
use crate::stores::Shared;

fn replica(name: &str) -> Config {
    Config { region: "fra".into(), replica: Some(name.into()), ..Config::default() }
}

/// Two servers of one region over one store.
async fn pair(store: &std::sync::Arc<Shared>) -> [Server; 2] {
    [Server::start_over(replica("a"), store.clone()).await, Server::start_over(replica("b"), store.clone()).await]
}

// I7
#[tokio::test]
async fn a_pop_that_alternates_between_replicas_is_charged_once() {
    let store = Shared::new(Config::default().pop_ttl);
    let servers = pair(&store).await;
    let mut levels = Vec::new();
    for (n, server) in (1..=6).zip(servers.iter().cycle()) {
        // A reply confirms, no matter which replica sends it.
        let answered = reply(&report(server.address, "", &one_key("fra1", n, 10 * n, 10, 10 * n)).await);
        assert_eq!(answered.pops, 1, "one POP, for any number of reporters");
        levels.push(answered.grants[0].grant().unwrap().level_milli);
    }
    assert_eq!(levels, [90_000, 80_000, 70_000, 60_000, 50_000, 40_000]);
    let last = store.accounts().last().unwrap().clone();
    let names: Vec<_> = last.replicas.iter().map(|m| &*m.name).collect();
    assert_eq!(names, ["fra/a", "fra/b"]);
    // Both know the budget. Without the store nothing is confirmed any more, so both count all of it.
    report(servers[0].address, "", &one_key("fra1", 6, 60, 0, 60)).await;
    store.set_gone(true);
    let mut levels = Vec::new();
    for (n, server) in (7..=9).zip(servers.iter().cycle()) {
        let sent = one_key("fra1", n, 10 * n, 10 * (n - 6), 10 * n);
        levels.push(reply(&report(server.address, "", &sent).await).grants[0].grant().unwrap().level_milli);
    }
    assert_eq!(levels, [30_000, 20_000, 10_000]);
}
