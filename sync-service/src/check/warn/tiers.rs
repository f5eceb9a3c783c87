//! Tiers that never apply, or leave no requests to their rule.

use weir_rules::matching::Condition;
use weir_rules::variant::Tier;
use weir_rules::{Rule, RuleSet};

use super::contradiction;
use super::warning::Warning;
use super::written::of_condition;

/// Requests that an earlier tier takes from a later one.
enum Taken<'a> {
    All,
    Key(&'a str),
}

/// Requests that `later` never gets, because `tier` comes before it.
fn taken<'a>(tier: &Tier, later: &'a Tier) -> Option<Taken<'a>> {
    if !asks_nothing(tier) && tier.when != later.when {
        return None;
    }
    let Some(own) = &tier.keys else { return Some(Taken::All) };
    let keys = later.keys.as_ref()?;
    let has = |key: &&str| own.contains(key.as_bytes());
    if keys.iter().all(|key| has(&key)) { Some(Taken::All) } else { keys.iter().find(has).map(Taken::Key) }
}

/// True if the tier's `when` holds for every request.
fn asks_nothing(tier: &Tier) -> bool {
    tier.when == Condition::default()
}

/// Warns of each tier of `rule`, and of each list of a tier's keys, that never applies.
pub(super) fn of(rule: &Rule, set: &RuleSet, at: &dyn Fn(&str) -> String) -> Vec<Warning> {
    let (matches, attributes) = (&rule.matches, set.attributes());
    let is_own = |other: &&Rule| other.place() == rule.place() && other.variant.wider_times.is_none();
    let tiers: Vec<&Tier> =
        set.rules().iter().filter(is_own).filter_map(|own| own.variant.tier.as_deref()).collect();
    let mut warnings = Vec::new();
    for (i, tier) in tiers.iter().enumerate() {
        let when = &tier.when;
        warnings.extend(of_condition(when, attributes, &|field| at(&format!("tiers[{i}].when{field}"))));
        if [when, &**matches].iter().all(|one| contradiction::of(one, None, attributes).is_none()) {
            let reason = contradiction::of(matches, Some(when), attributes);
            let never =
                |reason| Warning::at(at(&format!("tiers[{i}].when")), format!("never applies: {reason}"));
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
