//! Startup, listeners and shutdown of the service.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, OptionFuture};
use prometheus_client::metrics::gauge::Gauge;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use weir_budget::hub::HubSettings;
use weir_gateway::{GATEWAY_PREFIX, Gateway, GatewaySettings};
use weir_store::dial::DialError;
use weir_store::memory::MemoryStore;
use weir_store::redis::{Options, Redis, Wait};
use weir_store::{Master, Store, StoreError};

use crate::access::AllowedHosts;
use crate::audit::observer::Observer;
use crate::audit::sink::Writer;
use crate::audit::{self, AuditLog};
use crate::config::values::random;
use crate::config::{Config, StoreAddress};
use crate::connections::{Connections, Protocol};
use crate::grpc::Port;
use crate::metrics::Metrics;
use crate::report::ReportHandler;
use crate::routes::{Live, Routes};
use crate::rules::file as rules_file;
use crate::secrets::Secrets;
use crate::ticks;

/// Interval for reading hot keys and the rule set from the store: as often as POPs report.
const LISTEN_INTERVAL: Duration = Duration::from_millis(250);
/// Interval for sharing top keys with the other weir-syncs.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which bans are gathered before the next ones are shared.
const BANS_PAUSE: Duration = Duration::from_millis(50);
const AUDIT_LOG_FINISH_MAX: Duration = Duration::from_secs(2);
const OPS_CONNECTIONS_MAX: u32 = 64;

/// Time limit for trying a store, and the pause between attempts.
const TRY_TIMEOUT: Duration = Duration::from_secs(15);
const TRY_PAUSE: Duration = Duration::from_millis(10);

