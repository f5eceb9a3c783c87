use weir_rules::request::{Attribute, Request as _};

use super::*;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

fn request(descriptors: impl Into<Vec<RateLimitDescriptor>>) -> RateLimitRequest {
    RateLimitRequest { domain: "shop".into(), descriptors: descriptors.into(), hits_addend: 0 }
}

/// The checks of descriptors without limits of their own.
fn asks(request: &RateLimitRequest) -> Result<Vec<CheckRequest>, Status> {
    let by_rules = |check| if let Check::Rules(ask) = check { *ask } else { panic!("{check:?}") };
    Ok(checks(request.clone())?.into_iter().map(by_rules).collect())
}

/// One with a limit of its own.
fn limited(entries: &[(&str, &str)], requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    let limit = Some(RateLimitOverride { requests_per_unit, unit, unit_multiplier: None });
    RateLimitDescriptor { limit, ..descriptor(entries) }
}

/// Attribute of a request, as a rule reads it.
fn seen(ask: &CheckRequest, attribute: &Attribute) -> Option<String> {
    ask.clone().attribute(attribute).map(|value| String::from_utf8(value).unwrap())
}

/// The claims that there are of these.
fn claims(ask: &CheckRequest, names: &[&str]) -> Vec<(String, String)> {
    let claim = |name: &&str| {
        let path = name.split('.').map(str::to_owned).collect();
        Some(((*name).to_owned(), seen(ask, &Attribute::Claim(path))?))
    };
    names.iter().filter_map(claim).collect()
}

#[test]
fn an_entry_is_read_by_its_key() {
    let asked = descriptor(&[
        ("remote_address", "203.0.113.7"),
        ("method", "POST"),
        ("host", "shop.example"),
        ("path", "/cart?of=7"),
        ("X-Plan", "gold"),
        ("generic_key", "slow"),
        ("x-plan", "silver"),
        ("method", "GET"),
        ("remote_address", "the first counts"),
    ]);
    let asks = asks(&request([asked])).unwrap();
    let [ask] = &asks[..] else { panic!("{asks:?}") };
    let header = |name: &str| Attribute::Header(name.into());
    for (attribute, expected) in [
        (Attribute::SourceAddress, Some("203.0.113.7")),
        (Attribute::Method, Some("POST")),
        (Attribute::Authority, Some("shop.example")),
        (Attribute::Path, Some("/cart?of=7")),
        (Attribute::Route, None),
        (header("x-plan"), Some("gold\nsilver")),
        (header("generic_key"), Some("slow")),
        (header("method"), None),
        (header("x-other"), None),
    ] {
        assert_eq!(seen(ask, &attribute).as_deref(), expected, "{attribute:?}");
    }
    assert_eq!(ask.hits, 1);
}

#[test]
fn claims_contain_a_whole_descriptor() {
    let both = [descriptor(&[("a", "1"), ("b", "x;y=z,%"), ("a", "2")]), descriptor(&[("c", "")])];
    let asks = asks(&request(both)).unwrap();
    let names = [
        "ratelimit.entry.a",
        "ratelimit.entry.b",
        "ratelimit.entry.c",
        "ratelimit.entries",
        "ratelimit.domain",
        "ratelimit.beside",
        "ratelimit",
        "ratelimit.domain.x",
        "sub",
    ];
    let of_first = ["1", "x;y=z,%", "a,b,a", "shop", ";c=;"];
    let expected = names.into_iter().filter(|name| *name != "ratelimit.entry.c").zip(of_first);
    let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(claims(&asks[0], &names), expected);
    let beside = |ask| seen(ask, &Attribute::Claim(vec!["ratelimit".into(), "beside".into()]));
    assert_eq!(beside(&asks[1]).as_deref(), Some(";a=1,b=x%3By%3Dz%2C%25,a=2;"));
    let alone = self::asks(&request([descriptor(&[("a", "1")])])).unwrap();
    assert_eq!(beside(&alone[0]), None);
}

#[test]
fn a_descriptors_own_limit_is_for_all_of_it() {
    let own = |descriptor: RateLimitDescriptor| match &checks(request([descriptor])).unwrap()[..] {
        [Check::Own(limit)] => limit.clone(),
        other => panic!("{other:?}"),
    };
    let entries = [("user", "ann;"), ("X", "")];
    let expected =
        PerUnit { key: "shop;user=ann%3B,X=;".into(), requests: 5, window_s: 60, hits: 1, purpose: CheckPurpose::Take };
    assert_eq!(own(limited(&entries, 5, 2)), expected);
    for (unit, expected) in [(1, 1), (3, 3_600), (4, 86_400), (5, 2_592_000), (6, 31_536_000)] {
        assert_eq!(own(limited(&entries, 5, unit)).window_s, expected);
    }
    // No rule sees that it stands beside another.
    let both = request([descriptor(&[("a", "1")]), limited(&entries, 5, 2), descriptor(&[("b", "2")])]);
    let [Check::Rules(first), Check::Own(_), Check::Rules(last)] = &checks(both).unwrap()[..] else {
        panic!("in their order")
    };
    let beside = |ask| claims(ask, &["ratelimit.beside"]).remove(0).1;
    assert_eq!((beside(first), beside(last)), (";b=2;".into(), ";a=1;".into()));
}

