//! The POP's side of the budget loop: making reports, applying grants.
//!
//! Counts live in shared data, cumulative, so a report may be lost, repeated or made by two workers.
//! A worker has at most one report under way; what it could not say waits for the next.

use alloc::vec::Vec;

use super::{Limiter, Reporter};
use crate::counters::Event;
use crate::key::KeyValue;
use crate::slot::{Cold, Entry, Tag, Watched};
use crate::table::{Loaded, Slots};
use crate::time::{SECOND_NS, Time};
use crate::wire::{self, Allowance, KEYS_MAX, Message, Reply, Report, WireError};

/// A report whose answer never comes, not even as a failure, is given up after this, in nanoseconds.
const ANSWER_NS_MAX: u64 = 10 * SECOND_NS;
/// How often a write that meets another worker's is done again.
const WRITES_MAX: u32 = 8;

/// The state of one worker's exchange with weir-sync.
pub(super) struct Exchange {
    reporter: Reporter,
    table_id: u32,
    sequence: u64,
    /// Live POPs, as weir-sync last said.
    pops: u32,
    in_flight: Option<InFlight>,
    /// The tag after which the next report begins, so that every key gets its turn.
    cursor: u64,
}

/// A report that was sent, and what it said.
struct InFlight {
    sequence: u64,
    sent_at: Time,
    keys: Vec<Told>,
}

/// What a report said of one key.
#[derive(Clone, Copy)]
struct Told {
    tag: Tag,
    slot: u32,
    rule: u16,
    epoch: u32,
    admitted: u32,
    asked_recently: u32,
    dirty_since: Time,
}

/// What became of a change to a watched entry.
enum Updated {
    Written(Watched),
    /// The entry is not there any more (spent, or its slot lost).
    Gone,
    /// The host did not answer, or others kept writing.
    Failed,
}

impl Exchange {
    pub(super) fn new(reporter: Reporter, table_id: u32) -> Self {
        let (sequence, pops, cursor) = (0, 1, 0);
        Self { reporter, table_id, sequence, pops, in_flight: None, cursor }
    }

    /// Live POPs, at least 1.
    pub(super) fn pops(&self) -> u32 {
        self.pops
    }
}

impl Limiter {
    /// Live POPs as this worker believes, at least 1; none where nothing is ever reported.
    pub fn pops(&self) -> Option<u32> {
        self.exchange.as_ref().map(Exchange::pops)
    }

    /// Another worker heard how many POPs are live.
    pub fn note_pops(&mut self, pops: u32) {
        if let Some(exchange) = &mut self.exchange {
            exchange.pops = pops.max(1);
        }
    }

    /// The report to send now; `None` when one is still under way, or there is nothing to say and no
    /// need to `greet`. A greeting keeps the POP among the live, and its answer brings what is pushed;
    /// one worker of a POP does it each interval.
    ///
    /// Whoever calls this sends it, and then calls [`Limiter::apply`] or [`Limiter::report_failed`].
    pub fn report(&mut self, slots: &mut dyn Slots, greet: bool, now: Time) -> Option<Report> {
        let exchange = self.exchange.as_ref()?;
        if exchange.in_flight.as_ref().is_some_and(|sent| now.nanos_since(sent.sent_at) < ANSWER_NS_MAX) {
            return None;
        }
        if exchange.in_flight.is_some() {
            self.report_failed();
        }
        self.watch.forget_idle(now);
        let cursor = self.exchange.as_ref()?.cursor;
        let tags = self.watch.dirty_after(cursor, KEYS_MAX);
        let mut rules = Vec::new();
        let (mut told, mut keys) = (Vec::new(), Vec::new());
        for &tag in &tags {
            if let Some((this, key)) = self.tell(tag, &mut rules, slots, now) {
                told.push(this);
                keys.push(key);
            }
        }
        let exchange = self.exchange.as_mut()?;
        if keys.is_empty() && !greet {
            return None;
        }
        exchange.cursor = tags.last().copied().unwrap_or(0);
        exchange.sequence += 1;
        exchange.in_flight = Some(InFlight { sequence: exchange.sequence, sent_at: now, keys: told });
        let Reporter { pop, worker } = exchange.reporter.clone();
        let (sequence, table) = (exchange.sequence, exchange.table_id);
        let rules = rules.iter().filter_map(|&rule| self.wire_rule(rule)).collect();
        self.counters.add(Event::Reported, 1);
        Some(Report { pop, worker, sequence, table, rules, keys })
    }

