//! The examples in `envoy/kubernetes` as Istio and Envoy Gateway hand them to Envoy, in an Envoy without them. They are
//! wasm alone: neither deploys dynamic modules.

use std::fs;
use std::path::Path;
use std::time::Instant;

use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};
use weir_tests::artefact;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Host, Setup, text};
use weir_tests::load::{drain, repeat};
use weir_tests::operator::Operator;
use weir_tests::server::{Respond, Server};
use weir_tests::weir_sync::{TOKEN, WeirSync};

use crate::plugin::{rule, rules, with};

/// The resources in one file of `envoy/kubernetes`.
fn resources(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy/kubernetes").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let read = |part| serde_saphyr::from_str(part).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.split("\n---\n").map(read).collect()
}

/// The example of a `WasmPlugin`, under this name.
fn wasm_plugin(name: &str, configuration: Option<Value>) -> Value {
    let mut plugin = resources("istio.yaml").remove(0);
    plugin["metadata"]["name"] = name.into();
    match configuration {
        Some(configuration) => plugin["spec"]["pluginConfig"] = configuration,
        None => plugin["spec"]["pluginConfig"]["sync"]["token"] = TOKEN.into(),
    }
    plugin
}

/// A gateway's Envoy configuration from a `WasmPlugin` (Istio's pilot/pkg/model/extensions.go, and its agent, which
/// fetches the module): the VM has no id, and some variables of its own.
fn of_istio(plugin: &Value) -> Value {
    let [namespace, name] = ["namespace", "name"].map(|field| plugin["metadata"][field].as_str().unwrap());
    let (name, spec) = (format!("{namespace}.{name}"), &plugin["spec"]);
    let variables = json!({"ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": "4711"});
    json!({
        "name": name,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": name,
                "root_id": spec["pluginName"],
                "failure_policy": spec["failStrategy"],
                "vm_config": {
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": artefact::filter_wasm()}},
                    "environment_variables": {"key_values": variables},
                },
                "configuration": text(&spec["pluginConfig"].to_string()),
            },
        },
    })
}

/// An Envoy whose filters are these alone.
fn with_filters(filters: impl IntoIterator<Item = Value>) -> Setup {
    filters.into_iter().fold(Setup::plain().host(Host::Wasm), Setup::before)
}

fn from(address: &str, path: &str) -> Ask {
    Ask::get(path).forwarded_for(address)
}

/// Panics unless the example's rule lets its burst of 100 through, and hardly more.
async fn assert_limited(edge: &Envoy, ask: &Ask) {
    let begun = Instant::now();
    let (last, admitted) = drain(&mut edge.client(), ask, 1_000).await;
    let most = 120 + begun.elapsed().as_millis() / 50;
    assert_eq!((last.status, last.header("content-type")), (429, "application/problem+json"));
    assert!((100..=most).contains(&(admitted as u128)), "{admitted} instead of 100, and 20 a second: {most} at most");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_istio_example_limits_and_reports_under_the_pods_name() {
    let weir_sync = WeirSync::start("fra1", "memory").await;
    let pod = "router~10.244.0.12~istio-ingressgateway-7d8f9c6b5-abcde.istio-ingress~istio-ingress.svc.cluster.local";
    let setup = with_filters([of_istio(&wasm_plugin("weir", None))]).node(pod);
    let cluster = "outbound|7878||weir-sync.weir.svc.cluster.local";
    let edge = Envoy::start(setup.cluster(cluster, weir_sync.address())).await;
    edge.counter_grows("weir.sync.answered", 4).await;
    assert_limited(&edge, &from("203.0.113.7", "/")).await;
    let (_, pops) = Operator::of(&weir_sync).fleet().await;
    assert_eq!(pops.len(), 1, "{pops:?}");
    assert!(pops[0].0.starts_with("router~10.244.0.12~istio-ingressgateway-"), "{pops:?}");
}

/// They run in one VM, and what they share has one map, because Istio gives VMs no id.
#[tokio::test]
async fn two_istio_plugins_share_no_state() {
    let at =
        |path: &str, burst| rules([with(rule("per-address", "1/h", burst), "match", json!({"path": {"exact": path}}))]);
    let plugins = [("team-a", "/a"), ("team-b", "/b")].map(|(team, path)| wasm_plugin(team, Some(at(path, 3))));
    let edge = Envoy::start(with_filters(plugins.iter().map(of_istio))).await;
    for path in ["/a", "/b"] {
        assert_eq!(drain(&mut edge.client(), &from("203.0.113.7", path), 9).await.1, 3, "{path}");
    }
}

/// It turns the filter on by route, fetches the module from a server of its own, and gives each policy's VM an id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_envoy_gateway_example_limits_on_its_routes() {
    const NAME: &str = "envoy.filters.http.wasm/envoyextensionpolicy/default/weir/wasm/0";
    let [policy, proxy] = <[Value; 2]>::try_from(resources("envoy-gateway.yaml")).unwrap();
    let weir_sync = WeirSync::start("fra1", "memory").await;
    let module = Bytes::from(fs::read(artefact::filter_wasm()).unwrap());
    let digest = ring::digest::digest(&ring::digest::SHA256, &module);
    let sha256 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let files = Server::start(move |_| Respond::Now(StatusCode::OK, module.clone())).await;

    let wasm = &policy["spec"]["wasm"][0];
    let mut configuration = wasm["config"].clone();
    configuration["sync"]["token"] = TOKEN.into();
    let http_uri = json!({"uri": "https://envoy-gateway:18002/weir.wasm", "cluster": "wasm_cluster", "timeout": "10s"});
    let filter = json!({
        "name": NAME,
        "disabled": true,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": wasm["name"],
                "root_id": wasm["rootID"],
                "fail_open": wasm["failOpen"],
                "vm_config": {
                    "vm_id": "envoyextensionpolicy/default/weir/wasm/0",
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"remote": {"http_uri": http_uri, "sha256": sha256}},
                },
                "configuration": text(&configuration.to_string()),
            },
        },
    });
    let route = |prefix: &str, more: Value| {
        let mut route = json!({"match": {"prefix": prefix}, "direct_response": {"status": 200}});
        route["typed_per_filter_config"] = more;
        route
    };
    let on = json!({NAME: {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}}});
    let routes = json!({"routes": [route("/other", json!({})), route("/", on)]});
    let bootstrap: Value = serde_saphyr::from_str(proxy["spec"]["bootstrap"]["value"].as_str().unwrap()).unwrap();
    let cluster = bootstrap["static_resources"]["clusters"][0].clone();
    let setup = with_filters([filter]).more(json!({}), routes).node("envoy-default-eg-e41e7b31-6b8d9f7c54-abcde");
    let setup = setup.cluster("wasm_cluster", files.address()).shipped_cluster(cluster, weir_sync.address());
    let edge = Envoy::start(setup).await;
    edge.counter_grows("weir.sync.answered", 4).await;
    assert_limited(&edge, &from("203.0.113.7", "/")).await;
    let other = repeat(&mut edge.client(), &from("203.0.113.7", "/other"), 150).await;
    assert_eq!(other.admitted(), 150, "a route that the policy is not for: {other:?}");
    assert_eq!(files.count(), 1);
    let (_, pops) = Operator::of(&weir_sync).fleet().await;
    assert_eq!(pops, [("envoy-default-eg-e41e7b31-6b8d9f7c54-abcde".to_owned(), 0)]);
}
