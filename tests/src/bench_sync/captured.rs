//! The script call that weir-sync sends for a key, as Redis saw it, sent again by `redis-benchmark`.

use std::future::Future;
use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::pop::RULE;

/// The latest that the store's clock may show, in microseconds, as doubles go.
const FAR: f64 = 9e15;

/// One `EVALSHA` of the charging script.
pub(super) struct Captured {
    redis: SocketAddr,
    /// All but the last, ...
    arguments: Vec<String>,
    /// ... which is not text.
    last: Vec<u8>,
}

/// What `redis-benchmark` reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Benchmarked {
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
        let ((arguments, last), _) = tokio::join!(watch, load);
        Self { redis, arguments, last }
    }

    /// How many arguments the call has.
    pub(super) fn arguments_len(&self) -> usize {
        self.arguments.len() + 1
    }

    /// Sends the call about `scripts` times for random ones of `keys` keys, over so many connections, each with
    /// so many calls under way.
    pub(super) async fn benchmark(
        &self,
        connections: u64,
        under_way: u64,
        keys: u64,
        scripts: f64,
    ) -> Benchmarked {
        let mut command = Command::new("redis-benchmark");
        command.args(["-h", "127.0.0.1", "-p"]).arg(self.redis.port().to_string());
        command.arg("-c").arg(connections.to_string()).arg("-P").arg(under_way.to_string());
        command.arg("-r").arg(keys.to_string()).arg("-n").arg(format!("{scripts:.0}"));
        command.arg("--csv").arg("-x").args(&self.arguments).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = async {
            let mut child = command.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(&self.last).await?;
            }
            child.wait_with_output().await
        };
        let output = run.await;
        let output = output.unwrap_or_else(|e| panic!("no redis-benchmark (Debian: redis-tools): {e}"));
        let text = String::from_utf8_lossy(&output.stdout);
        let per_second = text.lines().rev().find_map(per_second);
        let per_second = per_second.unwrap_or_else(|| panic!("redis-benchmark said: {text}"));
        Benchmarked { scripts, per_second }
    }
}

/// The arguments of a charge in a line of `MONITOR`, with a random number for its key's: all but the last, and the last.
fn charge(line: &str) -> Option<(Vec<String>, Vec<u8>)> {
    let mark = format!("weir:budget:{{{RULE}:");
    // <time> [<database> <client>] "EVALSHA" "<hash>" ...
    let (_, call) = line.split_once("] ")?;
    let mut arguments = quoted(call.trim_end())?;
    let mut last = arguments.pop()?;
    // What the caller knew of the store's clock is soon out of date: nothing is too late here.
    last.get_mut(..8)?.copy_from_slice(&FAR.to_le_bytes());
    let texts: Option<Vec<String>> = arguments.into_iter().map(|text| String::from_utf8(text).ok()).collect();
    let mut texts = texts?;
    let key = texts.get_mut(3).filter(|key| key.starts_with(&mark))?;
    *key = format!("{mark}__rand_int__}}");
    (texts.first()?.as_str() == "EVALSHA").then_some((texts, last))
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

/// The second field of a row, where that is a number.
fn per_second(row: &str) -> Option<f64> {
    row.split("\",\"").nth(1)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_told_from_other_calls() {
        let line = r#"1763738231.000001 [0 127.0.0.1:40000] "EVALSHA" "ab12" "1" "weir:budget:{bench:000000000042}" "bench/x" "\n00\"7\n" "\x00\x01\\345678\xff""#;
        let (arguments, last) = charge(line).expect("a charge");
        let key = "weir:budget:{bench:__rand_int__}";
        assert_eq!(arguments, ["EVALSHA", "ab12", "1", key, "bench/x", "\n00\"7\n"]);
        assert_eq!(last, [&FAR.to_le_bytes()[..], b"8\xff"].concat());
        assert_eq!(charge(&line.replace("weir:budget:{bench", "weir:pops")), None);
        assert_eq!(charge(&line.replace("] \"EVALSHA", " lua] \"GET")), None);
    }
}
