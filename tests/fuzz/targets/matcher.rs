//! Any rule set of a small grammar and any request: nothing panics, and the index finds just the rules and the
//! lists that looking at each condition finds.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use weir_fuzz::grammar::{Asked, Rules};
use weir_limiter::document;
use weir_limiter::key::Secret;
use weir_limiter::limiter::{Limiter, TableIdentity};
use weir_limiter::request::{Fetched, Values};
use weir_limiter::rules::Listed;
use weir_limiter::rules::matching::{Bits, Condition};
use weir_limiter::table::LocalSlots;
use weir_limiter::time::Time;

#[derive(Arbitrary, Debug)]
struct Input {
    rules: Rules,
    requests: Vec<Asked>,
}

fuzz_target!(|input: Input| {
    let document = input.rules.document().to_string();
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
        let plain: Vec<u16> = (0..)
            .zip(rules.rules())
            .filter_map(|(place, rule)| rule.matches.holds(&mut fetched).then_some(place))
            .collect();
        assert_eq!(met, plain, "{request:?}\n{document}");
        let mut any = |list: &[Condition]| list.iter().any(|condition| condition.holds(&mut fetched));
        let listed = match (any(rules.allow()), any(rules.deny())) {
            (true, _) => Listed::Allowed,
            (_, true) => Listed::Blocked,
            _ => Listed::No,
        };
        assert_eq!(rules.listed(&mut fetched, &mut room), listed, "{request:?}\n{document}");
        limiter.decide(&mut asked, &mut slots, Time::from_nanos(1 << 40));
    }
});
