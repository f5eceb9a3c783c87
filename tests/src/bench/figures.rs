//! The figures: what must be reached, and what was.

use std::fmt::Write;

use weir_limiter::table::slot::{KEYS_PER_SLOT, SLOT_BYTES};

use crate::bench::case::{BASE, BASE_OF_TWO, By, Case, Under};
use crate::bench::memory::Memory;
use crate::bench::site::Visit;
use crate::bench::stats::{Estimate, quantile, quiet, sorted};
use crate::bench::summary::{
    ABOVE_EMPTY, ADDRESS, CENTRAL_ALONE, CENTRAL_BUSY, FOUR_RULES, MODULE_FLEET, MODULE_LIMITED,
    MODULE_ROTATING, RESIDENT, Reached, TWO_WORKERS, Target, WASM_BYTES, WASM_FLEET, WASM_FOUR, WASM_LIMITED,
    WASM_TWO,
};
use crate::bench::sweeps::Sweep;

use By::{Central, Empty, Module, Native, NothingAgain, Wasm};
use Under::{Alone, Chain, Four, Headers, Limited, Many, One, Rotating, Two};

/// A figure, and its row of the summary where it has one.
struct Row {
    figure: String,
    target: Option<Target>,
    text: String,
    reached: Option<Reached>,
}

/// What a run measured.
#[derive(Debug)]
pub struct Figures<'a> {
    sweeps: &'a [Sweep],
    memory: Memory,
    module_bytes: u32,
}

/// Some sweeps, of which times are asked: each is the lower decile of the visits to one listener.
struct Times<'a>(&'a [&'a Sweep]);

impl Times<'_> {
    /// CPU time of a request, in microseconds, all connections at once.
    fn cpu(&self, by: By, under: Under) -> f64 {
        self.of(Case::new(by, under), |visit| visit.cpu_us)
    }

    /// The same above that of the listener without a filter.
    fn added(&self, by: By, under: Under) -> f64 {
        let case = Case::new(by, under);
        self.cpu(by, under) - self.of(case.base(), |visit| visit.cpu_us)
    }

    /// The same of one request at a time.
    fn added_alone(&self, by: By, under: Under) -> f64 {
        let alone = |case| self.of(case, |visit| visit.alone_us);
        alone(Case::new(by, under)) - alone(BASE)
    }

    fn of(&self, case: Case, part: impl Fn(&Visit) -> f64) -> f64 {
        quiet(self.0.iter().filter_map(|sweep| sweep.get(&case)).map(part))
    }

    fn has(&self, by: By, under: Under) -> bool {
        self.0.first().is_some_and(|sweep| sweep.contains_key(&Case::new(by, under)))
    }
}

impl<'a> Figures<'a> {
    /// Of whole sweeps, an Envoy under many addresses, and the module's size.
    pub fn of(sweeps: &'a [Sweep], memory: Memory, module_bytes: u32) -> Self {
        Self { sweeps, memory, module_bytes }
    }

    /// The figures that have a must and an aim, and those beside them: one per line.
    pub fn targets(&self) -> String {
        let noise = self.each(|times| times.added(NothingAgain, Many));
        let mut page = format!(
            "Noise, the listener without a filter against another one without: {noise:.2} µs of CPU time per request.\n\n\
             | figure | must | aim | reached (nine in ten; noise) |\n|---|---|---|---|\n"
        );
        for Row { figure, target, text, .. } in self.rows() {
            let (must, aim) = target.map_or(("", ""), |target| (target.must, target.aim));
            let _ = writeln!(page, "| {figure} | {must} | {aim} | {text} |");
        }
        page
    }

    /// The rows of the summary.
    pub fn reached(&self) -> Vec<Reached> {
        self.rows().into_iter().filter_map(|row| row.reached).collect()
    }

    fn rows(&self) -> Vec<Row> {
        let rows = [self.of_the_module(), self.beside_central(), self.of_the_wasm(), self.others()];
        rows.into_iter().flatten().flatten().chain(self.sizes()).collect()
    }

