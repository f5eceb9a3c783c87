use tonic::Code as Grpc;

use super::*;

fn reply(decision: CheckDecision, rule: &str, remaining: u64, window_s: u64) -> CheckReply {
    let (reset_after, retry_after) = (Duration::from_millis(1_500), Duration::from_secs(remaining + 1));
    let window = Some(Duration::from_secs(window_s));
    CheckReply {
        reservation: None,
        unsupported: None,
        decision,
        rule: Some(rule.into()),
        status: 429,
        headers: vec![("ratelimit".into(), rule.into())],
        body: format!("by {rule}"),
        quota_status: Some(RuleQuotaStatus { limit: 10, remaining, reset_after, retry_after, window }),
    }
}

fn blocked() -> CheckReply {
    CheckReply { rule: None, quota_status: None, headers: vec![], ..reply(CheckDecision::Block, "", 0, 1) }
}

fn header(response: &RateLimitResponse) -> &str {
    response.response_headers_to_add.first().map_or("", |header| &header.value)
}

#[test]
fn a_limit_is_stated_only_if_its_window_is_a_unit() {
    let unit = |window: Option<Duration>| {
        let mut reply = reply(CheckDecision::Allow, "a", 1, 1);
        reply.quota_status = reply.quota_status.map(|quota_status| RuleQuotaStatus { window, ..quota_status });
        status(reply).current_limit.map(|limit| limit.unit())
    };
    let seconds = |seconds| unit(Some(Duration::from_secs(seconds)));
    for (window_s, expected) in [
        (1, Unit::Second),
        (60, Unit::Minute),
        (3_600, Unit::Hour),
        (86_400, Unit::Day),
        (604_800, Unit::Week),
        (2_592_000, Unit::Month),
        (31_536_000, Unit::Year),
    ] {
        assert_eq!(seconds(window_s), Some(expected));
    }
    assert_eq!([seconds(0), seconds(10), seconds(2_678_400), unit(None)], [None; 4]);
    assert_eq!(unit(Some(Duration::from_millis(1_500))), None);
}

#[test]
fn the_client_gets_the_longest_refusal_or_the_lowest_status() {
    let shown = |replies: &[CheckReply]| header(&response(replies.to_vec()).unwrap()).to_owned();
    let allow = |rule, remaining| reply(CheckDecision::Allow, rule, remaining, 1);
    assert_eq!(shown(&[allow("a", 5), allow("b", 2), allow("c", 9)]), "b");
    let hidden = CheckReply { headers: vec![], ..allow("a", 0) };
    assert_eq!(shown(&[hidden, allow("b", 2), allow("c", 9)]), "b", "one without headers hides none that has them");
    let limit = |rule, wait| reply(CheckDecision::Limit, rule, wait, 1);
    assert_eq!(shown(&[allow("a", 0), limit("b", 1), limit("c", 3)]), "c");
    assert_eq!(shown(&[limit("c", 3), blocked()]), "", "what is on the list may never come back");
    assert_eq!(shown(&[blocked()]), "");
}

#[test]
fn the_client_gets_the_policies_of_all_descriptors() {
    let with = |policy: &str, decision| {
        let mut reply = reply(decision, policy, 1, 1);
        reply.headers.push((POLICY.into(), policy.into()));
        reply
    };
    let replies =
        vec![with("a", CheckDecision::Allow), with("b", CheckDecision::Limit), with("a", CheckDecision::Allow)];
    let headers = response(replies).unwrap().response_headers_to_add;
    let sent: Vec<_> = headers.iter().map(|header| (&*header.key, &*header.value)).collect();
    assert_eq!(sent, [("ratelimit", "b"), (POLICY, "a, b")]);
}

#[test]
fn an_unchecked_descriptor_is_unavailable_unless_another_refuses() {
    let denied = || CheckReply { quota_status: None, ..reply(CheckDecision::Deny, "login", 0, 1) };
    let error = response(vec![reply(CheckDecision::Allow, "a", 1, 1), denied()]).unwrap_err();
    assert_eq!(error.code(), Grpc::Unavailable);
    assert_eq!(error.message(), "the rule login could not be checked: its store is out of reach");
    let unknown = response(vec![CheckReply { rule: None, ..denied() }]).unwrap_err();
    assert_eq!(unknown.code(), Grpc::Unavailable);
    let refused = response(vec![denied(), reply(CheckDecision::Limit, "b", 0, 1)]).unwrap();
    assert_eq!(refused.statuses[0].code(), Code::Unknown);
    assert_eq!((refused.overall_code(), header(&refused)), (Code::OverLimit, "b"));
}
