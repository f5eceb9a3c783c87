//! Which POPs are told of a hot key, how often, and what a region looks at for it.

use std::collections::BTreeMap;

use weir_budget::budget::{Account, BudgetId, Count, Demand, Member};
use weir_budget::divide::Terms;
use weir_budget::hot::{HOT_MAX, HotKey, HotList, PUSH_BYTES_PER_S, RESTING_NS};
use weir_budget::plan::Entry;
use weir_budget::push::TOLD_MAX;
use weir_budget::region::Region;
use weir_wire::messages::{KEYS_MAX, Key, Message, Pushed, Replies, Reply, Report, Rule, Running};
use weir_wire::quota::{Period, Quota, Rate};
use weir_wire::sharing::Sharing;
use weir_wire::time::Time;

const MS: u64 = 1_000_000;
/// When these tests begin, in milliseconds.
const BEGIN: u64 = 1_000_000;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

fn quota() -> Quota {
    Quota::new(Rate::new(100, Period::Second).unwrap(), 100).unwrap()
}

fn entry(value: u64) -> Entry {
    Entry {
        id: BudgetId { rule: "r".into(), value: value.to_be_bytes().to_vec() },
        quota: quota(),
        sharing: Sharing::of(quota()),
        demand: Demand::default(),
        own_milli: 0,
        counts: vec![],
    }
}

/// The same as a POP reports it.
fn reported(value: u64) -> Entry {
    let count = Count { epoch: 1, admitted: 1, unconfirmed: 1, span_us: 0, missing: 0, made_ms: 0 };
    Entry { counts: vec![count], ..entry(value) }
}

/// The account of a key that is asked for, where less than a half is left.
fn account(level: u64, spread: u32) -> Account {
    let milli = if level < 50 { 1_000 } else { 0 };
    asked_account(level, spread, milli)
}

/// The account of a key that is asked for `milli` thousandths of a token a second.
fn asked_account(level: u64, spread: u32, milli: u64) -> Account {
    let demand = Demand { milli, askers: u32::from(milli > 0) };
    let member = Member { name: "eu/1".into(), demand, age_us: 0 };
    let deficit_ns = (100 - level) * quota().token_ns();
    Account { deficit_ns, spread, charged: 0, now_us: 0, members: vec![member] }
}

/// A report of a worker that has heard every reply.
fn report(pop: &str, table: u32) -> Report {
    let replies = Replies { done: 1, lost: 0 };
    Report { pop: pop.into(), worker: 1, sequence: 1, table, replies, ..Report::default() }
}

fn region() -> Region {
    Region::new("eu/1", Terms::default())
}

/// What is pushed to the POP at `ms`.
fn pushed(region: &mut Region, ms: u64, pop: &str, table: u32) -> Vec<Pushed> {
    region.pushes(at(ms), &report(pop, table)).1
}

fn resting(value: u64) -> HotKey {
    HotKey { rests: true, ..listed(value) }
}

fn listed(value: u64) -> HotKey {
    let Entry { id, quota, sharing, .. } = entry(value);
    HotKey { id, quota, sharing, rests: false, rank: 0 }
}

/// A report that asks about these keys, of the rules `q` (0) and `r` (1).
fn asking(keys: &[(u16, u64)]) -> Report {
    let rule = |name: &str| Rule { name: name.into(), quota: quota(), sharing: Sharing::of(quota()) };
    let key = |&(rule, value): &(u16, u64)| Key {
        rule,
        value: value.to_be_bytes().to_vec(),
        epoch: 1,
        ..Key::default()
    };
    let (rules, keys) = (vec![rule("q"), rule("r")], keys.iter().map(key).collect());
    Report { rules, keys, ..report("pop", 1) }
}

