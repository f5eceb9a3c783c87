//! A weir-sync in this process, with its defaults, but that its metrics are made whenever they are asked for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use weir_protocol::messages::{self, BudgetRule, Key, Message, Reply, Report};
use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;
use weir_sync::config::{Config, Secret, StoreAddress};
use weir_sync::secrets::Secrets;
use weir_tests::client::{Answer, Ask, Client};
use weir_tests::wait::until;

/// A weir-sync. Dropping it stops it.
pub(crate) struct Server {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
    _task: JoinHandle<()>,
}

impl Server {
    /// Starts that of `region`, whose store is at `url`.
    pub(crate) async fn start(region: &str, url: &str) -> Self {
        Self::start_waiting(region, url, Duration::ZERO).await
    }

    /// The same where acquires wait this time for a replica.
    pub(crate) async fn start_waiting(region: &str, url: &str, store_wait: Duration) -> Self {
        let (ready, address) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            region: region.into(),
            store: StoreAddress::Redis(Secret::new(url)),
            store_wait,
            metrics_interval: Duration::ZERO,
            ..Config::default()
        };
        let task = tokio::spawn(async move {
            let shutdown = async { drop(stopped.await) };
            let secrets = Arc::new(Secrets::read(&config).unwrap());
            weir_sync::run(config, secrets, ready, shutdown).await.expect("it starts");
        });
        Self { address: address.await.expect("it listens").address, _stop: stop, _task: task }
    }

    /// One of its pages.
    pub(crate) async fn page(&self, path: &str) -> Answer {
        Client::of_port(self.address.port()).send(&Ask::get(path)).await
    }

    /// Waits until it is ready.
    pub(crate) async fn ready(&self) {
        until("weir-sync to be ready", async || (self.page("/readyz").await.status == 200).then_some(())).await;
    }

    /// The answer to a greeting of `pop`.
    pub(crate) async fn greet(&self, pop: &str) -> Reply {
        self.report(&Report { pop: pop.into(), worker: 1, sequence: 1, table: 1, ..Report::default() }).await
    }

    /// The answer to `report`.
    pub(crate) async fn report(&self, report: &Report) -> Reply {
        let ask = Ask::new(Method::POST, messages::REPORT_PATH).header("content-type", messages::CONTENT_TYPE);
        let answer = Client::of_port(self.address.port()).send(&ask.body(report.encode())).await;
        Reply::decode(&answer.body).expect("a reply")
    }
}

/// A report of so many keys with this quota, of each of which `admitted` tokens were admitted and none is confirmed.
pub(crate) fn report_of(keys: u32, quota: Quota, admitted: u64) -> Report {
    let rules = vec![BudgetRule { name: "per-address".into(), quota, sharing: Sharing::of(quota) }];
    let key = |value: u32| Key {
        value: value.to_be_bytes().to_vec(),
        epoch: 1,
        admitted,
        unconfirmed: admitted,
        asked: admitted,
        asked_recently: admitted,
        ..Key::default()
    };
    let keys = (0..keys).map(key).collect();
    Report { pop: "fra1".into(), worker: 1, sequence: 1, table: 1, rules, keys, ..Report::default() }
}
