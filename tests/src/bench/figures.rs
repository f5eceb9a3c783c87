//! The figures: what must be reached, and what was.

use std::fmt::Write;

use weir_limiter::table::slot::{KEYS_PER_SLOT, SLOT_BYTES};

use crate::bench::case::Case;
use crate::bench::memory::Memory;
use crate::bench::rounds::{Round, Visit};
use crate::bench::stats::Spread;
use crate::bench::summary::{
    ABOVE_EMPTY, ADDRESS, ALLOWED, CENTRAL, FOUR_RULES, LIMITED, MODULE, RESIDENT, Reached, TWO_WORKERS,
    Target,
};

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
    rounds: &'a [Round],
    memory: Memory,
    module_bytes: u32,
}

impl<'a> Figures<'a> {
    /// Of complete rounds, an Envoy under many addresses, and the module's size.
    pub fn of(rounds: &'a [Round], memory: Memory, module_bytes: u32) -> Self {
        Self { rounds, memory, module_bytes }
    }

    /// The figures that have a must and an aim, and those beside them: one per line.
    pub fn targets(&self) -> String {
        let mut page = String::from("| figure | must | aim | reached (quartiles) |\n|---|---|---|---|\n");
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
        let [saturated, alone] = self.beside_central();
        let mut rows = self.beside_native();
        rows.extend([saturated, alone]);
        rows.extend(self.sizes());
        rows
    }

    fn beside_native(&self) -> Vec<Row> {
        let limited = self.each(|round| cpu(round, Case::WeirLimited) / cpu(round, Case::NativeLimited));
        let empty = self.above_empty();
        vec![
            ratio(ALLOWED, ALLOWED.figure, self.added_over(Case::Weir, Case::Native)),
            // Less than the empty filter is less than nothing above it.
            Row::of(ABOVE_EMPTY, ABOVE_EMPTY.figure, format!("{empty:.2}"), empty.median),
            Row {
                // What a 429 adds is negative.
                reached: Some(
                    LIMITED.reached(or_none(limited.median), format!("{limited:.2}, of the answer in all")),
                ),
                ..ratio(
                    LIMITED,
                    "CPU of a limited answer (429) in all, flood from one address : native local_ratelimit, limited",
                    limited,
                )
            },
            beside(
                "100,000 rotating addresses, added CPU : native local_ratelimit, the same",
                self.added_over(Case::WeirRotating, Case::NativeRotating),
            ),
            ratio(
                FOUR_RULES,
                "added CPU, four rules of two keys : one rule",
                self.added_over(Case::WeirFour, Case::Weir),
            ),
            beside(
                "added CPU, a POP in a fleet : a POP on its own",
                self.added_over(Case::WeirFleet, Case::Weir),
            ),
            beside("added CPU, quota headers on : off", self.added_over(Case::WeirHeaders, Case::Weir)),
            beside(
                "as a dynamic module, added CPU, in a fleet : native local_ratelimit",
                self.added_over(Case::ModuleFleet, Case::Native),
            ),
            beside(
                "the same on its own, 100,000 rotating addresses : native local_ratelimit, the same",
                self.added_over(Case::ModuleRotating, Case::NativeRotating),
            ),
            beside(
                "the same, CPU of a limited answer (429) in all : native local_ratelimit, limited",
                self.each(|round| cpu(round, Case::ModuleLimited) / cpu(round, Case::NativeLimited)),
            ),
            beside(
                "the same, added CPU, four rules of two keys : one rule",
                self.added_over(Case::ModuleFour, Case::Module),
            ),
            beside(
                "the same, added CPU per request, two workers on one hot key : one worker",
                self.added_over(Case::ModuleTwo, Case::Module),
            ),
            ratio(
                TWO_WORKERS,
                "added CPU per request, two workers on one hot key : one worker",
                self.added_over(Case::WeirTwo, Case::Weir),
            ),
        ]
    }

