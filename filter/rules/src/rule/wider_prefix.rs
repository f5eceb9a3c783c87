//! The field `also_by_prefix`: a rule once more over wider prefixes, so that a client gains little by changing its
//! address within a prefix.

use alloc::format;
use alloc::vec::Vec;

use super::Rule;
use super::variant::Variant;
use crate::key::{KeySpec, prefixes};
use crate::limit::{Limit, TIMES_MAX};
use crate::reading::{Fields, Item};
use crate::request::address::Prefixes;
use weir_protocol::messages::RULE_NAME_MAX;
use weir_protocol::quota::TOKENS_MAX;
use weir_protocol::sharing::Sharing;

/// Maximum number of wider prefixes of one rule.
const WIDER_MAX: usize = 4;

/// A wider prefix, and the multiple of the rule's quota that it has.
pub(super) struct WiderPrefix<'a> {
    item: Item<'a>,
    prefixes: Prefixes,
    times: u32,
}

/// Reads the field `also_by_prefix` of a rule with this key (`None` if the key is invalid).
pub(super) fn wider<'a>(fields: &mut Fields<'a>, key: Option<&KeySpec>) -> Vec<WiderPrefix<'a>> {
    let items: Vec<_> = fields.list("also_by_prefix", WIDER_MAX).collect();
    let narrow = match key.map(KeySpec::prefixes) {
        Some(Some(prefixes)) => prefixes,
        Some(None) if !items.is_empty() => {
            fields.record_at(
                "also_by_prefix",
                "expected a key with client_address: there is no prefix to widen",
            );
            return Vec::new();
        }
        // Either `also_by_prefix` is empty, or errors of the key have been noted.
        _ => Prefixes { ipv4: u8::MAX, ipv6: u8::MAX },
    };
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        let Some(mut fields) = item.fields() else { continue };
        let prefixes = prefixes(&mut fields, narrow);
        for (name, wide, narrow) in
            [("ipv4", prefixes.ipv4, narrow.ipv4), ("ipv6", prefixes.ipv6, narrow.ipv6)]
        {
            if fields.has(name) && wide >= narrow {
                let expected = format_args!("expected less than {narrow}, which is the key's, found {wide}");
                fields.record_at(name, expected);
            }
        }
        if !fields.has("ipv4") && !fields.has("ipv6") {
            fields.record("expected ipv4, ipv6 or both, as in {ipv4: 24, ipv6: 48, times: 8}");
        }
        let times = fields.require("times", "how many times the rule's quota, as in 8");
        let times = times.and_then(|times| times.number(1..=TIMES_MAX));
        fields.finish();
        all.extend(times.map(|times| WiderPrefix { item, prefixes, times }));
    }
    all
}

/// `rule`, written at `at`, followed by the rules that its wider prefixes make: `NAME.w1`, `NAME.w2`.
pub(super) fn expanded(rule: &Rule, wider: &[WiderPrefix<'_>], at: &Item<'_>) -> Vec<Rule> {
    let mut rules = alloc::vec![rule.clone()];
    for (n, wider) in (1..).zip(wider) {
        let name = format!("{}.w{n}", rule.name);
        if name.len() > RULE_NAME_MAX {
            let expected =
                format!("expected a name that leaves room for the rule {name:?} which also_by_prefix makes");
            at.record_at("name", format_args!("{expected}, of at most {RULE_NAME_MAX} characters"));
            break;
        }
        let Ok(Limit { algorithm, quota, rate }) = rule.times(wider.times) else {
            let problem = format!("expected no more than {TOKENS_MAX} as rate per second and as burst, ");
            wider.item.record(problem + &format!("{} times the rule's", wider.times));
            continue;
        };
        let local_burst = rule.sharing.local_burst.saturating_mul(wider.times).min(quota.burst());
        let sharing = Sharing { local_burst, ..rule.sharing.clone() };
        rules.push(Rule {
            name,
            key: rule.key.with_prefixes(wider.prefixes),
            algorithm,
            quota,
            rate,
            sharing,
            variant: Variant { wider_times: Some(wider.times), ..rule.variant.clone() },
            ..rule.clone()
        });
    }
    rules
}