    /// Adds what this worker was asked to the shared entry, and says what the entry counts.
    fn tell(
        &mut self,
        tag: u64,
        rules: &mut Vec<u16>,
        slots: &mut dyn Slots,
        now: Time,
    ) -> Option<(Told, wire::Key)> {
        let key = self.watch.get_mut(tag)?;
        let (rule, slot, value, asked_recently) = (key.rule, key.slot, key.value, key.asked_recently);
        let (unadded, dirty_since) = (key.asked_unadded, key.dirty_since);
        let tag = Tag::of_key(tag, 0);
        let updated = self.update_watched(tag, slot, slots, now, |watched| {
            watched.asked = watched.asked.saturating_add(unadded);
        });
        let watched = match updated {
            Updated::Written(watched) => watched,
            Updated::Gone => {
                self.watch.remove(tag.bits());
                return None;
            }
            // It stays dirty, and is told the next time.
            Updated::Failed => return None,
        };
        if let Some(key) = self.watch.get_mut(tag.bits()) {
            key.asked_unadded = 0;
            key.dirty = false;
        }
        let index = rules.iter().position(|&known| known == rule).unwrap_or_else(|| {
            rules.push(rule);
            rules.len() - 1
        });
        let admitted = u64::from(watched.admitted);
        // Workers add up what was asked when they report, and what was admitted at once.
        let asked = u64::from(watched.asked).max(admitted);
        let key = wire::Key {
            rule: u16::try_from(index).ok()?,
            value: value.as_bytes().to_vec(),
            epoch: watched.epoch,
            admitted,
            unconfirmed: admitted.saturating_sub(u64::from(watched.charged)),
            span_ms: u32::try_from(now.nanos_since(dirty_since).div_ceil(1_000_000)).unwrap_or(u32::MAX),
            asked,
            asked_recently: u64::from(asked_recently).min(asked),
            ahead: 0,
        };
        let (epoch, admitted) = (watched.epoch, watched.admitted);
        Some((Told { tag, slot, rule, epoch, admitted, asked_recently, dirty_since }, key))
    }

    fn wire_rule(&self, rule: u16) -> Option<wire::Rule> {
        self.rule(rule).map(|rule| wire::Rule {
            name: rule.name.clone(),
            quota: rule.quota,
            sharing: rule.sharing.clone(),
        })
    }

    /// Changes a watched entry in the table.
    fn update_watched(
        &mut self,
        tag: Tag,
        slot: u32,
        slots: &mut dyn Slots,
        now: Time,
        change: impl Fn(&mut Watched),
    ) -> Updated {
        let mut bytes = core::mem::take(&mut self.scratch.bytes);
        let mut result = Updated::Failed;
        for _ in 0..WRITES_MAX {
            let (mut loaded, _) = Loaded::read(slots, slot, &mut bytes);
            if !loaded.is_known() {
                break;
            }
            let Some(Entry::Watched(mut watched)) = loaded.slot.get(tag) else {
                result = Updated::Gone;
                break;
            };
            change(&mut watched);
            // The entry is there, so it has its room.
            let _ = loaded.slot.put(tag, &Entry::Watched(watched), now);
            if loaded.write(slots).is_ok() {
                result = Updated::Written(watched);
                break;
            }
            self.counters.add(Event::CasRetried, 1);
        }
        self.scratch.bytes = bytes;
        result
    }

    /// Applies the bytes of the reply to the report under way; an answer to a report that was given
    /// up must not come here. On an error nothing changed, and the report counts as failed.
    pub fn apply(&mut self, bytes: &[u8], slots: &mut dyn Slots, now: Time) -> Result<(), WireError> {
        let applied = Reply::decode(bytes).and_then(|reply| self.apply_reply(&reply, slots, now));
        if applied.is_err() {
            self.report_failed();
        }
        applied
    }

    fn apply_reply(&mut self, reply: &Reply, slots: &mut dyn Slots, now: Time) -> Result<(), WireError> {
        let Some(exchange) = self.exchange.as_mut() else { return Ok(()) };
        let sent = exchange.in_flight.take_if(|sent| {
            sent.sequence == reply.sequence
                && (reply.grants.is_empty() || reply.grants.len() == sent.keys.len())
        });
        let Some(sent) = sent else { return Err(WireError::Limit("sequence or grants")) };
        exchange.pops = reply.pops;
        for pushed in &reply.pushed {
            if let Some(rule) = reply.rules.get(usize::from(pushed.rule)) {
                self.learn(rule, pushed, slots, now);
            }
        }
        if reply.grants.is_empty() && !sent.keys.is_empty() {
            self.counters.add(Event::Ungranted, 1);
            self.unsay(&sent.keys);
            return Ok(());
        }
        self.counters.add(if reply.settled { Event::Answered } else { Event::Ungranted }, 1);
        for (told, allowance) in sent.keys.iter().zip(&reply.grants) {
            self.hold(told, allowance, reply.settled, sent.sent_at, slots, now);
        }
        if !reply.settled {
            self.unsay(&sent.keys);
        }
        Ok(())
    }

