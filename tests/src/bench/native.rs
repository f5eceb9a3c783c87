//! Criterion's figures of the cases and of the crate `governor`, as docs/reference/benchmarks.md holds them, and the
//! instructions beside them: the second half of `make bench-native`.

use std::fmt;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::machine;
use super::page::Part;
use super::stats::{float, grouped};
use super::summary::{NATIVE, Reached};
use crate::cases::{self, Case};
use crate::instructions::baseline::{self, Counts};

/// The group of governor's cases, as tests/benches/native/governor.rs names it and them.
const GOVERNOR: &str = "governor";

/// A case, and the same by governor: with a given clock, and with a clock of its own. The first two are what must be
/// reached: a table hit, of many addresses in turn and of one.
const SAME: [Same; 5] = [
    Same::new("own memory: hit, 10000 addresses in turn", "hit, 10000 addresses in turn, given clock", None),
    Same::new("own memory: allowed, 1 rule", "allowed, 1 limiters, given clock", Some("allowed, 1 limiter, own clock")),
    Same::new("own memory: allowed, 4 rules", "allowed, 4 limiters, given clock", None),
    Same::new("decide: allowed, 16 rules", "allowed, 16 limiters, given clock", None),
    Same::new("decide: limited, deny cache", "limited, given clock", None),
];

struct Same {
    title: &'static str,
    given_clock: &'static str,
    own_clock: Option<&'static str>,
}

impl Same {
    const fn new(title: &'static str, given_clock: &'static str, own_clock: Option<&'static str>) -> Self {
        Self { title, given_clock, own_clock }
    }
}

/// Nanoseconds of one operation: the median, and the interval that has it with a confidence of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    median: f64,
    low: f64,
    high: f64,
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = usize::from(self.median < 1_000.0);
        write!(f, "{:.digits$} ({:.digits$} to {:.digits$})", self.median, self.low, self.high)
    }
}

/// The figures of the last run in `criterion`, the folder that criterion keeps its measurements in.
pub fn read(criterion: &Path) -> Result<Part, String> {
    let file = baseline::path();
    let counts = match fs::read_to_string(&file) {
        Ok(text) => baseline::parse(&text).map_err(|e| format!("{}: {e}", file.display()))?,
        // None is kept for this architecture.
        Err(_) => Counts::new(),
    };
    let estimate = |group: &str, name: &str| {
        let file = criterion.join(group).join(name).join("new/estimates.json");
        let described = |e: &dyn fmt::Display| format!("{}: {e}; `make bench-native` measures it", file.display());
        let text = fs::read_to_string(&file).map_err(|e| described(&e))?;
        parse(&text).ok_or_else(|| described(&"no median with its confidence interval"))
    };
    let mut part = Part { reached: vec![reached(estimate)?], figures: format!("{}\n", machine::name()) };
    table(&mut part, estimate, &counts)?;
    Ok(part)
}

/// Every case in a line.
fn table(
    part: &mut Part,
    estimate: impl Fn(&str, &str) -> Result<Estimate, String>,
    counts: &Counts,
) -> Result<(), String> {
    part.table(&["case", "ns", "governor, given clock", "governor, own clock", "instructions"]);
    for case in cases::all(None) {
        let Case { group, name, .. } = case;
        let title = case.title();
        let governor = |name: Option<&str>| match name {
            Some(name) => estimate(GOVERNOR, name).map(|estimate| estimate.to_string()),
            None => Ok(String::new()),
        };
        let same = SAME.iter().find(|same| same.title == title);
        let given = governor(same.map(|same| same.given_clock))?;
        let own = governor(same.and_then(|same| same.own_clock))?;
        let count = counts.get(&title).map_or_else(String::new, |count| grouped(float(*count)));
        part.row(&[title, estimate(group, name)?.to_string(), given, own, count]);
    }
    Ok(())
}

/// The row of the summary: many addresses in turn, which the word is of, and one beside it. The aim is the governor
/// with a given clock, as the limiter has.
fn reached(estimate: impl Fn(&str, &str) -> Result<Estimate, String>) -> Result<Reached, String> {
    let [many, one, ..] = &SAME;
    let of = |same: &Same| {
        let (group, name) = same.title.split_once(": ").unwrap_or_default();
        Ok::<_, String>((estimate(group, name)?.median, estimate(GOVERNOR, same.given_clock)?.median))
    };
    let [(many_ns, many_governor), (one_ns, one_governor)] = [of(many)?, of(one)?];
    let own = match one.own_clock {
        Some(name) => format!(", {:.1} with its own clock", estimate(GOVERNOR, name)?.median),
        None => String::new(),
    };
    let text = format!(
        "{many_ns:.1} ns (governor {many_governor:.1}); one address {one_ns:.1} ns (governor {one_governor:.1}{own})"
    );
    Ok(NATIVE.reached_beside(many_ns, many_governor, text))
}

/// The median of criterion's `estimates.json`.
fn parse(text: &str) -> Option<Estimate> {
    let estimates: Value = serde_json::from_str(text).ok()?;
    let number = |pointer: &str| estimates.pointer(pointer)?.as_f64();
    Some(Estimate {
        median: number("/median/point_estimate")?,
        low: number("/median/confidence_interval/lower_bound")?,
        high: number("/median/confidence_interval/upper_bound")?,
    })
}
