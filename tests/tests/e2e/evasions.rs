//! Requests that are written so that a filter may read them in another way than their upstream: headers in several
//! lines, dot segments, odd hosts. Every host of the filter decides them alike, and the mock host as an Envoy does.

use hyper::Method;
use serde_json::{Value, json};
use weir_tests::client;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::mock_host::{self, Decision, SharedData, Worker, ZeroCas};
use weir_tests::server::Server;

use crate::plugin::with;

const CLIENT: &str = "203.0.113.7";

/// A request: its method, its host, its path, its lines of headers; and the status that it gets.
struct Asked(&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)], u16);

const fn get(path: &'static str, lines: &'static [(&'static str, &'static str)], status: u16) -> Asked {
    Asked("GET", "edge.test", path, lines, status)
}

/// In order: some take the tokens of others.
const LINES: [Asked; 37] = [
    get("/limit", &[("x-api-key", "real")], 200),
    get("/limit", &[("x-api-key", "r1"), ("x-api-key", "real")], 429),
    get("/limit", &[("x-api-key", "r2"), ("x-api-key", "r3")], 429),
    get("/first", &[("x-api-key", "real"), ("x-api-key", "r1")], 200),
    get("/first", &[("x-api-key", "real"), ("x-api-key", "r2")], 429),
    get("/first", &[("x-api-key", "r1"), ("x-api-key", "real")], 200),
    get("/last", &[("x-api-key", "r1"), ("x-api-key", "real")], 200),
    get("/last", &[("x-api-key", "r2"), ("x-api-key", "real")], 429),
    get("/last", &[("x-api-key", "real")], 429),
    get("/joined", &[("x-api-key", "a"), ("x-api-key", "b")], 200),
    get("/joined", &[("x-api-key", "a,b")], 429),
    get("/joined", &[("x-api-key", "a")], 200),
    get("/token", &[("authorization", "Bearer a"), ("authorization", "BEARER  b")], 200),
    get("/token", &[("authorization", "x"), ("authorization", "Bearer b")], 429),
    get("/cookie", &[("cookie", "a=1"), ("cookie", "sid=real")], 200),
    get("/cookie", &[("cookie", "b=2"), ("cookie", "sid=real")], 429),
    get("/cookie", &[("cookie", "b=2; sid=real")], 429),
    get("/prefix", &[("x-plan", "free-1"), ("x-plan", "gold")], 200),
    get("/prefix", &[("x-plan", "gold"), ("x-plan", "free-1")], 429),
    get("/prefix", &[("x-plan", "gold"), ("x-plan", "silver")], 200),
    get("/prefix", &[("x-plan", "gold"), ("x-plan", "silver")], 200),
    get("/tier", &[("x-plan", "gold")], 200),
    get("/tier", &[("x-plan", "gold")], 200),
    get("/tier", &[("x-plan", "gold"), ("x-plan", "free")], 200),
    get("/tier", &[("x-plan", "free"), ("x-plan", "gold")], 429),
    get("/keys", &[("x-api-key", "other"), ("x-api-key", "poor")], 200),
    get("/keys", &[("x-api-key", "other"), ("x-api-key", "poor")], 429),
    get("/cost", &[("x-cost", "1"), ("x-cost", "10")], 200),
    get("/cost", &[("x-cost", "1")], 429),
    get("/deny", &[("x-bot", "good"), ("x-bot", "evil")], 403),
    get("/deny", &[("x-bot", "good"), ("x-bot", "evil/1.0")], 403),
    get("/deny", &[("x-bot", "good"), ("x-bot", "fine")], 200),
    get("/deny", &[("user-agent", "good"), ("user-agent", "evil")], 403),
    get("/deny", &[("user-agent", "Mozilla/5.0 (KHTML, evil)")], 200),
    get("/deny", &[("cookie", "a=1"), ("cookie", "bot=1")], 403),
    get("/allow", &[("x-bot", "tester"), ("x-bot", "evil")], 403),
    get("/allow", &[("x-bot", "tester"), ("x-bot", "tester")], 403),
];