/// Reason why weir-sync could not start.
#[derive(Debug, Error)]
pub enum RunError {
    #[error("{0} is in use: stop what listens there (another weir-sync?) or set another {1}")]
    InUse(SocketAddr, &'static str),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    #[error(transparent)]
    Store(#[from] DialError),
    #[error("{0}: {1}")]
    Setting(&'static str, String),
    #[error("{0}")]
    Unusable(StoreError),
    /// Acquires must wait for replicas, but this server's replicas do not confirm.
    #[error("the store's server at {0}: {1}")]
    Alone(String, StoreError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// For reports and everything else.
    pub address: SocketAddr,
    /// For the operations pages only, if they have their own address.
    pub ops: Option<SocketAddr>,
    /// For gRPC, if it is enabled.
    pub grpc: Option<SocketAddr>,
}

/// Serves until `shutdown` completes. Then callers have [`Config::drain_delay`] to go elsewhere, and requests in flight
/// have [`Config::drain_timeout`] to finish. Requests need the tokens of `secrets`. `ready` receives the listening
/// addresses. Fails if it cannot start. A store that is out of reach delays the start by its first attempt only.
pub async fn run(
    config: Config,
    secrets: Arc<Secrets>,
    ready: oneshot::Sender<Listening>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    // Clients choose keys, so budget IDs need a random seed before the first one exists.
    weir_budget::id::seed(random());
    // The address comes first: without it, there is no reason to connect to the store.
    let listener = listen(config.listen, "--listen").await?;
    let store = open_store(&config)?;
    serve(config, secrets, listener, store, ready, Box::pin(shutdown)).await
}

/// Like [`run`], with a listener and a store that are already open. Several servers may share one store. Boxed, so that
/// the code is compiled once in this crate, and not in each program that calls it.
pub fn serve(
    config: Config,
    secrets: Arc<Secrets>,
    listener: TcpListener,
    store: Arc<dyn Store>,
    ready: oneshot::Sender<Listening>,
    shutdown: BoxFuture<'static, ()>,
) -> BoxFuture<'static, Result<(), RunError>> {
    Box::pin(async move {
        let config = Arc::new(config);
        let address = listener.local_addr().map_err(|error| RunError::Listen(config.listen, error))?;
        let ops_listener = listen_if(config.ops_listen, "--ops-listen").await?;
        let grpc_listener = listen_if(config.grpc_listen, "--grpc-listen").await?;
        let at = |listener: &Option<TcpListener>| listener.as_ref().and_then(|it| it.local_addr().ok());
        let (ops, grpc) = (at(&ops_listener), at(&grpc_listener));
        let settings = config.hub();
        tracing::info!(%address, store = %config.store, replica = settings.replica, "weir-sync listens");
        if let Some(file) = &config.audit_log_file {
            audit::try_file(file).await.map_err(|error| RunError::Setting("audit_log_file", error))?;
        }
        reached(&*store, config.store_timeout).await;
        let (routes, writers) = routes(&config, Arc::clone(&secrets), store, settings)?;
        let routes = Arc::new(routes);
        let mut writing = JoinSet::new();
        for writer in writers {
            writing.spawn(writer.run());
        }
        // The receiver may have been dropped.
        let _ = ready.send(Listening { address, ops, grpc });
        let mut work = JoinSet::new();
        // The gateway reports as long as it serves checks.
        let mut deciding = JoinSet::new();
        let gateway = routes.gateway.clone();
        gateway.clone().map(|gateway| deciding.spawn(gateway.run()));
        let exchange = &routes.exchange;
        work.spawn(repeat(Arc::clone(exchange), LISTEN_INTERVAL, |exchange| async move { exchange.listen().await }));
        work.spawn(share_bans(Arc::clone(exchange)));
        let share = |exchange: Arc<ReportHandler>| async move { exchange.share_top_keys().await };
        work.spawn(repeat(Arc::clone(exchange), BUSY_INTERVAL, share));
        work.spawn(Arc::clone(&exchange.observer).watch());
        work.spawn(Arc::clone(&exchange.observer).run(config.audit_log_interval));
        work.spawn(Arc::clone(&secrets).watch());
        if let Some(path) = config.rules_file.clone() {
            work.spawn(rules_file::watch(path, Arc::clone(&exchange.rules), Arc::clone(&routes.metrics)));
        }
        if let Some(listener) = ops_listener {
            work.spawn(serve_operations(listener, Arc::clone(&routes)));
        }
        let grpc_port = port(&routes).await;
        if let (Some(listener), Some(port)) = (grpc_listener, &grpc_port) {
            work.spawn(Arc::clone(port).publish_health());
            work.spawn(Arc::clone(port).accept(listener));
        }
        let connections = connections(&routes, Protocol::Http1);
        let answered = Arc::clone(&routes);
        let answer = move |request, peer| Arc::clone(&answered).respond(request, peer);
        let sent_away = async {
            shutdown.await;
            send_away(&routes, grpc_port.as_deref(), config.drain_delay).await;
        };
        connections.accept(listener, answer, sent_away).await;
        work.shutdown().await;
        drain(&connections, grpc_port.as_deref(), config.drain_timeout).await;
        deciding.shutdown().await;
        if let Some(gateway) = gateway {
            gateway.report_rest().await;
        }
        exchange.observer.flush();
        exchange.audit_log.finish(config.drain_timeout.min(AUDIT_LOG_FINISH_MAX)).await;
        writing.shutdown().await;
        Ok(())
    })
}

/// Waits until the store is in reach or known to be out of reach, because strict requests would be refused before.
async fn reached(store: &dyn Store, limit: Duration) {
    let tried = async {
        while matches!(store.ping().await, Err(StoreError::Connecting)) {
            sleep(TRY_PAUSE).await;
        }
    };
    // A timeout is not an error: weir-sync also starts without a store.
    let _ = timeout(limit, tried).await;
}

/// Makes an `exchange` with the other weir-syncs every `pause` until the task is aborted.
async fn repeat<F: Future<Output = Result<(), StoreError>>>(
    handler: Arc<ReportHandler>,
    pause: Duration,
    exchange: impl Fn(Arc<ReportHandler>) -> F,
) {
    let mut ticks = ticks(pause);
    loop {
        ticks.tick().await;
        if let Err(error) = exchange(Arc::clone(&handler)).await {
            // The store's own metrics and `/readyz` show this failure better.
            tracing::debug!(%error, "cannot exchange keys and versions with the other weir-syncs");
        }
    }
}

/// Shares bans with the other regions as soon as there are new ones, and reads theirs every interval.
async fn share_bans(exchange: Arc<ReportHandler>) {
    let mut ticks = ticks(LISTEN_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = exchange.new_bans.notified() => {}
        }
        if let Err(error) = exchange.share_bans().await {
            tracing::debug!(%error, "cannot exchange bans with the other regions");
        }
        sleep(BANS_PAUSE).await;
    }
}

fn connections(routes: &Routes, protocol: Protocol) -> Connections {
    let (config, open) = (Arc::clone(&routes.config), routes.metrics.connections.clone());
    let connections_max = connections_max(config.connections_max);
    Connections::new(config, connections_max, Some(Arc::clone(&routes.secrets)), open, protocol)
}

async fn listen(address: SocketAddr, flag: &'static str) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => RunError::InUse(address, flag),
        _ => RunError::Listen(address, error),
    })
}

