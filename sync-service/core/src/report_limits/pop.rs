//! Claims of one POP: its meters, its clock, its bans.

use core::mem;

use weir_protocol::messages::{Key, Report};
use weir_protocol::time::{SECOND_NS, Time};

use super::meter::ClaimMeter;
use crate::ban::BANS_KEPT_MAX;
use crate::id::ByBudget;
use crate::scaled::scaled;
use crate::source::MADE_MS_MAX;

/// Maximum age of a POP's first claim of a key, in nanoseconds, in addition to the time for which the POP
/// itself was silent: it may have had more urgent keys to report.
pub const SPAN_NS: u64 = 30 * SECOND_NS;
/// Maximum number of keys that one POP may claim at once.
pub const OF_ONE_POP_MAX: usize = 65_536;
/// Time for which a full meter is kept after the last report of its key, in nanoseconds.
pub(super) const KEPT_NS: u64 = 10 * SECOND_NS;
/// The same if the store has not charged all that it let through, and the POP has at most half its share of
/// meters: the POP claims those tokens again, which a new meter would not recognise.
const UNSETTLED_KEPT_NS: u64 = 120 * SECOND_NS;
/// Capacity for bans that a POP may announce at once, in nanoseconds of their refill: as many as a list keeps.
const BANS_NS: u64 = 10 * SECOND_NS;
/// Refill time of one ban, in nanoseconds.
const BAN_NS: u64 = BANS_NS / BANS_KEPT_MAX as u64;

/// Maximum demand beyond [`super::DEMAND_TIMES`] that is accepted from a POP for operators' views, in tokens per
/// second for all its keys together: about the maximum of a large proxy.
pub const FLOOD_PER_S: u64 = 1_000_000;
/// Maximum number of flood tokens accepted at once: those of two seconds.
const FLOOD_MAX: u64 = 2 * FLOOD_PER_S;

const MS_NS: u64 = SECOND_NS / 1_000;

/// Claims of one POP.
#[derive(Debug)]
pub(super) struct Pop {
    pub(super) heard_at: Time,
    /// Part of its last silence that it may still have to report, in nanoseconds.
    silence_ns: u64,
    table: u32,
    /// Minimum difference between our clock and its table's over its reports, in milliseconds.
    ahead_ms: i64,
    pub(super) meters: ByBudget<ClaimMeter>,
    pub(super) swept_at: Time,
    /// Deficit of its ban allowance when it last reported, in nanoseconds of refill.
    bans_lack_ns: u64,
    /// Flood tokens that are accepted now.
    flood: u64,
}

impl Pop {
    pub(super) fn new(now: Time, report: &Report) -> Self {
        Self {
            heard_at: now,
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
        let gap_ns = now.nanos_since(mem::replace(&mut self.heard_at, now));
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

    /// Age of `key`'s oldest admission at its first report, in nanoseconds, as far as it is accepted.
    pub(super) fn unheard_ns(&self, key: &Key) -> u64 {
        (u64::from(key.span_ms) * MS_NS).min(self.span_ns())
    }

    /// Maximum age of the admissions that its reports may contain, in nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        SPAN_NS + self.silence_ns
    }

    /// True if it may announce one more ban now, which is then counted.
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

    /// Drops full meters; returns their number.
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
