//! Requests for which a test is undecided: `deny` refuses them, a rule counts them, and `allow` does not let them off.

use super::*;

/// A value that is not UTF-8, so no regular expression can be tried on it.
const NO_TEXT: &[u8] = b"BadBot\xff";

/// Conditions, each with a request for which it is undecided.
fn untestable() -> Vec<(Value, Sample)> {
    let sample = |name: &str, value: Vec<u8>| Sample { has: [(name.into(), value)].into(), asked: vec![] };
    let regex = |field: &str, name: Value| json!({field: [{"name": name, "regex": "^BadBot"}]});
    let long = || [b"BadBot".to_vec(), vec![b' '; REGEX_VALUE_BYTES_MAX]].concat();
    let behind = "/?".to_string() + &"x=1&".repeat(QUERY_BYTES_MAX / 4) + "q=BadBot";
    let deep = "/admin".to_string() + &"/a".repeat(GLOB_PATH_BYTES_MAX / 2) + "/x";
    vec![
        (regex("headers", json!("user-agent")), sample("user-agent", NO_TEXT.into())),
        (regex("headers", json!("user-agent")), sample("user-agent", long())),
        (regex("claims", json!(["payload", "a"])), sample("claim payload.a", NO_TEXT.into())),
        (regex("cookies", json!("c")), sample("cookie", [b"c=".to_vec(), NO_TEXT.into()].concat())),
        (regex("query", json!("q")), sample("path", b"/?q=BadBot%ff".to_vec())),
        (json!({"query": [{"name": "q", "equals": "BadBot"}]}), sample("path", behind.clone().into())),
        (json!({"query": [{"name": "q", "present": true}]}), sample("path", behind.into())),
        (json!({"path": {"glob": "/admin/**/x"}}), sample("path", deep.into())),
        (json!({"hosts": ["evil.example.com"]}), sample("host", b"user@evil.example.com".to_vec())),
    ]
}

// I9
#[test]
fn an_undecided_request_is_refused_by_deny_and_never_allowed() {
    for (condition, sample) in untestable() {
        let deny = |condition: Value| json!({"deny": [condition]});
        assert_eq!(listed(&deny(condition.clone()), &sample), Listed::Blocked, "{condition}");
        let not = json!({"methods": ["GET"], "not": condition});
        let mut get = sample.clone();
        get.has.insert("method".into(), b"GET".to_vec());
        assert_eq!(listed(&deny(not.clone()), &get), Listed::Blocked, "not {condition}");
        assert_eq!(listed(&deny(not.clone()), &sample), Listed::No, "what surely fails stays so");
        for condition in [condition.clone(), json!({"any": [condition]}), json!({"not": condition})] {
            let allow = json!({"allow": [condition]});
            assert_eq!(listed(&allow, &sample), Listed::No, "{condition}");
        }
        let both = json!({"allow": [condition], "deny": [condition]});
        assert_eq!(listed(&both, &sample), Listed::Blocked, "{condition}");
    }
}

// I9
#[test]
fn a_rule_counts_an_undecided_request() {
    for (condition, mut sample) in untestable() {
        for condition in [condition.clone(), json!({"any": [condition]}), json!({"not": condition})] {
            let (indexed, plain) = met(&rules(core::slice::from_ref(&condition)), &mut sample);
            assert_eq!((indexed, plain), (vec![0], vec![0]), "{condition}");
        }
    }
}

/// The names of the rules that limit the request.
fn tier_of(mut rule: Value, tiers: &Value, sample: &Sample) -> Vec<String> {
    (rule["key"], rule["tiers"]) = (json!(["client_address"]), tiers.clone());
    let (rules, mut values, mut room) = (listing(&json!({"rules": [rule]})), Values::default(), Bits::default());
    let (mut sample, mut out) = (sample.clone(), vec![]);
    let mut request = Fetched::new(&mut sample, rules.attributes(), &mut values);
    let met = rules.find_matches(&mut request, &mut room, &mut out);
    let limiting = met.iter().map(|i| &rules.rules()[usize::from(*i)]).filter(|rule| !rule.variant.is_unlimited());
    limiting.map(|rule| rule.name.clone()).collect()
}

#[test]
fn an_undecided_request_gets_its_lowest_possible_tier() {
    for (unsure, sample) in untestable() {
        let sure = json!({"addresses": ["192.0.2.0/24"]});
        let mut here = sample.clone();
        here.has.insert("address".into(), b"192.0.2.1".to_vec());
        for (tiers, from_here, from_elsewhere) in [
            (json!([{"name": "t", "when": unsure, "unlimited": true}]), "a", "a"),
            (json!([{"name": "t", "when": unsure, "times": 2}]), "a", "a"),
            (json!([{"name": "t", "when": unsure, "rate": "20/s", "burst": 5}]), "a", "a"),
            (json!([{"name": "t", "when": unsure, "rate": "5/s"}]), "a.t", "a.t"),
            (json!([{"name": "t", "when": unsure, "rate": "10/s", "burst": 5}]), "a.t", "a.t"),
            // The first tier is undecided. If it does not hold, the second does, or none.
            (json!([{"name": "t", "when": unsure, "times": 2}, {"name": "u", "when": sure, "times": 9}]), "a.t", "a"),
            (json!([{"name": "t", "when": unsure, "times": 9}, {"name": "u", "when": sure, "times": 2}]), "a.u", "a"),
            (
                json!([{"name": "t", "when": sure, "unlimited": true}, {"name": "u", "when": unsure, "rate": "1/s"}]),
                "",
                "a.u",
            ),
            (
                json!([{"name": "t", "when": unsure, "rate": "1/s"}, {"name": "u", "when": unsure, "rate": "2/s"}]),
                "a.t",
                "a.t",
            ),
        ] {
            let of = |sample| tier_of(json!({"name": "a", "rate": "10/s"}), &tiers, sample).concat();
            assert_eq!((&*of(&here), &*of(&sample)), (from_here, from_elsewhere), "{tiers}");
        }
        for strict in [false, true] {
            let in_flight = json!({
                "name": "a", "algorithm": "concurrency", "limit": 4, "expires_after_s": 60, "strict": strict,
            });
            let tiers = json!([{"name": "t", "when": unsure, "limit": 2, "expires_after_s": 10}]);
            assert_eq!(tier_of(in_flight, &tiers, &sample).concat(), "a.t");
        }
    }
}
