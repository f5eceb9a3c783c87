//! Quotas of the calendar in Redis: one hash each, drawn on by one script.

use redis::Pipeline;
use weir_budget::escrow::{DRIFT_PART, Draw, Drawn, ENDED_KEPT_US, HOLDERS_MAX, NO_LEASE};
use weir_budget::tally::{ASK_AGAIN_US, WINDOW_KEPT_US};
use weir_limiter::calendar::Window;
use weir_limiter::wire::Leased;

use super::{COUNT_MAX, StoreError, quota_key, with_maxima};

/// What the script returns: `used`, `outstanding`, `given`, `now_us`, `lease_ms`, `left`, and for each claim
/// all that was debited for its epoch, or -1 where there is no lease, and how long to wait for more.
pub(super) type Row = (u64, u64, u64, u64, u32, u32, Vec<i64>, Vec<u64>);

/// The script, with weir-budget's maxima in front.
pub(super) fn script() -> String {
    let maxima = [
        ("COUNT_MAX", COUNT_MAX),
        ("HOLDERS_MAX", HOLDERS_MAX as u64),
        ("ENDED_KEPT_US", ENDED_KEPT_US),
        ("DRIFT_PART", DRIFT_PART),
        ("WINDOW_KEPT_US", WINDOW_KEPT_US),
        ("ASK_AGAIN_US", ASK_AGAIN_US),
    ];
    with_maxima(&maxima, concat!(include_str!("../holders.lua"), include_str!("../tally.lua")))
}

/// Every draw as one call of the script.
pub(super) fn pipeline(hash: &str, pop: &str, draws: &[(&Draw, Window)]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(draws.len());
    for (draw, window) in draws {
        let key = quota_key(window.calendar, &draw.id);
        let command = pipeline.cmd("EVALSHA").arg(hash).arg(1).arg(key);
        command.arg(pop).arg(draw.quota.burst()).arg(draw.leased_us()).arg(draw.held_us());
        for boundary_us in [window.start_us, window.end_us, window.next_end_us] {
            command.arg(boundary_us.min(COUNT_MAX));
        }
        command.arg(window.calendar.longest_us());
        for claim in &draw.claims {
            command.arg(format!("{:016x}", claim.epoch)).arg(claim.spent()).arg(claim.ahead);
        }
    }
    pipeline
}

/// What the script said, as it was asked.
pub(super) fn drawn(draws: &[(&Draw, Window)], rows: &[Row]) -> Result<Vec<Drawn>, StoreError> {
    if rows.len() != draws.len() {
        return Err(StoreError::Nonsense("another number of draws"));
    }
    draws.iter().zip(rows).map(|((draw, _), row)| one(draw, row)).collect()
}

fn one(draw: &Draw, row: &Row) -> Result<Drawn, StoreError> {
    let (used, outstanding, given, now_us, lease_ms, left, charged, waits) = row;
    if charged.len() != draw.claims.len() || waits.len() != draw.claims.len() {
        return Err(StoreError::Nonsense("another number of leases"));
    }
    let lease = |(charged, wait_ms): (&i64, &u64)| match u64::try_from(*charged) {
        Ok(charged) => Leased { charged, lease_ms: *lease_ms, wait_ms: *wait_ms, left: *left },
        Err(_) => NO_LEASE,
    };
    Ok(Drawn {
        deficit_ns: draw.price_ns(*used),
        outstanding: *outstanding,
        given: *given,
        now_us: *now_us,
        leases: charged.iter().zip(waits).map(lease).collect(),
    })
}
