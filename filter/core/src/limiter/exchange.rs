//! Making reports: what the POP's keys admitted and were asked for.
//!
//! Counts live in shared data, cumulative, so a report may be lost, repeated or made by two workers.
//! A report that is not answered by the next tick is not waited for: the next one says the same again,
//! and whichever answers come are taken.

use alloc::vec::Vec;
use core::cell::Cell;

use super::grants::unsay;
use super::penalty::BoxedHere;
use super::versions::Versions;
use super::watched::{Place, Updated};
use super::wish::{Want, Wish, chunk_of};
use super::{Limiter, Reporter};
use crate::counters::Event;
use crate::ladder::{FALLBACK_NS, Ladder};
use crate::rules::NO_RULE;
use crate::slot::{Tag, Watched};
use crate::table::Slots;
use crate::time::{SECOND_NS, Time};
use crate::watch::bytes_of;
use crate::wire::{self, Boxed, KEYS_MAX, POPS_MAX, Report, WORKERS_MAX};

/// A report whose answer never comes, not even as a failure, is given up after this, in nanoseconds.
const ANSWER_NS_MAX: u64 = 10 * SECOND_NS;
/// The most bytes of keys that a POP's workers report in a second, and at once. What is not said now is said later.
const REPORT_BYTES_PER_S: u64 = 40_000;
/// The most reports of a worker that are under way at once; beyond it nothing is said until one ends.
pub const REPORTS_MAX: usize = 4;

/// 2^32 over the golden ratio, to the nearest odd number: spreads what is counted evenly.
const FIBONACCI_HALF: u32 = 0x9e37_79b1;

/// The state of one worker's exchange with weir-sync.
pub(super) struct Exchange {
    reporter: Reporter,
    table_id: u32,
    sequence: u64,
    /// Live POPs, as weir-sync last said, or guessed.
    pops: u32,
    /// The same, as it was last said by who knew; 0 if it never was.
    known_pops: u32,
    pub(super) ladder: Ladder,
    pub(super) versions: Versions,
    in_flight: Vec<InFlight>,
    /// Workers of this POP that report keys, as weir-sync last said; at least 1.
    workers: u32,
    /// What it may say now, in bytes, as of `refilled_at`.
    bytes: u64,
    refilled_at: Time,
    /// Keys that were boxed here; at most [`wire::BOXED_MAX`].
    pub(super) boxed: Vec<BoxedHere>,
    /// Counts the epochs of requests whose keys have no place.
    epochs: u32,
}

/// A report that was sent, and what it said.
pub(super) struct InFlight {
    pub(super) sequence: u64,
    pub(super) sent_at: Time,
    pub(super) keys: Vec<Told>,
}

/// What a report said of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) place: Place,
    /// Its index; [`NO_RULE`] where the rule is not in force any more.
    pub(super) rule: u16,
    pub(super) epoch: u32,
    pub(super) admitted: u32,
    /// Tokens that this worker was asked for, and those of them that no report had said.
    pub(super) asked: u64,
    pub(super) asked_recently: u64,
    /// Of a draw: the tokens that its request waits for.
    pub(super) awaited: u32,
    /// Whether the answer is for one request alone, because its key has no place.
    pub(super) is_unplaced: bool,
    pub(super) dirty_since: Time,
}

impl Exchange {
    pub(super) fn new(reporter: Reporter, table_id: u32) -> Self {
        let ladder = Ladder::new(FALLBACK_NS);
        Self {
            reporter,
            table_id,
            sequence: 0,
            pops: 1,
            known_pops: 0,
            ladder,
            versions: Versions::default(),
            in_flight: Vec::new(),
            workers: 1,
            bytes: REPORT_BYTES_PER_S,
            refilled_at: Time::ZERO,
            boxed: Vec::new(),
            epochs: 0,
        }
    }

    /// Live POPs, at least 1.
    pub(super) fn pops(&self) -> u32 {
        self.pops
    }

    /// weir-sync has answered at `at`, and said how many POPs are live. A worker that knows it takes no guess.
    pub(super) fn hear(&mut self, pops: u32, is_guess: bool, at: Time) {
        let pops = pops.clamp(1, POPS_MAX);
        self.ladder.hear(at);
        if !is_guess {
            self.known_pops = pops;
        }
        self.pops = if is_guess { self.known_pops.max(pops) } else { pops };
        self.ladder.guess(self.known_pops == 0);
    }

