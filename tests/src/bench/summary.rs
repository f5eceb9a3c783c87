//! What must be reached: the table at the top of docs/reference/benchmarks.md, one row for each figure.

use std::fmt;

/// A figure that has a must and an aim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// What it is.
    pub figure: &'static str,
    /// What it must reach.
    pub must: &'static str,
    /// What it should.
    pub aim: &'static str,
    limits: Limits,
}

/// The must and the aim as numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limits {
    /// At most so much.
    Below { must: f64, aim: f64 },
    /// At least so much.
    Above { must: f64, aim: f64 },
}

use Limits::{Above, Below};

/// The dynamic module beside Envoy's own filter.
pub const MODULE_FLEET: Target = Target {
    figure: "native module : local_ratelimit, added CPU, allowed, in a fleet",
    must: "1.2",
    aim: "0.8",
    limits: Below { must: 1.2, aim: 0.8 },
};
/// The same, rotating.
pub const MODULE_ROTATING: Target = Target {
    figure: "the same, 100,000 addresses",
    must: "1.2",
    aim: "0.9",
    limits: Below { must: 1.2, aim: 0.9 },
};
/// The same, in a flood.
pub const MODULE_LIMITED: Target = Target {
    figure: "the same, 429 in all",
    must: "1.05",
    aim: "0.97",
    limits: Below { must: 1.05, aim: 0.97 },
};
/// The module beside a round trip for each request.
pub const CENTRAL_BUSY: Target = Target {
    figure: "central service on Redis (all processes, saturated) : native module, added CPU",
    must: "15",
    aim: "30",
    limits: Above { must: 15.0, aim: 30.0 },
};
/// The same if no other request shares the way.
pub const CENTRAL_ALONE: Target = Target {
    figure: "the same, one request at a time",
    must: "60",
    aim: "100",
    limits: Above { must: 60.0, aim: 100.0 },
};
/// The wasm module beside Envoy's own filter.
pub const WASM_FLEET: Target = Target {
    figure: "wasm : local_ratelimit, allowed, in a fleet",
    must: "3.5",
    aim: "3.0",
    limits: Below { must: 3.5, aim: 3.0 },
};
/// Beside a filter that does nothing.
pub const ABOVE_EMPTY: Target = Target {
    figure: "wasm above the empty wasm filter, in a fleet",
    must: "0.3",
    aim: "0.1",
    limits: Below { must: 0.3, aim: 0.1 },
};
/// Beside Envoy's own filter, in a flood.
pub const WASM_LIMITED: Target = Target {
    figure: "wasm 429 in all : native's",
    must: "1.25",
    aim: "1.18",
    limits: Below { must: 1.25, aim: 1.18 },
};
/// The core alone. Its number is nanoseconds; the aim is measured with it.
pub const NATIVE: Target = Target {
    figure: "native decision, 10,000 addresses in turn, no host",
    must: "60 ns",
    aim: "governor's of the same run",
    limits: Below { must: 60.0, aim: 0.0 },
};
/// More rules.
pub const FOUR_RULES: Target = Target {
    figure: "four rules : one (native module)",
    must: "1.5",
    aim: "1.3",
    limits: Below { must: 1.5, aim: 1.3 },
};
/// More workers.
pub const TWO_WORKERS: Target = Target {
    figure: "two workers on one hot key : one (native module)",
    must: "1.15",
    aim: "1.0",
    limits: Below { must: 1.15, aim: 1.0 },
};
/// weir-sync alone. Its number is keys a second.
pub const SYNC_MEMORY: Target = Target {
    figure: "weir-sync, memory store, keys/s per core",
    must: "1,000,000",
    aim: "2,000,000",
    limits: Above { must: 1_000_000.0, aim: 2_000_000.0 },
};
/// Its store. Its number is microseconds.
pub const REDIS_KEY: Target = Target {
    figure: "Redis CPU per charged key",
    must: "12 us",
    aim: "7 us",
    limits: Below { must: 12.0, aim: 7.0 },
};
/// The same where many POPs are asked for one key.
pub const REDIS_COUNT: Target = Target {
    figure: "one key at ten POPs of a region: Redis CPU per count",
    must: "6 us",
    aim: "3 us",
    limits: Below { must: 6.0, aim: 3.0 },
};
/// Bytes of the module.
pub const WASM_BYTES: Target = Target {
    figure: "wasm module",
    must: "384 KB",
    aim: "250 KB",
    limits: Below { must: 393_216.0, aim: 256_000.0 },
};
/// More rules, in wasm.
pub const WASM_FOUR: Target = Target {
    figure: "four rules of two keys : one rule (wasm)",
    must: "1.6",
    aim: "1.3",
    limits: Below { must: 1.6, aim: 1.3 },
};
/// More workers, in wasm.
pub const WASM_TWO: Target = Target {
    figure: "two workers, one hot key : one worker, per request (wasm)",
    must: "1.3",
    aim: "1.1",
    limits: Below { must: 1.3, aim: 1.1 },
};
/// weir-sync beside its store.
pub const SYNC_REDIS: Target = Target {
    figure: "weir-sync on Redis : a bare client, same script and pipelining",
    must: "0.7",
    aim: "0.9",
    limits: Above { must: 0.7, aim: 0.9 },
};
/// More stores. Its number is the ratio of keys per second of all CPU time.
pub const SYNC_CLUSTER: Target = Target {
    figure: "a Redis Cluster of three masters : one Redis, keys per second of all CPU used",
    must: "0.8",
    aim: "1.0",
    limits: Above { must: 0.8, aim: 1.0 },
};
/// How even their work is.
pub const SYNC_EVEN: Target = Target {
    figure: "calls of the busiest of three masters : a third of all",
    must: "1.10",
    aim: "1.05",
    limits: Below { must: 1.1, aim: 1.05 },
};
/// Exact checks. Its number is the ratio of checks per second of CPU time, the service's and Redis's.
pub const GATEWAY_STRICT: Target = Target {
    figure: "gateway, strict : minimal service on Redis, checks per second of CPU, Redis's included",
    must: "1.0",
    aim: "2.0",
    limits: Above { must: 1.0, aim: 2.0 },
};
/// Checks that are not exact, the same.
pub const GATEWAY_PLAIN: Target = Target {
    figure: "gateway, not strict : limitador on Redis, the same",
    must: "5",
    aim: "10",
    limits: Above { must: 5.0, aim: 10.0 },
};
/// Bytes of an entry.
pub const ADDRESS: Target = Target {
    figure: "tracked address in the table",
    must: "48 B",
    aim: "32 B",
    limits: Below { must: 48.0, aim: 32.0 },
};
/// Envoy's memory.
pub const RESIDENT: Target = Target {
    figure: "resident memory after ten million addresses : after one million",
    must: "1.02",
    aim: "1.00",
    limits: Below { must: 1.02, aim: 1.0 },
};
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

