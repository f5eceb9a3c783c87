//! Table of all settings, from which the file, the environment, the flags and `--help` are derived.

use weir_protocol::messages::{MESSAGE_BYTES_MAX, POPS_MAX};

use super::Config;
use super::token::{self, TokenSource};
use super::values::{self, AuditFile, AuditStream, LogFormat, StoreAddress};
use crate::store::address::NodeMap;

/// Prefix of all environment variables.
pub const VARIABLE_PREFIX: &str = "WEIR_SYNC_";

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name in the file.
    pub key: &'static str,
    /// Placeholder of the value in `--help`.
    pub value: &'static str,
    /// Default in `--help`; empty if there is none.
    pub default: &'static str,
    /// Help text.
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

macro_rules! setting {
    ($key:ident, $value:literal, $default:literal, $help:literal, $read:expr) => {
        setting!($key as $key, $value, $default, $help, $read)
    };
    ($key:ident as $field:ident, $value:literal, $default:literal, $help:literal, $read:expr) => {
        Setting {
            key: stringify!($key),
            value: $value,
            default: $default,
            help: $help,
            set: |config, text| {
                config.$field = $read(text)?;
                Ok(())
            },
        }
    };
}

/// An hour in milliseconds, the maximum of most settings: longer times are mistakes.
const HOUR_MS: u64 = 3_600_000;

