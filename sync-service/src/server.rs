//! The service as a whole: listens, accepts, drains.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::config::{Config, StoreAddress};
use crate::metrics::Metrics;
use crate::report::{Exchange, Place};
use crate::routes::Routes;
use crate::rules_file;
use crate::store::Store;
use crate::store::memory::Memory;
use crate::store::redis::{Options, Redis};
use crate::tokens::Tokens;

/// How often to hear from the other regions (hot keys, the rule set): as often as POPs report.
const LISTEN_INTERVAL: Duration = Duration::from_millis(250);
/// How long to gather boxed keys before the next are shared.
const BOXED_PAUSE: Duration = Duration::from_millis(50);
/// How long to pause when a connection cannot be accepted (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why weir-sync could not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// Someone else listens there.
    #[error("{0} is in use: stop what listens there (another weir-sync?) or set another --listen")]
    InUse(SocketAddr),
    /// Listening failed otherwise.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// The store's settings cannot be used.
    #[error("store: {0}")]
    Store(#[from] redis::RedisError),
    /// The certificates cannot be read.
    #[error("store_ca_file: cannot read {0}: {1}")]
    Certificates(String, io::Error),
}

/// Serves until `shutdown` is done, then lets the requests in flight end, within
/// [`Config::drain_timeout`]. Requests must carry `tokens`. Sends the address that it listens on to `ready`. Fails where it
/// cannot start; a store out of reach is no such reason.
pub async fn run(
    config: Config,
    tokens: Arc<Tokens>,
    ready: oneshot::Sender<SocketAddr>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    // First the address: who cannot have it need not trouble the store.
    let listener = listen(config.listen).await?;
    let store = open_store(&config)?;
    serve(config, tokens, listener, store, ready, shutdown).await
}

/// As [`run`], over a listener and a store that are open already; several may share one store.
pub async fn serve(
    config: Config,
    tokens: Arc<Tokens>,
    listener: TcpListener,
    store: Arc<dyn Store>,
    ready: oneshot::Sender<SocketAddr>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let address = listener.local_addr().map_err(|error| RunError::Listen(config.listen, error))?;
    let place = config.place();
    tracing::info!(%address, store = %config.store, region = place.region, replica = place.replica, "weir-sync listens");
    let routes = Arc::new(routes(&config, tokens, store, place));
    // Whoever asked for the address may be gone by now.
    let _ = ready.send(address);
    let graceful = GracefulShutdown::new();
    let listening = tokio::spawn(listen_to_regions(Arc::clone(&routes)));
    let boxing = tokio::spawn(share_boxed_keys(Arc::clone(&routes)));
    let watching = config.rules_file.clone().map(|path| {
        let rules = Arc::clone(&routes.exchange.rules);
        tokio::spawn(rules_file::watch(path, rules, Arc::clone(&routes.metrics)))
    });
    let server = Server { listener, routes, header_timeout: config.header_timeout };
    server.accept_until(shutdown, &graceful, config.connections_max).await;
    listening.abort();
    boxing.abort();
    watching.inspect(JoinHandle::abort);
    drain(graceful, config.drain_timeout).await;
    Ok(())
}

/// Hears from the other regions, for as long as it is let.
async fn listen_to_regions(routes: Arc<Routes>) {
    let mut ticks = interval(LISTEN_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = routes.exchange.listen().await {
            // The store's own metrics and /readyz say so louder.
            tracing::debug!(%error, "the other regions were not heard");
        }
    }
}

/// Shares boxed keys with the other regions as soon as there are any, and hears of theirs every interval.
async fn share_boxed_keys(routes: Arc<Routes>) {
    let mut ticks = interval(LISTEN_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = routes.exchange.boxed_news() => {}
        }
        if let Err(error) = routes.exchange.share_boxed().await {
            tracing::debug!(%error, "the other regions' boxed keys are not known");
        }
        sleep(BOXED_PAUSE).await;
    }
}

struct Server {
    listener: TcpListener,
    routes: Arc<Routes>,
    header_timeout: Duration,
}

impl Server {
    /// Accepts until `shutdown` is done; the listener is closed then, so that clients go elsewhere.
    async fn accept_until(
        self,
        shutdown: impl Future<Output = ()>,
        graceful: &GracefulShutdown,
        connections_max: usize,
    ) {
        let free = Arc::new(Semaphore::new(connections_max));
        let mut shutdown = pin!(shutdown);
        loop {
            let accept = async {
                // Room first: a connection that cannot be served waits in the backlog. The semaphore is never closed.
                let permit = Arc::clone(&free).acquire_owned().await.ok();
                (permit, self.listener.accept().await)
            };
            tokio::select! {
                () = &mut shutdown => return,
                (permit, accepted) = accept => match accepted {
                    Ok((stream, _)) => self.serve(stream, permit, graceful),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }

    fn serve(&self, stream: TcpStream, permit: Option<OwnedSemaphorePermit>, graceful: &GracefulShutdown) {
        // Replies are small and awaited; without this they may wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
        let routes = Arc::clone(&self.routes);
        let metrics = Arc::clone(&routes.metrics);
        let service = service_fn(move |request| {
            let routes = Arc::clone(&routes);
            async move { Ok::<_, Infallible>(routes.respond(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            metrics.connections.inc();
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            metrics.connections.dec();
            drop(permit);
        });
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => RunError::InUse(address),
        _ => RunError::Listen(address, error),
    })
}

async fn drain(graceful: GracefulShutdown, limit: Duration) {
    tracing::info!(connections = graceful.count(), "stopping: requests in flight may end");
    if timeout(limit, graceful.shutdown()).await.is_ok() {
        tracing::info!("stopped");
    } else {
        tracing::warn!(limit_ms = limit.as_millis(), "stopped: some requests did not end in time");
    }
}

fn routes(config: &Config, tokens: Arc<Tokens>, store: Arc<dyn Store>, place: Place) -> Routes {
    let metrics = Arc::new(Metrics::new(&place.region));
    let exchange = Exchange::new(store, Arc::clone(&metrics), place);
    Routes {
        exchange,
        metrics,
        tokens,
        body_timeout: config.body_timeout,
        body_bytes_max: config.body_bytes_max,
    }
}

/// The store that `config` names. Must run inside tokio. Fails where its settings cannot be used.
pub fn open_store(config: &Config) -> Result<Arc<dyn Store>, RunError> {
    let url = match &config.store {
        StoreAddress::Memory => return Ok(Arc::new(Memory::new(config.memory_budgets_max, config.pop_ttl))),
        StoreAddress::Redis(url) => url.expose(),
    };
    let read =
        |path: &String| std::fs::read(path).map_err(|error| RunError::Certificates(path.clone(), error));
    let ca_pem = config.store_ca_file.as_ref().map(read).transpose()?;
    let options = Options { response_timeout: config.store_timeout, pop_ttl: config.pop_ttl, ca_pem };
    Ok(Arc::new(Redis::new(url, options)?))
}
