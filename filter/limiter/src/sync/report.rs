//! Building reports: admitted tokens and demand of the POP's keys.
//!
//! Counts are cumulative and in shared data, so a report may be lost, repeated or made by two workers. Nothing waits
//! for a reply: if none has come by the next tick, the next report repeats the counts, and late replies are still
//! applied. Only the names of keys are a worker's own. A worker that ends hands over the names with unconfirmed counts.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::{iter, mem};

use crate::RuleIndex;
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::sync::calls::{CallPurpose, KeyContents, PendingCall, REPORTS_MAX, ReportBuilder, ReportedKey};
use crate::sync::watched_key::bytes_of;
use crate::table::slot::Watched;
use crate::table::{NamedKey, Slots, Updated};
use weir_protocol::messages::Report;
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::{GIVEN_BACK_S, RefillPolicy};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::sorting::sorted;

/// Time after which a report without reply or failure is given up, in nanoseconds.
const ANSWER_NS_MAX: u64 = 10 * SECOND_NS;
/// Additional weight of a key's wait for each burst of demand in that time.
const BURST_WEIGHT: u64 = 1_000;

/// Weight of a nanosecond since the key's last report. Grows with the `tokens` beyond its fair share, in bursts.
fn weight(quota: Quota, divisor: u32, tokens: u64, waits_ns: u64) -> u64 {
    let share = waits_ns / quota.token_ns().saturating_mul(divisor.max(1).into());
    1 + tokens.saturating_sub(share).saturating_mul(BURST_WEIGHT) / u64::from(quota.burst())
}

impl Limiter {
    /// The report to send now; the caller then calls [`Limiter::apply`] or [`Limiter::report_failed`]. `None` if enough
    /// reports are in flight, or if there is nothing to report and no need to `greet`. A greeting keeps the POP live,
    /// and its reply brings pushed grants; one worker sends it each interval.
    pub fn report(&mut self, slots: &mut dyn Slots, greet: bool, now: Time) -> Option<Report> {
        if !self.may_report(now) {
            return None;
        }
        self.watch.forget_idle(now);
        let sync = self.sync.as_mut()?;
        let (bytes, divisor, rules) = (sync.bytes_at(now), sync.cold_rate_divisor(), &self.rules);
        let tags = self.watch.due(bytes, now, |rule, tokens, waits_ns| {
            rules.terms_of(rule).map_or(1, |terms| weight(terms.quota, divisor, tokens, waits_ns))
        });
        let mut builder = ReportBuilder::default();
        for tag in tags {
            self.add_key(tag, &mut builder, slots, now);
        }
        let lost = self.sync.as_mut()?.report_own_epochs(&mut builder, &self.rules, false, now);
        self.counters.add(CountedEvent::Uncharged, lost);
        builder.bans = self.sync.as_mut()?.bans(now, |rule| builder.refer(rule));
        if builder.keys.is_empty() && builder.bans.is_empty() && !greet {
            return None;
        }
        let report = self.begin_report(builder, CallPurpose::Report, now)?;
        let used: u64 = report.keys.iter().map(|key| bytes_of(&key.value)).sum();
        let sync = self.sync.as_mut()?;
        sync.bytes = sync.bytes.saturating_sub(used);
        Some(report)
    }

    /// True if one more report may be sent. Marks the keys of unanswered reports to be reported again.
    fn may_report(&mut self, now: Time) -> bool {
        let Some(sync) = &self.sync else { return false };
        let is_over = |sent: &&PendingCall| now.nanos_since(sent.sent_at) >= ANSWER_NS_MAX;
        let over = sync.calls.of(CallPurpose::Report).filter(is_over);
        for number in over.map(|sent| sent.number).collect::<Vec<_>>() {
            self.report_again(number);
        }
        let Some(sync) = &self.sync else { return false };
        for sent in sync.calls.of(CallPurpose::Report) {
            self.watch.report_again(&sent.reported);
        }
        sync.calls.of(CallPurpose::Report).count() < REPORTS_MAX
    }

    pub(super) fn begin_report(
        &mut self,
        mut builder: ReportBuilder,
        purpose: CallPurpose,
        now: Time,
    ) -> Option<Report> {
        let rules = builder.rules.iter().filter_map(|&rule| self.rules.reported(rule)).collect();
        let (sync, reported) = (self.sync.as_mut()?, mem::take(&mut builder.reported));
        let report = sync.next(rules, builder, now);
        sync.calls.begin(PendingCall { number: report.sequence, purpose, sent_at: now, reported });
        self.counters.add(CountedEvent::Reported, 1);
        Some(report)
    }

