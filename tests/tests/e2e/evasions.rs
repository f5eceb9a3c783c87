//! Requests that are written so that a filter may read them in another way than their upstream: headers in several
//! lines, dot segments, odd hosts. Every host of the filter decides them alike, and the mock host as an Envoy does.

use hyper::Method;
use serde_json::{Value, json};
use weir_tests::client;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::mock_host::{self, Decision, SharedData, Worker, ZeroCas};
use weir_tests::server::Server;

const CLIENT: &str = "203.0.113.7";

/// A plugin's configuration, and below `...` requests in their order, as some take the tokens of others: the status of
/// each, its method, its host and its path, and behind each ` | ` a line of its headers.
const LINES: &str = include_str!("evasions/lines.txt");
/// The same with paths and hosts that upstreams may take for those that rules name.
const SPELLINGS: &str = include_str!("evasions/spellings.txt");

/// A request, as its text has it.
struct Asked {
    text: &'static str,
    status: u16,
    method: &'static str,
    host: &'static str,
    path: &'static str,
    lines: Vec<(&'static str, &'static str)>,
}

impl Asked {
    fn read(text: &'static str) -> Self {
        let mut parts = text.split(" | ");
        let words: Vec<_> = parts.next().unwrap_or_default().split(' ').collect();
        let [status, method, host, path] = words[..] else { panic!("{text}") };
        let lines = parts.map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{text}"))).collect();
        Self { text, status: status.parse().unwrap(), method, host, path, lines }
    }
}

async fn of_envoy(host: Host, plugin: &Value, asked: &[Asked]) -> Vec<u16> {
    let normalising = json!({
        "normalize_path": true, "merge_slashes": true,
        "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
    });
    let edge = Envoy::start(Setup::with(plugin.clone()).host(host).more(normalising, Value::Null)).await;
    let mut statuses = Vec::new();
    for Asked { method, host, path, lines, .. } in asked {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let ask = client::Ask::new(method, path).forwarded_for(CLIENT).header("host", host);
        let ask = lines.iter().fold(ask, |ask, (name, value)| ask.line(name, value));
        statuses.push(edge.client().send(&ask).await.status);
    }
    statuses
}

fn of_mock_host(plugin: &Value, asked: &[Asked]) -> Vec<u16> {
    let mut worker = Worker::configured(&SharedData::new(ZeroCas::Overwrites), plugin);
    let status = |Asked { method, host, path, lines, .. }: &Asked| {
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
async fn differences(text: &'static str) -> Vec<String> {
    let (plugin, asked) = text.split_once("\n...\n").expect("requests");
    let plugin: Value = serde_saphyr::from_str(plugin).unwrap();
    let asked: Vec<_> = asked.lines().map(Asked::read).collect();
    let found = [
        ("module", of_envoy(Host::Native, &plugin, &asked).await),
        ("wasm", of_envoy(Host::Wasm, &plugin, &asked).await),
        ("mock host", of_mock_host(&plugin, &asked)),
    ];
    let each = found.iter().flat_map(|(host, statuses)| {
        let wrong = statuses.iter().zip(&asked).filter(|(status, asked)| **status != asked.status);
        wrong.map(move |(status, asked)| format!("{host}: {status}, and not {}", asked.text))
    });
    each.collect()
}

#[tokio::test]
async fn every_host_decides_a_repeated_header_alike() {
    assert_eq!(differences(LINES).await, [""; 0]);
}

#[tokio::test]
async fn no_spelling_evades_a_rule_in_any_host() {
    assert_eq!(differences(SPELLINGS).await, [""; 0]);
}

/// The mock host joins the lines of the headers that Envoy joins, and of no others.
#[tokio::test]
async fn the_mock_host_joins_the_same_header_lines_as_envoy() {
    let names = "accept accept-encoding accept-language authorization content-type cookie origin proxy-authorization \
                 referer user-agent via x-api-key x-http-method-override x-plan";
    let names: Vec<_> = names.split(' ').collect();
    let upstream = Server::upstream().await;
    let edge = Envoy::start(Setup::plain().upstream(upstream.address())).await;
    let ask = names.iter().fold(client::Ask::get("/"), |ask, name| ask.line(name, "a").line(name, "b"));
    assert_eq!(edge.client().send(&ask).await.status, 200);
    let head = upstream.asked()[0].head.clone();
    let mock = names.iter().fold(mock_host::Ask::from(CLIENT), |ask, name| ask.line(name, "a").line(name, "b"));
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    for name in names {
        let of_envoy: Vec<_> = head.headers.get_all(name).iter().map(|value| text(value.as_bytes())).collect();
        let of_mock = mock.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| text(value));
        assert_eq!(of_mock.collect::<Vec<_>>(), of_envoy, "{name}");
    }
    let page = include_str!("../../../docs/rules.md");
    let listed = page.split("Envoy joins the lines of ").nth(1).and_then(|rest| rest.split(':').next());
    for name in listed.expect("a list").split('`').skip(1).step_by(2) {
        assert_eq!(head.headers.get_all(name).iter().count(), 1, "docs/rules.md: {name}");
    }
}
