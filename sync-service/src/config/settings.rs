//! Configuration of one weir-sync, and the table of all settings, from which the file, the environment, the flags
//! and `--help` are derived.

use std::net::SocketAddr;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use weir_budget::divide::GrantSettings;
use weir_budget::hub;
use weir_protocol::messages::{MESSAGE_BYTES_MAX, POPS_MAX};
use weir_store::address::NodeMap;
use weir_store::dial::LoginFiles;

use super::values::{self, AuditFile, AuditStream, StoreAddress, TokenSource};

pub const VARIABLE_PREFIX: &str = "WEIR_SYNC_";

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name in the file.
    pub key: &'static str,
    /// Placeholder of the value in `--help`.
    pub value: &'static str,
    /// Default in `--help`; empty if there is none.
    pub default: &'static str,
    pub help: &'static str,
    /// Parses a text into the configuration. The error states what was expected.
    pub set: fn(&mut Config, &str) -> Result<(), String>,
}

impl Setting {
    /// Name in the environment.
    pub fn variable(&self) -> String {
        format!("{}{}", VARIABLE_PREFIX, self.key.to_ascii_uppercase())
    }

    /// Name as a flag, without the dashes.
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }
}

/// Time that a request at the gateway waits in addition to the store's time limit.
const GATEWAY_SLACK: Duration = Duration::from_millis(500);
/// Maximum time that a request waits at the gateway.
const GATEWAY_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// An hour in milliseconds, the maximum of most settings: longer times are mistakes.
const HOUR_MS: u64 = 3_600_000;

