//! The tables: what must be reached and what was, and every listener.

use weir_limiter::table::slot::{KEYS_PER_SLOT, SLOT_BYTES};

use super::case::{BASE, BASE_OF_TWO, By, Case, Under};
use crate::bench::page::Part;
use crate::bench::stats::{Estimate, quantile, quiet, sorted};
use crate::bench::summary::{
    ABOVE_EMPTY, ADDRESS, CENTRAL_ALONE, CENTRAL_BUSY, FOUR_RULES, MODULE_FLEET, MODULE_LIMITED, MODULE_ROTATING,
    TWO_WORKERS, Target, WASM_BYTES, WASM_FLEET, WASM_FOUR, WASM_LIMITED, WASM_TWO,
};
use crate::bench::visits::{Round, Visit};

use By::{Central, Empty, Module, Native, NothingAgain, Wasm};
use Under::{Chain, Four, Limited, Many, One, Rotating, Two};

/// A comparison of two listeners.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    /// The ratio of what they add to the CPU time of a request without a filter.
    Added,
    /// The same, one request at a time.
    Single,
    /// By how much more the one adds, as a part of what the other does.
    Above,
    /// The ratio of all CPU time: what a 429 adds is negative.
    All,
}

/// A ratio of the table: what is asked of it, its name where that is another than the target's, and what it is of.
type Ratio = (Option<Target>, &'static str, Of, (By, Under), (By, Under));

const RATIOS: [Ratio; 14] = [
    (Some(MODULE_FLEET), "", Of::Added, (Module, Many), (Native, Many)),
    (
        Some(MODULE_ROTATING),
        "the same, 100,000 addresses : local_ratelimit, the same",
        Of::Added,
        (Module, Rotating),
        (Native, Rotating),
    ),
    (
        Some(MODULE_LIMITED),
        "the same, CPU of a 429 in all, flood from one address : local_ratelimit, the same",
        Of::All,
        (Module, Limited),
        (Native, Limited),
    ),
    (Some(FOUR_RULES), "", Of::Added, (Module, Four), (Module, Many)),
    (Some(TWO_WORKERS), "", Of::Added, (Module, Two), (Module, One)),
    (Some(CENTRAL_BUSY), "", Of::Added, (Central, Many), (Module, Many)),
    (Some(CENTRAL_ALONE), "", Of::Single, (Central, Many), (Module, Many)),
    (Some(WASM_FLEET), "", Of::Added, (Wasm, Many), (Native, Many)),
    (Some(ABOVE_EMPTY), "", Of::Above, (Wasm, Many), (Empty, Many)),
    (
        Some(WASM_LIMITED),
        "wasm, CPU of a 429 in all, flood from one address : local_ratelimit, the same",
        Of::All,
        (Wasm, Limited),
        (Native, Limited),
    ),
    (Some(WASM_FOUR), "", Of::Added, (Wasm, Four), (Wasm, Many)),
    (Some(WASM_TWO), "", Of::Added, (Wasm, Two), (Wasm, One)),
    (None, "native module : local_ratelimit, eight of each in a chain", Of::Added, (Module, Chain), (Native, Chain)),
    (None, "wasm : local_ratelimit, eight of each in a chain", Of::Added, (Wasm, Chain), (Native, Chain)),
];

/// The listener that differs from the one without a filter by noise alone.
const AGAIN: Case = Case::new(NothingAgain, Many);

/// The results of a run.
#[derive(Debug)]
pub struct Figures<'a> {
    /// Whole sweeps.
    pub sweeps: &'a [Round<Case>],
    /// The module's size.
    pub module_bytes: f64,
}

/// Some sweeps, of which times are asked: each is the lower decile of the visits to one listener.
struct Times<'a>(&'a [&'a Round<Case>]);

impl Times<'_> {
    /// CPU time of a request, in microseconds, all connections at once.
    fn cpu(&self, case: Case) -> f64 {
        self.of(case, |visit| visit.cpu_us[0])
    }

    /// The same above that of the listener without a filter.
    fn added(&self, case: Case) -> f64 {
        self.cpu(case) - self.cpu(case.base())
    }

    /// The same of one request at a time.
    fn added_alone(&self, case: Case) -> f64 {
        let alone = |case| self.of(case, |visit| visit.alone_us);
        alone(case) - alone(case.base())
    }

    fn of(&self, case: Case, part: impl Fn(&Visit) -> f64) -> f64 {
        quiet(self.0.iter().filter_map(|sweep| sweep.get(&case)).map(part))
    }

    /// A ratio, and what nothing against nothing would give in its place.
    fn ratio(&self, what: Of, of: Case, other: Case) -> [f64; 2] {
        match what {
            Of::Added => [self.added(of), self.added(AGAIN).abs()].map(|time| time / self.added(other)),
            Of::Single => {
                [self.added_alone(of), self.added_alone(AGAIN).abs()].map(|time| time / self.added_alone(other))
            }
            Of::Above => {
                let [ratio, noise] = self.ratio(Of::Added, of, other);
                [ratio - 1.0, noise]
            }
            Of::All => [self.cpu(of) / self.cpu(other), self.added(AGAIN).abs() / self.cpu(BASE)],
        }
    }
}

