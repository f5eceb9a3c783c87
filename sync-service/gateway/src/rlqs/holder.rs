//! Account of one client in a bucket: its demand, the requests that the rules allowed for it, and its assignment.
//!
//! The rules are checked for as many requests as the client reports, spread over the time after its report. The client
//! may spend what the rules allow. There are two modes:
//!
//! - **In arrears**, under token buckets with shared budgets, unless they are slow: the client has a refilling
//!   bucket. If it admits more than the rules allowed, the excess is checked as well.
//! - **Prepaid**, under all other algorithms: the client has a bucket of tokens that the rules allowed in
//!   advance, and which never refills. New tokens replace the old ones. Tokens that were replaced unspent are
//!   returned to its account once their number is known.
//!
//! The code has no clock and no IO: `now` is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use super::messages::Assignment;

/// Minimum interval between changes of an assignment.
pub(super) const PACE: Duration = Duration::from_secs(1);
/// Interval after which an unchanged assignment is repeated, well before it expires.
const AGAIN: Duration = Duration::from_secs(8);
/// Time since its last request after which a client has to forget the bucket.
const QUIET: Duration = Duration::from_mins(1);
/// Time since its last report after which a client's demand is unknown: two reporting intervals of Envoy.
const SILENT: Duration = Duration::from_secs(10);
/// Time after which a client has certainly applied an assignment. Until then it may spend tokens of the previous one.
const TAKEN_IN: Duration = Duration::from_secs(2);
/// Time over which a difference in a client's account is evened out: one reporting interval of Envoy.
const EVEN: Duration = Duration::from_secs(5);
/// Rate per client below which the mode is prepaid: changes of a refilling bucket lose fractions of a token.
const SLOW: f64 = 1.0;
/// Reciprocal of the time, in seconds, in which a client's account is filled.
const SOON: f64 = 4.0;
/// Weight of a new value in the moving averages, per [`PACE`].
const WEIGHT: f64 = 0.4;
/// Fraction of the checked requests below which the rules are considered to refuse some.
const ENOUGH: f64 = 0.98;
/// Ratio of the tokens given in advance for the next second to the demand in the last one.
const HEADROOM: f64 = 1.25;
/// Fraction of the burst that clients hold even without demand, for the first requests after a pause.
const FLOAT: f64 = 0.125;
/// Fraction of its tokens below which a client gets new ones.
const USED_UP: f64 = 0.25;

/// Terms of the rules that count a bucket's requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HolderTerms {
    /// Maximum number of requests at once.
    pub(super) burst: f64,
    /// Requests per second in the long run.
    pub(super) rate: f64,
    /// True if clients may spend only tokens that were consumed in advance.
    pub(super) is_prepaid: bool,
    /// Number of clients of the bucket; set by the bucket.
    pub(super) holders: f64,
}

#[derive(Debug, Default)]
pub(super) struct Holder {
    /// Reported requests per second.
    demand: f64,
    /// Times of the last report, and of the last report with requests.
    reported: Option<Duration>,
    asked_for: Duration,
    /// Requests for which checks are due.
    pub(super) due: f64,
    /// Requests that the rules allowed for the client, and requests that it admitted.
    pub(super) paid: f64,
    spent: f64,
    /// Difference of the two at its last report.
    uneven: f64,
    /// Tokens handed out in advance, and those among them that were returned unspent.
    handed: f64,
    returned: f64,
    /// Tokens that the client may still have, each with the time at which they were replaced (`None` for the last).
    live: VecDeque<(f64, Option<Duration>)>,
    /// Estimated number of tokens that the client still has.
    in_hand: f64,
    /// Requests checked and allowed since the last look, and the moving averages of both per second.
    recent: Flow,
    flow: Flow,
    is_prepaid: bool,
    sent: Option<(Assignment, Duration)>,
}

/// Requests that were checked, and those that were allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Flow {
    asked: f64,
    given: f64,
}