fn rule(path: &str, key: &Value) -> Value {
    let name = path.trim_start_matches('/');
    json!({"name": name, "match": {"path": {"exact": path}}, "key": [key], "rate": "1/d"})
}

fn lines() -> Value {
    let by_key = |path: &str, which: &str| rule(path, &json!({"header": "x-api-key", "duplicates": which}));
    let plan = |test: &str, value: &str| json!([{"name": "x-plan", test: value}]);
    let mut prefix = rule("/prefix", &json!("client_address"));
    prefix["match"]["headers"] = plan("prefix", "free");
    let gold = json!([{"name": "gold", "when": {"headers": plan("equals", "gold")}, "rate": "2/d", "burst": 2}]);
    let poor = json!([{"name": "poor", "keys": ["poor"], "rate": "1/d"}]);
    let cost = json!({"header": "x-cost", "max": 10});
    let bots = |path: &str, test: &Value| json!({"path": {"exact": path}, "headers": [test]});
    json!({
        "table": {"addresses": 256},
        "allow": [bots("/allow", &json!({"name": "x-bot", "equals": "tester"}))],
        "deny": [
            bots("/deny", &json!({"name": "x-bot", "in": ["evil", "worse"]})),
            bots("/deny", &json!({"name": "x-bot", "regex": "^evil/"})),
            bots("/deny", &json!({"name": "user-agent", "prefix": "evil"})),
            {"path": {"exact": "/deny"}, "cookies": [{"name": "bot", "present": true}]},
            bots("/allow", &json!({"name": "x-bot", "present": true})),
        ],
        "rules": [
            by_key("/limit", "limit"),
            by_key("/first", "first"),
            by_key("/last", "last"),
            rule("/joined", &json!({"header": "x-api-key"})),
            rule("/token", &json!({"header": "authorization", "duplicates": "last"})),
            rule("/cookie", &json!({"cookie": "sid", "duplicates": "last"})),
            prefix,
            with(rule("/tier", &json!("client_address")), "tiers", gold),
            with(with(rule("/keys", &json!({"header": "x-api-key"})), "tiers", poor), "burst", json!(5)),
            with(with(rule("/cost", &json!("client_address")), "cost", cost), "burst", json!(10)),
        ],
    })
}

/// Paths and hosts that upstreams may take for those that rules name.
const SPELLINGS: [Asked; 15] = [
    get("/login", &[], 403),
    get("/x/%2e%2e;/login", &[], 403),
    get("/x/..;a=b/login", &[], 403),
    get("/x/..%3b/login", &[], 403),
    get("/%2e;/login", &[], 403),
    get("/x/.well-known/a;b", &[], 200),
    Asked("GET", "evil.example.com", "/", &[], 403),
    Asked("GET", "EVIL.example.com.:80", "/", &[], 403),
    Asked("GET", "evil.example.com..", "/", &[], 403),
    Asked("GET", "user@evil.example.com", "/", &[], 403),
    Asked("GET", "good.example.com", "/", &[], 200),
    Asked("POST", "edge.test", "/x", &[], 200),
    Asked("POST", "edge.test", "/x", &[("x-http-method-override", "DELETE")], 403),
    Asked("POST", "edge.test", "/x", &[("x-http-method-override", "PUT"), ("x-http-method-override", "delete")], 403),
    Asked("POST", "edge.test", "/x", &[("x-http-method-override", "PUT")], 200),
];

fn spellings() -> Value {
    json!({
        "table": {"addresses": 64},
        "deny": [
            {"path": {"exact": "/login"}},
            {"hosts": ["evil.example.com"]},
            {"methods": ["DELETE"], "method_override": ["x-http-method-override"]},
        ],
        "rules": [{"name": "r", "key": ["client_address"], "rate": "1000/s"}],
    })
}

