//! Booking of requests that have already happened. Their cost is charged or refunded to every rule that
//! counts them, even if the buckets have too few tokens. Nothing is evaluated, so nothing is refused.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use crate::check::cells::{Cells, algorithm_at};
use crate::check::current::{Hit, Scratch};
use crate::check::decision::{EndAction, EndActionKind, ReservedTokens};
use crate::check::evaluate::hold;
use crate::check::rules::MatchResult;
use crate::check::settle::give_back_tokens;
use crate::counters::CountedEvent;
use crate::limiter::Limiter;
use crate::sync::Consume;
use crate::table::slot::{Cold, Entry};
use crate::table::{Slots, Updated, change_slot};
use crate::{RuleIndex, algorithms};
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::time::Time;
use weir_rules::algorithm::Algorithm;
use weir_rules::request::Request;

/// The kind of a booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Booking {
    /// Charges tokens that were spent.
    Charge,
    /// Refunds tokens that were charged but not spent.
    Refund,
}

/// Books the cost of `request` under each rule that counts it. Returns the amounts to consume from the
/// budgets of strict rules. Fails with the first rule that cannot refund, if `booking` is a refund;
/// nothing is booked then.
pub(crate) fn book(
    limiter: &mut Limiter,
    booking: Booking,
    request: &mut dyn Request,
    slots: &mut dyn Slots,
    now: Time,
) -> Result<Vec<Consume>, RuleIndex> {
    let times = request.times();
    let (scratch, met) = find_booked(limiter, request, slots, now);
    let hits = if matches!(met, MatchResult::Counted) { scratch.hits.as_slice() } else { &[] };
    let shadow = if hits.is_empty() { &[] } else { scratch.shadow.as_slice() };
    let fixed = hits.iter().find(|hit| booking == Booking::Refund && !comes_back(limiter, hit.rule));
    let booked = if let Some(hit) = fixed {
        Err(hit.rule)
    } else {
        let booked = hits.iter().chain(shadow);
        Ok(booked.filter_map(|hit| book_hit(limiter, booking, hit, times, slots, now)).collect())
    };
    limiter.scratch = Some(scratch);
    booked
}

/// Drops cached refusals of the request's keys, after tokens were refunded to them.
pub(crate) fn drop_refusals(limiter: &mut Limiter, request: &mut dyn Request, slots: &mut dyn Slots, now: Time) {
    let (scratch, _) = find_booked(limiter, request, slots, now);
    for hit in &scratch.hits {
        limiter.local_cache.forget(hit.tag);
    }
    limiter.scratch = Some(scratch);
}

/// Finds all rules that count the request, whatever the local cache has.
fn find_booked(
    limiter: &mut Limiter,
    request: &mut dyn Request,
    slots: &dyn Slots,
    now: Time,
) -> (Box<Scratch>, MatchResult) {
    let mut scratch = limiter.scratch.take().unwrap_or_default();
    let was_booking = mem::replace(&mut limiter.current.is_booking, true);
    let met = limiter.find_matches(request, &mut scratch, slots.count(), now);
    limiter.current.is_booking = was_booking;
    (scratch, met)
}

/// True if the rule's tokens can be refunded. Turns in a queue and places in flight cannot.
fn comes_back(limiter: &Limiter, rule: RuleIndex) -> bool {
    limiter.rules.get(rule).is_some_and(|rule| {
        let is_queue = matches!(rule.algorithm, Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_));
        !is_queue && rule.in_cells().is_none()
    })
}

