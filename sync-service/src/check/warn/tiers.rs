//! Tiers that never apply, or leave nothing to their rule.

use std::collections::BTreeSet;

use serde_json::Value;

use super::contradiction;
use super::written::of_condition;

/// A tier as it is written.
struct Tier<'a> {
    name: &'a Value,
    when: &'a Value,
    /// `None` fits any value of the key.
    keys: Option<BTreeSet<&'a str>>,
}

impl<'a> Tier<'a> {
    fn of(tier: &'a Value) -> Self {
        let keys = tier["keys"].as_array().map(|keys| keys.iter().filter_map(Value::as_str).collect());
        Self { name: &tier["name"], when: &tier["when"], keys }
    }

    /// Whether `when` asks for nothing.
    fn asks_nothing(&self) -> bool {
        self.when.is_null() || self.when.as_object().is_some_and(serde_json::Map::is_empty)
    }

    /// What `later` never gets, since this tier stands before it: anything at all, or one of its keys.
    fn takes(&self, later: &Tier<'a>) -> Option<Taken<'a>> {
        if !self.asks_nothing() && self.when != later.when {
            return None;
        }
        match (&self.keys, &later.keys) {
            (None, _) => Some(Taken::All),
            (Some(_), None) => None,
            (Some(own), Some(keys)) if keys.is_subset(own) => Some(Taken::All),
            (Some(own), Some(keys)) => keys.intersection(own).next().map(|key| Taken::Key(key)),
        }
    }
}

enum Taken<'a> {
    All,
    Key(&'a str),
}

/// A line for each tier, and each list of a tier's keys, that never applies; `matches` is the rule's condition.
pub(super) fn of(matches: &Value, written: &Value, at: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut earlier: Vec<Tier<'_>> = Vec::new();
    for (i, tier) in written["tiers"].as_array().into_iter().flatten().enumerate() {
        let tier = Tier::of(tier);
        let when = tier.when;
        warnings.extend(of_condition(when, &|field| at(&format!("tiers[{i}].when{field}"))));
        if contradiction::of(when, None).is_none() {
            let reason = contradiction::of(matches, Some(when));
            let never = |reason| format!("{}: never applies: {reason}", at(&format!("tiers[{i}].when")));
            warnings.extend(reason.filter(|_| contradiction::of(matches, None).is_none()).map(never));
        }
        let taken = earlier.iter().find_map(|other| Some((other.name, other.takes(&tier)?)));
        warnings.extend(taken.map(|(other, taken)| match taken {
            Taken::All => {
                format!("{}: never applies: the tier {other} comes first", at(&format!("tiers[{i}]")))
            }
            Taken::Key(key) => {
                let place = at(&format!("tiers[{i}].keys"));
                format!("{place}: {key:?} never applies: the tier {other} has it, and comes first")
            }
        }));
        earlier.push(tier);
    }
    let is_for_all = |tier: &&Tier<'_>| tier.keys.is_none() && (tier.asks_nothing() || tier.when == matches);
    if let Some(Tier { name, .. }) = earlier.iter().find(is_for_all) {
        warnings
            .push(format!("{}: never applies itself: its tier {name} is for all its requests", at("tiers")));
    }
    warnings
}
