//! Reported costs of requests that held tokens of a strict rule: no more than the rule allows, and as much
//! of it at once as an honest POP's requests cost.

use proptest::prelude::*;
use weir_budget::escrow::{AcquireRequest, Escrow};
use weir_budget::hub::{Hub, StoreReplies};
use weir_budget::report_limits::{BURSTS, KnownRule, LATE_NS, RefusedClaimReason, ReporterKind};
use weir_protocol::messages::{Allowance, BudgetRule, HeldEpoch, Key, Leased, Report};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;

use crate::{NOW_US, at, hub};

/// The most that a request may cost, by the rule.
const COST_MAX: u32 = 300;
/// Time for which a request is reported to go on, in milliseconds.
const HOLD_MS: u32 = 60_000;

/// 10 a second, of which 100 at once.
fn quota() -> Quota {
    Quota::new(Rate::new(10, Period::Second).unwrap(), 100).unwrap()
}

fn rule() -> BudgetRule {
    BudgetRule { name: "llm".into(), quota: quota(), sharing: Sharing { strict: true, ..Sharing::of(quota()) } }
}

/// Report of an epoch of the client's: its cost, the tokens it wants, and the time for which it holds them.
#[derive(Clone, Copy)]
struct ReportedEpoch {
    epoch: u32,
    cost: u64,
    ahead: u32,
    held_ms: Option<u32>,
}

fn acquired(epoch: u32, tokens: u32) -> ReportedEpoch {
    ReportedEpoch { epoch, cost: 0, ahead: tokens, held_ms: None }
}

fn held(epoch: u32, tokens: u32) -> ReportedEpoch {
    ReportedEpoch { held_ms: Some(HOLD_MS), ..acquired(epoch, tokens) }
}

fn settled(epoch: u32, cost: u64) -> ReportedEpoch {
    ReportedEpoch { epoch, cost, ahead: 0, held_ms: Some(0) }
}

/// A weir-sync, its store, and one client of a strict rule.
struct Sync {
    hub: Hub,
    store: Escrow,
    sequence: u64,
    /// If the store does not answer: whether it acquires nevertheless.
    silent: Option<bool>,
    refused: Vec<(RefusedClaimReason, u64, u64)>,
}

impl Sync {
    fn new() -> Self {
        let mut hub = hub("eu", 1);
        hub.set_rules(1, vec![KnownRule { rule: rule(), ban_ms: 0, cost_max: COST_MAX }]);
        let (store, refused) = (Escrow::default(), Vec::new());
        Self { hub, store, sequence: 0, silent: None, refused }
    }

    /// Answers to these epochs, reported at `ms`; none to those that are not settled.
    fn observe(&mut self, ms: u64, epochs: &[ReportedEpoch]) -> Vec<Option<Leased>> {
        self.observe_from(ReporterKind::Pop, ms, epochs)
    }

    fn observe_from(&mut self, reporter: ReporterKind, ms: u64, epochs: &[ReportedEpoch]) -> Vec<Option<Leased>> {
        self.sequence += 1;
        let key = |epoch: &ReportedEpoch| Key {
            value: vec![1],
            epoch: epoch.epoch,
            admitted: epoch.cost,
            asked: epoch.cost,
            ahead: epoch.ahead,
            ..Key::default()
        };
        let held = epochs.iter().zip(0..).filter_map(|(epoch, key)| Some(HeldEpoch { key, for_ms: epoch.held_ms? }));
        let report = Report {
            pop: "fra1".into(),
            table: 1,
            sequence: self.sequence,
            made_ms: ms,
            rules: vec![rule()],
            keys: epochs.iter().map(key).collect(),
            held: held.collect(),
            ..Report::default()
        };
        let now = at(ms);
        let pending = self.hub.report(reporter, now, NOW_US, report);
        let silent = self.silent;
        let acquire_on = |acquire: &AcquireRequest| {
            let acquired = (silent != Some(false)).then(|| self.store.acquire(NOW_US + ms * 1_000, "fra1", acquire));
            acquired.filter(|_| silent.is_none()).ok_or(())
        };
        let acquired = pending.acquires().iter().map(acquire_on);
        let answers = StoreReplies { accounts: vec![], acquired: acquired.collect(), pops: Ok(1) };
        let outcome = self.hub.settle(now, 1, pending, answers);
        let refused = outcome.facts.refused.iter();
        self.refused.extend(refused.map(|refusal| (refusal.reason, refusal.claimed, refusal.expected)));
        let reply = outcome.reply;
        let grants = reply.grants.iter().enumerate();
        grants
            .map(|(at, grant)| match grant {
                Allowance::Leased(leased) if reply.settled.covers(at) => Some(*leased),
                _ => None,
            })
            .collect()
    }

