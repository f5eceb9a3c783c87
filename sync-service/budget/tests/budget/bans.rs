//! Bans, within a region and on the list that regions share.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_budget::ban::{BANS_KEPT_MAX, BanList, BanState, BannedKey, Bans, FORGOTTEN_MS, SHARED_MAX};
use weir_budget::budget::BudgetId;
use weir_protocol::messages::{BAN_MS_MAX, BANS_MAX, Ban, BudgetRule, RULES_MAX, Replies, Report};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_protocol::time::Time;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn key(n: usize, for_ms: u32) -> BannedKey {
    BannedKey { id: BudgetId::new("login".into(), n.to_be_bytes().to_vec()), for_ms, state: BanState::Banned }
}

/// A report of `pop`, which banned these keys, and has received every reply.
fn report(pop: &str, banned: &[BannedKey]) -> Report {
    let quota = Quota::new(Rate::new(1, Period::Day).unwrap(), 100).unwrap();
    let rules = vec![BudgetRule { name: "login".into(), quota, sharing: Sharing::of(quota) }];
    let bans = banned.iter().map(|key| Ban { rule: 0, value: key.id.value.clone(), for_ms: key.for_ms });
    let replies = Replies { done: 1, lost: 0 };
    let bans = bans.collect();
    Report { pop: pop.into(), sequence: 1, table: 1, replies, rules, bans, ..Report::default() }
}

/// Bans that are pushed to `pop` for a report without content.
fn pushed(keys: &mut Bans, ms: u64, pop: &str) -> Vec<BannedKey> {
    pushed_for(keys, ms, &report(pop, &[]))
}

fn pushed_for(keys: &mut Bans, ms: u64, report: &Report) -> Vec<BannedKey> {
    let mut rules = vec![];
    let bans = keys.push(at(ms), report, false, &mut rules);
    let key = |ban: Ban| BannedKey {
        id: BudgetId::new(rules[usize::from(ban.rule)].clone(), ban.value),
        for_ms: ban.for_ms,
        state: if ban.for_ms == 0 { BanState::Forgotten } else { BanState::Banned },
    };
    bans.into_iter().map(key).collect()
}

// I4
#[test]
fn a_ban_is_pushed_once_to_all_other_pops() {
    let mut keys = Bans::default();
    assert!(keys.observe(at(0), &report("fra1", &[key(1, 60_000)])));
    assert_eq!(pushed(&mut keys, 0, "fra1"), []);
    assert_eq!(pushed(&mut keys, 250, "fra2"), [key(1, 59_750)]);
    assert_eq!(pushed(&mut keys, 500, "fra2"), []);
    assert!(!keys.observe(at(600), &report("fra1", &[key(1, 60_000)])), "half a second longer is no news");
    assert_eq!(pushed(&mut keys, 700, "fra2"), []);
    assert!(keys.observe(at(1_200), &report("fra1", &[key(1, 60_000)])), "by now it is");
    assert_eq!(pushed(&mut keys, 1_200, "fra2"), [key(1, 60_000)]);
    assert_eq!(pushed(&mut keys, 1_300, "iad1"), [key(1, 59_900)], "a new POP gets it");
    assert_eq!(pushed(&mut keys, 61_200, "new1"), [], "its time is over");
    assert_eq!(keys.banned(), 0);
}

/// Of two POPs that made a ban, one whose report was late made a shorter one than it seems. It gets the other's, also
/// if its report comes first, and the other's ban seems to end hardly later.
// I4
#[test]
fn a_pop_with_a_late_ban_gets_another_pops_longer_one() {
    for (first, second, after_ms) in [("fra1", "fra2", 1_500), ("fra2", "fra1", 500)] {
        let mut keys = Bans::default();
        keys.observe(at(10_000), &report(first, &[key(1, 60_000)]));
        assert!(keys.observe(at(10_000 + after_ms), &report(second, &[key(1, 60_000)])), "{first} first");
        assert_eq!(pushed(&mut keys, 10_000 + after_ms, "fra2"), [key(1, 60_000)], "{first} first");
        assert!(!keys.observe(at(10_100 + after_ms), &report("fra2", &[key(1, 60_000)])), "both have it");
    }
}

/// Report `sequence` of a worker of "fra2", which gave up waiting for the reply to `lost`.
fn numbered(worker: u64, sequence: u64, done: u64, lost: u64) -> Report {
    Report { worker, sequence, replies: Replies { done, lost }, ..report("fra2", &[]) }
}

