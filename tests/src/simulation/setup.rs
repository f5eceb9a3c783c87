//! The size of a world, its rules, its links and its clocks.

use std::fmt::Write as _;
use std::sync::Arc;

use fastrand::Rng;
use weir_budget::divide::GrantSettings;
use weir_budget::report_limits::KnownRule;
use weir_limiter::table::slot::KEYS_PER_SLOT;
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::RuleSet;
use weir_rules::config::PluginConfig;

use super::lies::{Lie, known_rules};

/// A rule as an operator writes it.
#[derive(Clone, Debug)]
pub struct RuleText {
    pub name: String,
    /// The beginning of the paths that it counts; `None`: it counts all.
    pub path: Option<&'static str>,
    /// As it is written: `100/s`; empty if it is not.
    pub rate: String,
    /// In tokens; 0 if it is not written.
    pub burst: u32,
    /// The bits of the client's address that its key keeps; with 0, all clients share one bucket. Worlds that are
    /// compared with an ideal limiter in stretches keep all bits.
    pub bits: u8,
    /// Further fields, as JSON: `"strict": true`.
    pub options: String,
}

impl Default for RuleText {
    /// The design's: 100/s, burst 100, for every request.
    fn default() -> Self {
        Self { name: "r0".into(), path: None, rate: "100/s".into(), burst: 100, bits: 32, options: String::new() }
    }
}

impl RuleText {
    /// The design's rule with further fields.
    pub fn with(options: &str) -> Self {
        Self { options: options.into(), ..Self::default() }
    }