    /// The proxy saturated, and one request at a time. The summary has both, and the word of the worse.
    fn beside_central(&self) -> [Row; 2] {
        let part = |of: Spread| format!("1/{:.1} (1/{:.1} to 1/{:.1})", of.median, of.low, of.high);
        let alone = |round: &Round, case| visit(round, case).alone_us - visit(round, Case::Nothing).alone_us;
        let saturated = self.added_over(Case::Central, Case::Weir);
        let one = self.each(|round| alone(round, Case::Central) / alone(round, Case::Weir));
        let both = format!("{} saturated; {} one request at a time", part(saturated), part(one));
        let worse = 1.0 / or_none(saturated.median.min(one.median));
        let row =
            |figure: &str, text, reached| Row { figure: figure.into(), target: Some(CENTRAL), text, reached };
        [
            row(
                "added CPU : central service on Redis (all processes), the proxy saturated",
                part(saturated),
                Some(CENTRAL.reached(worse, both)),
            ),
            row("the same, one request at a time", part(one), None),
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
        let module = format!("{} KB", self.module_bytes.div_ceil(1000));
        [
            Row::of(ADDRESS, ADDRESS.figure, format!("{of_address} B"), of_address.into()),
            Row::of(RESIDENT, "Envoy's resident memory after many addresses : after fewer", resident, ratio),
            Row::of(MODULE, MODULE.figure, module, self.module_bytes.into()),
        ]
    }

    /// Every listener: CPU time of a request, and what it has on top of the listener without a filter.
    pub fn listeners(&self) -> String {
        let mut page = String::from(
            "| listener | CPU per request, µs | added CPU, µs | added CPU, one at a time, µs | added p50, µs | \
             added p99, µs |\n|---|---|---|---|---|---|\n",
        );
        for case in Case::ONE_WORKER.into_iter().chain(Case::TWO_WORKERS) {
            let of = |part: fn(Visit) -> f64| self.each(|round| part(visit(round, case)));
            let added = |part: fn(Visit) -> f64| {
                let more = |round: &Round| part(visit(round, case)) - part(visit(round, case.base()));
                format!("{:.1}", self.each(more))
            };
            let cpu = of(|visit| visit.cpu_us);
            let _ = if case == case.base() {
                let [alone, p50, p99] =
                    [of(|visit| visit.alone_us), of(|visit| visit.p50_us), of(|visit| visit.p99_us)];
                let name = case.name();
                writeln!(
                    page,
                    "| {name} | {cpu:.1} | | in all {alone:.1} | in all {p50:.1} | in all {p99:.1} |"
                )
            } else {
                let [busy, alone] = [added(|visit| visit.cpu_us), added(|visit| visit.alone_us)];
                let [p50, p99] = [added(|visit| visit.p50_us), added(|visit| visit.p99_us)];
                writeln!(page, "| {} | {cpu:.1} | {busy} | {alone} | {p50} | {p99} |", case.name())
            };
        }
        page
    }

    /// Of one case's added CPU time, how many times the other's.
    fn added_over(&self, case: Case, other: Case) -> Spread {
        self.each(|round| added(round, case) / added(round, other))
    }

    fn above_empty(&self) -> Spread {
        self.each(|round| added(round, Case::Weir) / added(round, Case::Empty) - 1.0)
    }

    fn each(&self, figure: impl Fn(&Round) -> f64) -> Spread {
        Spread::of(self.rounds.iter().map(figure))
    }
}

impl Row {
    fn of(target: Target, figure: &str, text: String, value: f64) -> Self {
        let reached = target.reached(value, text.clone());
        Self { figure: figure.into(), target: Some(target), text, reached: Some(reached) }
    }
}

/// A ratio of times, which a must is for.
fn ratio(target: Target, figure: &str, reached: Spread) -> Row {
    Row::of(target, figure, format!("{reached:.2}"), or_none(reached.median))
}

/// A figure that nothing is asked of.
fn beside(figure: &str, reached: Spread) -> Row {
    Row { figure: figure.into(), target: None, text: format!("{reached:.2}"), reached: None }
}

/// A ratio of times; no number where a disturbance made one of the times negative.
fn or_none(ratio: f64) -> f64 {
    if ratio > 0.0 { ratio } else { f64::NAN }
}

fn visit(round: &Round, case: Case) -> Visit {
    round.get(&case).copied().unwrap_or_default()
}

fn cpu(round: &Round, case: Case) -> f64 {
    visit(round, case).cpu_us
}

/// CPU time of a request above that of the same round's listener without a filter, in microseconds.
pub fn added(round: &Round, case: Case) -> f64 {
    cpu(round, case) - cpu(round, case.base())
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

    fn round(figures: &[(Case, f64)]) -> Round {
        figures.iter().map(|(case, cpu_us)| (*case, Visit { cpu_us: *cpu_us, ..Visit::default() })).collect()
    }

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        let slow = round(&[(Case::Nothing, 100.0), (Case::Native, 110.0), (Case::Weir, 130.0)]);
        let quick = round(&[(Case::Nothing, 50.0), (Case::Native, 55.0), (Case::Weir, 65.0)]);
        let rounds = [slow, quick];
        let figures = Figures::of(&rounds, MEMORY, 390_000);
        assert_eq!(figures.added_over(Case::Weir, Case::Native), Spread { low: 3.0, median: 3.0, high: 3.0 });
    }

    #[test]
    fn the_summary_gets_the_word_of_the_worse_and_none_for_noise() {
        let mut round = round(&[
            (Case::Nothing, 50.0),
            (Case::Native, 49.0),
            (Case::Empty, 60.0),
            (Case::Weir, 58.0),
            (Case::Central, 66.0),
        ]);
        for (case, alone_us) in [(Case::Nothing, 100.0), (Case::Weir, 110.0), (Case::Central, 500.0)] {
            round.entry(case).or_default().alone_us = alone_us;
        }
        let rounds = [round];
        let reached = Figures::of(&rounds, MEMORY, 390_000).reached();
        let of = |target: Target| reached.iter().find(|row| row.to_string().starts_with(&target.cells()));
        let told = |target| of(target).map(|row| row.to_string().replace(&target.cells(), ""));
        assert_eq!(of(ALLOWED).map(Reached::word), Some(Word::Short));
        assert_eq!(of(ABOVE_EMPTY).map(Reached::word), Some(Word::Aim));
        let central = " 1/2.0 (1/2.0 to 1/2.0) saturated; 1/40.0 (1/40.0 to 1/40.0) one request at a time | falls short |";
        assert_eq!(told(CENTRAL).as_deref(), Some(central));
        assert_eq!(told(MODULE).as_deref(), Some(" 390 KB | the must |"));
        assert_eq!(reached.len(), 9);
    }

    #[test]
    fn two_workers_are_compared_with_two_workers() {
        let round = round(&[(Case::Nothing, 10.0), (Case::NothingTwo, 20.0), (Case::WeirTwo, 25.0)]);
        assert!((added(&round, Case::WeirTwo) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(10_000_000), "10,000,000");
    }
}