/// How far a figure got.
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
    /// It reached `value`; `text` says so. What is no number falls short.
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
    /// How far it got.
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
    fn a_figure_reaches_the_must_the_aim_or_neither() {
        let words = |target: Target, values: [f64; 3]| values.map(|value| target.reached(value, "").word());
        let each = [Word::Aim, Word::Must, Word::Short];
        assert_eq!(words(MODULE_FLEET, [0.8, 1.2, 1.21]), each);
        assert_eq!(words(SYNC_REDIS, [0.9, 0.7, 0.69]), each);
        assert_eq!(words(CENTRAL_BUSY, [31.0, 15.0, 14.0]), each);
    }

    #[test]
    fn what_is_no_number_falls_short() {
        for target in TARGETS {
            assert_eq!(target.reached(f64::NAN, "").word(), Word::Short, "{target:?}");
        }
    }

    #[test]
    fn an_aim_may_be_measured() {
        assert_eq!(NATIVE.reached(20.0, "").word(), Word::Must);
        assert_eq!(NATIVE.reached_beside(20.0, 25.0, "").word(), Word::Aim);
        assert_eq!(NATIVE.reached_beside(61.0, 65.0, "").word(), Word::Aim);
        assert!(NATIVE.reached_beside(20.0, 25.0, "x").to_string().starts_with(&NATIVE.cells()));
    }

    #[test]
    fn only_the_rows_that_were_reached_change() {
        let table = format!("| head |\n{} | |\n{} old | the aim |\n", WASM_BYTES.cells(), ADDRESS.cells());
        let new = filled(&table, &[WASM_BYTES.reached(390_000.0, "390 KB")]);
        let expected = format!(
            "| head |\n| wasm module | 384 KB | 250 KB | 390 KB | the must |\n{} old | the aim |",
            ADDRESS.cells()
        );
        assert_eq!(new, Some(expected));
    }

    #[test]
    fn a_table_without_the_row_is_left_alone() {
        assert_eq!(filled("| head |", &[WASM_BYTES.reached(1.0, "")]), None);
    }
}
