//! Targets: the table at the top of docs/reference/benchmarks.md, one row for each figure.

use std::fmt;

/// A figure that has a must and an aim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The figure's name.
    pub figure: &'static str,
    /// The value that it must reach.
    pub must: &'static str,
    /// The value that it should reach.
    pub aim: &'static str,
    limits: Limits,
}

/// The must and the aim as numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limits {
    /// At most this value.
    Below { must: f64, aim: f64 },
    /// At least this value.
    Above { must: f64, aim: f64 },
}

use Limits::{Above, Below};

/// A figure that is the better the smaller it is: its must and its aim, as the page has them and as numbers.
const fn at_most(figure: &'static str, [must, aim]: [&'static str; 2], numbers: [f64; 2]) -> Target {
    Target { figure, must, aim, limits: Below { must: numbers[0], aim: numbers[1] } }
}

/// The same of one that is the better the larger it is.
const fn at_least(figure: &'static str, [must, aim]: [&'static str; 2], numbers: [f64; 2]) -> Target {
    Target { figure, must, aim, limits: Above { must: numbers[0], aim: numbers[1] } }
}

/// The dynamic module beside Envoy's own filter.
pub const MODULE_FLEET: Target =
    at_most("native module : local_ratelimit, added CPU, allowed, in a fleet", ["1.2", "0.8"], [1.2, 0.8]);
/// The same, rotating.
pub const MODULE_ROTATING: Target = at_most("the same, 100,000 addresses", ["1.2", "0.9"], [1.2, 0.9]);
/// The same, in a flood.
pub const MODULE_LIMITED: Target = at_most("the same, 429 in all", ["1.05", "0.97"], [1.05, 0.97]);
/// The module beside a round trip for each request.
pub const CENTRAL_BUSY: Target = at_least(
    "central service on Redis (all processes, saturated) : native module, added CPU",
    ["15", "30"],
    [15.0, 30.0],
);
/// The same if no other request shares the way.
pub const CENTRAL_ALONE: Target = at_least("the same, one request at a time", ["60", "100"], [60.0, 100.0]);
/// The wasm module beside Envoy's own filter.
pub const WASM_FLEET: Target = at_most("wasm : local_ratelimit, allowed, in a fleet", ["3.5", "3.0"], [3.5, 3.0]);
/// Beside a filter that does nothing.
pub const ABOVE_EMPTY: Target = at_most("wasm above the empty wasm filter, in a fleet", ["0.3", "0.1"], [0.3, 0.1]);
/// Beside Envoy's own filter, in a flood.
pub const WASM_LIMITED: Target = at_most("wasm 429 in all : native's", ["1.25", "1.18"], [1.25, 1.18]);
/// The core alone. Its number is nanoseconds; the aim is measured with it.
pub const NATIVE: Target =
    at_most("native decision, 10,000 addresses in turn, no host", ["60 ns", "governor's of the same run"], [60.0, 0.0]);
/// More rules.
pub const FOUR_RULES: Target = at_most("four rules : one (native module)", ["1.5", "1.3"], [1.5, 1.3]);
/// More workers.
pub const TWO_WORKERS: Target =
    at_most("two workers on one hot key : one (native module)", ["1.15", "1.0"], [1.15, 1.0]);
/// weir-sync alone. Its number is keys a second.
pub const SYNC_MEMORY: Target =
    at_least("weir-sync, memory store, keys/s per core", ["1,000,000", "2,000,000"], [1_000_000.0, 2_000_000.0]);
/// Its store. Its number is microseconds.
pub const REDIS_KEY: Target = at_most("Redis CPU per charged key", ["12 us", "7 us"], [12.0, 7.0]);
/// The same where many POPs are asked for one key.
pub const REDIS_COUNT: Target =
    at_most("one key at ten POPs of a region: Redis CPU per count", ["6 us", "3 us"], [6.0, 3.0]);
/// Bytes of the module.
pub const WASM_BYTES: Target = at_most("wasm module", ["384 KB", "250 KB"], [393_216.0, 256_000.0]);
/// More rules, in wasm.
pub const WASM_FOUR: Target = at_most("four rules of two keys : one rule (wasm)", ["1.6", "1.3"], [1.6, 1.3]);
/// More workers, in wasm.
pub const WASM_TWO: Target =
    at_most("two workers, one hot key : one worker, per request (wasm)", ["1.3", "1.1"], [1.3, 1.1]);
/// weir-sync beside its store.
pub const SYNC_REDIS: Target =
    at_least("weir-sync on Redis : a bare client, same script and pipelining", ["0.7", "0.9"], [0.7, 0.9]);