    fn of_the_module(&self) -> Vec<Option<Row>> {
        vec![
            self.ratio(MODULE_FLEET, MODULE_FLEET.figure, (Module, Many), (Native, Many)),
            self.ratio(
                MODULE_ROTATING,
                "the same, 100,000 addresses : local_ratelimit, the same",
                (Module, Rotating),
                (Native, Rotating),
            ),
            Some(self.in_all(
                MODULE_LIMITED,
                "the same, CPU of a 429 in all, flood from one address : local_ratelimit, the same",
                (Module, Limited),
            )),
            self.ratio(FOUR_RULES, FOUR_RULES.figure, (Module, Four), (Module, Many)),
            self.ratio(TWO_WORKERS, TWO_WORKERS.figure, (Module, Two), (Module, One)),
        ]
    }

    fn beside_central(&self) -> Vec<Option<Row>> {
        let alone = self.each(|times| times.added_alone(Central, Many) / times.added_alone(Module, Many));
        let noise =
            self.with(|times| times.added_alone(NothingAgain, Many).abs() / times.added_alone(Module, Many));
        vec![
            self.ratio(CENTRAL_BUSY, CENTRAL_BUSY.figure, (Central, Many), (Module, Many)),
            Some(ratio(CENTRAL_ALONE, CENTRAL_ALONE.figure, alone, told(alone, noise))),
            self.beside("central service on Redis, saturated : wasm", (Central, Many), (Wasm, Many)),
        ]
    }

    fn of_the_wasm(&self) -> Vec<Option<Row>> {
        // Less than the empty filter is less than nothing above it.
        let empty = self.each(|times| times.added(Wasm, Many) / times.added(Empty, Many) - 1.0);
        let noise = self.with(|times| times.added(NothingAgain, Many).abs() / times.added(Empty, Many));
        let is_known = self.with(|times| times.added(Empty, Many) > 0.0);
        let value = if is_known { empty.value } else { f64::NAN };
        vec![
            self.ratio(WASM_FLEET, WASM_FLEET.figure, (Wasm, Many), (Native, Many)),
            Some(Row::of(ABOVE_EMPTY, ABOVE_EMPTY.figure, told(empty, noise), value)),
            Some(self.in_all(
                WASM_LIMITED,
                "wasm, CPU of a 429 in all, flood from one address : local_ratelimit, the same",
                (Wasm, Limited),
            )),
            self.ratio(WASM_FOUR, WASM_FOUR.figure, (Wasm, Four), (Wasm, Many)),
            self.ratio(WASM_TWO, WASM_TWO.figure, (Wasm, Two), (Wasm, One)),
        ]
    }

    fn others(&self) -> Vec<Option<Row>> {
        vec![
            self.beside(
                "native module : local_ratelimit, eight of each in a chain",
                (Module, Chain),
                (Native, Chain),
            ),
            self.beside("wasm : local_ratelimit, eight of each in a chain", (Wasm, Chain), (Native, Chain)),
            self.beside(
                "wasm, 100,000 addresses : local_ratelimit, the same",
                (Wasm, Rotating),
                (Native, Rotating),
            ),
            self.beside("wasm, one address : local_ratelimit, the same", (Wasm, One), (Native, One)),
            self.beside(
                "native module, one address : local_ratelimit, the same",
                (Module, One),
                (Native, One),
            ),
            self.beside("wasm, with `sync` : without", (Wasm, Many), (Wasm, Alone)),
            self.beside("native module, with `sync` : without", (Module, Many), (Module, Alone)),
            self.beside("wasm, quota headers on : off", (Wasm, Headers), (Wasm, Many)),
            self.beside("native module, quota headers on : off", (Module, Headers), (Module, Many)),
        ]
    }

    fn sizes(&self) -> [Row; 3] {
        let Memory { few_addresses, many_addresses, before_kib, few_kib, many_kib } = self.memory;
        let (many, few) = (grouped(many_addresses), grouped(few_addresses));
        let [before_mib, few_mib, many_mib] = [before_kib, few_kib, many_kib].map(|kib| kib / 1024);
        let (ratio, of_address) =
            (self.memory.ratio(), u32::try_from(SLOT_BYTES / KEYS_PER_SLOT).unwrap_or(u32::MAX));
        let resident = format!(
            "{ratio:.3} ({many_mib} MiB after {many} : {few_mib} after {few}; {before_mib} before the first)"
        );
        let module = format!("{} KB", self.module_bytes.div_ceil(1024));
        [
            Row::of(ADDRESS, ADDRESS.figure, format!("{of_address} B"), of_address.into()),
            Row::of(RESIDENT, "Envoy's resident memory after many addresses : after fewer", resident, ratio),
            Row::of(WASM_BYTES, WASM_BYTES.figure, module, self.module_bytes.into()),
        ]
    }

