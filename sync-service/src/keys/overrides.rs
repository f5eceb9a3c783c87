//! Overrides that affect a key.

use std::net::IpAddr;

use serde_json::Value;
use weir_budget::budget::BudgetId;
use weir_rules::address::Prefixes;
use weir_rules::key::KeyValue;

use super::name;
use super::query::is_of;
use crate::moment;
use crate::overrides::Override;
use crate::overrides::network::Network;
use crate::overrides::spec::{OverrideKind, OverrideState, Subject};

/// JSON of the overrides that affect the key `id` or its address.
pub fn of_key(overrides: &[OverrideState], id: &BudgetId) -> Vec<Value> {
    let shown = name::show(&id.value);
    told(overrides, |subject| match subject {
        Subject::Key { rule, key } => is_of(&id.rule, rule) && *key == shown,
        Subject::Address { address } => {
            let network = network(address);
            name::is_within(&id.value, &network) || name::is_within(&network, &id.value)
        }
    })
}

/// Remaining time of a ban of the address in key `id`, in milliseconds. None if it is not banned.
pub fn banned_ms(overrides: &[OverrideState], id: &BudgetId) -> Option<u32> {
    let now_ms = moment::now_ms();
    let until = |standing: &OverrideState| {
        let Override { said, until_ms, .. } = &standing.order;
        let address = said
            .subject
            .address()
            .filter(|_| said.kind == OverrideKind::Ban && standing.without_effect.is_none());
        let is_banned = name::is_within(&id.value, &network(&address?));
        is_banned.then(|| u32::try_from(until_ms.saturating_sub(now_ms)).unwrap_or(u32::MAX))
    };
    overrides.iter().filter_map(until).max().filter(|ms| *ms > 0)
}

/// JSON of the overrides that affect `address`.
pub fn of_address(overrides: &[OverrideState], address: IpAddr) -> Vec<Value> {
    let whole = Prefixes { ipv4: 32, ipv6: 128 };
    let value = KeyValue::of_address(address.to_canonical(), whole);
    told(overrides, |subject| match subject {
        Subject::Key { .. } => false,
        Subject::Address { address } => name::is_within(value.as_bytes(), &network(address)),
    })
}

/// Bytes of the network as a key. A single address is a network, too.
fn network(network: &Network) -> Vec<u8> {
    let text = network.to_string();
    let bits = if text.contains(':') { "/128" } else { "/32" };
    let bits = if text.contains('/') { "" } else { bits };
    name::read(&format!("{text}{bits}")).unwrap_or_default()
}

fn told(overrides: &[OverrideState], is_about: impl Fn(&Subject) -> bool) -> Vec<Value> {
    overrides
        .iter()
        .filter(|standing| is_about(&standing.order.said.subject))
        .map(OverrideState::json)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overrides::spec::OverrideSettings;

    fn order(subject: Subject) -> OverrideState {
        let said = OverrideSettings {
            kind: OverrideKind::Ban,
            subject,
            terms: None,
            reason: String::new(),
            author: String::new(),
        };
        OverrideState { order: Override { said, id: 1, at_ms: 0, until_ms: 0 }, without_effect: None }
    }

    #[test]
    fn overrides_about_a_key_and_its_address_are_told() {
        let network = |text: &str| Subject::of(text.parse().unwrap());
        let key = |rule: &str, key: &str| Subject::Key { rule: rule.into(), key: key.into() };
        let overrides = [
            network("192.0.2.0/24"),
            network("192.0.2.7"),
            network("198.51.100.0/24"),
            key("login", "192.0.2.7"),
            key("login", "192.0.2.8"),
            key("api", "192.0.2.7"),
        ]
        .map(order);
        let id = BudgetId::new("login.gold".into(), name::read("192.0.2.7").unwrap());
        let told = of_key(&overrides, &id);
        let of = |order: &Value| order["address"].as_str().or(order["key"].as_str()).unwrap().to_owned();
        assert_eq!(told.iter().map(of).collect::<Vec<_>>(), ["192.0.2.0/24", "192.0.2.7", "192.0.2.7"]);
        let banned = |until_ms, value: &str| {
            let of = |order: &OverrideState| Override { until_ms, ..order.order.clone() };
            let overrides =
                overrides.clone().map(|one| OverrideState { order: of(&one), without_effect: None });
            banned_ms(&overrides, &BudgetId::new("api".into(), name::read(value).unwrap()))
        };
        assert!(banned(u64::MAX, "192.0.2.9").is_some() && banned(1, "192.0.2.9").is_none());
        assert_eq!(banned(u64::MAX, "203.0.113.9"), None);
        assert_eq!(of_address(&overrides, "192.0.2.9".parse().unwrap()).len(), 1);
        assert_eq!(of_address(&overrides, "2001:db8::1".parse().unwrap()).len(), 0);
    }
}