// I4
#[test]
fn a_ban_in_a_lost_reply_is_pushed_again() {
    let mut keys = Bans::default();
    keys.observe(at(0), &report("fra1", &[key(1, 60_000)]));
    assert_eq!(pushed_for(&mut keys, 0, &numbered(7, 1, 0, 0)), [key(1, 60_000)]);
    assert_eq!(pushed_for(&mut keys, 0, &numbered(7, 2, 0, 0)), [], "it is under way");
    keys.observe(at(500), &report("fra1", &[key(2, 60_000)]));
    assert_eq!(pushed_for(&mut keys, 500, &numbered(8, 1, 0, 0)), [key(2, 60_000)]);
    assert_eq!(pushed_for(&mut keys, 600, &numbered(8, 2, 1, 1)), [key(2, 59_900)], "the second was lost");
    assert_eq!(pushed_for(&mut keys, 700, &numbered(8, 3, 2, 1)), [], "and now confirmed");
    assert_eq!(pushed_for(&mut keys, 800, &numbered(7, 3, 2, 1)), [key(1, 59_200), key(2, 59_700)]);
    assert_eq!(pushed_for(&mut keys, 900, &numbered(7, 4, 3, 1)), []);
    assert_eq!(pushed_for(&mut keys, 9_000, &numbered(8, 4, 3, 1)), []);
}

#[test]
fn many_bans_take_turns_and_lost_letters_are_bounded() {
    let mut keys = Bans::default();
    let many: Vec<_> = (0..BANS_MAX * 2).map(|n| key(n, BAN_MS_MAX)).collect();
    for some in many.chunks(BANS_MAX) {
        keys.observe(at(0), &report("fra1", some));
    }
    let mut seen = vec![];
    for sequence in 1..4 {
        let some = pushed_for(&mut keys, 0, &numbered(7, sequence, 0, 0));
        assert!(some.len() <= BANS_MAX);
        seen.extend(some);
    }
    assert_eq!(seen, many, "each once, and not too many at a time");
    // One more ban for each reply. Of none of them it is known whether it arrived.
    let pushed_len = |n: u64| {
        keys.observe(at(0), &report("fra1", &[key(9_000 + usize::try_from(n).unwrap(), BAN_MS_MAX)]));
        pushed_for(&mut keys, 0, &numbered(7, n, 0, 0)).len()
    };
    let lens: Vec<usize> = (4..100).map(pushed_len).collect();
    let first = lens.iter().position(|len| *len == BANS_MAX);
    assert_eq!(first, Some(62), "the first of 64 counts as lost: {lens:?}");
}

#[test]
fn bans_of_pops_are_shared_until_the_store_has_them() {
    let mut keys = Bans::default();
    keys.observe(at(0), &report("fra1", &[key(1, 9_000)]));
    let first = keys.to_share(at(100));
    assert_eq!(first.items, [key(1, 8_900)]);
    let second = keys.to_share(at(200));
    assert_eq!(second.items, [key(1, 8_800)], "the store does not have it");
    // While the store was asked, the ban was made longer.
    keys.observe(at(5_000), &report("fra1", &[key(1, 9_000)]));
    keys.merge(at(5_000), &first, &[key(2, 5_000)]);
    keys.merge(at(5_000), &second, &[key(1, 4_000)]);
    let third = keys.to_share(at(5_000));
    assert_eq!(third.items, [key(1, 9_000)], "and bans from the store do not go back there");
    keys.merge(at(5_000), &third, &third.items);
    assert_eq!(keys.to_share(at(5_000)).items, []);
    assert_eq!(pushed(&mut keys, 5_000, "fra1"), [key(2, 5_000)]);
}

