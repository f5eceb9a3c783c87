//! The configuration of one weir-sync, with its defaults.

use std::net::SocketAddr;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use weir_budget::divide::Terms;
use weir_budget::hub;

use super::token::TokenSource;
use super::values::{self, LogFormat, StoreAddress, TrailFile, TrailRedis};
use crate::store::address::NodeMap;
use crate::store::keys::PREFIX;
use crate::tls;

/// What the names of all gateways begin with: no report from outside may carry such a name.
pub const GATEWAY_PREFIX: &str = "gateway/";
/// How much longer than the store may take a request waits at the gateway, ...
const GATEWAY_SLACK: Duration = Duration::from_millis(500);
/// ... and the longest that it waits.
const GATEWAY_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// The configuration of one weir-sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where to answer operators: health, readiness and metrics; without it, at `listen`.
    pub ops_listen: Option<SocketAddr>,
    /// Where to answer Envoy's rate limit filters over gRPC, if anywhere.
    pub grpc_listen: Option<SocketAddr>,
    /// Where the budgets live.
    pub store: StoreAddress,
    /// How long the store may take to answer.
    pub store_timeout: Duration,
    /// How long a replica of the store may take to have a draw of a strict rule; zero does not wait for one.
    pub store_wait: Duration,
    /// The most keys of a rule that are kept alive in Redis.
    pub store_keys_max: usize,
    /// What the names of all keys in the store begin with: two fleets may share one that have different prefixes.
    pub store_prefix: String,
    /// Where the store's nodes are reached that are announced elsewhere.
    pub store_nodes: NodeMap,
    /// A file that holds the store's password, instead of one in its address.
    pub store_password_file: Option<String>,
    /// A file that holds the password of the store's sentinels, if they have one of their own, ...
    pub store_sentinel_password_file: Option<String>,
    /// ... and the user whom it is of; their default user unless said.
    pub store_sentinel_user: Option<String>,
    /// A file of certificates (PEM) to trust for a store over TLS, instead of the system's.
    pub store_ca_file: Option<String>,
    /// A file with the certificate (PEM) to show to a store over TLS, ...
    pub store_client_cert_file: Option<String>,
    /// ... and one with its private key (PEM).
    pub store_client_key_file: Option<String>,
    /// The most budgets that the memory store keeps.
    pub memory_budgets_max: usize,
    /// The name of the region whose POPs report here.
    pub region: String,
    /// Tells this weir-sync from others of its region; a random name unless said.
    pub replica: Option<String>,
    /// Where the tokens come from that reports must carry, if any.
    pub token: TokenSource,
    /// Where operators' tokens come from; without one the rule set cannot be changed over HTTP.
    pub admin_token: TokenSource,
    /// Where the tokens come from that checks at the gateway must carry, if any.
    pub check_token: TokenSource,
    /// The certificate to show, and those between it and its authority: connections are secured with TLS then.
    pub tls_cert_file: Option<String>,
    /// The private key of that certificate.
    pub tls_key_file: Option<String>,
    /// The authorities whose certificates POPs may show instead of a token.
    pub tls_client_ca_file: Option<String>,
    /// A file of rules to watch.
    pub rules_file: Option<String>,
    /// Where the trail's lines go, if anywhere.
    pub trail_file: Option<TrailFile>,
    /// In which Redis the trail's stream is, if in any.
    pub trail_redis: Option<TrailRedis>,
    /// A file that holds the password of that Redis, instead of one in its URL.
    pub trail_redis_password_file: Option<String>,
    /// About how many entries the trail's stream keeps.
    pub trail_redis_max: usize,
    /// How often the trail tells of decisions.
    pub trail_interval: Duration,
    /// The most keys whose decisions it tells of each time.
    pub trail_keys_max: usize,
    /// The percentage of what is asked of a rule that it may limit before that is out of the ordinary.
    pub anomaly_limited_percent: usize,
    /// For how many minutes it is learnt what is usual, before anything is out of the ordinary.
    pub anomaly_learn_minutes: u32,
    /// How long each of these minutes is.
    pub anomaly_minute: Duration,
    /// The most lines of the trail that wait for a sink.
    pub trail_queue_max: usize,
    /// Whether it decides requests for others, as a POP of its own.
    pub gateway: bool,
    /// How many keys the gateway's table tracks.
    pub gateway_keys: u32,
    /// A file that holds what the POPs have as `sync.key_secret`, for the gateway's keys.
    pub gateway_key_secret_file: Option<String>,
    /// How long until a POP's next grant: the sync interval and a round trip.
    pub grant_interval: Duration,
    /// The shortest lease.
    pub lease_min: Duration,
    /// The longest lease.
    pub lease_max: Duration,
    /// How long a POP that says nothing counts as alive.
    pub pop_ttl: Duration,
    /// How many POPs the fleet has, for a start without the store; 0 if that is not known.
    pub pops_expected: u32,
    /// How log lines look.
    pub log_format: LogFormat,
    /// What is logged.
    pub log_level: LevelFilter,
    /// How often the metrics are made at most.
    pub metrics_interval: Duration,
    /// How long a new connection may take to send its first byte.
    pub first_byte_timeout: Duration,
    /// How long a client may take nothing of its answer.
    pub write_timeout: Duration,
    /// How long a client may take for its answer.
    pub answer_timeout: Duration,
    /// How long a connection may take to send a request's head, or rest between requests.
    pub header_timeout: Duration,
    /// How long a request's body may take.
    pub body_timeout: Duration,
    /// The largest body, in bytes.
    pub body_bytes_max: usize,
    /// The most connections, and so the most requests at a time; beyond it, one that waits for a request makes room.
    pub connections_max: usize,
    /// How long to go on answering after a signal to stop, while pages of health tell callers to go elsewhere.
    pub drain_delay: Duration,
    /// How long requests may take to end after that.
    pub drain_timeout: Duration,
}

