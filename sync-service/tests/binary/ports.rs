//! Limits on clients without a token: they take no seat of a client with one, and little memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prost::Message as _;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use weir_gateway::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir_gateway::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use weir_gateway::proto::envoy::service::ratelimit::v3::RateLimitRequest;

use crate::running::{DEADLINE, Running, until};
use crate::tls::{Secured, Stream, client};

const ADMIN: &str = "the-token-of-operators";
const CHECKS: &str = "the-token-of-checks";
const RULES: &str = "rules: [{name: a, key: [client_address], rate: 1000/s}]\n";
const CHECK: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
/// An empty message, behind its length.
const NOTHING: [u8; 5] = [0; 5];
/// Maximum time to write bytes that the other end does not read.
const WRITING: Duration = Duration::from_secs(4);

/// A connection of HTTP/2, frame by frame.
struct Client {
    stream: Stream,
    next: u32,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

fn text(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

/// The fields of a request, as HPACK has them without a table.
fn head(path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut head = [vec![0x83, 0x86, 0x04], text(path), vec![0x01], text("weir")].concat();
    for (name, value) in fields {
        head.extend([vec![0], text(name), text(value)].concat());
    }
    head
}

impl Client {
    /// One that takes `window` bytes of an answer.
    async fn connect(address: SocketAddr, tls: Option<Arc<ClientConfig>>, window: u32) -> Option<Self> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let raw = socket.connect(address).await.ok()?;
        let mut stream: Stream = match tls {
            None => Box::pin(raw),
            Some(config) => {
                let mut config = ClientConfig::clone(&config);
                config.alpn_protocols = vec![b"h2".to_vec()];
                let name = ServerName::try_from("localhost").unwrap();
                Box::pin(TlsConnector::from(Arc::new(config)).connect(name, raw).await.ok()?)
            }
        };
        let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
        let greeting = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &settings)].concat();
        stream.write_all(&greeting).await.ok()?;
        Some(Self { stream, next: 1 })
    }

    /// A request with this head; its message does not end unless it `is_whole`.
    fn request(&mut self, head: &[u8], message: &[u8], is_whole: bool) -> Vec<u8> {
        let stream = self.next;
        self.next += 2;
        let mut frames = frame(1, 4, stream, head);
        if !message.is_empty() {
            frames.extend(frame(0, u8::from(is_whole), stream, message));
        }
        frames
    }

    /// Sends as much as the other end takes; false if it has closed the connection.
    async fn send(&mut self, bytes: &[u8]) -> bool {
        let sent =
            timeout(WRITING, async { self.stream.write_all(bytes).await.is_ok() && self.stream.flush().await.is_ok() });
        sent.await.unwrap_or(true)
    }

    /// The next frame's kind and payload; `None` at the end of the connection.
    async fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let mut payload = vec![0; usize::from(head[1]) * 256 + usize::from(head[2])];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some((head[3], payload))
    }

    /// Checks with the token; true once that is answered with a message.
    async fn check(&mut self) -> bool {
        let entry = Entry { key: "x-user".into(), value: "ada".into() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
        let asked =
            RateLimitRequest { domain: "shop".into(), descriptors: vec![descriptor], ..RateLimitRequest::default() };
        let mut message = NOTHING.to_vec();
        message[4] = u8::try_from(asked.encoded_len()).unwrap();
        asked.encode(&mut message).unwrap();
        let bearer = format!("Bearer {CHECKS}");
        let asked = self.request(&head(CHECK, &[("authorization", &bearer)]), &message, true);
        if !self.send(&asked).await {
            return false;
        }
        let answered = async {
            while let Some((kind, _)) = self.receive().await {
                if kind == 0 {
                    return true;
                }
            }
            false
        };
        timeout(DEADLINE, answered).await.unwrap_or(false)
    }
}

/// A weir-sync with a gateway, and its port for gRPC.
struct Gateway {
    running: Running,
    grpc: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    /// Folder that has to outlive it.
    _kept: Option<tempfile::TempDir>,
}