    /// Adds this worker's demand for the key to the shared entry, and the entry's counts to the report.
    pub(super) fn add_key(&mut self, tag: u64, builder: &mut ReportBuilder, slots: &mut dyn Slots, now: Time) {
        let Some(key) = self.watch.get_mut(tag) else { return };
        let NamedKey { place, rule, value } = key.name;
        let unadded = key.asked_unadded;
        let (asked, unanswered) = (key.asked, key.asked_recently());
        let asked_since_report = key.asked_since_report();
        let is_crowded = self.watch.is_crowded();
        let strict = self.rules.get(rule).filter(|rule| rule.sharing.strict);
        let wish = strict.map(|rule| Wish {
            asked: if rule.sharing.refill_policy.is_window() { unanswered } else { asked_since_report },
            usual_cost: rule.cost.usual(),
            is_crowded,
            chunk: rule.sharing.refill_policy.is_window().then(|| chunk_of(rule.quota)),
            unreported: unreported_of(rule.sharing.refill_policy, rule.quota),
            in_flight: None,
            timeout_ns: self.timeout_ns(),
        });
        let is_strict = wish.is_some();
        let reported = Cell::new(None);
        let flight = self.rules.flight(rule);
        let updated = self.update_counted(place, flight, None, slots, now, &|watched, in_flight| {
            let wish = wish.map(|wish| Wish { in_flight: flight.map(|_| in_flight), ..wish });
            // A strict rule's budget does not need this count, and counting would turn the key into a bounded rule's.
            if !is_strict {
                watched.count_asked(unadded, now);
            }
            if let Some(free) = wish.and_then(|wish| wish.free(watched, now)) {
                watched.keep(free, now);
            }
            let state = Watched { admitted: watched.admitted.saturating_sub(in_flight), ..*watched };
            reported.set(Some((state, wish.map(|wish| wish.of(&state, now)))));
            if wish.is_some_and(|wish| wish.ends(&state, now)) {
                watched.end_epoch(now);
                watched.admitted = in_flight;
            }
        });
        let (watched, want) = match (updated, reported.get()) {
            (Updated::Written(_), Some(reported)) => reported,
            (Updated::Gone, _) => {
                self.watch.remove(tag);
                return;
            }
            // The key stays dirty, and is reported next time.
            _ => return,
        };
        let Some(key) = self.watch.get_mut(tag) else { return };
        (key.asked_unadded, key.dirty) = (0, false);
        let (dirty_since, is_warm) = (key.dirty_since, key.is_warm());
        let asked_recently = key.take_unreported();
        let ahead = match want {
            None => 0,
            Some(Want::Ahead(ahead)) => ahead,
            Some(Want::Nothing) => return key.reported(asked),
            Some(Want::Later(at)) => return key.rest(at, now),
        };
        if let Some(sync) = self.sync.as_mut().filter(|_| is_strict && ahead == 0) {
            let named_in = sync.next_sequence();
            let is_kept = sync.keep_giving_back(NamedKey { place, rule, value }, &watched, named_in);
            // If this report is lost, so are the tokens until their lease ends.
            let is_lost = !is_kept && watched.charged > watched.admitted;
            self.counters.add(CountedEvent::Uncharged, u32::from(is_lost));
        }
        let (epoch, admitted) = (watched.epoch, watched.admitted);
        let reported =
            ReportedKey { epoch, admitted, asked, asked_recently, ..ReportedKey::of(place, rule, dirty_since) };
        // Only for warm keys: a grant may have lowered a hot key's bucket by more than was admitted.
        let limits = self.local_limits(rule).filter(|_| is_warm);
        let missing = limits.map_or(0, |limits| watched.missing(&limits, now));
        builder.add(rule, reported, &KeyContents { value: value.as_bytes(), watched: &watched, missing, ahead }, now);
    }
}

// Handover from a worker that ends.

/// Maximum bytes that all ended workers together hand over. Further keys are reported after their next request.
pub(crate) const HANDOVER_BYTES_MAX: usize = 64 * 1024;

/// Ends this worker. Returns the handover to store instead of `left`, the earlier one; `None` if nothing is added.
pub(crate) fn leave(limiter: &mut Limiter, left: &[u8]) -> Option<Vec<u8>> {
    end_reports(limiter);
    let rules = limiter.rules.set.rules();
    let mine = limiter.watch.unreported().filter_map(|key| {
        let rule = rules.get(usize::from(key.name.rule))?;
        Some((rule.name.as_str(), key.name.value.as_bytes()))
    });
    let known = sorted(names(left).collect());
    let mut new = mine.filter(|name| known.binary_search(name).is_err()).peekable();
    new.peek()?;
    let mut all = Vec::new();
    for name in known.iter().copied().chain(new) {
        let Ok(bytes) = postcard::to_allocvec(&name) else { continue };
        if all.len() + bytes.len() > HANDOVER_BYTES_MAX {
            break;
        }
        all.extend(bytes);
    }
    Some(all)
}

