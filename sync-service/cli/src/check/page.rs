//! Explanations of the rules in a valid file, with a fleet's overshoot in the worst case.

use serde_json::Value;
use weir_budget::bound::{FleetParameters, bound, usual};
use weir_protocol::messages::RULES_MAX;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::OnSyncLoss;
use weir_protocol::time::SECOND_NS;
use weir_rules::Rule;
use weir_rules::algorithm::Algorithm;
use weir_rules::config::{PluginConfig, SyncConfig};
use weir_rules::mode::Mode;
use weir_rules::reading::ShortForm;

use super::explain;
use super::explain::amount::{article, span};
use crate::document::Whole;

pub(super) struct ExplainParameters {
    pub(super) fleet: FleetParameters,
    pub(super) called: String,
    pub(super) newcomers: u64,
}

impl ExplainParameters {
    /// Explains the rules of the file at `path`, without warnings.
    pub(super) fn page(&self, path: &str, whole: &Whole) -> String {
        let Self { fleet, called, newcomers } = self;
        let set = whole.document.rules();
        let rules = set.rules();
        let written = rules.iter().filter(|rule| rule.is_written()).count();
        let mut lines = vec![format!("{path}: {written} rules, good")];
        if written < rules.len() {
            let found = rules.len();
            lines.push(format!("With those that tiers and also_by_prefix make, {found} of at most {RULES_MAX}."));
        }
        lines.extend(whole.plugin.as_ref().map(of_plugin));
        lines.extend(explain::lists(set));
        lines.extend(read_as(whole, ""));
        for rule in rules {
            let mut sentences = explain::sentences(rule, set).into_iter();
            lines.push(String::new());
            lines.extend(sentences.next());
            lines.extend(sentences.map(|sentence| format!("  {sentence}")));
            let in_full = rule.is_written().then(|| read_as(whole, &format!("rules[{}].", rule.place())));
            lines.extend(in_full.flatten().map(|in_full| format!("  {in_full}")));
            // Unknown for a key that all requests share, and for a wider key that many clients share.
            let has_many = rule.is_written() && !rule.key.is_all();
            let needed = needed(rule, *newcomers).filter(|_| has_many);
            lines.extend(needed.map(|needed| format!("  {needed}")));
            lines.extend(worst_case(rule, fleet).map(|worst| format!("  Worst case in {called}: {worst}")));
        }
        lines.push(String::new());
        lines.push(
        "The worst case holds while no POP's exchange fails twice in a row. A quota is the burst, and the rate times \
         the time. What several rules need of a POP's table adds up."
            .into(),
    );
        lines.join("\n") + "\n"
    }
}

/// Full forms of the short forms below `place`; for an empty `place`, of those outside `rules`.
fn read_as(whole: &Whole, place: &str) -> Option<String> {
    let is_here = |form: &&ShortForm| {
        if place.is_empty() { !form.place.starts_with("rules[") } else { form.place.starts_with(place) }
    };
    let in_full = |form: &ShortForm| {
        let field = form.place.strip_prefix(place).unwrap_or(&form.place);
        format!("{field}: {}", flow(&form.full))
    };
    let mut forms: Vec<_> = whole.document.short_forms.iter().filter(is_here).map(in_full).collect();
    forms.dedup();
    (!forms.is_empty()).then(|| format!("Read as {}.", forms.join(", ")))
}

/// Formats a value as YAML on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {}", flow(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._*-".contains(&byte)) => {
            text.clone()
        }
        other => other.to_string(),
    }
}

fn of_plugin(plugin: &PluginConfig) -> String {
    let addresses = plugin.addresses;
    let sync = plugin.sync.as_ref().map_or_else(
        || "no sync: the POP is on its own".into(),
        |SyncConfig { cluster, pop, interval_ms, .. }| {
            let pop = pop.as_ref().map_or_else(|| "named as its node is".into(), |pop| format!("named {pop}"));
            format!("a POP that is {pop}, and reports to the cluster {cluster} every {interval_ms} ms")
        },
    );
    format!("A plugin configuration: a table of {addresses} addresses; {sync}.")
}