/// Generates [`Config`] with its defaults, and [`SETTINGS`]. A row is a field with its help, its name in the file, the
/// placeholder of its value, its default as text, and its parser. Rows after `also` set fields of earlier rows.
macro_rules! settings {
    (
        $($(#[doc = $help:literal])+ $field:ident: $type:ty as $key:literal $value:literal $default:tt = $read:expr;)+
        also
        $($(#[doc = $also_help:literal])+ $also:ident as $also_key:literal $also_value:literal = $also_read:expr;)+
    ) => {
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $($(#[doc = $help])+ pub $field: $type,)+
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($field: settings!(@default $default, $read),)+ }
            }
        }

        /// All settings, in the order of `--help`.
        pub const SETTINGS: &[Setting] = &[
            $(settings!(@row $field, $key, $value, $default, concat!($($help),+), $read),)+
            $(settings!(@row $also, $also_key, $also_value, "", concat!($($also_help),+), $also_read),)+
        ];
    };
    (@default "", $read:expr) => { Default::default() };
    (@default $text:tt, $read:expr) => { parsed($text, $read) };
    (@row $field:ident, $key:literal, $value:literal, $default:tt, $help:expr, $read:expr) => {
        Setting {
            key: $key,
            value: $value,
            default: $default,
            help: $help.trim_ascii(),
            set: |config, text| {
                config.$field = $read(text)?;
                Ok(())
            },
        }
    };
}

/// Parses a default in the table.
fn parsed<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> T {
    read(text).unwrap_or_else(|expected| panic!("the default {text}: {expected}"))
}

settings! {
    /// Address to listen on. All but loopback addresses need a token or client certificates. Port 0 takes a free port.
    listen: SocketAddr as "listen" "ADDRESS:PORT" "127.0.0.1:7878" = values::address;
    /// A separate address for /healthz, /readyz and /metrics. /metrics is then served only there; without it,
    /// everything is at --listen. These pages need no token, so choose an address that only operators reach.
    ops_listen: Option<SocketAddr> as "ops_listen" "ADDRESS:PORT" "" = |text| values::address(text).map(Some);
    /// Address at which the gateway answers Envoy's rate limit filters (envoy.service.ratelimit.v3 over gRPC). With TLS
    /// if --listen has it.
    grpc_listen: Option<SocketAddr> as "grpc_listen" "ADDRESS:PORT" "" = |text| values::address(text).map(Some);
    /// Store of the budgets: `memory` (this process only), `redis://[user:password@]host[:port][/database]` or
    /// `rediss://...` for TLS, `redis+cluster://host,host,host`, `redis+sentinel://host,host,host/master-name`,
    /// `unix:///path/to/socket`. A password in a flag shows in the process list: prefer the environment, the file or
    /// --store-password-file.
    store: StoreAddress as "store" "STORE" "memory" = StoreAddress::read;
    /// Time limit for an answer of the store, in addition to the round trip to it (measured, at most 2000). After that,
    /// a report is answered from the region's own share of each quota.
    store_timeout: Duration as "store_timeout_ms" "MS" "500" = |text| values::millis(text, 1, 60_000);
    /// Time limit for replicas of the store to confirm an acquire of a strict rule (`WAIT`). If they do not, no tokens
    /// are given. 0 does not wait: then a failover may forget acquires, and tokens are given twice.
    store_wait: Duration as "store_wait_ms" "MS" "0" = |text| values::millis(text, 0, 60_000);
    /// Number of replicas that must confirm. With all replicas of a master, nothing is forgotten even if a live master
    /// is replaced; but if one of them is down, strict rules get no tokens.
    store_wait_replicas: u32 as "store_wait_replicas" "N" "1" = |text| values::count(text, 1, 100);
    /// Maximum number of keys of one rule that this weir-sync keeps alive in Redis, so that a flood of made-up keys
    /// does not fill it. Keys beyond it get the region's own share of their quota, as if the store were out of reach.
    store_keys_max: usize as "store_keys_max" "N" "500000" = |text| values::count(text, 1, 100_000_000);
    /// Prefix of all keys in the store and of the audit log's stream. Fleets that share a Redis need different ones.
    store_prefix: String as "store_prefix" "NAME" "weir" = values::name;
    /// Addresses of the store's nodes, if a cluster or sentinels announce others:
    /// `10.0.0.1:6379=redis-1.internal:6379,...`.
    store_nodes: NodeMap as "store_nodes" "PAIRS" "" = NodeMap::read;
    /// File with the store's password, instead of one in --store. Read for each new connection.
    store_password_file: Option<String> as "store_password_file" "FILE" "" = values::file;
    /// File with the sentinels' password. Without it, sentinels that ask for one get the store's. Read each time.
    store_sentinel_password_file: Option<String> as "store_sentinel_password_file" "FILE" "" = values::file;
    /// User name at the sentinels; their default user unless set.
    store_sentinel_user: Option<String> as "store_sentinel_user" "NAME" "" = |text| values::text(text).map(Some);
    /// Certificates (PEM) to trust for `rediss://`, instead of the system's. Read for each new connection.
    store_ca_file: Option<String> as "store_ca_file" "FILE" "" = values::file;
    /// Client certificate (PEM, with intermediates) for a store that asks for one. Read for each new connection.
    store_client_cert_file: Option<String> as "store_client_cert_file" "FILE" "" = values::file;
    /// Private key (PEM) of --store-client-cert-file.
    store_client_key_file: Option<String> as "store_client_key_file" "FILE" "" = values::file;
    /// Maximum number of budgets in the memory store. Beyond that, the one closest to full is forgotten.
    memory_budgets_max: usize as "memory_budgets_max" "N" "100000" = |text| values::count(text, 1, 100_000_000);
    /// The name of the region whose POPs report here. Several weir-syncs may serve one region: its replicas share the
    /// region's name and the store, and a POP may report to any of them.
    region: String as "region" "NAME" "default" = values::name;
    /// The name of this replica, different for each weir-sync of the region; a random name unless set.
    replica: Option<String> as "replica" "NAME" "" = |text| values::name(text).map(Some);
    /// The token that reports must carry, at least 16 characters. A flag shows in the process list: prefer the
    /// environment or --token-file.
    token: TokenSource as "token" "TOKEN" "" = TokenSource::given;
    /// The token that changes of the rule set must carry, at least 16 characters. Without one, changes over HTTP are
    /// refused. A flag shows in the process list: prefer the environment or --admin-token-file.
    admin_token: TokenSource as "admin_token" "TOKEN" "" = TokenSource::given;
    /// The token that checks at the gateway must carry, at least 16 characters. A flag shows in the process list:
    /// prefer the environment or --check-token-file.
    check_token: TokenSource as "check_token" "TOKEN" "" = TokenSource::given;
    /// Server certificate (PEM, with intermediates). With it, --listen uses TLS; --ops-listen does not. Read again when
    /// it changes, and at SIGHUP.
    tls_cert_file: Option<String> as "tls_cert_file" "FILE" "" = values::file;
    /// Private key (PEM) of --tls-cert-file.
    tls_key_file: Option<String> as "tls_key_file" "FILE" "" = values::file;
    /// The authorities (PEM) whose certificates POPs may show instead of a token. The DNS name in a certificate is the
    /// name of its POP.
    tls_client_ca_file: Option<String> as "tls_client_ca_file" "FILE" "" = values::file;
    /// File of rules (YAML or JSON) to watch. When it changes, its content becomes a new version of the rule set.
    rules_file: Option<String> as "rules_file" "FILE" "" = values::file;
    /// Destination of the audit log, a JSON object on each line: a file, which is opened again at SIGHUP,
    /// or the standard output.
    audit_log_file: Option<AuditFile> as "audit_log_file" "FILE|stdout" "" = |text| AuditFile::read(text).map(Some);
    /// Redis for the audit log, in the stream `PREFIX:audit` (--store-prefix): `store` for that of the budgets, or a
    /// URL as for --store. The audit log has its own connection.
    audit_log_redis: Option<AuditStream> as "audit_log_redis" "store|URL" "" = |text| AuditStream::read(text).map(Some);
    /// File with the password of --audit-log-redis, if that is a URL without one. Read for each new connection.
    audit_log_redis_password_file: Option<String> as "audit_log_redis_password_file" "FILE" "" = values::file;
    /// Approximate maximum number of entries in the stream; the oldest ones are dropped.
    audit_log_redis_max: usize as "audit_log_redis_max" "N" "100000" = |text| values::count(text, 1, 100_000_000);
    /// Interval at which the keys that were limited are written to the audit log.
    audit_log_interval: Duration as "audit_log_interval_ms" "MS" "10000" = |text| values::millis(text, 100, HOUR_MS);
    /// Maximum number of keys per interval; those that were limited most are written.
    audit_log_keys_max: usize as "audit_log_keys_max" "N" "1000" = |text| values::count(text, 1, 100_000);
    /// Number of minutes to learn the usual values of a rule, a POP and a key, before anything is an anomaly.
    anomaly_learn_minutes: u32 as "anomaly_learn_minutes" "N" "60" = |text| values::count(text, 1, 60);
    /// Length of the interval that counts as a minute; shorter ones are for tests.
    anomaly_minute: Duration as "anomaly_minute_ms" "MS" "60000" = |text| values::millis(text, 10, 60_000);
    /// Maximum number of audit log lines that wait for a slow or missing sink. Beyond that, the oldest ones are lost
    /// and counted.
    audit_log_queue_max: usize as "audit_log_queue_max" "N" "10000" = |text| values::count(text, 1, 1_000_000);
    /// Decides requests for services that ask (POST /v1/check). The gateway counts as a POP of the fleet.
    gateway: bool as "gateway" "on|off" "off" = values::switch;
    /// Number of keys that the gateway's table tracks, 32 bytes each.
    gateway_keys: u32 as "gateway_keys" "N" "65000" = |text| values::count(text, 1, 16_777_216);
    /// File with the `key_secret` of the POPs' configuration (or their token, if they have none), so that the gateway
    /// reports the same keys.
    gateway_key_secret_file: Option<String> as "gateway_key_secret_file" "FILE" "" = values::file;
    /// The time until a POP's next grant: its sync interval plus a round trip. A grant lets this much of the rate
    /// through in advance.
    grant_interval: Duration as "grant_interval_ms" "MS" "350" = |text| values::millis(text, 1, 60_000);
    /// Minimum time for which a grant is valid.
    lease_min: Duration as "lease_min_ms" "MS" "2000" = |text| values::millis(text, 1, HOUR_MS);
    /// Maximum time for which a grant is valid.
    lease_max: Duration as "lease_max_ms" "MS" "60000" = |text| values::millis(text, 1, HOUR_MS);
    /// Time for which a silent POP counts as alive. A lower number of POPs takes effect only after the same time again.
    pop_ttl: Duration as "pop_ttl_ms" "MS" "10000" = |text| values::millis(text, 100, 24 * HOUR_MS);
    /// Number of POPs in the fleet. Used to compute the region's share of each quota if weir-sync starts while the
    /// store is out of reach and no POP knows the number. 0 means unknown: the region then takes the whole quota.
    pops_expected: u32 as "pops_expected" "N" "0" = |text| values::count(text, 0, POPS_MAX);
    /// Format of log lines: `text` or `json`.
    log_json: bool as "log_format" "FORMAT" "text" = |text| values::one_of(text, &[("text", false), ("json", true)]);
    /// Lowest level that is logged: `error`, `warn`, `info`, `debug` or `trace`.
    log_level: LevelFilter as "log_level" "LEVEL" "info" = values::log_level;
    /// Minimum interval between two renderings of /metrics. A request that comes sooner gets the previous page.
    metrics_interval: Duration as "metrics_interval_ms" "MS" "1000" = |text| values::millis(text, 0, HOUR_MS);
    /// Time limit for the first byte of a new connection and, with TLS, for the handshake.
    first_byte_timeout: Duration as "first_byte_timeout_ms" "MS" "5000" = |text| values::millis(text, 10, HOUR_MS);
    /// Time for which a client may read nothing of its answer before its connection is closed.
    write_timeout: Duration as "write_timeout_ms" "MS" "5000" = |text| values::millis(text, 10, HOUR_MS);
    /// Time limit for a client to read its answer before its connection is closed.
    response_timeout: Duration as "response_timeout_ms" "MS" "30000" = |text| values::millis(text, 10, HOUR_MS);
    /// Time limit for a request's head, and for the pause between two requests.
    header_timeout: Duration as "header_timeout_ms" "MS" "30000" = |text| values::millis(text, 10, HOUR_MS);
    /// Time limit for a request's body.
    body_timeout: Duration as "body_timeout_ms" "MS" "5000" = |text| values::millis(text, 10, HOUR_MS);
    /// Maximum size of a report, in bytes.
    body_bytes_max: usize as "body_bytes_max" "BYTES" "262144" = |text| values::count(text, 1_024, MESSAGE_BYTES_MAX);
    /// Maximum number of connections, and so of requests at a time. If one more comes, an idle connection that has
    /// shown no token is closed.
    connections_max: usize as "connections_max" "N" "1024" = |text| values::count(text, 1, 1_000_000);
    /// Time for which requests are still answered after SIGTERM or SIGINT, while /readyz and /healthz return 503. A
    /// second signal ends weir-sync at once.
    drain_delay: Duration as "drain_delay_ms" "MS" "2000" = |text| values::millis(text, 0, HOUR_MS);
    /// Time limit for requests in flight to end after that.
    drain_timeout: Duration as "drain_timeout_ms" "MS" "10000" = |text| values::millis(text, 1, HOUR_MS);

    also
    /// A file of tokens for reports, one a line: `TOKEN`, or `NAME POPS TOKEN` to name it and the POPs that may
    /// use it. Read again when it changes, and at SIGHUP.
    token as "token_file" "FILE" = TokenSource::file;
    /// A file of operators' tokens, one a line: `TOKEN`, or `NAME ROLE TOKEN` to name it and its role:
    /// `read` or `write`. Read again when it changes, and at SIGHUP.
    admin_token as "admin_token_file" "FILE" = TokenSource::file;
    /// A file of tokens for the gateway, one a line: `TOKEN`, or `NAME ROLE TOKEN` with the role `check` (POST
    /// /v1/check), `limit` (POST /ratelimit/check, where the caller names the limit) or `check,limit`. Read again when
    /// it changes, and at SIGHUP.
    check_token as "check_token_file" "FILE" = TokenSource::file;
}

impl Config {
    /// Settings of the hub. Without a configured replica, each call makes up a new name.
    pub fn hub(&self) -> hub::HubSettings {
        let replica = self.replica.clone().unwrap_or_else(|| format!("{:016x}", values::random()));
        hub::HubSettings {
            replica: format!("{}/{replica}", self.region),
            terms: GrantSettings {
                interval_ns: nanos(self.grant_interval),
                lease_min_ns: nanos(self.lease_min),
                lease_max_ns: nanos(self.lease_max),
                ..GrantSettings::default()
            },
            pop_ttl_ns: nanos(self.pop_ttl),
            pops_expected: self.pops_expected,
        }
    }

    /// Time limit of a request at the gateway. Covers two waits for replicas: an acquire may wait behind another one.
    pub fn gateway_timeout(&self) -> Duration {
        (self.store_timeout + 2 * self.store_wait + GATEWAY_SLACK).min(GATEWAY_TIMEOUT_MAX)
    }

    pub(crate) fn store_files(&self) -> LoginFiles {
        LoginFiles {
            password: self.store_password_file.clone(),
            sentinel_password: self.store_sentinel_password_file.clone(),
            sentinel_user: self.store_sentinel_user.clone(),
            ca: self.store_ca_file.clone(),
            client_cert: self.store_client_cert_file.clone(),
            client_key: self.store_client_key_file.clone(),
        }
    }

    /// True if every report and every check at `listen` needs a credential.
    pub(crate) fn needs_token(&self) -> bool {
        let has_pops = self.token != TokenSource::None || self.tls_client_ca_file.is_some();
        has_pops && (!self.gateway || self.check_token != TokenSource::None)
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
