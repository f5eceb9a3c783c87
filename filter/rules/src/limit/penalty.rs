//! Penalties: a client that is limited repeatedly is banned for a time, at every POP.

use super::algorithm::WindowLimit;
use crate::reading::Fields;
use weir_protocol::messages::BAN_MS_MAX;
use weir_protocol::quota::{Span, TOKENS_MAX};

/// Conditions and duration of a ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// Counts a key's limited requests. The request that reaches the limit bans the key.
    pub strikes: WindowLimit,
    /// Duration of the ban, in milliseconds.
    pub deny_for_ms: u32,
}

impl Penalty {
    /// Number of limited requests after which a key is banned.
    pub fn after(&self) -> u32 {
        self.strikes.limit()
    }

    /// Interval in which limited requests are counted, in nanoseconds.
    pub fn within_ns(&self) -> u64 {
        self.strikes.length_ns()
    }

    /// Duration of the ban, in nanoseconds.
    pub fn deny_for_ns(&self) -> u64 {
        u64::from(self.deny_for_ms) * 1_000_000
    }

    /// Reads the field `penalty`.
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let penalty = fields.take("penalty")?;
        let mut fields = penalty.fields()?;
        let after = fields.require("after", "a number of limited requests");
        let after = after.and_then(|after| after.number(1..=TOKENS_MAX));
        let [within, deny_for] =
            ["within", "deny_for"].map(|name| fields.require(name, "a time, as in 15m")?.parsed::<Span>());
        let deny_for_ms = deny_for.and_then(|span| u32::try_from(span.nanos() / 1_000_000).ok());
        let deny_for_ms = deny_for_ms.filter(|ms| *ms <= BAN_MS_MAX);
        if deny_for.is_some() && deny_for_ms.is_none() {
            fields.record_at("deny_for", "expected at most 7d");
        }
        let strikes = after.zip(within).map(|(after, span)| WindowLimit::new(after, span.nanos()));
        if let Some(Err(_)) = strikes {
            fields.record_at("within", "expected at most 400d");
        }
        fields.finish();
        Some(Self { strikes: strikes?.ok()?, deny_for_ms: deny_for_ms? })
    }
}
