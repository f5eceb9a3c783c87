//! What the hashes of budgets are called.

use weir_budget::budget::BudgetId;
use weir_budget::text::Hex;
use weir_wire::calendar::Calendar;

/// The name of a budget's hash.
pub fn budget_key(id: &BudgetId) -> String {
    key_under("weir:", id)
}

/// The name of the hash of a strict budget or a calendar quota.
pub fn escrow_key(calendar: Option<Calendar>, id: &BudgetId) -> String {
    match calendar {
        None => key_under("weir:strict:", id),
        Some(calendar) => key_under(&format!("weir:quota:{}:", calendar.name()), id),
    }
}

fn key_under(prefix: &str, id: &BudgetId) -> String {
    format!("{prefix}{{{}:{}}}", id.rule, Hex(&id.value))
}
