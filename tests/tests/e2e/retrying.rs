//! Clients that obey Retry-After.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use weir_tests::artefact;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::weir_sync::WeirSync;

use crate::plugin::{rule, rules, with};
use crate::sync::synced;

/// Gets each path repeatedly, one after the other; all paths at once. Prints the status that each ended with, and how
/// often it was sent again.
const GET: &str = "
import sys, threading, urllib3

def get(path, count):
    retry = urllib3.util.Retry(total=3)
    with urllib3.PoolManager(retries=retry) as http:
        for _ in range(count):
            answer = http.request('GET', sys.argv[1] + path, headers={'x-forwarded-for': '203.0.113.7'})
            # With its end in the text: two threads print.
            print(f'{path} {answer.status} {len(answer.retries.history)}\\n', end='', flush=True)

threads = [threading.Thread(target=get, args=(path, int(count))) for path, count in
           (word.split('=') for word in sys.argv[2:])]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
";

/// The result of Python's urllib3 with `words`: for each request its path, status, and number of retries.
fn urllib3(edge: &Envoy, words: &[&str]) -> Vec<(String, u16, u32)> {
    let tools = artefact::workspace().join(".tools/urllib3");
    assert!(tools.is_dir(), "there is no {}: run `make tools`", tools.display());
    let output = python(&tools).args(["-c", GET, &format!("http://{}", edge.address())]).args(words).output();
    let output = output.expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let read = |line: &str| {
        let [path, status, again] = line.split(' ').collect::<Vec<_>>().try_into().expect("three words");
        (path.to_owned(), status.parse().expect("a status"), again.parse().expect("a count"))
    };
    text.lines().map(read).collect()
}

fn python(tools: &Path) -> Command {
    let mut python = Command::new("python3");
    python.arg("-B").env("PYTHONPATH", tools).stdin(Stdio::null()).stderr(Stdio::piped());
    python
}

/// A strict rule for this path.
fn strict(name: &str, path: &str, rate: &str, burst: u32) -> Value {
    let rule = with(rule(name, rate, burst), "match", json!({"path": {"exact": path}}));
    with(rule, "strict", json!(true))
}

/// As under 1/h and 5/m, in three and in one second a token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn urllib3_passes_strict_rules_at_its_second_try() {
    let weir_sync = WeirSync::start("fra1", "memory").await;
    let plugin = rules([strict("rare", "/rare", "20/m", 1), strict("some", "/some", "60/m", 5)]);
    let edge = Envoy::in_touch(Setup::with(synced(plugin, "fra1")).pop("fra1", &weir_sync)).await;
    let answers = tokio::task::block_in_place(|| urllib3(&edge, &["/rare=3", "/some=10"]));
    assert_eq!(answers.len(), 13);
    for (path, status, again) in &answers {
        assert!(*status == 200 && *again <= 1, "{path}: {status} after {again} more tries: {answers:?}");
    }
    // No request beyond those that were refused, and their retries in time.
    let again: u32 = answers.iter().map(|(.., again)| again).sum();
    assert!((2 + 4..=2 + 5).contains(&again), "{answers:?}");
    edge.counter_reaches("weir.rule.rare.limited", 2).await;
    assert_eq!(edge.counter("weir.rule.rare.limited").await, 2);
}
