//! `/metrics` as scrapers get it, and what it costs. (That Prometheus's own parsers take the page:
//! tests/tests/mixin/openmetrics.rs.)

use std::collections::BTreeMap;
use std::time::Duration;

use weir_sync::config::Config;

use crate::Server;
use crate::client::{ask, get, one_key, post, report};

/// A server with a sample in every metric family.
async fn busy() -> Server {
    let server = Server::start(Config { region: "fra".into(), ..Config::default() }).await;
    report(server.address, "", &one_key("fra1", 1, 130, 130, 150)).await;
    assert_eq!(ask(server.address, &post("/v1/report", "", b"")).await.status, 415);
    server
}

#[tokio::test]
async fn every_sample_has_its_family_and_its_region() {
    let answer = get(busy().await.address, "/metrics").await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let page = answer.text();
    let (mut kinds, mut helped) = (BTreeMap::new(), Vec::new());
    for line in page.lines() {
        if let Some((name, _)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            helped.push(name);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            assert_eq!(helped.last(), Some(&name), "its help comes first");
            assert!(kinds.insert(name, kind).is_none(), "{name} twice");
        } else {
            let (sample, labels) = line.split_once('{').unwrap_or_else(|| panic!("no labels: {line}"));
            assert!(labels.contains(r#"region="fra""#), "{line}");
            let family = *helped.last().unwrap();
            let suffixes: &[&str] = if kinds[family] == "histogram" { &["_sum", "_count", "_bucket"] } else { &[""] };
            assert!(suffixes.contains(&sample.strip_prefix(family).unwrap()), "{line} of {family}");
        }
    }
    assert_eq!(helped.len(), kinds.len());
}

#[tokio::test]
async fn the_process_and_its_use_are_metrics() {
    let page = get(busy().await.address, "/metrics").await.text();
    let value = |name: &str| -> f64 {
        let row = page.lines().find(|line| line.starts_with(&format!("{name}{{")));
        row.unwrap_or_else(|| panic!("no {name} in\n{page}")).rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let build = page.lines().find(|line| line.starts_with("weir_sync_build_info{")).unwrap();
    assert!(
        build.contains(concat!(r#"version=""#, env!("CARGO_PKG_VERSION"), '"')) && build.ends_with(" 1"),
        "{build}"
    );
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - 86_400.0..=now + 1.0).contains(&value("process_start_time_seconds")));
    assert!(value("process_cpu_seconds_total") >= 0.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
    assert!(value("process_open_fds") >= 3.0 && value("process_max_fds") >= value("process_open_fds"));
}

#[tokio::test]
async fn the_page_is_cached_for_a_while() {
    let config = Config { metrics_interval: Duration::from_hours(1), ..Config::default() };
    let server = Server::start_as_set(config).await;
    let first = get(server.address, "/metrics").await.text();
    report(server.address, "", &one_key("fra1", 1, 130, 130, 150)).await;
    assert_eq!(get(server.address, "/metrics").await.text(), first);
    let soon = Server::start_as_set(Config { metrics_interval: Duration::from_millis(1), ..Config::default() }).await;
    let first = get(soon.address, "/metrics").await.text();
    tokio::time::sleep(Duration::from_millis(2)).await;
    report(soon.address, "", &one_key("fra1", 1, 130, 130, 150)).await;
    assert_ne!(get(soon.address, "/metrics").await.text(), first);
}