#[test]
fn what_a_report_asks_about_is_not_pushed_in_whichever_order_it_asks() {
    let mut region = region();
    let hot: Vec<Entry> = (0..10).map(entry).collect();
    let resting: Vec<Entry> = (10..20).map(entry).collect();
    region.grant(at(BEGIN), &hot, &vec![account(0, 4); 10]);
    region.grant(at(BEGIN), &resting, &vec![account(100, 4); 10]);
    // Neither key 12 of the other rule nor one that is not hot stands for what it does not ask about.
    let report = asking(&[(1, 17), (1, 3), (0, 12), (1, 99), (1, 0), (1, 9), (1, 10), (0, 0), (1, 4)]);
    let pushed = region.pushes(at(BEGIN), &report).1;
    let pushed: Vec<u64> =
        pushed.iter().map(|pushed| u64::from_be_bytes(pushed.value.clone().try_into().unwrap())).collect();
    assert_eq!(pushed, [1, 2, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 18, 19]);
}

#[test]
fn a_resting_key_is_told_at_once_and_then_at_half_its_lease() {
    let mut region = region();
    let mut told_at = Vec::new();
    for ms in (0..100_000).step_by(250) {
        if ms % 2_000 == 0 {
            region.grant(at(BEGIN + ms), &[entry(1)], &[account(100, 4)]);
        }
        let pushed = pushed(&mut region, BEGIN + ms, "pop", 1);
        assert!(pushed.iter().all(|pushed| pushed.grant.burst == 25 && pushed.grant.lease_ms == 60_000));
        told_at.extend(pushed.iter().map(|_| ms));
    }
    assert_eq!(told_at, [0, 30_000, 60_000, 90_000]);
}

#[test]
fn a_key_that_was_in_a_lost_reply_is_told_again_with_the_next() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    let told = |region: &mut Region, ms, sequence, done, lost| {
        let report = Report { sequence, replies: Replies { done, lost }, ..report("pop", 1) };
        region.pushes(at(BEGIN + ms), &report).1.len()
    };
    assert_eq!(told(&mut region, 0, 1, 0, 0), 1);
    assert_eq!(told(&mut region, 250, 2, 0, 0), 0, "it is under way");
    assert_eq!(told(&mut region, 500, 3, 1, 1), 1, "it was lost");
    assert_eq!(told(&mut region, 750, 4, 3, 1), 0);
    assert_eq!(told(&mut region, 5_000, 5, 4, 1), 0, "it was heard");
}

/// What the one POP that is asked was answered is newer than what is pushed, and its bucket is exact.
#[test]
fn a_pop_that_a_key_is_asked_of_alone_is_not_pushed_what_is_for_the_others() {
    let mut region = region();
    let asked = Report {
        keys: asking(&[(1, 1)])
            .keys
            .into_iter()
            .map(|key| Key { asked: 9, asked_recently: 9, ..key })
            .collect(),
        ..asking(&[(1, 1)])
    };
    let plan = region.hear(at(BEGIN), &asked);
    let mut account = account(20, 4);
    account.members[0].demand.askers = 1;
    region.grant(at(BEGIN), &plan.entries, &[account]);
    assert_eq!(pushed(&mut region, BEGIN + 250, "pop", 1).len(), 0);
    assert_eq!(pushed(&mut region, BEGIN + 250, "another", 1).len(), 1);
    region.grant(at(BEGIN + 1_250), &plan.entries, &[self::account(20, 4)]);
    assert_eq!(pushed(&mut region, BEGIN + 1_250, "pop", 1).len(), 1, "it is not asked any more");
}

/// The store was out of reach when the key was to be put on the list.
#[test]
fn a_resting_key_is_named_until_it_is_on_the_list() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    for ms in [0, 250, 500] {
        assert_eq!(region.hot(at(BEGIN + ms)), [resting(1)], "nobody has answered");
    }
    let named = region.hot(at(BEGIN + 750));
    region.are_listed(at(BEGIN + 750), &named);
    assert_eq!(region.hot(at(BEGIN + 1_000)), []);
    assert_eq!(region.hot(at(BEGIN + 2_750)), [resting(1)], "in its own time");
}

#[test]
fn a_pop_that_lost_its_table_is_told_at_once() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    assert_eq!(pushed(&mut region, BEGIN, "pop", 1).len(), 1);
    assert_eq!(pushed(&mut region, BEGIN + 250, "pop", 1).len(), 0);
    assert_eq!(pushed(&mut region, BEGIN + 500, "pop", 2).len(), 1);
    assert_eq!(pushed(&mut region, BEGIN + 500, "another", 1).len(), 1);
}

