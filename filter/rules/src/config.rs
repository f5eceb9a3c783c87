//! Plugin configuration, checked: the rules, the table's size, the exchange with weir-sync.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde_json::Value;

use crate::RuleSet;
use crate::key::fleet_secret::{FleetSecret, KEY_SECRET_BYTES_MAX, KEY_SECRET_BYTES_MIN};
use crate::reading::{ConfigError, ErrorCollector, Fields, Item, decode_struct};
use weir_protocol::messages::POP_NAME_MAX;
use weir_protocol::sharing::{OnSyncLoss, Sharing};

/// The largest plugin configuration, in bytes.
pub const CONFIG_BYTES_MAX: usize = 1024 * 1024;
/// Number of addresses tracked by default. Their slots and the other keys fit a host with 4,096 shared-data
/// keys, as in the crate proxy-wasm-host.
const ADDRESSES_DEFAULT: u32 = 65_000;
/// Upper limit of tracked addresses: 512 MiB of slots.
const ADDRESSES_MAX: u32 = 16_777_216;
/// Longest cluster name and longest token, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;

/// A plugin's configuration. Clones share the rules.
#[derive(Clone, Debug)]
pub struct PluginConfig {
    /// The compiled rules.
    pub rules: Arc<RuleSet>,
    /// Number of addresses that the table tracks.
    pub addresses: u32,
    /// The exchange with weir-sync; `None` if no weir-sync is configured.
    pub sync: Option<SyncConfig>,
    /// True if the decision and its rule are written to the host's filter state, for access logs.
    pub filter_state: bool,
}

/// The exchange with weir-sync.
#[derive(Clone, Debug)]
pub struct SyncConfig {
    /// The host's name for weir-sync: a cluster.
    pub cluster: String,
    /// This POP's name; the host's node id if absent.
    pub pop: Option<String>,
    /// The bearer token that weir-sync expects.
    pub token: Option<String>,
    /// Hides all key parts but addresses. Derived from `key_secret`, else from the token.
    pub key_secret: FleetSecret,
    /// Interval between a worker's reports in milliseconds, 50 to 500. Demand is measured over 500 ms.
    pub interval_ms: u32,
    /// Timeout of a report, and of the exchange that a strict rule's request waits for, in milliseconds.
    pub timeout_ms: u32,
    /// Time without a reply from weir-sync after which rules follow their `on_sync_loss`, in milliseconds.
    pub fallback_after_ms: u32,
}

impl PluginConfig {
    /// Reads plugin configuration, as JSON or as a `google.protobuf.Struct`. Returns all errors, each with
    /// its place.
    pub fn parse(bytes: &[u8]) -> Result<Self, Vec<ConfigError>> {
        let errors = ErrorCollector::default();
        let json = serde_json::from_slice::<Value>(bytes);
        let value = match json.or_else(|error| decode_struct(bytes).ok_or(error)) {
            Ok(value) => value,
            Err(error) => {
                errors.record("", format!("expected JSON or a google.protobuf.Struct: {error}"));
                return errors.into_result(None);
            }
        };
        let config = read(&Item::new(&value, "", &errors));
        errors.into_result(config)
    }

