//! Worlds drawn from a seed: any size, any rules, any traffic, any faults. They must keep the invariants, and admit
//! what an ideal limiter would, as far as [`super::expected`] can predict that.

use std::fmt::Write as _;

use fastrand::Rng;
use weir_budget::divide::GrantSettings;
use weir_protocol::time::SECOND_NS;

use super::features::{Feature, For};
use super::scenario::{self, Plan};
use super::setup::{BY_COST, Link, PATHS, RuleText, Setup};
use super::shapes::{Asking, Shape, log_uniform};
use super::trials::Trial;
use super::{expected, faults, pushes, traffic};

/// The SCENARIO that stands for these worlds.
pub const NAME: &str = "random world";
/// The shortest and the longest that traffic lasts, in seconds.
const SECONDS: [u64; 2] = [30, 120];
/// It lasts until this many tokens have refilled, if that is in between.
const TOKENS: f64 = 600.0;
/// Time for which the world goes on after it, in seconds.
const DRAIN_SECONDS: u64 = 30;
/// The seconds at the end of traffic that have no faults.
const QUIET_SECONDS: u64 = 14;
/// The most requests of a world.
const REQUESTS_MAX: f64 = 60_000.0;
/// The numbers of workers that the POPs of a world may have.
const WORKERS: [usize; 3] = [1, 2, 8];
/// The most faults of a world.
const FAULTS_MAX: usize = 8;

/// A world that was drawn.
pub struct Drawn {
    pub plan: Plan,
    pub(super) clients: Vec<Asking>,
    /// The mechanism that it tries, if it tries one.
    pub(super) trial: Option<Trial>,
    /// The feature that it tries beside quotas.
    pub(super) feature: Option<Feature>,
}

