//! A simulated POP: it reports its keys as a filter does, and keeps to what it is granted.

use std::ops::Range;
use std::time::{Duration, Instant};

use hyper::Method;
use weir_wire::messages::{
    AdmitRatio, Allowance, CONTENT_TYPE, Key, Message, REPORT_PATH, Reply, Report, Rule,
};
use weir_wire::quota::{Period, Quota, Rate};
use weir_wire::sharing::Sharing;

use crate::client::{Ask, Client};
use crate::weir_sync::{TOKEN, WeirSync};

/// The one rule of the benchmark.
pub(super) const RULE: &str = "bench";
/// What each key is asked for between two reports.
const ASKED: u64 = 20;
/// The epoch of every key: one bucket each, never made anew.
const EPOCH: u32 = 1;

/// A POP with one connection, kept alive, and its keys.
pub(super) struct Pop {
    client: Client,
    began: Instant,
    report: Report,
    /// Per key.
    held: Vec<Held>,
    settled_ms: u64,
}

/// What a POP holds of a key.
#[derive(Clone, Copy)]
struct Held {
    ratio: AdmitRatio,
    /// Error diffusion, in steps of 2^-30.
    credit: u64,
    confirmed: u64,
    answered: u64,
}

/// What became of a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// From the first byte sent to the last received.
    pub(super) took: Duration,
    /// Whether the counts were charged.
    pub(super) is_settled: bool,
    /// Of the report and of the reply, without HTTP's heads.
    pub(super) bytes: (u64, u64),
}

impl Pop {
    /// A POP of `weir_sync` with these keys: key `n` has the twelve decimal digits of `n` as its value in hex.
    pub(super) fn new(weir_sync: &WeirSync, name: &str, keys: Range<u64>) -> Self {
        let quota = Rate::new(60, Period::Minute).and_then(|rate| Quota::new(rate, 600).ok());
        let quota = quota.unwrap_or_else(|| panic!("a quota that is one"));
        let key = |n| Key {
            rule: 0,
            value: value(n),
            epoch: EPOCH,
            admitted: 0,
            unconfirmed: 0,
            span_ms: 0,
            missing: 0,
            asked: 0,
            asked_recently: 0,
            ahead: 0,
        };
        let rules = vec![Rule { name: RULE.into(), quota, sharing: Sharing::of(quota) }];
        let keys: Vec<Key> = keys.map(key).collect();
        let held = Held { ratio: AdmitRatio::ONE, credit: 0, confirmed: 0, answered: 0 };
        let held = vec![held; keys.len()];
        let report = Report { pop: name.into(), worker: 1, table: 1, rules, keys, ..Report::default() };
        let client = Client::of_port(weir_sync.address().port());
        Self { client, began: Instant::now(), report, held, settled_ms: 0 }
    }

    /// All that it has admitted.
    pub(super) fn admitted(&self) -> u64 {
        self.report.keys.iter().map(|key| key.admitted).sum()
    }

    /// Lets requests come in for every key, reports, and takes in the answer; panics where there is none.
    pub(super) async fn exchange(&mut self) -> Outcome {
        let report = self.say();
        let said = report.len() as u64;
        let ask = ask(report);
        let sent = Instant::now();
        let answer = self.client.send(&ask).await;
        let took = sent.elapsed();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let reply = Reply::decode(&answer.body).unwrap_or_else(|e| panic!("no reply: {e}"));
        assert_eq!(reply.sequence, self.report.sequence, "the reply to another report");
        self.hear(&reply);
        Outcome { took, is_settled: reply.settled.is_all(), bytes: (said, answer.body.len() as u64) }
    }

    /// Reports no key, only that it is there; panics where there is no answer.
    pub(super) async fn greet(&mut self) {
        let report = Report { keys: Vec::new(), ..self.report.clone() };
        let answer = self.client.send(&ask(report.encode())).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    fn say(&mut self) -> Vec<u8> {
        let now_ms = millis(self.began.elapsed());
        self.report.sequence += 1;
        self.report.made_ms = now_ms;
        for (key, held) in self.report.keys.iter_mut().zip(&mut self.held) {
            held.credit += ASKED * u64::from(held.ratio.bits());
            let one = u64::from(AdmitRatio::ONE.bits());
            key.asked += ASKED;
            key.admitted += held.credit / one;
            held.credit %= one;
            key.unconfirmed = key.admitted - held.confirmed;
            key.asked_recently = key.asked - held.answered;
            key.span_ms = u32::try_from(now_ms - self.settled_ms).unwrap_or(u32::MAX);
        }
        self.report.encode()
    }

    fn hear(&mut self, reply: &Reply) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_in_hex_is_its_number_in_decimal() {
        assert_eq!(value(987_654_321_012), [0x98, 0x76, 0x54, 0x32, 0x10, 0x12]);
        assert_eq!(value(42), [0, 0, 0, 0, 0, 0x42]);
    }
}