// I2
#[test]
fn everything_is_bounded() {
    let mut keys = Bans::default();
    let all: Vec<_> = (0..BANS_KEPT_MAX + 500).map(|n| key(n, 10_000 + u32::try_from(n).unwrap())).collect();
    for some in all.chunks(BANS_MAX) {
        keys.observe(at(0), &report("fra1", some));
    }
    assert_eq!(keys.banned(), BANS_KEPT_MAX);
    assert_eq!(keys.to_share(at(0)).items.len(), SHARED_MAX);
    assert_eq!(pushed(&mut keys, 0, "fra2")[0], all[500], "those that end soonest went");
    assert!(!keys.observe(at(0), &report("fra1", &[key(0, 5)])), "one that would end first has no place");
    let mut rules: Vec<String> = (0..RULES_MAX).map(|n| format!("r{n}")).collect();
    let before = pushed(&mut keys, 0, "fra2").len();
    assert_eq!(keys.push(at(0), &report("fra2", &[]), false, &mut rules), [], "no room for the rule's name");
    assert_eq!(rules.len(), RULES_MAX);
    assert_eq!((before, pushed(&mut keys, 0, "fra2")[0].clone()), (BANS_MAX, all[500 + 2 * BANS_MAX].clone()));
}

#[test]
fn a_ban_by_override_keeps_its_place_on_a_full_list() {
    let mut keys = Bans::default();
    let overrides: Vec<_> = (0..3).map(|n| (key(n, 0).id, 9_000)).collect();
    assert_eq!(keys.stand_by(at(0), 0, &overrides), []);
    let all: Vec<_> = (10..BANS_KEPT_MAX + 10).map(|n| key(n, 20_000)).collect();
    for some in all.chunks(BANS_MAX) {
        keys.observe(at(0), &report("fra1", some));
    }
    assert_eq!(keys.banned(), BANS_KEPT_MAX);
    assert!(overrides.iter().all(|(id, _)| keys.banned_ms(at(0), id) == Some(9_000)));
    keys.order(at(100), key(5, 0).id, 9_000);
    assert_eq!(keys.banned_ms(at(100), &key(5, 0).id), None, "there is no room");
    let more: Vec<_> = overrides.iter().cloned().chain([(key(5, 0).id, 9_100)]).collect();
    keys.stand_by(at(200), 200, &more);
    assert_eq!(keys.banned_ms(at(200), &key(5, 0).id), Some(8_900), "but by its order");
    assert_eq!(keys.banned(), BANS_KEPT_MAX);
    keys.stand_by(at(9_200), 9_200, &[]);
    assert_eq!(keys.banned(), BANS_KEPT_MAX - 4);
    assert!(keys.observe(at(9_200), &report("fra1", &[key(1, 20_000)])), "they are kept no more");
}

#[test]
fn a_ban_by_override_is_pushed_until_it_is_lifted() {
    let mut keys = Bans::default();
    let (first, tier) = (key(1, 0).id, key(2, 0).id);
    keys.stand_by(at(0), 5_000, &[(first.clone(), 65_000)]);
    assert_eq!(pushed(&mut keys, 0, "fra1"), [key(1, 60_000)]);
    let both = [(first.clone(), 65_000), (tier.clone(), 65_000)];
    for ms in [250, 500] {
        assert_eq!(keys.stand_by(at(ms), 5_000 + ms, &both), []);
    }
    assert_eq!(pushed(&mut keys, 500, "fra1"), [key(2, 59_500)], "the rule has got a tier");
    keys.reset(at(1_000), first.clone());
    keys.stand_by(at(1_250), 6_250, &both);
    assert_eq!(pushed(&mut keys, 1_250, "fra1"), [forgotten(1)], "its override is being lifted");
    keys.stand_by(at(4_000), 9_000, &both);
    assert_eq!(pushed(&mut keys, 4_000, "fra1"), [key(1, 56_000)], "it was not");
    assert_eq!(keys.stand_by(at(5_000), 10_000, &both[..1]), std::slice::from_ref(&tier));
    assert_eq!(pushed(&mut keys, 5_000, "fra1"), [forgotten(2)]);
    assert_eq!(keys.stand_by(at(59_500), 64_500, &[]), [], "it ends by itself");
    assert_eq!(pushed(&mut keys, 59_500, "fra1"), []);
    assert_eq!(keys.to_share(at(59_500)).items, [], "each region knows the overrides");
}

fn forgotten(n: usize) -> BannedKey {
    BannedKey { state: BanState::Forgotten, ..key(n, 0) }
}

