//! Budgets in Redis: one string each, charged by one script.

use std::borrow::Cow;
use std::time::Duration;

use weir_budget::budget::{
    Account, CHARGE_TOKENS_MAX, COUNT_MAX, Count, Demand, FORGOTTEN_US_MAX, GRACE_US, KEPT_US_MAX,
    LENIENCE_US, LOOK_US, MEMBER_IDLE_US, MEMBERS_MAX, Member, SOURCES_KEPT, SOURCES_MAX, STEP_KEPT_US,
    STEP_US, keep_us,
};
use weir_budget::plan::Entry;
use weir_budget::source::{DELAY_US_MAX, MADE_MS_MAX, PACE_US};
use weir_budget::spill::{SPILL_KEPT_US, SPILLS_MAX};
use weir_budget::spread::{
    AGAIN_MIN, SPREAD_DEBT_US_MAX, SPREAD_KEPT_US, SPREAD_MAX, SPREAD_MOMENT_US, fill_us,
};
use weir_wire::quota::Quota;

use super::exchange::Call;
use super::keys::{BUDGET_PREFIX, budget_key};
use super::script::{Lua, with_maxima};
use crate::store::clock::{DOUBLE, doubles, whole};
use crate::store::{Batch, StoreError};

/// How long a budget's head is (see the script).
pub const HEAD_BYTES: usize = 93;

const DEFICIT_US_MAX: u64 = weir_budget::budget::DEFICIT_NS_MAX / 1_000;

/// The script, with weir-budget's maxima in front.
pub fn script() -> String {
    let maxima = [
        ("HEAD_BYTES", HEAD_BYTES as u64),
        ("CHARGE_TOKENS_MAX", CHARGE_TOKENS_MAX),
        ("DEFICIT_US_MAX", DEFICIT_US_MAX),
        ("SOURCES_MAX", SOURCES_MAX as u64),
        ("SOURCES_KEPT", SOURCES_KEPT as u64),
        ("MEMBERS_MAX", MEMBERS_MAX as u64),
        ("MEMBER_IDLE_US", MEMBER_IDLE_US),
        ("GRACE_US", GRACE_US),
        ("KEPT_US_MAX", KEPT_US_MAX),
        ("STEP_US", STEP_US),
        ("LOOK_US", LOOK_US),
        ("STEP_KEPT_US", STEP_KEPT_US),
        ("SPILL_KEPT_US", SPILL_KEPT_US),
        ("SPILLS_MAX", SPILLS_MAX as u64),
        ("DELAY_US_MAX", DELAY_US_MAX),
        ("FORGOTTEN_US_MAX", FORGOTTEN_US_MAX),
        ("LENIENCE_US", LENIENCE_US),
        ("PACE_US", PACE_US),
        ("SPREAD_KEPT_US", SPREAD_KEPT_US),
        ("AGAIN_MIN", u64::from(AGAIN_MIN)),
        ("SPREAD_MAX", u64::from(SPREAD_MAX)),
        ("SPREAD_MOMENT_US", SPREAD_MOMENT_US),
        ("SPREAD_DEBT_US_MAX", SPREAD_DEBT_US_MAX),
        ("PREFIX_BYTES", BUDGET_PREFIX.len() as u64),
    ];
    const { assert!(COUNT_MAX < 1 << 53, "Lua has doubles only") };
    with_maxima(&maxima, include_str!("../charge.lua"))
}

/// What the script is told of a charge.
#[derive(Debug)]
pub struct Arguments {
    /// The first arguments.
    pub texts: Vec<String>,
    /// The last one, behind what is known of the store's clock.
    pub tail: Vec<u8>,
}

