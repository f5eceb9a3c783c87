//! Any rule set of a small grammar and any request: nothing panics, and the index finds just the rules, the tiers
//! and the lists that looking at each condition, and at each listed value, finds.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use weir_fuzz::grammar::{Asked, NAMES, Rules};
use weir_rules::document;
use weir_limiter::key::Secret;
use weir_limiter::limiter::{Limiter, TableIdentity};
use weir_rules::request::{Attribute, Fetched, Request, Values};
use weir_rules::Listed;
use weir_rules::matching::{Bits, Condition, Holds};
use weir_limiter::table::LocalSlots;
use weir_wire::time::Time;

#[derive(Arbitrary, Debug)]
struct Input {
    rules: Rules,
    requests: Vec<Asked>,
}

fuzz_target!(|input: Input| {
    let written = input.rules.document();
    let document = written.to_string();
    let rules =
        document::parse(document.as_bytes()).unwrap_or_else(|errors| panic!("{errors:?}\n{document}"));
    let identity = TableIdentity { secret: Secret::new([1; 16]), table_id: 1 };
    let mut limiter = Limiter::new(rules.clone(), identity, None);
    let (mut slots, mut values, mut room, mut met) =
        (LocalSlots::new(1), Values::default(), Bits::default(), Vec::new());
    for request in input.requests.iter().take(16) {
        let mut asked = request.clone();
        let mut fetched = Fetched::new(&mut asked, rules.attributes(), &mut values);
        rules.meet(&mut fetched, &mut room, &mut met);
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
                key.as_ref().is_some_and(|key| {
                    keys.iter().any(|one| one.as_str().is_some_and(|one| one.as_bytes() == key))
                })
            });
            let when = rule.variant.tier.as_ref().map_or(Holds::Yes, |tier| tier.when.holds(&mut fetched));
            // Where nobody can say which tier it is, the limiter's own tests say what is to come out.
            is_unsure |= when == Holds::Unsure;
            if chosen != Some(rule.place()) && rule.matches.holds(&mut fetched).may() && when.may() && has_key {
                chosen = Some(rule.place());
                plain.push(place);
            }
        }
        if !is_unsure {
            assert_eq!(met, plain, "{request:?}\n{document}");
        }
        let mut any = |list: &[Condition], least: Holds| {
            list.iter().any(|condition| condition.holds(&mut fetched) >= least)
        };
        let listed = match (any(rules.allow(), Holds::Yes), any(rules.deny(), Holds::Unsure)) {
            (true, _) => Listed::Allowed,
            (_, true) => Listed::Blocked,
            _ => Listed::No,
        };
        assert_eq!(rules.listed(&mut fetched, &mut room), listed, "{request:?}\n{document}");
        limiter.decide(&mut asked, &mut slots, Time::from_nanos(1 << 40));
    }
});
