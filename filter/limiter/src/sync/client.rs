//! A worker's exchange with weir-sync: calls under way, the byte budget of reports, bans, and epochs without an entry.

use alloc::string::String;
use alloc::vec::Vec;

use crate::RuleIndex;
use crate::check::CompiledRules;
use crate::sync::calls::{CallPurpose, Calls, KeyContents, OwnEpoch, PendingCall, ReportBuilder, ReportedKey};
use crate::sync::connectivity::{ConnectivityState, FALLBACK_NS, Versions};
use crate::table::NamedKey;
use crate::table::slot::{Cold, Tag, Watched};
use weir_protocol::messages::{Allowance, BANS_MAX, Ban, BudgetRule, HeldEpoch, KEYS_MAX, POPS_MAX, Replies, Report};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::key::KeyValue;

/// Maximum number of bytes of keys that a POP's workers report per second, and at once. The rest is reported later.
const REPORT_BYTES_PER_S: u64 = 40_000;
/// A failure later than this after the time-out, in nanoseconds, is this POP's own stall, not weir-sync's fault.
const LATE_NS: u64 = SECOND_NS / 2;
/// Default time-out of a request that waits, in nanoseconds.
const TIMEOUT_NS: u64 = SECOND_NS;
/// 2^32 divided by the golden ratio, rounded to an odd number. Its multiples are evenly spread.
const FIBONACCI_HALF: u32 = 0x9e37_79b1;

/// A key banned here that no answered report has named yet.
#[derive(Clone, Debug)]
pub(crate) struct BannedHere {
    rule: RuleIndex,
    value: KeyValue,
    until: Time,
    first_report: u64,
}

/// This worker's name in reports.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// Name of the POP, the same for all its workers; 1 to [`weir_protocol::messages::POP_NAME_MAX`] bytes.
    pub pop: String,
    /// Random name of this worker.
    pub worker: u64,
}

pub struct SyncClient {
    reporter: Reporter,
    table_id: u32,
    /// Number of the latest call.
    pub(crate) sequence: u64,
    /// Last number of live POPs from weir-sync, known or guessed; at least 1.
    pub(crate) pops: u32,
    /// Last number of live POPs that was no guess; 0 before the first.
    known_pops: u32,
    pub(crate) connectivity: ConnectivityState,
    pub(crate) versions: Versions,
    pub(crate) calls: Calls,
    /// Number of the latest report, or call for tokens, that was given up.
    pub(crate) lost: u64,
    /// Number of this POP's workers that report keys, from weir-sync's last reply; at least 1.
    pub(super) workers: u32,
    /// Recent time to a reply, in nanoseconds: the longest, decayed with each reply; `None` before the first.
    pub(crate) answers_take_ns: Option<u64>,
    /// Time-out of a request that waits, in nanoseconds.
    pub(crate) timeout_ns: u64,
    /// Bytes of keys that may be reported, as of `refilled_at`.
    pub(super) bytes: u64,
    refilled_at: Time,
    /// Keys that were banned here; at most [`BANS_MAX`].
    pub(crate) bans: Vec<BannedHere>,
    /// Number of epochs acquired for single requests.
    epochs: u32,
    /// Epochs that requests in progress acquired for themselves.
    pub(super) held: Vec<OwnEpoch>,
    /// Epochs with a cost whose end weir-sync has not confirmed.
    pub(super) ended: Vec<OwnEpoch>,
}

