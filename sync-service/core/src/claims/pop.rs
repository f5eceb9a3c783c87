//! What one POP has claimed: its meters, its clock, its bans.

use core::mem;

use weir_wire::messages::{Key, Report};
use weir_wire::time::{SECOND_NS, Time};

use super::meter::Meter;
use crate::ban::BANS_KEPT_MAX;
use crate::id::ByBudget;
use crate::source::MADE_MS_MAX;

/// How far back a POP's first word of a key may reach, in nanoseconds, beside the time for which the POP itself was
/// silent: it may have had more urgent keys to report.
pub const SPAN_NS: u64 = 30 * SECOND_NS;
/// The most keys that one POP may claim at once.
pub const OF_ONE_POP_MAX: usize = 65_536;
/// A meter that is full is kept for so long after its key was last reported, in nanoseconds; ...
pub(super) const KEPT_NS: u64 = 10 * SECOND_NS;
/// ... and for so long if the store has not charged all that it let through, and the POP has at most half its share: the
/// POP claims that again, which a new meter would not know.
const UNSETTLED_KEPT_NS: u64 = 120 * SECOND_NS;
/// The most bans that a POP may announce at once, as many as a list keeps, in nanoseconds of their refill; ...
const BANS_NS: u64 = 10 * SECOND_NS;
/// ... and how soon it may announce one more.
const BAN_NS: u64 = BANS_NS / BANS_KEPT_MAX as u64;

const MS_NS: u64 = SECOND_NS / 1_000;

/// What one POP has claimed.
#[derive(Debug)]
pub(super) struct Pop {
    pub(super) heard_at: Time,
    /// How long it was silent, of which so much may still have to be reported, in nanoseconds.
    silence_ns: u64,
    table: u32,
    /// How far our clock is ahead of its table's by its quickest report, in milliseconds.
    ahead_ms: i64,
    pub(super) meters: ByBudget<Meter>,
    pub(super) swept_at: Time,
    /// What it lacks of all bans that it may announce, in nanoseconds of their refill, when it was last heard.
    bans_lack_ns: u64,
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
        }
    }

    pub(super) fn hear(&mut self, now: Time, report: &Report) {
        let gap_ns = now.nanos_since(mem::replace(&mut self.heard_at, now));
        self.silence_ns = gap_ns.max(self.silence_ns.saturating_sub(gap_ns));
        self.bans_lack_ns = self.bans_lack_ns.saturating_sub(gap_ns);
        let ahead_ms = ahead_ms(now, report);
        let is_same = self.table == report.table;
        self.ahead_ms = if is_same { self.ahead_ms.min(ahead_ms) } else { ahead_ms };
        self.table = report.table;
    }

    /// When `report`, which was heard, was made by our clock.
    pub(super) fn made_at(&self, report: &Report) -> Time {
        let ms = made_ms(report).saturating_add(self.ahead_ms);
        Time::from_nanos(u64::try_from(ms).unwrap_or(0).saturating_mul(MS_NS))
    }

    /// How long before its first report `key` may have been admitted, in nanoseconds.
    pub(super) fn unheard_ns(&self, key: &Key) -> u64 {
        (u64::from(key.span_ms) * MS_NS).min(self.span_ns())
    }

    /// How far back its reports may reach, in nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        SPAN_NS + self.silence_ns
    }

    /// Whether it may announce one more ban now.
    pub(super) fn announce_ban(&mut self) -> bool {
        let has_room = self.bans_lack_ns + BAN_NS <= BANS_NS;
        if has_room {
            self.bans_lack_ns += BAN_NS;
        }
        has_room
    }

    /// Forgets the meters that are full; returns how many those were.
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

/// How far our clock is ahead of that of the POP's table, in milliseconds, if `report` took no time.
fn ahead_ms(now: Time, report: &Report) -> i64 {
    (now.as_nanos() / MS_NS).cast_signed().saturating_sub(made_ms(report))
}
