//! Configuration of one weir-sync, with its defaults.

use std::net::SocketAddr;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use weir_budget::divide::GrantSettings;
use weir_budget::hub;

use super::token::TokenSource;
use super::values::{self, AuditFile, AuditStream, LogFormat, StoreAddress};
use crate::store::address::NodeMap;
use crate::store::keys::PREFIX;
use crate::tls;

/// Prefix of all gateways' names. No report from outside may use it.
pub const GATEWAY_PREFIX: &str = "gateway/";
/// Time that a request at the gateway waits in addition to the store's time limit.
const GATEWAY_SLACK: Duration = Duration::from_millis(500);
/// Maximum time that a request waits at the gateway.
const GATEWAY_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// Configuration of one weir-sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Address to listen on. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// Address for operators: health, readiness and metrics. None serves them at `listen`.
    pub ops_listen: Option<SocketAddr>,
    /// Address for Envoy's rate limit filters over gRPC, if any.
    pub grpc_listen: Option<SocketAddr>,
    /// Store of the budgets.
    pub store: StoreAddress,
    /// Time limit for an answer of the store.
    pub store_timeout: Duration,
    /// Time limit for a replica of the store to confirm an acquire of a strict rule. Zero does not wait for
    /// one.
    pub store_wait: Duration,
    /// Maximum number of keys per rule that are kept alive in Redis.
    pub store_keys_max: usize,
    /// Prefix of all key names in the store. Fleets with different prefixes may share a store.
    pub store_prefix: String,
    /// Addresses of nodes that the store announces under other addresses.
    pub store_nodes: NodeMap,
    /// File with the store's password, as an alternative to one in its address.
    pub store_password_file: Option<String>,
    /// File with the password of the store's sentinels, if it is a different one.
    pub store_sentinel_password_file: Option<String>,
    /// User for this password; by default the sentinels' default user.
    pub store_sentinel_user: Option<String>,
    /// File of certificates (PEM) to trust for a store over TLS, instead of the system's.
    pub store_ca_file: Option<String>,
    /// File with the client certificate (PEM) for a store over TLS.
    pub store_client_cert_file: Option<String>,
    /// File with its private key (PEM).
    pub store_client_key_file: Option<String>,
    /// Maximum number of budgets in the memory store.
    pub memory_budgets_max: usize,
    /// Name of the region whose POPs report here.
    pub region: String,
    /// Name that distinguishes this weir-sync within its region; random by default.
    pub replica: Option<String>,
    /// Tokens for reports, if they are required.
    pub token: TokenSource,
    /// Tokens for operators. Without any, the rule set cannot be changed over HTTP.
    pub admin_token: TokenSource,
    /// Tokens for checks at the gateway, if they are required.
    pub check_token: TokenSource,
    /// File with the certificate chain. If set, connections use TLS.
    pub tls_cert_file: Option<String>,
    /// File with the private key of that certificate.
    pub tls_key_file: Option<String>,
    /// File with the authorities of client certificates, which POPs may present instead of a token.
    pub tls_client_ca_file: Option<String>,
    /// File of rules to watch.
    pub rules_file: Option<String>,
    /// File of the audit log, if any.
    pub audit_log_file: Option<AuditFile>,
    /// Redis that holds the audit log's stream, if any.
    pub audit_log_redis: Option<AuditStream>,
    /// File with the password of that Redis, as an alternative to one in its URL.
    pub audit_log_redis_password_file: Option<String>,
    /// Approximate number of entries that the stream keeps.
    pub audit_log_redis_max: usize,
    /// Interval at which decisions are written to the audit log.
    pub audit_log_interval: Duration,
    /// Maximum number of keys whose decisions are written per interval.
    pub audit_log_keys_max: usize,
    /// Percentage of a rule's demand that it may limit before this is an anomaly.
    pub anomaly_limited_percent: usize,
    /// Minutes of learning before anything is an anomaly.
    pub anomaly_learn_minutes: u32,
    /// Length of each of these minutes.
    pub anomaly_minute: Duration,
    /// Maximum number of audit log lines that wait for a sink.
    pub audit_log_queue_max: usize,
    /// True if this weir-sync decides requests for other services, as a POP of its own.
    pub gateway: bool,
    /// Number of keys that the gateway's table can hold.
    pub gateway_keys: u32,
    /// File with the POPs' `sync.key_secret`, for the gateway's keys.
    pub gateway_key_secret_file: Option<String>,
    /// Time until a POP's next grant: the sync interval plus a round trip.
    pub grant_interval: Duration,
    /// Minimum lease.
    pub lease_min: Duration,
    /// Maximum lease.
    pub lease_max: Duration,
    /// Time for which a silent POP counts as alive.
    pub pop_ttl: Duration,
    /// Number of POPs in the fleet, for a start without the store. 0 if unknown.
    pub pops_expected: u32,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Lowest level that is logged.
    pub log_level: LevelFilter,
    /// Minimum interval between two renderings of the metrics.
    pub metrics_interval: Duration,
    /// Time limit for the first byte of a new connection.
    pub first_byte_timeout: Duration,
    /// Time for which a client may read nothing of its response.
    pub write_timeout: Duration,
    /// Time limit for a client to read its response.
    pub response_timeout: Duration,
    /// Time limit for the head of a request, and for the pause between requests.
    pub header_timeout: Duration,
    /// Time limit for the body of a request.
    pub body_timeout: Duration,
    /// Maximum size of a body, in bytes.
    pub body_bytes_max: usize,
    /// Maximum number of connections, and so of concurrent requests. Beyond it, a connection that waits for a
    /// request is closed to make room.
    pub connections_max: usize,
    /// Time for which requests are still served after a signal to stop, while the health pages ask callers to
    /// go elsewhere.
    pub drain_delay: Duration,
    /// Time limit for requests to finish after that.
    pub drain_timeout: Duration,
}

