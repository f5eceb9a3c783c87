//! Epochs that are in no entry: those that one request acquired for itself alone, because its slot has no room
//! for its key or because its cost is known only at its end, and those that are given back.
//!
//! The request holds its epoch until it ends. Reports renew the lease of its tokens meanwhile, and count none
//! of them as spent. After the end, a report states the cost; the budget gets back the rest, or is debited
//! for the difference. That is repeated until a reply confirms it or the lease has ended. Once the lease has
//! ended, the budget counts exactly the acquired tokens as spent. So a worker that traps costs the tokens
//! that its requests had acquired.
//!
//! A key's epoch is given back by one report. If that is lost, the tokens would be lost to the fleet: for the
//! rest of a window, or for the length of a log. So it is repeated in the same way.

use crate::RuleIndex;
use crate::check::CompiledRules;
use crate::sync::calls::{KeyContents, OwnEpoch, ReportBuilder, ReportedKey};
use crate::sync::client::SyncClient;
use crate::table::NamedKey;
use crate::table::slot::{Cold, Tag, Watched};
use weir_protocol::messages::{Allowance, HeldEpoch, KEYS_MAX};
use weir_protocol::time::{SECOND_NS, Time};

/// Most epochs of a worker that requests hold or whose end is not confirmed. Tokens acquired beyond that
/// count as spent.
pub const OWN_MAX: usize = 2_048;
/// Most of these epochs that one call for tokens names.
const NAMED_MAX: usize = KEYS_MAX / 2;
/// Lease that a report asks for while a request goes on, in milliseconds. It is renewed when half of that is
/// left.
const HOLD_MS: u32 = 60_000;
const RENEWED_NS: u64 = 30 * SECOND_NS;
/// Delay before a cost that the budget could not take yet is reported again, in nanoseconds.
const WAITS_NS: u64 = 5 * SECOND_NS;

impl SyncClient {
    /// Keeps an epoch, to name it in reports; false if there are [`OWN_MAX`].
    pub(crate) fn keep_own(&mut self, own: OwnEpoch) -> bool {
        let has_room = self.held.len() + self.ended.len() < OWN_MAX;
        if has_room {
            if own.cost.is_some() { &mut self.ended } else { &mut self.held }.push(own);
        }
        has_room
    }

    /// True if one more epoch can be given back until a reply confirms it. Half of the places are left to requests.
    pub(crate) fn can_give_back(&self) -> bool {
        self.held.len() + self.ended.len() < OWN_MAX && self.ended.len() < OWN_MAX / 2
    }

    /// Gives an epoch of the key `name` back, all but its `admitted` tokens, until a reply confirms it. Call `named_in`
    /// does so already. False if it [cannot](Self::can_give_back) be repeated.
    pub(crate) fn keep_giving_back(&mut self, name: NamedKey, watched: &Watched, named_in: u64) -> bool {
        self.can_give_back()
            && self.keep_own(OwnEpoch {
                name,
                epoch: watched.epoch,
                tokens: watched.charged.max(watched.admitted),
                cost: Some(watched.admitted),
                until: watched.until,
                named_in,
                again_at: Time::ZERO,
            })
    }

    /// Records the cost of the request that holds `epoch`. False if its lease has ended: the acquired tokens stay
    /// spent.
    pub(crate) fn settle_own(&mut self, epoch: u32, cost: u32) -> bool {
        let Some(at) = self.held.iter().position(|own| own.epoch == epoch) else { return false };
        let own = self.held.swap_remove(at);
        self.ended.push(OwnEpoch { cost: Some(cost), named_in: 0, ..own });
        true
    }

    /// Adds epochs that have ended to `builder`; in a report, also those whose leases must be renewed. A call
    /// for tokens can give back, but not state that more was spent. Returns the number of epochs whose lease ended
    /// before a cost other than their tokens was confirmed.
    pub(crate) fn report_own_epochs(
        &mut self,
        builder: &mut ReportBuilder,
        rules: &CompiledRules,
        is_acquire: bool,
        now: Time,
    ) -> u32 {
        let mut lost = 0;
        self.held.retain(|own| now < own.until);
        self.ended.retain(|own| {
            let is_over = own.until <= now;
            lost += u32::from(is_over && own.cost != Some(own.tokens));
            !is_over
        });
        let most = if is_acquire { NAMED_MAX } else { KEYS_MAX };
        let (next, divisor) = (self.next_sequence(), self.cold_rate_divisor());
        for own in self.ended.iter_mut().chain(&mut self.held) {
            if builder.len() >= most {
                break;
            }
            let is_beyond = own.cost.is_some_and(|cost| cost > own.tokens);
            let is_due = match own.cost {
                Some(_) => own.again_at <= now && !(is_acquire && is_beyond),
                None => !is_acquire && own.until.nanos_since(now) < RENEWED_NS,
            };
            if !is_due || own.named_in == next || self.calls.get(own.named_in).is_some() {
                continue;
            }
            let Some(terms) = rules.terms_of(own.name.rule) else { continue };
            let (admitted, ahead) = own.cost.map_or((0, own.tokens), |cost| (cost, 0));
            let begun = Watched::begin(&Cold::NEW, &terms.local_limits(divisor), 0, now);
            let watched = Watched { epoch: own.epoch, admitted, charged: admitted, ..begun };
            let reported = ReportedKey {
                epoch: own.epoch,
                is_unplaced: true,
                ..ReportedKey::of(own.name.place, RuleIndex::NONE, now)
            };
            let key = builder.len();
            let value = own.name.value.as_bytes();
            builder.add(own.name.rule, reported, &KeyContents { value, watched: &watched, missing: 0, ahead }, now);
            // An epoch that only gives back needs no statement about its request.
            if let (false, true, Ok(key)) = (is_acquire, own.cost.is_none() || is_beyond, u16::try_from(key)) {
                builder.held.push(HeldEpoch { key, for_ms: if ahead > 0 { HOLD_MS } else { 0 } });
            }
            own.named_in = next;
        }
        lost
    }

    /// Applies the reply to what call `number`, sent at `sent_at`, reported about `epoch` of the key `tag`. A lease
    /// in the reply means that the epoch goes on, or that its cost has to wait.
    pub(crate) fn observe_own_epoch(
        &mut self,
        (tag, epoch): (Tag, u32),
        number: u64,
        allowance: &Allowance,
        sent_at: Time,
    ) {
        let is_it = |own: &OwnEpoch| (own.name.place.tag, own.epoch, own.named_in) == (tag, epoch, number);
        let lease_ms = if let Allowance::Leased(leased) = allowance { leased.lease_ms } else { 0 };
        for list in [&mut self.ended, &mut self.held] {
            let Some(at) = list.iter().position(is_it) else { continue };
            match list.get_mut(at).filter(|_| lease_ms > 0) {
                Some(own) => {
                    own.until = own.until.max(sent_at + u64::from(lease_ms) * 1_000_000);
                    if own.cost.is_some() {
                        own.again_at = sent_at + WAITS_NS;
                    }
                }
                // The budget has closed the epoch.
                None => drop(list.swap_remove(at)),
            }
            return;
        }
    }
}
