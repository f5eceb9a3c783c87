//! What budgets are called.

use weir_budget::budget::BudgetId;
use weir_budget::text::Hex;
use weir_wire::calendar::Calendar;
use weir_wire::law::Law;

/// What the names of budgets begin with.
pub(super) const BUDGET_PREFIX: &str = "weir:budget:";

/// The name of a budget.
pub fn budget_key(id: &BudgetId) -> String {
    key_under(BUDGET_PREFIX, id)
}

/// The name of a budget's hash, as the version before keeps it.
pub fn budget_hash_key(id: &BudgetId) -> String {
    key_under("weir:", id)
}

/// The name of the hash of a strict budget: it names the law by which the budget refills, too.
pub fn escrow_key(law: Law, id: &BudgetId) -> String {
    let (prefix, calendar) = match law {
        Law::Steady => return key_under("weir:strict:", id),
        Law::Turns => return key_under("weir:turns:", id),
        Law::Window(calendar) => ("weir:quota:", calendar),
        Law::Sliding(calendar) => ("weir:sliding:", calendar),
        Law::InFlight(expires_s) => return key_under(&format!("weir:flight:{expires_s}s:"), id),
        Law::Log(length_s) => return key_under(&format!("weir:log:{length_s}s:"), id),
    };
    let windows = match calendar {
        Calendar::Day => "day".into(),
        Calendar::Month => "month".into(),
        Calendar::Every { length_s, phase_s } => format!("{length_s}s+{phase_s}"),
        Calendar::MonthAt(minutes) => format!("month{minutes:+}"),
    };
    key_under(&format!("{prefix}{windows}:"), id)
}

fn key_under(prefix: &str, id: &BudgetId) -> String {
    let mut key = String::with_capacity(prefix.len() + id.rule.len() + 2 * id.value.len() + 3);
    key.push_str(prefix);
    key.push('{');
    key.push_str(&id.rule);
    key.push(':');
    Hex(&id.value).add_to(&mut key);
    key.push('}');
    key
}
