//! The quick path comes to the same as the general one.

use super::*;
use crate::table::slot::{Entry, Tag};
use crate::table::{ChangeFn, EntryChange, SharedSlots, SlotsHandle};
use std::format;
use weir_protocol::messages::Ban;

/// Slots that are shared memory, with the quick path or without.
struct Seen {
    handle: SlotsHandle,
    count: u32,
    is_quick: bool,
}

impl Seen {
    fn new(slots: u32, is_quick: bool) -> Self {
        let handle = SlotsHandle::new(SharedSlots::new(slots, 1));
        Self { handle, count: slots, is_quick }
    }

    /// All there is in the table: entries and their order, and what keys without a place owe.
    fn all(&mut self) -> Vec<(Vec<(Tag, Entry)>, usize)> {
        let mut slot = Slot::empty();
        let of = |i| {
            self.handle.read(i, &mut slot).unwrap();
            (slot.entries().collect(), slot.keys_at(Time::ZERO))
        };
        (0..self.count).map(of).collect()
    }
}

impl Slots for Seen {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        self.handle.read(index, into)
    }

    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError> {
        self.handle.write(index, slot, version)
    }

    fn count(&self) -> u32 {
        self.count
    }

    fn changes_in_place(&self) -> bool {
        self.is_quick
    }

    fn change_in_place(&mut self, indices: &[u32], changes: &mut [EntryChange], evaluate: ChangeFn<'_>) -> bool {
        self.handle.change_in_place(indices, changes, evaluate)
    }
}

// I3
#[test]
fn a_quota_that_returns_is_left_to_the_general_path_until_its_changes_are_over() {
    let [first, other] = [one_rule("10/h", 10), one_rule("20/h", 20)];
    let (mut limiter, mut slots) = (limiter(first.clone(), None), Seen::new(1, true));
    let mut passed = |limiter: &mut Limiter, asked, now| admitted(limiter, &mut slots, "192.0.2.1", asked, now);
    assert_eq!(passed(&mut limiter, 5, T0), 5);
    limiter.replace_rules(other);
    assert_eq!(passed(&mut limiter, 9, T0), 9);
    limiter.replace_rules(first);
    assert_eq!(passed(&mut limiter, 1, T0), 0);
    let later = T0 + 24 * 3_600 * SECOND_NS;
    limiter.rules.end_changes(later);
    assert!(limiter.rules.plain.is_none(), "a bucket may owe for longer than that");
    let later = later + 24 * 3_600 * SECOND_NS;
    limiter.rules.end_changes(later);
    assert!(limiter.rules.plain.is_some());
    assert_eq!(passed(&mut limiter, 11, later), 10);
}

/// One of two worlds in which the same happens.
struct World {
    limiter: Limiter,
    slots: Seen,
}

/// An event in both worlds.
#[derive(Clone, Debug)]
enum Step {
    Ask {
        client: u8,
    },
    /// A report is made, and answered with this admit ratio in thousandths, level and burst; or a tick goes by.
    Report {
        ratio: Option<u64>,
        level_milli: i64,
        burst: u32,
        pops: u32,
    },
    Ban {
        client: u8,
        for_ms: u32,
    },
    /// The rules are replaced by the other ones.
    Replace,
    OnlyAsks(bool),
}

impl World {
    fn new(rules: RuleSet, worker: Option<u64>, slots: u32, is_quick: bool) -> Self {
        Self { limiter: limiter(rules, worker), slots: Seen::new(slots, is_quick) }
    }