/// Makes the next report the last one, which contains everything unconfirmed.
pub(crate) fn hurry(limiter: &mut Limiter) {
    end_reports(limiter);
    limiter.watch.hurry();
}

/// Gives up the reports under way. Their keys are reported again.
fn end_reports(limiter: &mut Limiter) {
    let Some(sync) = &mut limiter.sync else { return };
    for sent in sync.calls.end_all(CallPurpose::Report) {
        limiter.watch.report_again(&sent.reported);
    }
}

/// Takes over the readable keys of rules in force in the handover `left`, to be reported next.
pub(crate) fn inherit(limiter: &mut Limiter, left: &[u8], slots: &dyn Slots, now: Time) {
    for (rule, value) in names(left) {
        if let Some(key) = limiter.rules.find(rule, value, slots.count()) {
            limiter.learn_of(&key, now);
        }
    }
}

/// The names in `left`, each a rule's name and a key's canonical bytes, up to the first unreadable one.
fn names(left: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    let mut rest = left.get(..HANDOVER_BYTES_MAX).unwrap_or(left);
    iter::from_fn(move || {
        let (name, behind) = postcard::take_from_bytes::<(&str, &[u8])>(rest).ok()?;
        rest = behind;
        Some(name)
    })
}

// Reporting by one engine for all workers of a program. The counts are in the slots that all workers share. The
// reporter takes over the names of keys with something to report, their demand, and bans. Keys of strict rules stay
// with their worker, which acquires tokens for its own requests and has the records of those calls.

/// Takes over the reports of `worker` while there is room; the worker reports the rest.
pub(crate) fn gather(limiter: &mut Limiter, worker: &mut Limiter, now: Time) {
    let is_same = Arc::ptr_eq(&limiter.rules.set, &worker.rules.set);
    let (mine, theirs) = (&limiter.rules.terms, &worker.rules.terms);
    // If only one of the two has replaced its rules yet, an unchanged rule may have different indices.
    let to = |rule: RuleIndex| {
        let terms = theirs.get(usize::from(rule)).filter(|terms| !terms.is_strict)?;
        if is_same {
            return Some(rule);
        }
        RuleIndex::of(mine.iter().position(|known| known.salt == terms.salt)?)
    };
    let watch = &mut limiter.watch;
    worker.watch.hand_over(|key| to(key.name.rule).is_some_and(|rule| watch.take_over(key, rule, now)));
    if let (Some(mine), Some(theirs)) = (&mut limiter.sync, &mut worker.sync) {
        mine.take_over_bans(theirs, to);
        theirs.answers_take_ns = theirs.answers_take_ns.or(mine.answers_take_ns);
    }
}

// Tokens that a report wants for a strict rule's key: some in advance of its requests, or none, to give back the rest.
//
// Under a token bucket, only a key in frequent demand is worth a lease. A token that is not used soon is given back,
// and the next request waits for its own. The next call for tokens states how many were spent. Until then, or until the
// lease ends, that part of the burst does not refill, so only a small part may go unreported. A calendar quota has long
// leases, and a POP keeps a small part of it while there is any demand for the key, so that a steady client rarely
// waits. That part is given back shortly before the lease ends, if there was no demand.

/// Demand between two reports, in requests, from which a strict rule's key acquires tokens in advance. Below that,
/// unused tokens that expire would cost more than the waits they save.
pub(super) const AHEAD_MIN: u64 = 4;
/// Default time between two reports, in nanoseconds.
pub(super) const INTERVAL_NS: u64 = SECOND_NS / 4;
/// A key in demand holds 1 / this of its calendar quota, but at least one token.
const CHUNK_PART: u32 = 1_000;
/// Of a token bucket's burst, 1 / this may be spent without a report of its own.
const UNREPORTED_PART: u32 = 64;
/// Time before the end of the lease at which tokens of a calendar quota are given back, in nanoseconds.
const REST_NS: u64 = GIVEN_BACK_S * SECOND_NS;