impl SyncClient {
    pub(crate) fn new(reporter: Reporter, table_id: u32) -> Self {
        let connectivity = ConnectivityState::new(FALLBACK_NS);
        Self {
            reporter,
            table_id,
            sequence: 0,
            pops: 1,
            known_pops: 0,
            connectivity,
            versions: Versions::default(),
            calls: Calls::default(),
            lost: 0,
            workers: 1,
            answers_take_ns: None,
            timeout_ns: TIMEOUT_NS,
            bytes: REPORT_BYTES_PER_S,
            refilled_at: Time::ZERO,
            bans: Vec::new(),
            epochs: 0,
            held: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Applies a reply's number of live POPs, received at `at`. A guess never lowers a known number.
    pub fn observe(&mut self, pops: u32, is_guess: bool, at: Time) {
        let pops = pops.clamp(1, POPS_MAX);
        self.connectivity.observe(at);
        if !is_guess {
            self.known_pops = pops;
        }
        self.pops = if is_guess { self.known_pops.max(pops) } else { pops };
        self.connectivity.is_guessing = self.known_pops == 0;
    }

    /// Records that a call sent at `sent_at` failed; true if weir-sync is to blame.
    pub(crate) fn miss(&mut self, sent_at: Time, now: Time) -> bool {
        let is_to_blame = now.nanos_since(sent_at) < self.timeout_ns + LATE_NS;
        if is_to_blame {
            self.connectivity.miss(now);
        }
        is_to_blame
    }

    /// Starts the fetch of a rule set, and returns its number. Gives up an earlier fetch under way.
    pub(crate) fn begin_fetch(&mut self, version: u64, now: Time) -> u64 {
        let number = self.next_number();
        let purpose = CallPurpose::Rules(version);
        self.calls.begin(PendingCall { number, purpose, sent_at: now, reported: Vec::new() });
        number
    }

    /// Assigns new indices to the rules after a replacement, and drops what refers to rules without one.
    pub(crate) fn renumber(&mut self, to: impl Fn(RuleIndex) -> Option<RuleIndex>, rules: &CompiledRules) {
        for reported in self.calls.reported_mut() {
            reported.rule = to(reported.rule).unwrap_or(RuleIndex::NONE);
        }
        self.bans.retain_mut(|ban| to(ban.rule).map(|rule| ban.rule = rule).is_some());
        // Requests hold epochs only under strict rules; weir-sync refuses a report that names others.
        let is_strict = |rule: &RuleIndex| rules.terms_of(*rule).is_some_and(|terms| terms.is_strict);
        let strict = |rule| to(rule).filter(is_strict);
        let mut renumber = |own: &mut OwnEpoch| strict(own.name.rule).map(|rule| own.name.rule = rule).is_some();
        self.held.retain_mut(&mut renumber);
        self.ended.retain_mut(renumber);
    }

    /// Records the time to a reply, in nanoseconds.
    pub(crate) fn took(&mut self, ns: u64) {
        self.answers_take_ns = self.answers_take_ns.map(|known| ns.max(known / 8 * 7)).or(Some(ns));
    }

    /// Rate divisor for cold keys: two for each POP. The other half of the quota is left for warm keys, because
    /// weir-sync lets half a quota pass without a grant.
    pub(crate) fn cold_rate_divisor(&self) -> u32 {
        if self.pops > 1 { self.pops.saturating_mul(2) } else { 1 }
    }

    /// Bytes of keys that may be reported at `now`.
    pub(crate) fn bytes_at(&mut self, now: Time) -> u64 {
        let since_us = now.nanos_since(core::mem::replace(&mut self.refilled_at, now)) / 1_000;
        let part = REPORT_BYTES_PER_S / u64::from(self.workers.max(1));
        let more = since_us.saturating_mul(part) / 1_000_000;
        self.bytes = self.bytes.saturating_add(more).min(part);
        self.bytes
    }

    /// A new epoch that is in no entry. This worker never repeats one. The first is random, so that two workers do not
    /// use the same epoch for a key while the budget remembers it.
    pub(crate) fn epoch_of_its_own(&mut self) -> u32 {
        self.epochs = self.epochs.wrapping_add(1);
        let worker = self.reporter.worker;
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        let begin = (worker ^ worker >> 32) as u32;
        // The factor is odd, so all values occur once before any repeats.
        begin.wrapping_add(self.epochs.wrapping_mul(FIBONACCI_HALF))
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.sequence = self.next_sequence();
        self.sequence
    }

    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence + 1
    }

    /// Ends call `number`, if it is under way for `purpose`. Its reply will be ignored.
    pub(crate) fn give_up(&mut self, number: u64, purpose: CallPurpose) -> Option<PendingCall> {
        let call = self.calls.end(number, purpose)?;
        self.lost = self.lost.max(number);
        Some(call)
    }

    pub(super) fn next(&mut self, rules: Vec<BudgetRule>, builder: ReportBuilder, now: Time) -> Report {
        let Reporter { pop, worker } = self.reporter.clone();
        let ReportBuilder { keys, bans, held, .. } = builder;
        let done = self.calls.first().map_or(self.sequence, |first| first.saturating_sub(1));
        Report {
            pop,
            worker,
            sequence: self.next_number(),
            table: self.table_id,
            made_ms: now.as_nanos() / 1_000_000,
            pops: self.known_pops,
            running: self.versions.running,
            replies: Replies { done, lost: self.lost },
            rules,
            keys,
            bans,
            held,
            status: None,
        }
    }

    pub(crate) fn record_banned(&mut self, rule: RuleIndex, value: KeyValue, until: Time) {
        if self.bans.len() < BANS_MAX {
            let first_report = self.sequence + 1;
            self.bans.push(BannedHere { rule, value, until, first_report });
        }
    }

    /// Takes over keys that were banned at another worker, while there is room. `to` maps its rules to those here.
    pub(crate) fn take_over_bans(&mut self, other: &mut Self, to: impl Fn(RuleIndex) -> Option<RuleIndex>) {
        let first_report = self.sequence + 1;
        other.bans.retain(|ban| match to(ban.rule).filter(|_| self.bans.len() < BANS_MAX) {
            Some(rule) => {
                self.bans.push(BannedHere { rule, first_report, ..ban.clone() });
                false
            }
            None => true,
        });
    }

    /// Drops the banned keys that the answered report `sequence` named.
    pub(crate) fn confirm_bans(&mut self, sequence: u64) {
        self.bans.retain(|ban| ban.first_report > sequence);
    }

    /// The banned keys for a report made at `now`. `refer` maps a rule to its index in the report.
    pub(crate) fn bans(&mut self, now: Time, mut refer: impl FnMut(RuleIndex) -> Option<u16>) -> Vec<Ban> {
        self.bans.retain(|ban| now < ban.until);
        let named = |ban: &BannedHere| {
            Some(Ban {
                rule: refer(ban.rule)?,
                value: ban.value.as_bytes().to_vec(),
                for_ms: u32::try_from(ban.until.nanos_since(now) / 1_000_000).unwrap_or(u32::MAX),
            })
        };
        self.bans.iter().filter_map(named).collect()
    }
}

// Epochs that are in no entry: those that one request acquired for itself alone, because its slot has no room for its
// key or because its cost is known only at its end, and those that are given back.
//
// The request holds its epoch until it ends. Reports renew the lease of its tokens meanwhile, and count none of them as
// spent. After the end, a report states the cost; the budget gets back the rest, or is debited for the difference. This
// is repeated until a reply confirms it or the lease has ended. In the latter case the budget counts exactly the
// acquired tokens as spent, so a worker that traps costs the tokens that its requests had acquired. A key's epoch that
// is given back is repeated in the same way, so that a lost report loses no tokens.

/// Maximum number of a worker's epochs held or with an unconfirmed end. Tokens acquired beyond it count as spent.
pub const OWN_MAX: usize = 2_048;
/// Maximum number of these epochs that one call for tokens names.
const NAMED_MAX: usize = KEYS_MAX / 2;
/// Lease requested in a report while a request is in progress, in milliseconds. It is renewed when half of it is left.
const HOLD_MS: u32 = 60_000;
const RENEWED_NS: u64 = 30 * SECOND_NS;
/// Delay before reporting again a cost that the budget could not take yet, in nanoseconds.
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