    /// weir-sync has said how many workers of this POP report keys, or nothing of it.
    pub(super) fn hear_of_workers(&mut self, workers: u32) {
        if workers > 0 {
            self.workers = workers.min(WORKERS_MAX);
        }
    }

    /// In how many parts a quota is cut for cold keys: two for each POP. The other half is left for the
    /// keys' warm part, of which weir-sync lets half a quota go by without a grant.
    pub(super) fn cold_parts(&self) -> u32 {
        if self.pops > 1 { self.pops.saturating_mul(2) } else { 1 }
    }

    /// How many bytes of keys it may say at `now`.
    fn bytes_at(&mut self, now: Time) -> u64 {
        let since_us = now.nanos_since(core::mem::replace(&mut self.refilled_at, now)) / 1_000;
        let part = REPORT_BYTES_PER_S / u64::from(self.workers.max(1));
        let more = since_us.saturating_mul(part) / 1_000_000;
        self.bytes = self.bytes.saturating_add(more).min(part);
        self.bytes
    }

    /// The report `sequence`, if it is under way and `fits`; no longer under way then.
    pub(super) fn take_if(&mut self, sequence: u64, fits: impl Fn(&InFlight) -> bool) -> Option<InFlight> {
        let at = self.in_flight.iter().position(|sent| sent.sequence == sequence && fits(sent))?;
        Some(self.in_flight.remove(at))
    }

    /// Names an epoch that no entry has: this worker never twice. Where it begins is random, so that another worker
    /// does not come by the same name for the same key while the budget remembers it, some seconds.
    pub(super) fn epoch_of_its_own(&mut self) -> u32 {
        self.epochs = self.epochs.wrapping_add(1);
        let worker = self.reporter.worker;
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        let begin = (worker ^ worker >> 32) as u32;
        // An odd factor: all names come before any comes again.
        begin.wrapping_add(self.epochs.wrapping_mul(FIBONACCI_HALF))
    }

    /// The number of the latest report.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Gives up every report under way.
    pub(super) fn end(&mut self) -> Vec<InFlight> {
        core::mem::take(&mut self.in_flight)
    }

    /// What the reports under way said.
    pub(super) fn told_mut(&mut self) -> impl Iterator<Item = &mut Told> {
        self.in_flight.iter_mut().flat_map(|sent| &mut sent.keys)
    }

    /// The next report, of these keys.
    fn next(&mut self, rules: Vec<wire::Rule>, keys: Vec<wire::Key>, boxed: Vec<Boxed>, now: Time) -> Report {
        self.sequence += 1;
        let Reporter { pop, worker } = self.reporter.clone();
        Report {
            pop,
            worker,
            sequence: self.sequence,
            table: self.table_id,
            made_ms: now.as_nanos() / 1_000_000,
            pops: self.known_pops,
            running: self.versions.running(),
            rules,
            keys,
            boxed,
        }
    }
}

impl Limiter {
    /// Falls back on what the rules say once nothing was heard of weir-sync for `fallback_ns`
    /// nanoseconds, instead of [`FALLBACK_NS`].
    pub fn fall_back_after(&mut self, fallback_ns: u64) {
        if let Some(exchange) = &mut self.exchange {
            exchange.ladder = Ladder::new(fallback_ns);
        }
    }

    /// How well this worker is in touch with weir-sync; none where nothing is ever reported.
    pub fn ladder(&self) -> Option<&Ladder> {
        self.exchange.as_ref().map(|exchange| &exchange.ladder)
    }

    /// Live POPs as this worker believes, at least 1; none where nothing is ever reported.
    pub fn pops(&self) -> Option<u32> {
        self.exchange.as_ref().map(Exchange::pops)
    }

    /// Another worker heard of weir-sync at `at`, and how many POPs are live.
    pub fn note_heard(&mut self, pops: u32, at: Time) {
        if let Some(exchange) = &mut self.exchange {
            exchange.hear(pops, false, at);
        }
    }

    /// The same, where weir-sync only guesses how many POPs are live.
    pub fn note_guessed(&mut self, pops: u32, at: Time) {
        if let Some(exchange) = &mut self.exchange {
            exchange.hear(pops, true, at);
        }
    }

