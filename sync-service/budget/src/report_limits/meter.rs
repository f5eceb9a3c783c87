//! A POP's claims: its clock, its bans, and a meter for each key that lets a part of its next claim through.

use alloc::vec::Vec;
use core::mem;

use weir_protocol::messages::{Key, Report};
use weir_protocol::quota::Quota;
use weir_protocol::time::{SECOND_NS, Time};

use crate::ban::BANS_KEPT_MAX;
use crate::budget::COUNT_MAX;
use crate::id::ByBudget;
use crate::records::{Count, MADE_MS_MAX};
use crate::scaled;

/// Number of bursts that a POP may claim at once.
pub const BURSTS: u64 = 4;
/// Additional claim in nanoseconds of refill, because delays of reports differ.
pub const LATE_NS: u64 = 2 * SECOND_NS;
/// A POP's clock may be faster by one part in this many.
const DRIFT_PART: u64 = 64;
/// Number of epochs of a key that are tracked, since reports overtake each other.
const EPOCHS_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct ClaimMeter {
    quota: Quota,
    /// Newest rule set that a quota was taken from.
    version: Option<u64>,
    /// Deficit in nanoseconds of refill at time `at`; negative while the bucket is more than full.
    lacks_ns: i64,
    at: Time,
    /// Time of the key's last report, by our clock.
    seen_at: Time,
    epochs: Vec<Counted>,
    planned: Planned,
    asked: Asked,
}

/// Accepted part of the demand that the POP reported.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Epoch of the last report, and the demand since the epoch began.
    epoch: u64,
    seen: u64,
    /// Time for which the POP may have had the maximum accepted demand, in nanoseconds.
    credit_ns: u64,
}

/// Position of the key's entry in the plan of the last report that claimed it.
#[derive(Clone, Copy, Debug, Default)]
struct Planned {
    visit: u64,
    rule: u16,
    entry: usize,
}

/// Quota and rule set version that a claim is checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    pub(super) quota: Quota,
    /// Rule set that the POP runs; `None` if the fleet has none: the POP's rules are its own then, and are accepted.
    pub(super) version: Option<u64>,
}

/// Tokens of an epoch that were let through.
#[derive(Clone, Copy, Debug)]
struct Counted {
    epoch: u64,
    passed: u64,
    /// Part of `passed` that the store has charged.
    settled: u64,
}

/// Part of a key's counts that is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) admitted: u64,
    pub(crate) unconfirmed: u64,
    /// True if a part is not let through; it has to wait until the meter has refilled.
    pub(crate) is_clipped: bool,
}

impl Passed {
    const NOTHING: Self = Self { admitted: 0, unconfirmed: 0, is_clipped: true };
}

impl ClaimMeter {
    /// Creates a meter that is full at `made_at` and has `unreported_ns` of refill beyond.
    pub(super) fn new(made_at: Time, unreported_ns: u64, measure: Measure) -> Self {
        let Measure { quota, version } = measure;
        Self {
            quota,
            version,
            lacks_ns: -nanos(unreported_ns),
            at: made_at,
            seen_at: made_at,
            epochs: Vec::new(),
            planned: Planned::default(),
            asked: Asked { epoch: 0, seen: 0, credit_ns: unreported_ns + LATE_NS },
        }
    }

    /// Number of the key's entry in the plan of the report of this `visit`; `next` if it has none yet.
    pub(super) fn entry(&mut self, visit: u64, rule: u16, next: usize) -> usize {
        if (self.planned.visit, self.planned.rule) != (visit, rule) {
            self.planned = Planned { visit, rule, entry: next };
        }
        self.planned.entry
    }

    /// Demand of the POP since it last reported `key`, in tokens: the part within `most_milli` thousandths a second
    /// over at most `span_ns`, and the part beyond. Must be called before the meter is refilled.
    pub(super) fn asked(&mut self, now: Time, epoch: u64, key: &Key, most_milli: u64, span_ns: u64) -> (u64, u64) {
        let Asked { epoch: known, seen, credit_ns } = self.asked;
        let new = if known == epoch { key.asked.saturating_sub(seen) } else { 0 };
        let seen = if known == epoch { seen.max(key.asked) } else { key.asked };
        let credit_ns = credit_ns.saturating_add(now.nanos_since(self.seen_at)).min(span_ns);
        let most = scaled(most_milli, credit_ns, SECOND_NS) / 1_000;
        let claimed = new.max(key.asked_recently.min(key.asked));
        let asked = claimed.min(most);
        let spent_ns = scaled(asked, SECOND_NS * 1_000, most_milli);
        self.asked = Asked { epoch, seen, credit_ns: credit_ns.saturating_sub(spent_ns) };
        (asked, claimed - asked)
    }

