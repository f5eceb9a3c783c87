//! Health of the gRPC port (`grpc.health.v1`).

use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

/// Names that clients may query: the whole server, and each service.
const NAMES: [&str; 3] = [
    "",
    "envoy.service.ratelimit.v3.RateLimitService",
    "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
];

/// Health as clients see it.
#[derive(Debug)]
pub(super) struct Health(HealthReporter);

impl Health {
    /// Health that is not serving yet, and the gRPC service that publishes it.
    pub(super) async fn new() -> (Self, HealthServer<HealthService>) {
        let reporter = HealthReporter::new();
        let service = HealthService::from_health_reporter(reporter.clone());
        let health = Self(reporter);
        health.set_status(ServingStatus::NotServing).await;
        (health, HealthServer::new(service))
    }

    /// Publishes the health.
    pub(super) async fn set_ready(&self, is_ready: bool) {
        self.set_status(if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
    }

    /// Ends the streams of clients that watch the health, because they keep connections open.
    pub(super) async fn end(&self) {
        for name in NAMES {
            self.0.clone().clear_service_status(name).await;
        }
    }

    async fn set_status(&self, status: ServingStatus) {
        for name in NAMES {
            self.0.set_service_status(name, status).await;
        }
    }
}
