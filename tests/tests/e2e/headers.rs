//! Quota headers, where others state quotas, too; and what else clients and access logs get. In both hosts.

use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};
use weir_tests::client::{Answer, Ask};
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::server::{Respond, Server, response};
use weir_tests::wait::until;

use crate::plugin::{rule, rules, with};
use crate::sync::synced;

const CLIENT: &str = "203.0.113.7";

/// A rule that advertises its quota on allowed responses.
fn loud(name: &str, burst: u32) -> Value {
    with(rule(name, "1/h", burst), "response", json!({"on_allowed": true}))
}

/// The only line of a header; empty if there is none.
fn only<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let lines: Vec<_> = answer.headers.get_all(name).iter().collect();
    assert!(lines.len() <= 1, "{name}: {lines:?}");
    answer.header(name)
}

/// The quota headers, each at most once: policies, status, limit, remaining.
fn quota_of(answer: &Answer) -> [String; 4] {
    only(answer, "x-ratelimit-reset");
    let names = ["ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining"];
    let values = names.map(|name| only(answer, name).to_owned());
    let [policies, status, limit, remaining] = values;
    // Without its time.
    let status = status.split(";t=").next().unwrap_or_default().to_owned();
    [policies, status, limit, remaining]
}

/// An upstream that sends back what a request has in `x-echo-...` as headers, in a line for each comma.
async fn repeating() -> Server {
    Server::start(|asked| {
        let mut response = response(StatusCode::OK, Bytes::from_static(b"upstream\n"));
        for (name, value) in &asked.head.headers {
            let Some(name) = name.as_str().strip_prefix("x-echo-") else { continue };
            let name: hyper::header::HeaderName = name.parse().expect("a name");
            for line in value.to_str().unwrap_or_default().split(" | ") {
                response.headers_mut().append(name.clone(), line.parse().expect("a value"));
            }
        }
        Respond::Later(std::time::Duration::ZERO, response)
    })
    .await
}