impl Holder {
    /// Applies a report of the last `elapsed`, which may have been cut to whole seconds.
    pub(super) fn report(&mut self, now: Duration, elapsed: Duration, admitted: u64, refused: u64) {
        let requests = as_f64(admitted.saturating_add(refused));
        let since = self.reported.map_or(elapsed, |last| {
            now.saturating_sub(last).clamp(elapsed, elapsed.saturating_add(Duration::from_secs(1)))
        });
        let seconds = since.as_secs_f64();
        if seconds > 0.0 {
            // Frequent reports have little weight.
            self.demand += (requests / seconds - self.demand) * seconds.min(1.0);
        } else {
            self.due += requests;
        }
        if requests > 0.0 || self.reported.is_none() {
            self.asked_for = now;
        } else {
            self.in_hand = self.live.back().map_or(0.0, |(tokens, _)| *tokens);
        }
        self.reported = Some(now);
        self.spent += as_f64(admitted);
        self.uneven = self.paid - self.spent;
        if self.is_prepaid {
            self.settle(now);
        }
    }

    /// Returns tokens that were replaced unspent, and accounts for requests admitted without tokens.
    fn settle(&mut self, now: Duration) {
        let is_gone = |(_, taken): &(f64, Option<Duration>)| taken.is_some_and(|at| at + TAKEN_IN <= now);
        while self.live.front().is_some_and(is_gone) {
            self.live.pop_front();
        }
        let unspent = self.handed - self.returned - self.spent;
        if unspent < 0.0 {
            // Envoy's own settings apply before it has an assignment, and after that has expired.
            self.handed -= unspent;
        } else {
            let live: f64 = self.live.iter().map(|(tokens, _)| tokens).sum();
            self.returned += (unspent - live).max(0.0);
        }
    }

    /// Requests allowed for the client and not handed out; negative if it admitted more than was allowed.
    pub(super) fn purse(&self) -> f64 {
        if self.is_prepaid { self.paid - self.handed + self.returned } else { self.paid - self.spent }
    }

    /// Number of tokens to hold for the next second, and the number to keep in reserve to replace old ones.
    fn wanted(&self, terms: &HolderTerms) -> (f64, f64) {
        let part = terms.burst / terms.holders;
        // With hardly more tokens than clients, only clients with demand get any.
        let float = if part < 2.0 { 0.0 } else { (part * FLOAT).max(1.0) };
        let asked = self.demand * PACE.as_secs_f64() * HEADROOM;
        let asked = if asked > 0.0 { asked.max(1.0) } else { 0.0 };
        (asked.max(float), float)
    }

    /// Accumulates the requests that are due over `span`, unless the client no longer reports.
    pub(super) fn advance(&mut self, now: Duration, span: Duration, terms: &HolderTerms) {
        if self.reported.is_some_and(|last| last + SILENT <= now) {
            self.due = 0.0;
            return;
        }
        let seconds = span.as_secs_f64();
        let a_second = if self.is_prepaid {
            self.in_hand = (self.in_hand - self.demand * seconds).max(0.0);
            let (wanted, float) = self.wanted(terms);
            // The reserve fills in proportion to demand, so a client with more demand gets more of what there is.
            ((wanted + float - self.purse() - self.in_hand) * SOON).clamp(0.0, wanted)
        } else {
            let is_even = self.reported.is_none_or(|last| last + EVEN <= now);
            let beyond = if is_even { 0.0 } else { self.uneven / EVEN.as_secs_f64() };
            (self.demand - beyond).max(0.0)
        };
        // At most a second's worth of requests is due at a time, however long the last checks took.
        self.due = (self.due + a_second * seconds).min(self.due.max(a_second + 1.0));
    }

    /// Takes the fraction `part` of the due requests and returns their number.
    pub(super) fn ask(&mut self, part: f64) -> f64 {
        let asked = self.due * part;
        self.due -= asked;
        asked
    }

