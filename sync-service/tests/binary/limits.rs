//! Limits on clients of the real binary: requests too large, too slow or too many are refused, over plain HTTP
//! and over TLS, and memory stays flat. docs/reference/http-api.md has these limits in a table.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::running::{DEADLINE, Running, limited, until};
use crate::tls::{Secured, Stream, client};

const POPS: &str = "the-token-of-all-pops";
const ADMIN: &str = "the-token-of-operators";
/// The times that these tests set, shorter than those of docs/reference/http-api.md.
const FIRST_BYTE: Duration = Duration::from_millis(500);
const HEAD: Duration = Duration::from_millis(900);
const BODY: Duration = Duration::from_millis(700);
/// Tolerance for a busy machine.
const SLACK: Duration = Duration::from_secs(5);
const TEN_MB: usize = 10_000_000;
const HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: weir\r\n\r\n";

/// The paths that read a body, each with what else its request needs.
const READING: [(&str, &str, &str); 4] = [
    ("POST /v1/report", POPS, "content-type: application/vnd.weir.sync\r\n"),
    ("PUT /v1/rules", ADMIN, "content-type: application/yaml\r\nif-none-match: *\r\n"),
    ("POST /v1/rules/rollback", ADMIN, "content-type: application/json\r\nif-none-match: *\r\n"),
    ("PUT /v1/enforcement", ADMIN, "content-type: application/json\r\n"),
];
/// The others.
const OTHERS: [&str; 8] = [
    "GET /v1/rules",
    "GET /v1/rules/versions",
    "GET /v1/fleet",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "POST /nowhere",
    "DELETE /v1/rules",
];

/// A weir-sync, and how to reach it.
enum Server {
    Plain(Running),
    Secured(Box<Secured>, Arc<ClientConfig>),
}

impl Server {
    /// One of each kind, with short times and these `arguments`.
    fn both(arguments: &[&str]) -> [Self; 2] {
        let [first_byte, head, body] = [FIRST_BYTE, HEAD, BODY].map(|time| time.as_millis().to_string());
        let times = ["--first-byte-timeout-ms", &first_byte, "--header-timeout-ms", &head, "--body-timeout-ms", &body];
        Self::both_patient(&[&times, arguments].concat())
    }

    /// The same with the times that are set by default, if `arguments` has no others.
    fn both_patient(arguments: &[&str]) -> [Self; 2] {
        let arguments = [&["--token", POPS, "--admin-token", ADMIN], arguments].concat();
        let secured = Secured::start(&arguments);
        let config = client(&secured.authority, None);
        [Self::Plain(Running::start(&arguments)), Self::Secured(Box::new(secured), config)]
    }

    fn running(&self) -> &Running {
        match self {
            Self::Plain(running) => running,
            Self::Secured(secured, _) => &secured.running,
        }
    }

    async fn raw(&self) -> TcpStream {
        TcpStream::connect(&self.running().address).await.unwrap()
    }

    async fn connect(&self) -> Stream {
        let raw = self.raw().await;
        match self {
            Self::Plain(_) => Box::pin(raw),
            Self::Secured(_, config) => {
                let name = ServerName::try_from("localhost").unwrap();
                Box::pin(TlsConnector::from(Arc::clone(config)).connect(name, raw).await.unwrap())
            }
        }
    }

    async fn send(&self, head: impl AsRef<[u8]>, rest: &Rest) -> Outcome {
        talk(self.connect().await, head.as_ref(), rest).await
    }

    /// Asserts that it answers others.
    async fn serves(&self) {
        let once = HEALTH.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        let answered = timeout(SLACK, self.send(once, &NOTHING)).await;
        assert_eq!(answered.expect("kept out").status(), Some(200));
    }
}

/// A chunk that follows a head `count` times, with a pause after each.
struct Rest {
    chunk: Vec<u8>,
    count: usize,
    pause: Duration,
}

static NOTHING: Rest = Rest { chunk: Vec::new(), count: 0, pause: Duration::ZERO };

impl Rest {
    fn bytes(count: usize) -> Self {
        Self { chunk: vec![b'x'; 10_000], count: count / 10_000, pause: Duration::ZERO }
    }

    fn drip() -> Self {
        Self { chunk: vec![b'x'], count: 100_000, pause: Duration::from_millis(20) }
    }
}