/// Overshoot of a key over the rule's quota in the worst case, or `None` if the rule limits nothing.
fn worst_case(rule: &Rule, fleet: &FleetParameters) -> Option<String> {
    if rule.variant.is_unlimited() || rule.enforcement.mode != Mode::Enforce {
        return None;
    }
    let later = match rule.after {
        Some(_) if rule.reserves => " What responses cost beyond what is reserved comes on top.",
        Some(_) => " What responses cost comes on top.",
        None => "",
    };
    let pops = u64::from(fleet.pops);
    let at_all = u64::from(rule.algorithm.limit()) * pops;
    let overshoot = match &rule.algorithm {
        _ if pops == 1 && rule.sharing.refill_policy == RefillPolicy::Continuous => {
            "0, as one POP counts everything.".into()
        }
        Algorithm::TokenBucket(_) => match bound(rule.quota, &rule.sharing, fleet) {
            0 if rule.on_sync_loss == OnSyncLoss::Deny => "no key gets above its quota.".into(),
            0 => "no key gets above its quota, while its POPs are in touch.".into(),
            tokens => format!(
                "a key gets {tokens} above its quota for a while, and pays it back. While no exchange fails it is \
                 about {} for a client that asks all POPs at once, and 0 for one that asks one POP.",
                usual(rule.quota, &rule.sharing, fleet)
            ),
        },
        Algorithm::LeakyBucket(_) => format!("a key gets {pops} times the rate, as each POP counts for itself."),
        Algorithm::Concurrency(_) => format!("a key has {at_all} in flight at once, as each POP counts for itself."),
        _ => format!("a key gets {at_all} in the same time, as each POP counts for itself."),
    };
    Some(overshoot + later)
}

/// Number of buckets that a slot can distinguish, per entry that fits into it.
const BUCKETS_PER_PLACE: u64 = 3;
/// Fraction of a slot's entries that cells may take.
const CELLS_PART: (u64, u64) = (14, 16);

/// Table size for `newcomers` new keys a second with one request each; `None` if nothing is stored for them.
fn needed(rule: &Rule, newcomers: u64) -> Option<String> {
    if rule.variant.is_unlimited() || rule.enforcement.mode == Mode::Off {
        return None;
    }
    let lasts_ns = lasts_ns(rule)?;
    let keys = u128::from(newcomers) * u128::from(lasts_ns) / u128::from(SECOND_NS);
    let keys = u64::try_from(keys).unwrap_or(u64::MAX).max(1);
    let (verb, addresses) = if matches!(rule.algorithm, Algorithm::TokenBucket(_)) {
        ("lack something for", keys.div_ceil(BUCKETS_PER_PLACE))
    } else {
        let cells = u64::try_from(rule.algorithm.cells()).unwrap_or(u64::MAX);
        ("are counted for", keys.saturating_mul(cells).saturating_mul(CELLS_PART.1).div_ceil(CELLS_PART.0))
    };
    Some(format!(
        "Table: {newcomers} new keys a second that ask once each {verb} {}, {keys} at a time; that takes `addresses: \
         {addresses}`.",
        article(&span(lasts_ns))
    ))
}

/// Time for which a request is remembered, in nanoseconds; `None` if it is not stored, or for an unknown time.
fn lasts_ns(rule: &Rule) -> Option<u64> {
    match &rule.algorithm {
        // A key without an entry can acquire tokens too.
        Algorithm::TokenBucket(_) if rule.sharing.refill_policy != RefillPolicy::Continuous => None,
        Algorithm::TokenBucket(_) if rule.sharing.strict && rule.on_sync_loss == OnSyncLoss::Deny => None,
        Algorithm::TokenBucket(quota) => {
            let withheld = quota.burst().saturating_sub(rule.sharing.local_burst);
            let tokens = u64::from(rule.cost.usual()) + u64::from(withheld);
            Some(quota.token_ns().saturating_mul(tokens))
        }
        Algorithm::FixedWindow(window) | Algorithm::SlidingLog(window) => Some(window.length_ns()),
        Algorithm::SlidingWindow(window) => Some(window.length_ns().saturating_mul(2)),
        Algorithm::LeakyBucket(_) => Some(rule.quota.token_ns()),
        // As long as its requests take, which is unknown.
        Algorithm::Concurrency(_) => None,
    }
}