async fn send_away(routes: &Routes, grpc: Option<&Port>, delay: Duration) {
    tracing::info!(delay_ms = delay.as_millis(), "draining: /readyz returns 503; a second signal ends it at once");
    routes.is_draining.store(true, Ordering::Relaxed);
    if let Some(grpc) = grpc {
        grpc.send_away().await;
    }
    sleep(delay).await;
}

async fn listen_if(address: Option<SocketAddr>, flag: &'static str) -> Result<Option<TcpListener>, RunError> {
    OptionFuture::from(address.map(|address| listen(address, flag))).await.transpose()
}

async fn drain(connections: &Connections, grpc: Option<&Port>, limit: Duration) {
    let count = connections.count() + grpc.map_or(0, Port::count);
    tracing::info!(connections = count, "stopping; waiting for requests in flight");
    let drain_grpc = OptionFuture::from(grpc.map(|grpc| grpc.drain(limit)));
    let (http, grpc) = tokio::join!(connections.drain(limit), drain_grpc);
    if http && grpc != Some(false) {
        tracing::info!("stopped");
    } else {
        tracing::warn!(limit_ms = limit.as_millis(), "stopped, with some requests unfinished");
    }
}

/// Serves the operations pages. They have their own connection limit, so that operators are not locked out.
async fn serve_operations(listener: TcpListener, routes: Arc<Routes>) {
    let config = Arc::clone(&routes.config);
    let connections = Connections::new(config, OPS_CONNECTIONS_MAX, None, Gauge::default(), Protocol::Http1);
    let answer = move |request, peer| Arc::clone(&routes).respond_to_operator(request, peer);
    connections.accept(listener, answer, pending()).await;
}

/// The gRPC port, if it is configured and the gateway is on.
async fn port(routes: &Arc<Routes>) -> Option<Arc<Port>> {
    let gateway = Arc::clone(routes.gateway.as_ref()?);
    let hosts = AllowedHosts::of(routes.config.grpc_listen?, routes.secrets.access.has_checks());
    let connections = connections(routes, Protocol::Http2);
    Some(Arc::new(Port::new(gateway, Arc::clone(routes), connections, hosts).await))
}

