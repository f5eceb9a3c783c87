use crate::document::{Document, Form};

fn document(text: &str) -> Document {
    Document::read(text.as_bytes(), Form::Yaml).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// The sentences about the only written rule, and about those that it makes.
fn sentences_of(rule: &str) -> Vec<String> {
    let document = document(&format!("rules:\n- {rule}\n"));
    let rules = document.rules();
    rules.rules().iter().flat_map(|rule| super::sentences(rule, rules)).collect()
}

fn assert_sentences(rule: &str, sentences: &[&str]) {
    let all = sentences_of(rule);
    for sentence in sentences {
        assert!(all.iter().any(|found| found == sentence), "{rule}: no `{sentence}` in {all:#?}");
    }
}

#[test]
fn every_algorithm_has_its_words() {
    for (fields, words) in [
        ("rate: 100/15m, burst: 50", "100/15m, 50 at once"),
        (
            "rate: 20/h, algorithm: fixed_window",
            "20 in each window of an hour; each key's windows begin at a time of their own",
        ),
        ("rate: 20/2h, algorithm: sliding_window", "20 in any 2 hours, estimated from the counts of two windows"),
        ("rate: 5/m, algorithm: sliding_log", "5 in any minute, to the letter"),
        (
            "rate: 10/s, algorithm: leaky_bucket, queue: 25",
            "10/s, one after the other: 25 wait for their turn, the last for 2.5 s, the rest is limited at once",
        ),
        ("rate: 10/s, algorithm: leaky_bucket", "10/s, one after the other; none waits, the rest is limited at once"),
        (
            "limit: 7, algorithm: concurrency, expires_after_s: 90",
            "7 in flight at once; after 90 seconds a request counts no more",
        ),
        ("rate: 9/month, algorithm: quota", "9 in each month of the calendar (UTC), counted for the whole fleet"),
    ] {
        let found = sentences_of(&format!("{{name: a, key: [host], {fields}}}"));
        assert_eq!(found[0], format!("a: counts every request by host; allows each {words}."));
    }
    let queue = "rate: 10/s, algorithm: leaky_bucket, queue: 25, strict: true";
    let of_fleet = "10/s, one after the other over the whole fleet: 25 wait for their turn, the last for 2.5 s, the \
        rest is limited at once";
    assert_eq!(
        sentences_of(&format!("{{name: a, key: [host], {queue}}}"))[0],
        format!("a: counts every request by host; allows each {of_fleet}.")
    );
    assert_sentences("{name: a, key: [host], rate: 1/s, algorithm: fixed_window}", &["Each POP counts for itself."]);
}

#[test]
fn the_limit_of_any_window_is_shown_once() {
    for (fields, expected) in [
        ("rate: 5/m, strict: true", Some("In any minute up to 10 requests.")),
        ("rate: 100/15m, burst: 50", Some("In any 15 minutes up to 150 requests.")),
        ("rate: 100/m, cost: 5", Some("In any minute up to 200 tokens.")),
        ("rate: 20/h, algorithm: fixed_window", Some("At each POP, in any hour up to 40 requests.")),
        ("rate: 20/h, algorithm: fixed_window, strict: true", Some("In any hour up to 40 requests.")),
        ("rate: 20/h, algorithm: sliding_window", Some("At each POP, in any hour up to 40 requests.")),
        ("rate: 9/month, algorithm: quota", Some("In any month up to 18 requests.")),
        ("rate: 10/s, algorithm: leaky_bucket, queue: 5", Some("At each POP, in any second up to 11 requests.")),
        ("rate: 5/m, algorithm: sliding_log, strict: true", None),
        ("limit: 7, algorithm: concurrency", None),
    ] {
        let sentences =
            sentences_of(&format!("{{name: a, key: [host], {fields}, tiers: [{{name: t, when: {{}}, times: 2}}]}}"));
        let found: Vec<_> = sentences.iter().filter(|line| line.contains("n any") && line.contains("up to")).collect();
        assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{fields}");
    }
}

#[test]
fn every_cost_has_its_words() {
    let after = "A request needs a token to be there and takes none; its response is charged:";
    for (cost, words) in [
        ("5", "A request takes 5 tokens.".to_owned()),
        (
            "{header: X-Cost, default: 2, max: 8}",
            "A request takes as many tokens as its header x-cost states, at most 8, or 2 if it states none.".into(),
        ),
        (
            "{after: {status: [401, 403]}}",
            format!("{after} one token if its status is 401 or 403, else nothing, even into debt."),
        ),
        (
            "{after: {header: x-tokens, max: 9}}",
            format!(
                "{after} as many tokens as its header x-tokens states, at most 9, or 0 if it states none, even into \
                 debt."
            ),
        ),
        (
            "{after: {response_bytes_per: 1024}}",
            format!("{after} one token for every 1024 bytes of it, even into debt."),
        ),
        (
            "{after: {metadata: [llm, total_tokens], max: 9}, reserve: 5}",
            "A request reserves 5 tokens; its response is charged instead: as many tokens as the metadata \
             llm.total_tokens states, at most 9, or what was reserved if it states none, even into debt."
                .into(),
        ),
        (
            "{after: {status: [401]}, reserve: {header: x-cost, max: 8}}",
            "A request reserves as many tokens as its header x-cost states, at most 8, or 1 if it states none; its \
             response is charged instead: one token if its status is 401, else nothing, even into debt."
                .into(),
        ),
    ] {
        assert_sentences(&format!("{{name: a, key: [host], rate: 10/s, cost: {cost}}}"), &[&words]);
    }
    assert!(!sentences_of("{name: a, key: [host], rate: 10/s, cost: 1}").iter().any(|found| found.contains("takes")));
}

#[test]
fn tiers_and_wider_prefixes_and_the_rules_they_make() {
    assert_sentences(
        "{name: a, key: [client_address], rate: 10/s, also_by_prefix: [{ipv4: 24, times: 8}], tiers: [\
         {name: gold, when: {headers: [{name: x, equals: y1}]}, times: 3}, {name: vip, when: {routes: [v]}, \
         unlimited: true}, {name: own, when: {routes: [w]}, rate: 5/m, burst: 7}]}",
        &[
            "a: counts every request by client address (IPv4 /32, IPv6 /64); allows each 10/s, 10 at once.",
            "Tier gold, for requests whose header x is \"y1\": 3 times as much.",
            "Tier vip, for requests on the route v: not limited.",
            "Tier own, for requests on the route w: 5/m, 7 at once.",
            "The first tier that fits a request counts.",
            "Each IPv4 /24 and IPv6 /64 gets 8 times as much (a.w1); a request needs room there too.",
            "a.w1: a again, over wider addresses (IPv4 /24, IPv6 /64); allows each 80/s, 80 at once.",
            "a.gold: a for its tier gold; allows each 30/s, 30 at once.",
            "a.gold.w1: a for its tier gold, over wider addresses (IPv4 /24, IPv6 /64); allows each 240/s, 240 at \
             once.",
            "a.vip: a for its tier vip; not limited.",
            "a.own: a for its tier own; allows each 5/m, 7 at once.",
        ],
    );
    assert_sentences(
        "{name: c, key: [host], algorithm: concurrency, limit: 2, tiers: [{name: t, when: {}, limit: 4}]}",
        &[
            "Tier t, for every request: 4 in flight.",
            "c.t: c for its tier t; allows each 4 in flight at once; after 5 minutes a request counts no more.",
        ],
    );
    assert_sentences(
        "{name: d, key: [client_address, {jwt_claim: [payload, sub]}], rate: 10/s, tiers: [\
         {name: big, keys: [acme, big-co], times: 3}, {name: own, when: {addresses: [10.0.0.0/8]}, keys: [us], \
         unlimited: true}]}",
        &[
            "Tier big, for requests whose JWT claim payload.sub is \"acme\" or \"big-co\": 3 times as much.",
            "Tier own, for requests from 10.0.0.0/8 and whose JWT claim payload.sub is \"us\": not limited.",
            "d.big: d for its tier big; allows each 30/s, 30 at once.",
        ],
    );
}
