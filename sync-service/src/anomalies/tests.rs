//! Generated days of traffic: with seasons, noise, jobs and attacks.

use super::season::LEARN_MAX;
use super::*;

const DAY: u64 = 24 * 60;
/// Without optimisation a world takes long; `cargo test --release -p weir-sync anomalies` plays all 20.
const SEEDS: u64 = if cfg!(debug_assertions) { 3 } else { 20 };
const DAYS: u64 = 14;
/// Number of minutes within which nineteen of twenty attacks are found, ...
const SOON: u64 = 5;
/// ... and within which all are.
const LATEST: u64 = 15;

/// A generator of random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    /// From 0 to 1.
    #[allow(clippy::cast_precision_loss)]
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normal, of standard deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.part()).ln()).sqrt() * (std::f64::consts::TAU * self.part()).cos()
    }

    /// Poisson: of a large mean, normal.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 50.0 {
            return (mean + mean.sqrt() * self.normal()).max(0.0).round() as u64;
        }
        let (mut count, mut product, least) = (0, self.part(), (-mean).exp());
        while product > least {
            count += 1;
            product *= self.part();
        }
        count
    }
}

/// Something strange that a rule does for a while.
#[derive(Clone, Debug)]
struct Attack {
    kind: &'static str,
    from: u64,
    until: u64,
    factor: f64,
    pop: usize,
}

/// Rules, and the number of limited requests of each in a usual minute.
const RULES: [(&str, f64); 3] = [("busy", 1_200.0), ("quiet", 240.0), ("rare", 3.0)];
const POPS: usize = 8;

/// Traffic of some rules.
struct World {
    random: Random,
    /// Factor of the day's traffic.
    of_day: f64,
    of_today: f64,
    slow: [f64; RULES.len()],
    /// The noise of each POP that lasts.
    slow_pops: [f64; POPS],
}

