//! `weir-sync fleet`: which version each POP runs.

use weir_protocol::messages::{Report, RunningRules as RunningVersion, StatusReport};

use super::{ALICE, Asked};
use crate::running::{self, file, until};

/// Reports that `pop` runs `version`, and refused `refused`.
pub(super) fn report(asked: &Asked, pop: &str, sequence: u64, version: u64, refused: u64) {
    report_status(asked, pop, sequence, RunningVersion { version, refused }, "");
}

/// Reports the version that `pop` runs, and the reason for a refusal.
pub(super) fn report_status(asked: &Asked, pop: &str, sequence: u64, running: RunningVersion, refusal: &str) {
    let status = StatusReport { every_ms: 1_000, refusal: refusal.into(), ..StatusReport::default() };
    let (status, answer) =
        asked.running.exchange(ALICE, &Report { sequence, running, status: Some(status), ..running::report(pop) });
    assert_eq!(status, 200, "{answer}");
}

/// The rows of the table.
fn rows(page: &str) -> Vec<String> {
    let rows = page.lines().skip_while(|line| !line.starts_with("POP ")).skip(1);
    rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn pops_that_do_not_run_the_current_version_show() {
    let asked = Asked::start();
    let none = asked.run(&["fleet"]).page(0);
    assert!(none.contains("There is no rule set") && none.contains("No POP has reported"), "{none}");
    assert_eq!(asked.run(&["fleet", "--strict"]).code, Some(1), "no POP runs it");
    let (_file, rules) = file("rules:\n- {name: login, key: [client_address], rate: 5/m}\n");
    let version = asked.run(&["rules", "put", &rules, "--json"]).json(0)["version"].as_u64().unwrap();
    report(&asked, "ams1", 1, version, 0);
    report(&asked, "fra1", 1, 0, 0);
    report(&asked, "iad1", 1, 0, version);
    until("all POPs are known", || rows(&asked.run(&["fleet"]).page(0)).len() == 3);

    let page = asked.run(&["fleet", "--strict"]).page(1);
    assert!(page.starts_with("Version r1 runs at 1 of 3 POPs.\n\nPOP "), "{page}");
    let rows = rows(&page);
    assert!(rows[0].starts_with("ams1 default ") && rows[0].contains(" r1 current "), "{page}");
    assert!(rows[1].contains(" - its own rules ") && rows[1].ends_with(" s ago"), "{page}");
    assert!(rows[2].contains(" - refused r1 "), "{page}");
    assert_eq!(asked.run(&["fleet", "--json"]).json(0)["pops"][0]["is_current"], true);

    report(&asked, "fra1", 2, version, 0);
    report(&asked, "iad1", 2, version, 0);
    let page = asked.run(&["fleet", "--strict", "--wait-s", "20"]).page(0);
    assert!(page.starts_with("Version r1 runs at 3 of 3 POPs."), "{page}");
}
