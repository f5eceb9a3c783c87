//! Warnings about sure mistakes in valid rule sets, such as rules that match nothing or never limit.

mod written;

use weir_protocol::sharing::OnSyncLoss;
use weir_rules::algorithm::Algorithm;
use weir_rules::config::PluginConfig;
use weir_rules::matching::{Clause, Condition, PathMatch, Test};
use weir_rules::mode::Mode;
use weir_rules::variant::Tier;
use weir_rules::{Rule, RuleSet};

use written::{of_condition, of_key, of_spellings};

pub use written::Warning;

const NOT_HOLDS: &str = "never matches: its not holds wherever the rest does";

/// Warns about rules, list entries and tiers without effect, and conditions that a client can evade by respelling.
pub fn warnings(set: &RuleSet) -> Vec<Warning> {
    let rules = set.rules();
    let mut warnings = of_lists(set);
    for (n, rule) in rules.iter().enumerate() {
        let at = |field: &str| format!("rules[{}].{field}", rule.place());
        let mut of_this = Vec::new();
        if rule.is_written() {
            of_this.extend(of_rule(rule, set, &at));
            of_this.extend(before(rule, set).map(|first| Warning::at(at("match"), first)));
        }
        let earlier_or_tighter =
            |(j, other): &(usize, &Rule)| *j != n && shadows(other, rule) && (*j < n || !shadows(rule, other));
        if let Some((_, other)) = rules.iter().enumerate().find(earlier_or_tighter) {
            let other = &other.name;
            let problem = format!(
                "never limits: {other} counts the same requests by the same key or a wider one, and allows no more"
            );
            of_this.push(Warning::at(at("match"), problem));
        }
        warnings.extend(of_this.into_iter().map(|warning| warning.of_rule(&rule.name)));
    }
    warnings
}

/// Warns about fields of a plugin configuration other than its rules.
pub fn of_plugin(plugin: &PluginConfig) -> Option<Warning> {
    let problem = "keys that are not addresses leave the POP under a hash that anybody can compute: expected \
                   key_secret, the same at every POP";
    plugin.keys_are_unkeyed().then(|| Warning::at("sync".into(), problem))
}

fn of_lists(set: &RuleSet) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (name, list) in [("allow", set.allow()), ("deny", set.deny())] {
        for (i, condition) in list.iter().enumerate() {
            let at = |field: &str| format!("{name}[{i}]{field}");
            warnings.extend(of_condition(condition, set.attributes(), &at));
            if name == "deny" {
                warnings.extend(of_spellings(condition, &at));
            }
            if name == "allow" && is_everybody(condition) {
                let problem = "every client of IPv4 or IPv6 is counted by no rule: expected only the networks that \
                    are meant";
                warnings.push(Warning::at(at(".addresses"), problem));
            }
            if excludes_itself(condition) {
                warnings.push(Warning::at(at(""), NOT_HOLDS));
            }
        }
    }
    for (i, condition) in set.deny().iter().enumerate() {
        if let Some(j) = set.allow().iter().position(|wide| contains(wide, condition)) {
            let problem = format!("never refuses: allow[{j}] holds wherever it does");
            warnings.push(Warning::at(format!("deny[{i}]"), problem));
        }
    }
    warnings
}

/// True if a condition matches all IPv4 or all IPv6 addresses, and tests nothing else.
fn is_everybody(Condition { all, any, not, end }: &Condition) -> bool {
    let is_plain = any.is_empty() && not.is_none() && end.is_never();
    let mut tests = all.tests();
    let is_whole = matches!(tests.next(), Some(Test::Addresses(networks)) if networks.has_whole_family());
    is_plain && is_whole && tests.next().is_none()
}

/// Describes the entry of `allow` or `deny` that always applies before this rule, if any.
fn before(rule: &Rule, set: &RuleSet) -> Option<String> {
    let holds = |list: &[Condition]| list.iter().position(|wide| contains(wide, &rule.matches));
    let allowed = holds(set.allow()).map(|i| format!("never counts: allow[{i}] holds wherever it does"));
    allowed.or_else(|| holds(set.deny()).map(|i| format!("never limits: deny[{i}] holds wherever it does")))
}

fn of_rule(rule: &Rule, set: &RuleSet, at: &dyn Fn(&str) -> String) -> Vec<Warning> {
    let at_match = |field: &str| at(&format!("match{field}"));
    let mut warnings = of_condition(&rule.matches, set.attributes(), &at_match);
    if excludes_itself(&rule.matches) {
        warnings.push(Warning::at(at("match"), NOT_HOLDS));
    }
    if rule.enforcement.mode == Mode::Enforce && rule.enforcement.percent == 0 {
        warnings.push(Warning::at(at("enforced_percent"), "never limits: mode: shadow does the same"));
    }
    warnings.extend(of_spellings(&rule.matches, &at_match));
    warnings.extend(of_key(&rule.key, set.attributes(), at));
    warnings.extend(of_tiers(rule, set, at));
    warnings
}

/// True if a condition's `not` holds wherever the rest of it does.
fn excludes_itself(condition: &Condition) -> bool {
    let Condition { all, any, not, .. } = condition;
    not.as_ref().is_some_and(|not| {
        clause_contains(not, all) || !any.is_empty() && any.iter().all(|clause| clause_contains(not, clause))
    })
}

