//! A simulated POP: it reports its keys as a filter does, and keeps to what it is granted and to a bucket of its own.

use std::ops::Range;
use std::time::{Duration, Instant};

use hyper::Method;
use weir_protocol::messages::{
    AdmitRatio, Allowance, BudgetRule, CONTENT_TYPE, Key, Message, REPORT_PATH, Reply, Report,
};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;

use crate::client::{Ask, Client};
use crate::weir_sync::{TOKEN, WeirSync};

/// The one rule of the benchmark.
const RULE: &str = "bench";
/// Requests for each key between two reports.
const ASKED: u64 = 20;
/// The epoch of every key: one bucket each, never made anew.
const EPOCH: u32 = 1;

/// The bucket that a POP has of each key: it admits no more than a burst and what refills, whatever weir-sync grants.
/// It is full at first.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// The time at which it is full again, since the POP began.
    full_at: Duration,
}

impl Bucket {
    /// Takes as many of the `wanted` tokens as there are at `now`, and returns their number.
    fn take(&mut self, quota: Quota, now: Duration, wanted: u64) -> u64 {
        let lacking_ns = u64::try_from(self.full_at.saturating_sub(now).as_nanos()).unwrap_or(u64::MAX);
        let taken = wanted.min(quota.fill_ns().saturating_sub(lacking_ns) / quota.token_ns());
        self.full_at = self.full_at.max(now) + Duration::from_nanos(taken * quota.token_ns());
        taken
    }

    /// Tokens that it lacks at `now`.
    fn missing(&self, quota: Quota, now: Duration) -> u64 {
        let lacking = self.full_at.saturating_sub(now).as_nanos();
        u64::try_from(lacking).unwrap_or(u64::MAX).div_ceil(quota.token_ns())
    }
}

/// A POP with one connection, kept alive, and its keys.
pub(super) struct Pop {
    client: Client,
    began: Instant,
    quota: Quota,
    report: Report,
    /// Per key.
    held: Vec<Held>,
    settled_ms: u64,
}

/// A POP's state of a key.
#[derive(Clone, Copy)]
struct Held {
    ratio: AdmitRatio,
    /// Error diffusion, in steps of 2^-30.
    credit: u64,
    bucket: Bucket,
    confirmed: u64,
    answered: u64,
}

/// The outcome of a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// From the first byte sent to the last received.
    pub(super) took: Duration,
    /// True if the counts were charged.
    pub(super) is_settled: bool,
    /// Of the report and of the reply, without HTTP's heads.
    pub(super) bytes: (u64, u64),
}

impl Pop {
    /// A POP of `weir_sync` with these keys, which may be asked for once a second: key `n` has the twelve decimal
    /// digits of `n` as its value in hex.
    pub(super) fn new(weir_sync: &WeirSync, name: &str, keys: Range<u64>) -> Self {
        Self::with_quota(weir_sync, name, keys, quota(60, 600))
    }

    /// The same, where each key has this `quota`.
    pub(super) fn with_quota(weir_sync: &WeirSync, name: &str, keys: Range<u64>, quota: Quota) -> Self {
        let key = |n| Key { value: value(n), epoch: EPOCH, ..Key::default() };
        let rules = vec![BudgetRule { name: RULE.into(), quota, sharing: Sharing::of(quota) }];
        let keys: Vec<Key> = keys.map(key).collect();
        let held = Held { ratio: AdmitRatio::ONE, credit: 0, bucket: Bucket::default(), confirmed: 0, answered: 0 };
        let held = vec![held; keys.len()];
        let report = Report { pop: name.into(), worker: 1, table: 1, rules, keys, ..Report::default() };
        let client = Client::of_port(weir_sync.address().port());
        Self { client, began: Instant::now(), quota, report, held, settled_ms: 0 }
    }

    /// Lets requests come in for every key, reports, and takes in the answer; panics where there is none.
    pub(super) async fn exchange(&mut self) -> Outcome {
        self.ask_for_each(self.began.elapsed());
        let report = self.report.encode();
        let request_bytes = report.len() as u64;
        let ask = ask(report);
        let sent = Instant::now();
        let answer = self.client.send(&ask).await;
        let took = sent.elapsed();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let reply = Reply::decode(&answer.body).unwrap_or_else(|e| panic!("no reply: {e}"));
        assert_eq!(reply.sequence, self.report.sequence, "the reply to another report");
        self.observe(&reply);
        Outcome { took, is_settled: reply.settled.is_all(), bytes: (request_bytes, answer.body.len() as u64) }
    }

    /// Makes the report of `now`, a span since it began: each key was asked for [`ASKED`] times.
    fn ask_for_each(&mut self, now: Duration) {
        let now_ms = millis(now);
        self.report.sequence += 1;
        self.report.made_ms = now_ms;
        for (key, held) in self.report.keys.iter_mut().zip(&mut self.held) {
            held.credit += ASKED * u64::from(held.ratio.bits());
            let one = u64::from(AdmitRatio::ONE.bits());
            key.asked += ASKED;
            key.admitted += held.bucket.take(self.quota, now, held.credit / one);
            held.credit %= one;
            key.unconfirmed = key.admitted - held.confirmed;
            let missing = held.bucket.missing(self.quota, now).min(key.unconfirmed);
            key.missing = u32::try_from(missing).unwrap_or(u32::MAX);
            key.asked_recently = key.asked - held.answered;
            key.span_ms = u32::try_from(now_ms - self.settled_ms).unwrap_or(u32::MAX);
        }
    }

    fn observe(&mut self, reply: &Reply) {
        for (held, allowance) in self.held.iter_mut().zip(&reply.grants) {
            held.ratio = match allowance {
                Allowance::Hot(grant) => grant.ratio,
                Allowance::Warm | Allowance::Leased(_) => AdmitRatio::ONE,
            };
        }
        for (key, held) in self.report.keys.iter().zip(&mut self.held) {
            held.answered = key.asked;
            if reply.settled.is_all() {
                held.confirmed = key.admitted;
            }
        }
        if reply.settled.is_all() {
            self.settled_ms = self.report.made_ms;
        }
    }
}

/// So many a minute, and this burst.
pub(super) fn quota(a_minute: u32, burst: u32) -> Quota {
    let quota = Rate::new(a_minute, Period::Minute).and_then(|rate| Quota::new(rate, burst).ok());
    quota.unwrap_or_else(|| panic!("a quota that is one"))
}

fn ask(body: Vec<u8>) -> Ask {
    Ask::new(Method::POST, REPORT_PATH)
        .header("authorization", &format!("Bearer {TOKEN}"))
        .header("content-type", CONTENT_TYPE)
        .body(body)
}

/// The last twelve decimal digits of `n`, two to a byte, as a budget's key has them in hex.
fn value(n: u64) -> Vec<u8> {
    let pair = |place: u32| u8::try_from(n / 100_u64.pow(place) % 100).unwrap_or(0);
    (0..6).rev().map(pair).map(|pair| pair / 10 * 16 + pair % 10).collect()
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
