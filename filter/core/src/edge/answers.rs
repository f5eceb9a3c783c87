//! Answers to refused clients, in the form that the host takes.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::effect::Answer;
use super::site::Site;
use crate::buckets::Standing;
use crate::decide::{Beside, QuotaStatus};
use crate::response::{
    Answers, BLOCKED_BODY, BLOCKED_STATUS, DENIED_STATUS, GRPC_HTTP_STATUS, LimitedStatus, blocked_headers,
    is_grpc,
};
use weir_rules::Rule;
use weir_rules::request::{Attribute, Request};
use weir_rules::template::Numbers;

/// A rule's answers. The last one to a limited client is kept: in a flood the next client is told the same, because the
/// numbers are whole seconds.
pub(super) struct RuleAnswers {
    /// What the answers are made from.
    pub(super) answers: Answers,
    limited: Option<Kept>,
    /// The last one to a gRPC client.
    limited_grpc: Option<Kept>,
    /// The headers of the denied client that was answered last.
    denied: Vec<u8>,
}

struct Kept {
    numbers: Numbers,
    is_banned: bool,
    beside: Option<Box<Beside>>,
    headers: Vec<u8>,
    body: String,
}

impl Kept {
    #[inline(never)]
    fn of(
        all: &[RuleAnswers],
        rule: &Rule,
        status: QuotaStatus,
        (numbers, is_banned, is_grpc): (Numbers, bool, bool),
        site: &dyn Site,
    ) -> Option<Self> {
        let policies = &policies(all, rule.response.headers.ratelimit, &status);
        let told = LimitedStatus { numbers, partition: status.partition(), policies, is_grpc, is_banned };
        let made = all.get(usize::from(status.rule))?.answers.limited(rule, &told);
        let (headers, body) = (site.pack(&made.headers), made.body.into_owned());
        Some(Self { numbers, is_banned, beside: status.beside, headers, body })
    }
}

/// A limited client: what it is told, and how.
pub(super) struct LimitedClient {
    pub(super) status: QuotaStatus,
    pub(super) jitter_s: u32,
    pub(super) is_banned: bool,
    pub(super) is_grpc: bool,
}

/// The policies that `status` tells in the rules' order, as `RateLimit-Policy` has them: for a client they stay the same,
/// whichever of its quotas is told. Its own rule's is among them if that `tells_own`.
pub(super) fn policies(all: &[RuleAnswers], tells_own: bool, status: &QuotaStatus) -> String {
    let others = status.others().iter().map(|other| (other.rule, other.partition.as_slice()));
    let own = tells_own.then_some((status.rule, status.partition()));
    let mut told: Vec<_> = others.chain(own).collect();
    told.sort_by_key(|(rule, _)| usize::from(*rule));
    let policy = |(rule, partition)| Some(all.get(usize::from(rule))?.answers.policy(partition));
    told.into_iter().filter_map(policy).collect::<Vec<_>>().join(", ")
}

impl RuleAnswers {
    /// Prepares the answers of `rule`.
    pub(super) fn of(rule: &Rule) -> Self {
        Self { answers: Answers::of(rule), limited: None, limited_grpc: None, denied: Vec::new() }
    }

    /// Answers a limited request, one of whose rules' answers in `all` are those of `rule`. None if they are not there.
    pub(super) fn limited<'a>(
        all: &'a mut [Self],
        rule: &Rule,
        client: LimitedClient,
        site: &mut dyn Site,
    ) -> Option<Answer<'a>> {
        let LimitedClient { status, jitter_s, is_banned, is_grpc } = client;
        let place = usize::from(status.rule);
        let numbers = Answers::numbers(rule, &status.standing, unix_ns_for(rule, site), jitter_s);
        let is_same = |kept: &Kept| {
            (kept.numbers, kept.is_banned) == (numbers, is_banned) && kept.beside == status.beside
        };
        if !all.get_mut(place)?.last(is_grpc).as_ref().is_some_and(is_same) {
            let kept = Kept::of(all, rule, status, (numbers, is_banned, is_grpc), site)?;
            *all.get_mut(place)?.last(is_grpc) = Some(kept);
        }
        let Self { answers, limited, limited_grpc, .. } = all.get(place)?;
        let kept = if is_grpc { limited_grpc } else { limited }.as_ref()?;
        let status = if is_grpc { GRPC_HTTP_STATUS } else { rule.response.status };
        Some(Answer { status, details: &answers.limited_details, headers: &kept.headers, body: &kept.body })
    }

    /// The last one to a limited client.
    fn last(&mut self, is_grpc: bool) -> &mut Option<Kept> {
        if is_grpc { &mut self.limited_grpc } else { &mut self.limited }
    }

    /// Answers a denied request.
    pub(super) fn denied(
        &mut self,
        standing: &Standing,
        jitter_s: u32,
        is_grpc: bool,
        site: &dyn Site,
    ) -> Answer<'_> {
        self.denied = site.pack(&self.answers.denied(standing, jitter_s, is_grpc));
        let (status, body) =
            if is_grpc { (GRPC_HTTP_STATUS, "") } else { (DENIED_STATUS, self.answers.denial.as_str()) };
        Answer { status, details: &self.answers.denied_details, headers: &self.denied, body }
    }
}

/// The answer to a request that is on the `deny` list.
pub(super) struct Blocked {
    headers: Vec<u8>,
    grpc_headers: Vec<u8>,
}

impl Blocked {
    pub(super) fn new(site: &dyn Site) -> Self {
        Self { headers: site.pack(&blocked_headers(false)), grpc_headers: site.pack(&blocked_headers(true)) }
    }

    pub(super) fn answer(&self, is_grpc: bool) -> Answer<'_> {
        let (status, headers, body) = if is_grpc {
            (GRPC_HTTP_STATUS, &self.grpc_headers, "")
        } else {
            (BLOCKED_STATUS, &self.headers, BLOCKED_BODY)
        };
        Answer { status, details: "weir_blocked", headers, body }
    }
}

/// The headers that show that a request is gRPC.
pub(super) struct GrpcSigns {
    te: Attribute,
    content_type: Attribute,
}

impl GrpcSigns {
    pub(super) fn new() -> Self {
        let header = |name: &str| Attribute::Header(name.into());
        Self { te: header("te"), content_type: header("content-type") }
    }

    /// Every gRPC request has a body: its last frame is one of data, be it empty (gRPC over HTTP2, "EOS"). And it has
    /// `te: trailers`, as few others do. Reading an absent header costs a third of reading one that is there, so a flood of
    /// POSTs is not asked for its content types, and one of GETs for nothing.
    pub(super) fn are_those_of(&self, request: &mut dyn Request) -> bool {
        !request.is_without_body()
            && request.first_line(&self.te).is_some()
            && request.first_line(&self.content_type).is_some_and(|kind| is_grpc(&kind))
    }
}

/// The wall clock, if the rule's answers depend on it; else 0.
pub(super) fn unix_ns_for(rule: &Rule, site: &mut dyn Site) -> u64 {
    if Answers::is_by_wall_clock(rule) { site.unix_ns() } else { 0 }
}
