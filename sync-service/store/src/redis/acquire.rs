//! Strict budgets in Redis: one hash each, with a script for acquires, and a faster one for takes alone.

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs};
use weir_budget::budget::COUNT_MAX;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, ClaimKind, ENDED_KEPT_US, NO_LEASE, longer_us};
use weir_protocol::calendar::Calendar;
use weir_protocol::messages::Leased;
use weir_protocol::refill_policy::RefillPolicy;

use super::Servers;
use super::charge::deficit;
use super::exchange::{Asked, RoutedCommand, Trips};
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
    pub pop: &'a str,
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

/// Maximum number of requests in one call, during which Redis does nothing else.
const CALL_MAX: usize = 64;
const ROW_LEN: usize = 5;

/// Sends requests to one server (see [`Trips`]).
#[derive(Debug)]
pub(super) struct Taker {
    trips: Trips<Take, Result<ConsumeRow, StoreError>>,
    keys: RedisKeys,
}

#[derive(Debug)]
struct Take {
    key: String,
    wants: [u64; 4],
}

type AskedTake = Asked<Take, Result<ConsumeRow, StoreError>>;

#[derive(Debug)]
struct ConsumeRow {
    now_us: u64,
    /// True if all tokens were consumed, or `None` if the general script has to decide.
    is_taken: Option<bool>,
    deficit_ns: u64,
    outstanding: u64,
    /// Time until enough tokens have refilled, if there were too few.
    refills_us: u64,
}

impl Taker {
    pub(super) fn new(servers: Arc<Servers>, script: Arc<Lua>, keys: RedisKeys) -> Self {
        let trips = Trips::new(move |asked| trip(asked, Arc::clone(&servers), Arc::clone(&script)));
        Self { trips, keys }
    }

    /// Sends `acquires`; returns their results in order, or `None` for one that needs the general script. Sends nothing
    /// and returns `None` unless all of them are single consumptions of a kind that this script implements.
    pub(super) async fn take(
        &self,
        acquires: &[&AcquireRequest],
    ) -> Option<Vec<Result<Option<AcquireResult>, StoreError>>> {
        let wanted: Vec<_> = acquires.iter().map(|acquire| wants(acquire)).collect::<Option<_>>()?;
        let mut waiting = Vec::with_capacity(acquires.len());
        for (acquire, wants) in acquires.iter().zip(wanted) {
            let key = self.keys.escrow(acquire.refill_policy, &acquire.id);
            waiting.push(self.trips.ask(Take { key, wants }).await);
        }
        let mut given = Vec::with_capacity(acquires.len());
        for (acquire, answered) in acquires.iter().zip(waiting) {
            let row = answered.await.unwrap_or(Err(StoreError::Connecting));
            given.push(row.map(|row| row.is_taken.map(|is_taken| consumed(acquire, &row, is_taken))));
        }
        Some(given)
    }
}

/// The script's arguments for `acquire`, or `None` if it is not one consumption of a kind that the script implements.
fn wants(acquire: &AcquireRequest) -> Option<[u64; 4]> {
    let [claim] = acquire.claims.as_slice() else { return None };
    let token_ns = match acquire.refill_policy {
        RefillPolicy::Continuous => acquire.token_ns(),
        RefillPolicy::Window(_) => 0,
        RefillPolicy::Sliding(_) | RefillPolicy::Log(_) | RefillPolicy::InFlight(_) | RefillPolicy::Queue => {
            return None;
        }
    };
    let wants = [claim.ahead.into(), acquire.quota.burst().into(), token_ns / 1_000, token_ns % 1_000];
    (claim.kind == ClaimKind::Take).then_some(wants)
}

async fn trip(asked: Vec<AskedTake>, servers: Arc<Servers>, script: Arc<Lua>) {
    let calls = asked.chunks(CALL_MAX).map(|asked| take_call(&script, asked)).collect();
    let rows: Vec<Result<Vec<i64>, StoreError>> = servers.send(calls, &script).await;
    let mut asked = asked.into_iter();
    for row in rows {
        for (place, asked) in asked.by_ref().take(CALL_MAX).enumerate() {
            let row = row.as_ref().map_err(Clone::clone).and_then(|row| read_row(row, place));
            let _ = asked.answer.send(row);
        }
    }
}

fn take_call(script: &Lua, asked: &[AskedTake]) -> RoutedCommand {
    let keys: Vec<&str> = asked.iter().map(|asked| asked.question.key.as_str()).collect();
    let mut call = RoutedCommand::of(script, &keys);
    for asked in asked {
        call.arg(&asked.question.wants);
    }
    call
}

/// Reads from a call's answer the result of the request at this index.
fn read_row(row: &[i64], place: usize) -> Result<ConsumeRow, StoreError> {
    let read = || {
        let (now_us, rest) = row.split_first()?;
        let [got, rest @ ..] = rest.chunks_exact(ROW_LEN).nth(place)? else { return None };
        let [deficit_us, rest_ns, outstanding, refills_us] = rest else { return None };
        let number = |number: &i64| u64::try_from(*number).ok();
        Some(ConsumeRow {
            now_us: number(now_us)?,
            is_taken: u8::try_from(*got).ok().map(|got| got == 1),
            deficit_ns: deficit(number(deficit_us)?, number(rest_ns)?).ok()?,
            outstanding: number(outstanding)?,
            refills_us: number(refills_us)?,
        })
    };
    read().ok_or(StoreError::Invalid("another number of takes"))
}

fn consumed(acquire: &AcquireRequest, row: &ConsumeRow, is_taken: bool) -> AcquireResult {
    let given = acquire.claims.first().map_or(0, |claim| if is_taken { claim.ahead.into() } else { 0 });
    let full_ns = acquire.token_ns().saturating_mul(acquire.quota.burst().into());
    let left = full_ns.saturating_sub(row.deficit_ns) / acquire.token_ns();
    let lease = Leased {
        wait_ms: if is_taken { 0 } else { row.refills_us.div_ceil(1_000) },
        left: u32::try_from(left).unwrap_or(u32::MAX),
        ..Leased::of(given, 0)
    };
    AcquireResult {
        deficit_ns: acquire.reply_deficit_ns(row.deficit_ns),
        outstanding: row.outstanding,
        given,
        now_us: row.now_us,
        leases: vec![lease],
    }
}
