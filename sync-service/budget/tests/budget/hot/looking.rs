//! Keys that a region lists for the others, and budgets that it reads.

use super::*;

/// If regions that only look at a key named it, a quota that was changed would stay on the list for ever.
// I4
#[test]
fn a_hot_key_is_listed_with_the_quota_of_local_reports() {
    let (mut asked, mut others) = (region(), region());
    let now = at(BEGIN);
    let raised = PlanEntry { quota: Quota::new(Rate::new(200, Period::Second).unwrap(), 100).unwrap(), ..reported(1) };
    others.grant(now, &[entry(1)], &[asked_account(10, 0, 1_000)]);
    assert_eq!(others.hot.to_list(now), [], "its POPs are not asked for it");
    asked.grant(now, std::slice::from_ref(&raised), &[asked_account(10, 0, 1_000)]);
    let quotas = |keys: Vec<HotKey>| keys.iter().map(|key| key.quota).collect::<Vec<_>>();
    assert_eq!(quotas(asked.hot.to_list(now)), [raised.quota]);
    // A look comes back that was under way when the POPs reported.
    asked.grant(now, &[entry(1)], &[asked_account(10, 0, 1_000)]);
    assert_eq!(quotas(asked.hot.to_list(now)), [raised.quota]);
    let looked_at = asked.peeks(at(BEGIN + 750), &[listed(1)]);
    assert_eq!(looked_at.iter().map(|entry| entry.quota).collect::<Vec<_>>(), [raised.quota]);
    assert_eq!(asked.hot.to_list(at(BEGIN + 1_250)), [], "not reported for a second");
}

#[test]
fn hot_keys_are_read_every_interval_and_resting_ones_rarely() {
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

#[test]
fn a_resting_key_is_kept_and_listed_if_no_other_region_does() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    let mut named = Vec::new();
    for ms in (0..100_000).step_by(250) {
        let hot = region.hot.to_list(at(BEGIN + ms));
        region.hot.are_listed(at(BEGIN + ms), &hot);
        named.extend(hot.iter().map(|key| (ms, key.rests)));
        for entry in region.peeks(at(BEGIN + ms), &[]) {
            region.grant(at(BEGIN + ms), &[entry], &[account(100, 4)]);
        }
    }
    assert_eq!(named, [0, 2_000, 6_000, 14_000, 30_000, 62_000, 94_000].map(|ms| (ms, true)));
    for ms in (100_000..200_000).step_by(250) {
        assert_eq!(region.hot.to_list(at(BEGIN + ms)), [], "another region names it");
        for entry in region.peeks(at(BEGIN + ms), &[resting(1)]) {
            region.grant(at(BEGIN + ms), &[entry], &[account(100, 4)]);
        }
    }
}