/// Result of a request.
#[derive(Debug)]
struct Outcome {
    /// Number of bytes taken beyond the head.
    sent: usize,
    answer: String,
    took: Duration,
}

impl Outcome {
    fn status(&self) -> Option<u16> {
        self.answer.get(9..12)?.parse().ok()
    }
}

/// Sends a head and what follows until the other end closes the connection, which it must do.
async fn talk(stream: Stream, head: &[u8], rest: &Rest) -> Outcome {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (began, sent) = (Instant::now(), AtomicUsize::new(0));
    let writing = async {
        if writer.write_all(head).await.is_ok() {
            for _ in 0..rest.count {
                if writer.write_all(&rest.chunk).await.is_err() || writer.flush().await.is_err() {
                    break;
                }
                sent.fetch_add(rest.chunk.len(), Ordering::Relaxed);
                sleep(rest.pause).await;
            }
            // An error will show when reading.
            let _ = writer.flush().await;
        }
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    let reading = async {
        // An error is the connection's end, too, after what was answered.
        let _ = reader.read_to_end(&mut answer).await;
    };
    let talking = async {
        tokio::select! {
            () = writing => {}
            () = reading => {}
        }
    };
    timeout(DEADLINE, talking).await.expect("it is never closed");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Outcome { sent: sent.into_inner(), answer, took: began.elapsed() }
}

fn head(line: &str, token: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer {token}\r\n{headers}\r\n")
}

// I2
#[tokio::test]
async fn ten_megabytes_are_refused_on_every_path_and_are_not_read() {
    for server in Server::both_patient(&["--body-timeout-ms", "60000"]) {
        let others = OTHERS.map(|line| (line, ADMIN, ""));
        for (line, token, headers) in READING.into_iter().chain(others) {
            let announced = head(line, token, &format!("{headers}content-length: {TEN_MB}\r\n"));
            let outcome = server.send(&announced, &Rest::bytes(TEN_MB)).await;
            assert_eq!(outcome.status(), Some(413), "{line}: {outcome:?}");
            assert!(outcome.sent < TEN_MB, "{line}: all was read");
            assert!(outcome.answer.contains("connection: close"), "{line}: {outcome:?}");

            let chunked = head(line, token, &format!("{headers}transfer-encoding: chunked\r\n"));
            let chunk = format!("2710\r\n{}\r\n", "x".repeat(10_000)).into_bytes();
            let rest = Rest { chunk, count: 1_000, pause: Duration::ZERO };
            let outcome = server.send(&chunked, &rest).await;
            assert!(outcome.sent < TEN_MB, "{line}: all was read");
            if READING.iter().any(|(reading, ..)| *reading == line) {
                assert_eq!(outcome.status(), Some(413), "{line}: {outcome:?}");
            }
        }
        let nobodys = head("POST /v1/report", "no-token-of-anybody", "content-length: 1000000\r\n");
        let outcome = server.send(nobodys, &Rest::bytes(1_000_000)).await;
        assert_eq!(outcome.status(), Some(401));
        server.serves().await;
    }
}

// I2
#[tokio::test]
async fn a_body_that_drips_is_given_up_in_time() {
    for server in Server::both(&[]) {
        for (line, token, headers) in READING {
            let head = head(line, token, &format!("{headers}content-length: 4000\r\n"));
            let outcome = server.send(head, &Rest::drip()).await;
            assert_eq!(outcome.status(), Some(408), "{line}: {outcome:?}");
            assert!((BODY..BODY + SLACK).contains(&outcome.took), "{line}: {outcome:?}");
        }
    }
}

// I2
#[tokio::test]
async fn silence_and_half_a_head_are_given_up_in_time() {
    let ends_in = |outcome: &Outcome, time: Duration, what: &str| {
        // A first byte that comes late has the time of both. The server's clock may have begun before.
        assert!((time * 9 / 10..time + SLACK).contains(&outcome.took), "{what}: {outcome:?}");
        assert!(outcome.answer.is_empty() || outcome.status() == Some(408), "{what}: {outcome:?}");
    };
    for server in Server::both(&[]) {
        let raw = async |bytes: &[u8], rest: &Rest| talk(Box::pin(server.raw().await), bytes, rest).await;
        ends_in(&raw(b"", &NOTHING).await, FIRST_BYTE, "nothing");
        if let Server::Secured(..) = server {
            // The beginning of a handshake, of 512 bytes.
            let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
            ends_in(&raw(&hello, &NOTHING).await, FIRST_BYTE, "half a handshake");
            ends_in(&raw(&hello, &Rest::drip()).await, FIRST_BYTE, "a handshake that drips");
            ends_in(&server.send("", &NOTHING).await, HEAD, "a handshake and no more");
        }
        ends_in(&server.send("GET /healthz HTT", &NOTHING).await, HEAD, "half a head");
        ends_in(&server.send("GET /healthz HTTP/1.1\r\nx: ", &Rest::drip()).await, HEAD, "a head that drips");
        let idle = server.send(HEALTH, &NOTHING).await;
        assert!((HEAD..HEAD + SLACK).contains(&idle.took), "idle: {idle:?}");
        assert_eq!(idle.answer.matches("200 OK").count(), 1);
    }
}

// I2
#[tokio::test]
async fn heads_and_trailers_have_a_size() {
    for server in Server::both_patient(&["--body-timeout-ms", "60000"]) {
        let megabyte = Rest::bytes(1_000_000);
        for start in ["GET /healthz HTTP/1.1\r\nx: ", "GET /", ""] {
            let outcome = server.send(start, &megabyte).await;
            assert!(matches!(outcome.status(), Some(400 | 414 | 431)), "{start}: {outcome:?}");
        }
        for fields in [101, 10_000] {
            let many = (0..fields).map(|n| format!("x{n}: y\r\n")).collect::<Vec<_>>().concat();
            let outcome = server.send(head("GET /healthz", POPS, &many), &NOTHING).await;
            assert_eq!(outcome.status(), Some(431), "{fields}: {outcome:?}");
        }
        let chunked = |more: &str| {
            let (line, token, headers) = READING[0];
            head(line, token, &format!("{headers}transfer-encoding: chunked\r\n")) + more
        };
        for (what, beginning, chunk) in [
            ("trailers", chunked("0\r\n"), &b"x: y\r\n"[..]),
            ("a trailer", chunked("0\r\nx: "), b"xxxxxxxxxx"),
            ("an extension", chunked("1;"), b"xxxxxxxxxx"),
            ("tiny chunks", chunked(""), b"1;xxxxxxxx\r\nx\r\n"),
        ] {
            let rest = Rest { chunk: chunk.repeat(1_000), count: 1_000, pause: Duration::ZERO };
            let outcome = server.send(beginning, &rest).await;
            assert!(matches!(outcome.status(), Some(400 | 413)), "{what}: {outcome:?}");
        }
        server.serves().await;
    }
}

#[tokio::test]
async fn http_2_is_off_so_its_floods_end_at_once() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for server in Server::both(&[]) {
        let outcome = server.send(preface, &Rest::bytes(100_000)).await;
        assert!(outcome.took < SLACK && !outcome.answer.contains("200"), "{outcome:?}");
        if let Server::Secured(_, config) = &server {
            let mut config = ClientConfig::clone(config);
            for (offered, chosen) in [(&["h2"][..], None), (&["h2", "http/1.1"], Some("http/1.1"))] {
                config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
                let name = ServerName::try_from("localhost").unwrap();
                let raw = server.raw().await;
                let stream = TlsConnector::from(Arc::new(config.clone())).connect(name, raw).await.ok();
                let selected = stream.and_then(|stream| stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec));
                assert_eq!(selected.as_deref(), chosen.map(str::as_bytes), "{offered:?}");
            }
        }
    }
}