#[test]
fn a_pop_whose_rules_or_a_key_whose_quota_changed_is_told_at_once() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    assert_eq!(pushed(&mut region, BEGIN, "pop", 1).len(), 1);
    let newer = Report { running: Running { version: 2, refused: 0 }, ..report("pop", 1) };
    assert_eq!(region.pushes(at(BEGIN + 250), &newer).1.len(), 1);
    assert_eq!(region.pushes(at(BEGIN + 500), &newer).1.len(), 0);
    let raised =
        Entry { quota: Quota::new(Rate::new(200, Period::Second).unwrap(), 100).unwrap(), ..entry(1) };
    region.grant(at(BEGIN + 500), std::slice::from_ref(&raised), &[account(100, 4)]);
    let told = region.pushes(at(BEGIN + 750), &newer).1;
    assert_eq!(told.iter().map(|pushed| pushed.quota).collect::<Vec<_>>(), [raised.quota]);
}

/// If it were named by those that only look at it, a quota that was changed would stay on the list for ever.
#[test]
fn a_hot_key_is_named_only_with_the_quota_that_pops_here_report() {
    let (mut asked, mut others) = (region(), region());
    let now = at(BEGIN);
    let raised =
        Entry { quota: Quota::new(Rate::new(200, Period::Second).unwrap(), 100).unwrap(), ..reported(1) };
    others.grant(now, &[entry(1)], &[asked_account(10, 0, 1_000)]);
    assert_eq!(others.hot(now), [], "its POPs are not asked for it");
    asked.grant(now, std::slice::from_ref(&raised), &[asked_account(10, 0, 1_000)]);
    let quotas = |keys: Vec<HotKey>| keys.iter().map(|key| key.quota).collect::<Vec<_>>();
    assert_eq!(quotas(asked.hot(now)), [raised.quota]);
    // A look that was under way when the POPs reported.
    asked.grant(now, &[entry(1)], &[asked_account(10, 0, 1_000)]);
    assert_eq!(quotas(asked.hot(now)), [raised.quota]);
    let looked_at = asked.peeks(at(BEGIN + 750), &[listed(1)]);
    assert_eq!(looked_at.iter().map(|entry| entry.quota).collect::<Vec<_>>(), [raised.quota]);
    assert_eq!(asked.hot(at(BEGIN + 1_250)), [], "nobody has reported it for a second");
}

#[test]
fn a_key_that_stops_resting_is_told_at_once() {
    let mut region = region();
    for ms in [0, 250, 500, 750, 1_000, 1_250] {
        region.grant(at(BEGIN + ms), &[entry(1)], &[account(100, 4)]);
        pushed(&mut region, BEGIN + ms, "pop", 1);
    }
    region.grant(at(BEGIN + 1_500), &[entry(1)], &[account(40, 4)]);
    let grant = pushed(&mut region, BEGIN + 1_500, "pop", 1)[0].grant;
    assert_eq!((grant.lease_ms, grant.level_milli), (2_000, 40_000));
}

#[test]
fn what_is_hot_is_looked_at_every_interval_and_what_rests_ever_more_seldom() {
    let mut region = region();
    let (mut rests, mut hot) = (Vec::new(), 0);
    for ms in (0..120_000).step_by(250) {
        for entry in region.peeks(at(BEGIN + ms), &[resting(1), listed(2)]) {
            let is_resting = entry.id == listed(1).id;
            if is_resting {
                rests.push(ms / 1_000);
            } else {
                hot += 1;
            }
            let account = if is_resting { account(100, 4) } else { account(10, 0) };
            region.grant(at(BEGIN + ms), &[entry], &[account]);
        }
    }
    assert_eq!(rests, [0, 2, 6, 14, 30, 62, 94]);
    assert_eq!(hot, 240, "two ticks of 250 ms are the first after the interval of 350 ms");
}