    /// True if key parts leave the POP under a hash that anyone can compute.
    pub fn keys_are_unkeyed(&self) -> bool {
        let is_unkeyed = |sync: &SyncConfig| sync.key_secret == FleetSecret::UNKEYED;
        self.sync.as_ref().is_some_and(is_unkeyed)
            && self.rules.rules().iter().any(|rule| rule.key.is_hashed())
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
    Some(PluginConfig {
        rules: Arc::new(rules?),
        addresses: addresses?,
        sync: sync.unwrap_or_default(),
        filter_state,
    })
}

/// Notes an error for each field that concerns the fleet: without a `sync` section these fields have no
/// effect.
fn record_fields_that_need_sync(rules: &RuleSet, fields: &Fields<'_>) {
    for rule in rules.rules().iter().filter(|rule| rule.is_written()) {
        let (i, default) = (rule.place(), Sharing::of(rule.quota));
        for (field, is_said) in [
            ("algorithm", rule.is_quota()),
            ("strict", rule.sharing.strict && !rule.is_quota()),
            ("local_burst", rule.sharing.local_burst != default.local_burst),
            ("min_share", !rule.sharing.floors.is_empty()),
            ("on_sync_loss", !rule.sharing.strict && rule.on_sync_loss != OnSyncLoss::default()),
        ] {
            if is_said {
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
        let expected =
            format_args!("expected text of {KEY_SECRET_BYTES_MIN} to {KEY_SECRET_BYTES_MAX} bytes");
        fields.record_at("key_secret", expected);
    }
    text.or(token).map_or(FleetSecret::UNKEYED, |text| FleetSecret::derive(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn errors(json: &str) -> Vec<String> {
        PluginConfig::parse(json.as_bytes())
            .err()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn the_least_there_is() {
        let json = br#"{"rules": [{"name": "a", "key": ["client_address"], "rate": "5/s"}]}"#;
        let config = PluginConfig::parse(json).unwrap();
        assert_eq!((config.addresses, config.sync.is_none()), (65_000, true));
        assert_eq!(config.rules.rules()[0].quota.burst(), 5);
    }

    #[test]
    fn fields_about_the_fleet_need_a_sync_section() {
        let found = errors(
            r#"{"rules": [{"name": "a", "key": ["client_address"], "rate": "5/s", "local_burst": 2,
                "min_share": {"eu": 5}, "on_sync_loss": "deny"},
                {"name": "b", "key": ["client_address"], "rate": "5/s", "strict": true}]}"#,
        );
        let fields = ["[0].local_burst", "[0].min_share", "[0].on_sync_loss", "[1].strict"];
        let expected =
            fields.map(|field| format!("rules{field}: expected a sync section beside it: there is none"));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_field_about_the_fleet_says_which_algorithms_it_goes_with() {
        let of = |algorithm: &str, field: &str| {
            let rule = format!(
                r#"{{"name": "a", "key": ["all"], "rate": "5/s", "algorithm": "{algorithm}", {field}}}"#
            );
            errors(&format!(r#"{{"rules": [{rule}], "sync": {{"cluster": "c"}}}}"#))
        };
        let expected = |rest: &str| [format!("rules[0].{rest}")];
        for algorithm in ["fixed_window", "sliding_window", "sliding_log", "leaky_bucket"] {
            let or_strict = "on_sync_loss: expected only with algorithm: token_bucket, or with strict";
            assert_eq!(of(algorithm, r#""on_sync_loss": "share""#), expected(or_strict), "{algorithm}");
            let shared = "min_share: expected only with algorithm: token_bucket, which POPs share";
            assert_eq!(
                of(algorithm, r#""strict": true, "min_share": {"eu": 5}"#),
                expected(shared),
                "{algorithm}"
            );
            assert_eq!(of(algorithm, r#""strict": true, "on_sync_loss": "share""#), [""; 0], "{algorithm}");
        }
    }

    #[test]
    fn a_log_that_the_fleet_keeps_is_longer_than_a_pops() {
        let of = |rest: &str| {
            let rule =
                format!(r#"{{"name": "a", "key": ["client_address"], "algorithm": "sliding_log", {rest}}}"#);
            errors(&format!(r#"{{"rules": [{rule}], "sync": {{"cluster": "c"}}}}"#))
        };
        let at = |place: &str, most: u32| {
            [format!(
                "rules[0].{place}: expected a limit from 1 to {most} for sliding_log, 1000 with `strict: true`: or use sliding_window"
            )]
        };
        assert_eq!(of(r#""rate": "17/m""#), at("rate", 16));
        assert_eq!(of(r#""rate": "17/m", "strict": false"#), at("rate", 16));
        assert_eq!(of(r#""rate": "1000/m", "strict": true"#), [""; 0]);
        assert_eq!(of(r#""rate": "1001/m", "strict": true"#), at("rate", 1_000));
        let tier =
            r#""rate": "500/m", "strict": true, "tiers": [{"name": "t", "when": {"methods": ["GET"]}, "#;
        assert_eq!(of(&format!(r#"{tier}"times": 2}}]"#)), [""; 0]);
        assert_eq!(
            of(&format!(r#"{tier}"times": 3}}]"#)),
            ["rules[0].tiers[0].times: expected less: 3 times the rule's quota is too much"]
        );
        assert_eq!(of(&format!(r#"{tier}"rate": "1001/m"}}]"#)), at("tiers[0].rate", 1_000));
        let wider = r#""rate": "500/m", "strict": true, "also_by_prefix": [{"ipv4": 24, "times": 3}]"#;
        assert!(
            of(wider)[0].starts_with("rules[0].also_by_prefix[0]: expected no more than"),
            "{:?}",
            of(wider)
        );
    }

    #[test]
    fn rules_that_wider_makes_are_not_counted_among_the_written() {
        let found = errors(
            r#"{"rules": [{"name": "a", "key": ["client_address"], "rate": "5/s", "also_by_prefix": [{"ipv4": 24, "times": 2}]},
                {"name": "b", "key": ["client_address"], "rate": "5/s", "strict": true}]}"#,
        );
        assert_eq!(found, ["rules[1].strict: expected a sync section beside it: there is none"]);
    }

    #[test]
    fn keys_are_hidden_by_a_secret_or_else_by_the_token() {
        let config = |key: &str, sync: &str| {
            let rule = format!(r#"{{"name": "a", "key": [{key}], "rate": "5/s"}}"#);
            let text = format!(r#"{{"rules": [{rule}], "sync": {{"cluster": "c"{sync}}}}}"#);
            PluginConfig::parse(text.as_bytes()).unwrap()
        };
        let secret = |sync: &str| config("\"host\"", sync).sync.unwrap().key_secret;
        assert_eq!(secret(""), FleetSecret::UNKEYED);
        assert_eq!(secret(r#", "token": "t""#), FleetSecret::derive(b"t"));
        let both = r#", "token": "t", "key_secret": "0123456789abcdef""#;
        assert_eq!(secret(both), FleetSecret::derive(b"0123456789abcdef"));
        assert!(config("\"host\"", "").keys_are_unkeyed());
        assert!(!config("\"host\"", r#", "token": "t""#).keys_are_unkeyed());
        assert!(!config("\"client_address\"", "").keys_are_unkeyed());
        let short = r#"{"rules": [{"name": "a", "key": ["host"], "rate": "5/s"}], "sync": {"cluster": "c", "key_secret": "short"}}"#;
        assert_eq!(errors(short), ["sync.key_secret: expected text of 16 to 1024 bytes"]);
    }

    #[test]
    fn every_error_has_its_place_and_says_what_was_expected() {
        let found = errors(
            r#"{"rules": [
                {"name": "Bad Name", "key": ["client_address"], "rate": "5 per second"},
                {"name": "b", "rate": "9/s", "local_burst": 10, "on_sync_loss": "open",
                 "min_share": {"eu": 60, "us": 50, "A": 1, "x": 0}}
             ], "table": {"addresses": 0}, "sync": {"cluster": "", "tokn": "x"}, "extra": 1}"#,
        );
        let expected = [
            "rules[0].name: expected 1 to 64 characters from a-z, 0-9, - and _, found \"Bad Name\"",
            "rules[0].rate: expected a whole number from 1 to 1000000, then /s, /m, /h or /d, as in \"50/s\" or \"5/15m\", found \"5 per second\"",
            "rules[1].key: missing: expected a list, as in [client_address]",
            "rules[1].local_burst: expected a whole number from 1 to 9, found 10",
            "rules[1].on_sync_loss: expected local or share or deny, found \"open\"",
            "rules[1].min_share.A: expected 1 to 64 characters from a-z, 0-9, - and _ as a region's name",
            "rules[1].min_share.x: expected a whole number from 1 to 100, found 0",
            "rules[1].min_share: expected parts that add up to at most 100, found 111",
            "table.addresses: expected a whole number from 1 to 16777216, found 0",
            "sync.cluster: expected text of 1 to 1024 bytes, found \"\"",
            "sync.tokn: unknown field: did you mean token?",
            "extra: unknown field: expected rules, enforce, allow, deny, table, sync, filter_state",
        ];
        for line in expected {
            assert!(found.iter().any(|e| e == line), "missing: {line}\nfound: {found:#?}");
        }
        assert_eq!(found.len(), expected.len(), "{found:#?}");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert_eq!(errors("[]"), ["expected an object, found a list"]);
        assert_eq!(
            errors(r#"{"rules": null}"#).last().unwrap(),
            "rules: empty: expected a value, or no such field"
        );
        assert_eq!(errors("{}"), ["rules: missing: expected a list of rules"]);
        assert_eq!(errors(r#"{"rules": []}"#), ["rules: expected a list of 1 to 1000 rules, found a list"]);
        assert_eq!(errors(""), ["rules: missing: expected a list of rules"]);
        assert!(errors("rules: []").first().is_some_and(|e| e.starts_with("expected JSON")));
    }

    #[test]
    fn a_name_is_given_once() {
        let rule = r#"{"name": "a", "key": ["client_address"], "rate": "5/s"}"#;
        let found = errors(&format!(r#"{{"rules": [{rule}, {rule}]}}"#));
        assert_eq!(found, ["rules[1].name: another rule has the name \"a\""]);
    }
}