#[tokio::test]
async fn the_stricter_of_two_quotas_is_sent_once() {
    let upstream = repeating().await;
    for host in Host::BOTH {
        let setup = Setup::with(rules([loud("ours", 10)])).host(host).upstream(upstream.address());
        let edge = Envoy::start(setup).await;
        let x = |remaining: &str| {
            Ask::from(CLIENT)
                .header("x-echo-x-ratelimit-limit", "100, 100;w=60")
                .header("x-echo-x-ratelimit-remaining", remaining)
                .header("x-echo-x-ratelimit-reset", "30")
        };
        let mut client = edge.client();
        let ours = r#""ours";q=10;w=36000"#;
        assert_eq!(quota_of(&client.send(&x("95")).await), [ours, r#""ours";r=9"#, "10", "9"]);
        let both = format!(r#"{ours}, "upstream";q=100"#);
        assert_eq!(quota_of(&client.send(&x("5")).await), [&both, r#""upstream";r=5"#, "100", "5"]);
        // Two proxies behind this one, each with a line of its own.
        assert_eq!(quota_of(&client.send(&x("50 | 1")).await)[3], "1");
        let draft = |remaining| {
            Ask::from(CLIENT)
                .header("x-echo-ratelimit-policy", r#""theirs";q=100;w=60"#)
                .header("x-echo-ratelimit", &format!(r#""theirs";r={remaining};t=30"#))
        };
        let both = format!(r#""theirs";q=100;w=60, {ours}"#);
        assert_eq!(quota_of(&client.send(&draft(90)).await), [&both, r#""ours";r=6"#, "10", "6"]);
        assert_eq!(quota_of(&client.send(&draft(9)).await), [&both, r#""theirs";r=9"#, "100", "9"]);
    }
}

#[tokio::test]
async fn the_stricter_of_two_chained_weirs_is_sent_once() {
    let upstream = Server::upstream().await;
    for host in Host::BOTH {
        for (outer, inner) in [(2, 9), (9, 2)] {
            let setup = Setup::with(rules([loud("outer", outer)])).host(host).upstream(upstream.address());
            let edge = Envoy::start(setup.second(&rules([loud("inner", inner)]))).await;
            let policy = |name, burst| format!(r#""{name}";q={burst};w={}"#, burst * 3_600);
            let both = format!("{}, {}", policy("inner", inner), policy("outer", outer));
            let strictest = if outer < inner { "outer" } else { "inner" };
            for left in [1, 0] {
                let answer = edge.client().send(&Ask::from(CLIENT)).await;
                let status = format!(r#""{strictest}";r={left}"#);
                let expected = [both.clone(), status, "2".to_owned(), left.to_string()];
                assert_eq!((answer.status, quota_of(&answer)), (200, expected), "{host:?}");
            }
            let refused = edge.client().send(&Ask::from(CLIENT)).await;
            let [policies, status, limit, left] = quota_of(&refused);
            assert_eq!((refused.status, &*limit, &*left), (429, "2", "0"), "{host:?}: {refused:?}");
            assert!(status.starts_with(&format!(r#""{strictest}";r=0"#)), "{refused:?}");
            assert!(policies.contains(&policy(strictest, 2)), "{refused:?}");
            assert!(refused.number("retry-after") > 3_000, "{refused:?}");
        }
    }
}

/// Envoy's own limiter, with as many tokens, which advertises its quota.
fn local_ratelimit(tokens: u32) -> Value {
    let all = json!({"default_value": {"numerator": 100}});
    json!({"name": "local", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "local",
        "token_bucket": {"max_tokens": tokens, "tokens_per_fill": 1, "fill_interval": "3600s"},
        "filter_enabled": all,
        "filter_enforced": all,
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
    }})
}

#[tokio::test]
async fn the_stricter_of_envoys_limit_and_weirs_is_sent_once() {
    let upstream = Server::upstream().await;
    for host in Host::BOTH {
        for (ours, theirs, expected) in [(5, 100, ["5", "4"]), (100, 5, ["5", "4"])] {
            let setup = Setup::with(rules([loud("ours", ours)])).host(host).upstream(upstream.address());
            let edge = Envoy::start(setup.behind(local_ratelimit(theirs))).await;
            let answer = edge.client().send(&Ask::from(CLIENT)).await;
            let [_, status, limit, remaining] = quota_of(&answer);
            assert_eq!([&*limit, &*remaining], expected, "{host:?}: {answer:?}");
            let name = if ours < theirs { "ours" } else { "upstream" };
            assert_eq!(status, format!(r#""{name}";r=4"#), "{host:?}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_silent_rule_hides_no_advertised_policy() {
    let key = |rule, log_key| with(with(rule, "key", json!([{"header": "x-account"}])), "log_key", log_key);
    let plugin =
        rules([rule("hidden", "1/h", 3), key(loud("account", 50), json!(true)), key(loud("token", 100), json!(false))]);
    for host in Host::BOTH {
        let edge = Envoy::start(Setup::with(plugin.clone()).host(host)).await;
        let ask = Ask::from(CLIENT).header("x-account", "acme");
        let policies = r#""account";q=50;w=180000;pk=:YWNtZQ==:, "token";q=100;w=360000"#;
        for left in [49, 48, 47] {
            let answer = edge.client().send(&ask).await;
            assert_eq!(answer.status, 200);
            let [advertised, status, _, remaining] = quota_of(&answer);
            assert_eq!(
                (&*advertised, status, remaining),
                (policies, format!(r#""account";r={left}"#), left.to_string())
            );
            assert!(answer.header("ratelimit").ends_with(";pk=:YWNtZQ==:"), "{answer:?}");
        }
        for _ in 0..2 {
            let refused = edge.client().send(&ask).await;
            assert_eq!((refused.status, only(&refused, "x-ratelimit-limit")), (429, "3"));
            let all = format!(r#""hidden";q=3;w=10800, {policies}"#);
            assert_eq!(quota_of(&refused)[0], all, "{host:?}");
        }
    }
}

/// The type of a problem, without the registry.
fn problem(answer: &Answer) -> String {
    let (body, status) = (answer.json(), answer.status);
    assert_eq!((&body["status"], &body["violated-policies"]), (&json!(status), &json!(["login"])));
    body["type"].as_str().and_then(|kind| kind.split('#').nth(1)).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_problem_document_explains_a_refusal() {
    let penalty = json!({"after": 1, "within": "1m", "deny_for": "1h"});
    let banning = rules([with(rule("login", "1/h", 1), "penalty", penalty)]);
    let denying = synced(rules([with(rule("login", "1/h", 1), "on_sync_loss", json!("deny"))]), "a");
    let nobody = Server::start(|_| Respond::Now(StatusCode::SERVICE_UNAVAILABLE, Bytes::new())).await;
    for host in Host::BOTH {
        let edge = Envoy::start(Setup::with(banning.clone()).host(host)).await;
        let mut client = edge.client();
        assert_eq!(client.send(&Ask::from(CLIENT)).await.status, 200);
        for kind in ["quota-exceeded", "abnormal-usage-detected", "abnormal-usage-detected"] {
            assert_eq!(problem(&client.send(&Ask::from(CLIENT)).await), kind, "{host:?}");
        }
        let setup = Setup::with(denying.clone()).host(host).cluster("weir-sync", nobody.address());
        let edge = Envoy::start(setup).await;
        let denied = until("a denied request", async || {
            let answer = edge.client().send(&Ask::from(CLIENT)).await;
            (answer.status == 503).then_some(answer)
        })
        .await;
        assert_eq!(problem(&denied), "temporary-reduced-capacity", "{host:?}");
    }
}

#[tokio::test]
async fn shadow_decisions_are_in_the_access_log_and_a_header() {
    let shadow =
        |name, burst, response| with(with(rule(name, "1/h", burst), "mode", json!("shadow")), "response", response);
    let plugin = rules([
        shadow("asked", 1, json!({"on_shadow": true})),
        shadow("unasked", 2, json!({})),
        with(rule("enforced", "1/h", 4), "response", json!({"on_shadow": true})),
    ]);
    for host in Host::BOTH {
        let log = "%RESPONSE_CODE% %FILTER_STATE(wasm.weir.shadow:PLAIN)% %FILTER_STATE(wasm.weir.rule:PLAIN)%";
        let edge = Envoy::start(Setup::with(plugin.clone()).host(host).access_log(log)).await;
        let mut headers = Vec::new();
        for _ in 0..5 {
            let answer = edge.client().send(&Ask::from(CLIENT)).await;
            headers.push(only(&answer, "x-weir-shadow").to_owned());
        }
        assert_eq!(headers, ["", "asked", "asked", "asked", ""], "{host:?}");
        let expected = ["200 - -", "200 asked -", "200 asked,unasked -", "200 asked,unasked -", "429 - -"];
        assert_eq!(edge.access_log(5).await, expected, "{host:?}");
    }
}