pub fn drawn(seed: u64) -> Drawn {
    // Not the world's own generator, which begins with the seed itself.
    let mut rng = Rng::with_seed(!seed);
    let pops = rng.usize(1..=12);
    let per_second = log_uniform(1.0, 2_000.0, &mut rng).round();
    let burst = (per_second * log_uniform(0.1, 10.0, &mut rng)).round().clamp(10.0, 10_000.0);
    let (burst, seconds) = (burst as u32, (TOKENS / per_second) as u64);
    let seconds = seconds.clamp(SECONDS[0], SECONDS[1]);
    let regions = rng.usize(1..=pops.min(4));
    let sharing = Sharing::random(pops, regions, burst, &mut rng);
    let mut rules = vec![rule("r0", None, per_second, burst, &sharing.text(), &mut rng)];
    match rng.u8(0..9) {
        0..3 if sharing == Sharing::Plain => {
            let part = log_uniform(0.2, 2.0, &mut rng);
            rules.push(rule("r1", Some(PATHS[1]), (per_second * part).ceil(), burst, "", &mut rng));
        }
        3..5 if sharing == Sharing::Plain => {
            let mut wider = per_second;
            for name in ["r1", "r2"] {
                wider = (wider * log_uniform(1.0, 3.0, &mut rng)).ceil();
                rules.push(rule(name, None, wider, burst, "", &mut rng));
            }
        }
        _ => {}
    }
    // As many as one slot of a table can watch under all rules.
    let keys = rng.u32(1..=if rules.len() > 2 { 2 } else { 3 });
    let interval_ns = [100_000_000, 250_000_000, 500_000_000][rng.usize(0..3)];
    let (near, far) = links(&mut rng);
    let mut setup = Setup {
        seed,
        scenario: NAME.into(),
        rules,
        keys,
        pops,
        regions,
        syncs_per_region: rng.usize(1..=2),
        workers: WORKERS[rng.usize(0..WORKERS.len())],
        slots: rng.u32(1..=3),
        interval_ns,
        near,
        far,
        drift_ppm_max: 200,
        ..Setup::default()
    };
    // Drawn by nothing, so that the other worlds stay as they are.
    setup.reporters = usize::from(setup.workers > 1 && seed % 2 == 1);
    // If a POP reports to each of two weir-syncs seldom or late, a client that moves is still counted where it was.
    if setup.round_trip_ns() > interval_ns || interval_ns > SECOND_NS / 4 {
        setup.syncs_per_region = 1;
    }
    setup.terms = GrantSettings { interval_ns: interval_ns + setup.round_trip_ns(), ..setup.terms };
    setup.store_timeout_ns = setup.store_timeout_ns.max(2 * setup.round_trip_ns());
    // A POP waits for a weir-sync that waits for its store.
    setup.timeout_ns = setup.timeout_ns.max(setup.store_timeout_ns + 2 * (near.delay_ns + near.jitter_ns));
    let most = REQUESTS_MAX / f64::from(keys) / seconds as f64;
    let shape = |_| match sharing {
        Sharing::Floor => Shape::floor(per_second, regions, most, &mut rng),
        _ => Shape::random(per_second, burst, pops, most, &mut rng),
    };
    let mut shapes: Vec<_> = (0..keys).map(shape).collect();
    let count = match rng.u8(0..10) {
        0..4 => 0,
        4..7 => rng.usize(1..=2),
        _ => rng.usize(1..=FAULTS_MAX),
    };
    let is_feature = Feature::is_tried(seed);
    let trial = if is_feature { None } else { Trial::random(&setup, sharing, &mut rng) };
    let seconds = seconds.max(trial.map_or(0, Trial::seconds) + QUIET_SECONDS);
    let until = (seconds - QUIET_SECONDS) * SECOND_NS;
    let mut faults = match trial {
        Some(trial) => trial.draw(&mut setup, &mut shapes, (per_second, burst, most), until, &mut rng),
        None => faults::random(&setup, count, SECOND_NS, until, &mut rng),
    };
    let is_dear = matches!(trial, Some(Trial::Dear | Trial::DearAtOne));
    let is_cheap = matches!(trial, Some(Trial::SmallBurst | Trial::AloneAgain | Trial::Silent));
    let has_costs = sharing == Sharing::Plain && rng.u8(0..4) == 0 && !is_cheap || is_dear;
    if has_costs {
        let options = &mut setup.rules[0].options;
        *options = format!("{options}, {BY_COST}");
    }
    let asking = |shape| {
        let cost = if is_dear {
            setup.rules[0].burst / 2
        } else if has_costs {
            rng.u32(1..=burst / 2)
        } else {
            1
        };
        // With a second rule, what a mix is admitted under one depends on which of its requests pass the other.
        Asking { shape, cost, is_mixed: cost > 1 && setup.rules.len() == 1 && !is_dear && rng.bool() }
    };
    let mut clients: Vec<_> = shapes.into_iter().map(asking).collect();
    let mut paths: Vec<_> = clients.iter().map(|_| rng.u8(0..2)).collect();
    let of = For { rate: per_second, burst, most, seconds, until };
    let feature = is_feature.then(|| Feature::draw(&mut setup, &mut clients, &mut faults, of));
    // A further client is only for the rule that is put.
    paths.resize(clients.len(), pushes::PATH);
    let asking = (0..).zip(&clients).zip(paths);
    let of = |((key, asking), path): ((u32, &Asking), u8)| traffic::of(key, path, asking.traffic(setup.pops));
    let traffic = asking.map(of).collect();
    let traffic = traffic::merged(traffic);
    let compares = feature.as_ref().is_none_or(Feature::compares);
    let plan = Plan { setup, traffic, faults, seconds, drain_seconds: DRAIN_SECONDS, compares };
    Drawn { plan, clients, trial, feature }
}

/// The POPs' sharing of the first rule's quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sharing {
    /// As POPs do by default.
    Plain,
    Strict,
    /// Region 0 has a floor.
    Floor,
    /// A POP gives this many tokens before the fleet knows a key.
    LocalBurst(u32),
}

/// The floor of region 0, in hundredths.
pub(super) const FLOOR_PERCENT: u8 = 30;

