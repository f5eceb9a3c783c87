//! Budgets as the version before keeps them, one hash each, for as long as a weir-sync of that version is there.

use weir_budget::budget::{Account, CHARGE_TOKENS_MAX, COUNT_MAX, Demand, Member};
use weir_budget::plan::Entry;
use weir_budget::source::MADE_MS_MAX;
use weir_budget::spread::fill_us;

use super::charge::{deficit, maxima};
use super::exchange::Call;
use super::script::{Lua, with_maxima};
use crate::store::keys::Keys;
use crate::store::{Batch, StoreError};

/// What the script returns: `deficit_us`, `deficit_ns`, `spread`, `charged`, `now_us`, members.
pub(super) type Row = (u64, u64, u32, u64, u64, String);

/// The script, with weir-budget's maxima in front.
pub(super) fn script() -> String {
    with_maxima(&maxima(), include_str!("../charge_hash.lua"))
}

/// A call of the script for a charge of `batch`.
pub(super) fn call(script: &Lua, keys: &Keys, batch: &Batch<'_>, entry: &Entry) -> Call {
    let token_ns = entry.quota.token_ns();
    let mut call = Call::of(script, &[keys.budget_hash(&entry.id)]);
    call.arg(batch.member).arg(entry.demand.milli.min(COUNT_MAX)).arg(entry.demand.askers);
    call.arg(token_ns / 1_000).arg(token_ns % 1_000).arg(fill_us(entry.quota)).arg(batch.pop);
    for count in &entry.counts {
        let admitted = count.admitted.min(COUNT_MAX);
        call.arg(format!("{:016x}", count.epoch)).arg(admitted).arg(count.unconfirmed.min(admitted));
        call.arg(count.span_us.min(COUNT_MAX)).arg(count.missing.min(CHARGE_TOKENS_MAX));
        call.arg(count.made_ms.min(MADE_MS_MAX));
    }
    call
}

/// What the script said of one charge.
pub(super) fn account(row: &Row) -> Result<Account, StoreError> {
    let (whole_us, rest_ns, spread, charged, now_us, members) = row;
    let deficit_ns = deficit(*whole_us, *rest_ns)?;
    let members = members.split_terminator(';').map(|text| member(text, *now_us)).collect::<Option<Vec<_>>>();
    let mut members = members.ok_or(StoreError::Nonsense("members that cannot be read"))?;
    members.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(Account { deficit_ns, spread: *spread, charged: *charged, now_us: *now_us, members })
}

/// Reads `region=milli,askers,at_us`.
fn member(text: &str, now_us: u64) -> Option<Member> {
    let (name, rest) = text.split_once('=')?;
    let mut numbers = rest.split(',').map(|number| number.parse::<u64>().ok());
    let (milli, askers, at_us) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let demand = Demand { milli, askers: u32::try_from(askers).ok()? };
    Some(Member { name: name.into(), demand, age_us: now_us.saturating_sub(at_us) })
}
