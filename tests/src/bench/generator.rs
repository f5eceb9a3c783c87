//! The load generator: keep-alive connections, one request at a time on each, bounded in count and time.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::bench::cpu::Meter;

/// No load lasts longer.
const LASTS_MAX: Duration = Duration::from_mins(3);
/// After a load, until a worker sleeps and its CPU time is complete.
pub const SETTLES: Duration = Duration::from_millis(3);
/// Requests over each connection that show which worker it belongs to, ...
const PROBES: usize = 40;
/// ... this many times, some time apart: what disturbs the worker meets one of them.
const LOOKS: usize = 3;
/// The longest answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The callers in X-Forwarded-For: addresses `first`, `first + 1` and so on, `count` of
/// them in turn.
#[derive(Debug)]
pub struct Callers {
    first: u32,
    count: u32,
    next: AtomicU32,
}

impl Callers {
    /// `count` addresses from `first` on.
    pub fn new(first: Ipv4Addr, count: u32) -> Arc<Self> {
        Arc::new(Self { first: first.into(), count: count.max(1), next: AtomicU32::new(0) })
    }

    fn next(&self) -> Ipv4Addr {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.count;
        self.first.wrapping_add(turn).into()
    }
}

/// Counts of the answers to some requests.
#[derive(Debug, Default)]
pub struct Answers {
    /// Answers 200.
    pub admitted: u32,
    /// Answers 429.
    pub limited: u32,
    /// Other answers.
    pub others: u32,
    /// Answers over connections that count.
    pub counted: u32,
    /// The wait of each, in microseconds; not in order.
    pub waited_us: Vec<f64>,
}

impl Answers {
    /// An error unless every answer has this status.
    pub fn all(self, status: u16) -> Result<Self, String> {
        let wrong = match status {
            200 => self.limited + self.others,
            429 => self.admitted + self.others,
            _ => self.admitted + self.limited,
        };
        if wrong == 0 {
            return Ok(self);
        }
        Err(format!(
            "{} answers were 200, {} were 429, {} something else; all must be {status}",
            self.admitted, self.limited, self.others
        ))
    }

    fn add(&mut self, status: u16, waited: Duration) {
        match status {
            200 => self.admitted += 1,
            429 => self.limited += 1,
            _ => self.others += 1,
        }
        self.waited_us.push(waited.as_secs_f64() * 1e6);
    }

    fn merge(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.limited += other.limited;
        self.others += other.others;
        self.counted += other.counted;
        self.waited_us.extend(other.waited_us);
    }
}

/// Connections to one listener, kept open from load to load.
#[derive(Debug)]
pub struct Generator {
    address: SocketAddr,
    connections: Vec<Connection>,
}

impl Generator {
    /// Connects.
    pub async fn connect(address: SocketAddr, connections: usize) -> Result<Self, String> {
        let mut open = vec![];
        for _ in 0..connections {
            open.push(Connection::open(address).await.map_err(|e| format!("cannot connect: {e}"))?);
        }
        Ok(Self { address, connections: open })
    }

    /// Sends `requests` from `callers`, as fast as they are answered.
    pub async fn load(&mut self, requests: usize, callers: &Arc<Callers>) -> Result<Answers, String> {
        let busy = self.connections.len();
        self.load_over(busy, requests, callers).await
    }

    /// The same one after the other, over one connection that counts.
    pub async fn alone(&mut self, requests: usize, callers: &Arc<Callers>) -> Result<Answers, String> {
        self.connections.sort_by_key(|connection| !connection.counts);
        self.load_over(1, requests, callers).await
    }

    /// Sends one request from `caller`, and gives the status of its answer.
    pub async fn ask(&mut self, caller: Ipv4Addr) -> Result<u16, String> {
        self.connections.first_mut().ok_or("no connection")?.ask(caller).await
    }