    /// Does `step`, and returns all its effects as text.
    fn step(&mut self, step: &Step, rules: &RuleSet, now: Time) -> String {
        let Self { limiter, slots } = self;
        let mut result = String::new();
        match step {
            Step::Ask { client } => {
                let is_old = client % 3 > 0;
                let address =
                    if is_old { format!("10.0.0.{client}:80") } else { format!("[2001:db8:0:{client}::7]:80") };
                let api_key = (client % 7 != 6).then(|| format!("key {}", client % 4));
                let key = api_key.as_deref().map(|key| ("x-api-key", key));
                let request = [("source", address.as_str())].into_iter().chain(key);
                let decision = limiter.decide(&mut Asks(request.collect()), slots, now);
                result = format!("{decision:?}");
                if limiter.current.only_asks && decision.outcome() == DecisionKind::Allow {
                    limiter.take_back(slots, now);
                }
            }
            Step::Report { ratio, level_milli, burst, pops } => {
                limiter.rules.end_changes(now);
                let report = limiter.report(slots, true, now);
                result = format!("{report:?}");
                if let Some((report, ratio)) = report.zip(*ratio) {
                    let grant = Grant { burst: *burst, ..grant(ratio.into(), 1_000, *level_milli) };
                    answer(limiter, slots, &report, *pops, grant, now);
                }
            }
            Step::Ban { client, for_ms } => {
                if let Some(report) = limiter.report(slots, true, now) {
                    let bans = vec![Ban { rule: 0, value: vec![4, 32, 10, 0, 0, *client], for_ms: *for_ms }];
                    let rules = vec!["r0".into()];
                    let sequence = report.sequence;
                    let reply = Reply { sequence, pops: 1, settled: Settled::None, rules, bans, ..Reply::default() };
                    let _ = limiter.apply(sequence, &reply.encode(), slots, now);
                }
            }
            Step::Replace => limiter.replace_rules(rules.clone()),
            Step::OnlyAsks(only_asks) => limiter.current.only_asks = *only_asks,
        }
        let counted: Vec<_> = (0..limiter.rules().rules().len()).map(|i| limiter.counters().take_rule(i)).collect();
        let events: Vec<_> =
            CountedEvent::METRICS.iter().map(|(event, _)| limiter.counters().take_event(*event)).collect();
        format!("{result} {counted:?} {events:?} {:?}", self.slots.all())
    }
}

/// A plain rule: its key, the rate a second, the burst, the cost, `on_sync_loss`, the local burst, `on_allowed`, and
/// the jitter.
fn plain_rule() -> impl Strategy<Value = Value> {
    let address = json!({"client_address": {"ipv4": 32, "ipv6": 60}});
    let keys = [
        json!([address]),
        json!([address]),
        json!([{"header": "x-api-key"}]),
        json!([{"header": "x-api-key"}]),
        json!([address, {"header": "x-api-key"}]),
        json!([{"client_address": {"ipv4": 29, "ipv6": 48}}]),
        json!(["all"]),
    ];
    let unsynced = prop::sample::select(vec!["local", "share", "deny"]);
    let missing = prop::sample::select(vec!["skip", "share", "limit"]);
    let key = (prop::sample::select(keys.to_vec()), missing);
    (key, 1u32..200, 2u32..40, 1u32..3, unsynced, 1u32..40, prop::bool::ANY, 0u32..4).prop_map(
        |((key, missing), rate, burst, cost, unsynced, local, on_allowed, jitter_s)| {
            json!({"key": key, "missing": missing, "rate": format!("{rate}/s"), "burst": burst, "cost": cost,
                "on_sync_loss": unsynced, "local_burst": local.clamp(cost, burst),
                "response": {"on_allowed": on_allowed, "retry_after_jitter_s": jitter_s}})
        },
    )
}

fn rule_set() -> impl Strategy<Value = RuleSet> {
    prop::collection::vec(plain_rule(), 1..5).prop_map(|mut list| {
        for (i, rule) in list.iter_mut().enumerate() {
            rule["name"] = json!(format!("r{i}"));
        }
        rules(&Value::Array(list))
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (0u8..40).prop_map(|client| Step::Ask { client }),
        60 => (0u8..3).prop_map(|client| Step::Ask { client }),
        8 => (prop::option::of(0u64..=1_000), -5_000i64..20_000, 0u32..30, 1u32..4).prop_map(
            |(ratio, level_milli, burst, pops)| Step::Report { ratio, level_milli, burst, pops }
        ),
        1 => (0u8..3, 0u32..500).prop_map(|(client, for_ms)| Step::Ban { client, for_ms }),
        1 => Just(Step::Replace),
        2 => prop::bool::ANY.prop_map(Step::OnlyAsks),
    ]
}

proptest! {
    /// The same requests, and all that may come between them, with and without the quick path: the same decisions,
    /// counts, reports and table after each.
    // I3
    #[test]
    fn both_paths_come_to_the_same(
        (first, second) in (rule_set(), rule_set()), worker in prop::option::of(Just(1u64)),
        slots in prop::sample::select(vec![1u32, 2, 3, 64]),
        steps in prop::collection::vec((step(), -3i64..60), 1..200),
    ) {
        let [mut quick, mut general] =
            [true, false].map(|is_quick| World::new(first.clone(), worker, slots, is_quick));
        let (mut now, mut rules) = (T0, [&second, &first].into_iter().cycle());
        for (step, step_ms) in steps {
            now = Time::from_nanos(now.as_nanos().saturating_add_signed(step_ms * 1_000_003));
            let next = if matches!(step, Step::Replace) { rules.next().unwrap_or(&first) } else { &first };
            let [one, other] = [&mut quick, &mut general].map(|world| world.step(&step, next, now));
            prop_assert_eq!(one, other, "{:?}", step);
        }
    }
}
