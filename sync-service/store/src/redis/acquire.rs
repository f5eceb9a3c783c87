//! Strict budgets in Redis: one hash each, acquired from by one script.

use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs};
use weir_budget::budget::COUNT_MAX;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, ClaimKind, ENDED_KEPT_US, NO_LEASE, longer_us};
use weir_protocol::calendar::Calendar;
use weir_protocol::messages::Leased;
use weir_protocol::refill_policy::RefillPolicy;

use super::charge::deficit;
use super::exchange::RoutedCommand;
use super::script::Lua;
use crate::StoreError;
use crate::keys::RedisKeys;

/// Answer of the script: `deficit_us`, `deficit_ns`, `outstanding`, `given`, `now_us`, `left`. Then for each claim the
/// sum of tokens debited for its epoch, or -1 without a lease; the wait for more; and the length of the lease.
pub type AcquireRow = (u64, u64, u64, u64, u64, u32, Vec<i64>, Vec<u64>, Vec<u32>);

pub(super) fn call(script: &Lua, keys: &RedisKeys, pop: &str, acquire: &AcquireRequest) -> RoutedCommand {
    let mut call = RoutedCommand::of(script, &[keys.escrow(acquire.refill_policy, &acquire.id)]);
    call.arg(AcquireArguments { pop, acquire });
    call
}

/// Arguments of the script for an acquire, before the bounds of the server's clock.
#[derive(Clone, Copy, Debug)]
pub struct AcquireArguments<'a> {
    /// The POP that claims.
    pub pop: &'a str,
    /// The acquire.
    pub acquire: &'a AcquireRequest,
}

impl ToRedisArgs for AcquireArguments<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let Self { pop, acquire } = *self;
        pop.write_redis_args(out);
        let (token_ns, burst) = (acquire.token_ns(), acquire.quota.burst().into());
        let numbers = [token_ns / 1_000, token_ns % 1_000, burst, acquire.leased_us(), acquire.held_us()];
        (&numbers).write_redis_args(out);
        let refill_policy = match acquire.refill_policy {
            RefillPolicy::Continuous => "steady",
            RefillPolicy::Window(_) => "window",
            RefillPolicy::Sliding(_) => "sliding",
            RefillPolicy::Log(_) | RefillPolicy::InFlight(_) => "log",
            RefillPolicy::Queue => "turns",
        };
        refill_policy.write_redis_args(out);
        length_us(acquire.refill_policy).write_redis_args(out);
        let even = acquire.refill_policy.windows().and_then(Calendar::even);
        even.map_or(-1, |(_, phase_s)| i64::from(phase_s) * 1_000_000).write_redis_args(out);
        let boundaries = acquire.window.map_or([0; 3], |window| [window.start_us, window.end_us, window.next_end_us]);
        (&boundaries.map(|us| us.min(COUNT_MAX))).write_redis_args(out);
        (&[acquire.ask_again_us(), acquire.kept_us()]).write_redis_args(out);
        for claim in &acquire.claims {
            match claim.kind {
                ClaimKind::Lease => format!("{:016x}", claim.epoch).write_redis_args(out),
                ClaimKind::Take => "take".write_redis_args(out),
                ClaimKind::Charge => "charge".write_redis_args(out),
                ClaimKind::Refund => "refund".write_redis_args(out),
            }
            let leased_us = claim.leased_us();
            let [leased_us, held_us] = [leased_us.unwrap_or(0), leased_us.map_or(0, longer_us)];
            (&[claim.spent(), claim.ahead.into(), leased_us, held_us]).write_redis_args(out);
        }
    }
}

/// Maximum length of a window, or the time for which a spent token counts, in microseconds.
fn length_us(refill_policy: RefillPolicy) -> u64 {
    refill_policy.windows().map(Calendar::longest_us).or(refill_policy.counts_us()).unwrap_or(0)
}

/// Maximum time for which Redis keeps the budget without another acquire.
pub(super) fn kept(acquire: &AcquireRequest, acquired: &AcquireResult) -> Duration {
    let held_us = acquire.claims.iter().filter_map(Claim::leased_us).map(longer_us).fold(acquire.held_us(), u64::max);
    let us = match acquire.refill_policy.windows() {
        None => {
            let full_us = acquire.refill_policy.counts_us().unwrap_or(acquired.deficit_ns.div_ceil(1_000));
            held_us + full_us.saturating_mul(4) + 2 * ENDED_KEPT_US
        }
        Some(calendar) => {
            let ends_us = calendar.window(acquired.now_us).next_end_us.saturating_sub(acquired.now_us);
            ends_us.max(held_us) + acquire.kept_us()
        }
    };
    Duration::from_micros(us.min(COUNT_MAX))
}

/// Result of an acquire from the script's answer.
pub fn acquired(acquire: &AcquireRequest, row: &AcquireRow) -> Result<AcquireResult, StoreError> {
    let (deficit_us, rest_ns, outstanding, given, now_us, left, charged, waits, leases) = row;
    if [charged.len(), waits.len(), leases.len()] != [acquire.claims.len(); 3] {
        return Err(StoreError::Invalid("another number of leases"));
    }
    let lease = |((charged, wait_ms), lease_ms): ((&i64, &u64), &u32)| match u64::try_from(*charged) {
        Ok(charged) => Leased { wait_ms: *wait_ms, left: *left, ..Leased::of(charged, *lease_ms) },
        Err(_) => Leased { wait_ms: *wait_ms, ..NO_LEASE },
    };
    let mut leases: Vec<_> = charged.iter().zip(waits).zip(leases).map(lease).collect();
    acquire.record_returns(&mut leases, *outstanding);
    Ok(AcquireResult {
        deficit_ns: acquire.reply_deficit_ns(deficit(*deficit_us, *rest_ns)?),
        outstanding: *outstanding,
        given: *given,
        now_us: *now_us,
        leases,
    })
}
