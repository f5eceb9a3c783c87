//! A script call that weir-sync sends for some keys, as Redis saw it, sent again by a client that does nothing else.
//! (`redis-benchmark` cannot: Debian's, of Redis 7.0, ends an argument at its first zero byte.)

use std::future::Future;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::pop::RULE;
use crate::bench::stats::float;

/// The latest that the store's clock may show, in microseconds, as doubles go.
const FAR: f64 = 9e15;
/// The argument with the number of budgets; their keys follow.
const KEYS_LEN: usize = 2;

/// One `EVALSHA` of the charging script.
pub(super) struct Captured {
    redis: SocketAddr,
    arguments: Vec<Vec<u8>>,
    /// The number of budgets that it charges.
    keys_len: u64,
}

/// The client's results.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replayed {
    /// Charged keys in all.
    pub(super) charges: f64,
    /// And each second.
    pub(super) per_second: f64,
}

impl Captured {
    /// The first charge that Redis sees while `load` runs.
    pub(super) async fn charge<T>(redis: SocketAddr, load: impl Future<Output = T>) -> Self {
        let stream = TcpStream::connect(redis).await.unwrap_or_else(|e| panic!("no Redis: {e}"));
        let mut lines = BufReader::new(stream);
        let sent = lines.get_mut().write_all(b"MONITOR\r\n").await;
        sent.unwrap_or_else(|e| panic!("Redis is gone: {e}"));
        let watch = async {
            let mut line = String::new();
            loop {
                line.clear();
                let read = lines.read_line(&mut line).await;
                assert!(read.is_ok_and(|bytes| bytes > 0), "Redis was asked for no charge");
                if let Some(charge) = charge(&line) {
                    drop(lines);
                    return charge;
                }
            }
        };
        let ((arguments, keys_len), _) = tokio::join!(watch, load);
        Self { redis, arguments, keys_len }
    }

    /// The number of the call's arguments.
    pub(super) fn arguments_len(&self) -> usize {
        self.arguments.len()
    }

    /// The number of keys that it charges.
    pub(super) fn keys_len(&self) -> u64 {
        self.keys_len
    }

    /// Sends the call until it has charged this often, `keys` keys in turn, over the connections, each with calls
    /// under way that charge the given number. An error of the script ends the benchmark.
    pub(super) async fn replay(&self, connections: u64, under_way: u64, keys: u64, charges: u64) -> Replayed {
        let mut clients = JoinSet::new();
        let keys_len = self.keys_len;
        let under_way = under_way.next_multiple_of(keys_len);
        let each = charges.div_ceil(connections * under_way).max(1);
        let start = Instant::now();
        for connection in 0..connections {
            let (redis, call) = (self.redis, self.arguments.clone());
            clients.spawn(async move {
                let client = redis::Client::open(format!("redis://{redis}"));
                let mut client = client?.get_multiplexed_async_connection().await?;
                for round in 0..each {
                    let first = (round * connections + connection) * under_way;
                    pipeline(&call, keys_len, first..first + under_way, keys).exec_async(&mut client).await?;
                }
                redis::RedisResult::Ok(())
            });
        }
        for ended in clients.join_all().await {
            ended.unwrap_or_else(|e| panic!("Redis refused a charge that weir-sync had sent: {e}"));
        }
        let sent = float(each * connections * under_way);
        Replayed { charges: sent, per_second: sent / start.elapsed().as_secs_f64() }
    }
}

/// The call, for each `keys_len` of these numbers of `keys` keys.
fn pipeline(call: &[Vec<u8>], keys_len: u64, numbers: Range<u64>, keys: u64) -> redis::Pipeline {
    let mut pipeline = redis::Pipeline::new();
    let mut numbers = numbers.peekable();
    while numbers.peek().is_some() {
        pipeline.cmd("EVALSHA");
        let (head, rest) = call.split_at(KEYS_LEN + 1);
        for argument in head.iter().skip(1) {
            pipeline.arg(argument);
        }
        for number in numbers.by_ref().take(usize::try_from(keys_len).unwrap_or(usize::MAX)) {
            pipeline.arg(format!("{}{:012}}}", key_mark(), number % keys));
        }
        for argument in rest.iter().skip(usize::try_from(keys_len).unwrap_or(usize::MAX)) {
            pipeline.arg(argument);
        }
        pipeline.ignore();
    }
    pipeline
}

/// The beginning of a budget's key, before its twelve digits.
fn key_mark() -> String {
    format!("weir:budget:{{{RULE}:")
}

/// The arguments of a charge in a line of `MONITOR`, from the command's name on, and how many budgets it charges.
fn charge(line: &str) -> Option<(Vec<Vec<u8>>, u64)> {
    // <time> [<database> <client>] "EVALSHA" "<hash>" ...
    let (_, call) = line.split_once("] ")?;
    let mut arguments = quoted(call.trim_end())?;
    // What the caller knew of the store's clock is soon out of date: nothing is too late here.
    arguments.last_mut()?.get_mut(..8)?.copy_from_slice(&FAR.to_le_bytes());
    let is_charge = arguments.first()? == b"EVALSHA" && arguments.get(KEYS_LEN + 1)?.starts_with(key_mark().as_bytes());
    let keys_len = str::from_utf8(arguments.get(KEYS_LEN)?).ok()?.parse().ok()?;
    is_charge.then_some((arguments, keys_len))
}

/// The texts in quotes, as Redis writes them: `"a\x00\n" "b"`.
fn quoted(line: &str) -> Option<Vec<Vec<u8>>> {
    let (mut texts, mut text, mut is_inside) = (Vec::new(), Vec::new(), false);
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if is_inside => {
                texts.push(std::mem::take(&mut text));
                is_inside = false;
            }
            b'"' => is_inside = true,
            b'\\' => text.push(match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'a' => 7,
                b'b' => 8,
                b'x' => {
                    let digits = [bytes.next()?, bytes.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                other => other,
            }),
            byte if is_inside => text.push(byte),
            _ => {}
        }
    }
    Some(texts)
}