/// What the script is told of a charge by `member`; `counts` are those of each POP.
pub fn arguments<'a>(
    member: &str,
    demand: Demand,
    quota: Quota,
    counts: impl Iterator<Item = (&'a str, &'a [Count])>,
) -> Arguments {
    let token_ns = quota.token_ns();
    let head = [
        demand.milli.min(COUNT_MAX),
        demand.askers.into(),
        token_ns / 1_000,
        token_ns % 1_000,
        fill_us(quota),
    ];
    let mut arguments = Arguments { texts: vec![member.to_owned()], tail: doubles(&head) };
    for (pop, counts) in counts {
        let pop = source_name(pop);
        for (n, count) in counts.iter().enumerate() {
            let admitted = count.admitted.min(COUNT_MAX);
            arguments.texts.push(format!("\n{:016x}{pop}\n", count.epoch));
            arguments.tail.extend(doubles(&[
                admitted,
                count.unconfirmed.min(admitted),
                count.span_us.min(COUNT_MAX),
                count.missing.min(CHARGE_TOKENS_MAX),
                count.made_ms.min(MADE_MS_MAX),
                (counts.len() - n) as u64,
            ]));
        }
    }
    arguments
}

/// A call of the script for a charge of `batch`.
pub(super) fn call(script: &Lua, batch: &Batch<'_>, entry: &Entry) -> Call {
    let mut call = Call::of(script, &[&budget_key(&entry.id)]);
    let counts = [(batch.pop, entry.counts.as_slice())];
    let Arguments { texts, tail } = arguments(batch.member, entry.demand, entry.quota, counts.into_iter());
    call.arg(texts);
    call.tail = tail;
    call
}

/// A POP's name in the string, where a new line ends it.
fn source_name(pop: &str) -> Cow<'_, str> {
    if pop.contains(['\n', '\\']) {
        return pop.replace('\\', "\\\\").replace('\n', "\\n").into();
    }
    pop.into()
}

/// What the script said of the charge of one POP.
pub fn account(said: &[u8]) -> Result<Account, StoreError> {
    read_account(said).ok_or(StoreError::Nonsense("an account that cannot be read"))
}

fn read_account(said: &[u8]) -> Option<Account> {
    let (numbers, members) = said.split_at_checked(6 * DOUBLE)?;
    let number = |at: usize| numbers.get(at * DOUBLE..(at + 1) * DOUBLE);
    let now_us = whole(number(0)?)?;
    #[allow(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
    let ahead_us = f64::from_le_bytes(number(1)?.try_into().ok()?) as i64;
    let deficit_ns = deficit(whole(number(2)?)?, whole(number(3)?)?).ok()?;
    let (spread, charged) = (u32::try_from(whole(number(4)?)?).ok()?, whole(number(5)?)?);
    let mut members = read_members(members, now_us.saturating_add_signed(ahead_us))?;
    members.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Some(Account { deficit_ns, spread, charged, now_us, members })
}

/// How long Redis keeps the budget at most, if it is not charged again.
pub(super) fn kept(entry: &Entry, account: &Account) -> Duration {
    let is_remembered = account.spread > 0 || account.deficit_ns > entry.quota.fill_ns();
    let longer_us = if is_remembered { SPREAD_KEPT_US + STEP_KEPT_US } else { 0 };
    Duration::from_micros(keep_us(account.deficit_ns).saturating_add(longer_us).min(KEPT_US_MAX))
}

/// Reads members as a budget keeps them; its own clock shows `own_us`.
fn read_members(mut bytes: &[u8], own_us: u64) -> Option<Vec<Member>> {
    let mut members = Vec::with_capacity(4);
    while let Some((len, rest)) = bytes.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(*len))?;
        let (numbers, rest) = rest.split_at_checked(3 * DOUBLE)?;
        let mut numbers = numbers.chunks_exact(DOUBLE).map(whole);
        let (milli, askers, at_us) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let demand = Demand { milli, askers: u32::try_from(askers).ok()? };
        let name = String::from_utf8(name.to_vec()).ok()?;
        members.push(Member { name, demand, age_us: own_us.saturating_sub(at_us) });
        bytes = rest;
    }
    Some(members)
}

/// A deficit in nanoseconds, of whole microseconds and the rest.
pub(super) fn deficit(whole_us: u64, rest_ns: u64) -> Result<u64, StoreError> {
    let deficit_ns = whole_us.checked_mul(1_000).and_then(|ns| ns.checked_add(rest_ns));
    deficit_ns.ok_or(StoreError::Nonsense("a deficit beyond its maximum"))
}