    /// The report to send now; `None` when [`REPORTS_MAX`] are under way, or there is nothing to say and no
    /// need to `greet`. A greeting keeps the POP among the live, and its answer brings what is pushed;
    /// one worker of a POP does it each interval.
    ///
    /// Whoever calls this sends it, and then calls [`Limiter::apply`] or [`Limiter::report_failed`].
    pub fn report(&mut self, slots: &mut dyn Slots, greet: bool, now: Time) -> Option<Report> {
        if !self.may_report(now) {
            return None;
        }
        self.watch.forget_idle(now);
        let bytes = self.exchange.as_mut()?.bytes_at(now);
        let tags = self.watch.due(bytes, now);
        let mut saying = Saying::default();
        for tag in tags {
            self.tell(tag, &mut saying, slots, now);
        }
        if saying.len() + self.ended.len() <= KEYS_MAX {
            self.say_ended(&mut saying, now);
        }
        saying.boxed = self.exchange.as_mut()?.boxes(now);
        if saying.is_empty() && saying.boxed.is_empty() && !greet {
            return None;
        }
        let (report, told) = self.say(saying, now)?;
        let exchange = self.exchange.as_mut()?;
        let said: u64 = report.keys.iter().map(|key| bytes_of(&key.value)).sum();
        exchange.bytes = exchange.bytes.saturating_sub(said);
        exchange.in_flight.push(InFlight { sequence: report.sequence, sent_at: now, keys: told });
        Some(report)
    }

    /// Whether there is room for one more report. What those under way said, and none has answered, is
    /// to be said again.
    fn may_report(&mut self, now: Time) -> bool {
        let Some(exchange) = &self.exchange else { return false };
        let is_over = |sent: &&InFlight| now.nanos_since(sent.sent_at) >= ANSWER_NS_MAX;
        let over: Vec<_> = exchange.in_flight.iter().filter(is_over).map(|sent| sent.sequence).collect();
        for sequence in over {
            self.report_failed(sequence);
        }
        let Some(exchange) = &self.exchange else { return false };
        for sent in &exchange.in_flight {
            unsay(&mut self.watch, &sent.keys);
        }
        exchange.in_flight.len() < REPORTS_MAX
    }

    /// Puts what is to be said into a report.
    pub(super) fn say(&mut self, mut saying: Saying, now: Time) -> Option<(Report, Vec<Told>)> {
        saying.refer_boxes();
        let rules = saying.rules.iter().filter_map(|&rule| self.wire_rule(rule)).collect();
        let report = self.exchange.as_mut()?.next(rules, saying.keys, saying.boxed, now);
        self.counters.add(Event::Reported, 1);
        Some((report, saying.told))
    }

    fn wire_rule(&self, rule: u16) -> Option<wire::Rule> {
        self.rule(rule).map(|rule| wire::Rule {
            name: rule.name.clone(),
            quota: rule.quota,
            sharing: rule.sharing.clone(),
        })
    }