    /// Lets only those connections count over which requests cost `meter` time: those of its thread, the first of the
    /// proxy's two workers. The other one is idle then. An error unless these are about half of all.
    pub async fn count_only(&mut self, meter: &Meter, callers: &Arc<Callers>) -> Result<(), String> {
        let mut used = vec![u64::MAX; self.connections.len()];
        for _ in 0..LOOKS {
            for (connection, used) in self.connections.iter_mut().zip(&mut used) {
                let before = meter.read()?;
                for _ in 0..PROBES {
                    connection.ask(callers.next()).await?;
                }
                tokio::time::sleep(SETTLES).await;
                *used = (*used).min(meter.read()?.saturating_sub(before));
            }
        }
        for (connection, counts) in self.connections.iter_mut().zip(first_of_two(&used)?) {
            connection.counts = counts;
        }
        Ok(())
    }

    async fn load_over(&mut self, busy: usize, requests: usize, callers: &Arc<Callers>) -> Result<Answers, String> {
        let left = Arc::new(AtomicU32::new(u32::try_from(requests).unwrap_or(u32::MAX)));
        let idle = self.connections.split_off(busy.min(self.connections.len()));
        let mut tasks = JoinSet::new();
        for connection in self.connections.drain(..) {
            tasks.spawn(connection.work(Arc::clone(&left), Arc::clone(callers)));
        }
        self.connections = idle;
        let mut answers = Answers::default();
        let all = async {
            while let Some(done) = tasks.join_next().await {
                let (connection, part) =
                    done.map_err(|e| e.to_string())?.map_err(|e| format!("{}: {e}", self.address))?;
                answers.merge(part);
                self.connections.push(connection);
            }
            Ok(answers)
        };
        tokio::time::timeout(LASTS_MAX, all).await.unwrap_or_else(|_| Err("a load took too long".into()))
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
    counts: bool,
}

impl Connection {
    async fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (request, answer) = (Vec::with_capacity(256), Vec::with_capacity(HEAD_BYTES_MAX));
        Ok(Self { stream, request, answer, counts: true })
    }

    async fn work(mut self, left: Arc<AtomicU32>, callers: Arc<Callers>) -> Result<(Self, Answers), String> {
        let mut answers = Answers::default();
        let take = |left: u32| left.checked_sub(1);
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            let asked = Instant::now();
            let status = self.ask(callers.next()).await?;
            answers.add(status, asked.elapsed());
            answers.counted += u32::from(self.counts);
        }
        Ok((self, answers))
    }

    async fn ask(&mut self, caller: Ipv4Addr) -> Result<u16, String> {
        self.request.clear();
        let written = write!(
            self.request,
            "GET /api/items HTTP/1.1\r\nhost: bench\r\nuser-agent: bench\r\nx-api-key: key-of-{caller}\r\n\
             x-forwarded-for: {caller}\r\n\r\n"
        );
        written.map_err(|e| e.to_string())?;
        self.stream.write_all(&self.request).await.map_err(|e| e.to_string())?;
        self.answer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.answer).await.map_err(|e| e.to_string())?;
            if read == 0 || self.answer.len() > HEAD_BYTES_MAX {
                return Err("the proxy closed a connection, or answered at length".into());
            }
            if let Some(status) = complete(&self.answer) {
                return Ok(status);
            }
        }
    }
}

/// The connections of the first of two workers, by the least time that it used for each. The two have as many,
/// so the busier half has its connections. The largest gap separates the halves.
fn first_of_two(used: &[u64]) -> Result<Vec<bool>, String> {
    let mut sorted = used.to_vec();
    sorted.sort_unstable();
    let typical = sorted.get(sorted.len() * 3 / 4).copied().unwrap_or_default();
    let is_first: Vec<bool> = used.iter().map(|used| *used > typical / 2).collect();
    let first = is_first.iter().filter(|is_first| **is_first).count();
    if first.abs_diff(used.len() - first) <= used.len() / 8 {
        return Ok(is_first);
    }
    Err(format!(
        "{first} of {} connections seem to be the first worker's, expected about half; it used, in ns: {used:?}",
        used.len()
    ))
}

/// The status of an answer that is all there: its head, and all of its body.
fn complete(answer: &[u8]) -> Option<u16> {
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&answer[..head]).ok()?;
    let length = text.split("\r\n").find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(Some(0), |length| length.parse().ok())?;
    let status = text.get(9..12)?.parse().ok()?;
    (answer.len() >= head + 4 + length).then_some(status)
}