    fn json(&self) -> String {
        let Self { name, path, rate, burst, bits, options } = self;
        let key = match bits {
            0 => r#""all""#.into(),
            _ => format!(r#"{{"client_address": {{"ipv4": {bits}}}}}"#),
        };
        let mut text = format!(r#"{{"name": "{name}", "key": [{key}]"#);
        if !rate.is_empty() {
            let _ = write!(text, r#", "rate": "{rate}""#);
        }
        if *burst > 0 {
            let _ = write!(text, r#", "burst": {burst}"#);
        }
        if let Some(path) = path {
            let _ = write!(text, r#", "match": {{"path": {{"prefix": "{path}"}}}}"#);
        }
        if !options.is_empty() {
            let _ = write!(text, ", {options}");
        }
        text + "}"
    }
}

/// The lengths of requests that were let through, and the costs in their responses.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// At most, in nanoseconds.
    pub lasts_ns: u64,
    /// At most, in tokens.
    pub cost: u32,
}

/// The option of a rule under which requests state their cost; without it, each costs one token.
pub const BY_COST: &str = r#""cost": {"header": "x-cost"}"#;

/// The paths of requests; a rule's `path` chooses among them.
pub const PATHS: [&str; 3] = ["/", "/a", "/b"];

/// A world's size and nature.
#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    /// The name of the run in a violated invariant, beside the seed.
    pub scenario: String,
    /// The rules, the same at every POP.
    pub rules: Vec<RuleText>,
    /// Clients; each is a key of every rule. Requests of further clients are not accounted for.
    pub keys: u32,
    /// POPs, dealt out to the regions in turn.
    pub pops: usize,
    pub regions: usize,
    /// weir-syncs of a region; a POP's reports go to each in turn.
    pub syncs_per_region: usize,
    pub workers: usize,
    /// Edges of a POP that report for all of its workers: one if these share a program's memory, else none.
    pub reporters: usize,
    pub slots: u32,
    /// Between two reports of a worker, in nanoseconds.
    pub interval_ns: u64,
    /// Time that a report waits for its answer, in nanoseconds.
    pub timeout_ns: u64,
    /// Time that a weir-sync waits for the store, in nanoseconds.
    pub store_timeout_ns: u64,
    /// Between a POP and its weir-sync.
    pub near: Link,
    /// Between a weir-sync and the store.
    pub far: Link,
    pub drift_ppm_max: u32,
    pub terms: GrantSettings,
    /// The most tokens above burst + rate x t, if it is not the documented bound.
    pub bound_max: Option<f64>,
    /// True if requests are accounted for, key by key; false if there are too many keys.
    pub is_accounted: bool,
    /// Rule sets that operators put, and when, in nanoseconds from the begin of the traffic.
    pub puts: Vec<(u64, Vec<RuleText>)>,
    /// When an operator resets the first client under the first rule, at the first weir-sync, in nanoseconds from the
    /// begin of the traffic.
    pub reset_at: Option<u64>,
    /// The first POP's lie, and its span, in nanoseconds from the begin of the traffic. Then the
    /// charges are not compared with the admissions.
    pub lie: Option<(Lie, [u64; 2])>,
    /// The time of wall clocks at first, in microseconds since 1970.
    pub begins_us: u64,
    /// True if the outcome of each request is kept.
    pub keeps_log: bool,
    /// The ends of requests whose cost the response states; without it, none ever does.
    pub ends: Option<Ends>,
    /// True if the time of every admission is kept.
    pub keeps_times: bool,
    /// Windows that begin sooner than this after the traffic do not count, in nanoseconds.
    pub settle_ns: u64,
}

impl Default for Setup {
    /// The setting of the design: 250 ms, a round trip of 100 ms, 1 % loss, 100/s, burst 100.
    fn default() -> Self {
        Self {
            seed: 1,
            scenario: String::new(),
            rules: vec![RuleText::default()],
            keys: 1,
            pops: 3,
            regions: 3,
            syncs_per_region: 1,
            workers: 1,
            reporters: 0,
            slots: 1,
            interval_ns: SECOND_NS / 4,
            timeout_ns: SECOND_NS,
            store_timeout_ns: SECOND_NS / 2,
            near: Link { delay_ns: 8_000_000, jitter_ns: 4_000_000, loss: 0.01, duplication: 0.01 },
            far: Link { delay_ns: 38_000_000, jitter_ns: 4_000_000, loss: 0.0, duplication: 0.0 },
            drift_ppm_max: 50,
            terms: GrantSettings::default(),
            bound_max: None,
            is_accounted: true,
            puts: Vec::new(),
            reset_at: None,
            lie: None,
            begins_us: BEGINS_US,
            keeps_log: false,
            ends: None,
            keeps_times: false,
            settle_ns: 2 * SECOND_NS,
        }
    }
}

impl Setup {
    /// The configuration of the POP `name`, as an operator writes it.
    pub fn configuration(&self, name: &str) -> String {
        let rules: Vec<_> = self.rules.iter().map(RuleText::json).collect();
        let (rules, interval_ms) = (rules.join(", "), self.interval_ns / 1_000_000);
        let timeout_ms = self.timeout_ns / 1_000_000;
        let addresses = self.slots as usize * KEYS_PER_SLOT;
        format!(
            r#"{{"rules": [{rules}], "table": {{"addresses": {addresses}}},
                "sync": {{"cluster": "weir-sync", "pop": "{name}", "interval_ms": {interval_ms},
                    "timeout_ms": {timeout_ms}}}}}"#
        )
    }

    /// A rule set that is put, as weir-sync keeps it.
    pub fn document(rules: &[RuleText]) -> String {
        let rules: Vec<_> = rules.iter().map(RuleText::json).collect();
        format!(r#"{{"rules": [{}]}}"#, rules.join(", "))
    }

    /// The rules, read as a plugin reads its configuration.
    pub fn rule_set(&self) -> Result<Arc<RuleSet>, String> {
        match PluginConfig::parse(self.configuration("pop").as_bytes()) {
            Ok(config) => Ok(config.rules),
            Err(errors) => Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
        }
    }

    /// The rules that POPs may report: their own, and those that are put.
    pub fn known_rules(&self) -> Result<Vec<KnownRule>, String> {
        let sets = self.puts.iter().map(|(_, rules)| Self { rules: rules.clone(), ..self.clone() }.rule_set());
        let sets: Result<Vec<_>, _> = sets.chain([self.rule_set()]).collect();
        Ok(sets?.iter().flat_map(|rules| known_rules(rules)).collect())
    }

    pub fn accounts_for(&self, key: u32) -> bool {
        self.is_accounted && key < self.keys
    }

    /// The rules that count a request for `path`, by their place.
    pub fn rules_of(&self, path: u8) -> Vec<usize> {
        let path = PATHS[usize::from(path)];
        let counts = |rule: &&RuleText| rule.path.is_none_or(|prefix| path.starts_with(prefix));
        self.rules.iter().enumerate().filter(|(_, rule)| counts(rule)).map(|(i, _)| i).collect()
    }
}

/// The behaviour of a link that carries messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The shortest time one way, in nanoseconds.
    pub delay_ns: u64,
    /// The longest additional time, in nanoseconds. If that is more than messages are apart, they overtake each other.
    pub jitter_ns: u64,
    /// The part of messages that are lost.
    pub loss: f64,
    /// The part of messages that arrive twice.
    pub duplication: f64,
}

/// After how long each copy of a message arrives: none, one or two.
pub type Arrivals = [Option<u64>; 2];

impl Link {
    /// A link that only takes its time.
    pub const fn perfect(delay_ns: u64) -> Self {
        Self { delay_ns, jitter_ns: 0, loss: 0.0, duplication: 0.0 }
    }

