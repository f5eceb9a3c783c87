//! Targets: the table at the top of docs/reference/benchmarks.md, one row for each figure.

use std::fmt;

/// A figure that has a must and an aim, as the page has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The figure's name.
    pub figure: &'static str,
    /// The value that it must reach.
    pub must: &'static str,
    /// The value that it should reach.
    pub aim: &'static str,
    /// True if it is the better the larger it is.
    is_least: bool,
}

const fn at_most(figure: &'static str, must: &'static str, aim: &'static str) -> Target {
    Target { figure, must, aim, is_least: false }
}

const fn at_least(figure: &'static str, must: &'static str, aim: &'static str) -> Target {
    Target { figure, must, aim, is_least: true }
}

pub(crate) const MODULE_FLEET: Target =
    at_most("native module : local_ratelimit, added CPU, allowed, in a fleet", "1.2", "0.8");
pub(crate) const MODULE_ROTATING: Target = at_most("the same, 100,000 addresses", "1.2", "0.9");
pub(crate) const MODULE_LIMITED: Target = at_most("the same, 429 in all", "1.05", "0.97");
pub(crate) const CENTRAL_BUSY: Target =
    at_least("central service on Redis (all processes, saturated) : native module, added CPU", "15", "30");
pub(crate) const CENTRAL_ALONE: Target = at_least("the same, one request at a time", "60", "100");
pub(crate) const WASM_FLEET: Target = at_most("wasm : local_ratelimit, allowed, in a fleet", "3.5", "3.0");
pub(crate) const ABOVE_EMPTY: Target = at_most("wasm above the empty wasm filter, in a fleet", "0.3", "0.1");
pub(crate) const WASM_LIMITED: Target = at_most("wasm 429 in all : local_ratelimit's", "1.25", "1.18");
pub(crate) const NATIVE: Target =
    at_most("native decision, 10,000 addresses in turn, no host", "60 ns", "governor's of the same run");
pub(crate) const FOUR_RULES: Target = at_most("four rules : one (native module)", "1.5", "1.3");
pub(crate) const TWO_WORKERS: Target = at_most("two workers on one hot key : one (native module)", "1.15", "1.0");
pub(crate) const SYNC_MEMORY: Target = at_least("weir-sync, memory store, keys/s per core", "1,000,000", "2,000,000");
pub(crate) const REDIS_KEY: Target = at_most("Redis CPU per charged key", "12 us", "7 us");
pub(crate) const REDIS_COUNT: Target = at_most("one key at ten POPs of a region: Redis CPU per count", "6 us", "3 us");
pub(crate) const WASM_BYTES: Target = at_most("wasm module", "384 KB", "250 KB");
pub(crate) const WASM_FOUR: Target = at_most("four rules of two keys : one rule (wasm)", "1.6", "1.3");
pub(crate) const WASM_TWO: Target = at_most("two workers, one hot key : one worker, per request (wasm)", "1.3", "1.1");
pub(crate) const SYNC_CLUSTER: Target =
    at_least("a Redis Cluster of three masters : one Redis, keys per second of all CPU used", "0.8", "1.0");
pub(crate) const SYNC_EVEN: Target = at_most("calls of the busiest of three masters : a third of all", "1.10", "1.05");
pub(crate) const GATEWAY_STRICT: Target =
    at_least("gateway, strict : minimal service on Redis, checks per second of CPU, Redis's included", "1.0", "2.0");
pub(crate) const GATEWAY_PLAIN: Target = at_least("gateway, not strict : limitador on Redis, the same", "5", "10");
pub(crate) const ADDRESS: Target = at_most("tracked address in the table", "48 B", "32 B");

/// Every row, in order.
pub const TARGETS: [Target; 22] = [
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
    SYNC_CLUSTER,
    SYNC_EVEN,
    GATEWAY_STRICT,
    GATEWAY_PLAIN,
    ADDRESS,
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
    /// It reached `value`, in the unit of the must, written as `text`. What is no number falls short.
    pub fn reached(self, value: f64, text: impl Into<String>) -> Reached {
        self.reached_beside(value, number(self.aim), text)
    }

    /// The same, where the aim is `aim`, which was measured too.
    pub fn reached_beside(self, value: f64, aim: f64, text: impl Into<String>) -> Reached {
        let has_reached = |limit: f64| if self.is_least { value >= limit } else { value <= limit };
        let word = match (has_reached(number(self.must)), has_reached(aim)) {
            (_, true) => Word::Aim,
            (true, false) => Word::Must,
            (false, false) => Word::Short,
        };
        Reached { target: self, text: text.into(), word }
    }

    /// The row's cells that never change, as they begin its line.
    pub fn cells(&self) -> String {
        format!("| {} | {} | {} |", self.figure, self.must, self.aim)
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} | {} |", self.target.cells(), self.text, self.word)
    }
}

/// The number that a must or an aim begins with; no number if there is none.
fn number(text: &str) -> f64 {
    text.split(' ').next().unwrap_or_default().replace(',', "").parse().unwrap_or(f64::NAN)
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
