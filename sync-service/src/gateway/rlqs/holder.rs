//! What one client has of a bucket: what it was asked for, what was let through for it, what it may do.
//!
//! What a client is asked for, the rules are asked for as well, little by little over the time after its report. What they let
//! through is the client's to spend. It spends before or after that:
//!
//! - **afterwards**, under token buckets that POPs share by reports, if they are not slow. It has a bucket that refills. For what it admitted beyond
//!   what the rules let through, they are asked more.
//! - **before**, under all others: it has a bucket of tokens that were let through already, and that never refills. It gets
//!   others in place of them; what it had not spent then is let through still, and is given to it again once that is known.
//!
//! No clock and no IO: `now` is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use super::assignment::Assignment;

/// How often a client is told what it may do, if that changes.
pub(super) const PACE: Duration = Duration::from_secs(1);
/// After how long it is told again, though nothing changed: well before an assignment ends.
const AGAIN: Duration = Duration::from_secs(8);
/// How long after its last request a client is to forget the bucket.
const QUIET: Duration = Duration::from_mins(1);
/// How long after its last report its demand is not known any more: two of Envoy's.
const SILENT: Duration = Duration::from_secs(10);
/// How long until a client has surely taken in what it was told. Until then it may spend what it had before.
const TAKEN_IN: Duration = Duration::from_secs(2);
/// In which time its account is evened out: as often as Envoy reports.
const EVEN: Duration = Duration::from_secs(5);
/// A client that has a smaller rate than this is given tokens in advance: each time its bucket changes, it loses what it has of a
/// token, so a slow one might never have a whole one.
const SLOW: f64 = 1.0;
/// In which part of a second a client's purse is to be filled.
const SOON: f64 = 4.0;
/// How much a new figure counts, each [`PACE`].
const WEIGHT: f64 = 0.4;
/// Rules refuse some of what they are asked for if they let through less than this part of it.
const ENOUGH: f64 = 0.98;
/// So much more than what it is asked for in a second, it is given in advance for the next.
const HEADROOM: f64 = 1.25;
/// Of a burst, so much is in the hands of clients even if they are hardly asked: the first requests after a pause find it.
const FLOAT: f64 = 0.125;
/// A client whose tokens are down to this part gets new ones.
const USED_UP: f64 = 0.25;

/// What the rules that count a bucket's requests allow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Terms {
    /// Requests at once.
    pub(super) burst: f64,
    /// Requests a second, in the long run.
    pub(super) rate: f64,
    /// Whether clients spend only what was let through before.
    pub(super) is_prepaid: bool,
    /// How many clients have the bucket.
    pub(super) holders: f64,
}

/// A client's part in a bucket.
#[derive(Debug, Default)]
pub(super) struct Holder {
    /// Requests a second, as reported.
    demand: f64,
    /// When it reported last, and when requests.
    reported: Option<Duration>,
    asked_for: Duration,
    /// Requests that the rules are to be asked for.
    due: f64,
    /// Requests that the rules let through for it, and that it admitted.
    paid: f64,
    spent: f64,
    /// By how much the two differed at its last report.
    uneven: f64,
    /// Tokens that it was given in advance, and those of them that it lost unspent.
    handed: f64,
    returned: f64,
    /// Tokens that it may have still, and when they were taken from it by giving it others (the last were not).
    live: VecDeque<(f64, Option<Duration>)>,
    /// How many it has, as far as can be guessed.
    in_hand: f64,
    /// What the rules were asked for and let through since the last look; and both in a second, evened out.
    recent: Flow,
    flow: Flow,
    is_prepaid: bool,
    /// What it was told, and when.
    told: Option<(Assignment, Duration)>,
}

/// Requests that rules were asked for, and those that they let through.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Flow {
    asked: f64,
    given: f64,
}