// I2
#[tokio::test]
async fn idle_connections_are_bounded_in_number() {
    for server in Server::both_patient(&["--connections-max", "50"]) {
        let mut idle = Vec::new();
        for _ in 0..150 {
            let mut stream = server.connect().await;
            stream.write_all(HEALTH.as_bytes()).await.unwrap();
            let mut answer = [0; 12];
            timeout(DEADLINE, stream.read_exact(&mut answer)).await.expect("kept out").unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
            idle.push(stream);
        }
        server.serves().await;
        if let Server::Plain(running) = &server {
            // The one that makes room for the last is counted until it has ended.
            let open = || running.metric(r#"weir_sync_connections{region="default"}"#);
            until("it to be counted no more", || (40..=50).contains(&open()));
        }
    }
}

// I2
#[tokio::test]
async fn few_file_descriptors_mean_fewer_connections() {
    let server = Server::Plain(Running::started(&mut limited("-n 200", &["--listen", "127.0.0.1:0"])));
    let mut half_open = Vec::new();
    for _ in 0..400 {
        let mut stream = server.raw().await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: we").await.unwrap();
        half_open.push(stream);
    }
    server.serves().await;
    let logs = server.running().logs();
    assert!(logs.contains("fewer connections at a time than connections_max") && logs.contains("now=72"), "{logs}");
    assert!(!logs.contains("cannot accept"), "{logs}");
}

/// Misbehaviour of thousands of clients, one after the other.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Silence,
    HalfAHead,
    HalfAHandshake,
    LargeHead,
    LargeBody,
    SlowBody,
}

