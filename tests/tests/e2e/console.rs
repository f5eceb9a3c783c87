//! The page at `/` of a real fleet, in a real browser: who is limited, what is done about it, and that the POPs do it.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_tests::browser::Browser;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{Run, open_loop, open_loop_until};
use weir_tests::redis::Redis;
use weir_tests::region::{self, Region};
use weir_tests::wait::until;
use weir_tests::weir_sync::ADMIN_TOKEN;

use crate::plugin::{rule, rules, with};

const REGIONS: [&str; 2] = ["fra1", "nyc1"];
/// Requests per second of the attacker at each POP, and of others before: they are limited a little.
const ATTACK: u32 = 110;
const CALM: u32 = 36;
/// The length of a minute of anomalies, in milliseconds, and the number of calm ones.
const MINUTE_MS: u32 = 800;
const CALM_MINUTES: u32 = 4;
/// Keys, as `WebDriver` names them.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// Asks an edge steadily until it is stopped.
fn attack(edge: &Envoy, address: &str, stop: &watch::Receiver<bool>) -> JoinHandle<Run> {
    let (mut client, ask, stop) = (edge.client(), Ask::from(address), stop.clone());
    tokio::spawn(async move { open_loop_until(&mut client, &ask, ATTACK, stop).await })
}

/// Answers the question that is open with its second button, which does it.
fn agree(browser: &Browser, why: &str) {
    browser.script("document.querySelector('#ask-comment').focus()");
    browser.keys(&format!("{why}{TAB}{TAB}{ENTER}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_finds_bans_and_resets_a_client() {
    let redis = Redis::start().await;
    let minute = MINUTE_MS.to_string();
    let compressed = ["--anomaly-minute-ms", &minute, "--anomaly-learn-minutes", "1"];
    let setup = Setup::with(rules([rule("per-address", "20/s", 20)]));
    let regions = Region::start_all(&REGIONS, &redis.url(), &setup, &compressed).await;
    let [a, b] = regions.as_slice() else { panic!("two regions") };
    let (edges, mut operator) = ([&a.edge, &b.edge], b.operator());
    let login = with(rule("login", "5/m", 5), "match", json!({"path": {"exact": "/login"}}));
    region::put(&regions, &rules([rule("per-address", "20/s", 20), login])).await;
    let calm = Duration::from_millis((CALM_MINUTES * MINUTE_MS).into());
    open_loop(&mut edges[0].client(), &Ask::from("198.51.100.7"), CALM, calm).await;
    let (stop, until_then) = watch::channel(false);
    let attackers = edges.map(|edge| attack(edge, "203.0.113.7", &until_then));

    // Any weir-sync shows both regions.
    let browser = Browser::start();
    browser.open(&format!("http://{}/", a.weir_sync.address()));
    browser.until_shown("#enter", "Who asks?");
    browser.keys(&format!("{ADMIN_TOKEN}{ENTER}"));
    browser.until_shown("#pops-summary", "runs at 2 of 2 POPs");
    browser.until_shown("#pops", "fresh");
    browser.until_shown("#keys", "203.0.113.7");
    for pop in REGIONS {
        browser.until_shown("#keys tr", pop);
    }
    browser.until_shown("#odd-list", "per-address: 203.0.113.7 is new on top");

    let limited = "return Number(document.querySelector('#all-limited').textContent.replaceAll(',', ''))";
    until("the limited requests to be shown", async || {
        (browser.script(limited).as_f64()? > f64::from(ATTACK)).then_some(())
    })
    .await;
    assert_eq!(browser.script("return document.querySelectorAll('#rates-plot canvas').length"), 1);

    // The key, and all that is known of it; from there, a ban of its address.
    browser.click("button[aria-label='Look at 203.0.113.7 of per-address']");
    browser.until_shown("#key-figures", "of 20");
    browser.until_shown("#key-places", "nyc1");
    browser.click("button[aria-label='Ban the address 203.0.113.7']");
    browser.until_shown("#ask", "All its requests get 403");
    agree(&browser, "a flood");
    browser.until_shown("#overrides", "a flood");
    for edge in edges {
        let mut client = edge.client();
        let ask = Ask::from("203.0.113.7");
        until("the ban to be in force", async || (client.send(&ask).await.status == 403).then_some(())).await;
    }

    // The ban shows at its key, and its 403s are on a tile.
    browser.until_shown("#keys", "banned");
    browser.until_shown("#rules", "deny list");
    let denied = "return Number(document.querySelector('#all-denied').textContent.replaceAll(',', ''))";
    until("the denied requests to be shown", async || {
        (browser.script(denied).as_f64()? > f64::from(ATTACK)).then_some(())
    })
    .await;

    // What becomes of a request of it, and of another.
    let explain = |address: &str| {
        browser.script(&format!("document.querySelector('#explain-address').value = '{address}'"));
        browser.click("#explain-form button.main");
    };
    explain("203.0.113.7");
    browser.until_shown("#explained", "deny: it gets 403");
    explain("198.51.100.9");
    browser.until_shown("#explained", "It goes through: counted by per-address");
    browser.until_shown("#explained", "login match: path does not hold");

    // Lifted again, by keyboard.
    let lift = "document.querySelector(\"button[aria-label='Lift the ban of 203.0.113.7']\").focus()";
    browser.script(lift);
    browser.keys(ENTER);
    browser.until_shown("#ask", "It ends now");
    agree(&browser, "over");
    browser.until_shown("#overrides-none", "are in force");
    let mut client = edges[0].client();
    let ask = Ask::from("203.0.113.7");
    until("the ban to end", async || (client.send(&ask).await.status != 403).then_some(())).await;

    // A key of a rule is banned, and reset, which ends that.
    browser.until_shown("#keys", "203.0.113.7");
    browser.click("button[aria-label='Ban 203.0.113.7 of per-address']");
    agree(&browser, "again");
    browser.until_shown("#keys", "banned");
    browser.until_shown("#overrides", "again");
    browser.click("button[aria-label='Reset 203.0.113.7 of per-address']");
    browser.until_shown("#ask", "starts full again");
    agree(&browser, "enough");
    browser.until_shown("#overrides-none", "are in force");

    // Another rate.
    browser.click("button[aria-label='Look at 203.0.113.7 of per-address']");
    browser.click("button[aria-label='Another rate for 203.0.113.7 of per-address']");
    browser.until_shown("#ask", "gives this key another rate");
    browser.script("document.querySelector('#ask-rate').value = '500/s'");
    agree(&browser, "their launch");
    browser.until_shown("#overrides", "per-address: 500/s");

    // A canary in one region, which is promoted.
    operator.begin_canary("region=nyc1", &rules([rule("per-address", "30/s", 30)])).await;
    browser.until_shown("#canary-where", "A canary runs at the POPs of nyc1");
    browser.until_shown("#canary-progress", "1 of 1 POPs run it");
    browser.click("#canary-promote");
    browser.until_shown("#ask", "~ rule per-address");
    agree(&browser, "it holds");
    browser.until_shown("#versions", "it holds");
    until("the canary to be gone", async || browser.text("#canary").is_empty().then_some(())).await;
    stop.send(true).unwrap();
    for attacker in attackers {
        attacker.await.unwrap();
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