impl Gateway {
    fn start(arguments: &[&str], is_secured: bool) -> Self {
        let of_gateway = ["--gateway", "on", "--grpc-listen", "127.0.0.1:0", "--admin-token", ADMIN];
        let arguments = [&of_gateway, arguments].concat();
        let (running, tls, kept) = if is_secured {
            let Secured { running, authority, folder } = Secured::start(&arguments);
            (running, Some(client(&authority, None)), Some(folder))
        } else {
            (Running::start(&arguments), None, None)
        };
        let line = running.next_line();
        let grpc = line.trim().strip_prefix("gRPC on ").expect("an address").parse().unwrap();
        if !is_secured {
            let headers = "content-type: application/yaml\r\nif-none-match: *\r\n";
            assert_eq!(running.ask("PUT /v1/rules", ADMIN, headers, RULES.as_bytes()).0, 201);
            until("the gateway knows its rules", || running.status("GET /readyz", ADMIN) == 200);
        }
        Self { running, grpc, tls, _kept: kept }
    }

    async fn connect(&self, window: u32) -> Option<Client> {
        Client::connect(self.grpc, self.tls.clone(), window).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_tokens_cannot_displace_one_with_a_token() {
    const SEATS: usize = 256;
    let arguments = ["--check-token", CHECKS, "--connections-max", "256"];
    let gateway = Gateway::start(&arguments, false);
    let mut known = gateway.connect(65_535).await.expect("a connection");
    assert!(known.check().await, "before anybody else is there");
    let (address, is_over) = (gateway.grpc, Arc::new(AtomicBool::new(false)));
    let mut attackers = JoinSet::new();
    for _ in 0..SEATS + 40 {
        let is_over = Arc::clone(&is_over);
        attackers.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                // Each always has a request whose message does not come.
                if let Some(mut attacker) = Client::connect(address, None, 65_535).await {
                    let mut asked = attacker.request(&head(HEALTH, &[]), &[], false);
                    while attacker.send(&asked).await && !is_over.load(Ordering::Relaxed) {
                        sleep(Duration::from_secs(2)).await;
                        asked = attacker.request(&head(HEALTH, &[]), &[], false);
                    }
                }
                sleep(Duration::from_millis(500)).await;
            }
        });
    }
    let open = || gateway.running.metric(r#"weir_sync_connections{region="default"}"#);
    let deadline = Instant::now() + 3 * DEADLINE;
    while open() < SEATS as u64 - 10 {
        assert!(Instant::now() < deadline, "only {} seats are taken", open());
        sleep(Duration::from_millis(100)).await;
    }
    for n in 0..20 {
        assert!(known.check().await, "its connection was closed, or check {n} was not answered");
        sleep(Duration::from_millis(100)).await;
    }
    for n in 0..5 {
        let mut newcomer = gateway.connect(65_535).await.expect("a connection");
        assert!(newcomer.check().await, "newcomer {n} was kept out");
    }
    is_over.store(true, Ordering::Relaxed);
    attackers.shutdown().await;
}

/// Misbehaviour of clients without a token on a connection of HTTP/2.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// A field is repeated, for a byte each time, in requests whose messages do not come.
    RepeatedFields,
    /// Heads as large as they may be, of requests whose messages do not come.
    LargeHeads,
    /// Messages of which the end does not come.
    SlowMessages,
    /// No answer is read.
    Unread,
    /// There is no room for an answer's message.
    NoWindow,
    /// Answers that do not end.
    Watches,
}

impl Wrong {
    fn window(self) -> u32 {
        if matches!(self, Self::NoWindow) { 0 } else { 65_535 }
    }