/// Looks, in a second of the last half of `seconds`, of a region at keys of which a tenth of the quota is left.
fn looks_per_second(keys: u64, seconds: u64, is_asked: bool) -> u64 {
    let mut region = region();
    // The list that all regions share; another region has just named them.
    let mut list = HotList::default();
    list.exchange(&(0..keys).map(listed).collect::<Vec<_>>(), BEGIN * 1_000);
    let account = asked_account(10, 0, u64::from(is_asked));
    let mut looks = 0;
    for ms in (0..1_000 * seconds).step_by(250) {
        let mut named = region.hot(at(BEGIN + ms));
        if is_asked {
            named.extend((0..keys).map(listed));
        }
        let peeked = region.peeks(at(BEGIN + ms), &list.exchange(&named, (BEGIN + ms) * 1_000));
        if ms >= 500 * seconds {
            looks += peeked.len() as u64;
        }
        region.grant(at(BEGIN + ms), &peeked, &vec![account.clone(); peeked.len()]);
    }
    looks * 2 / seconds
}

#[test]
fn keys_that_nobody_asks_for_cost_the_store_next_to_nothing() {
    // Twice a second each, as long as they are asked for.
    assert_eq!(looks_per_second(100, 20, true), 200);
    let unasked = looks_per_second(100, 400, false);
    assert!(unasked <= 100 / 30 + 1, "{unasked} looks a second at 100 keys");
}

#[test]
fn a_resting_key_that_is_asked_for_elsewhere_is_looked_at_at_once() {
    let mut region = region();
    let mut looked_at = Vec::new();
    for ms in (0..62_000).step_by(250) {
        // Asked for again elsewhere just after it was looked at, and long before it would be again.
        let fleet = if ms >= 31_000 { vec![listed(1)] } else { vec![resting(1)] };
        for entry in region.peeks(at(BEGIN + ms), &fleet) {
            looked_at.push(ms);
            let account = asked_account(10, 0, u64::from(ms >= 31_000));
            region.grant(at(BEGIN + ms), &[entry], &[account]);
        }
    }
    assert_eq!(looked_at[..7], [0, 2_000, 6_000, 14_000, 30_000, 31_000, 31_500]);
}

#[test]
fn a_pop_holds_of_a_resting_key_what_has_refilled_since_it_was_looked_at() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[asked_account(10, 0, 0)]);
    assert_eq!(pushed(&mut region, BEGIN, "pop", 1)[0].grant.level_milli, 10_000);
    let later = pushed(&mut region, BEGIN + 500, "another", 1)[0].grant;
    assert_eq!((later.level_milli, later.lease_ms), (60_000, 60_000), "half a second at 100/s");
}

#[test]
fn a_pop_that_alone_is_asked_now_and_then_is_told_what_has_refilled_since() {
    let told = |askers| {
        let mut region = region();
        let mut account = asked_account(20, 0, 1_000);
        account.members[0].demand.askers = askers;
        region.grant(at(BEGIN), &[entry(1)], &[account]);
        pushed(&mut region, BEGIN + 300, "fra1", 1)[0].grant.level_milli
    };
    assert_eq!(told(1), 20_000 + 30_000);
    assert_eq!(told(2), 20_000 + 35_000, "others take of it: until the next grant as ever");
}

#[test]
fn a_resting_key_is_kept_without_the_list_and_named_when_nobody_else_does() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    let mut named = Vec::new();
    for ms in (0..100_000).step_by(250) {
        let hot = region.hot(at(BEGIN + ms));
        region.are_listed(at(BEGIN + ms), &hot);
        named.extend(hot.iter().map(|key| (ms, key.rests)));
        for entry in region.peeks(at(BEGIN + ms), &[]) {
            region.grant(at(BEGIN + ms), &[entry], &[account(100, 4)]);
        }
    }
    assert_eq!(named, [0, 2_000, 6_000, 14_000, 30_000, 62_000, 94_000].map(|ms| (ms, true)));
    for ms in (100_000..200_000).step_by(250) {
        assert_eq!(region.hot(at(BEGIN + ms)), [], "another region names it");
        for entry in region.peeks(at(BEGIN + ms), &[resting(1)]) {
            region.grant(at(BEGIN + ms), &[entry], &[account(100, 4)]);
        }
    }
}