/// Books one hit of a request that stands for `times` requests. Returns the amount left for the budget,
/// if the rule is strict. Rules that count requests in flight book nothing, because the request is over.
fn book_hit(
    limiter: &mut Limiter,
    booking: Booking,
    hit: &Hit,
    times: u32,
    slots: &mut dyn Slots,
    now: Time,
) -> Option<Consume> {
    let rule = limiter.rules.get(hit.rule)?;
    let tokens = if rule.after.is_some() { times } else { hit.cost };
    let (algorithm, is_strict, refill_policy) = (rule.algorithm, rule.sharing.strict, rule.sharing.refill_policy);
    if matches!(algorithm, Algorithm::Concurrency(_)) || matches!(refill_policy, RefillPolicy::InFlight(_)) {
        return None;
    }
    limiter.local_cache.forget(hit.tag);
    if is_strict && !hit.is_shadow {
        return book_strict(limiter, booking, hit, tokens, slots, now);
    }
    if let (Algorithm::TokenBucket(_), Booking::Charge) = (algorithm, booking) {
        let done = charge_of(limiter, hit, algorithm)?;
        limiter.charge(done, tokens, slots, now);
        return None;
    }
    let Limiter { rules, room, counters, .. } = limiter;
    let terms = rules.terms_of(hit.rule)?;
    let booked = change_slot(room, counters, (hit.slot, slots), |slot| {
        if let Algorithm::TokenBucket(quota) = &algorithm {
            hold(slot, hit.tag, quota, now);
            let mut placement = slot.find_or_new(hit.tag, now);
            terms.changes.carry_over(&mut placement, slot, now);
            // The rate divisor at which they were charged is unknown. More than the tokens would let the POP
            // admit above the quota (I3).
            give_back_tokens(&mut placement.entry, quota, tokens, 1, |_| 0);
            if let Entry::Watched(watched) = &mut placement.entry {
                watched.charged = watched.charged.min(watched.admitted);
            }
            // Without room to be watched, the key waits for its next grant.
            return slot.put_back(&placement, &placement.entry, now).or_else(|| {
                let bucket = placement.entry.bucket();
                slot.put(hit.tag, &Entry::Cold(Cold { bucket, ..Cold::NEW }), now)
            });
        }
        let mut cells = Cells::find_or_new(slot, hit.tag, terms.overflow, &algorithm, now);
        let algorithm = algorithm_at(cells.tag, &algorithm);
        match booking {
            Booking::Charge => {
                algorithms::charge(&algorithm, cells.all_mut(), hit.tag.bits(), tokens, now);
            }
            Booking::Refund => algorithms::refund(&algorithm, cells.all_mut(), tokens, now),
        }
        cells.store(slot, now)
    });
    let is_lost = matches!(booked, Updated::Gone | Updated::Failed);
    counters.add(CountedEvent::Uncharged, u32::from(is_lost));
    None
}

/// Charges the tokens that a strict rule's key holds. Returns the rest for the budget; a refund goes to
/// the budget entirely.
fn book_strict(
    limiter: &mut Limiter,
    booking: Booking,
    hit: &Hit,
    tokens: u32,
    slots: &mut dyn Slots,
    now: Time,
) -> Option<Consume> {
    let spent = limiter.change_slot(hit.slot, slots, |slot| {
        let mut placement = slot.find_or_new(hit.tag, now);
        let Entry::Watched(watched) = &mut placement.entry else { return None };
        let spent = if booking == Booking::Charge { watched.on_hand(now).min(tokens) } else { 0 };
        watched.spend(spent, now);
        if booking == Booking::Refund {
            watched.unbar();
        }
        slot.put_back(&placement, &placement.entry, now).map(|_| spent)
    });
    let rest = tokens.saturating_sub(if let Updated::Written(spent) = spent { spent } else { 0 });
    let value = *limiter.rules.keys.value(hit.key);
    (rest > 0).then_some(Consume { rule: hit.rule, value, tokens: rest, tag: hit.tag })
}

/// The amount to consume from the budget, if the request of `done` cost `tokens` more than it had
/// acquired.
pub(crate) fn book_beyond(limiter: &Limiter, done: &EndAction, tokens: u32) -> Option<Consume> {
    let rule = limiter.rules.with_salt(done.salt).filter(|_| tokens > 0)?;
    Some(Consume { rule, value: done.value, tokens, tag: done.place.tag })
}

fn charge_of(limiter: &Limiter, hit: &Hit, algorithm: Algorithm) -> Option<EndAction> {
    Some(EndAction {
        what: EndActionKind::Charge { after: None, reserved: ReservedTokens::NOTHING },
        algorithm,
        place: hit.place(),
        value: *limiter.rules.keys.value(hit.key),
        salt: limiter.rules.terms_of(hit.rule)?.salt,
    })
}