// I4
#[test]
fn a_reset_is_pushed_once_to_every_pop_and_ends_the_ban() {
    let mut keys = Bans::default();
    keys.observe(at(0), &report("fra1", &[key(1, 60_000)]));
    assert_eq!(pushed(&mut keys, 0, "fra2"), [key(1, 60_000)]);
    keys.reset(at(100), key(1, 0).id);
    assert_eq!((keys.banned(), keys.banned_ms(at(100), &key(1, 0).id)), (0, None));
    for pop in ["fra1", "fra2"] {
        assert_eq!(pushed(&mut keys, 250, pop), [forgotten(1)], "the one that banned it, too");
        assert_eq!(pushed(&mut keys, 500, pop), []);
    }
    assert!(keys.is_forgotten_since(&key(1, 0).id, at(100)) && !keys.is_forgotten_since(&key(1, 0).id, at(101)));
    keys.reset(at(1_000), key(1, 0).id);
    assert_eq!(pushed(&mut keys, 1_250, "fra1"), [forgotten(1)], "again, if the operator resets it again");
    let over = 1_000 + u64::from(FORGOTTEN_MS);
    assert_eq!(pushed(&mut keys, over, "late"), [], "a POP that comes later knows nothing of it");
}

/// Reports are under way when a key is reset, and a POP bans it before it receives that.
#[test]
fn only_an_operators_ban_outlives_a_reset() {
    let mut keys = Bans::default();
    keys.reset(at(0), key(1, 0).id);
    assert!(!keys.observe(at(100), &report("fra1", &[key(1, 60_000)])));
    assert_eq!(pushed(&mut keys, 200, "fra2"), [forgotten(1)]);
    keys.order(at(300), key(1, 0).id, 9_000);
    assert_eq!(pushed(&mut keys, 300, "fra2"), [forgotten(1), key(1, 9_000)], "it may know of a longer one");
    let reset_first = [forgotten(1), forgotten(1), key(1, 9_000)];
    assert_eq!(pushed(&mut keys, 300, "fra1"), reset_first, "it was not sent the reset");
    keys.reset(at(400), key(1, 0).id);
    assert_eq!(pushed(&mut keys, 400, "fra3"), [forgotten(1)], "the last command alone");
    let over = 400 + u64::from(FORGOTTEN_MS);
    assert!(keys.observe(at(over), &report("fra1", &[key(1, 60_000)])), "it earned another ban since");
    assert_eq!(pushed(&mut keys, over, "fra2"), [key(1, 60_000)]);
}

#[test]
fn an_operator_shortens_a_ban_at_every_pop() {
    let (mut here, mut elsewhere, mut list) = (Bans::default(), Bans::default(), BanList::default());
    let mut share = |keys: &mut Bans, ms: u64| {
        let mine = keys.to_share(at(ms));
        let fleet = list.exchange(&mine.items, ms * 1_000);
        keys.merge(at(ms), &mine, &fleet);
    };
    here.order(at(0), key(1, 0).id, 60_000);
    share(&mut here, 0);
    share(&mut elsewhere, 250);
    assert_eq!(pushed(&mut here, 250, "fra1"), [key(1, 59_750)]);
    assert_eq!(pushed(&mut elsewhere, 250, "iad1"), [key(1, 59_750)]);
    here.order(at(300), key(1, 0).id, 5_000);
    share(&mut here, 300);
    share(&mut elsewhere, 500);
    for _ in 0..2 {
        share(&mut elsewhere, 500);
    }
    let replaced = [forgotten(1), key(1, 4_800)];
    assert_eq!(pushed(&mut here, 500, "fra1"), replaced);
    assert_eq!(pushed(&mut elsewhere, 500, "iad1"), replaced);
    assert_eq!((pushed(&mut here, 600, "fra1"), pushed(&mut elsewhere, 600, "iad1")), (vec![], vec![]), "once");
}

#[test]
fn a_command_during_an_exchange_outlasts_the_stores_answer() {
    for is_by_operator in [false, true] {
        let asked = || {
            let mut keys = Bans::default();
            if is_by_operator {
                keys.order(at(0), key(1, 0).id, 60_000);
            } else {
                keys.observe(at(0), &report("fra1", &[key(1, 60_000)]));
            }
            let mine = keys.to_share(at(0));
            (keys, mine)
        };
        let (mut keys, mine) = asked();
        keys.reset(at(10), key(1, 0).id);
        assert_eq!(keys.merge(at(20), &mine, &[key(1, 60_000)]), []);
        assert_eq!(pushed(&mut keys, 20, "fra2"), [forgotten(1)]);
        assert_eq!(keys.to_share(at(20)).items, [BannedKey { for_ms: FORGOTTEN_MS - 10, ..forgotten(1) }]);
        let (mut keys, mine) = asked();
        keys.order(at(10), key(1, 0).id, 5_000);
        keys.merge(at(20), &mine, &[key(1, 60_000)]);
        assert_eq!(pushed(&mut keys, 20, "fra2"), [forgotten(1), key(1, 4_990)]);
        assert_eq!(keys.to_share(at(20)).items, [BannedKey { state: BanState::BannedByOperator, ..key(1, 4_990) }]);
    }
}

