//! Penalties: a client that is limited again and again is banned for a time, everywhere.

use super::algorithm::Window;
use crate::reading::{Errors, Fields, span};
use weir_wire::messages::BAN_MS_MAX;
use weir_wire::quota::{Span, TOKENS_MAX};

/// When a key is banned, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// Counts a key's limited requests; the one that reaches the limit bans the key.
    pub strikes: Window,
    /// For how long, in milliseconds.
    pub deny_for_ms: u32,
}

impl Penalty {
    /// The number of limited requests after which a key is banned.
    pub fn after(&self) -> u32 {
        self.strikes.limit()
    }

    /// The time within which they are counted, in nanoseconds.
    pub fn within_ns(&self) -> u64 {
        self.strikes.length_ns()
    }

    /// For how long, in nanoseconds.
    pub fn deny_for_ns(&self) -> u64 {
        u64::from(self.deny_for_ms) * 1_000_000
    }

    /// Reads `penalty`.
    pub(crate) fn read(fields: &mut Fields<'_>, errors: &mut Errors) -> Option<Self> {
        let place = fields.place("penalty");
        let mut fields = Fields::of(fields.take("penalty")?, &place, errors)?;
        let after_given = fields.require("after", "a number of limited requests", errors).is_some();
        let after = after_given.then(|| fields.number("after", 1..=TOKENS_MAX, errors)).flatten();
        let within = required_span(&mut fields, "within", errors);
        let deny_for = required_span(&mut fields, "deny_for", errors);
        let deny_for_ms = deny_for.and_then(|span| u32::try_from(span.nanos() / 1_000_000).ok());
        let deny_for_ms = deny_for_ms.filter(|ms| *ms <= BAN_MS_MAX);
        if deny_for.is_some() && deny_for_ms.is_none() {
            errors.note(&fields.place("deny_for"), "expected at most 7d");
        }
        let within = within.and_then(|span| {
            let strikes = after.and_then(|after| Window::new(after, span.nanos()).ok());
            if after.is_some() && strikes.is_none() {
                errors.note(&fields.place("within"), "expected at most 400d");
            }
            strikes
        });
        fields.finish(errors);
        Some(Self { strikes: within?, deny_for_ms: deny_for_ms? })
    }
}

fn required_span(fields: &mut Fields<'_>, name: &'static str, errors: &mut Errors) -> Option<Span> {
    let place = fields.place(name);
    let value = fields.require(name, "a time, as in 15m", errors)?;
    span(value, &place, errors)
}
