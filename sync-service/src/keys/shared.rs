//! Text format in which weir-syncs share their top keys, rule rates and POP statuses through the store.
//!
//! Texts of another version are ignored. So during an upgrade, each weir-sync sees the keys of weir-syncs of its own
//! version only, and reports its list as partial.

use serde::{Deserialize, Serialize};
use weir_budget::budget::BudgetId;
use weir_budget::decisions::RuleRates;
use weir_budget::pops::PopStatus;
use weir_budget::top_keys::fleet::{ReplicaTopKeys, TopKey, Unseen};
use weir_budget::top_keys::{KeyRates, POPS_MAX};
use weir_protocol::messages::{MODULE_MAX, POP_NAME_MAX, REFUSAL_MAX, RULE_NAME_MAX, RULES_MAX};
use weir_protocol::quota::Quota;

use super::name;

/// Maximum number of the most limited keys that a weir-sync shares. It also shares half as many of the most admitted
/// keys, and half as many of the keys with the most debt.
pub(crate) const SHARED_MAX: usize = 100;
pub(crate) const STATUSES_MAX: usize = 1_000;
const VERSION: u32 = 3;
const KEYS_MAX: usize = 2 * SHARED_MAX;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SharedKeys {
    pub(crate) top_keys: ReplicaTopKeys,
    pub(crate) rates: Vec<RuleRates>,
    pub(crate) statuses: Vec<PopStatus>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    v: u32,
    unseen: Unseen,
    keys: Vec<Row>,
    rules: Vec<RuleRates>,
    pops: Vec<PopStatus>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    rule: String,
    key: String,
    token_ns: u64,
    burst: u32,
    /// Demand and admitted tokens, in thousandths of a token per second.
    rates: (u64, u64),
    level: i64,
    age: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limited: Option<u64>,
    askers: u32,
    pops: Vec<(String, u64, u64)>,
}

pub(crate) fn write(SharedKeys { top_keys, rates, statuses }: &SharedKeys) -> String {
    let text = Text {
        v: VERSION,
        unseen: top_keys.unseen,
        keys: top_keys.keys.iter().take(KEYS_MAX).map(row).collect(),
        rules: rates.iter().take(RULES_MAX).cloned().collect(),
        pops: statuses.iter().take(STATUSES_MAX).cloned().collect(),
    };
    // Numbers and strings only, which always serialize.
    serde_json::to_string(&text).unwrap_or_default()
}

/// Parses a text; `None` if it has another version or was not written by [`write()`]. Skips invalid keys, rules and
/// POPs, so that a POP that makes some up does not hide all others.
pub(crate) fn read(text: &str) -> Option<SharedKeys> {
    let Text { v, unseen, keys, rules: mut rates, pops: mut statuses } = serde_json::from_str(text).ok()?;
    let fits = v == VERSION && keys.len() <= KEYS_MAX && rates.len() <= RULES_MAX && statuses.len() <= STATUSES_MAX;
    let top_keys = ReplicaTopKeys { keys: keys.into_iter().filter_map(key).collect(), unseen };
    rates.retain(|of| is_name(&of.rule, RULE_NAME_MAX));
    statuses.retain(|of| {
        is_name(&of.pop, POP_NAME_MAX) && of.module.len() <= MODULE_MAX && of.refusal.len() <= REFUSAL_MAX
    });
    fits.then_some(SharedKeys { top_keys, rates, statuses })
}

fn is_name(name: &str, max: usize) -> bool {
    (1..=max).contains(&name.len())
}

fn row(key: &TopKey) -> Row {
    let pop = |(pop, rates): &(String, KeyRates)| (pop.clone(), rates.asked_milli, rates.admitted_milli);
    Row {
        rule: key.id.rule.clone(),
        key: name::show(&key.id.value),
        token_ns: key.quota.token_ns(),
        burst: key.quota.burst(),
        rates: (key.rates.asked_milli, key.rates.admitted_milli),
        level: key.level_milli,
        age: key.age_ms,
        limited: key.limited_ms,
        askers: key.askers,
        pops: key.pops.iter().map(pop).collect(),
    }
}

