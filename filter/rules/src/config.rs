//! Checked plugin configuration: the rules, the table's size, the exchange with weir-sync.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::RuleSet;
use crate::key::fleet_secret::{FleetSecret, KEY_SECRET_BYTES_MAX, KEY_SECRET_BYTES_MIN};
use crate::reading::{ConfigError, ErrorCollector, Fields, Item, decode_struct};
use weir_protocol::messages::POP_NAME_MAX;
use weir_protocol::sharing::{OnSyncLoss, Sharing};

pub const CONFIG_BYTES_MAX: usize = 1024 * 1024;
/// Default number of addresses. It fits a host with 4,096 shared-data keys, such as the crate proxy-wasm-host.
const ADDRESSES_DEFAULT: u32 = 65_000;
/// Upper limit of tracked addresses: 512 MiB of slots.
const ADDRESSES_MAX: u32 = 16_777_216;
const TEXT_BYTES_MAX: usize = 1_024;

/// A plugin's configuration. Clones share the rules.
#[derive(Clone, Debug)]
pub struct PluginConfig {
    pub rules: Arc<RuleSet>,
    pub addresses: u32,
    pub sync: Option<SyncConfig>,
    /// True if the decision and its rule are written to the host's filter state, for access logs.
    pub filter_state: bool,
}

#[derive(Clone, Debug)]
pub struct SyncConfig {
    /// The host's cluster for weir-sync.
    pub cluster: String,
    /// This POP's name; the host's node id if absent.
    pub pop: Option<String>,
    pub token: Option<String>,
    /// Secret for hashing all key parts but addresses. Derived from `key_secret`, else from the token.
    pub key_secret: FleetSecret,
    /// Interval between a worker's reports in milliseconds, 50 to 500. Demand is measured over 500 ms.
    pub interval_ms: u32,
    /// Timeout of a report, and of the exchange that a request under a strict rule waits for, in milliseconds.
    pub timeout_ms: u32,
    /// Time without a reply from weir-sync after which rules follow their `on_sync_loss`, in milliseconds.
    pub fallback_after_ms: u32,
}

impl PluginConfig {
    /// Reads JSON or a `google.protobuf.Struct`. Returns all errors, each with its place.
    pub fn parse(bytes: &[u8]) -> Result<Self, Vec<ConfigError>> {
        let found = bytes.len();
        if found > CONFIG_BYTES_MAX {
            let expected = format_args!("expected at most {CONFIG_BYTES_MAX} bytes of configuration, found {found}");
            return Err(ConfigError::of_document(expected));
        }
        let value = serde_json::from_slice(bytes).or_else(|error| decode_struct(bytes).ok_or(error));
        let value = value.map_err(|error| {
            ConfigError::of_document(format_args!("expected JSON or a google.protobuf.Struct: {error}"))
        })?;
        let errors = ErrorCollector::default();
        let config = read(&Item::new(&value, &errors));
        errors.into_result(config)
    }

    /// True if key parts leave the POP under a hash that anyone can compute.
    pub fn keys_are_unkeyed(&self) -> bool {
        let is_unkeyed = |sync: &SyncConfig| sync.key_secret == FleetSecret::UNKEYED;
        self.sync.as_ref().is_some_and(is_unkeyed) && self.rules.rules().iter().any(|rule| rule.key.is_hashed())
    }
}

fn read(item: &Item<'_>) -> Option<PluginConfig> {
    let mut fields = item.fields()?;
    let rules = RuleSet::read(&mut fields);
    let addresses = match fields.take("table") {
        Some(table) => addresses(&table),
        None => Some(ADDRESSES_DEFAULT),
    };
    let sync = fields.take("sync").map(|item| sync(&item));
    let filter_state = fields.boolean("filter_state").unwrap_or(false);
    if let (Some(rules), None) = (&rules, &sync) {
        record_fields_that_need_sync(rules, &fields);
    }
    fields.finish();
    Some(PluginConfig { rules: Arc::new(rules?), addresses: addresses?, sync: sync.unwrap_or_default(), filter_state })
}

/// Records an error for each field that has no effect without a `sync` section.
fn record_fields_that_need_sync(rules: &RuleSet, fields: &Fields<'_>) {
    for rule in rules.rules().iter().filter(|rule| rule.is_written()) {
        let (i, default) = (rule.place(), Sharing::of(rule.quota));
        for (field, is_set) in [
            ("algorithm", rule.is_quota()),
            ("strict", rule.sharing.strict && !rule.is_quota()),
            ("local_burst", rule.sharing.local_burst != default.local_burst),
            ("min_share", !rule.sharing.floors.is_empty()),
            ("on_sync_loss", !rule.sharing.strict && rule.on_sync_loss != OnSyncLoss::default()),
        ] {
            if is_set {
                let problem = "expected a sync section beside it: there is none";
                fields.record_at(&format!("rules[{i}].{field}"), problem);
            }
        }
    }
}

fn addresses(item: &Item<'_>) -> Option<u32> {
    let mut fields = item.fields()?;
    let addresses = fields.number("addresses", 1..=ADDRESSES_MAX);
    fields.finish();
    Some(addresses.unwrap_or(ADDRESSES_DEFAULT))
}