/// All settings, in the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    setting!(
        listen,
        "ADDRESS:PORT",
        "127.0.0.1:7878",
        "Where to listen. Anything but a loopback address needs a token, or client certificates. Port 0 takes a free one",
        values::address
    ),
    setting!(
        ops_listen,
        "ADDRESS:PORT",
        "",
        "A separate address for /healthz, /readyz and /metrics. /metrics is then served only there; without it, everything is at \
         --listen. These pages need no token, so choose an address that only operators reach",
        |text| values::address(text).map(Some)
    ),
    setting!(
        grpc_listen,
        "ADDRESS:PORT",
        "",
        "Where the gateway answers Envoy's rate limit filters (envoy.service.ratelimit.v3 over gRPC). With TLS if --listen has it",
        |text| values::address(text).map(Some)
    ),
    setting!(
        store,
        "STORE",
        "memory",
        "Where the budgets live: `memory` (this process only), `redis://[user:password@]host[:port][/database]` or `rediss://...` for TLS, \
         `redis+cluster://host,host,host`, `redis+sentinel://host,host,host/master-name`, `unix:///path/to/socket`. \
         A password in a flag shows in the process list: prefer the environment, the file or --store-password-file",
        StoreAddress::read
    ),
    setting!(
        store_timeout_ms as store_timeout,
        "MS",
        "500",
        "How long the store may take to answer, on top of the round trip to it (which is measured, up to 2000). After that a \
         report is answered from the region's own share of each quota",
        |text| values::millis(text, 1, 60_000)
    ),
    setting!(
        store_wait_ms as store_wait,
        "MS",
        "0",
        "How long a replica of the store may take to have what was acquired for a strict rule (`WAIT 1`); without its word nothing is given. \
         0 does not wait: then a fail-over may forget acquired tokens, and they are given twice",
        |text| values::millis(text, 0, 60_000)
    ),
    setting!(
        store_keys_max,
        "N",
        "500000",
        "The most keys of one rule that this weir-sync keeps alive in Redis, so that a flood of made-up keys does not fill it. \
         Keys beyond it get the region's own share of their quota, as if the store were out of reach",
        |text| values::count(text, 1, 100_000_000)
    ),
    setting!(
        store_prefix,
        "NAME",
        "weir",
        "What the names of all keys in the store begin with, and that of the audit log's stream. Fleets that share a Redis \
         need one each",
        values::name
    ),
    setting!(
        store_nodes,
        "PAIRS",
        "",
        "Where the store's nodes are reached, if a cluster or sentinels announce other addresses than those: `10.0.0.1:6379=redis-1.internal:6379,...`",
        NodeMap::read
    ),
    setting!(
        store_password_file,
        "FILE",
        "",
        "A file that holds the store's password, instead of one in --store. Read for each new connection",
        |text| values::path(text).map(Some)
    ),
    setting!(
        store_sentinel_password_file,
        "FILE",
        "",
        "A file that holds the sentinels' password. Without one, a sentinel that asks for a password is given the store's. Read each time",
        |text| values::path(text).map(Some)
    ),
    setting!(
        store_sentinel_user,
        "NAME",
        "",
        "The user at the sentinels whom that password is of; their default user unless set",
        |text| values::text(text).map(Some)
    ),
    setting!(
        store_ca_file,
        "FILE",
        "",
        "Certificates (PEM) to trust for `rediss://`, instead of the system's. Read for each new connection",
        |text| values::path(text).map(Some)
    ),
    setting!(
        store_client_cert_file,
        "FILE",
        "",
        "The certificate (PEM, with those that it depends on) to show to a store over TLS that asks for one. Read for each new connection",
        |text| values::path(text).map(Some)
    ),
    setting!(store_client_key_file, "FILE", "", "The private key (PEM) of that certificate", |text| {
        values::path(text).map(Some)
    }),
    setting!(
        memory_budgets_max,
        "N",
        "100000",
        "The maximum number of budgets in the memory store. Beyond that, the one closest to full is forgotten",
        |text| values::count(text, 1, 100_000_000)
    ),
    setting!(
        region,
        "NAME",
        "default",
        "The name of the region whose POPs report here. Several weir-syncs may serve one region: its replicas share the region's name \
         and the store, and a POP may report to any of them",
        values::name
    ),
    setting!(
        replica,
        "NAME",
        "",
        "The name of this replica, different for each weir-sync of the region; a random name unless set",
        |text| values::name(text).map(Some)
    ),
    setting!(
        token,
        "TOKEN",
        "",
        "The token that reports must carry, at least 16 characters. A flag shows in the process list: prefer the environment or --token-file",
        |text| token::read(text).map(TokenSource::Given)
    ),
    setting!(
        token_file as token,
        "FILE",
        "",
        "A file of tokens for reports, one a line: `TOKEN`, or `NAME POPS TOKEN` to name it and to say which POPs it speaks for. \
         Read again when it changes, and at SIGHUP",
        |text| values::path(text).map(TokenSource::File)
    ),
    setting!(
        admin_token,
        "TOKEN",
        "",
        "The token that changes of the rule set must carry, at least 16 characters. Without one, changes over HTTP are refused. \
         A flag shows in the process list: prefer the environment or --admin-token-file",
        |text| token::read(text).map(TokenSource::Given)
    ),
    setting!(
        admin_token_file as admin_token,
        "FILE",
        "",
        "A file of operators' tokens, one a line: `TOKEN`, or `NAME ROLE TOKEN` to name it and to say whether it may `read` or `write`. \
         Read again when it changes, and at SIGHUP",
        |text| values::path(text).map(TokenSource::File)
    ),
    setting!(
        check_token,
        "TOKEN",
        "",
        "The token that checks at the gateway must carry, at least 16 characters. \
         A flag shows in the process list: prefer the environment or --check-token-file",
        |text| token::read(text).map(TokenSource::Given)
    ),
    setting!(
        check_token_file as check_token,
        "FILE",
        "",
        "A file of tokens for the gateway, one a line: `TOKEN`, or `NAME ROLE TOKEN` with the role `check` (POST /v1/check), `limit` \
         (POST /ratelimit/check, where the caller names the limit) or `check,limit`. Read again when it changes, and at SIGHUP",
        |text| values::path(text).map(TokenSource::File)
    ),
    setting!(
        tls_cert_file,
        "FILE",
        "",
        "The certificate to show (PEM, with those between it and its authority). With it, --listen speaks TLS; --ops-listen does \
         not. Read again when it changes, and at SIGHUP",
        |text| values::path(text).map(Some)
    ),
    setting!(tls_key_file, "FILE", "", "The private key (PEM) of --tls-cert-file", |text| {
        values::path(text).map(Some)
    }),
    setting!(
        tls_client_ca_file,
        "FILE",
        "",
        "The authorities (PEM) whose certificates POPs may show instead of a token. The DNS name in a certificate is the name of its POP",
        |text| values::path(text).map(Some)
    ),
    setting!(
        rules_file,
        "FILE",
        "",
        "A file of rules (YAML or JSON) to watch. When it changes, its content becomes a new version of the fleet's rule set",
        |text| values::path(text).map(Some)
    ),
    setting!(
        audit_log_file,
        "FILE|stdout",
        "",
        "Where to write the audit log (docs/reference/audit-log.md), a JSON object on each line: at the end of a file, which is opened again at \
         SIGHUP, or to the standard output",
        |text| AuditFile::read(text).map(Some)
    ),
    setting!(
        audit_log_redis,
        "store|URL",
        "",
        "In which Redis to write the audit log, to the stream `PREFIX:audit` (--store-prefix): `store` for where the budgets live, or a URL as for --store. \
         It gets a connection of its own",
        |text| AuditStream::read(text).map(Some)
    ),
    setting!(
        audit_log_redis_password_file,
        "FILE",
        "",
        "A file that holds the password of --audit-log-redis, if that is a URL without one. Read for each new connection",
        |text| values::path(text).map(Some)
    ),
    setting!(
        audit_log_redis_max,
        "N",
        "100000",
        "About how many entries the stream keeps; older ones go",
        |text| values::count(text, 1, 100_000_000)
    ),
    setting!(
        audit_log_interval_ms as audit_log_interval,
        "MS",
        "10000",
        "How often the audit log tells which keys were limited",
        |text| values::millis(text, 100, HOUR_MS)
    ),
    setting!(
        audit_log_keys_max,
        "N",
        "1000",
        "The most keys that it tells of each time, those that were limited most",
        |text| values::count(text, 1, 100_000)
    ),
    setting!(
        anomaly_limited_percent,
        "PERCENT",
        "50",
        "A rule that limits more than this part of what reported keys ask of it is out of the ordinary",
        |text| values::count(text, 1, 100)
    ),
    setting!(
        anomaly_learn_minutes,
        "N",
        "60",
        "For how many minutes to learn what a rule, a POP and a key usually limit, before anything is out of the ordinary",
        |text| values::count(text, 1, 60).map(|minutes| u32::try_from(minutes).unwrap_or(60))
    ),
    setting!(
        anomaly_minute_ms as anomaly_minute,
        "MS",
        "60000",
        "How long each minute is in which what is limited is counted and compared: shorter ones are for trying it out",
        |text| values::millis(text, 10, 60_000)
    ),
    setting!(
        audit_log_queue_max,
        "N",
        "10000",
        "How many lines of the audit log may wait for a file or a Redis that is slow or gone. Beyond that the oldest are lost, and counted",
        |text| values::count(text, 1, 1_000_000)
    ),
    setting!(
        gateway,
        "on|off",
        "off",
        "Whether to decide requests for services that ask: POST /v1/check. It counts as a POP of the fleet",
        values::switch
    ),
    setting!(gateway_keys, "N", "65000", "How many keys the gateway's table tracks, 32 bytes each", |text| {
        values::count(text, 1, 16_777_216).map(|keys| u32::try_from(keys).unwrap_or(u32::MAX))
    }),
    setting!(
        gateway_key_secret_file,
        "FILE",
        "",
        "A file that holds the key_secret of the POPs' configuration (or their token, if they have none), so that the gateway's keys \
         are theirs",
        |text| values::path(text).map(Some)
    ),
    setting!(
        grant_interval_ms as grant_interval,
        "MS",
        "350",
        "The time until a POP's next grant: its sync interval plus a round trip. A grant lets this much of the rate through in advance",
        |text| values::millis(text, 1, 60_000)
    ),
    setting!(lease_min_ms as lease_min, "MS", "2000", "How long a grant is valid at least", |text| {
        values::millis(text, 1, HOUR_MS)
    }),
    setting!(lease_max_ms as lease_max, "MS", "60000", "How long a grant is valid at most", |text| {
        values::millis(text, 1, HOUR_MS)
    }),
    setting!(
        pop_ttl_ms as pop_ttl,
        "MS",
        "10000",
        "How long a silent POP counts as alive. A lower count of POPs is believed only after it has held for as long again",
        |text| values::millis(text, 100, 24 * HOUR_MS)
    ),
    setting!(
        pops_expected,
        "N",
        "0",
        "How many POPs the fleet has. Used to compute the region's share of each quota if weir-sync starts while the store is out \
         of reach and no POP knows the number. 0 means unknown: the region then takes the whole quota",
        |text| values::count(text, 0, POPS_MAX as usize).map(|pops| u32::try_from(pops).unwrap_or(POPS_MAX))
    ),
    setting!(log_format, "FORMAT", "text", "How log lines look: `text` or `json`", LogFormat::read),
    setting!(
        log_level,
        "LEVEL",
        "info",
        "What is logged: `error`, `warn`, `info`, `debug` or `trace`",
        values::log_level
    ),
    setting!(
        metrics_interval_ms as metrics_interval,
        "MS",
        "1000",
        "How often /metrics is rendered at most. A request that comes sooner gets the previous page",
        |text| values::millis(text, 0, HOUR_MS)
    ),
    setting!(
        first_byte_timeout_ms as first_byte_timeout,
        "MS",
        "5000",
        "How long a new connection may take to send its first byte and, with TLS, to finish the handshake",
        |text| values::millis(text, 10, HOUR_MS)
    ),
    setting!(
        write_timeout_ms as write_timeout,
        "MS",
        "5000",
        "How long a client may read nothing of its answer before its connection is closed",
        |text| values::millis(text, 10, HOUR_MS)
    ),
    setting!(
        response_timeout_ms as response_timeout,
        "MS",
        "30000",
        "How long a client may take to read its answer before its connection is closed",
        |text| values::millis(text, 10, HOUR_MS)
    ),
    setting!(
        header_timeout_ms as header_timeout,
        "MS",
        "30000",
        "How long a connection may take to send a request's head, or idle between two requests",
        |text| values::millis(text, 10, HOUR_MS)
    ),
    setting!(body_timeout_ms as body_timeout, "MS", "5000", "How long a request's body may take", |text| {
        values::millis(text, 10, HOUR_MS)
    }),
    setting!(body_bytes_max, "BYTES", "262144", "The maximum size of a report", |text| {
        values::count(text, 1_024, MESSAGE_BYTES_MAX)
    }),
    setting!(
        connections_max,
        "N",
        "1024",
        "The maximum number of connections, and so of requests at a time. If one more comes, one that has shown no token and has been idle for longest is closed",
        |text| values::count(text, 1, 1_000_000)
    ),
    setting!(
        drain_delay_ms as drain_delay,
        "MS",
        "2000",
        "How long to go on answering after SIGTERM or SIGINT, while /readyz and /healthz say 503. A second signal ends weir-sync at once",
        |text| values::millis(text, 0, HOUR_MS)
    ),
    setting!(
        drain_timeout_ms as drain_timeout,
        "MS",
        "10000",
        "How long requests in flight may take to end after that",
        |text| values::millis(text, 1, HOUR_MS)
    ),
];

/// Setting with the name `key` in the file.
pub fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}
