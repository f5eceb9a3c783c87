use alloc::vec;

use weir_protocol::messages::StatusReport;

use super::*;

/// A report of `worker` at `ms`, by a clock an hour ahead: the rule `r` allowed and limited these requests.
fn report(pop: &str, table: u32, ms: u64, allowed: u64, limited: u64) -> Report {
    let rules = vec![RuleCounts { name: "r".into(), decided: [allowed, limited, 0, 0] }];
    let status = Some(StatusReport { every_ms: 1_000, rules, ..StatusReport::default() });
    Report { pop: pop.into(), table, made_ms: 3_600_000 + ms, status, ..Report::default() }
}

fn at(ms: u64) -> Time {
    Time::from_nanos(100 * SECOND_NS + ms * 1_000_000)
}

fn observe(decisions: &mut Decisions, ms: u64, report: &Report) {
    decisions.observe(at(ms), report, |rule| rule == "r");
}

fn rates(decisions: &Decisions, ms: u64) -> (u64, u64, u32) {
    decisions.rates(at(ms)).first().map_or((0, 0, 0), |of| (of.milli.allowed, of.milli.limited, of.pops))
}

fn is_near(milli: u64, expected: u64, percent: u64) -> bool {
    milli.abs_diff(expected) * 100 <= expected * percent
}

#[test]
fn a_steady_rate_is_right_after_a_few_seconds() {
    let mut decisions = Decisions::default();
    for second in 0..30_u64 {
        // Its reports are up to 250 ms late.
        let ms = second * 1_000 + second % 3 * 125;
        observe(&mut decisions, ms, &report("fra1", 1, ms, ms / 10, ms / 50));
        if second >= 6 {
            let (allowed, limited, pops) = rates(&decisions, ms + 500);
            assert!(is_near(allowed, 100_000, 6) && is_near(limited, 20_000, 6), "{second}: {allowed} {limited}");
            assert_eq!(pops, 1);
        }
    }
    assert_eq!(rates(&decisions, 45_000), (0, 0, 0), "it has fallen silent");
    let total = decisions.news();
    assert_eq!((total[0].1.allowed, total[0].1.limited), (2_925, 585), "from the first word to the last");
    assert_eq!(decisions.news()[0].1, DecisionCounts::default());
}

#[test]
fn a_report_that_is_repeated_or_late_loses_and_doubles_nothing() {
    let mut decisions = Decisions::default();
    for ms in [0, 1_000, 1_000, 2_000, 1_000, 3_400, 4_000] {
        observe(&mut decisions, ms, &report("fra1", 1, ms, ms, 0));
    }
    assert_eq!(decisions.news()[0].1.allowed, 4_000);
}

#[test]
fn pops_that_report_to_many_weir_syncs_are_all_counted() {
    let mut replicas = [(); 4].map(|()| Decisions::default());
    let mut random = 1_u64;
    for second in 0..60_u64 {
        for pop in 0..50 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (ms, to) = (second * 1_000, usize::try_from(random >> 40 & 3).unwrap());
            observe(&mut replicas[to], ms, &report(&alloc::format!("fra{pop}"), 1, ms, ms, 0));
        }
    }
    let rates = ["fra/a", "fra/b", "fra/c", "fra/d"].into_iter().zip(&replicas);
    let of = together(rates.map(|(replica, here)| (replica, here.rates(at(59_900))))).remove(0);
    assert!((48..=50).contains(&of.pops), "{of:?}");
}

#[test]
fn a_rule_that_is_reported_seldom_has_a_steady_rate() {
    let mut decisions = Decisions::default();
    for turn in 0..20_u64 {
        let ms = turn * 16_000;
        let mut report = report("fra1", 1, ms, ms / 100, 0);
        report.status.as_mut().unwrap().every_ms = 16_000;
        observe(&mut decisions, ms, &report);
        for after in (0..16_000).step_by(1_000).filter(|_| turn > 2) {
            let (allowed, _, pops) = rates(&decisions, ms + after);
            assert!(is_near(allowed, 10_000, 2) && pops == 1, "{allowed}");
        }
    }
}

#[test]
fn a_pop_that_invents_rules_takes_bounded_room() {
    let mut decisions = Decisions::default();
    for n in 0..2 * POPS_MAX {
        let rules = (0..30).map(|at| RuleCounts { name: alloc::format!("r{at}"), ..RuleCounts::default() });
        let status = Some(StatusReport { rules: rules.collect(), ..StatusReport::default() });
        let report = Report { pop: alloc::format!("p{n}"), table: n, status, ..Report::default() };
        decisions.observe(at(0), &report, |_| true);
    }
    assert!(decisions.counts <= COUNTS_MAX && decisions.pops.len() <= POPS_MAX as usize);
    for n in 0..2 * RULES_MAX as u64 {
        let mut made_up = report("p1", 7, n, 0, 0);
        made_up.status.as_mut().unwrap().rules[0].name = alloc::format!("other-{n}");
        decisions.observe(at(n), &made_up, |rule| rule != "other-1");
    }
    assert!(decisions.rules.len() <= RULES_MAX && !decisions.rules.contains_key("other-1"));
    decisions.observe(at(70_000), &Report::default(), |_| true);
    assert_eq!((decisions.counts, decisions.rules.len(), decisions.pops.len()), (0, 0, 0));
    let huge = |ms, allowed| report("fra1", 1, ms, allowed, 0);
    observe(&mut decisions, 80_000, &huge(80_000, 0));
    observe(&mut decisions, 81_000, &huge(81_000, u64::MAX));
    assert_eq!(decisions.news()[0].1.allowed, PER_SECOND_MAX);
    // Its clock advances by ages within a second, and again and again.
    let mut made_up = report("fra1", 2, 90_000, 0, 0);
    for n in 0..100_u64 {
        let status = made_up.status.as_mut().unwrap();
        (status.every_ms, status.rules[0].decided) = (u32::MAX, [n * (u64::MAX / 100), 0, 0, 0]);
        made_up.made_ms += n << 40;
        observe(&mut decisions, 90_000 + 10 * n, &made_up);
    }
    let allowed = decisions.news()[0].1.allowed;
    assert!(allowed <= 6 * PER_SECOND_MAX, "{allowed}");
}