fn routes(
    config: &Arc<Config>,
    secrets: Arc<Secrets>,
    store: Arc<dyn Store>,
    settings: HubSettings,
) -> Result<(Routes, Vec<Writer>), RunError> {
    let (metrics, registry) = Metrics::new(&config.region);
    let metrics = Arc::new(metrics);
    let of_gateway = config.gateway.then(|| GatewaySettings {
        pop: format!("{GATEWAY_PREFIX}{}", settings.replica),
        keys: config.gateway_keys,
        key_secret: secrets.gateway_key.as_ref().map(|key| key.expose().to_owned()),
        timeout: config.gateway_timeout(),
        has_rules_file: config.rules_file.is_some(),
    });
    let (audit_log, writers) = AuditLog::new(config, &settings.replica, &metrics, &secrets.rereads())
        .map_err(|error| RunError::Setting("audit_log_redis", error.to_string()))?;
    let observer = Observer::new(Arc::new(audit_log), Arc::clone(&metrics), config);
    let exchange = Arc::new(ReportHandler::new(store, Arc::clone(&metrics), settings, observer));
    let gateway = of_gateway.map(|settings| Gateway::new(settings, exchange.clone(), metrics.of_gateway())).transpose();
    let gateway = gateway.map_err(|errors| RunError::Setting("gateway", errors.join("; ")))?.map(Arc::new);
    let routes = Routes {
        gateway,
        exchange,
        metrics,
        registry,
        secrets,
        page: Mutex::default(),
        trying: Arc::default(),
        live: Live::default(),
        hosts: AllowedHosts::of(config.listen, config.needs_token()),
        ops_hosts: AllowedHosts::of(config.ops_listen.unwrap_or(config.listen), false),
        is_draining: AtomicBool::new(false),
        config: Arc::clone(config),
    };
    Ok((routes, writers))
}

/// Connects to the store that `config` names. Fails if it cannot be used now.
pub async fn try_store(config: &Config) -> Result<(), RunError> {
    let store = open_store(config)?;
    let tried = async {
        loop {
            match try_once(&*store).await {
                Err(RunError::Unusable(StoreError::Connecting) | RunError::Alone(_, StoreError::Connecting)) => {
                    sleep(TRY_PAUSE).await;
                }
                answer => return answer,
            }
        }
    };
    timeout(TRY_TIMEOUT, tried).await.unwrap_or(Err(RunError::Unusable(StoreError::Connecting)))
}

async fn try_once(store: &dyn Store) -> Result<(), RunError> {
    store.ping().await.map_err(RunError::Unusable)?;
    let alone = |master: Master| Some(RunError::Alone(master.server, master.confirms.err()?));
    store.masters().into_iter().find_map(alone).map_or(Ok(()), Err)
}

/// Opens the store that `config` names. Must run inside a tokio runtime. Fails if its settings are unusable.
fn open_store(config: &Config) -> Result<Arc<dyn Store>, RunError> {
    let url = match &config.store {
        StoreAddress::Memory => return Ok(Arc::new(MemoryStore::new(config.memory_budgets_max, config.pop_ttl))),
        StoreAddress::Redis(url) => url.expose(),
    };
    let wait = Wait { replicas: config.store_wait_replicas, limit: config.store_wait };
    let options = Options {
        response_timeout: config.store_timeout,
        pop_ttl: config.pop_ttl,
        files: config.store_files(),
        nodes: config.store_nodes.clone(),
        wait: (!wait.limit.is_zero()).then_some(wait),
        keys_max: config.store_keys_max,
        prefix: config.store_prefix.clone(),
    };
    Ok(Arc::new(Redis::new(url, options)?))
}

/// File descriptors reserved for other uses: the store, files, connections to the server's own address.
const OTHERS: u64 = 128;
const CONNECTIONS_MIN: usize = 16;

/// Returns `wanted`, or fewer connections if too few file descriptors would be left. Raises the process's limit as far
/// as possible without privileges; the default limit is for programs that cannot handle more than 1024.
fn connections_max(wanted: usize) -> u32 {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let descriptors = if raised.is_ok() { limit.maximum } else { limit.current };
    let left = descriptors.map_or(u64::MAX, |descriptors| descriptors.saturating_sub(OTHERS));
    let fitting = usize::try_from(left).unwrap_or(usize::MAX).max(CONNECTIONS_MIN);
    if fitting < wanted {
        tracing::warn!(
            connections_max = wanted,
            now = fitting,
            descriptors,
            "fewer connections at a time than connections_max: the system allows too few file descriptors (raise \
             `ulimit -n`, or LimitNOFILE of systemd)"
        );
    }
    u32::try_from(wanted.min(fitting)).unwrap_or(u32::MAX)
}
