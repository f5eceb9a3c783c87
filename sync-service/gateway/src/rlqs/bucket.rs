//! A bucket with all clients that report it. One series of checks covers all of them, and the requests that the
//! rules allow are divided in proportion to the clients' demands.

use std::collections::BTreeMap;
use std::time::Duration;

use super::holder::{Holder, HolderTerms, PACE};
use super::messages::{Assignment, whole};
use crate::CheckRequest;
use crate::proto::envoy::service::rate_limit_quota::v3::BucketId;

/// Terms of a bucket that has not been checked, or that no rule counts.
const UNKNOWN: HolderTerms = HolderTerms { burst: 1.0, rate: 0.0, is_prepaid: false, holders: 1.0 };
/// Maximum time over which due requests add up between two calls.
const SPAN_MAX: Duration = Duration::from_secs(1);
/// Approximate number of checks over which the due requests are spread.
const CHECKS: u32 = 16;
/// Fraction of the burst that one check may take: larger checks succeed less often.
const BURST_PART: f64 = 8.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum QuotaDecision {
    Free,
    /// Requests are refused regardless of quotas.
    Refused,
    Counted(HolderTerms),
    Unchecked,
}

#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) ask: CheckRequest,
    pub(super) count: u32,
    /// Maximum number of requests per check.
    pub(super) at_once: u32,
    /// Each client's part of the requests, by stream number.
    pub(super) of: BTreeMap<u64, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DueResult {
    /// Requests checked, and requests allowed.
    pub(super) asked: u32,
    pub(super) given: u32,
    pub(super) decision: QuotaDecision,
}

#[derive(Debug)]
pub(super) struct QuotaBucket {
    pub(super) id: BucketId,
    ask: CheckRequest,
    /// Clients by the number of their stream.
    pub(super) holders: BTreeMap<u64, Holder>,
    decision: Option<QuotaDecision>,
    terms: HolderTerms,
    /// True while checks are in progress.
    is_asking: bool,
    /// True if a result is available for a client that has no assignment yet.
    has_news: bool,
    advanced: Duration,
    looked: Duration,
}

impl QuotaBucket {
    pub(super) fn new(id: BucketId, ask: CheckRequest, now: Duration) -> Self {
        let holders = BTreeMap::new();
        Self {
            id,
            ask,
            holders,
            decision: None,
            terms: UNKNOWN,
            is_asking: false,
            has_news: false,
            advanced: now,
            looked: now,
        }
    }

    pub(super) fn due(&mut self, now: Duration) -> Option<Due> {
        let span = now.saturating_sub(self.advanced).min(SPAN_MAX);
        self.advanced = now;
        let mut all = 0.0;
        for holder in self.holders.values_mut() {
            holder.advance(now, span, &self.terms);
            all += holder.due;
        }
        if all < 1.0 || self.is_asking {
            return None;
        }
        let count = whole(all);
        let part = f64::from(count) / all;
        let of = self.holders.iter_mut().map(|(number, holder)| (*number, holder.ask(part))).collect();
        self.is_asking = true;
        let at_once = count.div_ceil(CHECKS).min(whole(self.terms.burst / BURST_PART));
        Some(Due { ask: self.ask.clone(), count, at_once, of })
    }

    pub(super) fn apply(&mut self, of: &BTreeMap<u64, f64>, result: DueResult) {
        self.is_asking = false;
        self.has_news = self.holders.values().any(Holder::is_new);
        self.decision = Some(result.decision);
        if let QuotaDecision::Counted(terms) = result.decision {
            self.terms = terms;
        }
        let all: f64 = of.values().sum();
        for (number, asked) in of {
            // The stream may have ended.
            if let Some(holder) = self.holders.get_mut(number) {
                let part = asked / all;
                holder.answered(f64::from(result.asked) * part, f64::from(result.given) * part);
            }
        }
    }

    /// Assignments to send now, to the clients for which `takes` is true: at once for clients without an
    /// assignment, and once per [`PACE`] for the others.
    pub(super) fn assign(&mut self, now: Duration, takes: impl Fn(&u64) -> bool) -> Vec<(u64, Assignment)> {
        let Some(decision) = self.decision else { return Vec::new() };
        let span = now.saturating_sub(self.looked);
        let is_time = span >= PACE;
        if is_time {
            self.looked = now;
        } else if !self.has_news {
            return Vec::new();
        }
        self.has_news = false;
        self.terms.holders = f64::from(u32::try_from(self.holders.len()).unwrap_or(u32::MAX));
        let mut given = 0.0;
        for holder in self.holders.values_mut() {
            given += holder.look(if is_time { span } else { Duration::ZERO }, &self.terms);
        }
        let spare = (self.terms.rate - given).max(0.0);
        let mut assignments = Vec::new();
        for (number, holder) in &mut self.holders {
            if !takes(number) || !is_time && !holder.is_new() {
                continue;
            }
            let assignment = match decision {
                QuotaDecision::Free => holder.send_if_new(now, Assignment::Everything),
                QuotaDecision::Refused => holder.send_if_new(now, Assignment::Nothing),
                QuotaDecision::Counted(_) => holder.assign(now, &self.terms, spare),
                // The last assignment then expires, and the client's own settings decide.
                QuotaDecision::Unchecked => None,
            };
            assignments.extend(assignment.map(|assignment| (*number, assignment)));
        }
        assignments
    }
}

#[cfg(test)]
mod tests;