impl Sharing {
    fn random(pops: usize, regions: usize, burst: u32, rng: &mut Rng) -> Self {
        match rng.u8(0..10) {
            0 => Self::Strict,
            1 if regions > 1 => Self::Floor,
            2 | 3 if pops > 1 => Self::LocalBurst(rng.u32(burst.div_ceil(20)..=burst)),
            _ => Self::Plain,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Plain => String::new(),
            Self::Strict => r#", "strict": true"#.into(),
            Self::Floor => format!(r#", "min_share": {{"region-0": {FLOOR_PERCENT}}}"#),
            Self::LocalBurst(tokens) => format!(r#", "local_burst": {tokens}"#),
        }
    }
}

fn rule(name: &str, path: Option<&'static str>, per_second: f64, burst: u32, more: &str, rng: &mut Rng) -> RuleText {
    let is_strict = more.contains("strict");
    // A strict rule that may go on without its budget has no bound of zero.
    let when = if is_strict { "deny" } else { ["local", "share", "deny"][rng.usize(0..3)] };
    let options = format!(r#""on_sync_loss": "{when}"{more}"#);
    RuleText { name: name.into(), path, rate: format!("{per_second}/s"), burst, options, ..RuleText::default() }
}

/// Between a POP and its weir-sync, and between that and the store: 5 to 800 ms there and back.
fn links(rng: &mut Rng) -> (Link, Link) {
    let one_way_ns = log_uniform(2.5e6, 400e6, rng);
    let near_part = rng.f64() * 0.3;
    let link = |part: f64, loss: f64| {
        let delay_ns = (one_way_ns * part * 0.9) as u64;
        Link { delay_ns, jitter_ns: delay_ns / 9, loss, duplication: loss }
    };
    (link(near_part, 0.01), link(1.0 - near_part, 0.0))
}

/// Runs the world of a seed; an error has the violation, and the command that repeats it.
pub fn check(seed: u64) -> Result<(), String> {
    scenario::caught(|| {
        let Drawn { plan, clients, trial, feature } = drawn(seed);
        let (faults, end) = (plan.faults.clone(), plan.seconds * SECOND_NS);
        let world = scenario::run(plan)?;
        expected::check(&world, &clients);
        expected::check_apart(&world, &clients);
        if let Some(trial) = trial {
            expected::check_trial(&world, trial, &faults, &clients);
        }
        if let Some(feature) = feature {
            feature.check(&world, &faults, &clients, end);
        }
        Ok(())
    })
}

/// The world of a seed as text: its size, its rules and clients, and what goes wrong when.
pub fn described(seed: u64) -> String {
    let Drawn { plan: Plan { setup, faults, seconds, .. }, clients, trial, feature } = drawn(seed);
    let Setup { rules, pops, regions, syncs_per_region, workers, reporters, interval_ns, .. } = &setup;
    let and_one = if *reporters > 0 { " and an edge that reports for them" } else { "" };
    let mut text = format!(
        "{pops} POPs of {workers} workers{and_one}, {regions} regions of {syncs_per_region} weir-syncs, {seconds} s, \
         every {} ms, {} ms to the store and back",
        interval_ns / 1_000_000,
        setup.round_trip_ns() / 1_000_000
    );
    if let Some(trial) = trial {
        let _ = write!(text, "\n  tries {trial:?}");
    }
    if let Some(feature) = feature {
        let _ = write!(text, "\n  tries {feature:?}");
    }
    for RuleText { name, path, rate, burst, options, .. } in rules {
        let _ = write!(text, "\n  {name}: {rate}, burst {burst}, path {}, {options}", path.unwrap_or(PATHS[0]));
    }
    for (key, asking) in clients.iter().enumerate() {
        let _ = write!(text, "\n  client {key}: {asking:?}");
    }
    for (at, fault) in faults {
        let _ = write!(text, "\n  at {:>5} ms {fault:?}", at / 1_000_000);
    }
    text
}
