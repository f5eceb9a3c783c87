//! An edge without a host: configured, asked, ticked and answered by hand.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::counters::Event;
use weir_rules::request::{Attribute, Request};
use weir_wire::messages::{
    AdmitRatio, Allowance, Grant, Leased, Message, REPORT_PATH, Replies, Reply, Report, Running, Settled,
    Version,
};
use weir_wire::time::SECOND_NS;
use weir_wire::time::Time;

const T0: Time = Time::from_nanos(1_000 * SECOND_NS);
const INTERVAL_NS: u64 = SECOND_NS / 4;
const STRICT: &str = r#""rate": "2/s", "strict": true"#;

/// All of a quota.
const WHOLE: Grant =
    Grant { ratio: AdmitRatio::ONE, level_milli: 100_000, burst: 100, parts: 1, lease_ms: 2_000 };

/// A request from an address.
struct Client(&'static str);

impl Request for Client {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        (*attribute == Attribute::SourceAddress).then(|| self.0.as_bytes().to_vec())
    }
}

fn client() -> Client {
    Client("192.0.2.1:80")
}

/// The rule `r` for every client.
fn rule(fields: &str) -> String {
    format!(r#"{{"name": "r", "key": ["client_address"], {fields}}}"#)
}

/// An edge with this rule, in a fleet or alone, and what it is to do first.
fn configured(fields: &str, is_in_a_fleet: bool, site: &mut LocalSite) -> (Edge, Vec<Effect>) {
    let sync = if is_in_a_fleet { r#", "sync": {"cluster": "weir-sync", "pop": "fra1"}"# } else { "" };
    let configuration = format!(r#"{{"rules": [{}]{sync}}}"#, rule(fields));
    site.random += 1;
    Edge::configure(configuration.as_bytes(), HostRules::default(), site, T0).expect("a good configuration")
}

fn site() -> LocalSite {
    LocalSite::new([7; 16], 1)
}

/// What becomes of a request: `continue`, `hold`, or the answer's status.
fn shown(step: &Step<'_>) -> String {
    match step {
        Step::Continue => "continue".to_owned(),
        Step::Hold => "hold".to_owned(),
        Step::Call(_) => "call".to_owned(),
        Step::Answer(answer) => format!("{}", answer.status),
    }
}

fn asked(edge: &mut Edge, open: &mut Open, site: &mut LocalSite, now: Time) -> String {
    shown(&edge.request(open, &mut client(), site, now).step)
}

fn calls(effects: Vec<Effect>) -> Vec<Call> {
    let call = |effect| if let Effect::Call(call) = effect { Some(call) } else { None };
    effects.into_iter().filter_map(call).collect()
}

fn logged(effects: &[Effect]) -> Vec<&str> {
    effects
        .iter()
        .filter_map(|e| if let Effect::Log(_, text) = e { Some(text.as_str()) } else { None })
        .collect()
}

/// A reply to the report in `call`; each key gets `allowance`.
fn reply(call: &Call, allowance: &Allowance, rule_set: u64) -> Vec<u8> {
    let report = Report::decode(&call.body).expect("a report");
    let grants = vec![*allowance; report.keys.len()];
    let sequence = report.sequence;
    Reply { sequence, pops: 1, settled: Settled::All, grants, rule_set, ..Reply::default() }.encode()
}

/// The call that the request of `open` is held for.
fn waiting(edge: &mut Edge, open: &mut Open, site: &mut LocalSite) -> Call {
    match edge.request(open, &mut client(), site, T0).step {
        Step::Call(call) => call,
        other => panic!("expected it to wait, found {}", shown(&other)),
    }
}

#[test]
fn a_request_that_waits_goes_on_with_its_answer() {
    let mut site = site();
    let (mut edge, _) = configured(STRICT, true, &mut site);
    for (tokens, expected) in [(1, "continue"), (0, "429")] {
        let mut open = Open::new(5);
        let call = waiting(&mut edge, &mut open, &mut site);
        assert_eq!(call.path, REPORT_PATH);
        assert!(!open.is_done());
        let answer = Ok(reply(&call, &Allowance::Leased(Leased::of(tokens, 2_000)), 0));
        let decided =
            edge.answer_request(&mut open, (call.number, answer), &mut client(), &mut site, T0 + 1_000_000);
        assert_eq!(shown(&decided.expect("it waited").step), expected);
        assert!(open.is_done());
    }
}

/// What becomes of the request that waits for `call`, whose answer at `now` is this.
fn answered(
    edge: &mut Edge,
    open: &mut Open,
    call: &Call,
    answer: Answered,
    site: &mut LocalSite,
    now: Time,
) -> Result<String, Call> {
    let decided = edge.answer_request(open, (call.number, answer), &mut client(), site, now);
    match decided.expect("it waited").step {
        Step::Call(call) => Err(call),
        step => Ok(shown(&step)),
    }
}

fn failed() -> Answered {
    Err(Unread::Failed("no route".into()))
}

/// weir-sync answers the greeting of `edge`, which takes this long.
fn greeted(edge: &mut Edge, site: &mut LocalSite, takes_ns: u64) -> Call {
    let [greeting] = calls(edge.tick(site, T0)).try_into().expect("a greeting");
    edge.answer(greeting.number, Ok(reply(&greeting, &Allowance::Warm, 0)), site, T0 + takes_ns);
    greeting
}

#[test]
fn a_call_that_fails_is_made_once_more_and_then_the_rule_decides() {
    for (second, expected) in [(Some(1), "continue"), (Some(0), "429"), (None, "503")] {
        let (mut site, mut open) = (site(), Open::new(5));
        let (mut edge, _) = configured(STRICT, true, &mut site);
        greeted(&mut edge, &mut site, 1_000_000);
        let first = waiting(&mut edge, &mut open, &mut site);
        let soon = T0 + 20_000_000;
        let again = answered(&mut edge, &mut open, &first, failed(), &mut site, soon).unwrap_err();
        assert_eq!((first.timeout_ms, again.timeout_ms), (500, 980), "what is left of a second");
        // It is the same draw: what it debited is not debited again.
        assert_eq!((first.number, first.body), (again.number, again.body.clone()));
        let answer = second.map(|n| reply(&again, &Allowance::Leased(Leased::of(n, 2_000)), 0));
        let answer = answer.map_or_else(failed, Ok);
        assert_eq!(answered(&mut edge, &mut open, &again, answer, &mut site, soon).unwrap(), expected);
        assert!(open.is_done());
    }
}

/// weir-sync cannot read what it is sent.
fn not_read() -> Answered {
    Err(Unread::NotRead("status 400".into()))
}

fn version_of(call: &Call) -> Version {
    Report::read(&call.body).expect("a report").0
}

#[test]
fn an_older_weir_sync_is_spoken_to_in_its_version_and_nothing_is_lost() {
    let mut site = site();
    site.set_heard(&Heard { pops: 3, is_guess: false, at: T0 });
    let (mut edge, _) = configured(r#""rate": "10/h", "burst": 10"#, true, &mut site);
    for _ in 0..10 {
        asked(&mut edge, &mut Open::new(1), &mut site, T0);
    }
    let [first] = calls(edge.tick(&mut site, T0)).try_into().expect("a report");
    assert_eq!(version_of(&first), Version::Latest);
    assert_eq!(logged(&edge.answer(first.number, not_read(), &mut site, T0)), [""; 0]);
    let mut versions = Vec::new();
    for n in 1..=48 {
        let now = T0 + n * INTERVAL_NS;
        let [call] = calls(edge.tick(&mut site, now)).try_into().expect("a report");
        let (version, said) = Report::read(&call.body).expect("a report");
        if n == 1 {
            assert_eq!((said.keys[0].admitted, said.keys[0].unconfirmed), (10, 10), "it is said again");
        }
        let answer =
            if version == Version::Latest { not_read() } else { Ok(reply(&call, &Allowance::Warm, 0)) };
        assert_eq!(logged(&edge.answer(call.number, answer, &mut site, now)), [""; 0]);
        versions.push(version);
    }
    let tried = versions.iter().filter(|version| **version == Version::Latest).count();
    assert_eq!(tried, 1, "once in ten seconds: {versions:?}");
    assert_eq!(edge.counters().take_event(Event::SyncFailed), 2);
}

/// An older weir-sync that is far away.
#[test]
fn reports_that_were_under_way_when_the_first_was_not_read_say_nothing_against_weir_sync() {
    let mut site = site();
    let (mut edge, _) = configured(r#""rate": "10/h", "burst": 10"#, true, &mut site);
    let under_way: Vec<Call> =
        (0..3).flat_map(|n| calls(edge.tick(&mut site, T0 + n * INTERVAL_NS))).collect();
    assert_eq!(under_way.len(), 3);
    let late = T0 + 3 * INTERVAL_NS;
    for call in &under_way {
        assert_eq!(logged(&edge.answer(call.number, not_read(), &mut site, late)), [""; 0]);
    }
    let [call] = calls(edge.tick(&mut site, late)).try_into().expect("a report");
    assert_eq!(version_of(&call), Version::Before);
    let refused_again = edge.answer(call.number, not_read(), &mut site, late + INTERVAL_NS);
    assert_eq!(logged(&refused_again).len(), 1, "it is not for the version");
}

/// As behind one address while an upgrade is under way.
#[test]
fn of_an_older_and_a_newer_weir_sync_in_turn_the_older_refuses_one_report_in_ten_seconds() {
    let mut site = site();
    let (mut edge, _) = configured(r#""rate": "100/s", "burst": 100"#, true, &mut site);
    site.set_heard(&Heard { pops: 30, is_guess: false, at: T0 });
    let (mut refused, mut admitted, mut charged) = (0, 0, 0);
    for n in 0..240 {
        let now = T0 + n * INTERVAL_NS;
        for _ in 0..4 {
            admitted += u64::from(asked(&mut edge, &mut Open::new(1), &mut site, now) == "continue");
        }
        let [call] = calls(edge.tick(&mut site, now)).try_into().expect("a report");
        let (version, said) = Report::read(&call.body).expect("a report");
        let answer = if n % 2 == 0 && version == Version::Latest {
            refused += 1;
            not_read()
        } else {
            charged = said.keys.first().map_or(charged, |key| key.admitted);
            Ok(reply(&call, &Allowance::Hot(WHOLE), 0))
        };
        edge.answer(call.number, answer, &mut site, now);
    }
    assert!((6..=7).contains(&refused), "{refused} in a minute");
    assert_eq!((charged, edge.counters().take_event(Event::SyncFailed)), (admitted, refused));
}

#[test]
fn a_draw_that_an_older_weir_sync_cannot_read_is_made_again_in_its_version() {
    for is_first_ever in [true, false] {
        let (mut site, mut open) = (site(), Open::new(5));
        let (mut edge, _) = configured(STRICT, true, &mut site);
        if !is_first_ever {
            let [greeting] = calls(edge.tick(&mut site, T0)).try_into().expect("a greeting");
            edge.answer(greeting.number, not_read(), &mut site, T0);
        }
        let mut call = waiting(&mut edge, &mut open, &mut site);
        if is_first_ever {
            assert_eq!(version_of(&call), Version::Latest);
            call = answered(&mut edge, &mut open, &call, not_read(), &mut site, T0).unwrap_err();
        }
        assert_eq!(version_of(&call), Version::Before);
        let answer = Ok(reply(&call, &Allowance::Leased(Leased::of(1, 2_000)), 0));
        assert_eq!(answered(&mut edge, &mut open, &call, answer, &mut site, T0).unwrap(), "continue");
    }
}

#[test]
fn a_call_without_an_answer_is_made_again_after_half_of_the_time() {
    let (mut site, mut open) = (site(), Open::new(5));
    let (mut edge, _) = configured(STRICT, true, &mut site);
    greeted(&mut edge, &mut site, 1_000_000);
    let first = waiting(&mut edge, &mut open, &mut site);
    let half = T0 + 501_000_000;
    let again = answered(&mut edge, &mut open, &first, failed(), &mut site, half).unwrap_err();
    assert_eq!(again.timeout_ms, 499);
    let end = T0 + SECOND_NS;
    assert_eq!(answered(&mut edge, &mut open, &again, failed(), &mut site, end).unwrap(), "503");
}

#[test]
fn a_call_that_the_host_could_not_make_is_not_repeated_at_once() {
    let (mut site, mut open) = (site(), Open::new(5));
    let (mut edge, _) = configured(STRICT, true, &mut site);
    greeted(&mut edge, &mut site, 1_000_000);
    let call = waiting(&mut edge, &mut open, &mut site);
    let not_made = Err(Unread::NotMade("no such cluster".into()));
    assert_eq!(answered(&mut edge, &mut open, &call, not_made, &mut site, T0).unwrap(), "503");
    assert!(open.is_done());
    let next = waiting(&mut edge, &mut Open::new(6), &mut site);
    assert_eq!(Report::decode(&next.body).unwrap().keys[0].ahead, 1, "the next request asks for itself");
}

#[test]
fn where_no_call_may_be_made_from_an_answer_a_draw_that_fails_is_not_sent_again() {
    let (mut site, mut open) = (site(), Open::new(5));
    let (mut edge, _) = configured(STRICT, true, &mut site);
    edge.host.calls_from_answers = false;
    greeted(&mut edge, &mut site, 1_000_000);
    let call = waiting(&mut edge, &mut open, &mut site);
    assert_eq!(call.timeout_ms, 1_000, "all of the time");
    assert_eq!(answered(&mut edge, &mut open, &call, failed(), &mut site, T0).unwrap(), "503");
}

/// If the first call were given up at half of the time there, no answer would ever be in time.
#[test]
fn where_answers_take_long_or_none_came_yet_the_first_call_has_all_of_the_time() {
    for takes_ns in [Some(SECOND_NS * 2 / 5), None] {
        let (mut site, mut open) = (site(), Open::new(5));
        let (mut edge, _) = configured(STRICT, true, &mut site);
        if let Some(takes_ns) = takes_ns {
            greeted(&mut edge, &mut site, takes_ns);
        }
        let first = waiting(&mut edge, &mut open, &mut site);
        assert_eq!(first.timeout_ms, 1_000);
        let end = T0 + SECOND_NS;
        assert_eq!(answered(&mut edge, &mut open, &first, failed(), &mut site, end).unwrap(), "503");
    }
}

/// An answer to a draw tells how long answers take, unless the draw was sent twice.
#[test]
fn once_a_draw_was_answered_quickly_the_next_is_given_half_of_the_time() {
    for (fails_first, expected_ms) in [(false, 500), (true, 1_000)] {
        let (mut site, mut open) = (site(), Open::new(5));
        let (mut edge, _) = configured(STRICT, true, &mut site);
        let mut call = waiting(&mut edge, &mut open, &mut site);
        if fails_first {
            call = answered(&mut edge, &mut open, &call, failed(), &mut site, T0).unwrap_err();
        }
        let answer = Ok(reply(&call, &Allowance::Leased(Leased::of(1, 2_000)), 0));
        let soon = T0 + 1_000_000;
        assert_eq!(answered(&mut edge, &mut open, &call, answer, &mut site, soon).unwrap(), "continue");
        let mut next = Open::new(6);
        assert_eq!(waiting(&mut edge, &mut next, &mut site).timeout_ms, expected_ms);
    }
}

/// The weir-sync that was asked first may have answered, with bans and grants that never arrived.
#[test]
fn what_the_first_answer_to_a_draw_that_was_sent_twice_pushed_counts_as_lost() {
    let (mut site, mut open) = (site(), Open::new(5));
    let (mut edge, _) = configured(STRICT, true, &mut site);
    let first = waiting(&mut edge, &mut open, &mut site);
    let again = answered(&mut edge, &mut open, &first, failed(), &mut site, T0).unwrap_err();
    let answer = Ok(reply(&again, &Allowance::Leased(Leased::of(1, 2_000)), 0));
    assert_eq!(answered(&mut edge, &mut open, &again, answer, &mut site, T0).unwrap(), "continue");
    let [report] = calls(edge.tick(&mut site, T0 + SECOND_NS)).try_into().expect("a report");
    let said = Report::decode(&report.body).expect("it is one");
    assert_eq!(said.replies, Replies { done: first.number, lost: first.number });
}

#[test]
fn what_a_request_waits_for_is_kept_for_it_until_its_time_out() {
    let mut site = site();
    let sync = r#""sync": {"cluster": "weir-sync", "pop": "fra1", "timeout_ms": 5000}"#;
    let configuration = format!(r#"{{"rules": [{}], {sync}}}"#, rule(STRICT));
    let [mut first, mut second] = [(); 2].map(|()| {
        site.random += 1;
        Edge::configure(configuration.as_bytes(), HostRules::default(), &mut site, T0).expect("a good one").0
    });
    waiting(&mut first, &mut Open::new(1), &mut site);
    let late = T0 + 4_500_000_000;
    let step = second.request(&mut Open::new(2), &mut client(), &mut site, late).step;
    let Step::Call(call) = step else { panic!("expected it to wait, found {}", shown(&step)) };
    assert_eq!(Report::decode(&call.body).expect("a report").keys[0].ahead, 2, "one for each of the two");
}

#[test]
fn a_request_that_ends_while_it_waits_is_not_answered() {
    let mut site = site();
    let (mut edge, _) = configured(STRICT, true, &mut site);
    let mut open = Open::new(5);
    let call = waiting(&mut edge, &mut open, &mut site);
    edge.end(&mut open, &mut site, T0);
    assert!(open.is_done());
    let answer = Ok(reply(&call, &Allowance::Leased(Leased::of(1, 2_000)), 0));
    assert!(edge.answer_request(&mut open, (call.number, answer), &mut client(), &mut site, T0).is_none());
}

#[test]
fn an_answer_to_a_call_that_is_not_under_way_changes_nothing() {
    let mut site = site();
    let (mut edge, _) = configured(r#""rate": "1/h", "burst": 2"#, true, &mut site);
    let [call] = calls(edge.tick(&mut site, T0)).try_into().expect("a greeting");
    let good = reply(&call, &Allowance::Warm, 0);
    assert!(edge.answer(call.number + 1, Ok(good.clone()), &mut site, T0).is_empty());
    assert_eq!(site.heard(), None);
    edge.answer(call.number, Ok(good.clone()), &mut site, T0);
    assert_eq!(site.heard(), Some(Heard { pops: 1, is_guess: false, at: T0 }));
    // Once is enough.
    edge.answer(call.number, Ok(good), &mut site, T0 + SECOND_NS);
    assert_eq!(site.heard().map(|heard| heard.at), Some(T0));
}

#[test]
fn trouble_is_logged_when_it_begins_and_when_it_ends() {
    let mut site = site();
    let (mut edge, _) = configured(r#""rate": "1/h""#, true, &mut site);
    let mut log = Vec::new();
    for (n, fails) in [(1, true), (2, true), (3, false), (4, false)] {
        let now = T0 + n * INTERVAL_NS;
        let [call] = calls(edge.tick(&mut site, now)).try_into().expect("a greeting");
        let good = reply(&call, &Allowance::Warm, 0);
        let answer = if fails { Err(Unread::Failed("no route".into())) } else { Ok(good) };
        log.extend(logged(&edge.answer(call.number, answer, &mut site, now)).iter().map(|&s| s.to_owned()));
    }
    assert_eq!(log, ["no route; requests are decided locally until it works", "weir-sync answers again"]);
}

#[test]
fn one_worker_greets_for_all() {
    let mut site = site();
    let [mut first, mut second] = [(); 2].map(|()| configured(r#""rate": "1/h""#, true, &mut site).0);
    let greets = |edge: &mut Edge, site: &mut LocalSite, now| calls(edge.tick(site, now)).len();
    assert_eq!(greets(&mut first, &mut site, T0), 1);
    assert_eq!(greets(&mut second, &mut site, T0 + INTERVAL_NS / 2), 0);
    assert_eq!(greets(&mut first, &mut site, T0 + INTERVAL_NS), 1);
    // A clock that went back does not silence the POP until it has caught up.
    assert_eq!(greets(&mut second, &mut site, Time::from_nanos(1)), 1);
}

#[test]
fn a_worker_that_ends_leaves_its_keys_to_the_next() {
    let mut site = site();
    // A key that takes more than its even share is reported.
    site.set_heard(&Heard { pops: 3, is_guess: false, at: T0 });
    let (mut edge, _) = configured(r#""rate": "10/h", "burst": 10"#, true, &mut site);
    for _ in 0..10 {
        asked(&mut edge, &mut Open::new(1), &mut site, T0);
    }
    edge.leave(&mut site);
    let (mut next, _) = configured(r#""rate": "10/h", "burst": 10"#, true, &mut site);
    let [call] = calls(next.tick(&mut site, T0)).try_into().expect("a report");
    let report = Report::decode(&call.body).expect("a report");
    assert_eq!(report.keys.iter().map(|key| key.admitted).collect::<Vec<_>>(), [10]);
    assert_eq!(site.take_parted(), None, "it is taken once");
}

#[test]
fn a_held_request_goes_on_in_its_turn() {
    let mut site = site();
    let leaky = r#""algorithm": "leaky_bucket", "rate": "10/s", "queue": 2"#;
    let (mut edge, effects) = configured(leaky, false, &mut site);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::SetTimer(10))), "as often as turns come");
    let told = [1, 2, 3, 4].map(|id| asked(&mut edge, &mut Open::new(id), &mut site, T0));
    assert_eq!(told, ["continue", "hold", "hold", "429"]);
    let resumed = |edge: &mut Edge, site: &mut LocalSite, ms: u64| -> Vec<u32> {
        let effects = edge.tick(site, T0 + ms * 1_000_000);
        effects.iter().filter_map(|e| if let Effect::Resume(id) = e { Some(*id) } else { None }).collect()
    };
    let turns = [99, 100, 200, 300].map(|ms| resumed(&mut edge, &mut site, ms));
    assert_eq!(turns, [vec![], vec![2], vec![3], vec![]]);
}

#[test]
fn nothing_is_held_where_no_timer_would_resume_it() {
    let mut site = site();
    let leaky = r#""algorithm": "leaky_bucket", "rate": "10/s", "queue": 2"#;
    let (mut edge, _) = configured(leaky, false, &mut site);
    edge.has_no_timer();
    let told = [1, 2, 3, 4].map(|id| asked(&mut edge, &mut Open::new(id), &mut site, T0));
    assert_eq!(told, ["continue", "continue", "continue", "429"]);
}

/// Tells the edge that the fleet is to run rule set 7, and returns the fetch that it makes.
fn fetch_of_7(edge: &mut Edge, site: &mut LocalSite, now: Time) -> Call {
    let [greeting] = calls(edge.tick(site, now)).try_into().expect("a greeting");
    let answer = Ok(reply(&greeting, &Allowance::Warm, 7));
    let [fetch] = calls(edge.answer(greeting.number, answer, site, now)).try_into().expect("a fetch");
    assert_eq!((fetch.path.as_str(), fetch.body.len()), ("/v1/rules?version=7", 0));
    fetch
}

#[test]
fn a_pushed_rule_set_is_fetched_once_and_in_force_at_every_worker() {
    let mut site = site();
    let [mut edge, mut other] = [(); 2].map(|()| configured(r#""rate": "1/h""#, true, &mut site).0);
    assert_eq!(asked(&mut edge, &mut Open::new(1), &mut site, T0), "continue");
    let fetch = fetch_of_7(&mut edge, &mut site, T0);
    let document = format!(r#"{{"rules": [{}]}}"#, rule(r#""rate": "3/h""#));
    let mut effects = edge.answer(fetch.number, Ok(document.into_bytes()), &mut site, T0);
    assert_eq!(logged(&effects), ["rule set 7 is in force, of 1 rules"]);
    let counted = effects.iter_mut().find_map(|effect| match effect {
        Effect::NewRules(counted) => Some(counted.take_rule(0).allowed),
        _ => None,
    });
    assert_eq!(counted, Some(1), "what the rules before had counted");
    let effects = other.tick(&mut site, T0 + INTERVAL_NS);
    let running = Running { version: 7, refused: 0 };
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Running(found) if *found == running)));
    assert!(calls(effects).iter().all(|call| call.path == REPORT_PATH), "it needs no fetch");
    for edge in [&mut edge, &mut other] {
        assert_eq!(edge.rules().rules()[0].quota.burst(), 3);
    }
    let (late, _) = configured(r#""rate": "1/h""#, true, &mut site);
    assert_eq!(late.rules().rules()[0].quota.burst(), 3, "and at one that begins later");
}

#[test]
fn a_pushed_rule_set_that_is_no_good_is_refused_once() {
    let mut site = site();
    let (mut edge, _) = configured(r#""rate": "1/h""#, true, &mut site);
    let fetch = fetch_of_7(&mut edge, &mut site, T0);
    let effects = edge.answer(fetch.number, Ok(b"{}".to_vec()), &mut site, T0);
    let expected = [
        "rule set 7: rules: missing: expected a list of rules",
        "rule set 7 is refused: correct the places above; what ran before runs on",
    ];
    assert_eq!(logged(&effects), expected);
    let [report] = calls(edge.tick(&mut site, T0 + INTERVAL_NS)).try_into().expect("no second fetch");
    let running = Report::decode(&report.body).expect("a report").running;
    assert_eq!(running, Running { version: 0, refused: 7 });
}

#[test]
fn a_fetch_that_fails_is_made_again() {
    let mut site = site();
    let (mut edge, _) = configured(r#""rate": "1/h""#, true, &mut site);
    let fetch = fetch_of_7(&mut edge, &mut site, T0);
    let effects = edge.answer(fetch.number, Err(Unread::Failed("no route".into())), &mut site, T0);
    assert_eq!(logged(&effects).len(), 1);
    let paths: Vec<String> =
        calls(edge.tick(&mut site, T0 + INTERVAL_NS)).into_iter().map(|call| call.path).collect();
    assert_eq!(paths, ["/v1/rules?version=7", REPORT_PATH]);
}

#[test]
fn rules_that_hold_requests_make_the_timer_quicker() {
    let mut site = site();
    let (mut edge, effects) = configured(r#""rate": "1/h""#, true, &mut site);
    let timer = |effects: &[Effect]| {
        effects.iter().find_map(|e| if let Effect::SetTimer(ms) = e { Some(*ms) } else { None })
    };
    assert_eq!(timer(&effects), Some(250));
    let fetch = fetch_of_7(&mut edge, &mut site, T0);
    let leaky = rule(r#""algorithm": "leaky_bucket", "rate": "10/s", "queue": 2"#);
    let document = format!(r#"{{"rules": [{leaky}]}}"#);
    let effects = edge.answer(fetch.number, Ok(document.into_bytes()), &mut site, T0);
    assert_eq!(timer(&effects), Some(10));
}