    pub(super) fn answered(&mut self, asked: f64, given: f64) {
        self.paid += given;
        self.recent.asked += asked;
        self.recent.given += given;
    }

    /// Applies new terms, and updates the averages. Returns the average number of allowed requests per second.
    pub(super) fn look(&mut self, span: Duration, terms: &HolderTerms) -> f64 {
        let seconds = span.as_secs_f64();
        if seconds > 0.0 {
            self.flow.asked += (self.recent.asked / seconds - self.flow.asked) * WEIGHT;
            self.flow.given += (self.recent.given / seconds - self.flow.given) * WEIGHT;
            self.recent = Flow::default();
        }
        let is_prepaid = terms.is_prepaid || terms.rate < SLOW * terms.holders;
        if self.is_prepaid != is_prepaid {
            self.is_prepaid = is_prepaid;
            (self.handed, self.returned) = (self.spent, 0.0);
            (self.live, self.in_hand, self.sent) = (VecDeque::new(), 0.0, None);
        }
        self.flow.given
    }

    /// New assignment, or `None` if the last one is still right. `spare` is the part of the rate that no client uses.
    pub(super) fn assign(&mut self, now: Duration, terms: &HolderTerms, spare: f64) -> Option<Assignment> {
        let assignment = if self.is_prepaid { self.tokens(now, terms)? } else { self.refilling(terms, spare) };
        self.send_if_new(now, assignment)
    }

    /// Records an assignment as sent. Returns `None` if the last one is equivalent and recent.
    pub(super) fn send_if_new(&mut self, now: Duration, assignment: Assignment) -> Option<Assignment> {
        let is_known = |(sent, _): &(Assignment, Duration)| assignment.is_like(sent) && !self.is_old(now);
        if self.sent.as_ref().is_some_and(is_known) {
            return None;
        }
        self.sent = Some((assignment, now));
        Some(assignment)
    }

    pub(super) fn is_new(&self) -> bool {
        self.sent.is_none()
    }

    /// True if its assignment expires soon.
    fn is_old(&self, now: Duration) -> bool {
        self.sent.is_none_or(|(_, at)| at + AGAIN <= now)
    }

    /// True if it has had no requests for a long time.
    pub(super) fn is_quiet(&self, now: Duration) -> bool {
        self.asked_for + QUIET <= now
    }

    fn refilling(&self, terms: &HolderTerms, spare: f64) -> Assignment {
        let burst = (terms.burst / terms.holders).max(1.0);
        let Flow { asked, given } = self.flow;
        if given >= ENOUGH * asked {
            return Assignment::refilling(given + spare / terms.holders, burst);
        }
        // At most half of its rate is used to pay its debt.
        let owed = (-self.purse()).max(0.0) / EVEN.as_secs_f64();
        let rate = (given - owed).max(given / 2.0);
        Assignment::refilling(rate, rate.clamp(1.0, burst))
    }

    /// New tokens, if it has hardly any left or its assignment expires soon. Old tokens are never assigned
    /// again: if the assignment had expired in the meantime, the client would have them twice.
    fn tokens(&mut self, now: Duration, terms: &HolderTerms) -> Option<Assignment> {
        let last = self.live.back().map_or(0.0, |(tokens, _)| *tokens);
        let tokens = self.purse().min(self.wanted(terms).0).clamp(0.0, f64::from(u32::MAX)).floor();
        let is_short = self.in_hand <= last * USED_UP || tokens > 2.0 * last;
        let is_new = is_short && tokens >= 1.0;
        if !is_new && !self.is_old(now) {
            return None;
        }
        if let Some((_, taken @ None)) = self.live.back_mut() {
            *taken = Some(now);
        }
        self.in_hand = tokens;
        if tokens < 1.0 {
            return Some(Assignment::Nothing);
        }
        self.live.push_back((tokens, None));
        self.handed += tokens;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within 1 and the most")]
        Some(Assignment::Tokens(tokens as u32))
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of requests")]
fn as_f64(count: u64) -> f64 {
    count as f64
}