    /// Holds what was granted to a report sent at `sent_at`: what was admitted since comes off its
    /// level, and what refilled since comes on top.
    fn hold(
        &mut self,
        told: &Told,
        allowance: &Allowance,
        is_settled: bool,
        sent_at: Time,
        slots: &mut dyn Slots,
        now: Time,
    ) {
        let Some(quota) = self.rule(told.rule).map(|rule| rule.quota) else { return };
        let refilled = quota.refill_micro(now.nanos_since(sent_at)) / 1_000;
        let refilled_milli = i64::try_from(refilled).unwrap_or(i64::MAX);
        self.update_watched(told.tag, told.slot, slots, now, |watched| {
            if watched.epoch != told.epoch {
                return;
            }
            if is_settled {
                watched.charged = watched.charged.max(told.admitted).min(watched.admitted);
            }
            match allowance {
                Allowance::Hot(grant) => {
                    let since = i64::from(watched.admitted.saturating_sub(told.admitted));
                    let level = grant.level_milli.saturating_add(refilled_milli);
                    watched.hold(grant, &quota, level.saturating_sub(since * 1_000), now);
                }
                Allowance::Warm | Allowance::Leased(_) => watched.release(now),
            }
        });
        self.deny_cache.forget(told.tag);
        if let Some(key) = self.watch.get_mut(told.tag.bits()) {
            key.asked_recently = key.asked_recently.saturating_sub(told.asked_recently);
        }
    }

    /// Takes in a grant for a key that this POP may not even know yet.
    fn learn(&mut self, rule: &str, pushed: &wire::Pushed, slots: &mut dyn Slots, now: Time) {
        let position = self.rules.rules().iter().position(|known| known.name == rule);
        let (Some(index), Some(value)) = (position, KeyValue::from_bytes(&pushed.value)) else { return };
        let Some((tags, quota)) = self.tags.get(index).zip(self.rules.rules().get(index).map(|r| r.quota))
        else {
            return;
        };
        let Ok(rule) = u16::try_from(index) else { return };
        let hash = self.secret.hash(value.as_bytes());
        let (slot, tag) = (super::slot_of(hash.place, slots.count()), Tag::of_key(hash.tag, tags.salt));
        let pops = self.exchange.as_ref().map_or(1, Exchange::pops);
        let mut bytes = core::mem::take(&mut self.scratch.bytes);
        for _ in 0..WRITES_MAX {
            let (mut loaded, _) = Loaded::read(slots, slot, &mut bytes);
            let mut watched = match loaded.slot.get(tag) {
                Some(Entry::Watched(watched)) => watched,
                Some(Entry::Cold(cold)) => Watched::begin(&cold, &quota, pops, 0, now),
                None => Watched::begin(&Cold::NEW, &quota, pops, 0, now),
            };
            watched.hold(&pushed.grant, &quota, pushed.grant.level_milli, now);
            // Without room in the slot the key goes on as it was.
            if loaded.slot.put(tag, &Entry::Watched(watched), now).is_none() || !loaded.is_known() {
                break;
            }
            if loaded.write(slots).is_ok() {
                self.deny_cache.forget(tag);
                if watched.admitted > watched.charged {
                    self.watch.learn(tag, rule, &value, slot, now);
                }
                break;
            }
            self.counters.add(Event::CasRetried, 1);
        }
        self.scratch.bytes = bytes;
    }

    /// The report under way came to nothing: what it said is said again.
    pub fn report_failed(&mut self) {
        let sent = self.exchange.as_mut().and_then(|exchange| exchange.in_flight.take());
        if let Some(sent) = sent {
            self.counters.add(Event::SyncFailed, 1);
            self.unsay(&sent.keys);
        }
    }

    fn unsay(&mut self, keys: &[Told]) {
        for told in keys {
            if let Some(key) = self.watch.get_mut(told.tag.bits()) {
                key.soil(told.dirty_since);
            }
        }
    }
}
