//! Envoys with Envoy's own filters for rate limits, as the bootstraps in envoy/gateway set them up, and weir-sync's
//! gateway behind them.

mod charges;
mod quotas;

use hyper::Method;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{Tally, repeat};
use weir_tests::operator::Operator;
use weir_tests::redis::Redis;
use weir_tests::server::Server;
use weir_tests::wait::until;
use weir_tests::weir_sync::{TOKEN, WeirSync};
use weir_tests::{artefact, port};

use crate::login::rules_in;
use crate::plugin::one;

/// A weir-sync that answers gRPC, and where.
struct Gateway {
    weir_sync: WeirSync,
    grpc: SocketAddr,
}

impl Gateway {
    /// That of `region` over `store`, with `arguments` more.
    async fn start(region: &str, store: &str, arguments: &[&str]) -> Self {
        let grpc = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()));
        let listen = grpc.to_string();
        let arguments = [&["--gateway", "on", "--grpc-listen", &listen, "--replica", "a"], arguments].concat();
        let mut weir_sync = WeirSync::start_with(region, store, &arguments).await;
        weir_sync.answers("/readyz", 200).await;
        Self { weir_sync, grpc }
    }

    /// An Envoy that asks it, in front of `upstream`, with the filter and the cluster of this bootstrap, and these
    /// fields of the virtual host.
    async fn envoy(&self, file: &str, upstream: &Server, host: Value) -> Envoy {
        let (manager, cluster) = shipped(file);
        let setup = Setup::plain().upstream(upstream.address()).before(manager["http_filters"][0].clone());
        let setup = setup.more(Value::Null, host).shipped_cluster(cluster, self.grpc).concurrency(2);
        let envoy = Envoy::start(setup).await;
        envoy.stat_reaches("cluster.weir-sync-grpc.membership_healthy", 1).await;
        envoy
    }

    /// The same with all of envoy.yaml: its descriptors, too.
    async fn edge(&self, upstream: &Server) -> Envoy {
        let rate_limits = shipped("envoy.yaml").0["route_config"]["virtual_hosts"][0]["rate_limits"].clone();
        self.envoy("envoy.yaml", upstream, json!({"rate_limits": rate_limits})).await
    }
}

/// The connection manager of a bootstrap in envoy/gateway, and its cluster for the gateway.
fn shipped(file: &str) -> (Value, Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy/gateway").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(text.contains("Bearer a-token-of-weir-sync"), "the token to replace");
    let text = text.replace("a-token-of-weir-sync", TOKEN);
    let bootstrap: Value = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let resources = &bootstrap["static_resources"];
    let manager = &resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
    let cluster = resources["clusters"][1].clone();
    assert_eq!(cluster["name"], "weir-sync-grpc");
    (manager.clone(), cluster)
}

/// Waits until the POPs whose names begin so run the current rules.
async fn in_force(weir_sync: &WeirSync, pops: &[&str]) {
    let mut operator = Operator::of(weir_sync);
    until("the gateways to run the rules", async || {
        let (current, fleet) = operator.fleet().await;
        let runs = |name: &&str| fleet.iter().any(|(pop, version)| pop.starts_with(name) && *version == current);
        (current > 0 && pops.iter().all(runs)).then_some(())
    })
    .await;
}

#[test]
fn envoy_accepts_the_example_bootstraps() {
    for file in ["envoy/gateway/envoy.yaml", "envoy/gateway/quotas.yaml", "envoy/llm-api/envoy.yaml"] {
        let mut command = Command::new(artefact::envoy());
        command.args(["--mode", "validate", "-c", file]).current_dir(artefact::workspace());
        let output = command.output().expect("Envoy runs");
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn login(address: &str) -> Ask {
    Ask::new(Method::POST, "/login").forwarded_for(address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_envoys_with_envoys_filter_share_a_strict_quota() {
    let redis = Redis::start().await;
    let (a, b) = (Gateway::start("fra", &redis.url(), &[]).await, Gateway::start("nyc", &redis.url(), &[]).await);
    Operator::of(&a.weir_sync).put_good(&rules_in("gateway")).await;
    in_force(&a.weir_sync, &["gateway/fra", "gateway/nyc"]).await;
    let upstream = Server::obedient().await;
    let (at_a, at_b) = (a.edge(&upstream).await, b.edge(&upstream).await);
    let ask = login("203.0.113.7");
    let mut clients = [at_a.client(), at_a.client(), at_b.client(), at_b.client()];
    let [one, two, three, four] = &mut clients;
    let tallies =
        tokio::join!(repeat(one, &ask, 10), repeat(two, &ask, 10), repeat(three, &ask, 10), repeat(four, &ask, 10));
    let mut all = Tally::default();
    for tally in [&tallies.0, &tallies.1, &tallies.2, &tallies.3] {
        tally.assert_only_decisions();
        all.merge(tally);
    }
    assert_eq!((all.admitted(), all.total()), (5, 40));

    let refused = at_a.client().send(&ask).await;
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.header("retry-after").parse().expect("seconds");
    assert!((1..=60).contains(&wait), "until the first is a minute old: {refused:?}");
    assert!(refused.header("ratelimit").starts_with(r#""login";r=0"#), "{refused:?}");
    assert_eq!(refused.header("content-type"), "application/problem+json");
    assert_eq!(refused.json()["status"], 429);
    let other = at_b.client().send(&login("203.0.113.8")).await;
    assert_eq!(other.status, 200);
    assert!(other.header("ratelimit").starts_with(r#""login";r="#), "{other:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_store_failure_mode_deny_decides() {
    let mut redis = Redis::start().await;
    let gateway = Gateway::start("fra", &redis.url(), &[]).await;
    Operator::of(&gateway.weir_sync).put_good(&rules_in("gateway")).await;
    in_force(&gateway.weir_sync, &["gateway/fra"]).await;
    let upstream = Server::obedient().await;
    let edge = gateway.edge(&upstream).await;
    let mut client = edge.client();
    assert_eq!(client.send(&login("203.0.113.7")).await.status, 200);
    redis.kill();
    until("a login that is refused, as it cannot be checked", async || {
        let answer = client.send(&login("203.0.113.9")).await;
        (answer.status == 500).then_some(())
    })
    .await;
    // The other rule goes on with the region's share.
    assert_eq!(client.send(&Ask::from("203.0.113.9")).await.status, 200);
}

/// An Envoy that asks all the time while weir-sync starts over an empty store, which one in memory is at each start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_starting_gateway_admits_no_more_than_the_rules_of_its_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), one("per-address", "5/h", 5).to_string()).unwrap();
    let (mut redis, upstream) = (Redis::start().await, Server::obedient().await);
    for store in ["memory", &redis.url()] {
        let arguments = ["--rules-file", file.path().to_str().unwrap()];
        let mut gateway = Gateway::start("fra", store, &arguments).await;
        let edge = gateway.edge(&upstream).await;
        gateway.weir_sync.kill();
        redis.kill();
        redis.restart().await;
        let (mut client, ask, mut admitted) = (edge.client(), Ask::from("203.0.113.7"), 0);
        let refused = until("the rule to refuse a request", async || {
            for _ in 0..50 {
                match client.send(&ask).await.status {
                    200 => admitted += 1,
                    // Nobody answers, or nobody who knows the rules.
                    500 => {}
                    status => return Some(status),
                }
            }
            None
        });
        let (status, ()) = tokio::join!(refused, gateway.weir_sync.restart());
        assert!(status == 429 && (1..=5).contains(&admitted), "{store}: {admitted} admitted, then {status}");
    }
}
