//! What docs/envoy.md says of Weir among other filters.

use hyper::Method;
use serde_json::{Value, json};
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::repeat;
use weir_tests::server::Server;

use crate::plugin::one;

const TYPES: &str = "type.googleapis.com/envoy.extensions.filters.http";

fn router() -> Value {
    json!({"name": "router", "typed_config": {"@type": format!("{TYPES}.router.v3.Router")}})
}

/// What the scripts of another site may ask for, and read.
fn cors_policy() -> Value {
    json!({"typed_per_filter_config": {"cors": {
        "@type": format!("{TYPES}.cors.v3.CorsPolicy"),
        "allow_origin_string_match": [{"exact": "https://site.example"}],
        "allow_methods": "GET",
        "expose_headers": "retry-after,ratelimit,ratelimit-policy",
    }}})
}

fn from_site(method: Method) -> Ask {
    let is_preflight = method == Method::OPTIONS;
    let ask = Ask::new(method, "/").forwarded_for("203.0.113.7").header("origin", "https://site.example");
    if is_preflight { ask.header("access-control-request-method", "GET") } else { ask }
}

#[tokio::test]
async fn behind_the_cors_filter_preflights_are_not_counted_and_scripts_may_read_a_refusal() {
    let cors = json!({"name": "cors", "typed_config": {"@type": format!("{TYPES}.cors.v3.Cors")}});
    // That filter looks at routes to an upstream alone.
    let upstream = Server::upstream().await;
    let setup = Setup::with(one("api", "1/h", 2)).upstream(upstream.address()).before(cors);
    let edge = Envoy::start(setup.more(Value::Null, cors_policy())).await;
    let mut client = edge.client();
    let preflights = repeat(&mut client, &from_site(Method::OPTIONS), 9).await;
    assert_eq!((preflights.admitted(), preflights.limited()), (9, 0));
    assert_eq!(repeat(&mut client, &from_site(Method::GET), 2).await.admitted(), 2);
    let refused = client.send(&from_site(Method::GET)).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("access-control-allow-origin"), "https://site.example");
    assert!(refused.header("access-control-expose-headers").contains("retry-after"));
}

#[tokio::test]
async fn without_it_preflights_count() {
    let edge = Envoy::start(Setup::with(one("api", "1/h", 2))).await;
    let preflights = repeat(&mut edge.client(), &from_site(Method::OPTIONS), 9).await;
    assert_eq!((preflights.admitted(), preflights.limited()), (2, 7));
}

/// A WebSocket's first request; nobody here is to speak on.
fn upgrade() -> Ask {
    let ask = Ask::get("/")
        .forwarded_for("203.0.113.7")
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    ask.header("sec-websocket-version", "13").header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

#[tokio::test]
async fn an_upgrade_with_filters_of_its_own_goes_by_weir() {
    for (filters, limited) in [(json!([]), true), (json!([router()]), false)] {
        let mut upgrades = json!([{"upgrade_type": "websocket"}]);
        if filters != json!([]) {
            upgrades[0]["filters"] = filters;
        }
        let setup = Setup::with(one("api", "1/h", 1)).more(json!({"upgrade_configs": upgrades}), Value::Null);
        let edge = Envoy::start(setup).await;
        let mut statuses = vec![];
        for _ in 0..3 {
            // One connection each, as after an upgrade it is no longer of HTTP.
            statuses.push(edge.client().send(&upgrade()).await.status);
        }
        assert_eq!(statuses.contains(&429), limited, "{statuses:?}");
    }
}
