//! Takes pictures of the page at weir-sync's `/`, of a fleet that is being attacked: `make screenshots` writes
//! docs/images/*.png.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;
use weir_tests::browser::Browser;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::open_loop_until;
use weir_tests::redis::Redis;
use weir_tests::region::{self, Region};
use weir_tests::weir_sync::ADMIN_TOKEN;

const REGIONS: [&str; 3] = ["fra1", "iad1", "sin1"];
/// The largest picture, in bytes: a page of the docs has several.
const PICTURE_BYTES_MAX: usize = 120_000;
/// Time for which the fleet runs before the first picture, so that the plots have something to show.
const WARM_UP: Duration = Duration::from_secs(30);
/// Time for which the attacker asks before the picture of it; short, so that the anomaly is still listed.
const ATTACK_FOR: Duration = Duration::from_secs(12);
/// Minutes for which anomalies learn; each is a second here.
const ANOMALIES: [&str; 4] = ["--anomaly-minute-ms", "1000", "--anomaly-learn-minutes", "20"];
const ATTACKER: &str = "203.0.113.7";
/// Clients at each POP: an address, a path, a header, and requests per second.
const CLIENTS: [(&str, &str, &str, u32); 6] = [
    ("198.51.100.20", "/", "", 4),
    ("198.51.100.21", "/", "", 7),
    ("198.51.100.22", "/search?q=weir", "", 3),
    ("192.0.2.33", "/login", "", 1),
    ("192.0.2.80", "/v1/items", "a-customer", 14),
    ("192.0.2.81", "/v1/items", "another-customer", 25),
];
/// Requests per second of the attacker at each POP.
const ATTACK: u32 = 80;
/// A key, as `WebDriver` names it.
const ENTER: &str = "\u{e007}";

fn rules(login: &str) -> Value {
    json!({"rules": [
        {"name": "per-address", "key": ["client_address"], "rate": "30/s", "burst": 60},
        {"name": "login", "match": {"path": {"exact": "/login"}}, "key": ["client_address"], "rate": login},
        {"name": "per-customer", "match": {"path": {"prefix": "/v1/"}}, "key": [{"header": "x-api-key"}],
         "rate": "50/s"},
        {"name": "search", "match": {"path": {"prefix": "/search"}}, "key": ["client_address"], "rate": "5/s",
         "mode": "shadow"},
    ]})
}

/// Asks an edge as all clients do, until it is stopped.
fn ask(edge: &Envoy, stop: &watch::Receiver<bool>) {
    for (address, path, customer, per_second) in CLIENTS {
        let ask = Ask::get(path).forwarded_for(address);
        let ask = if customer.is_empty() { ask } else { ask.header("x-api-key", customer) };
        go_on(edge, ask, per_second, stop);
    }
}

fn go_on(edge: &Envoy, ask: Ask, per_second: u32, stop: &watch::Receiver<bool>) {
    let (mut client, stop) = (edge.client(), stop.clone());
    tokio::spawn(async move { open_loop_until(&mut client, &ask, per_second, stop).await });
}

/// The browser, and where its pictures go.
struct Album {
    browser: Browser,
    folder: PathBuf,
}

impl Album {
    fn take(&self, name: &str) {
        let (path, picture) = (self.folder.join(name).with_extension("png"), self.browser.picture());
        assert!(picture.len() <= PICTURE_BYTES_MAX, "{}: {} bytes", path.display(), picture.len());
        fs::write(&path, picture).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        println!("{}", path.display());
    }

    /// Moves the element to the top of the window.
    fn to(&self, selector: &str) {
        self.browser.script(&format!("document.querySelector('{selector}').closest('section').scrollIntoView()"));
    }
}

#[tokio::main]
async fn main() {
    let folder = env::args().nth(1).unwrap_or_else(|| "docs/images".into());
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let redis = Redis::start().await;
    let arguments = [&["--replica", "a"], &ANOMALIES[..]].concat();
    let regions = Region::start_all(&REGIONS, &redis.url(), &Setup::with(rules("5/m")), &arguments).await;
    let mut operator = regions[0].operator();
    operator.put_good(&rules("10/m")).await;
    region::put(&regions, &rules("5/m")).await;
    let trial = json!({"address": "192.0.2.0/28", "for": "2d", "reason": "their load test"});
    operator.order("/v1/allows", &trial).await;
    let (stop, until_then) = watch::channel(false);
    for Region { edge, .. } in &regions {
        ask(edge, &until_then);
    }
    let album = Album { browser: Browser::start(), folder: Path::new(&folder).into() };
    let browser = &album.browser;
    browser.open(&format!("http://{}/", regions[0].weir_sync.address()));
    browser.until_shown("#enter", "Who asks?");
    browser.keys(&format!("{ADMIN_TOKEN}{ENTER}"));
    browser.until_shown("#keys", "198.51.100.21");
    sleep(WARM_UP).await;
    for Region { edge, .. } in &regions {
        go_on(edge, Ask::get("/login").forwarded_for(ATTACKER), ATTACK, &until_then);
    }
    sleep(ATTACK_FOR).await;
    browser.until_shown("#odd-list", ATTACKER);
    pictures(&album);
    let _ = stop.send(true);
    // The clients' last requests.
    sleep(Duration::from_millis(500)).await;
}

/// The limited client, its key, the decisions about it, the question before a ban, the effect of the ban;
/// on a phone.
fn pictures(album: &Album) {
    let browser = &album.browser;
    browser.look(1180, 780, false);
    album.take("console");
    browser.look(980, 640, false);
    browser.click(&format!("button[aria-label='Look at {ATTACKER} of login']"));
    browser.until_shown("#key-figures", "Limited");
    album.take("console-key");
    browser.script("document.querySelector('#key').close()");
    browser.look(1180, 780, false);
    let fill = |id: &str, text: &str| {
        browser.script(&format!("document.querySelector('#explain-{id}').value = '{text}'"));
    };
    fill("path", "/login");
    fill("address", ATTACKER);
    browser.click("#explain-form button.main");
    browser.until_shown("#explained", "It is limited");
    album.to("#explain-title");
    album.take("console-explain");
    browser.look(980, 640, false);
    browser.script("scrollTo(0, 0)");
    browser.click(&format!("button[aria-label='Look at {ATTACKER} of login']"));
    browser.click(&format!("button[aria-label='Ban the address {ATTACKER}']"));
    browser.until_shown("#ask", "403");
    browser.script("document.querySelector('#ask-comment').value = 'tries passwords'");
    album.take("console-ban");
    browser.click("#ask-yes");
    browser.until_shown("#overrides", "tries passwords");
    let everywhere = format!("runs at {0} of {0} POPs", REGIONS.len());
    browser.until_shown("#pops-summary", &everywhere);
    browser.look(1180, 780, false);
    album.to("#overrides-title");
    album.take("console-overrides");
    browser.look(375, 812, true);
    browser.script("scrollTo(0, 0)");
    album.take("console-phone");
}