    /// After how long each copy of a message arrives, in nanoseconds.
    pub fn arrivals(&self, rng: &mut Rng) -> Arrivals {
        if rng.f64() < self.loss {
            return [None; 2];
        }
        let twice = rng.f64() < self.duplication;
        let first = self.delay_ns + rng.u64(0..=self.jitter_ns);
        let second = twice.then(|| self.delay_ns + rng.u64(0..=self.jitter_ns));
        [Some(first), second]
    }
}

/// All links of a world.
#[derive(Clone, Debug)]
pub struct Network {
    /// Between a POP and its weir-sync.
    pub near: Link,
    /// Between a weir-sync and the store.
    pub far: Link,
    /// POPs that do not reach their weir-sync.
    pub cut_pops: Vec<bool>,
    /// Until when each POP's link is silent, in simulated nanoseconds: whatever is sent before arrives after it.
    pub silent_until: Vec<u64>,
    /// Regions that do not reach the store.
    pub cut_regions: Vec<bool>,
}

impl Network {
    pub fn new(near: Link, far: Link, pops: usize, regions: usize) -> Self {
        let (cut_pops, silent_until) = (vec![false; pops], vec![0; pops]);
        Self { near, far, cut_pops, silent_until, cut_regions: vec![false; regions] }
    }

    /// A message between `pop` and its weir-sync, sent at `now`.
    pub fn near(&self, pop: usize, now: u64, rng: &mut Rng) -> Arrivals {
        let held_ns = self.silent_until[pop].saturating_sub(now);
        let arrivals = if self.cut_pops[pop] { [None; 2] } else { self.near.arrivals(rng) };
        arrivals.map(|arrival| arrival.map(|delay_ns| held_ns + delay_ns))
    }

    /// A message between a weir-sync of `region` and the store.
    pub fn far(&self, region: usize, rng: &mut Rng) -> Arrivals {
        if self.cut_regions[region] { [None; 2] } else { self.far.arrivals(rng) }
    }
}

/// The earliest that clocks begin: well above zero, so that they can step back.
const ORIGIN_NS_MIN: u64 = 1 << 50;
/// The begin of wall clocks by default, in microseconds since 1970.
pub const BEGINS_US: u64 = 1 << 50;
const PARTS_PER_MILLION: i128 = 1_000_000;

/// A monotonic clock, as a process sees it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin_ns: u64,
    drift_ppm: i32,
    offset_ns: i64,
}

impl Clock {
    /// A clock with an origin of its own that drifts by at most `drift_ppm_max`.
    pub fn random(drift_ppm_max: u32, rng: &mut Rng) -> Self {
        let most = i32::try_from(drift_ppm_max).unwrap_or(i32::MAX);
        Self { origin_ns: ORIGIN_NS_MIN + rng.u64(0..1 << 50), drift_ppm: rng.i32(-most..=most), offset_ns: 0 }
    }

    /// Its time when `now_ns` have truly passed.
    pub fn at(&self, now_ns: u64) -> Time {
        let drifted = i128::from(now_ns) * (PARTS_PER_MILLION + i128::from(self.drift_ppm)) / PARTS_PER_MILLION;
        let read = i128::from(self.origin_ns) + drifted + i128::from(self.offset_ns);
        Time::from_nanos(u64::try_from(read).unwrap_or(0))
    }

    /// Its time then if it had never jumped.
    pub fn undisturbed(&self, now_ns: u64) -> Time {
        Self { offset_ns: 0, ..*self }.at(now_ns)
    }

    /// Jumps by this many nanoseconds.
    pub fn jump(&mut self, by_ns: i64) {
        self.offset_ns += by_ns;
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock {
    begins_us: u64,
    offset_us: i64,
}

impl WallClock {
    /// One that reads this at first, in microseconds since 1970.
    pub fn beginning(begins_us: u64) -> Self {
        Self { begins_us, offset_us: 0 }
    }

    /// Its time when `now_ns` have truly passed, in microseconds.
    pub fn at_us(&self, now_ns: u64) -> u64 {
        (self.begins_us + now_ns / 1_000).saturating_add_signed(self.offset_us)
    }

    /// Jumps by this many microseconds.
    pub fn jump(&mut self, by_us: i64) {
        self.offset_us += by_us;
    }
}
