//! `/metrics` as scrapers get it, and what it costs. (That Prometheus's own parsers take the page:
//! tests/tests/mixin/openmetrics.rs.)

use std::time::Duration;

use weir_sync::config::Config;

use crate::Server;
use crate::client::{get, one_key, report};

#[tokio::test]
async fn the_process_and_its_use_are_metrics() {
    let answer = get(Server::start(Config::default()).await.address, "/metrics").await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let page = answer.text();
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