impl Config {
    /// The hub's settings; unless the replica's name is set, each call makes up another.
    pub fn hub(&self) -> hub::Settings {
        let replica = self.replica.clone().unwrap_or_else(values::random_name);
        hub::Settings {
            member: format!("{}/{replica}", self.region),
            terms: self.terms(),
            pop_ttl_ns: nanos(self.pop_ttl),
            pops_expected: self.pops_expected,
        }
    }

    /// How long a request waits at the gateway: a draw may wait for a replica behind another one.
    pub fn gateway_timeout(&self) -> Duration {
        (self.store_timeout + 2 * self.store_wait + GATEWAY_SLACK).min(GATEWAY_TIMEOUT_MAX)
    }

    /// True if nobody can report or ask the gateway at `listen` who shows nothing.
    pub fn needs_token(&self) -> bool {
        let has_pops = self.token != TokenSource::None || self.tls_client_ca_file.is_some();
        has_pops && (!self.gateway || self.check_token != TokenSource::None)
    }

    /// The files to secure connections with, if they are to be.
    pub fn tls(&self) -> Option<tls::Files> {
        let (cert, key) = (self.tls_cert_file.clone()?, self.tls_key_file.clone()?);
        Some(tls::Files { cert, key, client_ca: self.tls_client_ca_file.clone() })
    }

    /// The terms of every grant.
    pub fn terms(&self) -> Terms {
        Terms {
            interval_ns: nanos(self.grant_interval),
            lease_min_ns: nanos(self.lease_min),
            lease_max_ns: nanos(self.lease_max),
            ..Terms::default()
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for Config {
    /// Every setting's default, as `--help` shows them.
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
            trail_file: None,
            trail_redis: None,
            trail_redis_password_file: None,
            trail_redis_max: 100_000,
            trail_interval: Duration::from_secs(10),
            trail_keys_max: 1_000,
            anomaly_limited_percent: 50,
            anomaly_learn_minutes: 60,
            anomaly_minute: Duration::from_mins(1),
            trail_queue_max: 10_000,
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
            answer_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(5),
            body_bytes_max: weir_wire::messages::MESSAGE_BYTES_MAX,
            connections_max: 1_024,
            drain_delay: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