impl Holder {
    /// The client says what it admitted and refused in the last `elapsed`, which may be cut to whole seconds.
    pub(super) fn report(&mut self, now: Duration, elapsed: Duration, admitted: u64, refused: u64) {
        let requests = as_f64(admitted.saturating_add(refused));
        let since = self.reported.map_or(elapsed, |last| {
            now.saturating_sub(last).clamp(elapsed, elapsed.saturating_add(Duration::from_secs(1)))
        });
        let seconds = since.as_secs_f64();
        if seconds > 0.0 {
            // What comes often counts for little.
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

    /// Takes back what it lost unspent, and notes what it admitted without tokens.
    fn settle(&mut self, now: Duration) {
        let is_gone = |(_, taken): &(f64, Option<Duration>)| taken.is_some_and(|at| at + TAKEN_IN <= now);
        while self.live.front().is_some_and(is_gone) {
            self.live.pop_front();
        }
        let unspent = self.handed - self.returned - self.spent;
        if unspent < 0.0 {
            // Envoy admits as it is set up before it has an assignment, and when that has ended.
            self.handed -= unspent;
        } else {
            let live: f64 = self.live.iter().map(|(tokens, _)| tokens).sum();
            self.returned += (unspent - live).max(0.0);
        }
    }

    /// What was let through for it and is not in its hands; below zero, what it admitted beyond that.
    fn purse(&self) -> f64 {
        if self.is_prepaid { self.paid - self.handed + self.returned } else { self.paid - self.spent }
    }

    /// What was let through for it, and what of that is not in its hands and not spent.
    #[cfg(test)]
    pub(super) fn account(&self) -> (f64, f64) {
        (self.paid, self.purse())
    }

    /// How many tokens it is to have in hand in a second, and how many more in its purse: others for those that are old.
    fn wanted(&self, terms: &Terms) -> (f64, f64) {
        let part = terms.burst / terms.holders;
        // Where there are hardly more tokens than clients, only those that are asked have any.
        let float = if part < 2.0 { 0.0 } else { (part * FLOAT).max(1.0) };
        let asked = self.demand * PACE.as_secs_f64() * HEADROOM;
        let asked = if asked > 0.0 { asked.max(1.0) } else { 0.0 };
        (asked.max(float), float)
    }

    /// Time goes by, and what the rules are to be asked for adds up, unless it does not report any more.
    pub(super) fn advance(&mut self, now: Duration, span: Duration, terms: &Terms) {
        if self.reported.is_some_and(|last| last + SILENT <= now) {
            self.due = 0.0;
            return;
        }
        let seconds = span.as_secs_f64();
        let a_second = if self.is_prepaid {
            self.in_hand = (self.in_hand - self.demand * seconds).max(0.0);
            let (wanted, float) = self.wanted(terms);
            // As fast as it is asked itself: a client that is asked more often has a greater part of what is there.
            ((wanted + float - self.purse() - self.in_hand) * SOON).clamp(0.0, wanted)
        } else {
            let is_even = self.reported.is_none_or(|last| last + EVEN <= now);
            let beyond = if is_even { 0.0 } else { self.uneven / EVEN.as_secs_f64() };
            (self.demand - beyond).max(0.0)
        };
        // However long the last answer took, no more than in a second is asked for at once.
        self.due = (self.due + a_second * seconds).min(self.due.max(a_second + 1.0));
    }

    /// What the rules are to be asked for.
    pub(super) fn due(&self) -> f64 {
        self.due
    }

    /// The rules are asked for this part of it; returns how much that is.
    pub(super) fn ask(&mut self, part: f64) -> f64 {
        let asked = self.due * part;
        self.due -= asked;
        asked
    }

    /// The rules were asked for so much, and let so much through.
    pub(super) fn answered(&mut self, asked: f64, given: f64) {
        self.paid += given;
        self.recent.asked += asked;
        self.recent.given += given;
    }

    /// Goes by these terms from now on, and by what the rules let through in the last `span`; returns how much in a second.
    pub(super) fn look(&mut self, span: Duration, terms: &Terms) -> f64 {
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
            (self.live, self.in_hand, self.told) = (VecDeque::new(), 0.0, None);
        }
        self.flow.given
    }

    /// What to tell it now, by these terms; none if it knows. `spare` is what of the rate is let through for nobody.
    pub(super) fn tell(&mut self, now: Duration, terms: &Terms, spare: f64) -> Option<Assignment> {
        let assignment =
            if self.is_prepaid { self.tokens(now, terms)? } else { self.refilling(terms, spare) };
        self.say(now, assignment)
    }

    /// Tells it this, unless it knows.
    pub(super) fn say(&mut self, now: Duration, assignment: Assignment) -> Option<Assignment> {
        let is_known = |(told, _): &(Assignment, Duration)| assignment.is_like(told) && !self.is_old(now);
        if self.told.as_ref().is_some_and(is_known) {
            return None;
        }
        self.told = Some((assignment, now));
        Some(assignment)
    }

    /// Whether it was told nothing yet.
    pub(super) fn is_new(&self) -> bool {
        self.told.is_none()
    }

    /// Whether its assignment would end before long.
    fn is_old(&self, now: Duration) -> bool {
        self.told.is_none_or(|(_, at)| at + AGAIN <= now)
    }

    /// Whether it was asked for nothing for long.
    pub(super) fn is_quiet(&self, now: Duration) -> bool {
        self.asked_for + QUIET <= now
    }

    fn refilling(&self, terms: &Terms, spare: f64) -> Assignment {
        let burst = (terms.burst / terms.holders).max(1.0);
        let Flow { asked, given } = self.flow;
        if given >= ENOUGH * asked {
            return Assignment::refilling(given + spare / terms.holders, burst);
        }
        // At most half of what it gets pays for what it had.
        let owed = (-self.purse()).max(0.0) / EVEN.as_secs_f64();
        let rate = (given - owed).max(given / 2.0);
        Assignment::refilling(rate, rate.clamp(1.0, burst))
    }

    /// New tokens, if it has hardly any left or they are old. Those that it has are never told again: if its assignment had ended
    /// meanwhile, it would have them twice.
    fn tokens(&mut self, now: Duration, terms: &Terms) -> Option<Assignment> {
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
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is within 1 and the most"
        )]
        Some(Assignment::Tokens(tokens as u32))
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of requests")]
fn as_f64(count: u64) -> f64 {
    count as f64
}