    /// Number of tokens that the budget lacks.
    fn lacking(&self) -> u64 {
        self.store.deficit_ns().div_ceil(quota().token_ns())
    }
}

#[test]
fn a_request_costs_at_most_its_rules_maximum() {
    let mut sync = Sync::new();
    sync.observe(0, &[acquired(1, 10)]);
    for _ in 0..2 {
        assert_eq!(sync.observe(0, &[settled(1, 1_000_000)]), [Some(Leased::NONE)]);
        assert_eq!(sync.lacking(), COST_MAX.into());
    }
    assert_eq!(sync.refused[0], (RefusedClaimReason::Cost, 1_000_000, COST_MAX.into()));
}

/// Bound on the debt that a POP that lies can leave to a client.
#[test]
fn costs_charged_at_once_are_bounded_and_the_rest_follows() {
    let mut sync = Sync::new();
    let epochs = 1..=40_u32;
    sync.observe(0, &epochs.clone().map(|epoch| acquired(epoch, 1)).collect::<Vec<_>>());
    let all: Vec<_> = epochs.map(|epoch| settled(epoch, COST_MAX.into())).collect();
    let most = BURSTS * 100 + LATE_NS / quota().token_ns() + u64::from(COST_MAX);
    let mut waiting = all.clone();
    let mut ms = 0;
    while !waiting.is_empty() {
        let answers = sync.observe(ms, &waiting);
        // Its clock may be quicker than that of the store.
        let (debt, drift) = (sync.lacking().saturating_sub(100), ms * 10 / 1_000 / 64);
        assert!(debt <= most + drift, "{debt} at {ms}");
        let is_over = |answer: &Option<Leased>| *answer == Some(Leased::NONE);
        let over: Vec<_> = answers.iter().map(is_over).collect();
        if ms == 0 {
            assert!(over.iter().filter(|is_over| **is_over).count() < 4, "{over:?}");
            assert!(sync.refused.iter().all(|refused| refused.0 == RefusedClaimReason::Tokens), "{:?}", sync.refused);
        }
        let mut over = over.into_iter();
        waiting.retain(|_| over.next() == Some(false));
        ms += 250;
    }
    // 12,000 at 10 a second, of which the last ones are owed still.
    assert!((1_100_000..1_200_000).contains(&ms), "{ms}");
    assert_eq!(sync.observe(ms + 200_000, &[acquired(101, 1)])[0].map(|lease| lease.charged), Some(1));
}

#[test]
fn a_waiting_cost_that_is_reported_again_is_charged_once() {
    let mut sync = Sync::new();
    sync.observe(0, &[acquired(1, 50), acquired(2, 50)]);
    let mut charged = Vec::new();
    for ms in [0, 250, 500] {
        sync.observe(ms, &[settled(1, 300), settled(1, 300), settled(2, 0)]);
        charged.push(sync.lacking());
    }
    assert_eq!(charged, [300, 298, 295], "it refills, and nothing else is taken");
    assert_eq!(sync.refused, []);
}

