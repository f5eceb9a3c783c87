//! Making reports: admitted tokens and demand of the POP's keys.
//!
//! Counts are cumulative and in shared data, so a report may be lost, repeated or made by two workers.
//! Nothing waits for a reply: if none has come by the next tick, the next report repeats the counts, and late
//! replies are still applied.
//!
//! A worker that ends hands over the names of keys whose counts were not reported, or not confirmed by a reply. The
//! counts are in the shared slots, but only the worker has the keys' names.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::{iter, mem};

use crate::RuleIndex;
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::sync::calls::{CallPurpose, KeyContents, PendingCall, ReportBuilder, ReportedKey};
use crate::sync::client::SyncClient;
use crate::sync::demand::{Want, Wish, chunk_of, unreported_of};
use crate::sync::watched_key::bytes_of;
use crate::table::slot::Watched;
use crate::table::{NamedKey, Slots, Updated};
use weir_protocol::messages::Report;
use weir_protocol::quota::Quota;
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::sorting::sorted;

/// Time after which a report without reply or failure is given up, in nanoseconds.
const ANSWER_NS_MAX: u64 = 10 * SECOND_NS;
/// Additional weight of a key's wait for each burst of demand in that time.
const BURST_WEIGHT: u64 = 1_000;

/// Weight of each nanosecond since the key was last reported. It grows with the tokens since then that
/// exceed the key's fair share, measured in bursts: those asked for at this worker, or those of the POP that are
/// unconfirmed, if they are more.
fn weight(quota: Quota, divisor: u32, tokens: u64, waits_ns: u64) -> u64 {
    let share = waits_ns / quota.token_ns().saturating_mul(divisor.max(1).into());
    1 + tokens.saturating_sub(share).saturating_mul(BURST_WEIGHT) / u64::from(quota.burst())
}

impl Limiter {
    /// The report to send now. None if [`crate::sync::REPORTS_MAX`] are under way, or if there is nothing to report
    /// and no need to `greet`. A greeting keeps the POP among the live ones, and its reply brings pushed
    /// grants; one worker of a POP sends it each interval.
    ///
    /// The caller sends the report, and then calls [`Limiter::apply`] or [`Limiter::report_failed`].
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
        if builder.is_empty() && builder.bans.is_empty() && !greet {
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
        sync.calls.have_room(CallPurpose::Report)
    }

    /// Builds a report, which is under way from now on.
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
            // A strict rule's budget does not need this count, and counting would turn the key into a bounded
            // rule's.
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
        // Only for warm keys. Others are reported every interval, and a grant may have lowered their bucket
        // by more than was admitted.
        let limits = self.local_limits(rule).filter(|_| is_warm);
        let missing = limits.map_or(0, |limits| watched.missing(&limits, now));
        builder.add(rule, reported, &KeyContents { value: value.as_bytes(), watched: &watched, missing, ahead }, now);
    }
}

// Handover from a worker that ends.

/// Most bytes that all ended workers together hand over. A key beyond that is reported after its next
/// request.
pub(crate) const HANDOVER_BYTES_MAX: usize = 64 * 1024;

/// A key's name: its rule's name, and its canonical bytes.
type Name<'a> = (&'a str, &'a [u8]);

/// Ends this worker. Returns the handover that replaces `left`, the one of the workers that ended before,
/// or none if there is nothing to add.
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

/// Makes the next report the last one: it contains everything that is not confirmed, even if it is under
/// way.
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

/// Takes over the keys in the handover `left`, to be reported next. Keys of rules that are not in force
/// are skipped, and so are bytes that cannot be read.
pub(crate) fn inherit(limiter: &mut Limiter, left: &[u8], slots: &dyn Slots, now: Time) {
    for (rule, value) in names(left) {
        if let Some(key) = limiter.rules.find(rule, value, slots.count()) {
            limiter.learn_of(&key, now);
        }
    }
}

/// The names in `left`, up to the first that cannot be read.
fn names(left: &[u8]) -> impl Iterator<Item = Name<'_>> {
    let mut rest = left.get(..HANDOVER_BYTES_MAX).unwrap_or(left);
    iter::from_fn(move || {
        let (name, behind) = postcard::take_from_bytes::<Name<'_>>(rest).ok()?;
        rest = behind;
        Some(name)
    })
}

// Reporting by one engine for all workers of a program.
//
// ```text
// worker -- keys with something to report, bans -> gather         -> the reporter's list -> a report
// worker <- refusals that are no longer valid   <- take_forgotten <- the reporter        <- a reply
// ```
//
// The counts are in the slots that all workers share. The reporter takes over the names of keys with
// something to report, and their demand. Keys of strict rules stay with their worker, which acquires tokens
// for its own requests and has the records of those calls.

/// Takes over the reports of `worker`, as far as there is room. The worker reports the rest. In return it
/// gets the state that acquiring tokens depends on.
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
        theirs.observe_through(mine);
    }
}

impl SyncClient {
    /// Copies the reporter's knowledge of weir-sync, for this worker's calls.
    fn observe_through(&mut self, reporter: &Self) {
        self.answers_take_ns = self.answers_take_ns.or(reporter.answers_take_ns);
    }
}
