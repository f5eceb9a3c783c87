//! Any rule set of a small grammar, and any request: nothing panics, and the index finds the same rules, tiers and
//! lists as looking at each condition and each listed value.

use arbitrary::Arbitrary;
use weir_limiter::limiter::Limiter;
use weir_limiter::table::{HashSecret, LocalSlots, TableIdentity};
use weir_protocol::time::Time;
use weir_rules::Listed;
use weir_rules::document;
use weir_rules::matching::{Bits, Condition, Holds};
use weir_rules::request::{Attribute, Fetched, Request, Values};

use crate::grammar::{Asked, NAMES, Rules};

/// A rule set, and requests for it.
#[derive(Arbitrary, Debug)]
pub struct Input {
    rules: Rules,
    requests: Vec<Asked>,
}

/// Matches and decides each request. Panics if the index and the conditions disagree.
pub fn run(input: &Input) {
    let written = input.rules.document();
    let document = written.to_string();
    let rules = document::parse(document.as_bytes()).unwrap_or_else(|errors| panic!("{errors:?}\n{document}"));
    let identity = TableIdentity { secret: HashSecret::new([1; 16]), table_id: 1 };
    let mut limiter = Limiter::new(rules.clone(), identity, None);
    let (mut slots, mut values, mut room) = (LocalSlots::new(1), Values::default(), Bits::default());
    for request in input.requests.iter().take(16) {
        let mut asked = request.clone();
        let mut fetched = Fetched::new(&mut asked, rules.attributes(), &mut values);
        let mut met = Vec::new();
        let met = rules.find_matches(&mut fetched, &mut room, &mut met).to_vec();
        // The only header that keys are made of.
        let key = request.clone().attribute(&Attribute::Header(NAMES[0].to_owned()));
        let mut plain: Vec<u16> = Vec::new();
        let mut chosen = None;
        let mut is_unsure = false;
        for (place, rule) in (0..).zip(rules.rules()) {
            let tier = rule.name.split_once('.').map(|(_, tier)| tier);
            let keys = tier.map(|tier| {
                let tiers = &written["rules"][usize::from(rule.place())]["tiers"];
                tiers[usize::from(tier == "b")]["keys"].as_array().expect("a list").clone()
            });
            let has_key = keys.is_none_or(|keys| {
                key.as_ref()
                    .is_some_and(|key| keys.iter().any(|one| one.as_str().is_some_and(|one| one.as_bytes() == key)))
            });
            let when = rule.variant.tier.as_ref().map_or(Holds::Yes, |tier| tier.when.holds(&mut fetched));
            // If the tier is unsure, the limiter's own tests have the expected result.
            is_unsure |= when == Holds::Unsure;
            if chosen != Some(rule.place()) && rule.matches.holds(&mut fetched).may() && when.may() && has_key {
                chosen = Some(rule.place());
                plain.push(place);
            }
        }
        if !is_unsure {
            assert_eq!(met, plain, "{request:?}\n{document}");
        }
        let mut any =
            |list: &[Condition], least: Holds| list.iter().any(|condition| condition.holds(&mut fetched) >= least);
        let listed = match (any(rules.allow(), Holds::Yes), any(rules.deny(), Holds::Unsure)) {
            (true, _) => Listed::Allowed,
            (_, true) => Listed::Blocked,
            _ => Listed::No,
        };
        assert_eq!(rules.listed(&mut fetched, &mut room), listed, "{request:?}\n{document}");
        limiter.decide(&mut asked, &mut slots, Time::from_nanos(1 << 40));
    }
}
