//! A headless Chromium, driven over `WebDriver` (W3C, `WebDriver` 2): JSON over HTTP.
//!
//! The tests of weir-sync's binary have this file, too.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Far above what anything takes here; reaching it fails the test.
const DEADLINE: Duration = Duration::from_mins(2);
/// Between two looks at the page.
const LOOK: Duration = Duration::from_millis(20);
/// The number of times that a driver is started whose port somebody else took meanwhile.
const STARTS_MAX: usize = 5;

/// Chromium's arguments: no window, and no sandbox, which containers do not let it have.
const ARGUMENTS: [&str; 7] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--window-size=1280,900",
    // Pictures are smaller without colours at the edges of letters.
    "--disable-lcd-text",
    "--hide-scrollbars",
];
/// The line that a driver prints once it listens.
const LISTENS: &str = "was started successfully on port ";
/// The key that `WebDriver` knows an element's reference by.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one page. It ends when dropped.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    address: String,
    session: String,
}

impl Browser {
    /// Starts one, with a window of 1280 by 900.
    pub fn start() -> Self {
        let (driver, port) = (0..STARTS_MAX).find_map(|_| driver()).expect("chromedriver does not listen");
        let address = format!("127.0.0.1:{port}");
        let mut browser = Self { driver, address, session: String::new() };
        let always = json!({
            "goog:chromeOptions": {"args": ARGUMENTS}, "goog:loggingPrefs": {"browser": "ALL"},
        });
        let session = browser.call("POST /session", &json!({"capabilities": {"alwaysMatch": always}}));
        session["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        browser
    }

    fn call(&self, line: &str, body: &Value) -> Value {
        let body = if line.starts_with("GET") { String::new() } else { body.to_string() };
        let (status, answer) = self.ask(line, &body).unwrap();
        assert!(status.starts_with("HTTP/1.1 200"), "{line}: {status} {answer}");
        answer["value"].clone()
    }

    /// The status and the answer of the driver, which wants to be asked by its own name, and keeps the connection.
    fn ask(&self, line: &str, body: &str) -> io::Result<(String, Value)> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(2 * DEADLINE))?;
        let (host, length) = (&self.address, body.len());
        let head = format!("{line} HTTP/1.1\r\nhost: {host}\r\n");
        let content = format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all((head + &content).as_bytes())?;
        let mut reader = BufReader::new(stream);
        let head: Vec<String> =
            reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let length = head.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut content = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut content)?;
        Ok((head.first().cloned().unwrap_or_default(), serde_json::from_slice(&content)?))
    }

    fn command(&self, name: &str, body: &Value) -> Value {
        self.call(&format!("POST /session/{}/{name}", self.session), body)
    }

    /// Goes to a page.
    pub fn open(&self, url: &str) {
        self.command("url", &json!({"url": url}));
    }

    /// The result of a function of the page with this body.
    pub fn script(&self, body: &str) -> Value {
        self.command("execute/sync", &json!({"script": body, "args": []}))
    }

    /// The text of the first element that `selector` finds, as it is shown: empty if it is hidden.
    pub fn text(&self, selector: &str) -> String {
        let script = format!(
            "const found = document.querySelector({}); return found?.checkVisibility() ? found.innerText : ''",
            json!(selector)
        );
        self.script(&script).as_str().unwrap().to_owned()
    }

    /// Waits until that text contains `expected`.
    pub fn until_shown(&self, selector: &str, expected: &str) {
        let end = Instant::now() + DEADLINE;
        loop {
            let text = self.text(selector);
            if text.contains(expected) {
                return;
            }
            assert!(Instant::now() < end, "expected {expected} in {selector}, found: {text}");
            thread::sleep(LOOK);
        }
    }

    /// Types into the element that has the focus, or presses a key by its code in `WebDriver`.
    pub fn keys(&self, text: &str) {
        let key = |key: char| ["keyDown", "keyUp"].map(|what| json!({"type": what, "value": key}));
        let actions: Vec<Value> = text.chars().flat_map(key).collect();
        self.command("actions", &json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}));
    }

    /// Clicks on what a selector finds first, as soon as it is there.
    pub fn click(&self, selector: &str) {
        // Not under the page's head.
        let script = format!(
            "const found = document.querySelector({}); found?.scrollIntoView({{block: 'center'}}); \
             return Boolean(found?.checkVisibility())",
            json!(selector)
        );
        let end = Instant::now() + DEADLINE;
        while self.script(&script) != true {
            assert!(Instant::now() < end, "there is no {selector}");
            thread::sleep(LOOK);
        }
        let found = self.command("element", &json!({"using": "css selector", "value": selector}));
        self.command(&format!("element/{}/click", found[ELEMENT].as_str().unwrap()), &json!({}));
    }

    /// A window of this size; colours as in the dark, or not.
    pub fn look(&self, width: u32, height: u32, is_dark: bool) {
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("goog/cdp/execute", &json!({"cmd": "Emulation.setEmulatedMedia", "params": media}));
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.command("goog/cdp/execute", &json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": size}));
    }

    /// A picture of the window, as PNG.
    pub fn picture(&self) -> Vec<u8> {
        let shot =
            self.command("goog/cdp/execute", &json!({"cmd": "Page.captureScreenshot", "params": {"format": "png"}}));
        from_base64(shot["data"].as_str().unwrap())
    }

    /// Messages on the browser's console since the last call, except those about refused requests.
    pub fn complaints(&self) -> Vec<String> {
        let logged = self.command("se/log", &json!({"type": "browser"}));
        let messages = logged.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap().to_owned());
        messages.filter(|message| !message.contains("Failed to load resource")).collect()
    }
}

/// The bytes of a text in base64 (RFC 4648), which the driver writes.
fn from_base64(text: &str) -> Vec<u8> {
    let six = |byte: &u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.as_bytes().iter().filter_map(six).collect();
    let bytes = |four: &[u8]| {
        let bits = (0..4).fold(0, |bits, place| bits << 6 | u32::from(four.get(place).copied().unwrap_or(0)));
        bits.to_be_bytes().into_iter().skip(1).take(four.len().saturating_sub(1)).collect::<Vec<_>>()
    };
    digits.chunks(4).flat_map(bytes).collect()
}

/// A driver and its port; none if it got none.
fn driver() -> Option<(Child, u16)> {
    let mut command = Command::new("chromedriver");
    // It must not hold the streams of a test program that is gone.
    let streams = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let spawned = streams.arg("--port=0").spawn();
    let mut driver = spawned.expect("chromedriver is missing: `make tools` installs it");
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = lines.find_map(|line| {
        let line = line.unwrap();
        line.split_once(LISTENS)?.1.trim_end_matches('.').parse().ok()
    });
    // Nothing else reads its output.
    thread::spawn(move || lines.for_each(drop));
    if port.is_none() {
        let _ = driver.wait();
    }
    Some((driver, port?))
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends its browser, too.
        let _ = self.ask(&format!("DELETE /session/{}", self.session), "");
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
