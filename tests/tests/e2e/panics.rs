//! A panic in the native filter stays in its hook. The filter is the one that is shipped; its clock is what breaks.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::json;
use tempfile::TempDir;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::server::{Respond, Server};
use weir_tests::wait::until;

use crate::plugin::{rule, rules, with};

/// A clock that breaks while a file is there, or steps back.
pub(crate) struct Clock {
    folder: TempDir,
    library: PathBuf,
}

impl Clock {
    pub(crate) fn made() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("broken_clock.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/broken_clock.c");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).args([source, "-ldl"]).status();
        assert!(made.is_ok_and(|status| status.success()), "cc makes no library of {source}");
        Self { folder, library }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("broken")
    }

    fn breaking(&self, setup: Setup) -> Setup {
        setup.env("LD_PRELOAD", &self.library).env("WEIR_BROKEN_CLOCK", self.file())
    }

    /// An Envoy whose monotonic clock steps back by five minutes once the file is there.
    pub(crate) fn stepping(&self, setup: Setup) -> Setup {
        setup.env("LD_PRELOAD", &self.library).env("WEIR_STEPPED_CLOCK", self.file())
    }

    fn works(&self) {
        fs::remove_file(self.file()).expect("it was broken");
    }
}

/// The number of its filter's panics.
fn panics(edge: &Envoy) -> usize {
    edge.log().matches("weir: panicked at").count()
}

/// An upstream that breaks the clock before it answers.
async fn breaker(clock: &Clock) -> Server {
    let file = clock.file();
    Server::start(move |_| {
        fs::write(&file, "").expect("a file");
        Respond::Now(StatusCode::OK, Bytes::from_static(b"upstream\n"))
    })
    .await
}

#[tokio::test]
async fn requests_pass_after_a_panic_in_a_hook() {
    let clock = Clock::made();
    // It has something to do in each hook: a response advertises the quota, and the end releases a place.
    let counted = with(rule("counted", "1/h", 5), "response", json!({"on_allowed": true}));
    let in_flight = json!({"name": "in-flight", "key": ["client_address"], "algorithm": "concurrency", "limit": 9,
        "expires_after_s": 60});
    let upstream = breaker(&clock).await;
    let setup = Setup::with(rules([counted, in_flight])).host(Host::Native).upstream(upstream.address());
    let mut edge = Envoy::start(clock.breaking(setup)).await;
    edge.forgive_faults();
    let (mut client, ask) = (edge.client(), Ask::from("203.0.113.7"));

    let first = client.send(&ask).await;
    assert_eq!((first.status, first.header("ratelimit")), (200, ""), "its response goes on as it is: {first:?}");
    assert!(panics(&edge) >= 2, "when its response came, and when it ended: {}", edge.log());
    for _ in 0..3 {
        let before = panics(&edge);
        let answer = client.send(&ask).await;
        assert_eq!((answer.status, answer.header("ratelimit")), (200, ""), "it goes on undecided: {answer:?}");
        assert!(panics(&edge) > before, "{}", edge.log());
    }
    // So do ticks, on the main thread, and the thread that counts their time.
    let before = panics(&edge);
    until("ticks", async || (panics(&edge) >= before + 2).then_some(())).await;

    upstream.answer(|_| Respond::Now(StatusCode::OK, Bytes::new()));
    clock.works();
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(client.send(&ask).await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429], "only the first request took a token before");
    edge.counter_reaches("weir.rule.counted.limited", 1).await;
    edge.assert_alive();
}
