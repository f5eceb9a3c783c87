//! The metrics, as an operator finds them described.

use std::collections::BTreeSet;

use weir_tests::mock_host::Worker;

use crate::harness::{rule, shared, synced, with};

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