fn sync(item: &Item<'_>) -> Option<SyncConfig> {
    let mut fields = item.fields()?;
    let cluster = fields.require("cluster", "the cluster of weir-sync");
    let cluster = cluster.and_then(|cluster| cluster.text(TEXT_BYTES_MAX));
    let pop = fields.text("pop", POP_NAME_MAX).map(str::to_owned);
    let token = fields.text("token", TEXT_BYTES_MAX).map(str::to_owned);
    let key_secret = key_secret(&mut fields, token.as_deref());
    let interval_ms = fields.number("interval_ms", 50..=500).unwrap_or(250);
    let timeout_ms = fields.number("timeout_ms", 1..=5_000).unwrap_or(1_000);
    let fallback_after_ms = fields.number("fallback_after_ms", 1_000..=60_000).unwrap_or(5_000);
    fields.finish();
    let cluster = cluster?.to_owned();
    Some(SyncConfig { cluster, pop, token, key_secret, interval_ms, timeout_ms, fallback_after_ms })
}

fn key_secret(fields: &mut Fields<'_>, token: Option<&str>) -> FleetSecret {
    let text = fields.text("key_secret", KEY_SECRET_BYTES_MAX);
    if text.is_some_and(|text| text.len() < KEY_SECRET_BYTES_MIN) {
        let expected = format_args!("expected text of {KEY_SECRET_BYTES_MIN} to {KEY_SECRET_BYTES_MAX} bytes");
        fields.record_at("key_secret", expected);
    }
    text.or(token).map_or(FleetSecret::UNKEYED, |text| FleetSecret::derive(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::string::ToString;

    fn parse(rules: &Value, sync: Option<Value>) -> Result<PluginConfig, Vec<String>> {
        let mut config = json!({"rules": rules});
        config.as_object_mut().unwrap().extend(sync.map(|sync| ("sync".into(), sync)));
        let errors_to_text = |errors: Vec<ConfigError>| errors.iter().map(ToString::to_string).collect();
        PluginConfig::parse(config.to_string().as_bytes()).map_err(errors_to_text)
    }

    #[test]
    fn fields_about_the_fleet_need_a_sync_section() {
        let rules = json!([
            {"name": "a", "key": ["client_address"], "rate": "5/s", "local_burst": 2, "min_share": {"eu": 5},
             "on_sync_loss": "deny", "also_by_prefix": [{"ipv4": 24, "times": 2}]},
            {"name": "b", "key": ["client_address"], "rate": "5/s", "strict": true},
        ]);
        let fields = ["[0].local_burst", "[0].min_share", "[0].on_sync_loss", "[1].strict"];
        let expected = fields.map(|field| format!("rules{field}: expected a sync section beside it: there is none"));
        assert_eq!(parse(&rules, None).unwrap_err(), expected);
        let config = parse(&rules, Some(json!({"cluster": "c"}))).unwrap();
        assert_eq!((config.addresses, config.rules.rules().len()), (65_000, 3));
    }

    #[test]
    fn keys_are_hidden_by_a_secret_or_else_by_the_token() {
        let config = |key: &str, mut sync: Value| {
            sync["cluster"] = json!("c");
            parse(&json!([{"name": "a", "key": [key], "rate": "5/s"}]), Some(sync))
        };
        for (sync, text) in [
            (json!({}), None),
            (json!({"token": "t"}), Some("t")),
            (json!({"token": "t", "key_secret": "0123456789abcdef"}), Some("0123456789abcdef")),
        ] {
            let secret = text.map_or(FleetSecret::UNKEYED, |text| FleetSecret::derive(text.as_bytes()));
            let [host, address] = ["host", "client_address"].map(|key| config(key, sync.clone()).unwrap());
            assert_eq!(host.sync.as_ref().unwrap().key_secret, secret);
            assert_eq!((host.keys_are_unkeyed(), address.keys_are_unkeyed()), (text.is_none(), false));
        }
        let short = config("host", json!({"key_secret": "short"})).unwrap_err();
        assert_eq!(short, ["sync.key_secret: expected text of 16 to 1024 bytes"]);
    }

    #[test]
    fn every_error_has_a_place_and_an_expectation() {
        let errors = |config: &str| {
            let errors = PluginConfig::parse(config.as_bytes()).unwrap_err();
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let wrong = json!({
            "rules": [{"name": "a", "key": ["all"], "rate": "5/s"}], "table": {"addresses": 0},
            "sync": {"cluster": "", "tokn": "x"}, "extra": 1,
        });
        let expected = [
            "table.addresses: expected a whole number from 1 to 16777216, found 0",
            "sync.cluster: expected text of 1 to 1024 bytes, found \"\"",
            "sync.tokn: unknown field: did you mean token?",
            "extra: unknown field: expected rules, enforce, allow, deny, table, sync, filter_state",
        ];
        assert_eq!(errors(&wrong.to_string()), expected);
        assert_eq!(errors("[]"), ["expected an object, found a list"]);
        assert_eq!(errors(""), ["rules: missing: expected a list of rules"], "an empty Struct");
        assert!(errors("rules: []")[0].starts_with("expected JSON or a google.protobuf.Struct: "));
        let found = CONFIG_BYTES_MAX + 1;
        let expected = format!("expected at most {CONFIG_BYTES_MAX} bytes of configuration, found {found}");
        assert_eq!(errors(&" ".repeat(found)), [expected]);
    }
}
