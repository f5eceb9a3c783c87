//! The script call that weir-sync sends for a key, as Redis saw it, sent again by `redis-benchmark`.

use std::future::Future;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::pop::RULE;

/// One `EVALSHA` of the charging script.
pub(super) struct Captured {
    redis: SocketAddr,
    arguments: Vec<String>,
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
        let (arguments, _) = tokio::join!(watch, load);
        Self { redis, arguments }
    }

    /// How many arguments the call has.
    pub(super) fn arguments_len(&self) -> usize {
        self.arguments.len()
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
        command.arg("--csv").args(&self.arguments).kill_on_drop(true);
        let output = command.output().await;
        let output = output.unwrap_or_else(|e| panic!("no redis-benchmark (Debian: redis-tools): {e}"));
        let text = String::from_utf8_lossy(&output.stdout);
        let per_second = text.lines().rev().find_map(per_second);
        let per_second = per_second.unwrap_or_else(|| panic!("redis-benchmark said: {text}"));
        Benchmarked { scripts, per_second }
    }
}

/// The arguments of a charge in a line of `MONITOR`, with a random number for its key's.
fn charge(line: &str) -> Option<Vec<String>> {
    let mark = format!("weir:{{{RULE}:");
    // <time> [<database> <client>] "EVALSHA" "<hash>" ...; none of a charge's arguments holds a quote.
    let (_, call) = line.split_once("] \"")?;
    let mut arguments: Vec<String> =
        call.trim_end().trim_end_matches('"').split("\" \"").map(String::from).collect();
    let key = arguments.get_mut(3).filter(|key| key.starts_with(&mark))?;
    *key = format!("{mark}__rand_int__}}");
    (arguments.first()?.as_str() == "EVALSHA").then_some(arguments)
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
        let line = r#"1763738231.000001 [0 127.0.0.1:40000] "EVALSHA" "ab12" "1" "weir:{bench:000000000042}" "bench/x" "7""#;
        let arguments = charge(line).expect("a charge");
        assert_eq!(arguments, ["EVALSHA", "ab12", "1", "weir:{bench:__rand_int__}", "bench/x", "7"]);
        assert_eq!(charge(&line.replace("weir:{bench", "weir:pops")), None);
        assert_eq!(charge(&line.replace("] \"EVALSHA", " lua] \"HMGET")), None);
    }
}