/// True if `other` counts all requests that `rule` counts, in buckets that hold no more and refill no faster.
fn shadows(other: &Rule, rule: &Rule) -> bool {
    // Each field is named, so that a new one has to be handled here.
    let Rule {
        name: _,
        matches,
        key,
        missing,
        cost,
        algorithm,
        quota,
        rate: _,
        after,
        reserves,
        variant,
        enforcement,
        penalty,
        sharing,
        on_sync_loss,
        response: _,
    } = rule;
    // Algorithms with more parameters than rate and burst must be equal.
    let are_buckets =
        |a: &Algorithm, b: &Algorithm| matches!((a, b), (Algorithm::TokenBucket(_), Algorithm::TokenBucket(_)));
    let is_alike = (other.algorithm == *algorithm || are_buckets(&other.algorithm, algorithm))
        && other.after == *after
        && other.cost == *cost
        && other.reserves == *reserves
        && other.missing == *missing
        && other.enforcement == *enforcement
        && other.variant.is_alone()
        && variant.is_alone()
        && penalty.is_none();
    let is_wider = match (other.key.prefixes(), key.prefixes()) {
        _ if other.key == *key => true,
        (Some(wide), Some(narrow)) if !other.key.is_hashed() && !key.is_hashed() => {
            wide.ipv4 <= narrow.ipv4 && wide.ipv6 <= narrow.ipv6
        }
        _ => false,
    };
    // Rate and burst mean different things under different refill policies.
    let is_tighter = other.sharing.refill_policy == sharing.refill_policy
        && other.quota.burst() <= quota.burst()
        && other.quota.token_ns() >= quota.token_ns()
        && other.sharing.local_burst <= sharing.local_burst
        && other.sharing.floors == sharing.floors
        && (other.sharing.strict || !sharing.strict)
        && (other.on_sync_loss == *on_sync_loss || *on_sync_loss == OnSyncLoss::Local);
    is_alike && is_wider && is_tighter && contains(&other.matches, matches)
}

/// True if `wide` certainly holds wherever `narrow` does.
fn contains(wide: &Condition, narrow: &Condition) -> bool {
    let is_plain = wide.any.is_empty() && wide.not.is_none() && wide.end.is_never();
    wide == narrow || is_plain && clause_contains(&wide.all, &narrow.all)
}

fn clause_contains(wide: &Clause, narrow: &Clause) -> bool {
    wide.tests().all(|wide| narrow.tests().any(|narrow| test_contains(wide, narrow)))
}

fn test_contains(wide: &Test, narrow: &Test) -> bool {
    match (wide, narrow) {
        (Test::Methods(wide), Test::Methods(narrow)) | (Test::Routes(wide), Test::Routes(narrow)) => {
            narrow.iter().all(|text| wide.contains(text))
        }
        (Test::Paths(wide), Test::Paths(narrow)) => {
            narrow.iter().all(|path| wide.iter().any(|one| PathMatch::contains(one, path)))
        }
        _ => wide == narrow,
    }
}

#[cfg(test)]
mod tests;

enum Taken<'a> {
    All,
    Key(&'a str),
}

/// Requests of the tier `later` that the earlier `tier` takes.
fn taken<'a>(tier: &Tier, later: &'a Tier) -> Option<Taken<'a>> {
    if !asks_nothing(tier) && tier.when != later.when {
        return None;
    }
    let Some(own) = &tier.keys else { return Some(Taken::All) };
    let keys = later.keys.as_ref()?;
    let has = |key: &&str| own.contains(key.as_bytes());
    if keys.iter().all(|key| has(&key)) { Some(Taken::All) } else { keys.iter().find(has).map(Taken::Key) }
}

fn asks_nothing(tier: &Tier) -> bool {
    tier.when == Condition::default()
}

/// Warns about each tier of `rule`, and each list of a tier's keys, that never applies.
fn of_tiers(rule: &Rule, set: &RuleSet, at: &dyn Fn(&str) -> String) -> Vec<Warning> {
    let (matches, attributes) = (&rule.matches, set.attributes());
    let is_own = |other: &&Rule| other.place() == rule.place() && other.variant.wider_times.is_none();
    let tiers: Vec<&Tier> = set.rules().iter().filter(is_own).filter_map(|own| own.variant.tier.as_deref()).collect();
    let mut warnings = Vec::new();
    for (i, tier) in tiers.iter().enumerate() {
        let when = &tier.when;
        warnings.extend(of_condition(when, attributes, &|field| at(&format!("tiers[{i}].when{field}"))));
        if [when, &**matches].iter().all(|one| written::contradiction(one, None, attributes).is_none()) {
            let reason = written::contradiction(matches, Some(when), attributes);
            let never = |reason| Warning::at(at(&format!("tiers[{i}].when")), format!("never applies: {reason}"));
            warnings.extend(reason.map(never));
        }
        let taken = tiers[..i].iter().find_map(|other| Some((&other.name, taken(other, tier)?)));
        warnings.extend(taken.map(|(other, taken)| match taken {
            Taken::All => {
                let problem = format!("never applies: the tier {other:?} comes first");
                Warning::at(at(&format!("tiers[{i}]")), problem)
            }
            Taken::Key(key) => {
                let problem = format!("{key:?} never applies: the tier {other:?} has it, and comes first");
                Warning::at(at(&format!("tiers[{i}].keys")), problem)
            }
        }));
    }
    let is_for_all = |tier: &&&Tier| tier.keys.is_none() && (asks_nothing(tier) || tier.when == **matches);
    if let Some(Tier { name, .. }) = tiers.iter().find(is_for_all) {
        let problem = format!("never applies itself: its tier {name:?} is for all its requests");
        warnings.push(Warning::at(at("tiers"), problem));
    }
    warnings
}