impl World {
    fn new(seed: u64) -> Self {
        Self { random: Random(seed), of_day: 0.0, of_today: 0.0, slow: [0.0; RULES.len()], slow_pops: [0.0; POPS] }
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn minute(&mut self, minute: u64, attacks: &[Attack], has_job: bool) -> BTreeMap<String, RuleMinute> {
        let random = &mut self.random;
        // 1970 began on a Thursday.
        let is_weekend = matches!((minute / DAY + 3) % 7, 5 | 6);
        if minute.is_multiple_of(DAY) {
            self.of_today = 0.15 * random.normal() - if is_weekend { 0.7 } else { 0.0 };
        }
        // A day comes and goes within hours.
        self.of_day += (self.of_today - self.of_day) / 120.0;
        let time = (minute % DAY) as f64 / DAY as f64;
        let season = 0.8 * (std::f64::consts::TAU * (time - 0.35)).sin();
        for slow in &mut self.slow_pops {
            *slow = 0.95 * *slow + 0.03 * random.normal();
        }
        let mut rules = BTreeMap::new();
        for (at, (rule, base)) in RULES.into_iter().enumerate() {
            self.slow[at] = 0.95 * self.slow[at] + 0.05 * random.normal();
            let noise = self.slow[at] + 0.15 * random.normal();
            // A quarter of an hour, at ten past three.
            let job = if has_job && (190..205).contains(&(minute % DAY)) { 6.0 } else { 1.0 };
            let usual = job * base * (season + self.of_day + noise).exp();
            let now = |kind| attacks.iter().filter(move |it| it.kind == kind && (it.from..it.until).contains(&minute));
            let of_all: f64 = now("rate").map(|it| it.factor).product();
            let mut pops = BTreeMap::new();
            for (pop, slow) in self.slow_pops.iter().enumerate() {
                let weight = (pop + 1) as f64 / (POPS * (POPS + 1) / 2) as f64;
                let own: f64 = now("pop").filter(|it| it.pop == pop).map(|it| it.factor).product();
                let mean = usual * of_all * own * weight * (slow + 0.15 * random.normal()).exp();
                let count = random.poisson(mean);
                if count > 0 {
                    pops.insert(format!("pop{pop}"), count);
                }
            }
            let limited: u64 = pops.values().sum();
            // One of twenty usual keys is on top, with about a tenth; or at times one that never was.
            let usual_top = (0.1 * limited as f64 * (0.3 * random.normal()).exp()) as u64;
            let keys = if random.below(10) == 0 { 1 << 40 } else { 20 };
            let mut top = (format!("key{}", random.below(keys)), usual_top.min(limited));
            for attack in now("top_key") {
                let count = random.poisson(attack.factor * (0.1 * usual).max(30.0));
                if count > top.1 {
                    top = (format!("attacker since {}", attack.from), count);
                }
            }
            let limited = limited + if top.0.starts_with("attacker") { top.1 } else { 0 };
            let top = (top.1 > 0).then(|| (top.0.into_bytes().into_boxed_slice(), top.1));
            rules.insert(rule.to_owned(), RuleMinute { limited, pops, top });
        }
        rules
    }
}

/// Anomalies that begin in `days` of traffic.
fn begun(seed: u64, days: u64, attacks: &[Attack], has_job: bool) -> Vec<(u64, Anomaly)> {
    let (mut world, mut detector) = (World::new(seed), Detector::new(LEARN_MAX));
    let mut begun = Vec::new();
    // A Monday, for all that matters: any day will do.
    for minute in 20_000 * DAY..(20_000 + days) * DAY {
        let at = minute - 20_000 * DAY;
        let changes = detector.minute(minute, world.minute(at, attacks, has_job));
        begun.extend(changes.into_iter().filter(|change| change.phase == Phase::Begins).map(|change| (at, change)));
    }
    begun
}

#[test]
fn fourteen_usual_days_have_next_to_no_false_alarms() {
    let mut all = Vec::new();
    for seed in 0..SEEDS {
        all.extend(begun(seed, DAYS, &[], false).into_iter().map(|it| (seed, it)));
    }
    assert!(all.len() <= 2, "{} false alarms in {SEEDS} times {DAYS} days: {all:?}", all.len());
}

/// Minutes from the beginning of an attack of `kind` until it was found, for each of its rules.
fn found_after(kind: &'static str, rules: &[&str]) -> Vec<(u64, f64, Option<u64>)> {
    let mut found = Vec::new();
    for seed in 0..SEEDS {
        let mut random = Random(seed ^ 0x5eed);
        // One a day from the second day on, of twenty minutes to two hours; not at the same hour on most days.
        let attacks: Vec<_> = (1..DAYS)
            .map(|day| {
                let from = day * DAY + 60 * (day * 7 % 20) + random.below(60);
                let until = from + 20 + random.below(100);
                let factor = if random.below(2) == 0 { 5.0 } else { 5.0 + 45.0 * random.part() };
                Attack { kind, from, until, factor, pop: 3 + usize::try_from(random.below(5)).unwrap() }
            })
            .collect();
        let begun = begun(seed, DAYS, &attacks, false);
        for attack in &attacks {
            for rule in rules {
                let at = begun.iter().find(|(at, change)| {
                    change.kind == kind && change.rule == *rule && (attack.from..attack.until).contains(at)
                });
                found.push((seed, attack.factor, at.map(|(at, _)| at + 1 - attack.from)));
            }
        }
    }
    found
}

fn all_within(found: &[(u64, f64, Option<u64>)], most: u64) {
    let missed: Vec<_> = found.iter().filter(|(_, _, after)| after.is_none_or(|after| after > most)).collect();
    let soon = found.iter().filter(|(_, _, after)| after.is_some_and(|after| after <= SOON)).count();
    assert!(soon * 20 >= found.len() * 19, "{soon} of {} within {SOON} minutes", found.len());
    assert!(found.len() > 30 && missed.is_empty(), "{} of {} missed or late: {missed:?}", missed.len(), found.len());
}

#[test]
fn a_rule_limited_five_times_the_usual_is_found_in_minutes() {
    all_within(&found_after("rate", &["busy", "quiet"]), LATEST);
}

#[test]
fn a_pop_limiting_five_times_the_usual_is_found_in_minutes() {
    all_within(&found_after("pop", &["busy"]), LATEST);
}

#[test]
fn a_new_top_key_of_five_times_the_usual_is_found_in_minutes() {
    all_within(&found_after("top_key", &["busy", "quiet"]), LATEST);
}

#[test]
fn a_daily_job_is_usual_after_three_days() {
    for seed in 0..SEEDS.min(5) {
        let begun = begun(seed, DAYS, &[], true);
        let mut days: Vec<_> = begun.iter().filter(|(_, it)| it.rule == "busy").map(|(at, _)| at / DAY).collect();
        days.dedup();
        assert!(days.starts_with(&[0, 1, 2]), "{days:?}");
        assert!(days.iter().all(|day| *day < 3), "{days:?}");
    }
}

#[test]
fn the_figure_of_an_anomaly_that_goes_on_is_the_last_minutes() {
    let mut detector = Detector::new(2);
    let mut figures = |minute, limited| {
        let of = RuleMinute { limited, ..RuleMinute::default() };
        detector.minute(minute, BTreeMap::from([("login".to_owned(), of)]));
        detector.under_way.iter().map(|it| it.reading.found).collect::<Vec<_>>()
    };
    for minute in 0..10 {
        assert!(figures(minute, 100).is_empty());
    }
    assert_eq!((figures(10, 900), figures(11, 900), figures(12, 700)), (vec![], vec![900.0], vec![700.0]));
    for minute in 13..17 {
        assert_eq!(figures(minute, 90), [90.0]);
    }
    assert!(figures(17, 90).is_empty());
}

#[test]
fn slow_growth_is_found_at_six_times_the_level_of_last_week() {
    let mut detector = Detector::new(LEARN_MAX);
    let mut begun = None;
    for minute in 0..8 * DAY {
        // Doubles every two hours from the eighth day on.
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let limited = (100.0 * 2_f64.powf(minute.saturating_sub(7 * DAY) as f64 / 120.0)) as u64;
        let of = RuleMinute { limited, ..RuleMinute::default() };
        let changes = detector.minute(minute, BTreeMap::from([("login".to_owned(), of)]));
        if let Some(change) = changes.first() {
            begun.get_or_insert((minute - 7 * DAY, change.reading));
        }
    }
    let (after, reading) = begun.expect("it is found");
    assert!((280..330).contains(&after) && reading.found > 500.0, "{after} {reading:?}");
}

#[test]
fn a_level_that_lasts_for_days_begins_and_ends_once() {
    let (mut detector, mut turns) = (Detector::new(LEARN_MAX), Vec::new());
    for minute in 0..7 * DAY {
        let limited = if (3 * DAY..6 * DAY).contains(&minute) { 5_000 } else { 100 };
        let of = RuleMinute { limited, ..RuleMinute::default() };
        let changes = detector.minute(minute, BTreeMap::from([("login".to_owned(), of)]));
        let rate = changes.into_iter().filter(|change| change.kind == "rate");
        turns.extend(rate.map(|change| (minute / DAY, change.phase == Phase::Begins)));
    }
    assert_eq!(turns, [(3, true), (4, false)]);
}

#[test]
fn rules_without_reports_are_forgotten_and_bounded() {
    let mut detector = Detector::new(LEARN_MAX);
    let many = (0..2 * RULES_MAX).map(|n| (n.to_string(), RuleMinute { limited: 1, ..RuleMinute::default() }));
    detector.minute(0, many.collect());
    assert_eq!(detector.rules.len(), RULES_MAX);
    detector.minute(KEPT_MINUTES, BTreeMap::new());
    assert!(detector.rules.is_empty());
}

#[test]
fn alarms_begin_once_the_set_minutes_are_learned() {
    let after = |learn| {
        let mut detector = Detector::new(learn);
        let begun = (0..2 * DAY).find(|minute| {
            // An attack of three minutes every ten, by another key each time.
            let (limited, key) = if minute % 10 > 6 { (9_000, minute / 10) } else { (100, u64::MAX) };
            let top = Some((key.to_le_bytes().into(), limited));
            let of = RuleMinute { limited, top, ..RuleMinute::default() };
            let changes = detector.minute(*minute, BTreeMap::from([("login".to_owned(), of)]));
            ["rate", "top_key"].iter().all(|kind| changes.iter().any(|change| change.kind == *kind))
        });
        begun.expect("it is found")
    };
    assert_eq!([2, 12, 60].map(after), [8, 18, 68]);
}
