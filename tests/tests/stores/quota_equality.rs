//! The script for quotas of the calendar and the reference in weir-budget agree to the bit, on anything.

use std::collections::BTreeMap;

use redis::AsyncCommands;
use weir_budget::budget::BudgetId;
use weir_budget::escrow::{Claim, Draw, Drawn};
use weir_budget::strict::Strict;
use weir_limiter::calendar::{Calendar, Window};
use weir_limiter::quota::{Period, Quota};
use weir_sync::store::Store;
use weir_sync::store::redis::quota_key;
use weir_tests::redis::Redis;

use crate::equality::Random;
use crate::quota::unix_us;
use crate::{connected, id, memory, quota};

/// Draws per seed.
const DRAWS: usize = 400;
/// Epochs of a POP: few, so that they end and are claimed again.
const EPOCHS: [u64; 6] = [0, 1, 2, 3, 4, u64::MAX];

/// A window whose boundaries come while the test runs, or are past, or far.
fn window(random: &mut Random) -> Window {
    let calendar = random.pick(&Calendar::ALL);
    if random.below(8) == 0 {
        return random.pick(&[Window::unknown(calendar), calendar.window(unix_us())]);
    }
    let start_us = unix_us() - 2_000 + random.below(40_000);
    let end_us = start_us + 1 + random.below(60_000);
    Window { calendar, start_us, end_us, next_end_us: end_us + 1 + random.below(100_000) }
}

fn draw(random: &mut Random, counts: [Quota; 3], charged: &BTreeMap<(BudgetId, u64), u64>) -> Draw {
    let (value, quota) = random.pick(&[(b'a', counts[0]), (b'b', counts[1]), (b'c', counts[2])]);
    let id = id(&[value]);
    let claims = (0..random.below(4)).map(|_| {
        let epoch = random.pick(&EPOCHS);
        let known = charged.get(&(id.clone(), epoch)).copied().unwrap_or_default();
        let admitted = match random.below(8) {
            0 => random.tokens(),
            1 => 0,
            _ => random.below(known + 1),
        };
        let ahead = match random.below(8) {
            0 => 0,
            1 => u32::MAX,
            _ => u32::try_from(random.below(200)).unwrap(),
        };
        Claim { epoch, admitted, ahead }
    });
    let claims = claims.collect();
    let lease_us = random.pick(&[0, 64, 2_000, 10_000, 30_000, 2_000_000, u64::MAX]);
    Draw { id, quota, lease_us, window: Some(window(random)), claims }
}

/// What the runs must have come across, or they test too little.
#[derive(Debug, Default)]
struct Met {
    given: u64,
    outstanding: u64,
    refused: usize,
    waits: usize,
    soon: usize,
}

impl Met {
    fn note(&mut self, drawn: &Drawn) {
        self.given += drawn.given;
        self.outstanding = self.outstanding.max(drawn.outstanding);
        self.refused += drawn.leases.iter().filter(|lease| lease.lease_ms == 0).count();
        self.waits += drawn.leases.iter().filter(|lease| lease.wait_ms > 0).count();
        self.soon += drawn.leases.iter().filter(|lease| (1..9).contains(&lease.lease_ms)).count();
    }

    fn is_much(&self) -> bool {
        self.given > 1_000 && self.outstanding > 100 && self.refused > 20 && self.waits > 20 && self.soon > 3
    }
}

async fn agrees_with_the_reference(store: &dyn Store, seed: u64) {
    let mut random = Random(seed);
    let mut reference = BTreeMap::new();
    let mut charged = BTreeMap::new();
    let mut met = Met::default();
    let mut counts = [100, 1_000_000, 7].map(|count| quota(count, Period::Day, count));
    for turn in 0..DRAWS {
        // Somebody changes the rule now and then, in every other run.
        if seed.is_multiple_of(2) && random.below(20) == 0 {
            counts = [random.quota(), random.quota(), random.quota()];
        }
        let pop = random.pick(&["one", "two"]);
        let draws: Vec<Draw> = (0..=random.below(3)).map(|_| draw(&mut random, counts, &charged)).collect();
        let answers = store.draw(pop, &draws).await.unwrap();
        for (draw, drawn) in draws.iter().zip(answers) {
            let strict = reference.entry(Strict::id(draw)).or_insert_with(|| Strict::of(draw));
            let expected = strict.draw(drawn.now_us, pop, draw);
            assert_eq!(drawn, expected, "seed {seed}, turn {turn}, {draw:?}");
            for (claim, lease) in draw.claims.iter().zip(&drawn.leases) {
                charged.insert((draw.id.clone(), claim.epoch), lease.charged);
            }
            met.note(&drawn);
        }
    }
    assert!(met.is_much(), "seed {seed}: {met:?}");
}

#[tokio::test]
async fn redis_agrees_with_the_reference_to_the_bit() {
    let redis = Redis::start().await;
    let store = connected(&redis).await;
    for seed in [1, 2, 3, 4, 0x5eed, u64::MAX] {
        agrees_with_the_reference(&store, seed).await;
        let mut connection = redis.connection().await;
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    }
}

#[tokio::test]
async fn memory_agrees_with_the_reference_to_the_bit() {
    for seed in [1, 2, 3, 4, 0x5eed, u64::MAX] {
        agrees_with_the_reference(&memory(), seed).await;
    }
}

/// Redis's clock cannot be set back here; what it wrote can be set forward, which is the same to it.
#[tokio::test]
async fn a_clock_that_steps_back_is_the_same_to_both() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let of = |now_us: u64, epoch, admitted, ahead| Draw {
        id: id(b"a"),
        quota: quota(100, Period::Day, 100),
        lease_us: 600_000_000,
        window: Some(Calendar::Day.window(now_us)),
        claims: vec![Claim { epoch, admitted, ahead }],
    };
    // It drew in the next day, an hour after its begin, and is now back in this one.
    let tomorrow_us = Calendar::Day.window(unix_us()).end_us + 3_600_000_000;
    let first = of(tomorrow_us, 1, 0, 60);
    let mut reference = Strict::of(&first);
    let drawn = reference.draw(tomorrow_us, "fra1", &first);
    let (key, until_us) = (quota_key(Calendar::Day, &id(b"a")), tomorrow_us + first.held_us());
    let end_us = Calendar::Day.window(tomorrow_us).end_us;
    let head = [
        ("used", 60),
        ("end_us", end_us),
        ("at_us", tomorrow_us),
        ("outstanding", 60),
        ("next_us", until_us),
    ];
    let () = connection.hset_multiple(&key, &head).await.unwrap();
    let holder = format!("holder:{:016x}:fra1", 1);
    let () = connection.hset(&key, holder, format!("60 0 {until_us}")).await.unwrap();
    assert_eq!(drawn.given, 60);

    for (epoch, admitted, ahead) in [(1, 10, 60), (2, 0, 50), (1, 20, 0), (3, 0, 1)] {
        let draw = of(unix_us(), epoch, admitted, ahead);
        let drawn = store.draw("fra1", std::slice::from_ref(&draw)).await.unwrap().remove(0);
        assert_eq!(drawn, reference.draw(drawn.now_us, "fra1", &draw), "{draw:?}");
    }
}