    /// Bytes to send; `is_open` where a check needs no token.
    fn sends(self, client: &mut Client, is_open: bool) -> Vec<u8> {
        let path = if is_open { CHECK } else { HEALTH };
        let mut sent = Vec::new();
        let mut request = |head: &[u8], message: &[u8], is_whole| sent.extend(client.request(head, message, is_whole));
        match self {
            Self::RepeatedFields => {
                let first = [head(path, &[]), vec![0x40], text("x"), text("y")].concat();
                request(&first, &[], false);
                let again = [head(path, &[]), vec![0xbe; 450]].concat();
                for _ in 0..990 {
                    request(&again, &[], false);
                }
            }
            Self::LargeHeads => {
                let value = "y".repeat(100);
                let fields: Vec<_> = (0..50).map(|n| (format!("x{n}"), value.as_str())).collect();
                let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), *value)).collect();
                for _ in 0..990 {
                    request(&head(path, &fields), &[], false);
                }
            }
            Self::SlowMessages => {
                let message = [&[0, 0, 0, 255, 255][..], &[0; 15_000]].concat();
                for _ in 0..60 {
                    request(&head(path, &[]), &message, false);
                }
            }
            Self::Unread | Self::NoWindow => {
                for _ in 0..990 {
                    request(&head(path, &[]), &NOTHING, true);
                }
            }
            Self::Watches => {
                for _ in 0..100 {
                    request(&head(WATCH, &[]), &NOTHING, true);
                }
            }
        }
        sent
    }
}

/// Number of clients at a time.
const CLIENTS: usize = 256;
/// Maximum growth of memory since the start, for all of them.
const PEAK_KIB: u64 = 64 * 1_024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_tokens_use_little_memory_at_the_grpc_port() {
    let all =
        [Wrong::RepeatedFields, Wrong::LargeHeads, Wrong::SlowMessages, Wrong::Unread, Wrong::NoWindow, Wrong::Watches];
    let with_token = ["--connections-max", "256", "--check-token", CHECKS];
    for (arguments, is_secured, all) in [
        (&with_token[..], false, &all[..]),
        (&with_token, true, &[Wrong::RepeatedFields, Wrong::LargeHeads, Wrong::Unread]),
        (&with_token[..2], false, &all),
    ] {
        let gateway = Gateway::start(arguments, is_secured);
        let is_open = arguments.len() == 2;
        let at_start = gateway.running.memory_kib("VmRSS");
        for wrong in all {
            let mut clients = JoinSet::new();
            for _ in 0..CLIENTS {
                let (address, tls, wrong) = (gateway.grpc, gateway.tls.clone(), *wrong);
                clients.spawn(async move {
                    let mut client = Client::connect(address, tls, wrong.window()).await?;
                    let sent = wrong.sends(&mut client, is_open);
                    client.send(&sent).await;
                    Some(client)
                });
            }
            let held = timeout(6 * DEADLINE, clients.join_all()).await.expect("it takes what they send, or closes");
            let peak = gateway.running.memory_kib("VmHWM");
            println!("{wrong:?}, TLS {is_secured}, open {is_open}: {at_start} KiB at the start, at most {peak}");
            assert!(
                peak < at_start + PEAK_KIB,
                "{wrong:?}, TLS {is_secured}, open {is_open}: {at_start} KiB, then {peak}"
            );
            drop(held);
        }
        if !is_secured {
            let mut known = gateway.connect(65_535).await.expect("a connection");
            assert!(known.check().await, "it answers those with a token");
        }
    }
}

#[tokio::test]
async fn memory_stays_low_at_the_address_of_operators_whatever_clients_do() {
    let running = Running::start(&["--ops-listen", "127.0.0.1:0"]);
    let line = running.next_line();
    let address: SocketAddr = line.trim().strip_prefix("pages for operators on ").unwrap().parse().unwrap();
    let at_start = running.memory_kib("VmRSS");
    let half = format!("GET /healthz HTTP/1.1\r\nx: {}", "x".repeat(30_000));
    let pages = "GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(600);
    for sent in ["", &half, &"x".repeat(100_000), &pages] {
        let mut held = Vec::new();
        for _ in 0..CLIENTS {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4_096).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            // It may be closed half-way, or not be read on.
            let _ = timeout(Duration::from_millis(5), stream.write_all(sent.as_bytes())).await;
            held.push(stream);
        }
        let peak = running.memory_kib("VmHWM");
        println!("{} bytes: {at_start} KiB at the start, at most {peak}", sent.len());
        assert!(peak < at_start + PEAK_KIB, "{} bytes: {at_start} KiB at the start, then {peak}", sent.len());
    }
}
