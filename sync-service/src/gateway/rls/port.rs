//! The port that gRPC has for itself.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::health::Health;
use super::service::{Limits, Service};
use crate::connections::Connections;
use crate::gateway::Gateway;
use crate::metrics::Metrics;
use crate::secrets::Secrets;

/// What answers at the port, and over which connections.
#[derive(Debug)]
pub struct Port {
    service: Arc<Service>,
    connections: Connections,
    health: Health,
}

impl Port {
    /// For questions to `gateway` that come over `connections`.
    pub async fn new(
        gateway: Arc<Gateway>,
        connections: Connections,
        secrets: Arc<Secrets>,
        metrics: Arc<Metrics>,
        limits: Limits,
    ) -> Self {
        let (health, of_health) = Health::new().await;
        let service = Service::new(gateway, of_health, secrets, metrics, limits);
        Self { service: Arc::new(service), connections, health }
    }

    /// Answers what comes to `listener`, until it is aborted; what is being answered then goes on.
    pub async fn accept(&self, listener: TcpListener) {
        let service = Arc::clone(&self.service);
        let answer = move |request, peer| Arc::clone(&service).respond(request, peer);
        self.connections.accept(listener, answer, pending()).await;
    }

    /// Has health say whether it serves.
    pub async fn tell(&self, is_ready: bool) {
        self.health.tell(is_ready).await;
    }

    /// How many connections there are.
    pub fn count(&self) -> usize {
        self.connections.count()
    }

    /// Lets the requests that are being answered end; returns whether all did within `limit`.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.health.end().await;
        self.connections.drain(limit).await
    }
}