/// An honest POP reports again what was not charged.
#[test]
fn costs_that_did_not_reach_the_store_do_not_count() {
    for acquires in [false, true] {
        let mut sync = Sync::new();
        let epochs = 1..=50_u32;
        sync.observe(0, &epochs.clone().map(|epoch| acquired(epoch, 2)).collect::<Vec<_>>());
        let ended: Vec<_> = epochs.map(|epoch| settled(epoch, 8)).collect();
        sync.silent = Some(acquires);
        for ms in (0..10_000).step_by(250) {
            assert_eq!(sync.observe(ms, &ended), vec![None; 50]);
        }
        sync.silent = None;
        assert_eq!(sync.observe(10_000, &ended), vec![Some(Leased::NONE); 50]);
        assert_eq!(sync.refused, []);
        assert!((300..=321).contains(&sync.lacking()), "400, less what the time has paid: {}", sync.lacking());
    }
}

#[test]
fn costs_that_the_own_gateway_settles_are_not_limited() {
    let mut sync = Sync::new();
    sync.observe_from(ReporterKind::Gateway, 0, &[acquired(1, 1), acquired(2, 1)]);
    sync.observe_from(ReporterKind::Gateway, 0, &[settled(1, 5_000), settled(2, 5_000)]);
    assert_eq!((sync.lacking(), sync.refused.len()), (10_000, 0));
}

/// A request of an honest POP.
#[derive(Clone, Copy, Debug)]
struct Ask {
    after_ms: u64,
    reserve: u32,
    /// In parts of the reserve; up to four.
    cost_percent: u64,
    lasts_ms: u64,
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let after_ms = prop_oneof![8 => 0..300_u64, 2 => 0..10_000_u64];
    let ask = (after_ms, 1..75_u32, 0..=400_u64, 0..20_000_u64)
        .prop_map(|(after_ms, reserve, cost_percent, lasts_ms)| Ask { after_ms, reserve, cost_percent, lasts_ms });
    prop::collection::vec(ask, 1..80)
}

proptest! {
    /// One whose requests cost up to four times what they held: some reports are lost, and some answers.
    #[test]
    fn an_honest_pop_is_refused_no_cost(
        asks in asks(),
        losses in prop::collection::vec(any::<prop::sample::Index>(), 7),
    ) {
        let mut sync = Sync::new();
        let losses: Vec<_> = losses.iter().map(|loss| loss.index(60)).collect();
        let (mut ms, mut costs, mut tries) = (0, 0, 0);
        // When each ends, its epoch, what it holds and what it cost.
        let mut open = Vec::<(u64, u32, u32, u64)>::new();
        let mut report_at = 250;
        for (ask, epoch) in asks.iter().zip(1..) {
            let begins = ms + ask.after_ms;
            while report_at < begins {
                tries += 1;
                let epochs = open.iter().map(|&(ends, epoch, holds, cost)| {
                    if ends <= report_at { settled(epoch, cost) } else { held(epoch, holds) }
                });
                let epochs: Vec<_> = epochs.collect();
                if !losses.contains(&(tries % 60)) {
                    let answers = sync.observe(report_at, &epochs);
                    if !losses.contains(&((tries + 31) % 60)) {
                        let mut answers = answers.into_iter();
                        open.retain(|_| answers.next() != Some(Some(Leased::NONE)));
                    }
                }
                report_at += 250;
            }
            ms = begins;
            if sync.observe(ms, &[acquired(epoch, ask.reserve)])[0].is_some_and(|lease| lease.charged == ask.reserve.into()) {
                let cost = u64::from(ask.reserve) * ask.cost_percent / 100;
                open.push((ms + ask.lasts_ms, epoch, ask.reserve, cost));
                costs += cost;
            } else {
                sync.observe(ms, &[ReportedEpoch { ahead: 0, ..acquired(epoch, 0) }]);
            }
        }
        prop_assert_eq!(&sync.refused, &[], "of {} tokens", costs);
    }
}
