//! Names of keys in Redis.

use std::sync::Arc;

use weir_budget::budget::BudgetId;
use weir_budget::id::Hex;
use weir_protocol::calendar::Calendar;
use weir_protocol::refill_policy::RefillPolicy;

/// Names of a fleet's keys, all of which begin with its prefix.
#[derive(Clone, Debug)]
pub struct RedisKeys(Arc<str>);

impl RedisKeys {
    pub fn new(prefix: &str) -> Self {
        Self(prefix.into())
    }

    pub fn one(&self, name: &str) -> String {
        format!("{}:{name}", self.0)
    }

    /// Name of a key that exists once per fleet, in the cluster slot of `beside`, another such key.
    pub fn beside(&self, beside: &str, name: &str) -> String {
        self.one(&format!("{{{}}}:{name}", self.one(beside)))
    }

    pub fn budget(&self, id: &BudgetId) -> String {
        self.under("budget:", id)
    }

    /// Name of a strict budget's hash. It contains the refill policy.
    pub fn escrow(&self, refill_policy: RefillPolicy, id: &BudgetId) -> String {
        let (kind, calendar) = match refill_policy {
            RefillPolicy::Continuous => return self.under("strict:", id),
            RefillPolicy::Queue => return self.under("queue:", id),
            RefillPolicy::Window(calendar) => ("quota:", calendar),
            RefillPolicy::Sliding(calendar) => ("sliding:", calendar),
            RefillPolicy::InFlight(expires_s) => return self.under(&format!("flight:{expires_s}s:"), id),
            RefillPolicy::Log(length_s) => return self.under(&format!("log:{length_s}s:"), id),
        };
        let windows = match calendar {
            Calendar::DAY => "day".into(),
            Calendar::MONTH => "month".into(),
            Calendar::Every { length_s, phase_s } => format!("{length_s}s+{phase_s}"),
            Calendar::Month(minutes) => format!("month{minutes:+}"),
        };
        self.under(&format!("{kind}{windows}:"), id)
    }

    /// Name of a key that exists once for each key of a rule.
    fn under(&self, kind: &str, id: &BudgetId) -> String {
        let bytes = self.0.len() + kind.len() + id.rule.len() + 2 * id.value.len() + 4;
        let mut key = String::with_capacity(bytes);
        for part in [&*self.0, ":", kind, "{", &id.rule, ":"] {
            key.push_str(part);
        }
        Hex(&id.value).add_to(&mut key);
        key.push('}');
        key
    }
}
