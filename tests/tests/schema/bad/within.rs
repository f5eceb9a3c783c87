//! Wrong conditions, responses and tiers.

use serde_json::{Map, Value, json};

use super::{many, x};

pub(super) fn conditions() -> Vec<Value> {
    vec![
        json!([]),
        json!({"hosts": []}),
        json!({"hosts": "a.example:80"}),
        json!({"hosts": ["a.example:80"]}),
        json!({"hosts": ["a.*.example"]}),
        json!({"hosts": ["*"]}),
        json!({"hosts": ["a..b"]}),
        json!({"hosts": [x(254)]}),
        json!({"hosts": many(101, |i| format!("h{i}"))}),
        json!({"methods": []}),
        json!({"methods": [""]}),
        json!({"methods": [x(33)]}),
        json!({"methods": ""}),
        json!({"path": "x"}),
        json!({"path": {}}),
        json!({"path": {"exact": "x"}}),
        json!({"path": {"exact": "/x", "prefix": "/y"}}),
        json!({"path": {"regex": "/x"}}),
        json!({"path": {"glob": "*"}}),
        json!({"path": {"exact": "/x", "case": "lower"}}),
        json!({"path": {"slashes": "ignore"}}),
        json!({"path": {"glob": format!("/{}", x(255))}}),
        json!({"path": {"prefix": format!("/{}", x(1_024))}}),
        json!({"path": {"exact": "/a"}, "paths": [{"exact": "/b"}]}),
        json!({"paths": []}),
        json!({"addresses": ["a.example"]}),
        json!({"addresses": []}),
        json!({"addresses": many(10_001, |_| "::1")}),
        json!({"routes": [""]}),
        json!({"routes": [x(257)]}),
        json!({"any": []}),
        json!({"any": [{}]}),
        json!({"not": {}}),
        json!({"not": {"not": {"methods": ["GET"]}}}),
        json!({"any": [{"any": [{"methods": ["GET"]}]}]}),
        json!({"not": [{"methods": ["GET"]}]}),
        json!({"query": [{"name": "q"}]}),
        json!({"query": [{"name": "", "present": true}]}),
        json!({"method": "GET", "methods": ["GET"]}),
        json!({"methods": null}),
        json!({"not": {"path": {"exact": "/a"}, "paths": [{"exact": "/b"}]}}),
    ]
}

pub(super) fn tests() -> Vec<Value> {
    vec![
        json!({"name": "a"}),
        json!({"equals": "b"}),
        json!({"name": "a b", "equals": "b"}),
        json!({"name": x(257), "equals": "b"}),
        json!({"name": "a", "equals": "b", "prefix": "b"}),
        json!({"name": "a", "equals": ""}),
        json!({"name": "a", "equals": 1}),
        json!({"name": "a", "in": []}),
        json!({"name": "a", "in": ""}),
        json!({"name": "a", "in": many(10_001, |i| i.to_string())}),
        json!({"name": "a", "prefix": x(1_025)}),
        json!({"name": "a", "regex": x(257)}),
        json!({"name": "a", "present": "yes"}),
        json!({"name": "a", "suffix": "b"}),
        json!({"name": "a", "equals": "b", "duplicates": "all"}),
        json!({"name": "a", "duplicates": "first"}),
    ]
}

/// A claim's, of which only the name is read in a way of its own.
pub(super) fn claims() -> Vec<Value> {
    vec![
        json!({"present": true}),
        json!({"name": "", "present": true}),
        json!({"name": [], "present": true}),
        json!({"name": [""], "present": true}),
        json!({"name": [x(129)], "present": true}),
        json!({"name": ["a\0b"], "present": true}),
        json!({"name": many(9, |i| i.to_string()), "present": true}),
        json!({"name": ["a"]}),
        json!({"name": ["a"], "equals": 1}),
        json!({"name": ["a"], "equals": "b", "present": true}),
    ]
}

pub(super) fn responses() -> Vec<Value> {
    let headers: Map<_, _> = (0..21).map(|i| (format!("x-{i}"), json!("a"))).collect();
    vec![
        json!({"status": 200}),
        json!({"status": 600}),
        json!({"headers": ["x"]}),
        json!({"headers": "rate"}),
        json!({"on_allowed": 1}),
        json!({"on_shadow": 1}),
        json!({"reset": "unix"}),
        json!({"body": ""}),
        json!({"body": x(8_193)}),
        json!({"body": "{{key}}"}),
        json!({"body": "a {{rule"}),
        json!({"body": "{{{rule}}"}),
        json!({"content_type": "text"}),
        json!({"content_type": "text/plain "}),
        json!({"set_headers": {}}),
        json!({"set_headers": {"a b": "c"}}),
        json!({"set_headers": {"Connection": "close"}}),
        json!({"set_headers": {"x-a": ""}}),
        json!({"set_headers": {"x-a": " b"}}),
        json!({"set_headers": {"x-a": "\u{e9}"}}),
        json!({"set_headers": {"x-a": "{{key}}"}}),
        json!({"set_headers": {"x-a": x(1_025)}}),
        json!({"set_headers": headers}),
        json!({"retry_after_jitter_s": 3_601}),
    ]
}

pub(super) fn tiers() -> Vec<(Value, Value)> {
    let (plain, concurrency) = (json!({}), json!({"algorithm": "concurrency", "rate": "absent", "limit": 5}));
    let quota = json!({"algorithm": "quota", "rate": "1/day"});
    let of_bucket = [
        json!({}),
        json!({"name": "T", "times": 2}),
        json!({"when": null, "times": 2}),
        json!({"times": 0}),
        json!({"times": 1_001}),
        json!({"unlimited": false}),
        json!({"unlimited": true, "times": 2}),
        json!({"times": 2, "rate": "1/s"}),
        json!({"times": 2, "burst": 5}),
        json!({"rate": "1/month"}),
        json!({"rate": "1/s", "queue": 5}),
        json!({"limit": 5}),
        json!({"rate": "1/s", "burst": 0}),
        json!({"keys": [], "times": 2}),
        json!({"keys": "", "times": 2}),
        json!({"keys": [""], "times": 2}),
        json!({"keys": [x(1_025)], "times": 2}),
        json!({"keys": null, "times": 2}),
        json!({"keys": many(10_001, |i| i.to_string()), "times": 2}),
    ];
    let mut all: Vec<_> = of_bucket.into_iter().map(|one| (one, plain.clone())).collect();
    all.extend(
        [
            json!({"rate": "1/s"}),
            json!({"rate": "1/s", "limit": 5}),
            json!({"expires_after_s": 5, "times": 2}),
        ]
        .map(|t| (t, concurrency.clone())),
    );
    all.extend([json!({"rate": "1/s"}), json!({"rate": "1/day", "burst": 5})].map(|t| (t, quota.clone())));
    all.push((json!({"rate": "1/s", "burst": 5}), json!({"algorithm": "leaky_bucket"})));
    all
}
