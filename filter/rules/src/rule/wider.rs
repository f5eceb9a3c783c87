//! The same rule again over wider prefixes, so that a client gains little by moving about inside a prefix.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Rule;
use super::variant::Variant;
use crate::key::{KeySpec, prefixes};
use crate::limit::{Limit, TIMES_MAX};
use crate::reading::{Errors, Fields};
use crate::request::address::Prefixes;
use weir_wire::messages::RULE_NAME_MAX;
use weir_wire::quota::TOKENS_MAX;
use weir_wire::sharing::Sharing;

/// The most wider prefixes of one rule.
const WIDER_MAX: usize = 4;

/// A wider prefix, and how many times the rule's quota it has.
pub(super) struct Wider {
    place: String,
    prefixes: Prefixes,
    times: u32,
}

/// Reads the field `wider` of a rule with this key (`None` if that could not be read).
pub(super) fn wider(fields: &mut Fields<'_>, key: Option<&KeySpec>, errors: &mut Errors) -> Vec<Wider> {
    let place = fields.place("wider");
    let items: Vec<_> = fields.list("wider", WIDER_MAX, errors).collect();
    let narrow = match key.map(KeySpec::prefixes) {
        Some(Some(prefixes)) => prefixes,
        Some(None) if !items.is_empty() => {
            errors.note(&place, "expected a key with client_address: there is no prefix to widen");
            return Vec::new();
        }
        // Either `wider` is empty, or the key's errors were noted.
        _ => Prefixes { ipv4: u8::MAX, ipv6: u8::MAX },
    };
    let mut all = Vec::with_capacity(items.len());
    for (place, item) in items {
        let Some(mut fields) = Fields::of(item, &place, errors) else { continue };
        let prefixes = prefixes(&mut fields, narrow, errors);
        let is_said = ["ipv4", "ipv6"].map(|name| fields.take(name).is_some());
        let lengths = [("ipv4", prefixes.ipv4, narrow.ipv4), ("ipv6", prefixes.ipv6, narrow.ipv6)];
        for ((name, wide, narrow), is_said) in lengths.into_iter().zip(is_said) {
            if is_said && wide >= narrow {
                let expected = format!("expected less than {narrow}, which is the key's, found {wide}");
                errors.note(&fields.place(name), expected);
            }
        }
        if is_said == [false, false] {
            errors.note(&place, "expected ipv4, ipv6 or both, as in {ipv4: 24, ipv6: 48, times: 8}");
        }
        fields.require("times", "how many times the rule's quota, as in 8", errors);
        let times = fields.number("times", 1..=TIMES_MAX, errors);
        fields.finish(errors);
        all.extend(times.map(|times| Wider { place, prefixes, times }));
    }
    all
}

/// `rule`, followed by the rules that its wider prefixes make: `NAME.w1`, `NAME.w2`.
pub(super) fn expanded(rule: &Rule, wider: &[Wider], name_place: &str, errors: &mut Errors) -> Vec<Rule> {
    let mut rules = alloc::vec![rule.clone()];
    for (n, wider) in (1..).zip(wider) {
        let name = format!("{}.w{n}", rule.name);
        if name.len() > RULE_NAME_MAX {
            let expected =
                format!("expected a name that leaves room for the rule {name:?} which wider makes");
            errors.note(name_place, format!("{expected}, of at most {RULE_NAME_MAX} characters"));
            break;
        }
        let Ok(Limit { algorithm, quota, rate }) = rule.limit().times(wider.times) else {
            let problem = format!("expected no more than {TOKENS_MAX} as rate per second and as burst, ");
            errors.note(&wider.place, problem + &format!("{} times the rule's", wider.times));
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
