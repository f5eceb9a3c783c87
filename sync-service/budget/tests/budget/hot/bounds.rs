//! Many hot keys: which are kept, what a POP is sent of them in a second, and how much is recorded.

use std::collections::BTreeMap;

use weir_budget::hot::{HOT_MAX, PUSH_BYTES_PER_S};
use weir_budget::push::SENT_MAX;
use weir_protocol::messages::{KEYS_MAX, Message, Reply};

use super::*;

// I2
#[test]
fn hot_keys_go_before_resting_ones_and_all_are_bounded() {
    let mut region = region();
    for value in 0..HOT_MAX as u64 + 100 {
        region.grant(at(BEGIN), &[entry(value)], &[account(100, 4)]);
    }
    assert_eq!(region.hot.to_list(at(BEGIN)).len(), HOT_MAX);
    for value in 0..100 {
        region.grant(at(BEGIN), &[entry(1_000_000 + value)], &[account(10, 0)]);
    }
    assert_eq!(region.hot.dropped, 200, "none is lost uncounted");
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
fn unimportant_keys_do_not_crowd_out_an_important_one() {
    let mut region = region();
    let (flood, heavy) = (1_000_000, 100);
    for value in 0..flood / 100 {
        region.grant(at(BEGIN), &[reported(2 * value + 1)], &[asked_account(95, 0, 2_000_000)]);
    }
    assert_eq!(region.hot.to_list(at(BEGIN)).len(), HOT_MAX);
    // Keys in debt, whose neighbours are these. They come later.
    let in_debt = Account { deficit_ns: 150 * quota().token_ns(), ..account(10, 0) };
    for value in 0..heavy {
        region.grant(at(BEGIN), &[reported(200 * value)], std::slice::from_ref(&in_debt));
    }
    for value in 0..flood / 100 {
        region.grant(at(BEGIN), &[reported(2 * value + flood + 1)], &[asked_account(95, 0, 2_000_000)]);
    }
    let kept: Vec<_> = region.hot.to_list(at(BEGIN)).into_iter().map(|key| key.id).collect();
    assert_eq!(kept.len(), HOT_MAX);
    assert!((0..heavy).all(|value| kept.contains(&entry(200 * value).id)), "they were crowded out");
    let expected = 2 * (flood / 100) + heavy - HOT_MAX as u64;
    assert_eq!(region.hot.dropped, expected);
    // They are pushed to a POP first.
    let first = pushed(&mut region, BEGIN, "pop", 1);
    let in_debt = |pushed: &&PushedGrant| u64::from_be_bytes(pushed.value.clone().try_into().unwrap()) % 200 == 0;
    assert_eq!(first.iter().filter(in_debt).count() as u64, heavy);
}

/// Pushes to a POP that reports every interval, while there is a hot key for each account: the bytes of a
/// second, and when each key was pushed, in milliseconds. A key has at least `value_bytes`.
fn pushes_of(accounts: &[Account], seconds: u64, value_bytes: usize) -> (u64, BTreeMap<Vec<u8>, Vec<u64>>) {
    let mut region = region();
    let mut hot: Vec<PlanEntry> = (0..accounts.len() as u64).map(entry).collect();
    for entry in &mut hot {
        let mut value = entry.id.value.clone();
        value.resize(value.len().max(value_bytes), 0);
        entry.id = BudgetId::new(entry.id.rule.clone(), value);
    }
    let (mut bytes, mut pushed_at) = (0, BTreeMap::<_, Vec<u64>>::new());
    for ms in (0..1_000 * seconds).step_by(250) {
        region.grant(at(BEGIN + ms), &hot, accounts);
        let (rules, pushed) = region.pushes(at(BEGIN + ms), &report("pop", 1));
        for key in &pushed {
            pushed_at.entry(key.value.clone()).or_default().push(ms);
        }
        bytes += Reply { rules, pushed, ..Reply::default() }.encode().len() as u64;
    }
    (bytes / seconds, pushed_at)
}

#[test]
fn pushes_to_a_pop_stay_within_the_stated_bytes() {
    let seconds = 20;
    // As many as there may be. Some, here and there, are in debt.
    let in_debt = Account { deficit_ns: 150 * quota().token_ns(), ..account(10, 0) };
    let of = |n: usize| if n.is_multiple_of(16) { in_debt.clone() } else { account(10, 0) };
    let (bytes, pushed_at) = pushes_of(&(0..HOT_MAX).map(of).collect::<Vec<_>>(), seconds, 8);
    // At first it is sent a second's worth at once.
    assert!(bytes <= PUSH_BYTES_PER_S * (seconds + 1) / seconds, "{bytes} bytes a second");
    let lease_ms = 2_000;
    let mut held = (0..HOT_MAX).filter(|n| n.is_multiple_of(16)).map(|n| &pushed_at[&(n as u64).to_be_bytes()[..]]);
    assert!(held.all(|at| at.windows(2).all(|pair| pair[1] - pair[0] <= lease_ms)), "one that is in debt lapses");
    // If not many more than fit at once, all get their turn, and none lapses.
    let (bytes, pushed_at) = pushes_of(&vec![account(10, 0); 1_500], seconds, 8);
    assert!(bytes <= PUSH_BYTES_PER_S * (seconds + 1) / seconds, "{bytes} bytes a second");
    assert_eq!(pushed_at.len(), 1_500);
    assert!(pushed_at.values().all(|at| at.windows(2).all(|pair| pair[1] - pair[0] <= lease_ms)));
}

/// More keys are due again than the line carries, so some wait for longer than half of their leases, and all the time.
#[test]
fn a_new_key_is_pushed_before_all_that_are_due_again() {
    let mut region = region();
    let known: Vec<PlanEntry> = (1..1_500).map(entry).collect();
    let pushed_at = |region: &mut Region, ms: u64| {
        region.grant(at(BEGIN + ms), &known, &vec![account(10, 0); known.len()]);
        pushed(region, BEGIN + ms, "pop", 1)
    };
    let pushes: usize = (0..10_000).step_by(250).map(|ms| pushed_at(&mut region, ms).len()).sum();
    assert!(pushes > 5 * known.len(), "{pushes}: each is pushed again and again");
    region.grant(at(BEGIN + 10_000), &[entry(0)], &[account(10, 0)]);
    assert_eq!(pushed_at(&mut region, 10_000)[0].value, entry(0).id.value);
}

#[test]
fn no_key_starves_where_fewer_bytes_than_keys_fit() {
    for tokens in [90, 150] {
        let account = Account { deficit_ns: tokens * quota().token_ns(), ..account(10, 0) };
        let (_, pushed_at) = pushes_of(&vec![account; 500], 20, 64);
        assert_eq!(pushed_at.len(), 500, "{tokens} tokens taken");
        let lease_ms = 2_000;
        assert!(pushed_at.values().all(|at| at.windows(2).all(|pair| pair[1] - pair[0] <= lease_ms)));
        assert!(pushed_at.values().all(|at| at.last().is_some_and(|ms| *ms >= 20_000 - lease_ms)));
    }
}

// I2
#[test]
fn sent_keys_are_bounded_under_ever_new_names() {
    let mut region = region();
    let hot: Vec<PlanEntry> = (0..HOT_MAX as u64).map(entry).collect();
    let mut ms = 0;
    let mut observe = |region: &mut Region, report: &Report| {
        if ms % 500 == 0 {
            region.grant(at(BEGIN + ms), &hot, &vec![account(10, 0); HOT_MAX]);
        }
        ms += 1;
        region.pushes(at(BEGIN + ms), report);
        region.hot.sent_len()
    };
    let most = (0..1_500).map(|n| observe(&mut region, &report(&format!("pop-{n}"), 1))).max().unwrap_or(0);
    assert!(most <= SENT_MAX && most > SENT_MAX / 2, "{most} sent keys of POPs");
    let before = region.hot.sent_len();
    for table in 0..200 {
        observe(&mut region, &report("pop-1499", table));
        let running = RunningRules { version: u64::from(table), refused: 0 };
        observe(&mut region, &Report { running, ..report("pop-1498", 1) });
    }
    assert!(region.hot.sent_len() <= before + 4 * HOT_MAX, "one table of a POP, and two versions");
}