async fn of_envoy(host: Host, plugin: &Value, asked: &[Asked]) -> Vec<u16> {
    let normalising = json!({
        "normalize_path": true, "merge_slashes": true,
        "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
    });
    let edge = Envoy::start(Setup::with(plugin.clone()).host(host).more(normalising, Value::Null)).await;
    let mut statuses = Vec::new();
    for Asked(method, host, path, lines, _) in asked {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let ask = client::Ask::new(method, path).forwarded_for(CLIENT).header("host", host);
        let ask = lines.iter().fold(ask, |ask, (name, value)| ask.line(name, value));
        statuses.push(edge.client().send(&ask).await.status);
    }
    statuses
}

fn of_mock_host(plugin: &Value, asked: &[Asked]) -> Vec<u16> {
    let mut worker = Worker::configured(&SharedData::new(ZeroCas::Overwrites), plugin);
    let status = |Asked(method, host, path, lines, _): &Asked| {
        let ask = mock_host::Ask::from(CLIENT).header(":method", method).header(":authority", host);
        let ask = ask.header(":path", path);
        let ask = lines.iter().fold(ask, |ask, (name, value)| ask.line(name, value));
        match worker.request(&ask).decision {
            Decision::Continue => 200,
            Decision::Answered(answer) => u16::try_from(answer.status).unwrap(),
        }
    };
    asked.iter().map(status).collect()
}

/// Differences from the expected results of every host.
async fn differences(plugin: &Value, asked: &[Asked]) -> Vec<String> {
    let found = [
        ("module", of_envoy(Host::Native, plugin, asked).await),
        ("wasm", of_envoy(Host::Wasm, plugin, asked).await),
        ("mock host", of_mock_host(plugin, asked)),
    ];
    let each = found.iter().flat_map(|(host, statuses)| {
        let wrong = statuses.iter().zip(asked).filter(|(status, Asked(.., expected))| *status != expected);
        wrong.map(move |(status, Asked(method, of, path, lines, _))| {
            format!("{host}: {status} for {method} {of}{path} {lines:?}")
        })
    });
    each.collect()
}

#[tokio::test]
async fn every_host_decides_a_repeated_header_alike() {
    assert_eq!(differences(&lines(), &LINES).await, [""; 0]);
}

#[tokio::test]
async fn no_spelling_evades_a_rule_in_any_host() {
    assert_eq!(differences(&spellings(), &SPELLINGS).await, [""; 0]);
}

/// The mock host joins the lines of the headers that Envoy joins, and of no others.
#[tokio::test]
async fn the_mock_host_joins_the_same_header_lines_as_envoy() {
    const NAMES: [&str; 14] = [
        "accept",
        "accept-encoding",
        "accept-language",
        "authorization",
        "content-type",
        "cookie",
        "origin",
        "proxy-authorization",
        "referer",
        "user-agent",
        "via",
        "x-api-key",
        "x-http-method-override",
        "x-plan",
    ];
    let upstream = Server::upstream().await;
    let edge = Envoy::start(Setup::plain().upstream(upstream.address())).await;
    let ask = NAMES.iter().fold(client::Ask::get("/"), |ask, name| ask.line(name, "a").line(name, "b"));
    assert_eq!(edge.client().send(&ask).await.status, 200);
    let head = upstream.asked()[0].head.clone();
    let mock = NAMES.iter().fold(mock_host::Ask::from(CLIENT), |ask, name| ask.line(name, "a").line(name, "b"));
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let of_envoy =
        NAMES.map(|name| head.headers.get_all(name).iter().map(|value| text(value.as_bytes())).collect::<Vec<_>>());
    let of_mock = NAMES.map(|name| {
        let lines = mock.headers.iter().filter(|(known, _)| known == name);
        lines.map(|(_, value)| text(value)).collect::<Vec<_>>()
    });
    assert_eq!(of_mock, of_envoy, "{NAMES:?}");
}
