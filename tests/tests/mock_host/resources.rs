//! Memory, metrics and hashes: what leaves the module, and what it costs the proxy.

use std::collections::BTreeSet;

use serde_json::json;
use weir_protocol::messages::{Message as _, Report};
use weir_tests::mock_host::{Ask, Begun, CallAnswer, SharedData, Worker, grant, reply};

use crate::harness::{client, exchange, leased, plugin, rule, shared, synced, with};

const ADDRESSES: u32 = 40_000;
/// Half of them warm everything up.
const WARM_UP: u32 = ADDRESSES / 2;

/// One request from each address; what memory stood at after the warm-up and at the end.
fn rotate(worker: &mut Worker, shared: &SharedData, mut tick: impl FnMut(&mut Worker)) -> [(usize, usize); 2] {
    let mut run = |range: std::ops::Range<u32>| {
        for n in range {
            let [_, a, b, c] = n.to_be_bytes();
            let _ = worker.request(&Ask::from(format!("10.{a}.{b}.{c}:80")));
            if n % 1_000 == 0 {
                // Long enough that a worker forgets some of those it watches.
                worker.advance_ms(20_000);
                tick(worker);
            }
        }
        (worker.memory_bytes(), shared.keys().len())
    };
    [run(0..WARM_UP), run(WARM_UP..ADDRESSES)]
}

#[test]
fn a_gauge_counts_addresses_in_debt() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/m", 3)));
    let ask = |worker: &mut Worker, clients: std::ops::Range<u32>| {
        for n in clients {
            assert_eq!(worker.allowed_of(1, &Ask::from(format!("10.0.0.{n}:80"))), 1);
        }
        worker.counted("weir.table.entries_used")
    };
    assert_eq!(ask(&mut worker, 0..30), 30);
    // More than the 64 places; two may have one label.
    let taken = ask(&mut worker, 30..130);
    assert!((125..=130).contains(&taken), "{taken}");
    // Three tokens are back.
    worker.advance_ms(181_000);
    assert_eq!(worker.counted("weir.table.entries_used"), 0);
}

// I2
#[test]
fn rotating_watched_addresses_cost_no_memory() {
    let shared = shared();
    // Every batch of addresses fits, and is full again before the next.
    let plugin = with(synced(&rule("10/s", 2)), "table", json!({"addresses": 4_096}));
    let mut worker = Worker::configured(&shared, &plugin);
    exchange(&mut worker, |report| CallAnswer::new("200", reply(report.sequence, 9, Vec::new())));
    let keys = shared.keys().len();
    let mut reported = 0;
    let [warm, end] = rotate(&mut worker, &shared, |worker| {
        let report = exchange(worker, |report| {
            let grants = report.keys.iter().map(|_| grant(500, 1, 100)).collect();
            CallAnswer::new("200", reply(report.sequence, 9, grants))
        });
        reported += report.keys.len();
    });
    assert_eq!(warm, end, "bytes of linear memory, keys of shared data");
    assert_eq!(end.1, keys);
    assert!(reported > 10_000, "{reported} were watched");
}

const PAGE: &str = include_str!("../../../docs/reference/metrics.md");

/// The metrics that the page names in backticks: in full, or after another one from which only the last part differs.
fn named(page: &str) -> BTreeSet<String> {
    let mut last = None;
    let name = |code: &str| {
        let name = match (code.strip_prefix('.'), last.take()) {
            (Some(part), Some(before)) => {
                let before: String = before;
                Some(format!("{}.{part}", before.rsplit_once('.')?.0))
            }
            _ => code.starts_with("weir.").then(|| code.to_owned()),
        };
        last.clone_from(&name);
        name
    };
    page.split('`').skip(1).step_by(2).filter_map(name).collect()
}

#[test]
fn the_page_for_operators_names_every_metric_and_no_other() {
    let rule = with(rule("1/h", 1), "name", "name".into());
    let worker = Worker::configured(&shared(), &synced(&rule));
    let defined = worker.host().metric_names().into_iter();
    let defined: BTreeSet<_> = defined.map(|name| name.replace(".name.", ".NAME.")).collect();
    assert!(defined.len() > 20, "{defined:?}");
    assert_eq!(named(PAGE), defined);
}

#[test]
fn hashing_without_a_secret_is_warned_about() {
    let rule = json!({"name": "r", "key": ["host"], "rate": "1/h"});
    let warnings = |configuration: &serde_json::Value| {
        let worker = Worker::configured(&shared(), configuration);
        let logs = worker.host().logs.clone();
        logs.iter().filter(|(_, line)| line.contains("sync.key_secret")).count()
    };
    let mut bare = synced(&rule);
    assert_eq!(warnings(&bare), 0);
    bare["sync"].as_object_mut().unwrap().remove("token");
    assert_eq!(warnings(&bare), 1);
    assert_eq!(warnings(&plugin(&rule)), 0);
}

// I1, I2
#[test]
fn waiting_requests_are_bounded() {
    let strict = with(rule("5/m", 5), "strict", json!(true));
    let mut worker = Worker::configured(&shared(), &synced(&with(strict, "on_sync_loss", json!("deny"))));
    let waiting: Vec<_> = (0..1_000).map(|_| worker.held(&client(1))).collect();
    assert_eq!(worker.request(&client(1)).answer().status, 503);
    let report = Report::decode(&waiting[0].call.body).expect("weir-sync could not read this report");
    assert!(worker.answer_waiting(&waiting[0], leased(&report, 1)).allowed());
    assert!(matches!(worker.begin_request(&client(1)), Begun::Waiting(_)));
}