/// The demand for a strict rule's key, and the limits on its tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Demand in tokens that no answered report contained. For a calendar quota, no answered call for tokens either,
    /// because the acquired tokens are already held.
    pub(crate) asked: u64,
    /// Cost of a request that does not state one, in tokens.
    pub(crate) usual_cost: u32,
    /// True if the worker has too many keys to hold tokens for one without demand.
    pub(crate) is_crowded: bool,
    /// Tokens of a calendar quota to hold; `None` for other rules.
    pub(crate) chunk: Option<u32>,
    /// Tokens of a token bucket that may be spent without a report of their own.
    pub(crate) unreported: u32,
    /// Number of this POP's requests in flight, if the fleet counts them.
    pub(crate) in_flight: Option<u32>,
    pub(crate) timeout_ns: u64,
}

/// Content of a report about a strict rule's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Nothing, because the key holds nothing. A POP that needs a token acquires it.
    Nothing,
    /// Nothing before this time, unless there is demand for the key.
    Later(Time),
    /// This many tokens beyond those spent. 0 gives back the rest of the key's epoch, which has ended here.
    Ahead(u32),
}

pub(crate) fn chunk_of(quota: Quota) -> u32 {
    (quota.burst() / CHUNK_PART).max(1)
}

/// Tokens that may be spent without a report of their own: none under windows, whose epochs are long.
pub(crate) fn unreported_of(refill_policy: RefillPolicy, quota: Quota) -> u32 {
    if refill_policy == RefillPolicy::Continuous { quota.burst() / UNREPORTED_PART } else { 0 }
}

/// Time at which a key of a calendar quota must be reported again, if its lease ends at `until`.
pub(crate) fn rest_until(until: Time) -> Time {
    Time::from_nanos(until.as_nanos().saturating_sub(REST_NS))
}

impl Wish {
    /// The want for a key in the state `watched`, taken before an epoch that [`Wish::ends`] was ended.
    pub(crate) fn of(&self, watched: &Watched, now: Time) -> Want {
        let is_over = watched.charged == 0 || watched.is_over(now) || self.is_closed(watched);
        if is_over || self.is_spent(watched, now) {
            return Want::Nothing;
        }
        if self.gives_back(watched, now) {
            return Want::Ahead(0);
        }
        if let (Some(in_flight), Some(free)) = (self.in_flight, self.free(watched, now)) {
            return Want::Ahead(in_flight.saturating_add(free));
        }
        match self.chunk {
            Some(_) if self.is_idle(watched, now) => Want::Later(rest_until(watched.until)),
            chunk => Want::Ahead(
                u32::try_from(self.asked)
                    .unwrap_or(u32::MAX)
                    .max(watched.on_hand(now))
                    .max(chunk.unwrap_or_default())
                    .max(self.usual_cost),
            ),
        }
    }

    /// Number of places to keep free beside the requests in flight, if the fleet counts them. They are few, because
    /// other POPs may be waiting for the places that are free here.
    pub(crate) fn free(&self, watched: &Watched, now: Time) -> Option<u32> {
        let in_flight = self.in_flight?;
        let most = if self.is_seldom_asked() { 0 } else { (in_flight / 2).saturating_add(self.usual_cost) };
        Some(most.max(watched.awaited(self.timeout_ns, now)))
    }

    /// True if the epoch ends with this report, or has ended.
    pub(crate) fn ends(&self, watched: &Watched, now: Time) -> bool {
        !self.is_closed(watched) && (self.gives_back(watched, now) || watched.is_over(now))
    }

    /// True if the calendar window has no tokens left. A token bucket refills, so its key acquires in advance.
    fn is_closed(&self, watched: &Watched) -> bool {
        self.chunk.is_some() && watched.is_barred()
    }

    fn gives_back(&self, watched: &Watched, now: Time) -> bool {
        if self.chunk.is_none() {
            let is_held = self.in_flight.is_some_and(|in_flight| in_flight > 0);
            return self.is_seldom(watched, now) && !is_held && !self.is_spent(watched, now);
        }
        let is_late = rest_until(watched.until) <= now;
        self.is_idle(watched, now) && (is_late || self.is_crowded || watched.on_hand(now) == 0)
    }

    /// True if the key is not worth a lease, and no request waits for one.
    fn is_seldom(&self, watched: &Watched, now: Time) -> bool {
        self.is_seldom_asked() && watched.awaited(self.timeout_ns, now) == 0
    }

    fn is_seldom_asked(&self) -> bool {
        self.asked < AHEAD_MIN * u64::from(self.usual_cost)
    }

    /// True if no tokens are held, and so few were spent that the next call for tokens may report them.
    fn is_spent(&self, watched: &Watched, now: Time) -> bool {
        watched.charged <= self.unreported && watched.on_hand(now) == 0 && self.is_seldom(watched, now)
    }

    fn is_idle(&self, watched: &Watched, now: Time) -> bool {
        self.asked == 0 && watched.awaited(self.timeout_ns, now) == 0
    }
}