    /// Refills for a report made at `made_at` and received at `now`; returns the tokens that the meter then holds.
    pub(super) fn refill(&mut self, now: Time, made_at: Time, measure: Measure) -> u64 {
        self.seen_at = now;
        let passed_ns = made_at.nanos_since(self.at);
        self.at = self.at.max(made_at);
        self.lacks_ns = self.lacks_ns.saturating_sub(nanos(passed_ns + passed_ns / DRIFT_PART));
        self.measure_by(measure);
        let holds_ns = nanos(BURSTS * self.quota.fill_ns() + LATE_NS).saturating_sub(self.lacks_ns);
        u64::try_from(holds_ns).unwrap_or(0) / self.quota.token_ns()
    }

    /// Changes the quota. One from a newer rule set gives the POP a new bucket, and so a full meter. Otherwise the
    /// deficit stays the same number of tokens: a POP may switch back and forth, as its workers adopt a rule set or
    /// because it lies.
    fn measure_by(&mut self, Measure { quota, version }: Measure) {
        if quota == self.quota {
            return;
        }
        if version.is_none() || version > self.version {
            self.lacks_ns = self.lacks_ns.min(0);
            self.version = version;
        } else {
            let lacks_ns = i128::from(self.lacks_ns) * i128::from(quota.token_ns()) / i128::from(self.quota.token_ns());
            self.lacks_ns = i64::try_from(lacks_ns).unwrap_or(i64::MAX);
        }
        self.quota = quota;
    }

    pub(super) fn settle(&mut self, counts: &[Count]) {
        for count in counts {
            if let Some(known) = self.epochs.iter_mut().find(|known| known.epoch == count.epoch) {
                known.settled = known.settled.max(count.admitted);
            }
        }
    }

    /// True if dropping the meter at `now` loses nothing: it is full, and its key was not reported for `kept_ns`, or
    /// for `unsettled_kept_ns` if the store has not charged all that was let through.
    pub(super) fn is_over(&self, now: Time, kept_ns: u64, unsettled_kept_ns: u64) -> bool {
        let is_settled = self.epochs.iter().all(|counted| counted.settled >= counted.passed);
        let kept_ns = if is_settled { kept_ns } else { unsettled_kept_ns };
        self.lacks_ns <= nanos(now.nanos_since(self.at)) && now.nanos_since(self.seen_at) >= kept_ns
    }

    /// Number of tokens of an epoch that `key` claims and that were not let through before.
    pub(super) fn claimed(&self, epoch: u64, key: &Key) -> u64 {
        let known = self.epochs.iter().find(|known| known.epoch == epoch);
        let admitted = key.admitted.min(COUNT_MAX);
        known.map_or(key.unconfirmed.min(admitted), |known| admitted.saturating_sub(known.passed))
    }

    /// Lets the `cost` of a request that held an epoch through, if it `holds` a token. The deficit may then
    /// exceed the capacity. Tokens let through before are not taken again.
    pub(super) fn pass_whole(&mut self, epoch: u64, cost: u64, holds: u64) -> bool {
        let key = Key { admitted: cost, unconfirmed: cost, ..Key::default() };
        let claimed = self.claimed(epoch, &key);
        if claimed > 0 && holds == 0 {
            return false;
        }
        self.pass(epoch, &key, claimed, claimed);
        // Either the store has the cost, or the POP reports it again.
        self.epochs.iter_mut().for_each(|known| known.settled = known.passed);
        true
    }

    /// Takes back the `cost` of an epoch that was let through and did not reach the store; it will be reported again.
    pub(super) fn take_back_whole(&mut self, epoch: u64, cost: u64) {
        let known = self.epochs.iter().position(|known| known.epoch == epoch);
        let passed = known.map_or(cost, |at| self.epochs.remove(at).passed);
        let price_ns = nanos(passed.saturating_mul(self.quota.token_ns()));
        self.lacks_ns = self.lacks_ns.min(self.lacks_ns.saturating_sub(price_ns).max(0));
    }

    /// Lets `taken` of the `claimed` tokens through. A surplus above full is not kept for the next claim.
    pub(super) fn pass(&mut self, epoch: u64, key: &Key, claimed: u64, taken: u64) -> Passed {
        let price_ns = nanos(taken.saturating_mul(self.quota.token_ns()));
        self.lacks_ns = self.lacks_ns.saturating_add(price_ns).max(0);
        let admitted = key.admitted.min(COUNT_MAX);
        let at = self.epochs.iter().position(|known| known.epoch == epoch).unwrap_or_else(|| {
            if self.epochs.len() >= EPOCHS_MAX {
                self.epochs.remove(0);
            }
            let settled = admitted - claimed;
            self.epochs.push(Counted { epoch, passed: settled, settled });
            self.epochs.len() - 1
        });
        let Some(known) = self.epochs.get_mut(at) else { return Passed::NOTHING };
        known.passed += taken;
        let admitted = admitted.min(known.passed);
        let unconfirmed = key.unconfirmed.min(admitted.saturating_sub(known.settled));
        Passed { admitted, unconfirmed, is_clipped: taken < claimed }
    }
}