/// More stores. Its number is the ratio of keys per second of all CPU time.
pub const SYNC_CLUSTER: Target = at_least(
    "a Redis Cluster of three masters : one Redis, keys per second of all CPU used",
    ["0.8", "1.0"],
    [0.8, 1.0],
);
/// The evenness of their work.
pub const SYNC_EVEN: Target =
    at_most("calls of the busiest of three masters : a third of all", ["1.10", "1.05"], [1.1, 1.05]);
/// Exact checks. Its number is the ratio of checks per second of CPU time, the service's and Redis's.
pub const GATEWAY_STRICT: Target = at_least(
    "gateway, strict : minimal service on Redis, checks per second of CPU, Redis's included",
    ["1.0", "2.0"],
    [1.0, 2.0],
);
/// Checks that are not exact, the same.
pub const GATEWAY_PLAIN: Target =
    at_least("gateway, not strict : limitador on Redis, the same", ["5", "10"], [5.0, 10.0]);
/// Bytes of an entry.
pub const ADDRESS: Target = at_most("tracked address in the table", ["48 B", "32 B"], [48.0, 32.0]);
/// Envoy's memory.
pub const RESIDENT: Target =
    at_most("resident memory after ten million addresses : after one million", ["1.02", "1.00"], [1.02, 1.0]);
/// Every row, in order.
pub const TARGETS: [Target; 24] = [
    MODULE_FLEET,
    MODULE_ROTATING,
    MODULE_LIMITED,
    CENTRAL_BUSY,
    CENTRAL_ALONE,
    WASM_FLEET,
    ABOVE_EMPTY,
    WASM_LIMITED,
    NATIVE,
    FOUR_RULES,
    TWO_WORKERS,
    SYNC_MEMORY,
    REDIS_KEY,
    REDIS_COUNT,
    WASM_BYTES,
    WASM_FOUR,
    WASM_TWO,
    SYNC_REDIS,
    SYNC_CLUSTER,
    SYNC_EVEN,
    GATEWAY_STRICT,
    GATEWAY_PLAIN,
    ADDRESS,
    RESIDENT,
];

/// The result of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// Not as far as it must.
    Short,
    /// As far as it must, not as it should.
    Must,
    /// As far as it should.
    Aim,
}

impl Word {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Short, Self::Must, Self::Aim];
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "falls short",
            Self::Must => "the must",
            Self::Aim => "the aim",
        })
    }
}

/// A row that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    target: Target,
    text: String,
    word: Word,
}

impl Target {
    /// It reached `value`, written as `text`. What is no number falls short.
    pub fn reached(self, value: f64, text: impl Into<String>) -> Reached {
        let (is_must, is_aim) = match self.limits {
            Below { must, aim } => (value <= must, value <= aim),
            Above { must, aim } => (value >= must, value >= aim),
        };
        let word = match (is_must, is_aim) {
            (_, true) => Word::Aim,
            (true, false) => Word::Must,
            (false, false) => Word::Short,
        };
        Reached { target: self, text: text.into(), word }
    }

    /// The same, where the aim is `aim`, which was measured too.
    pub fn reached_beside(self, value: f64, aim: f64, text: impl Into<String>) -> Reached {
        let limits = match self.limits {
            Below { must, .. } => Below { must, aim },
            Above { must, .. } => Above { must, aim },
        };
        Reached { target: self, ..Self { limits, ..self }.reached(value, text) }
    }

    /// The row's cells that never change, as they begin its line.
    pub fn cells(&self) -> String {
        format!("| {} | {} | {} |", self.figure, self.must, self.aim)
    }
}

impl Reached {
    /// The target that it reached.
    pub fn word(&self) -> Word {
        self.word
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} | {} |", self.target.cells(), self.text, self.word)
    }
}

/// `table` with the rows that were `reached`; the others stay. None where a row is missing.
pub fn filled(table: &str, reached: &[Reached]) -> Option<String> {
    let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
    for row in reached {
        let cells = row.target.cells();
        *lines.iter_mut().find(|line| line.starts_with(&cells))? = row.to_string();
    }
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_reaches_the_aim_the_must_or_neither() {
        let words = |target: Target, values: [f64; 3]| values.map(|value| target.reached(value, "").word());
        let each = [Word::Aim, Word::Must, Word::Short];
        assert_eq!(words(MODULE_FLEET, [0.8, 1.2, 1.21]), each);
        assert_eq!(words(SYNC_REDIS, [0.9, 0.7, 0.69]), each);
        // An aim may be measured, too.
        assert_eq!(NATIVE.reached(20.0, "").word(), Word::Must);
        assert_eq!(NATIVE.reached_beside(61.0, 65.0, "").word(), Word::Aim);
        for target in TARGETS {
            assert_eq!(target.reached(f64::NAN, "").word(), Word::Short, "{target:?}");
        }
    }
}