#[test]
fn a_bad_request_gets_the_place_and_what_was_expected() {
    let good = || descriptor(&[("a", "1")]);
    let many = |count: usize| vec![good(); count];
    let long = "x".repeat(VALUE_BYTES_MAX + 1);
    // A limit for `units` days.
    let times = |units| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit: 5, unit: 4, unit_multiplier: Some(units) }),
        ..good()
    };
    for (request, expected) in [
        (request(many(65)), "descriptors: expected 1 to 64, found 65"),
        (request([good(), descriptor(&[])]), "descriptors[1].entries: expected 1 to 64, found 0"),
        (request([descriptor(&[("a", "1"); 65])]), "descriptors[0].entries: expected 1 to 64, found 65"),
        (
            request([descriptor(&[("a", "1"), ("", "2")])]),
            "descriptors[0].entries[1].key: expected a text of 1 to 256 bytes, found 0",
        ),
        (
            request([descriptor(&[("a", &long)])]),
            "descriptors[0].entries[0].value: expected at most 65536 bytes, found 65537",
        ),
        // The error travels in a header.
        (
            request([descriptor(&[("remote_address", &"\u{e9}".repeat(4_000))])]),
            "descriptors[0].entries[0].value: expected an IP address, as the key is remote_address, found 8000 bytes",
        ),
        (
            request([RateLimitDescriptor { hits_addend: Some(1 << 32), ..good() }]),
            "descriptors[0].hits_addend: expected at most 4294967295, found 4294967296",
        ),
        (
            request([good(), limited(&[("a", "1")], 5, 0)]),
            "descriptors[1].limit.unit: expected SECOND, MINUTE, HOUR, DAY, MONTH or YEAR, found 0",
        ),
        (
            request([limited(&[("a", "1")], 5, 7)]),
            "descriptors[0].limit.unit: expected SECOND, MINUTE, HOUR, DAY, MONTH or YEAR, found 7",
        ),
        (request([times(0)]), "descriptors[0].limit.unit_multiplier: expected 1 to 400, found 0"),
        (request([times(401)]), "descriptors[0].limit.unit_multiplier: expected 1 to 400, found 401"),
        (
            request([limited(&[("a", "1")], 1_000_001, 1)]),
            "descriptors[0].limit.requests_per_unit: expected at most 1000000, found 1000001: write it for a shorter \
             unit",
        ),
    ] {
        let error = checks(request).unwrap_err();
        assert_eq!((error.code(), error.message()), (tonic::Code::InvalidArgument, expected));
    }
    assert_eq!(asks(&request(many(64))).unwrap().len(), 64);
}

#[test]
fn bytes_that_are_no_text_become_question_marks() {
    let entry = |value: &str| Entry { key: "x-user".into(), value: value.into() };
    let limit = Some(RateLimitOverride { requests_per_unit: 3, unit: 1, unit_multiplier: Some(10) });
    let asked = |value| RateLimitRequest {
        domain: "shop".into(),
        descriptors: vec![
            RateLimitDescriptor { entries: vec![entry(value)], limit, hits_addend: Some(0), is_negative_hits: true },
            RateLimitDescriptor { entries: vec![entry("ada")], ..RateLimitDescriptor::default() },
        ],
        hits_addend: 7,
    };
    let mut bytes = asked("a\u{e9}$$").encode_to_vec();
    let at = bytes.windows(2).position(|pair| pair == b"$$").expect("the value");
    bytes[at..at + 2].copy_from_slice(&[0xff, 0xc3]);
    assert!(RateLimitRequest::decode(&bytes[..]).is_err());
    let read = decode(&bytes).expect("a request");
    assert_eq!(read, asked("a\u{e9}??"));
}

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
    assert_eq!(error.code(), tonic::Code::Unavailable);
    assert_eq!(error.message(), "the rule login could not be checked: its store is out of reach");
    let unknown = response(vec![CheckReply { rule: None, ..denied() }]).unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::Unavailable);
    let refused = response(vec![denied(), reply(CheckDecision::Limit, "b", 0, 1)]).unwrap();
    assert_eq!(refused.statuses[0].code(), Code::Unknown);
    assert_eq!((refused.overall_code(), header(&refused)), (Code::OverLimit, "b"));
}
