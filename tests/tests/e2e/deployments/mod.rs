//! The rule sets in `envoy/` that are there to be copied, each in a real Envoy with a weir-sync.

mod github_like;
mod login;
mod stripe_like;
mod url_shortener;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::drain;
use weir_tests::server::Server;
use weir_tests::weir_sync::WeirSync;

use crate::sync::synced;

/// An edge with the rule set of one folder, and what it needs.
struct Edge {
    envoy: Envoy,
    weir_sync: WeirSync,
    _upstream: Server,
}

impl Edge {
    /// With `envoy/FOLDER/rules.yaml`, and an upstream that does as requests say.
    async fn start(folder: &str) -> Self {
        let weir_sync = WeirSync::start("fra1", "memory").await;
        let upstream = Server::obedient().await;
        let setup = Setup::with(synced(rules_in(folder), "a")).upstream(upstream.address());
        let envoy = Envoy::start(setup.cluster("weir-sync", weir_sync.address())).await;
        envoy.counter_grows("weir.sync.answered", 4).await;
        Self { envoy, weir_sync, _upstream: upstream }
    }

    /// The status of one answer.
    async fn status(&self, ask: &Ask) -> u16 {
        self.envoy.client().send(ask).await.status
    }

    /// Panics unless `ask` is admitted `burst` times at once, and as often more as `per_second` refills meanwhile.
    async fn assert_limited_after(&self, ask: &Ask, burst: usize, per_second: f64) {
        let began = Instant::now();
        let (_, admitted) = drain(&mut self.envoy.client(), ask, 10 * burst + 100).await;
        let most = burst + refilled(per_second, began.elapsed());
        assert!(
            (burst..=most).contains(&admitted),
            "{burst} to {most} were to be admitted, not {admitted}: {ask:?}"
        );
    }
}

/// So many whole tokens.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "some tokens, never less than none"
)]
fn refilled(per_second: f64, within: Duration) -> usize {
    (per_second * within.as_secs_f64()) as usize
}

/// What a folder's `rules.yaml` says, as JSON.
pub(crate) fn rules_in(folder: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy").join(folder).join("rules.yaml");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
