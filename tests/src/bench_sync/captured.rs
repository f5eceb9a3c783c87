//! The script call that weir-sync sends for a key, as Redis saw it, sent again by a client that does nothing else.
//! (`redis-benchmark` cannot: Debian's, of Redis 7.0, ends an argument at its first zero byte.)

use std::future::Future;
use std::net::SocketAddr;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::pop::RULE;
use super::stats::float;

/// The latest that the store's clock may show, in microseconds, as doubles go.
const FAR: f64 = 9e15;
/// Which argument the budget's key is.
const KEY: usize = 3;

/// One `EVALSHA` of the charging script.
pub(super) struct Captured {
    redis: SocketAddr,
    arguments: Vec<Vec<u8>>,
}

/// What the client reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replayed {
    /// Script calls in all.
    pub(super) scripts: f64,
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
                if let Some(arguments) = charge(&line) {
                    drop(lines);
                    return arguments;
                }
            }
        };
        let (arguments, _) = tokio::join!(watch, load);
        Self { redis, arguments }
    }

    /// How many arguments the call has.
    pub(super) fn arguments_len(&self) -> usize {
        self.arguments.len()
    }

    /// Sends the call at least `scripts` times, for each of `keys` keys in turn, over so many connections, each with so
    /// many calls under way. An error of the script ends the benchmark.
    pub(super) async fn replay(&self, connections: u64, under_way: u64, keys: u64, scripts: u64) -> Replayed {
        let mut clients = JoinSet::new();
        let each = scripts.div_ceil(connections * under_way).max(1);
        let start = Instant::now();
        for connection in 0..connections {
            let (redis, call) = (self.redis, self.arguments.clone());
            clients.spawn(async move {
                let client = redis::Client::open(format!("redis://{redis}"));
                let mut client = client?.get_multiplexed_async_connection().await?;
                for round in 0..each {
                    let first = (round * connections + connection) * under_way;
                    pipeline(&call, (first..first + under_way).map(|n| n % keys))
                        .exec_async(&mut client)
                        .await?;
                }
                redis::RedisResult::Ok(())
            });
        }
        for ended in clients.join_all().await {
            ended.unwrap_or_else(|e| panic!("Redis refused a charge that weir-sync had sent: {e}"));
        }
        let sent = float(each * connections * under_way);
        Replayed { scripts: sent, per_second: sent / start.elapsed().as_secs_f64() }
    }
}

/// The call, for each of these keys.
fn pipeline(call: &[Vec<u8>], keys: impl Iterator<Item = u64>) -> redis::Pipeline {
    let mut pipeline = redis::Pipeline::new();
    for key in keys {
        for (place, argument) in call.iter().enumerate() {
            match place {
                0 => pipeline.cmd("EVALSHA"),
                KEY => pipeline.arg(format!("{}{key:012}}}", key_mark())),
                _ => pipeline.arg(argument),
            };
        }
        pipeline.ignore();
    }
    pipeline
}

/// How a budget's key begins, before its twelve digits.
fn key_mark() -> String {
    format!("weir:budget:{{{RULE}:")
}

/// The arguments of a charge in a line of `MONITOR`, from the command's name on.
fn charge(line: &str) -> Option<Vec<Vec<u8>>> {
    // <time> [<database> <client>] "EVALSHA" "<hash>" ...
    let (_, call) = line.split_once("] ")?;
    let mut arguments = quoted(call.trim_end())?;
    // What the caller knew of the store's clock is soon out of date: nothing is too late here.
    arguments.last_mut()?.get_mut(..8)?.copy_from_slice(&FAR.to_le_bytes());
    let is_charge =
        arguments.first()? == b"EVALSHA" && arguments.get(KEY)?.starts_with(key_mark().as_bytes());
    is_charge.then_some(arguments)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_told_from_other_calls() {
        let line = r#"1763738231.000001 [0 127.0.0.1:40000] "EVALSHA" "ab12" "1" "weir:budget:{bench:000000000042}" "bench/x" "\n00\"7\n" "\x00\x01\\345678\xff""#;
        let arguments = charge(line).expect("a charge");
        let last = [&FAR.to_le_bytes()[..], b"8\xff"].concat();
        let key = b"weir:budget:{bench:000000000042}";
        assert_eq!(arguments, [&b"EVALSHA"[..], b"ab12", b"1", key, b"bench/x", b"\n00\"7\n", &last]);
        let sent = pipeline(&arguments, [42, 7].into_iter()).get_packed_pipeline();
        let sent = String::from_utf8_lossy(&sent).into_owned();
        assert!(sent.contains("{bench:000000000042}") && sent.contains("{bench:000000000007}"), "{sent}");
        assert_eq!(charge(&line.replace("weir:budget:{bench", "weir:pops")), None);
        assert_eq!(charge(&line.replace("] \"EVALSHA", " lua] \"GET")), None);
    }
}
