//! What a rule's clients are answered, as the host takes it.

use weir_limiter::decision::Standing;
use weir_limiter::response::{Answers, DENIED_STATUS, is_grpc};
use weir_limiter::rules::Rule;
use weir_limiter::template::Numbers;

use crate::host::{self, HeaderList, Headers, Status};
use crate::nginx;

/// A rule's answers. What a limited client was told last is kept: in a flood the next is told the same, as its numbers
/// are whole seconds.
pub(crate) struct RuleAnswers {
    answers: Answers,
    limited: Option<Kept>,
}

struct Kept {
    numbers: Numbers,
    headers: HeaderList,
    body: String,
}

impl RuleAnswers {
    /// Prepares those of `rule`.
    pub(crate) fn of(rule: &Rule) -> Self {
        Self { answers: Answers::of(rule), limited: None }
    }

    /// What they are made from.
    pub(crate) fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Answers a limited request.
    pub(crate) fn send_limited(
        &mut self,
        rule: &Rule,
        standing: &Standing,
        jitter_s: u32,
    ) -> Result<(), Status> {
        let Self { answers, limited } = self;
        let numbers = Answers::numbers(rule, standing, unix_ns_for(rule), jitter_s);
        let kept = match limited {
            Some(kept) if kept.numbers == numbers => kept,
            _ => {
                let made = answers.limited(rule, &numbers);
                let (headers, body) = (HeaderList::of(&made.headers), made.body.into_owned());
                limited.insert(Kept { numbers, headers, body })
            }
        };
        let body = body(&kept.body, answers.limited_message());
        host::send_response(rule.response.status, answers.limited_details(), &kept.headers, body)
    }

    /// Answers a denied request.
    pub(crate) fn send_denied(&self, standing: &Standing, jitter_s: u32) -> Result<(), Status> {
        let headers = HeaderList::of(&Answers::denied(standing, jitter_s));
        let body = body(self.answers.denial(), self.answers.denied_message());
        host::send_response(DENIED_STATUS, self.answers.denied_details(), &headers, body)
    }
}

/// `text`, or where the request is one of gRPC `message`, which its host makes `grpc-message` of. nginx makes none.
pub(crate) fn body<'a>(text: &'a str, message: &'a str) -> &'a str {
    if !nginx::IS_HOST && is_of_grpc() { message } else { text }
}

/// Every gRPC request has `te: trailers`. Few others do, and a header that is not there costs a third of one that is:
/// a flood of POSTs is not asked for its content types.
fn is_of_grpc() -> bool {
    host::header(Headers::Request, "te").is_ok()
        && host::header(Headers::Request, "content-type").is_ok_and(|kind| is_grpc(&kind))
}

/// The wall clock, where the rule's answers go by it.
pub(crate) fn unix_ns_for(rule: &Rule) -> u64 {
    if Answers::is_by_wall_clock(rule) { host::unix_ns() } else { 0 }
}