    /// True if one more epoch can be given back until a reply confirms it. Half of the places are left for requests.
    pub(crate) fn can_give_back(&self) -> bool {
        self.held.len() + self.ended.len() < OWN_MAX && self.ended.len() < OWN_MAX / 2
    }

    /// Gives an epoch of the key `name` back, except its `admitted` tokens, until a reply confirms it. Call `named_in`
    /// does so already. False if this [cannot](Self::can_give_back) be repeated.
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

    /// Records the cost of the request that holds `epoch`; false if its lease has ended, and its tokens stay spent.
    pub(crate) fn settle_own(&mut self, epoch: u32, cost: u32) -> bool {
        let Some(at) = self.held.iter().position(|own| own.epoch == epoch) else { return false };
        let own = self.held.swap_remove(at);
        self.ended.push(OwnEpoch { cost: Some(cost), named_in: 0, ..own });
        true
    }

    /// Adds ended epochs to `builder` and, in a report, those whose leases must be renewed. A call for tokens can give
    /// tokens back, but cannot state that more were spent. Returns the number of epochs whose lease ended before
    /// weir-sync confirmed a cost that differs from their tokens.
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
            if builder.keys.len() >= most {
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
            let key = builder.keys.len();
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

    /// Applies the reply to what call `number`, sent at `sent_at`, reported about `epoch` of the key `tag`. A lease in
    /// the reply means that the epoch continues, or that its cost must wait.
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
