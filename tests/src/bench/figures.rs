//! The figures: what must be reached, and what was.

use std::fmt::Write;

use weir_limiter::slot::{KEYS_PER_SLOT, SLOT_BYTES};

use crate::bench::case::Case;
use crate::bench::memory::Memory;
use crate::bench::rounds::{Round, Visit};
use crate::bench::stats::Spread;

/// Figure, must, aim, reached.
type Row = [String; 4];

/// What the rounds measured.
#[derive(Debug)]
pub struct Figures<'a> {
    rounds: &'a [Round],
}

impl<'a> Figures<'a> {
    /// Of complete rounds.
    pub fn of(rounds: &'a [Round]) -> Self {
        Self { rounds }
    }

    /// The figures that have a must and an aim, and those beside them: one per line.
    pub fn targets(&self, memory: &Memory, module_bytes: u64) -> String {
        let mut page = String::from("| figure | must | aim | reached (quartiles) |\n|---|---|---|---|\n");
        for row in [self.beside_native(), self.beside_central(), sizes(memory, module_bytes)].concat() {
            let [figure, must, aim, reached] = row;
            let _ = writeln!(page, "| {figure} | {must} | {aim} | {reached} |");
        }
        page
    }

    fn beside_native(&self) -> Vec<Row> {
        let limited = self.each(|round| cpu(round, Case::WeirLimited) / cpu(round, Case::NativeLimited));
        let rows = [
            (
                "added CPU, allowed, one rule, real upstream : native local_ratelimit per address",
                ["3.0", "2.0"],
                self.added_over(Case::Weir, Case::Native),
            ),
            (
                "above the empty wasm filter, as a part of what the empty filter adds",
                ["0.5", "0.25"],
                self.above_empty(),
            ),
            (
                "CPU of a limited answer (429) in all, flood from one address : native local_ratelimit, limited",
                ["1.5", "1.0"],
                limited,
            ),
            (
                "100,000 rotating addresses, added CPU : native local_ratelimit, the same",
                ["", ""],
                self.added_over(Case::WeirRotating, Case::NativeRotating),
            ),
            (
                "added CPU, four rules of two keys : one rule",
                ["1.6", "1.3"],
                self.added_over(Case::WeirFour, Case::Weir),
            ),
            ("added CPU, quota headers on : off", ["", ""], self.added_over(Case::WeirHeaders, Case::Weir)),
            (
                "added CPU per request, two workers on one hot key : one worker",
                ["1.3", "1.1"],
                self.added_over(Case::WeirTwo, Case::Weir),
            ),
        ];
        rows.map(|(figure, [must, aim], reached)| row(figure, must, aim, format!("{reached:.2}"))).into()
    }

    fn beside_central(&self) -> Vec<Row> {
        let part = |of: Spread| format!("1/{:.1} (1/{:.1} to 1/{:.1})", of.median, of.low, of.high);
        let alone = |round: &Round, case| visit(round, case).alone_us - visit(round, Case::Nothing).alone_us;
        let saturated = self.added_over(Case::Central, Case::Weir);
        let one = self.each(|round| alone(round, Case::Central) / alone(round, Case::Weir));
        let figure = "added CPU : central service on Redis (all processes), the proxy saturated";
        vec![
            row(figure, "1/15", "1/30", part(saturated)),
            row("the same, one request at a time", "1/15", "1/30", part(one)),
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

fn sizes(memory: &Memory, module_bytes: u64) -> Vec<Row> {
    let (many, few) = (grouped(memory.many_addresses), grouped(memory.few_addresses));
    let [before_mib, few_mib, many_mib] =
        [memory.before_kib, memory.few_kib, memory.many_kib].map(|kib| kib / 1024);
    let resident =
        format!("{:.3} ({many_mib} : {few_mib} MiB; {before_mib} before the first)", memory.ratio());
    let figure = format!("Envoy's resident memory after {many} addresses : after {few}");
    vec![
        row("tracked address in the table", "48 B", "32 B", format!("{} B", SLOT_BYTES / KEYS_PER_SLOT)),
        row(&figure, "1.02", "1.00", resident),
        row("wasm module", "400 KB", "200 KB", format!("{} KB", module_bytes.div_ceil(1000))),
    ]
}

fn row(figure: &str, must: &str, aim: &str, reached: String) -> Row {
    [figure.into(), must.into(), aim.into(), reached]
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

    fn round(figures: &[(Case, f64)]) -> Round {
        figures.iter().map(|(case, cpu_us)| (*case, Visit { cpu_us: *cpu_us, ..Visit::default() })).collect()
    }

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        let slow = round(&[(Case::Nothing, 100.0), (Case::Native, 110.0), (Case::Weir, 130.0)]);
        let quick = round(&[(Case::Nothing, 50.0), (Case::Native, 55.0), (Case::Weir, 65.0)]);
        let rounds = [slow, quick];
        let ratio = Figures::of(&rounds).added_over(Case::Weir, Case::Native);
        assert_eq!(ratio, Spread { low: 3.0, median: 3.0, high: 3.0 });
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