#[test]
fn a_key_whose_spread_is_forgotten_is_told_no_more() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    let later = BEGIN + RESTING_NS / MS;
    let peeked = region.peeks(at(later), &[]);
    assert_eq!(peeked.len(), 1);
    region.grant(at(later), &peeked, &[account(100, 0)]);
    assert_eq!(pushed(&mut region, later, "pop", 1), []);
    assert_eq!(region.hot(at(later)), []);
}

#[test]
fn hot_keys_go_before_resting_ones_and_all_are_bounded() {
    let mut region = region();
    for value in 0..HOT_MAX as u64 + 100 {
        region.grant(at(BEGIN), &[entry(value)], &[account(100, 4)]);
    }
    assert_eq!(region.hot(at(BEGIN)).len(), HOT_MAX);
    for value in 0..100 {
        region.grant(at(BEGIN), &[entry(1_000_000 + value)], &[account(10, 0)]);
    }
    assert_eq!(region.hot_dropped(), 200, "none is lost uncounted");
    let first = pushed(&mut region, BEGIN, "pop", 1);
    assert_eq!(first.len(), KEYS_MAX);
    assert!(first[..100].iter().all(|pushed| pushed.value >= 1_000_000_u64.to_be_bytes().to_vec()));
    let later = |n: u64| BEGIN + 250 * n;
    let rest: usize = (1..16)
        .map(|n| {
            region.grant(
                at(later(n)),
                &(0..100).map(|value| entry(1_000_000 + value)).collect::<Vec<_>>(),
                &vec![account(10, 0); 100],
            );
            pushed(&mut region, later(n), "pop", 1).len()
        })
        .sum();
    assert!(rest + KEYS_MAX >= HOT_MAX, "the others get their turn: {rest}");
}

#[test]
fn a_key_that_matters_is_not_crowded_out_by_many_that_do_not() {
    let mut region = region();
    let (flood, heavy) = (1_000_000, 100);
    for value in 0..flood / 100 {
        region.grant(at(BEGIN), &[reported(2 * value + 1)], &[asked_account(95, 0, 2_000_000)]);
    }
    assert_eq!(region.hot(at(BEGIN)).len(), HOT_MAX);
    // In debt, among them, and not before they were there.
    let in_debt = Account { deficit_ns: 150 * quota().token_ns(), ..account(10, 0) };
    for value in 0..heavy {
        region.grant(at(BEGIN), &[reported(200 * value)], std::slice::from_ref(&in_debt));
    }
    for value in 0..flood / 100 {
        region.grant(at(BEGIN), &[reported(2 * value + flood + 1)], &[asked_account(95, 0, 2_000_000)]);
    }
    let kept: Vec<_> = region.hot(at(BEGIN)).into_iter().map(|key| key.id).collect();
    assert_eq!(kept.len(), HOT_MAX);
    assert!((0..heavy).all(|value| kept.contains(&entry(200 * value).id)), "they were crowded out");
    let expected = 2 * (flood / 100) + heavy - HOT_MAX as u64;
    assert_eq!(region.hot_dropped(), expected);
    // And they are what a POP hears of first.
    let first = pushed(&mut region, BEGIN, "pop", 1);
    let in_debt = |pushed: &&Pushed| u64::from_be_bytes(pushed.value.clone().try_into().unwrap()) % 200 == 0;
    assert_eq!(first.iter().filter(in_debt).count() as u64, heavy);
}

/// What a POP is pushed that reports every interval for so long while `accounts` keys are hot: bytes in a second, and by
/// key when it was told, in milliseconds. A key has at least `value_bytes`.
fn told_of(accounts: &[Account], seconds: u64, value_bytes: usize) -> (u64, BTreeMap<Vec<u8>, Vec<u64>>) {
    let mut region = region();
    let mut hot: Vec<Entry> = (0..accounts.len() as u64).map(entry).collect();
    for entry in &mut hot {
        let lacking = value_bytes.saturating_sub(entry.id.value.len());
        entry.id.value.extend(vec![0; lacking]);
    }
    let (mut bytes, mut told) = (0, BTreeMap::<_, Vec<u64>>::new());
    for ms in (0..1_000 * seconds).step_by(250) {
        region.grant(at(BEGIN + ms), &hot, accounts);
        let (rules, pushed) = region.pushes(at(BEGIN + ms), &report("pop", 1));
        for key in &pushed {
            told.entry(key.value.clone()).or_default().push(ms);
        }
        bytes += Reply { rules, pushed, ..Reply::default() }.encode().len() as u64;
    }
    (bytes / seconds, told)
}