    /// Every listener: CPU time of a request, and what it has on top of the listener without a filter.
    pub fn listeners(&self) -> String {
        let mut page = String::from(
            "| listener | CPU per request, µs | added CPU, µs | added CPU, one at a time, µs | added p50, µs | \
             added p99, µs |\n|---|---|---|---|---|---|\n",
        );
        let cases: Vec<Case> =
            self.sweeps.first().into_iter().flat_map(|sweep| sweep.keys().copied()).collect();
        for case in cases {
            let Case { by, under } = case;
            let cpu = self.each(|times| times.cpu(by, under));
            let [p50, p99] = [0.5, 0.99].map(|part| self.waited(case, part));
            let _ = if [BASE, BASE_OF_TWO].contains(&case) {
                let alone = self.each(|times| times.of(case, |visit| visit.alone_us));
                writeln!(
                    page,
                    "| {case} | {cpu:.1} | | in all {alone:.1} | in all {p50:.1} | in all {p99:.1} |"
                )
            } else {
                let busy = self.each(|times| times.added(by, under));
                let alone = self.each(|times| {
                    times.of(case, |visit| visit.alone_us) - times.of(case.base(), |visit| visit.alone_us)
                });
                let [p50, p99] =
                    [(p50, 0.5), (p99, 0.99)].map(|(waited, part)| waited - self.waited(case.base(), part));
                writeln!(page, "| {case} | {cpu:.1} | {busy:.2} | {alone:.1} | {p50:.1} | {p99:.1} |")
            };
        }
        page
    }

    /// A latency of all visits to a listener together.
    fn waited(&self, case: Case, part: f64) -> f64 {
        let visits = self.sweeps.iter().filter_map(|sweep| sweep.get(&case));
        quantile(&sorted(visits.flat_map(|visit| visit.waited_us.iter().copied())), part)
    }

    /// Of one case's added CPU time, how many times the other's; nothing where one of them was not visited.
    fn added_over(&self, of: (By, Under), other: (By, Under)) -> Option<(Estimate, String)> {
        let added = |times: &Times<'_>, (by, under)| times.added(by, under);
        let is_measured = self.with(|times| times.has(of.0, of.1) && times.has(other.0, other.1));
        let estimate = || self.each(|times| added(times, of) / added(times, other));
        is_measured.then(estimate).map(|estimate| {
            let noise = self.with(|times| times.added(NothingAgain, Many).abs() / added(times, other));
            (estimate, told(estimate, noise))
        })
    }

    fn ratio(&self, target: Target, figure: &str, of: (By, Under), other: (By, Under)) -> Option<Row> {
        self.added_over(of, other).map(|(estimate, text)| ratio(target, figure, estimate, text))
    }

    /// A figure that nothing is asked of.
    fn beside(&self, figure: &str, of: (By, Under), other: (By, Under)) -> Option<Row> {
        let row = |(_, text)| Row { figure: figure.into(), target: None, text, reached: None };
        self.added_over(of, other).map(row)
    }

    /// A 429 in all beside that of Envoy's own filter: what it adds is negative.
    fn in_all(&self, target: Target, figure: &str, (by, under): (By, Under)) -> Row {
        let estimate = self.each(|times| times.cpu(by, under) / times.cpu(Native, Limited));
        let noise = self.with(|times| times.added(NothingAgain, Many).abs() / times.cpu(BASE.by, BASE.under));
        ratio(target, figure, estimate, told(estimate, noise))
    }

