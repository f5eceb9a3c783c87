//! Decisions, with the response for the client.

use std::time::Duration;

use weir_limiter::algorithms::BucketStatus as Figures;
use weir_limiter::check::{Decision as Decided, DecisionKind};
use weir_limiter::response::{DENIED_STATUS, PreparedResponses, window_s};
use weir_rules::{Rule, RuleSet};

/// Outcome for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckDecision {
    /// The request is allowed.
    Allow,
    /// The request is refused: a rule has no token for it.
    Limit,
    /// The request is refused: a rule that fails closed could not be checked, or the rules are not known yet.
    Deny,
    /// The request is refused: it is on the rule set's `deny` list.
    Block,
}

impl CheckDecision {
    /// Name in messages and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Limit => "limit",
            Self::Deny => "deny",
            Self::Block => "block",
        }
    }
}

/// Answer to an [`super::CheckRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReply {
    /// Outcome.
    pub decision: CheckDecision,
    /// Rule that made the decision: the strictest that counted the request, or the one that refuses it.
    pub rule: Option<String>,
    /// Status of the response to the client; 200 if the request is allowed.
    pub status: u16,
    /// Headers for the client, on allowed responses as well.
    pub headers: Vec<(String, String)>,
    /// Body of the response to a refused client.
    pub body: String,
    /// Quota status of the client; `None` without a rule, or if the rule could not be checked.
    pub(crate) quota_status: Option<RuleQuotaStatus>,
    /// Name of the reservation, if the check requested one and was allowed.
    pub reservation: Option<String>,
    /// Reason why the check is impossible, whatever is left of the quota.
    pub(crate) unsupported: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleQuotaStatus {
    /// Maximum number of tokens at once.
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Time until the next request may pass if no tokens are left, otherwise until the quota is full again.
    pub(crate) reset_after: Duration,
    /// Time until there are more tokens than now. A refused client should come back after it.
    pub(crate) retry_after: Duration,
    /// Time in which the whole quota refills, or `None` if it does not refill with time.
    pub(crate) window: Option<Duration>,
}

impl CheckReply {
    /// Seconds after which a refused client should ask again; `None` for an allowed request.
    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        if self.decision == CheckDecision::Allow {
            return None;
        }
        let of_headers = || {
            let header = self.headers.iter().find(|(name, _)| name == "retry-after");
            header.and_then(|(_, seconds)| seconds.parse().ok())
        };
        let of_quota = self.quota_status.map(|status| seconds_up(status.retry_after).max(1));
        of_quota.or_else(of_headers)
    }

    /// Refusal because the rules are not known yet.
    pub(super) fn without_rules() -> Self {
        Self { decision: CheckDecision::Deny, status: DENIED_STATUS, ..Self::allowed() }
    }

    /// Refusal of a refund, because tokens of this rule cannot be refunded.
    pub(super) fn fixed(rule: &str) -> Self {
        let unsupported = format!(
            "is_negative_hits: expected none, as the rule {rule} counts turns or requests in flight, which do not \
             come back"
        );
        Self { rule: Some(rule.into()), unsupported: Some(unsupported), ..Self::without_rules() }
    }

    /// Decision if no rule counts the request.
    pub(super) fn allowed() -> Self {
        Self {
            decision: CheckDecision::Allow,
            rule: None,
            status: 200,
            headers: Vec::new(),
            body: String::new(),
            quota_status: None,
            reservation: None,
            unsupported: None,
        }
    }
}

pub(super) fn seconds_up(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

/// Parts of a decision that are not in the response.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecisionDetails {
    pub(super) decision: CheckDecision,
    strictest: Option<(usize, Figures)>,
    jitter_s: u32,
}

impl DecisionDetails {
    /// Details of `decided`; `None` while the request waits.
    pub(super) fn of(decided: &Decided) -> Option<Self> {
        let decision = match decided.outcome() {
            DecisionKind::Allow => CheckDecision::Allow,
            DecisionKind::Limit => CheckDecision::Limit,
            DecisionKind::Deny => CheckDecision::Deny,
            DecisionKind::Block => CheckDecision::Block,
            DecisionKind::Wait => return None,
        };
        let jitter_s = if let Decided::Refuse { jitter_s, .. } = decided { *jitter_s } else { 0 };
        let strictest = decided.strictest().map(|(rule, figures)| (usize::from(rule), figures));
        Some(Self { decision, strictest, jitter_s })
    }

    /// True if a rule allowed the request and so consumed tokens.
    pub(super) fn has_taken(&self) -> bool {
        self.decision == CheckDecision::Allow && self.strictest.is_some()
    }

    /// Decision and quota status, without the response.
    pub(super) fn reply(&self, rules: &RuleSet, unix_ns: u64) -> CheckReply {
        let mut reply = CheckReply { decision: self.decision, ..CheckReply::allowed() };
        let Some((index, figures)) = self.strictest else { return reply };
        let Some(rule) = rules.rules().get(index) else { return reply };
        reply.rule = Some(rule.name.clone());
        if self.decision != CheckDecision::Deny {
            reply.quota_status = Some(self.quota_status(rule, &figures, unix_ns));
        }
        reply
    }

    fn quota_status(&self, rule: &Rule, figures: &Figures, unix_ns: u64) -> RuleQuotaStatus {
        let shown = match self.decision {
            CheckDecision::Allow => PreparedResponses::allowed(rule, figures, unix_ns),
            _ => *figures,
        };
        RuleQuotaStatus {
            limit: rule.quota.burst().into(),
            remaining: figures.remaining.into(),
            reset_after: Duration::from_nanos(shown.reset_ns()),
            retry_after: Duration::from_nanos(figures.more_ns) + Duration::from_secs(self.jitter_s.into()),
            window: window_s(rule).map(Duration::from_secs),
        }
    }
}
