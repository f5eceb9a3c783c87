//! Cost of the core natively, without a host, beside the crate `governor`: `make bench-native`.
//!
//! `make bench-native ONLY='decide/allowed'`, a part of it.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use weir_tests::cases;

mod governor;

fn cases_of(c: &mut Criterion, group: &str) {
    let mut timed = timed(c, group);
    for case in cases::all(Some(group)) {
        timed.bench_function(case.name, |b| {
            let mut operation = case.start();
            b.iter(&mut operation);
        });
    }
    timed.finish();
}

/// A group of operations that are one decision, or one message, each.
fn timed<'a>(c: &'a mut Criterion, group: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(group);
    group.throughput(Throughput::Elements(1));
    group
}

fn decide(c: &mut Criterion) {
    cases_of(c, "decide");
}

fn matching(c: &mut Criterion) {
    cases_of(c, "matching");
}

fn table(c: &mut Criterion) {
    cases_of(c, "table");
}

fn own_memory(c: &mut Criterion) {
    cases_of(c, "own memory");
}

fn wire(c: &mut Criterion) {
    cases_of(c, "wire");
}

criterion_group!(benches, decide, matching, table, own_memory, wire, governor::keyed);
criterion_main!(benches);
