//! What must be reached: the table at the top of docs/benchmarks.md, one row for each figure.

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

/// Beside Envoy's own filter.
pub const ALLOWED: Target = Target {
    figure: "added CPU, allowed, one rule, real upstream : native local_ratelimit per address",
    must: "3.0",
    aim: "2.0",
    limits: Below { must: 3.0, aim: 2.0 },
};
/// Beside a filter that does nothing.
pub const ABOVE_EMPTY: Target = Target {
    figure: "above the empty wasm filter, as a part of what the empty filter adds",
    must: "0.5",
    aim: "0.25",
    limits: Below { must: 0.5, aim: 0.25 },
};
/// Beside Envoy's own filter, in a flood.
pub const LIMITED: Target = Target {
    figure: "added CPU, limited flood : native local_ratelimit, limited",
    must: "1.5",
    aim: "1.0",
    limits: Below { must: 1.5, aim: 1.0 },
};
/// More rules.
pub const FOUR_RULES: Target = Target {
    figure: "four rules of two keys : one rule",
    must: "1.6",
    aim: "1.3",
    limits: Below { must: 1.6, aim: 1.3 },
};
/// More workers.
pub const TWO_WORKERS: Target = Target {
    figure: "two workers, one hot key : one worker, per request",
    must: "1.3",
    aim: "1.1",
    limits: Below { must: 1.3, aim: 1.1 },
};
/// Beside a round trip for each request. Its number is Weir's part of the other's.
pub const CENTRAL: Target = Target {
    figure: "added CPU : central service on Redis",
    must: "1/15",
    aim: "1/30",
    limits: Below { must: 1.0 / 15.0, aim: 1.0 / 30.0 },
};
/// The core alone. Its number is nanoseconds.
pub const NATIVE: Target = Target {
    figure: "native decision, table hit, no host",
    must: "60 ns, and no slower than governor keyed",
    aim: "30 ns",
    limits: Below { must: 60.0, aim: 30.0 },
};
/// weir-sync beside its store.
pub const SYNC_REDIS: Target = Target {
    figure: "weir-sync on Redis : redis-benchmark, same script and pipelining",
    must: "0.7",
    aim: "0.9",
    limits: Above { must: 0.7, aim: 0.9 },
};
/// weir-sync alone. Its number is keys a second.
pub const SYNC_MEMORY: Target = Target {
    figure: "weir-sync, memory store, reports of 100 keys",
    must: "300,000 keys/s per core",
    aim: "1,000,000",
    limits: Above { must: 300_000.0, aim: 1_000_000.0 },
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
/// Bytes of the module.
pub const MODULE: Target = Target {
    figure: "wasm module",
    must: "400 KB",
    aim: "200 KB",
    limits: Below { must: 400_000.0, aim: 200_000.0 },
};

/// Every row, in order.
pub const TARGETS: [Target; 16] = [
    ALLOWED,
    ABOVE_EMPTY,
    LIMITED,
    FOUR_RULES,
    TWO_WORKERS,
    CENTRAL,
    NATIVE,
    SYNC_REDIS,
    SYNC_MEMORY,
    SYNC_CLUSTER,
    SYNC_EVEN,
    GATEWAY_STRICT,
    GATEWAY_PLAIN,
    ADDRESS,
    RESIDENT,
    MODULE,
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

    /// The row's cells that never change, as they begin its line.
    pub fn cells(&self) -> String {
        format!("| {} | {} | {} |", self.figure, self.must, self.aim)
    }
}

impl Reached {
    /// Falls short, unless `also` holds: what a must asks for beside a number.
    #[must_use]
    pub fn only_if(self, also: bool) -> Self {
        if also { self } else { Self { word: Word::Short, ..self } }
    }

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
        assert_eq!(words(ALLOWED, [2.0, 3.0, 3.01]), each);
        assert_eq!(words(SYNC_REDIS, [0.9, 0.7, 0.69]), each);
        assert_eq!(words(CENTRAL, [1.0 / 31.0, 1.0 / 15.0, 1.0 / 14.0]), each);
    }

    #[test]
    fn what_is_no_number_falls_short() {
        for target in TARGETS {
            assert_eq!(target.reached(f64::NAN, "").word(), Word::Short, "{target:?}");
        }
    }

    #[test]
    fn a_number_is_not_all_that_a_must_may_ask() {
        assert_eq!(NATIVE.reached(20.0, "").only_if(false).word(), Word::Short);
        assert_eq!(NATIVE.reached(20.0, "").only_if(true).word(), Word::Aim);
    }

    #[test]
    fn only_the_rows_that_were_reached_change() {
        let table = format!("| head |\n{} | |\n{} old | the aim |\n", MODULE.cells(), ADDRESS.cells());
        let new = filled(&table, &[MODULE.reached(390_000.0, "390 KB")]);
        let expected = format!(
            "| head |\n| wasm module | 400 KB | 200 KB | 390 KB | the must |\n{} old | the aim |",
            ADDRESS.cells()
        );
        assert_eq!(new, Some(expected));
    }

    #[test]
    fn a_table_without_the_row_is_left_alone() {
        assert_eq!(filled("| head |", &[MODULE.reached(1.0, "")]), None);
    }
}