    /// Adds what this worker was asked to the shared entry, and says what the entry counts.
    fn tell(&mut self, tag: u64, saying: &mut Saying, slots: &mut dyn Slots, now: Time) {
        let Some(key) = self.watch.get_mut(tag) else { return };
        let (rule, slot, unadded) = (key.rule, key.slot, key.asked_unadded);
        let (asked, unanswered, is_waited_for) = (key.asked, key.asked_recently(), key.waiting > 0);
        let place = Place { tag: Tag::from_bits(tag), slot };
        let asked_since_report = key.asked_since_report();
        let is_crowded = self.watch.is_crowded();
        let strict = self.rule(rule).filter(|rule| rule.sharing.strict);
        let wish = strict.map(|rule| Wish {
            asked: if rule.sharing.calendar.is_some() { unanswered } else { asked_since_report },
            usual_cost: rule.cost.usual(),
            is_waited_for,
            is_crowded,
            chunk: rule.sharing.calendar.map(|_| chunk_of(rule.quota)),
        });
        let is_strict = wish.is_some();
        let told = Cell::new(None);
        let updated = self.update_watched(place, None, slots, now, |watched| {
            if is_strict {
                watched.asked = watched.asked.saturating_add(unadded);
            } else {
                watched.count_asked(unadded, now);
            }
            told.set(Some(*watched));
            if wish.is_some_and(|wish| wish.ends(watched, now)) {
                watched.end_epoch(now);
            }
        });
        let watched = match (updated, told.get()) {
            (Updated::Written(_), Some(told)) => told,
            (Updated::Gone, _) => return self.watch.remove(tag),
            // It stays dirty, and is told the next time.
            _ => return,
        };
        let Some(key) = self.watch.get_mut(tag) else { return };
        (key.asked_unadded, key.dirty) = (0, false);
        let (value, dirty_since, is_warm) = (key.value, key.dirty_since, key.is_warm());
        let asked_recently = key.say_asked();
        let ahead = match wish.map(|wish| wish.of(&watched, now)) {
            None => 0,
            Some(Want::Ahead(ahead)) => ahead,
            Some(Want::Nothing) => return key.reported(asked),
            Some(Want::Later(at)) => return key.rest(at, now),
        };
        let (epoch, admitted) = (watched.epoch, watched.admitted);
        let told = Told {
            place,
            rule,
            epoch,
            admitted,
            asked,
            asked_recently,
            awaited: 0,
            is_unplaced: false,
            dirty_since,
        };
        // A key that is reported every interval is soon told of; and its bucket may miss more than it
        // gave, for a grant.
        let unheard = self.unheard(rule).filter(|_| is_warm);
        let missing = unheard.map_or(0, |unheard| watched.missing(&unheard, now));
        saying.add(told, value.as_bytes(), &watched, missing, ahead, now);
    }
}

/// What a report is going to say.
#[derive(Default)]
pub(super) struct Saying {
    /// The rules that keys refer to.
    rules: Vec<u16>,
    keys: Vec<wire::Key>,
    told: Vec<Told>,
    /// Boxed keys, with their rules' indices in the limiter.
    boxed: Vec<Boxed>,
}

impl Saying {
    /// Says of one more key what its entry counts, and how many tokens `ahead` it wants.
    pub(super) fn add(
        &mut self,
        told: Told,
        value: &[u8],
        watched: &Watched,
        missing: u64,
        ahead: u32,
        now: Time,
    ) {
        let Some(rule) = self.refer(told.rule) else { return };
        let admitted = u64::from(watched.admitted);
        // Workers add up what was asked when they report, and what was admitted at once.
        let asked = u64::from(watched.asked).max(admitted);
        let unconfirmed = admitted.saturating_sub(u64::from(watched.charged));
        // Another worker may have admitted before this one had anything to say.
        let span_ns = now.nanos_since(told.dirty_since).max(watched.unheard_ns(now));
        self.keys.push(wire::Key {
            rule,
            value: value.to_vec(),
            epoch: watched.epoch,
            admitted,
            unconfirmed,
            span_ms: u32::try_from(span_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX),
            missing: u32::try_from(missing.min(unconfirmed)).unwrap_or(u32::MAX),
            asked,
            asked_recently: told.asked_recently.min(asked),
            ahead,
        });
        self.told.push(told);
    }

    /// Says that an epoch is over which one request drew on. What is answered to that changes nothing.
    pub(super) fn add_ended(&mut self, rule: u16, value: &[u8], watched: &Watched, now: Time) {
        let place = Place { tag: Tag::from_bits(0), slot: 0 };
        let told = Told {
            place,
            rule,
            epoch: watched.epoch,
            admitted: watched.admitted,
            asked: 0,
            asked_recently: 0,
            awaited: 0,
            is_unplaced: true,
            dirty_since: now,
        };
        self.add(told, value, watched, 0, 0, now);
        if let Some(told) = self.told.last_mut() {
            told.rule = NO_RULE;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The report's index for a rule of the limiter.
    fn refer(&mut self, rule: u16) -> Option<u16> {
        let index = self.rules.iter().position(|&known| known == rule).unwrap_or_else(|| {
            self.rules.push(rule);
            self.rules.len() - 1
        });
        u16::try_from(index).ok()
    }

    fn refer_boxes(&mut self) {
        let mut boxed = core::mem::take(&mut self.boxed);
        for one in &mut boxed {
            one.rule = self.refer(one.rule).unwrap_or(NO_RULE);
        }
        self.boxed = boxed;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