fn key(row: Row) -> Option<TopKey> {
    let fits = is_name(&row.rule, RULE_NAME_MAX)
        && row.pops.len() <= POPS_MAX
        && row.pops.iter().all(|(pop, ..)| is_name(pop, POP_NAME_MAX));
    let value = name::read(&row.key).ok().filter(|_| fits)?;
    let rates = |asked_milli, admitted_milli| KeyRates { asked_milli, admitted_milli };
    Some(TopKey {
        id: BudgetId::new(row.rule, value),
        quota: Quota::from_token_ns(row.token_ns, row.burst).ok()?,
        rates: rates(row.rates.0, row.rates.1),
        level_milli: row.level,
        age_ms: row.age,
        limited_ms: row.limited,
        askers: row.askers,
        pops: row.pops.into_iter().map(|(pop, asked, admitted)| (pop, rates(asked, admitted))).collect(),
    })
}

#[cfg(test)]
mod tests {
    use weir_budget::decisions::DecisionCounts;

    use super::*;

    fn word() -> SharedKeys {
        let key = TopKey {
            id: BudgetId::new("per-address".into(), vec![4, 32, 192, 0, 2, 7]),
            quota: Quota::from_token_ns(20_000_000, 100).unwrap(),
            rates: KeyRates { asked_milli: 12_345, admitted_milli: 345 },
            level_milli: -7_000,
            age_ms: 20,
            limited_ms: Some(1_000),
            askers: 2,
            pops: vec![("fra1 \"a\"".into(), KeyRates { asked_milli: 12_345, admitted_milli: 345 })],
        };
        let free = TopKey { limited_ms: None, id: BudgetId::new("r".into(), vec![1, 2]), ..key.clone() };
        let top_keys = ReplicaTopKeys { keys: vec![key, free], unseen: Unseen { limited_milli: 3, admitted_milli: 4 } };
        let milli = DecisionCounts { allowed: 1, limited: 2, shadow: 3, denied: 4 };
        let status = PopStatus {
            pop: "fra1".into(),
            step: 1,
            clock_ms: Some(-7),
            module: "0.1.0".into(),
            refusal: "no".into(),
            age_ms: 40,
        };
        let rates = vec![RuleRates { rule: "login".into(), milli, pops: 5 }];
        SharedKeys { top_keys, rates, statuses: vec![status] }
    }

    #[test]
    fn reads_what_it_writes_and_nothing_else() {
        let text = write(&word());
        assert_eq!(read(&text), Some(word()));
        assert!(text.len() < 750, "{}: {text}", text.len());
        for (old, new) in [("\"v\":3", "\"v\":4"), ("}]}", "}]")] {
            let other = text.replacen(old, new, 1);
            assert_ne!(other, text, "{old}");
            assert_eq!(read(&other), None, "{other}");
        }
        // What cannot be is passed over, and nothing else.
        for (old, new, left) in [
            ("192.0.2.7", "192.0.2", (1, 1, 1)),
            ("\"burst\":100", "\"burst\":0", (1, 1, 1)),
            ("per-address", "", (1, 1, 1)),
            ("fra1 ", &"f".repeat(POP_NAME_MAX), (1, 1, 1)),
            ("login", "", (2, 0, 1)),
            ("\"pop\":\"fra1\"", "\"pop\":\"\"", (2, 1, 0)),
        ] {
            let other = text.replacen(old, new, 1);
            assert_ne!(other, text, "{old}");
            let SharedKeys { top_keys, rates, statuses } = read(&other).unwrap();
            assert_eq!((top_keys.keys.len(), rates.len(), statuses.len()), left, "{other}");
        }
    }
}