/// CPU time of a request above that of the listener without a filter, of all sweeps, in microseconds.
pub fn added(sweeps: &[Round<Case>], case: Case) -> f64 {
    let all: Vec<_> = sweeps.iter().collect();
    Times(&all).added(case)
}

impl Figures<'_> {
    /// The page's part, after `text`.
    pub fn part(&self, text: &str) -> Part {
        let noise = self.each(|times| times.added(AGAIN));
        let text = format!(
            "{text}\n\nNoise, the listener without a filter against another one without: {noise:.2} µs of CPU \
             time per request."
        );
        let mut part = Part::begin(&text, &["reached (nine in ten; noise)"]);
        for (target, figure, what, of, other) in RATIOS {
            let [of, other] = [of, other].map(|(by, under)| Case::new(by, under));
            let Some((value, text)) = self.ratio(what, of, other) else { continue };
            let named = target.filter(|_| figure.is_empty()).map_or(figure, |target| target.figure);
            part.figure(named, target.map(|target| (target, value)), &[text]);
        }
        self.sizes(&mut part);
        self.listeners(&mut part);
        part
    }

    /// A ratio as a number and as text; nothing where a listener was not visited. No number where a disturbance made
    /// one of the times negative.
    fn ratio(&self, what: Of, of: Case, other: Case) -> Option<(f64, String)> {
        let first = self.sweeps.first()?;
        if ![of, other].iter().all(|case| first.contains_key(case)) {
            return None;
        }
        let estimate = self.each(|times| times.ratio(what, of, other)[0]);
        let noise = self.with(|times| times.ratio(what, of, other)[1]);
        let Estimate { value, low, high } = estimate;
        let text = format!("{value:.2} ({low:.2} to {high:.2}; {noise:.2})");
        // Less than the empty filter is less than nothing above it.
        let is_known = if what == Of::Above { self.with(|times| times.added(other) > 0.0) } else { value > 0.0 };
        Some((if is_known { value } else { f64::NAN }, text))
    }

    fn sizes(&self, part: &mut Part) {
        let of_address = u32::try_from(SLOT_BYTES / KEYS_PER_SLOT).unwrap_or(u32::MAX);
        part.figure(ADDRESS.figure, Some((ADDRESS, of_address.into())), &[format!("{of_address} B")]);
        let module_kb = (self.module_bytes / 1024.0).ceil();
        part.figure(WASM_BYTES.figure, Some((WASM_BYTES, module_kb)), &[format!("{module_kb:.0} KB")]);
    }

    /// Every listener: CPU time of a request, and what it has on top of the listener without a filter.
    fn listeners(&self, part: &mut Part) {
        part.table(&[
            "listener",
            "CPU per request, µs",
            "added CPU, µs",
            "added CPU, one at a time, µs",
            "added p50, µs",
            "added p99, µs",
        ]);
        for case in self.sweeps.first().into_iter().flat_map(|sweep| sweep.keys().copied()) {
            let cpu = format!("{:.1}", self.each(|times| times.cpu(case)));
            let waited = [0.5, 0.99].map(|of| self.waited(case, of));
            let [busy, alone, p50, p99] = if [BASE, BASE_OF_TWO].contains(&case) {
                let alone = self.each(|times| times.of(case, |visit| visit.alone_us));
                let [p50, p99] = waited.map(|waited| format!("in all {waited:.1}"));
                [String::new(), format!("in all {alone:.1}"), p50, p99]
            } else {
                let base = [0.5, 0.99].map(|of| self.waited(case.base(), of));
                [
                    format!("{:.2}", self.each(|times| times.added(case))),
                    format!("{:.1}", self.each(|times| times.added_alone(case))),
                    format!("{:.1}", waited[0] - base[0]),
                    format!("{:.1}", waited[1] - base[1]),
                ]
            };
            part.row(&[case.to_string(), cpu, busy, alone, p50, p99]);
        }
    }

    /// A latency of all visits to a listener together.
    fn waited(&self, case: Case, part: f64) -> f64 {
        let visits = self.sweeps.iter().filter_map(|sweep| sweep.get(&case));
        quantile(&sorted(visits.flat_map(|visit| visit.waited_us.iter().copied())), part)
    }

    fn each(&self, figure: impl Fn(&Times<'_>) -> f64) -> Estimate {
        Estimate::of(self.sweeps, |sweeps| figure(&Times(sweeps)))
    }

    fn with<T>(&self, figure: impl Fn(&Times<'_>) -> T) -> T {
        let all: Vec<_> = self.sweeps.iter().collect();
        figure(&Times(&all))
    }
}
