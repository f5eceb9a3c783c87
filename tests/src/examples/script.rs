//! Requests and what becomes of them, as they are written in docs/rules.md.
//!
//! ```text
//! POST /login from 192.0.2.1 [host a.example] [x-api-key: abc] at 1.5s x 6 -> 5 allow, 1 limit by login
//!   retry-after: 12
//! GET / from 192.0.2.1 answered 401 [x-tokens: 7] with 2000 bytes -> 1 allow
//! 2 requests end at 3s
//! out of touch with weir-sync
//! ```
//!
//! In brackets stand a request's headers, and `[host NAME]`, `[route NAME]` and `[claim payload.sub VALUE]`, or an
//! answer's headers, and `[metadata llm.total_tokens VALUE]`. Outcomes are in order: `5 allow, 1 limit` are five,
//! and then one. A time is counted from the first line's and holds until the next one. An indented line is about
//! the line before it: `held: 0s, 0.1s`, for how long requests let through were held; `would be limited: 3`, by
//! rules in shadow; else of its last answer `status`, `body` or a header.

use std::time::Duration;

use weir_limiter::check::DecisionKind;

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// Requests, one after the other in the same moment.
    Requests(Box<Requests>),
    /// This number of the oldest requests in flight end.
    End(usize),
    /// From now on weir-sync answers, or does not.
    InTouch(bool),
}

/// A line, where it stands, and when it happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// As it is written.
    pub text: String,
    /// Since the first line, if it has a time.
    pub at: Option<Duration>,
    /// The event.
    pub line: Line,
    /// Its indented lines: a name, and a value.
    pub details: Vec<(String, String)>,
}

/// Requests that are alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// The method.
    pub method: String,
    /// The path with its query.
    pub target: String,
    /// The client's address.
    pub address: Option<String>,
    /// The headers, `host`, `route` and claims (`claim payload.sub`) of the request.
    pub asks: Vec<(String, String)>,
    /// The upstream's response.
    pub answer: Upstream,
    /// Their number.
    pub times: usize,
    /// Their expected outcomes, in order.
    pub outcomes: Vec<Expected>,
}

/// A response of the upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Its status.
    pub status: u16,
    /// Its headers, and metadata (`metadata llm.total_tokens`).
    pub headers: Vec<(String, String)>,
    /// The length of its body in bytes.
    pub bytes: u64,
}

impl Default for Upstream {
    fn default() -> Self {
        Self { status: 200, headers: Vec::new(), bytes: 0 }
    }
}

/// So many requests with this outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Their number.
    pub times: usize,
    /// Which.
    pub outcome: DecisionKind,
    /// The rule that makes it, if it is named.
    pub by: Option<String>,
}

/// Reads a block; an error names the line.
pub fn parse(block: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    for text in block.lines().filter(|line| !line.trim().is_empty()) {
        let wrong = |why: &str| format!("{text}: {why}");
        if text.starts_with(' ') {
            let (name, value) = text.trim().split_once(':').ok_or_else(|| wrong("expected NAME: VALUE"))?;
            let last = steps.last_mut().ok_or_else(|| wrong("nothing stands before it"))?;
            last.details.push((name.to_owned(), value.trim().to_owned()));
        } else {
            let (at, line) = line(text).map_err(|why| wrong(&why))?;
            steps.push(Step { text: text.to_owned(), at, line, details: Vec::new() });
        }
    }
    Ok(steps)
}

fn line(text: &str) -> Result<(Option<Duration>, Line), String> {
    match text {
        "in touch with weir-sync" => return Ok((None, Line::InTouch(true))),
        "out of touch with weir-sync" => return Ok((None, Line::InTouch(false))),
        _ => {}
    }
    if let Some((count, rest)) = text.split_once(" requests end").or_else(|| text.split_once(" request ends")) {
        let at = rest.trim().strip_prefix("at ").map(duration).transpose()?;
        return Ok((at, Line::End(number(count)?)));
    }
    let (asked, outcomes) = text.split_once(" -> ").ok_or("expected -> and what becomes of it")?;
    let outcomes = outcomes.split(", ").map(expected).collect::<Result<_, _>>()?;
    let mut words = Words(asked);
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut requests = Requests { method, target, times: 1, outcomes, ..Requests::default() };
    let (mut at, mut is_answer) = (None, false);
    while !words.0.is_empty() {
        match words.next()? {
            "from" => requests.address = Some(words.next()?.to_owned()),
            "at" => at = Some(duration(words.next()?)?),
            "x" => requests.times = number(words.next()?)?,
            "answered" => {
                is_answer = true;
                requests.answer.status = words.next()?.parse().map_err(|_| "expected a status")?;
            }
            "with" => {
                requests.answer.bytes = words.next()?.parse().map_err(|_| "expected a number of bytes")?;
                words.next()?;
            }
            bracketed => {
                let pair = pair(bracketed)?;
                if is_answer { requests.answer.headers.push(pair) } else { requests.asks.push(pair) }
            }
        }
    }
    Ok((at, Line::Requests(Box::new(requests))))
}

/// Words between spaces; what stands in brackets is one.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        let end = if self.0.starts_with('[') {
            self.0.find(']').ok_or("expected ]")? + 1
        } else {
            self.0.find(' ').unwrap_or(self.0.len())
        };
        let (word, rest) = self.0.split_at(end);
        self.0 = rest.trim_start();
        if word.is_empty() { Err("expected more".to_owned()) } else { Ok(word) }
    }
}

fn pair(bracketed: &str) -> Result<(String, String), String> {
    let inner = bracketed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.ok_or_else(|| format!("expected no {bracketed}"))?;
    let found = if let Some(path) = inner.strip_prefix("claim ").or(inner.strip_prefix("metadata ")) {
        // Its value may have spaces.
        let at = path.find(' ').map(|at| inner.len() - path.len() + at);
        at.map(|at| (&inner[..at], &inner[at + 1..]))
    } else if inner.starts_with("host ") || inner.starts_with("route ") {
        inner.split_once(' ')
    } else {
        inner.split_once(':')
    };
    let (name, value) = found.ok_or_else(|| format!("expected [NAME: VALUE], found {bracketed}"))?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

fn expected(text: &str) -> Result<Expected, String> {
    let (count, by) = match text.split_once(" by ") {
        Some((count, by)) => (count, Some(by.to_owned())),
        None => (text, None),
    };
    let (times, outcome) = count.split_once(' ').ok_or("expected a number and an outcome")?;
    let outcome = match outcome {
        "allow" => DecisionKind::Allow,
        "limit" => DecisionKind::Limit,
        "deny" => DecisionKind::Deny,
        "block" => DecisionKind::Block,
        other => return Err(format!("expected allow, limit, deny or block, found {other}")),
    };
    Ok(Expected { times: number(times)?, outcome, by })
}

fn number(text: &str) -> Result<usize, String> {
    text.trim().parse().map_err(|_| format!("expected a number, found {text}"))
}

/// A time: `1.5s`, `10m`, `2h`, `1d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds: f64 = match text.get(digits.len()..) {
        Some("s") => 1.0,
        Some("m") => 60.0,
        Some("h") => 3_600.0,
        Some("d") => 86_400.0,
        _ => return Err(format!("expected a time, as in 1.5s, found {text}")),
    };
    let count: f64 = digits.parse().map_err(|_| format!("expected a time, found {text}"))?;
    Duration::try_from_secs_f64(count * seconds).map_err(|e| format!("{text}: {e}"))
}