impl Wrong {
    /// Number of bytes that each client sends in its head or body.
    fn sent_bytes(self) -> usize {
        match self {
            Self::Silence | Self::HalfAHandshake => 0,
            // Slightly less than would be refused.
            Self::HalfAHead => 30_000,
            Self::LargeHead | Self::LargeBody | Self::SlowBody => 100_000,
        }
    }

    /// Connects and does it. The connection may be open then.
    async fn done(self, server: &Server) -> Option<Stream> {
        let start = match self {
            Self::Silence => return Some(Box::pin(server.raw().await)),
            Self::HalfAHandshake => {
                let mut stream = server.raw().await;
                stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252]).await.ok()?;
                return Some(Box::pin(stream));
            }
            Self::HalfAHead | Self::LargeHead => {
                format!("GET /healthz HTTP/1.1\r\nx: {}", "x".repeat(self.sent_bytes()))
            }
            Self::LargeBody => {
                head(READING[0].0, POPS, &format!("{}content-length: {TEN_MB}\r\n", READING[0].2))
                    + &"x".repeat(self.sent_bytes())
            }
            Self::SlowBody => {
                head(READING[0].0, POPS, &format!("{}content-length: 200000\r\n", READING[0].2))
                    + &"x".repeat(self.sent_bytes())
            }
        };
        let mut stream = server.connect().await;
        // It may be closed half-way.
        let _ = stream.write_all(start.as_bytes()).await;
        let _ = stream.flush().await;
        Some(stream)
    }
}

/// Number of clients at a time.
const WAVE: usize = 100;
/// Connections that weir-sync serves at a time. On a busy machine it may hold what each of them has sent.
const CONNECTIONS: usize = 256;
/// Maximum growth of resident memory from half of the clients to all, beside that.
const GROWTH_KIB: u64 = 16 * 1_024;
/// Maximum growth of resident memory since the start.
const PEAK_KIB: u64 = 64 * 1_024;

// I2
#[tokio::test]
async fn memory_stays_flat_whatever_thousands_of_clients_do_wrong() {
    for server in Server::both(&["--connections-max", &CONNECTIONS.to_string()]) {
        let is_secured = matches!(server, Server::Secured(..));
        let at_start = server.running().memory_kib("VmRSS");
        for wrong in [
            Wrong::Silence,
            Wrong::HalfAHead,
            Wrong::HalfAHandshake,
            Wrong::LargeHead,
            Wrong::LargeBody,
            Wrong::SlowBody,
        ] {
            // A handshake costs the most here, and most of it the client.
            let is_cheap = !is_secured || matches!(wrong, Wrong::Silence | Wrong::HalfAHandshake);
            let waves = if is_cheap { 20 } else { 5 };
            let growth_kib = GROWTH_KIB + (CONNECTIONS * wrong.sent_bytes()) as u64 / 1_024;
            let mut half_way = 0;
            for wave in 0..waves {
                let mut open = Vec::with_capacity(WAVE);
                for _ in 0..WAVE {
                    open.extend(wrong.done(&server).await);
                }
                drop(open);
                if wave == waves / 2 {
                    half_way = server.running().memory_kib("VmRSS");
                }
            }
            server.serves().await;
            let after = server.running().memory_kib("VmRSS");
            println!(
                "{wrong:?}, TLS {is_secured}: {at_start} at the start, {half_way} KiB half-way, {after} after {}",
                waves * WAVE
            );
            assert!(after < half_way + growth_kib, "{wrong:?}: {half_way} KiB, then {after}");
        }
        let peak = server.running().memory_kib("VmHWM");
        println!("TLS {is_secured}: at most {peak} KiB");
        assert!(peak < at_start + PEAK_KIB, "{at_start} KiB at the start, {peak} at most");
    }
}
