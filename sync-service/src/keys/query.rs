//! Query parameters of the list of keys.

use std::borrow::Cow;

use url::form_urlencoded;
use weir_budget::top_keys::fleet::{FleetTopKey, Sort, sort};

use super::name;

/// Path prefix of one key. The rule and the key follow.
pub const KEY_PATH: &str = "/v1/keys/";
/// Default number of listed keys.
pub const LISTED: usize = 20;
/// Maximum number of listed keys.
pub const LISTED_MAX: usize = 1_000;
/// Expected query, for error messages.
const EXPECTED: &str = "expected any of `rule=NAME`, `prefix=TEXT or NETWORK`, `sort=limited|admitted|debt` and `limit=1..1000`, \
    each once";

/// Query for top keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopKeysQuery {
    /// Restricts the list to this rule, its tiers and its wider prefixes.
    rule: Option<String>,
    /// Restricts the list to keys whose names begin with a text, or which lie in a network.
    prefix: Option<Prefix>,
    sort: Sort,
    limit: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Prefix {
    Text(String),
    Network(Vec<u8>),
}

impl TopKeysQuery {
    /// Parses the query of a URL. The error states what was expected.
    pub fn read(query: &str) -> Result<Self, String> {
        let mut asked = Self::default();
        let mut known: Vec<Cow<'_, str>> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if known.contains(&name) {
                return Err(format!("{EXPECTED}; found `{name}` twice"));
            }
            let is_read = match name.as_ref() {
                "rule" => asked.rule.replace(value.clone().into_owned()).is_none(),
                "prefix" => asked.prefix.replace(Prefix::read(&value)).is_none(),
                "sort" => sort_of(&value).map(|by| asked.sort = by).is_some(),
                "limit" => limit_of(&value).map(|limit| asked.limit = Some(limit)).is_some(),
                _ => false,
            };
            if !is_read {
                return Err(format!("{EXPECTED}; found `{name}={value}`"));
            }
            known.push(name);
        }
        Ok(asked)
    }

    /// Selects and sorts the keys that match. Also returns how many matched before the limit was applied.
    pub fn choose(&self, mut keys: Vec<FleetTopKey>) -> (Vec<FleetTopKey>, usize) {
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

/// True if `name` is the rule `written` or was derived from it: tiers and wider prefixes add a dot and a
/// suffix.
pub fn is_of(name: &str, written: &str) -> bool {
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

fn limit_of(text: &str) -> Option<usize> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten().filter(|limit| (1..=LISTED_MAX).contains(limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use weir_budget::budget::BudgetId;
    use weir_budget::top_keys::KeyRates;
    use weir_protocol::quota::Quota;

    fn key(rule: &str, name: &str, asked: u64, admitted: u64, level: i64) -> FleetTopKey {
        FleetTopKey {
            id: BudgetId::new(rule.into(), name::read(name).unwrap()),
            quota: Quota::from_token_ns(1_000_000, 10).unwrap(),
            rates: KeyRates { asked_milli: asked, admitted_milli: admitted },
            level_milli: level,
            age_ms: 0,
            limited_ms: None,
            regions: BTreeMap::new(),
        }
    }

    fn names(query: &str) -> Vec<String> {
        let keys = vec![
            key("api", "192.0.2.1", 10, 10, 5),
            key("api.gold", "192.0.2.2", 100, 1, -9),
            key("api-2", "2001:db8::/64", 50, 40, -10),
            key("api", "192.0.20.1", 11, 0, 0),
        ];
        let (chosen, _) = TopKeysQuery::read(query).unwrap().choose(keys);
        chosen.iter().map(|key| name::show(&key.id.value)).collect()
    }

    #[test]
    fn keys_are_chosen_and_sorted() {
        assert_eq!(names(""), ["192.0.2.2", "192.0.20.1", "2001:db8::/64", "192.0.2.1"]);
        assert_eq!(names("sort=admitted&limit=2"), ["2001:db8::/64", "192.0.2.1"]);
        assert_eq!(names("sort=debt&limit=2"), ["2001:db8::/64", "192.0.2.2"]);
        assert_eq!(names("rule=api"), ["192.0.2.2", "192.0.20.1", "192.0.2.1"]);
        assert_eq!(names("rule=api.gold"), ["192.0.2.2"]);
        assert_eq!(names("prefix=192.0.2"), ["192.0.2.2", "192.0.20.1", "192.0.2.1"]);
        assert_eq!(names("prefix=192.0.2.0%2F24"), ["192.0.2.2", "192.0.2.1"]);
        assert_eq!(names("prefix=2001:db8::/32&sort=limited"), ["2001:db8::/64"]);
    }

    #[test]
    fn what_is_no_question_is_refused() {
        for query in
            ["limit=0", "limit=1001", "limit=+1", "limit=", "sort=Limited", "x=1", "rule=a&rule=b", "a"]
        {
            let error = TopKeysQuery::read(query).unwrap_err();
            assert!(error.starts_with("expected") && error.contains("found"), "{error}");
        }
    }
}
