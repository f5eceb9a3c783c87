//! The console: the page at `/`, in a real browser, and the stream that it shows.

#[allow(dead_code, unreachable_pub, reason = "other tests have the same browser")]
#[path = "../../../tests/src/browser.rs"]
mod browser;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::{Value, json};
use weir_protocol::messages::{Report, RuleCounts, StatusReport};

use crate::running::{self, DEADLINE, Running, file, until};
use browser::Browser;

const ALICE: &str = "the-token-of-operator-alice";
const BOARD: &str = "the-token-of-a-dashboard";
/// Keys, as `WebDriver` names them.
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

/// A weir-sync with an operator and a dashboard that may only read, and their file.
fn with_operators() -> (tempfile::NamedTempFile, Running) {
    let (file, path) = file(&format!("alice write {ALICE}\nboard read {BOARD}\n"));
    (file, Running::start(&["--admin-token-file", &path]))
}

/// Puts a rule set in which `login` has this rate.
fn put(running: &Running, rate: &str) -> u64 {
    let rules = format!("rules: [{{name: login, key: [client_address], rate: {rate}}}]");
    let current = running.status("GET /v1/rules", ALICE);
    let condition = if current == 404 { "if-none-match: *" } else { "if-match: *" };
    let headers = format!("content-type: application/yaml\r\n{condition}\r\n");
    let (_, answer) = running.ask("PUT /v1/rules", ALICE, &headers, rules.as_bytes());
    let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    answer["version"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

/// A stream of `/v1/live`, behind its head, and the first line of that.
fn listen(running: &Running, token: &str) -> (String, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(&running.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = format!("GET /v1/live HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut status = String::new();
    reader.read_line(&mut status).unwrap();
    (status, reader)
}

/// The next event of the stream, or `None` if it ends.
fn next_event(stream: &mut BufReader<TcpStream>) -> Option<Value> {
    // The last chunk is empty.
    let mut lines = stream.lines().map(Result::unwrap).take_while(|line| line != "0");
    let event = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned))?;
    Some(serde_json::from_str(&event).unwrap())
}

#[test]
fn the_page_runs_nothing_but_its_own_files() {
    let (_file, running) = with_operators();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/console");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let modules = names
        .filter(|name| name.rsplit_once('.').is_some_and(|(_, extension)| extension == "js"))
        .chain(["uplot.js".into()]);
    let scripts = modules.map(|name| (format!("/{name}"), "text/javascript"));
    let others = [("/", "text/html"), ("/console.css", "text/css"), ("/uplot.css", "text/css")];
    for (path, media_type) in others.map(|(path, of)| (path.to_owned(), of)).into_iter().chain(scripts) {
        let (status, answer) = running.ask(&format!("GET {path}"), "", "", b"");
        assert_eq!(status, 200, "{path}");
        let head = answer.split_once("\r\n\r\n").unwrap().0;
        assert!(head.contains(&format!("content-type: {media_type}; charset=utf-8")), "{head}");
        assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self'; "), "{head}");
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
        assert_eq!(running.status(&format!("POST {path}"), ALICE), 405, "{path}");
    }
}

#[test]
fn the_stream_shows_the_state_to_readers() {
    let (file, running) = with_operators();
    assert_eq!(running.status("GET /v1/live", ""), 401);
    assert_eq!(running.status("POST /v1/live", ALICE), 405);
    assert_eq!(running.report("fra1", ALICE).0, 200);
    let version = put(&running, "5/m");
    let (status, mut stream) = listen(&running, BOARD);
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
    assert_eq!(next_event(&mut stream).unwrap(), json!({"name": "board", "role": "read"}));
    let seen = loop {
        let seen = next_event(&mut stream).unwrap();
        if seen["fleet"]["count"] == 1 {
            break seen;
        }
    };
    assert_eq!(seen["fleet"]["version"], version);
    assert_eq!((&seen["fleet"]["current"], &seen["fleet"]["pops"][0]["name"]), (&Value::from(0), &Value::from("fra1")));
    assert_eq!((&seen["store"]["is_up"], &seen["anomalies"]), (&json!(true), &json!([])));
    assert!(seen["store"]["rtt_ms"].as_f64().unwrap() < 1_000.0 && seen["at_s"].as_f64().unwrap() > 1.7e9);
    // A token that is taken away ends its streams.
    std::fs::write(file.path(), format!("alice write {ALICE}\n")).unwrap();
    running.send("HUP");
    while next_event(&mut stream).is_some() {}
}

#[test]
fn streams_are_few_and_do_not_hold_up_the_end() {
    let (_file, running) = with_operators();
    let mut streams: Vec<_> = (0..32).map(|_| listen(&running, BOARD)).collect();
    assert!(streams.iter().all(|(status, _)| status.starts_with("HTTP/1.1 200")));
    for (_, stream) in &mut streams {
        assert!(next_event(stream).is_some());
    }
    let (status, answer) = running.ask("GET /v1/live", BOARD, "", b"");
    assert!(status == 503 && answer.contains("at most 32 streams"), "{answer}");
    drop(streams.pop());
    until("a place is free", || listen(&running, BOARD).0.starts_with("HTTP/1.1 200"));
    let (code, logs) = running.signal("TERM");
    assert_eq!(code, Some(0), "{logs}");
    assert!(logs.contains("stopped"), "{logs}");
}

/// The page, opened with the token of Alice.
fn page(running: &Running) -> Browser {
    let browser = Browser::start();
    browser.open(&format!("http://{}/", running.address));
    browser.until_shown("#enter", "Who asks?");
    browser.keys(&format!("{ALICE}{ENTER}"));
    browser.until_shown("#state", "live");
    browser
}

#[test]
fn a_hung_weir_sync_is_shown_as_out_of_reach() {
    let (_file, running) = with_operators();
    let browser = page(&running);
    running.send("STOP");
    browser.until_shown("#gone", "nothing was received for");
    running.send("CONT");
    browser.until_shown("#state", "live");
    assert_eq!(browser.text("#gone"), "");
}

/// Of 60 requests a second 20 are limited, and of no key anything is known.
#[test]
fn without_the_store_the_page_says_that_it_shows_a_part() {
    let (_file, path) = file(&format!("alice write {ALICE}\n"));
    let running = Running::start(&["--admin-token-file", &path, "--store", "redis://127.0.0.1:1"]);
    let browser = page(&running);
    let started = Instant::now();
    until("the limited requests are shown", || {
        let made_ms = u64::try_from(started.elapsed().as_millis()).unwrap();
        let rules = vec![RuleCounts { name: "login".into(), decided: [made_ms / 25, made_ms / 50, 0, 0] }];
        let status = Some(StatusReport { every_ms: 1_000, rules, ..StatusReport::default() });
        let report = Report { made_ms, sequence: made_ms + 1, status, ..running::report("fra1") };
        assert_eq!(running.exchange(ALICE, &report).0, 200);
        browser.text("#keys-none").starts_with("No key is listed, but ")
    });
    browser.until_shown("#keys-summary", "Only what reports to this weir-sync: the store is out of reach");
    browser.until_shown("#outcomes .under", "a second, at this weir-sync\u{2019}s POPs");
    browser.until_shown("#store", "out of reach");
}

/// From now on the page's requests whose paths contain `part` wait until `answer` is called: with the answer
/// of weir-sync, or as from one without a store.
const HOLD: &str = "
    const [part, real] = [arguments[0], window.fetch];
    window.fetch = (path, options) => path.includes(part)
        ? new Promise((done) => { window.answer = async (isGood) => {
            window.fetch = real;
            const answer = isGood ? await real(path, options)
                : new Response('{\"detail\": \"no store\"}', {status: 503});
            done(new Response(await answer.text(), answer));
        }; })
        : real(path, options);";

#[test]
fn late_answers_appear_where_they_belong() {
    let (_file, running) = with_operators();
    put(&running, "5/m");
    put(&running, "9/m");
    let browser = page(&running);
    let hold = |part: &str| browser.script(&format!("(function() {{ {HOLD} }})('{part}')"));
    let roll_back = "button[aria-label='Roll back to version r1']";

    // A question opens at once, and what it does is asked for there: it takes the place of no other.
    hold("diff");
    browser.click(roll_back);
    browser.until_shown("#ask", "Roll back to");
    assert_eq!(browser.script("return document.querySelector('#ask-yes').disabled"), true);
    browser.keys(ESCAPE);
    browser.click("#enforce-off");
    browser.until_shown("#ask", "Switch all rules off?");
    browser.script("return answer(true)");
    assert!(!browser.text("#ask").contains("rate:"), "{}", browser.text("#ask"));

    // An error after its question was left appears, and not in the next one.
    hold("enforcement");
    browser.click("#ask-yes");
    browser.keys(ESCAPE);
    until("the question is gone", || browser.text("#ask").is_empty());
    browser.click(roll_back);
    browser.until_shown("#ask", "rate:");
    browser.script("return answer(false)");
    browser.until_shown("#undone", "Switch all rules off? It failed after the question was left: no store");
    assert_eq!(browser.text("#ask-wrong"), "");
    assert!(browser.text("#ask").contains("Roll back to"), "it is open still");
    browser.keys(ESCAPE);

    // Of two keys that are looked at, the last is shown, however long the answer about the first takes.
    let look = |address: &str| {
        browser.script(&format!("document.querySelector('#explain-address').value = '{address}'"));
        browser.click("#explain-form button.main");
        browser.click(&format!("button[aria-label='Act on {address} of login']"));
    };
    hold("login/192.0.2.1");
    look("192.0.2.1");
    browser.until_shown("#key-title", "192.0.2.1");
    browser.keys(ESCAPE);
    look("192.0.2.2");
    browser.until_shown("#key-actions", "Reset");
    browser.script("return answer(true)");
    let reset = "return document.querySelector('#key-actions button').getAttribute('aria-label')";
    assert_eq!(browser.script(reset), "Reset 192.0.2.2 of login");
}

#[test]
fn an_operator_sees_the_fleet_and_rolls_back_by_keyboard() {
    let (file, running) = with_operators();
    put(&running, "5/m");
    let browser = Browser::start();
    browser.open(&format!("http://{}/", running.address));

    // Without a token it shows nothing; a wrong one is refused; no storage that lasts holds the token.
    browser.until_shown("#enter", "Who asks?");
    browser.keys(&format!("the-token-of-nobody{ENTER}"));
    browser.until_shown("#entered", "with a token for this path");
    browser.keys(&format!("{ALICE}{ENTER}"));
    browser.until_shown("#state", "live");
    assert_eq!(browser.script("return localStorage.length + document.cookie.length"), 0);
    assert_eq!(browser.text("#enter"), "");

    // Only now: the page shows a POP for ten seconds after its report, and a browser may be longer in starting.
    assert_eq!(running.report("fra1", ALICE).0, 200);
    browser.until_shown("#pops", "fra1");
    browser.until_shown("#pops-summary", "runs at 0 of 1 POPs");
    browser.until_shown("#store", "ms");
    browser.until_shown("#you", "alice");
    until("the plot is drawn", || browser.script("return document.querySelectorAll('#trips canvas').length") == 1);

    // What changes shows without a reload.
    let second = put(&running, "9/m");
    browser.until_shown("#versions", "r2");
    browser.click("button[aria-label='Compare version r1 with the current one']");
    browser.until_shown("#diff", "rate: \"9/m\" -> \"5/m\"");

    // The question begins at the answer that does nothing; Escape leaves it.
    let roll_back = "button[aria-label='Roll back to version r1']";
    let focus = format!("document.querySelector(\"{roll_back}\").focus()");
    browser.script(&focus);
    browser.keys(ENTER);
    browser.until_shown("#ask", "Roll back to");
    assert_eq!(browser.script("return document.activeElement.value"), "no");
    browser.keys(ESCAPE);
    until("the question is gone", || browser.text("#ask").is_empty());
    assert_eq!(running.status(&format!("GET /v1/rules?version={}", second + 1), ALICE), 404, "nothing was changed");
    browser.script(&focus);
    browser.keys(ENTER);
    browser.until_shown("#ask", "rate: \"9/m\" -> \"5/m\"");
    browser.script("document.querySelector('#ask-comment').focus()");
    browser.keys(&format!("too f\u{e4}st{ENTER}"));
    browser.until_shown("#versions", "too f\u{e4}st");
    browser.until_shown("#versions", "rollback to r1");

    // The kill switch, by the mouse.
    browser.click("#enforce-off");
    browser.until_shown("#ask", "Switch all rules off?");
    browser.click("#ask-yes");
    browser.until_shown("#versions", "kill switch: enforce false");
    browser.until_shown("#off", "nothing is limited");
    browser.click("#off-on");
    browser.click("#ask-yes");
    until("rules are on again", || browser.text("#off").is_empty());

    // In the dark, and on a phone: other colours, and nothing is cut off.
    let back = || browser.script("return getComputedStyle(document.body).backgroundColor");
    browser.look(1280, 900, false);
    let light = back();
    browser.look(360, 640, true);
    assert_ne!(back(), light);
    let width = browser.script("return document.documentElement.scrollWidth");
    assert!(width.as_u64().unwrap() <= 360, "{width}");
    assert_eq!(browser.complaints(), Vec::<String>::new());

    // A token that is good no more is asked for again.
    std::fs::write(file.path(), format!("board read {BOARD}\n")).unwrap();
    running.send("HUP");
    browser.until_shown("#enter", "Who asks?");
    assert_eq!(browser.text("#pops"), "");
}

/// A page that is just opened has no token yet: none is refused, and no alert rings.
#[test]
fn the_page_before_somebody_logs_in_is_no_refused_token() {
    let (_file, running) = with_operators();
    let mut page = TcpStream::connect(&running.address).unwrap();
    page.write_all(b"GET /v1/live HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    page.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let refused =
        || running.ask("GET /metrics", "", "", b"").1.contains("http_errors_total{region=\"default\",status=\"401\"}");
    assert!(!refused(), "no token was refused");
    assert_eq!(running.status("GET /v1/live", "the-token-of-a-stranger"), 401);
    until("a token was refused", refused);
    let (_, logs) = running.signal("TERM");
    assert_eq!(logs.matches("refused: GET /v1/live: 401").count(), 1, "{logs}");
}