    fn each(&self, figure: impl Fn(&Times<'_>) -> f64) -> Estimate {
        Estimate::of(self.sweeps, |sweeps| figure(&Times(sweeps)))
    }

    fn with<T>(&self, figure: impl Fn(&Times<'_>) -> T) -> T {
        let all: Vec<&Sweep> = self.sweeps.iter().collect();
        figure(&Times(&all))
    }
}

/// CPU time of a request above that of the listener without a filter, of all sweeps, in microseconds.
pub fn added(sweeps: &[Sweep], case: Case) -> f64 {
    let all: Vec<&Sweep> = sweeps.iter().collect();
    Times(&all).added(case.by, case.under)
}

impl Row {
    fn of(target: Target, figure: &str, text: String, value: f64) -> Self {
        let reached = target.reached(value, text.clone());
        Self { figure: figure.into(), target: Some(target), text, reached: Some(reached) }
    }
}

/// An estimate beside what nothing against nothing would give in its place.
fn told(estimate: Estimate, noise: f64) -> String {
    let Estimate { value, low, high } = estimate;
    format!("{value:.2} ({low:.2} to {high:.2}; {noise:.2})")
}

/// A ratio of times, which a must is for; no number where a disturbance made one of the times negative.
fn ratio(target: Target, figure: &str, estimate: Estimate, text: String) -> Row {
    Row::of(target, figure, text, if estimate.value > 0.0 { estimate.value } else { f64::NAN })
}

/// A number with its thousands apart.
pub fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::summary::Word;

    const MEMORY: Memory =
        Memory { before_kib: 1, few_addresses: 1, few_kib: 1, many_addresses: 2, many_kib: 1 };

    const NOTHING: Case = BASE;
    const NATIVE: Case = Case::new(Native, Many);
    const WASM: Case = Case::new(Wasm, Many);
    const MODULE: Case = Case::new(Module, Many);
    const CENTRAL: Case = Case::new(Central, Many);

    fn sweep(figures: &[(Case, f64)]) -> Sweep {
        figures.iter().map(|(case, cpu_us)| (*case, Visit { cpu_us: *cpu_us, ..Visit::default() })).collect()
    }

    /// Of four visits to a listener three are disturbed, and not the same ones.
    #[test]
    fn a_ratio_is_that_of_quiet_visits() {
        let visits = [(50.0, 95.0, 99.0), (90.0, 55.0, 98.0), (80.0, 91.0, 65.0), (50.0, 55.0, 65.0)];
        let of = |(nothing, native, wasm)| sweep(&[(NOTHING, nothing), (NATIVE, native), (WASM, wasm)]);
        let sweeps: Vec<Sweep> = visits.into_iter().map(of).collect();
        let figures = Figures::of(&sweeps, MEMORY, 390_000);
        let (ratio, _) = figures.added_over((Wasm, Many), (Native, Many)).expect("both were visited");
        assert!((ratio.value - 3.0).abs() < 1e-9 && ratio.low <= ratio.high, "{ratio}");
        assert!(figures.added_over((Module, Many), (Native, Many)).is_none(), "it was not visited");
    }

    #[test]
    fn the_summary_gets_a_word_and_none_for_noise() {
        let mut sweep = sweep(&[
            (NOTHING, 50.0),
            (NATIVE, 49.0),
            (Case::new(Empty, Many), 60.0),
            (WASM, 58.0),
            (MODULE, 51.0),
            (CENTRAL, 66.0),
        ]);
        let again = Case::new(NothingAgain, Many);
        for (case, alone_us) in [(NOTHING, 100.0), (again, 101.0), (MODULE, 110.0), (CENTRAL, 1_200.0)] {
            sweep.entry(case).or_default().alone_us = alone_us;
        }
        let sweeps = [sweep];
        let reached = Figures::of(&sweeps, MEMORY, 390_000).reached();
        let of = |target: Target| reached.iter().find(|row| row.to_string().starts_with(&target.cells()));
        let told = |target| of(target).map(|row| row.to_string().replace(&target.cells(), ""));
        assert_eq!(of(WASM_FLEET).map(Reached::word), Some(Word::Short));
        assert_eq!(of(ABOVE_EMPTY).map(Reached::word), Some(Word::Aim));
        assert_eq!(of(CENTRAL_BUSY).map(Reached::word), Some(Word::Must));
        assert_eq!(told(CENTRAL_ALONE).as_deref(), Some(" 110.00 (110.00 to 110.00; 0.10) | the aim |"));
        assert_eq!(told(WASM_BYTES).as_deref(), Some(" 381 KB | the must |"));
    }

    #[test]
    fn two_workers_are_compared_with_two_workers() {
        let two = Case::new(Wasm, Two);
        let sweeps = [sweep(&[(NOTHING, 10.0), (BASE_OF_TWO, 20.0), (two, 25.0)])];
        assert!((added(&sweeps, two) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(10_000_000), "10,000,000");
    }
}
