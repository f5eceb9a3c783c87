//! What is answered: the decision, and what to tell the client.

use std::time::Duration;

use super::reservations::Full;
use weir_limiter::buckets::Standing as Figures;
use weir_limiter::decide::{Decision as Decided, Outcome};
use weir_limiter::response::{Answers, DENIED_STATUS, window_s};
use weir_rules::{Rule, RuleSet};

/// The outcome for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Let it through.
    Allow,
    /// Refuse it: a rule has no token for it.
    Limit,
    /// Refuse it: a rule that fails closed could not be checked, or the rules are not known yet.
    Deny,
    /// Refuse it: it is on the rule set's `deny` list.
    Block,
}

impl Decision {
    /// As messages and logs name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Limit => "limit",
            Self::Deny => "deny",
            Self::Block => "block",
        }
    }
}

/// The answer to an [`super::Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// The rule that made it: the strictest of those that counted the request, or the one that refuses it.
    pub rule: Option<String>,
    /// The status to answer the client with; 200 if it is let through.
    pub status: u16,
    /// Headers to send to the client, those on a response that is let through as well.
    pub headers: Vec<(String, String)>,
    /// The body to answer a refused client with.
    pub body: String,
    /// How the client stands with the rule; none without a rule, or if the rule could not be checked.
    pub standing: Option<Standing>,
    /// Names the reservation, if the check asked for one and was let through.
    pub reservation: Option<String>,
    /// Why it cannot be done, whatever is left.
    pub unsupported: Option<String>,
}

/// How a client stands with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The most that the quota gives at once.
    pub limit: u64,
    /// What is left of it.
    pub remaining: u64,
    /// How long until the next request may pass if nothing is left, else until the quota is whole again.
    pub reset_after: Duration,
    /// How long until there is more than now; for a refused client, when to come back.
    pub retry_after: Duration,
    /// The time in which all of the quota comes back, if it does so with time.
    pub window: Option<Duration>,
}

impl Verdict {
    /// In how many seconds to ask again, for a request that a rule refuses.
    pub fn retry_after_s(&self) -> Option<u64> {
        if self.decision == Decision::Allow {
            return None;
        }
        let of_headers = || {
            let header = self.headers.iter().find(|(name, _)| name == "retry-after");
            header.and_then(|(_, seconds)| seconds.parse().ok())
        };
        let standing = self.standing.map(|standing| seconds_up(standing.retry_after).max(1));
        standing.or_else(of_headers)
    }

    /// Nothing is known yet of the rules.
    pub(super) fn without_rules() -> Self {
        Self { decision: Decision::Deny, status: DENIED_STATUS, ..Self::allowed() }
    }

    /// This rule's tokens cannot be given back.
    pub(super) fn fixed(rule: &str) -> Self {
        let unsupported = format!(
            "is_negative_hits: expected none, as the rule {rule} counts turns or requests in flight, which do not come back"
        );
        Self { rule: Some(rule.into()), unsupported: Some(unsupported), ..Self::without_rules() }
    }

    /// Too many reservations are open for one more.
    pub(super) fn without_room(full: &Full) -> Self {
        Self { body: full.to_string(), ..Self::without_rules() }
    }

    /// No rule counts the request.
    pub(super) fn allowed() -> Self {
        Self {
            decision: Decision::Allow,
            rule: None,
            status: 200,
            headers: Vec::new(),
            body: String::new(),
            standing: None,
            reservation: None,
            unsupported: None,
        }
    }
}

/// Whole seconds, rounded up.
pub(super) fn seconds_up(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

/// What a decision says beside its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ruled {
    pub(super) decision: Decision,
    strictest: Option<(usize, Figures)>,
    jitter_s: u32,
}

impl Ruled {
    /// None while the request waits.
    pub(super) fn of(decided: &Decided) -> Option<Self> {
        let decision = match decided.outcome() {
            Outcome::Allow => Decision::Allow,
            Outcome::Limit => Decision::Limit,
            Outcome::Deny => Decision::Deny,
            Outcome::Block => Decision::Block,
            Outcome::Wait => return None,
        };
        let jitter_s = if let Decided::Refuse { jitter_s, .. } = decided { *jitter_s } else { 0 };
        let strictest = decided.strictest().map(|(rule, figures)| (usize::from(rule), figures));
        Some(Self { decision, strictest, jitter_s })
    }

    /// Whether a rule let it through, and so took something.
    pub(super) fn has_taken(&self) -> bool {
        self.decision == Decision::Allow && self.strictest.is_some()
    }

    /// The verdict as far as the rules tell it.
    pub(super) fn verdict(&self, rules: &RuleSet, unix_ns: u64) -> Verdict {
        let mut verdict = Verdict { decision: self.decision, ..Verdict::allowed() };
        let Some((index, figures)) = self.strictest else { return verdict };
        let Some(rule) = rules.rules().get(index) else { return verdict };
        verdict.rule = Some(rule.name.clone());
        if self.decision != Decision::Deny {
            verdict.standing = Some(self.standing(rule, &figures, unix_ns));
        }
        verdict
    }

    fn standing(&self, rule: &Rule, figures: &Figures, unix_ns: u64) -> Standing {
        let told = match self.decision {
            Decision::Allow => Answers::allowed(rule, figures, unix_ns),
            _ => *figures,
        };
        Standing {
            limit: rule.quota.burst().into(),
            remaining: figures.remaining.into(),
            reset_after: Duration::from_nanos(told.reset_ns()),
            retry_after: Duration::from_nanos(figures.more_ns) + Duration::from_secs(self.jitter_s.into()),
            window: window_s(rule).map(Duration::from_secs),
        }
    }
}
