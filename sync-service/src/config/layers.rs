//! Merges file, environment and flags into one validated [`Config`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_saphyr::{Options, Spanned};
use weir_cli::document::source::{self, Misread};
use weir_gateway::GATEWAY_PREFIX;
use weir_protocol::messages::POP_NAME_MAX;
use weir_store::address::Address;

use super::settings::{SETTINGS, Setting, VARIABLE_PREFIX};
use super::{AuditStream, Config, TokenSource};
use crate::secrets::Secrets;

const FILE_VARIABLE: &str = "WEIR_SYNC_CONFIG";

const GATEWAY_UNKEYED: &str = "gateway: keys that are not addresses leave it under a hash that anybody can compute, \
    and are not those of POPs with a key_secret or a token: set gateway_key_secret_file to a file with the same text \
    as theirs";

#[derive(Debug)]
pub struct LoadedConfig {
    pub config: Config,
    pub secrets: Secrets,
    /// True if weir-sync should only check the configuration.
    pub check: bool,
    /// Warnings about settings that are usable but should be changed.
    pub warnings: Vec<String>,
}

/// All errors of a configuration, one per line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigErrors(Vec<String>);

impl ConfigErrors {
    fn add(&mut self, place: impl fmt::Display, expected: impl fmt::Display) {
        self.0.push(format!("{place}: {expected}"));
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

struct Found {
    place: String,
    setting: &'static Setting,
    text: String,
}

pub fn command() -> Command {
    let file = Arg::new("config").long("config").short('c').value_name("FILE");
    let check = Arg::new("check").long("check").action(ArgAction::SetTrue);
    let command = Command::new("weir-sync")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Collects what each point of presence (POP) admitted, and grants what it may admit next.")
        .after_help(
            "Every setting can also stand in the file (--lease-min-ms is `lease_min_ms: 2000` there) and in the \
             environment (WEIR_SYNC_LEASE_MIN_MS). A flag overrides the environment, the environment overrides the \
             file.",
        )
        .arg(file.help("A YAML file of settings; also WEIR_SYNC_CONFIG"))
        .arg(check.help("Check the configuration, try the store, and exit"))
        .subcommands(weir_cli::commands())
        .args_conflicts_with_subcommands(true);
    SETTINGS.iter().fold(command, |command, setting| {
        let help = match setting.default {
            "" => setting.help.to_owned(),
            default => format!("{} [default: {default}]", setting.help),
        };
        command.arg(Arg::new(setting.key).long(setting.flag()).value_name(setting.value).help(help))
    })
}

/// Merges file, `variables` and flags, validates the result and reads the files of secrets. Returns all errors.
pub fn load(
    matches: &ArgMatches,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<LoadedConfig, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let (from_environment, file_variable) = environment(variables, &mut errors);
    let file = matches.get_one::<String>("config").cloned().or(file_variable);
    let from_file = file.map_or_else(Vec::new, |path| file_layer(&path, &mut errors));
    let mut config = Config::default();
    for layer in [from_file, from_environment, flags(matches)] {
        apply(&mut config, &layer, &mut errors);
    }
    check(&config, &mut errors);
    let secrets = Secrets::read(&config).map_err(|wrong| errors.0.extend(wrong));
    let Some(secrets) = secrets.ok().filter(|_| errors.0.is_empty()) else { return Err(errors) };
    let unkeyed = (config.gateway && secrets.gateway_key.is_none()).then(|| GATEWAY_UNKEYED.to_owned());
    let warnings = secrets.warnings().chain(unkeyed).collect();
    Ok(LoadedConfig { config, secrets, check: matches.get_flag("check"), warnings })
}

fn apply(config: &mut Config, layer: &[Found], errors: &mut ConfigErrors) {
    for found in layer {
        if let Err(expected) = (found.setting.set)(config, &found.text) {
            errors.add(&found.place, expected);
        }
    }
    let place = |key| layer.iter().find(|found| found.setting.key == key).map(|found| &found.place);
    for (token, file) in
        [("token", "token_file"), ("admin_token", "admin_token_file"), ("check_token", "check_token_file")]
    {
        if let (Some(_), Some(place)) = (place(token), place(file)) {
            errors.add(place, "expected either a token or a token file, found both");
        }
    }
}

/// Checks that involve several settings. Each row: the condition of an error, its setting, and what was expected.
fn check(config: &Config, errors: &mut ConfigErrors) {
    let has_anyone = config.token == TokenSource::None && config.tls_client_ca_file.is_none();
    let anyone = || {
        format!(
            "{} is not a loopback address, so anyone could send reports: set a token (token_file, WEIR_SYNC_TOKEN) or \
             tls_client_ca_file, or listen on 127.0.0.1",
            config.listen
        )
    };
    for (is_wrong, setting, expected) in [
        (config.lease_min > config.lease_max, "lease_min_ms", "expected at most lease_max_ms"),
        (
            config.store_wait > config.store_timeout,
            "store_wait_ms",
            "expected at most store_timeout_ms: an acquire would wait for replicas for longer than for the store",
        ),
        (
            config.store_wait.is_zero() && config.store_wait_replicas > 1,
            "store_wait_replicas",
            "expected store_wait_ms too: without it no acquire waits for a replica",
        ),
        (
            config.tls_cert_file.is_some() != config.tls_key_file.is_some(),
            "tls_cert_file",
            "expected both a certificate and tls_key_file, or neither",
        ),
        (
            config.tls_client_ca_file.is_some() && config.tls_cert_file.is_none(),
            "tls_client_ca_file",
            "expected tls_cert_file and tls_key_file too: clients show certificates over TLS",
        ),
        (has_anyone && !config.listen.ip().is_loopback(), "listen", &anyone()),
        (
            !config.gateway && config.grpc_listen.is_some(),
            "grpc_listen",
            "expected `gateway: on` too: it is the gateway that answers there",
        ),
    ] {
        if is_wrong {
            errors.add(setting, expected);
        }
    }
    check_store(config, errors);
    check_audit_log(config, errors);
    if config.gateway {
        check_gateway(config, errors);
    }
}

fn check_gateway(config: &Config, errors: &mut ConfigErrors) {
    // A random name has 16 characters.
    let replica = config.replica.as_ref().map_or(16, String::len);
    let (found, most) = (config.region.len() + replica, POP_NAME_MAX - GATEWAY_PREFIX.len() - 1);
    if found > most {
        let sentence = format!(
            "expected `region` and `replica` of at most {most} characters together, as they name the gateway among \
             the POPs, found {found}"
        );
        errors.add("gateway", sentence);
    }
    for (setting, address) in [("gateway", Some(config.listen)), ("grpc_listen", config.grpc_listen)] {
        let open = address.filter(|address| !address.ip().is_loopback());
        if let Some(address) = open.filter(|_| config.check_token == TokenSource::None) {
            let sentence = format!(
                "{address} is not a loopback address, so anyone could ask the gateway: set check_token_file (or \
                 WEIR_SYNC_CHECK_TOKEN), or listen on 127.0.0.1"
            );
            errors.add(setting, sentence);
        }
    }
}

/// Checks the settings of the audit log: its stream needs a Redis, and a password needs a URL.
fn check_audit_log(config: &Config, errors: &mut ConfigErrors) {
    let redis = &config.audit_log_redis;
    if *redis == Some(AuditStream::Store) && config.store.redis().is_none() {
        errors.add("audit_log_redis", "expected a Redis in `store`, found memory: name the stream's Redis by its URL");
    }
    if config.audit_log_redis_password_file.is_none() {
        return;
    }
    let expected = match redis.as_ref().and_then(AuditStream::address) {
        Some(address) if address.has_password() => {
            "expected either a password in `audit_log_redis` or a password file, found both"
        }
        Some(_) => return,
        None => "expected the URL of a Redis in `audit_log_redis`",
    };
    errors.add("audit_log_redis_password_file", expected);
}

/// Checks the settings of the store. Files that no connection would use are errors.
fn check_store(config: &Config, errors: &mut ConfigErrors) {
    let address = config.store.redis();
    let of_audit_log = config.audit_log_redis.as_ref().and_then(AuditStream::address);
    let is_tls = address.iter().chain(&of_audit_log).any(Address::is_tls);
    let has_password = address.as_ref().is_some_and(Address::has_password);
    let has_sentinels = address.as_ref().is_some_and(Address::has_sentinels);
    let no_tls = format!(
        "expected a store that is reached over TLS, as rediss://host, found {}: no certificate would be looked at",
        config.store
    );
    let (cert, key) = (config.store_client_cert_file.is_some(), config.store_client_key_file.is_some());
    let password = config.store_password_file.is_some();
    let of_sentinels = config.store_sentinel_password_file.is_some();
    for (is_wrong, setting, expected) in [
        (config.store_ca_file.is_some() && !is_tls, "store_ca_file", no_tls.as_str()),
        (cert && !is_tls, "store_client_cert_file", &no_tls),
        (key && !is_tls, "store_client_key_file", &no_tls),
        (cert != key, "store_client_cert_file", "expected both a certificate and store_client_key_file, or neither"),
        (of_sentinels && !has_sentinels, "store_sentinel_password_file", "expected redis+sentinel://... in `store`"),
        (
            config.store_sentinel_user.is_some() && !of_sentinels,
            "store_sentinel_user",
            "expected store_sentinel_password_file too",
        ),
        (password && address.is_none(), "store_password_file", "expected a Redis in `store`, found memory"),
        (
            password && has_password,
            "store_password_file",
            "expected either a password in `store` or a password file, found both",
        ),
    ] {
        if is_wrong {
            errors.add(setting, expected);
        }
    }
}

fn flags(matches: &ArgMatches) -> Vec<Found> {
    let found = |setting: &'static Setting| {
        let text = matches.get_one::<String>(setting.key)?.clone();
        Some(Found { place: format!("--{}", setting.flag()), setting, text })
    };
    SETTINGS.iter().filter_map(found).collect()
}

/// Settings in environment variables, and the path of the settings file.
fn environment(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    errors: &mut ConfigErrors,
) -> (Vec<Found>, Option<String>) {
    let (mut layer, mut file) = (Vec::new(), None);
    for (name, text) in variables {
        let Some(name) = name.to_str().filter(|name| is_ours(name)) else { continue };
        let Some(text) = text.to_str() else {
            errors.add(name, "expected UTF-8");
            continue;
        };
        match SETTINGS.iter().find(|setting| setting.variable() == name) {
            Some(setting) => layer.push(Found { place: name.into(), setting, text: text.into() }),
            None if name == FILE_VARIABLE => file = Some(text.to_owned()),
            None => errors.add(name, "there is no such setting; --help lists them"),
        }
    }
    (layer, file)
}

fn is_ours(name: &str) -> bool {
    // Set by Kubernetes for services called weir-sync*: WEIR_SYNC_SERVICE_HOST, WEIR_SYNC_PORT_7878_TCP and others.
    let is_foreign = name.contains("_SERVICE_") || name.contains("_PORT_") || name.ends_with("_PORT");
    name.starts_with(VARIABLE_PREFIX) && !is_foreign
}

fn file_layer(path: &str, errors: &mut ConfigErrors) -> Vec<Found> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            errors.add("--config", format!("cannot read {path}: {error}"));
            return Vec::new();
        }
    };
    // A file that contains only comments sets nothing.
    let read = source::from_str::<Option<BTreeMap<String, Spanned<Option<String>>>>>(&text, Options::default());
    let values = match read {
        Ok(values) => values.unwrap_or_default(),
        Err(Misread { at, problem }) => {
            let place = at.map_or_else(|| path.to_owned(), |(line, column)| format!("{path}:{line}:{column}"));
            errors.add(place, problem);
            return Vec::new();
        }
    };
    let mut layer = Vec::new();
    for (key, value) in values {
        let place = format!("{path}:{}: {key}", value.referenced.line());
        match (SETTINGS.iter().find(|setting| setting.key == key), value.value) {
            (Some(setting), Some(text)) => layer.push(Found { place, setting, text }),
            (Some(_), None) => errors.add(place, "expected a value, found nothing"),
            (None, _) => errors.add(place, "there is no such setting; --help lists them"),
        }
    }
    layer
}