impl Config {
    /// Settings of the hub. Without a configured replica, each call makes up a new name.
    pub fn hub(&self) -> hub::HubSettings {
        let replica = self.replica.clone().unwrap_or_else(values::random_name);
        hub::HubSettings {
            member: format!("{}/{replica}", self.region),
            terms: self.terms(),
            pop_ttl_ns: nanos(self.pop_ttl),
            pops_expected: self.pops_expected,
        }
    }

    /// Time limit of a request at the gateway. It covers two waits for a replica, because an acquire may wait
    /// behind another one.
    pub fn gateway_timeout(&self) -> Duration {
        (self.store_timeout + 2 * self.store_wait + GATEWAY_SLACK).min(GATEWAY_TIMEOUT_MAX)
    }

    /// True if every report and every check at `listen` needs a credential.
    pub fn needs_token(&self) -> bool {
        let has_pops = self.token != TokenSource::None || self.tls_client_ca_file.is_some();
        has_pops && (!self.gateway || self.check_token != TokenSource::None)
    }

    /// TLS files, if TLS is configured.
    pub fn tls(&self) -> Option<tls::TlsFiles> {
        let (cert, key) = (self.tls_cert_file.clone()?, self.tls_key_file.clone()?);
        Some(tls::TlsFiles { cert, key, client_ca: self.tls_client_ca_file.clone() })
    }

    /// Terms of all grants.
    pub fn terms(&self) -> GrantSettings {
        GrantSettings {
            interval_ns: nanos(self.grant_interval),
            lease_min_ns: nanos(self.lease_min),
            lease_max_ns: nanos(self.lease_max),
            ..GrantSettings::default()
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for Config {
    /// Defaults of all settings, as in `--help`.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7878)),
            ops_listen: None,
            grpc_listen: None,
            store: StoreAddress::Memory,
            store_timeout: Duration::from_millis(500),
            store_wait: Duration::ZERO,
            store_keys_max: 500_000,
            store_prefix: PREFIX.into(),
            store_nodes: NodeMap::default(),
            store_password_file: None,
            store_sentinel_password_file: None,
            store_sentinel_user: None,
            store_ca_file: None,
            store_client_cert_file: None,
            store_client_key_file: None,
            memory_budgets_max: 100_000,
            region: "default".into(),
            replica: None,
            token: TokenSource::None,
            admin_token: TokenSource::None,
            check_token: TokenSource::None,
            tls_cert_file: None,
            tls_key_file: None,
            tls_client_ca_file: None,
            rules_file: None,
            audit_log_file: None,
            audit_log_redis: None,
            audit_log_redis_password_file: None,
            audit_log_redis_max: 100_000,
            audit_log_interval: Duration::from_secs(10),
            audit_log_keys_max: 1_000,
            anomaly_limited_percent: 50,
            anomaly_learn_minutes: 60,
            anomaly_minute: Duration::from_mins(1),
            audit_log_queue_max: 10_000,
            gateway: false,
            gateway_keys: 65_000,
            gateway_key_secret_file: None,
            grant_interval: Duration::from_millis(350),
            lease_min: Duration::from_secs(2),
            lease_max: Duration::from_mins(1),
            pop_ttl: Duration::from_secs(10),
            pops_expected: 0,
            log_format: LogFormat::Text,
            log_level: LevelFilter::INFO,
            metrics_interval: Duration::from_secs(1),
            first_byte_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(5),
            body_bytes_max: weir_protocol::messages::MESSAGE_BYTES_MAX,
            connections_max: 1_024,
            drain_delay: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
