//! A bucket, with all clients that report it: the rules are asked for all of them at once, and what they let through is divided
//! by what each client was asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use super::assignment::Assignment;
use super::holder::{Holder, PACE, Terms};
use crate::gateway::Ask;
use crate::gateway::proto::envoy::service::rate_limit_quota::v3::BucketId;

/// A bucket that no rule was asked about, or no rule counts.
const UNKNOWN: Terms = Terms { burst: 1.0, rate: 0.0, is_prepaid: false, holders: 1.0 };
/// For how long what was due adds up, at most, when nobody looked.
const SPAN_MAX: Duration = Duration::from_secs(1);
/// In how many checks the rules are asked for what is due, about, ...
const CHECKS: u32 = 16;
/// ... and which part of the burst one check takes at most: one that takes much finds it together less often.
const BURST_PART: f64 = 8.0;

/// What the rules say of a bucket's requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ruling {
    /// No rule counts them.
    Free,
    /// They are refused, whatever any quota has.
    Refused,
    /// Rules count them, and allow so much.
    Counted {
        /// Requests at once.
        burst: f64,
        /// Requests a second, in the long run.
        rate: f64,
        /// Whether clients spend only what was let through before.
        is_prepaid: bool,
    },
    /// It cannot be said now.
    Unchecked,
}

/// What the rules are to be asked for.
#[derive(Clone, Debug)]
pub(super) struct Due {
    /// A request of the bucket.
    pub(super) ask: Ask,
    /// How many of them.
    pub(super) count: u32,
    /// How many to ask for in one check, at most.
    pub(super) at_once: u32,
    /// How many each client is asked for, in parts of a request.
    pub(super) of: BTreeMap<u64, f64>,
}

/// What the rules said to a [`Due`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Said {
    /// Requests that they were asked for, and let through.
    pub(super) asked: u32,
    pub(super) given: u32,
    pub(super) ruling: Ruling,
}

/// A bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) id: BucketId,
    /// A request of it.
    ask: Ask,
    /// By the numbers of the clients' streams.
    pub(super) holders: BTreeMap<u64, Holder>,
    ruling: Option<Ruling>,
    terms: Terms,
    /// Whether an answer of the rules is awaited.
    is_asking: bool,
    /// Whether there is an answer for a client that was told nothing yet.
    has_news: bool,
    advanced: Duration,
    looked: Duration,
}

impl Bucket {
    /// One whose requests are like this.
    pub(super) fn new(id: BucketId, ask: Ask, now: Duration) -> Self {
        let holders = BTreeMap::new();
        Self {
            id,
            ask,
            holders,
            ruling: None,
            terms: UNKNOWN,
            is_asking: false,
            has_news: false,
            advanced: now,
            looked: now,
        }
    }

    /// What the rules are to be asked for now, if anything.
    pub(super) fn due(&mut self, now: Duration) -> Option<Due> {
        let span = now.saturating_sub(self.advanced).min(SPAN_MAX);
        self.advanced = now;
        let mut all = 0.0;
        for holder in self.holders.values_mut() {
            holder.advance(now, span, &self.terms);
            all += holder.due();
        }
        if all < 1.0 || self.is_asking {
            return None;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is within 1 and the most"
        )]
        let whole = |figure: f64| figure.clamp(1.0, f64::from(u32::MAX)) as u32;
        let count = whole(all);
        let part = f64::from(count) / all;
        let of = self.holders.iter_mut().map(|(number, holder)| (*number, holder.ask(part))).collect();
        self.is_asking = true;
        let at_once = count.div_ceil(CHECKS).min(whole(self.terms.burst / BURST_PART));
        Some(Due { ask: self.ask.clone(), count, at_once, of })
    }

    /// The rules have said so to what was due.
    pub(super) fn said(&mut self, of: &BTreeMap<u64, f64>, said: Said) {
        self.is_asking = false;
        self.has_news = self.holders.values().any(Holder::is_new);
        self.ruling = Some(said.ruling);
        if let Ruling::Counted { burst, rate, is_prepaid } = said.ruling {
            self.terms = Terms { burst, rate, is_prepaid, holders: 1.0 };
        }
        let all: f64 = of.values().sum();
        for (number, asked) in of {
            // Its stream may have ended.
            if let Some(holder) = self.holders.get_mut(number) {
                let part = asked / all;
                holder.answered(f64::from(said.asked) * part, f64::from(said.given) * part);
            }
        }
    }

    /// What to tell each client now that takes it: those that know nothing yet at once, the others from time to time.
    pub(super) fn tell(&mut self, now: Duration, takes: impl Fn(&u64) -> bool) -> Vec<(u64, Assignment)> {
        let Some(ruling) = self.ruling else { return Vec::new() };
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
        let mut told = Vec::new();
        for (number, holder) in &mut self.holders {
            if !takes(number) || !is_time && !holder.is_new() {
                continue;
            }
            let assignment = match ruling {
                Ruling::Free => holder.say(now, Assignment::Everything),
                Ruling::Refused => holder.say(now, Assignment::Nothing),
                Ruling::Counted { .. } => holder.tell(now, &self.terms, spare),
                // What it was told ends then, and its own settings say what becomes of requests.
                Ruling::Unchecked => None,
            };
            told.extend(assignment.map(|assignment| (*number, assignment)));
        }
        told
    }
}

#[cfg(test)]
mod tests;
