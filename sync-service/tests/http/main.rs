//! The real server over real TCP: reports, refusals, pages, shutdown.

mod audit_log;
mod bans;
mod canary;
mod client;
mod dry_run;
mod exchange;
mod extremes;
mod figures;
mod fleet;
mod gateway;
mod keys;
mod offline;
mod overrides;
mod pages;
mod port;
mod rates;
mod refusals;
mod rules;
mod rules_file;
mod settle;
mod stores;
mod turns;
#[allow(unreachable_pub, reason = "other tests wait so, too")]
#[path = "../../../tests/src/wait.rs"]
mod wait;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use weir_store::Store;
use weir_sync::config::Config;
use weir_sync::secrets::Secrets;
use weir_sync::server::{Listening, RunError};

use rules::guarded;
use stores::Shared;
pub(crate) use wait::{DEADLINE, until as found};

/// A server in this process. Dropping it stops it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The address of the pages, if they have one of their own.
    pub(crate) ops: Option<SocketAddr>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Server {
    /// Starts one on a free port. Its metrics are rendered for each request.
    pub(crate) async fn start(config: Config) -> Self {
        Self::start_as_set(Config { metrics_interval: Duration::ZERO, ..config }).await
    }

    /// Starts one on a free port, which stops without a delay.
    pub(crate) async fn start_as_set(config: Config) -> Self {
        let (ready, address) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = Config { listen, drain_delay: Duration::ZERO, ..config };
        let secrets = Arc::new(Secrets::read(&config).unwrap());
        let task = tokio::spawn(weir_sync::run(config, secrets, ready, async {
            let _ = stopped.await;
        }));
        let Listening { address, ops, .. } = address.await.expect("the server starts");
        Self { address, ops, stop, task }
    }

    /// Starts one on a free port, over a store that others may share.
    pub(crate) async fn start_over(config: Config, store: Arc<dyn Store>) -> Self {
        let config = Config { metrics_interval: Duration::ZERO, drain_delay: Duration::ZERO, ..config };
        let (ready, address) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let secrets = Arc::new(Secrets::read(&config).unwrap());
        let stopped = Box::pin(async {
            let _ = stopped.await;
        });
        let task = tokio::spawn(weir_sync::server::serve(config, secrets, listener, store, ready, stopped));
        let Listening { address, ops, .. } = address.await.expect("the server starts");
        Self { address, ops, stop, task }
    }

    /// Stops it. The handle returns the result once it has stopped.
    pub(crate) fn stop(self) -> JoinHandle<Result<(), RunError>> {
        let _ = self.stop.send(());
        self.task
    }
}

/// A server of `region` with this name, over a store that others share.
pub(crate) async fn replica(region: &str, replica: &str, store: &Arc<Shared>) -> Server {
    let config = Config { region: region.into(), replica: Some(replica.into()), ..guarded() };
    Server::start_over(config, store.clone()).await
}

/// Waits until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    found(what, async || is_so().await.then_some(())).await;
}
