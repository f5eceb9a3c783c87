//! Query parameters of the list of keys, and the overrides that affect a key.

use std::net::IpAddr;

use serde_json::Value;
use weir_budget::budget::BudgetId;
use weir_budget::top_keys::fleet::{FleetTopKey, Sort, sort};
use weir_cli::moment;
use weir_rules::address::Prefixes;
use weir_rules::key::KeyValue;

use super::name;
use crate::overrides::spec::{Override, OverrideKind, OverrideState, Subject};
use crate::problem::Problem;
use crate::routes::table::{Query, number};

pub(crate) const LISTED: usize = 20;
pub(crate) const LISTED_MAX: usize = 1_000;

pub(crate) struct TopKeysQuery {
    /// Restricts the list to this rule, its tiers and its wider prefixes.
    rule: Option<String>,
    /// Restricts the list to keys whose names begin with a text, or which lie in a network.
    prefix: Option<Prefix>,
    sort: Sort,
    limit: Option<usize>,
}

enum Prefix {
    Text(String),
    Network(Vec<u8>),
}

impl TopKeysQuery {
    pub(crate) fn read(query: &Query) -> Result<Self, Problem> {
        let limit =
            |text: &str| number(text).map(usize::try_from)?.ok().filter(|limit| (1..=LISTED_MAX).contains(limit));
        let limit = query.read_as("limit", "a number from 1 to 1000", limit)?;
        let sort = query.read_as("sort", "limited, admitted or debt", sort_of)?.unwrap_or_default();
        Ok(Self {
            rule: query.get("rule").map(str::to_owned),
            prefix: query.get("prefix").map(Prefix::read),
            sort,
            limit,
        })
    }

    /// Selects and sorts the keys that match. Also returns how many matched before the limit was applied.
    pub(crate) fn choose(&self, mut keys: Vec<FleetTopKey>) -> (Vec<FleetTopKey>, usize) {
        keys.retain(|key| self.is_asked_for(key));
        sort(&mut keys, self.sort);
        let found = keys.len();
        keys.truncate(self.limit.unwrap_or(LISTED));
        (keys, found)
    }

    fn is_asked_for(&self, key: &FleetTopKey) -> bool {
        let is_of = |rule: &String| is_of(&key.id.rule, rule);
        let begins = |prefix: &Prefix| match prefix {
            Prefix::Text(text) => name::show(&key.id.value).starts_with(text),
            Prefix::Network(network) => name::is_within(&key.id.value, network),
        };
        self.rule.as_ref().is_none_or(is_of) && self.prefix.as_ref().is_none_or(begins)
    }
}

impl Prefix {
    /// Parses a network; any other text is the beginning of a name.
    fn read(text: &str) -> Self {
        let network = text.contains('/').then(|| name::read(text).ok()).flatten();
        network.map_or_else(|| Self::Text(text.into()), Self::Network)
    }
}

/// True if `name` is the rule `written`, a tier of it or one of its wider prefixes.
pub(crate) fn is_of(name: &str, written: &str) -> bool {
    name.strip_prefix(written).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn sort_of(text: &str) -> Option<Sort> {
    match text {
        "limited" => Some(Sort::Limited),
        "admitted" => Some(Sort::Admitted),
        "debt" => Some(Sort::Debt),
        _ => None,
    }
}

pub(crate) fn of_key(overrides: &[OverrideState], id: &BudgetId) -> Vec<Value> {
    let shown = name::show(&id.value);
    json_of(overrides, |subject| match subject {
        Subject::Key { rule, key } => is_of(&id.rule, rule) && *key == shown,
        Subject::Address { address } => {
            let network = address.key();
            name::is_within(&id.value, network.as_bytes()) || name::is_within(network.as_bytes(), &id.value)
        }
    })
}

/// Remaining time of a ban of the address in key `id`, in milliseconds; `None` if it is not banned.
pub(crate) fn banned_ms(overrides: &[OverrideState], id: &BudgetId) -> Option<u32> {
    let now_ms = moment::now_ms();
    let until = |state: &OverrideState| {
        let Override { settings, until_ms, .. } = &state.order;
        let address =
            settings.subject.address().filter(|_| settings.kind == OverrideKind::Ban && state.without_effect.is_none());
        let is_banned = name::is_within(&id.value, address?.key().as_bytes());
        is_banned.then(|| u32::try_from(until_ms.saturating_sub(now_ms)).unwrap_or(u32::MAX))
    };
    overrides.iter().filter_map(until).max().filter(|ms| *ms > 0)
}

pub(crate) fn of_address(overrides: &[OverrideState], address: IpAddr) -> Vec<Value> {
    let whole = Prefixes { ipv4: 32, ipv6: 128 };
    let value = KeyValue::of_address(address.to_canonical(), whole);
    json_of(overrides, |subject| match subject {
        Subject::Key { .. } => false,
        Subject::Address { address } => name::is_within(value.as_bytes(), address.key().as_bytes()),
    })
}

fn json_of(overrides: &[OverrideState], is_about: impl Fn(&Subject) -> bool) -> Vec<Value> {
    overrides.iter().filter(|state| is_about(&state.order.settings.subject)).map(OverrideState::json).collect()
}
