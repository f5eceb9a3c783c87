//! The gRPC port: Envoy's rate limit service and its quota service, over the gateway.
//!
//! [`service`] authorizes requests, and [`unary`] frames messages, whose meaning is in [`weir_gateway`].

mod service;
mod unary;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::net::TcpListener;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use weir_gateway::Gateway;
use weir_gateway::rlqs::Quotas;

use crate::connections::{Connections, GO_ELSEWHERE};
use crate::metrics::Metrics;
use crate::secrets::Secrets;
pub(crate) use service::RequestLimits;
use service::Service;

/// Services of the port, with its connections.
pub(crate) struct Port {
    service: Arc<Service>,
    connections: Connections,
    quotas: Arc<Quotas>,
    health: HealthReporter,
    /// True while callers are asked to go elsewhere.
    is_draining: Arc<AtomicBool>,
}

impl Port {
    /// Port for `gateway` over `connections`.
    pub(crate) async fn new(
        gateway: Arc<Gateway>,
        connections: Connections,
        secrets: Arc<Secrets>,
        metrics: Arc<Metrics>,
        limits: RequestLimits,
    ) -> Self {
        let health = HealthReporter::new();
        let of_health = HealthServer::new(HealthService::from_health_reporter(health.clone()));
        let quotas = Quotas::new(Arc::clone(&gateway), metrics.of_gateway());
        let service = Service::new(gateway, Arc::clone(&quotas), of_health, secrets, metrics, limits);
        let service = Arc::new(service);
        let port = Self { service, connections, quotas, health, is_draining: Arc::default() };
        port.set_health(ServingStatus::NotServing).await;
        port
    }

    /// Serves `listener` until the task is aborted. Requests in progress then continue.
    pub(crate) async fn accept(&self, listener: TcpListener) {
        let (service, is_draining) = (Arc::clone(&self.service), Arc::clone(&self.is_draining));
        let answer = move |request, peer| {
            let (service, is_draining) = (Arc::clone(&service), Arc::clone(&is_draining));
            async move {
                let mut response = service.respond(request, peer).await;
                if is_draining.load(Ordering::Relaxed) {
                    response.headers_mut().insert(GO_ELSEWHERE, HeaderValue::from_static("true"));
                }
                response
            }
        };
        let dividing = Arc::clone(&self.quotas).run();
        tokio::join!(self.connections.accept(listener, answer, pending()), dividing);
    }

    /// Publishes the health, unless the port is draining.
    pub(crate) async fn set_ready(&self, is_ready: bool) {
        if !self.is_draining.load(Ordering::Relaxed) {
            self.set_health(if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
        }
    }

    async fn set_health(&self, status: ServingStatus) {
        for name in NAMES {
            self.health.set_service_status(name, status).await;
        }
    }

    /// Asks callers to go elsewhere: through the health service and with each response, by ending quota
    /// streams, and by closing each existing connection when its requests are finished. New connections are
    /// still served.
    pub(crate) async fn send_away(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        self.set_health(ServingStatus::NotServing).await;
        // These streams would keep their connections open.
        self.quotas.close("this weir-sync is stopping: expected another one to be asked");
        self.connections.send_away();
    }

    /// Number of connections.
    pub(crate) fn count(&self) -> usize {
        self.connections.count()
    }

    /// Waits for requests in progress. Returns false if some did not finish within `limit`.
    pub(crate) async fn drain(&self, limit: Duration) -> bool {
        // Clients that watch the health keep connections open.
        for name in NAMES {
            self.health.clone().clear_service_status(name).await;
        }
        self.connections.drain(limit).await
    }
}

/// Names that clients may query: the whole server, and each service.
const NAMES: [&str; 3] =
    ["", "envoy.service.ratelimit.v3.RateLimitService", "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"];