fn nanos(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Maximum age of a POP's first claim of a key, in nanoseconds, beside the time for which the POP itself was silent.
pub const SPAN_NS: u64 = 30 * SECOND_NS;
pub const OF_ONE_POP_MAX: usize = 65_536;
/// Time for which a full meter is kept after the last report of its key, in nanoseconds.
pub(super) const KEPT_NS: u64 = 10 * SECOND_NS;
/// Like `KEPT_NS`, while the store has not charged all that was let through and the POP has at most half its share of
/// meters: the POP claims those tokens again.
const UNSETTLED_KEPT_NS: u64 = 120 * SECOND_NS;
/// Capacity for bans that a POP may announce at once, in nanoseconds of their refill: as many as a list keeps.
const BANS_NS: u64 = 10 * SECOND_NS;
const BAN_NS: u64 = BANS_NS / BANS_KEPT_MAX as u64;

/// Maximum demand beyond [`super::DEMAND_TIMES`] that a POP may show operators, in tokens per second for all its keys.
pub const FLOOD_PER_S: u64 = 1_000_000;
/// Maximum number of flood tokens accepted at once: those of two seconds.
const FLOOD_MAX: u64 = 2 * FLOOD_PER_S;

const MS_NS: u64 = SECOND_NS / 1_000;

#[derive(Debug)]
pub(super) struct Pop {
    pub(super) seen_at: Time,
    /// Additional age that admissions in its reports may have, since it was silent, in nanoseconds.
    silence_ns: u64,
    table: u32,
    /// Minimum difference between our clock and its table's over its reports, in milliseconds.
    ahead_ms: i64,
    pub(super) meters: ByBudget<ClaimMeter>,
    pub(super) swept_at: Time,
    /// Deficit of its ban allowance when it last reported, in nanoseconds of refill.
    bans_lack_ns: u64,
    flood: u64,
}

impl Pop {
    pub(super) fn new(now: Time, report: &Report) -> Self {
        Self {
            seen_at: now,
            silence_ns: 0,
            table: report.table,
            ahead_ms: ahead_ms(now, report),
            meters: ByBudget::default(),
            swept_at: now,
            bans_lack_ns: 0,
            flood: FLOOD_MAX,
        }
    }

    pub(super) fn observe(&mut self, now: Time, report: &Report) {
        let gap_ns = now.nanos_since(mem::replace(&mut self.seen_at, now));
        self.silence_ns = gap_ns.max(self.silence_ns.saturating_sub(gap_ns));
        self.bans_lack_ns = self.bans_lack_ns.saturating_sub(gap_ns);
        let more = scaled(FLOOD_PER_S, gap_ns, SECOND_NS);
        self.flood = self.flood.saturating_add(more).min(FLOOD_MAX);
        let ahead_ms = ahead_ms(now, report);
        let is_same = self.table == report.table;
        self.ahead_ms = if is_same { self.ahead_ms.min(ahead_ms) } else { ahead_ms };
        self.table = report.table;
    }

    /// Time by our clock at which `report`, which was recorded, was made.
    pub(super) fn made_at(&self, report: &Report) -> Time {
        let ms = made_ms(report).saturating_add(self.ahead_ms);
        Time::from_nanos(u64::try_from(ms).unwrap_or(0).saturating_mul(MS_NS))
    }

    /// Accepted age of `key`'s oldest admission at its first report, in nanoseconds.
    pub(super) fn unreported_ns(&self, key: &Key) -> u64 {
        (u64::from(key.span_ms) * MS_NS).min(self.span_ns())
    }

    /// Maximum age of the admissions that its reports may contain, in nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        SPAN_NS + self.silence_ns
    }

    /// True if the POP may announce one more ban now; that ban is then counted.
    pub(super) fn announce_ban(&mut self) -> bool {
        let has_room = self.bans_lack_ns + BAN_NS <= BANS_NS;
        if has_room {
            self.bans_lack_ns += BAN_NS;
        }
        has_room
    }

    /// Accepted part of `asked`, tokens of one key beyond the maximum of its budget.
    pub(super) fn accept_flood(&mut self, asked: u64) -> u64 {
        let accepted = asked.min(self.flood);
        self.flood -= accepted;
        accepted
    }

    pub(super) fn sweep(&mut self, now: Time) -> usize {
        self.swept_at = now;
        let before = self.meters.len();
        let unsettled_kept_ns = if before > OF_ONE_POP_MAX / 2 { KEPT_NS } else { UNSETTLED_KEPT_NS };
        self.meters.retain(|_, meter| !meter.is_over(now, KEPT_NS, unsettled_kept_ns));
        before - self.meters.len()
    }
}

fn made_ms(report: &Report) -> i64 {
    report.made_ms.min(MADE_MS_MAX).cast_signed()
}

/// Difference between our clock and that of the POP's table, in milliseconds, if `report` took no time.
fn ahead_ms(now: Time, report: &Report) -> i64 {
    (now.as_nanos() / MS_NS).cast_signed().saturating_sub(made_ms(report))
}