// The store may answer a question after a later one.
#[test]
fn an_overtaken_answer_ends_no_ban_and_repeats_no_reset() {
    for is_reset in [false, true] {
        let mut keys = Bans::default();
        let old = if is_reset { forgotten(1) } else { key(1, 60) };
        let listing = keys.to_share(at(0));
        keys.merge(at(0), &listing, std::slice::from_ref(&old));
        let overtaken = keys.to_share(at(10));
        keys.observe(at(3_500), &report("fra1", &[key(1, 9_000)]));
        let later = keys.to_share(at(3_500));
        keys.merge(at(3_550), &later, &[key(1, 8_950)]);
        assert_eq!(keys.merge(at(3_551), &overtaken, &[old]), []);
        assert_eq!(pushed(&mut keys, 3_551, "fra2"), [key(1, 8_949)]);
    }
}

#[test]
fn nothing_is_banned_for_longer_than_the_longest() {
    let mut list = BanList::default();
    assert_eq!(list.exchange(&[key(1, u32::MAX), key(2, 0)], 7), [key(1, BAN_MS_MAX)]);
    assert_eq!(list.exchange(&[], 999), [key(1, BAN_MS_MAX - 1)], "rounded down");
    assert_eq!(list.exchange(&[], 7 + u64::from(BAN_MS_MAX) * 1_000), []);
    assert_eq!(list.banned(), 0);
}

proptest! {
    #[test]
    fn reads_what_it_writes(
        rule in "\\PC{1,16}", value in prop::collection::vec(any::<u8>(), 1..=64), is_ban in any::<bool>(),
    ) {
        let state = if is_ban { BanState::Banned } else { BanState::Forgotten };
        let key = BannedKey { id: BudgetId::new(rule, value), for_ms: 0, state };
        prop_assert_eq!(key.to_string().parse::<BannedKey>(), Ok(key));
    }

    /// In whichever order reports, the store's answers and time come: what a POP was sent and still holds is what is
    /// banned. Ends may differ by what is too little to be news.
    #[test]
    fn a_pop_knows_what_holds(
        steps in prop::collection::vec((0..4_u64, 0..6_usize, 0..5_000_u32, 0..900_u64), 1..120),
    ) {
        let (mut keys, mut now) = (Bans::default(), 0);
        // When each ban ends: in the model, and at the POP.
        let (mut holds, mut known): (BTreeMap<usize, u64>, BTreeMap<usize, u64>) = Default::default();
        for (kind, n, for_ms, ms) in steps {
            now += ms;
            // Only an operator makes a ban shorter.
            let left = holds.get(&n).map_or(0, |until| until.saturating_sub(now));
            let for_ms = if kind == 1 { for_ms.max(u32::try_from(left).unwrap()) } else { for_ms };
            match kind {
                0 => drop(keys.observe(at(now), &report("fra1", &[key(n, for_ms)]))),
                1 => {
                    let listing = keys.to_share(at(now));
                    keys.merge(at(now), &listing, &[key(n, for_ms)]);
                }
                2 => drop(keys.observe(at(now), &report("fra3", &[key(n, for_ms)]))),
                _ => {}
            }
            if kind < 3 {
                let until = holds.entry(n).or_default();
                *until = (*until).max(now + u64::from(for_ms));
            }
            for ban in pushed(&mut keys, now, "fra2") {
                let n = usize::from_be_bytes(ban.id.value.as_slice().try_into().unwrap());
                let until = known.entry(n).or_default();
                *until = (*until).max(now + u64::from(ban.for_ms));
            }
            for (n, until) in &holds {
                let pushed = known.get(n).copied().unwrap_or_default();
                prop_assert!(pushed <= *until, "{n} sent until {pushed}, holds until {until}");
                prop_assert!(*until <= now || pushed + 1_000 >= *until, "{n} sent until {pushed}, holds until {until}");
            }
        }
    }
}