#[test]
fn a_pop_is_sent_no_more_than_its_line_is_stated_to_carry() {
    let seconds = 20;
    // As many as there may be, of which a few are in debt, spread among them.
    let in_debt = Account { deficit_ns: 150 * quota().token_ns(), ..account(10, 0) };
    let of = |n: usize| if n.is_multiple_of(16) { in_debt.clone() } else { account(10, 0) };
    let (bytes, told) = told_of(&(0..HOT_MAX).map(of).collect::<Vec<_>>(), seconds, 8);
    // At first it is sent a second's worth at once.
    assert!(bytes <= PUSH_BYTES_PER_S * (seconds + 1) / seconds, "{bytes} bytes a second");
    let lease_ms = 2_000;
    let mut held =
        (0..HOT_MAX).filter(|n| n.is_multiple_of(16)).map(|n| &told[&(n as u64).to_be_bytes()[..]]);
    assert!(
        held.all(|at| at.windows(2).all(|pair| pair[1] - pair[0] <= lease_ms)),
        "one that is in debt lapses"
    );
    // Where it is not that much more than fits at once, all get their turn, and none lapses.
    let (bytes, told) = told_of(&vec![account(10, 0); 1_500], seconds, 8);
    assert!(bytes <= PUSH_BYTES_PER_S * (seconds + 1) / seconds, "{bytes} bytes a second");
    assert_eq!(told.len(), 1_500);
    assert!(told.values().all(|at| at.windows(2).all(|pair| pair[1] - pair[0] <= lease_ms)));
}

#[test]
fn no_key_starves_where_fewer_bytes_than_keys_fit() {
    for tokens in [90, 150] {
        let account = Account { deficit_ns: tokens * quota().token_ns(), ..account(10, 0) };
        let (_, told) = told_of(&vec![account; 500], 20, 64);
        assert_eq!(told.len(), 500, "{tokens} tokens taken");
        let lease_ms = 2_000;
        assert!(told.values().all(|at| at.windows(2).all(|pair| pair[1] - pair[0] <= lease_ms)));
        assert!(told.values().all(|at| at.last().is_some_and(|ms| *ms >= 20_000 - lease_ms)));
    }
}

#[test]
fn notes_are_bounded_under_ever_new_names() {
    let mut region = region();
    let hot: Vec<Entry> = (0..HOT_MAX as u64).map(entry).collect();
    let mut ms = 0;
    let mut hear = |region: &mut Region, report: &Report| {
        if ms % 500 == 0 {
            region.grant(at(BEGIN + ms), &hot, &vec![account(10, 0); HOT_MAX]);
        }
        ms += 1;
        region.pushes(at(BEGIN + ms), report);
        region.told_len()
    };
    let most = (0..1_500).map(|n| hear(&mut region, &report(&format!("pop-{n}"), 1))).max().unwrap_or(0);
    assert!(most <= TOLD_MAX && most > TOLD_MAX / 2, "{most} notes of POPs");
    let before = region.told_len();
    for table in 0..200 {
        hear(&mut region, &report("pop-1499", table));
        let running = Running { version: u64::from(table), refused: 0 };
        hear(&mut region, &Report { running, ..report("pop-1498", 1) });
    }
    assert!(region.told_len() <= before + 4 * HOT_MAX, "one table of a POP, and two versions");
}

#[test]
fn strict_keys_are_nobodys_business() {
    let mut region = region();
    let mut strict = entry(1);
    strict.sharing.strict = true;
    region.grant(at(BEGIN), &[strict], &[account(10, 0)]);
    assert_eq!(region.hot(at(BEGIN)), []);
}
