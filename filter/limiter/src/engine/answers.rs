//! Responses to refused clients, in the form that the host takes.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::host::Host;
use crate::algorithms::BucketStatus;
use crate::check::{Beside, QuotaStatus};
use crate::engine::effects::LocalReply;
use crate::response::{
    BLOCKED_BODY, BLOCKED_STATUS, DENIED_STATUS, GRPC_HTTP_STATUS, LimitedStatus, PreparedResponses, blocked_headers,
    is_grpc, numbers,
};
use weir_rules::Rule;
use weir_rules::request::{Attribute, Request};
use weir_rules::sorting::sorted;
use weir_rules::template::Numbers;

/// A rule's responses. The last response to a limited client is kept: its numbers are whole seconds, so in a
/// flood the next client gets the same.
pub(super) struct RuleReplies {
    pub(super) answers: PreparedResponses,
    limited: Option<LastReply>,
    limited_grpc: Option<LastReply>,
    denied: Vec<u8>,
}

struct LastReply {
    numbers: Numbers,
    is_banned: bool,
    beside: Option<Box<Beside>>,
    headers: Vec<u8>,
    body: String,
}

impl LastReply {
    #[inline(never)]
    fn of(
        all: &[RuleReplies],
        rule: &Rule,
        status: QuotaStatus,
        (numbers, is_banned, is_grpc): (Numbers, bool, bool),
        host: &dyn Host,
    ) -> Option<Self> {
        let policies = &policies(all, rule.response.headers.ratelimit, &status);
        let limited = LimitedStatus { numbers, partition: status.partition(), policies, is_grpc, is_banned };
        let (headers, body) = all.get(usize::from(status.rule))?.answers.limited(rule, &limited);
        let (headers, body) = (host.pack(&headers), body.into_owned());
        Some(Self { numbers, is_banned, beside: status.beside, headers, body })
    }
}

/// The value of `RateLimit-Policy`: the policies in `status` in rule order, with its own rule's if `with_own`.
/// So it stays the same for a client, whichever of its quotas is the strictest.
pub(super) fn policies(all: &[RuleReplies], with_own: bool, status: &QuotaStatus) -> String {
    let others = status.others().iter().map(|other| (usize::from(other.rule), other.partition.as_slice()));
    let own = with_own.then_some((usize::from(status.rule), status.partition()));
    let stated = sorted(others.chain(own).collect::<Vec<_>>());
    let policy = |(rule, partition): (usize, _)| Some(all.get(rule)?.answers.policy(partition));
    stated.into_iter().filter_map(policy).collect::<Vec<_>>().join(", ")
}

impl RuleReplies {
    pub(super) fn of(rule: &Rule) -> Self {
        Self { answers: PreparedResponses::of(rule), limited: None, limited_grpc: None, denied: Vec::new() }
    }

    /// Makes the response to a limited request; none if that of `rule` is missing from `all`.
    pub(super) fn limited<'a>(
        all: &'a mut [Self],
        rule: &Rule,
        status: QuotaStatus,
        (jitter_s, is_banned, is_grpc): (u32, bool, bool),
        host: &mut dyn Host,
    ) -> Option<LocalReply<'a>> {
        let place = usize::from(status.rule);
        let numbers = numbers(rule, &status.bucket, unix_ns_for(rule, host), jitter_s);
        let is_same =
            |kept: &LastReply| (kept.numbers, kept.is_banned) == (numbers, is_banned) && kept.beside == status.beside;
        if !all.get_mut(place)?.last(is_grpc).as_ref().is_some_and(is_same) {
            let kept = LastReply::of(all, rule, status, (numbers, is_banned, is_grpc), host)?;
            *all.get_mut(place)?.last(is_grpc) = Some(kept);
        }
        let Self { answers, limited, limited_grpc, .. } = all.get(place)?;
        let kept = if is_grpc { limited_grpc } else { limited }.as_ref()?;
        let status = if is_grpc { GRPC_HTTP_STATUS } else { rule.response.status };
        Some(LocalReply { status, details: &answers.limited_details, headers: &kept.headers, body: &kept.body })
    }

    fn last(&mut self, is_grpc: bool) -> &mut Option<LastReply> {
        if is_grpc { &mut self.limited_grpc } else { &mut self.limited }
    }

    pub(super) fn denied(
        &mut self,
        bucket: &BucketStatus,
        jitter_s: u32,
        is_grpc: bool,
        host: &dyn Host,
    ) -> LocalReply<'_> {
        self.denied = host.pack(&self.answers.denied(bucket, jitter_s, is_grpc));
        let (status, body) =
            if is_grpc { (GRPC_HTTP_STATUS, "") } else { (DENIED_STATUS, self.answers.denial.as_str()) };
        LocalReply { status, details: &self.answers.denied_details, headers: &self.denied, body }
    }
}

pub(super) struct Blocked {
    headers: Vec<u8>,
    grpc_headers: Vec<u8>,
}

impl Blocked {
    pub(super) fn new(host: &dyn Host) -> Self {
        Self { headers: host.pack(&blocked_headers(false)), grpc_headers: host.pack(&blocked_headers(true)) }
    }

    pub(super) fn answer(&self, is_grpc: bool) -> LocalReply<'_> {
        let (status, headers, body) = if is_grpc {
            (GRPC_HTTP_STATUS, &self.grpc_headers, "")
        } else {
            (BLOCKED_STATUS, &self.headers, BLOCKED_BODY)
        };
        LocalReply { status, details: "weir_blocked", headers, body }
    }
}

pub(super) struct GrpcSigns {
    te: Attribute,
    content_type: Attribute,
}

impl GrpcSigns {
    pub(super) fn new() -> Self {
        let header = |name: &str| Attribute::Header(name.into());
        Self { te: header("te"), content_type: header("content-type") }
    }

    /// True if the request is gRPC. Every gRPC request has a body: its last frame is a data frame, even if empty (gRPC
    /// over HTTP2, "EOS"). And it has `te: trailers`, which few others have. So for a flood of POSTs the content type
    /// is not read, and for one of GETs nothing is.
    pub(super) fn are_those_of(&self, request: &mut dyn Request) -> bool {
        !request.is_without_body()
            && request.first_line(&self.te).is_some()
            && request.first_line(&self.content_type).is_some_and(|kind| is_grpc(&kind))
    }
}

/// The wall clock in nanoseconds since 1970, if the rule's responses depend on it; else 0.
pub(super) fn unix_ns_for(rule: &Rule, host: &mut dyn Host) -> u64 {
    if PreparedResponses::is_by_wall_clock(rule) { host.unix_ns() } else { 0 }
}
