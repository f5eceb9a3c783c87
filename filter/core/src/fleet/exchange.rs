//! A worker's exchange with weir-sync: calls under way, the report budget in bytes, and connectivity.

use alloc::vec::Vec;

use super::calls::{CallPurpose, Calls, PendingCall};
use super::versions::Versions;
use crate::RuleIndex;
use crate::fleet::connectivity::{ConnectivityState, FALLBACK_NS};
use crate::limiter::Reporter;
use weir_protocol::messages::{self, BANS_MAX, Ban, POPS_MAX, Replies, Report, WORKERS_MAX};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::key::KeyValue;

/// Most bytes of keys that a POP's workers report per second, and at once. The rest is reported later.
const REPORT_BYTES_PER_S: u64 = 40_000;
/// Default time-out of a request that waits, in nanoseconds.
const TIMEOUT_NS: u64 = SECOND_NS;
/// 2^32 divided by the golden ratio, rounded to an odd number. Multiples of it are spread evenly.
const FIBONACCI_HALF: u32 = 0x9e37_79b1;

/// A key that was banned here, and that no answered report has named yet.
#[derive(Clone, Debug)]
pub(crate) struct BannedHere {
    rule: RuleIndex,
    value: KeyValue,
    until: Time,
    /// Number of the first report that may name it.
    first_said: u64,
}

/// The state of one worker's exchange with weir-sync.
pub(crate) struct SyncState {
    reporter: Reporter,
    table_id: u32,
    /// Number of the latest call.
    pub(crate) sequence: u64,
    /// Last number of live POPs from weir-sync, known or guessed; at least 1.
    pub(crate) pops: u32,
    /// The last number of live POPs that weir-sync knew for certain; 0 before the first.
    known_pops: u32,
    pub(crate) connectivity: ConnectivityState,
    pub(crate) versions: Versions,
    pub(crate) calls: Calls,
    /// Number of the latest report, or call for tokens, that was given up.
    pub(crate) lost: u64,
    /// Number of this POP's workers that report keys, from weir-sync's last reply; at least 1.
    workers: u32,
    /// Recent time to a reply, in nanoseconds: the longest, decayed with each reply. None before the first.
    pub(crate) answers_take_ns: Option<u64>,
    /// Time-out of a request that waits, in nanoseconds.
    pub(crate) timeout_ns: u64,
    /// Bytes of keys that may be reported, as of `refilled_at`.
    bytes: u64,
    refilled_at: Time,
    /// Keys that were banned here; at most [`messages::BANS_MAX`].
    pub(crate) bans: Vec<BannedHere>,
    /// Number of epochs acquired for single requests.
    epochs: u32,
}

impl SyncState {
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
        }
    }

    /// Applies a reply's number of live POPs, received at `at`. A guess never lowers a number that was known.
    pub(crate) fn observe(&mut self, pops: u32, is_guess: bool, at: Time) {
        let pops = pops.clamp(1, POPS_MAX);
        self.connectivity.observe(at);
        if !is_guess {
            self.known_pops = pops;
        }
        self.pops = if is_guess { self.known_pops.max(pops) } else { pops };
        self.connectivity.guess(self.known_pops == 0);
    }

    /// Applies a reply's number of reporting workers of this POP; 0 changes nothing.
    pub(crate) fn set_workers(&mut self, workers: u32) {
        if workers > 0 {
            self.workers = workers.min(WORKERS_MAX);
        }
    }

    /// Records the time to a reply, in nanoseconds.
    pub(crate) fn took(&mut self, ns: u64) {
        self.answers_take_ns = self.answers_take_ns.map(|known| ns.max(known / 8 * 7)).or(Some(ns));
    }

    /// Rate divisor for cold keys: two for each POP. The other half of the quota is left for warm keys,
    /// because weir-sync lets half a quota pass without a grant.
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

    /// Debits `said` reported bytes.
    pub(crate) fn spend_bytes(&mut self, said: u64) {
        self.bytes = self.bytes.saturating_sub(said);
    }

    /// Returns a new epoch that is in no entry. This worker never repeats one. The first is random, so that
    /// two workers do not use the same epoch for a key during the seconds in which the budget remembers it.
    pub(crate) fn epoch_of_its_own(&mut self) -> u32 {
        self.epochs = self.epochs.wrapping_add(1);
        let worker = self.reporter.worker;
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        let begin = (worker ^ worker >> 32) as u32;
        // The factor is odd, so all values come once before any repeats.
        begin.wrapping_add(self.epochs.wrapping_mul(FIBONACCI_HALF))
    }

    /// Takes the number of the next call. For a report, this is its sequence.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.sequence = self.next_sequence();
        self.sequence
    }

    /// The number that the next call will have.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence + 1
    }

    /// Ends call `number`, if it is under way for `purpose`. Its reply will be ignored.
    pub(crate) fn give_up(&mut self, number: u64, purpose: CallPurpose) -> Option<PendingCall> {
        let call = self.calls.end(number, purpose)?;
        self.lost = self.lost.max(number);
        Some(call)
    }

    /// Builds the next report.
    pub(crate) fn next(
        &mut self,
        rules: Vec<messages::BudgetRule>,
        keys: Vec<messages::Key>,
        bans: Vec<Ban>,
        now: Time,
    ) -> Report {
        let Reporter { pop, worker } = self.reporter.clone();
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
            held: Vec::new(),
            status: None,
        }
    }

    pub(crate) fn tell_of_ban(&mut self, rule: RuleIndex, value: KeyValue, until: Time) {
        if self.bans.len() < BANS_MAX {
            let first_said = self.sequence + 1;
            self.bans.push(BannedHere { rule, value, until, first_said });
        }
    }

    /// Takes over keys that were banned at another worker. `to` maps its rules to the rules here. Bans that
    /// find no room stay there.
    pub(crate) fn take_over_bans(&mut self, other: &mut Self, to: impl Fn(RuleIndex) -> Option<RuleIndex>) {
        let first_said = self.sequence + 1;
        other.bans.retain(|ban| match to(ban.rule).filter(|_| self.bans.len() < BANS_MAX) {
            Some(rule) => {
                self.bans.push(BannedHere { rule, first_said, ..ban.clone() });
                false
            }
            None => true,
        });
    }

    /// Gives the rules new indices, and drops keys of rules without one.
    pub(crate) fn renumber_bans(&mut self, to: impl Fn(RuleIndex) -> Option<RuleIndex>) {
        self.bans.retain_mut(|ban| to(ban.rule).map(|rule| ban.rule = rule).is_some());
    }

    /// Drops the banned keys that report `sequence` named, which was answered.
    pub(crate) fn bans_told(&mut self, sequence: u64) {
        self.bans.retain(|ban| ban.first_said > sequence);
    }

    /// The banned keys for a report made at `now`. `refer` maps a rule to its index in the report.
    pub(crate) fn bans(&mut self, now: Time, mut refer: impl FnMut(RuleIndex) -> Option<u16>) -> Vec<Ban> {
        self.bans.retain(|ban| now < ban.until);
        let say = |ban: &BannedHere| {
            Some(Ban {
                rule: refer(ban.rule)?,
                value: ban.value.as_bytes().to_vec(),
                for_ms: u32::try_from(ban.until.nanos_since(now) / 1_000_000).unwrap_or(u32::MAX),
            })
        };
        self.bans.iter().filter_map(say).collect()
    }
}
