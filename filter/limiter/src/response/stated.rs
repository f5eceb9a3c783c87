//! Merging quota headers: a response has one set, even if others have stated a quota in it, such as an upstream, a
//! second Weir, or Envoy's `enable_x_ratelimit_headers`. The strictest status is stated in every form that any of them
//! uses: as `RateLimit`, and as a triple of `-limit`, `-remaining` and `-reset`. Every policy stays in
//! `RateLimit-Policy`. Unreadable statuses are ignored.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Header;

/// Headers that state a quota: those of the drafts, up to 06 as a triple, and `X-RateLimit-*`.
pub(crate) const STATED: [&str; 8] = [
    "ratelimit-policy",
    "ratelimit",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
];
/// Indices of `RateLimit-Policy` and `RateLimit` in [`STATED`].
const POLICY: usize = 0;
const STATUS: usize = 1;
/// Indices at which the triples begin.
const TRIPLES: [usize; 2] = [2, 5];
const UNNAMED: &str = "\"upstream\"";
/// Smallest reset that is taken for a Unix time: no window has this many seconds.
const EPOCH_S_MIN: u64 = 1_000_000_000;

/// A line of a response's header: the header's index in [`STATED`], and the value.
pub type HeaderLine = (usize, Vec<u8>);

pub(super) struct Stated {
    /// Member of `RateLimit`.
    pub(super) member: String,
    pub(super) limit: Option<u64>,
    pub(super) remaining: u64,
    /// Seconds until there are more tokens.
    pub(super) more_s: u64,
    /// Reset of the triple.
    pub(super) reset: String,
}

#[derive(Clone, Copy)]
pub(super) struct Forms {
    /// True for `RateLimit`.
    pub(super) ratelimit: bool,
    /// True for each of [`TRIPLES`] used.
    pub(super) triples: [bool; 2],
}

impl Stated {
    /// True if a smaller fraction of the limit is left than of the other's, or the same and the wait is longer.
    fn is_stricter(&self, other: &Self) -> bool {
        let (limit, others) = self.limit.zip(other.limit).unwrap_or((1, 1));
        let wide = |one: u64, other: u64| u128::from(one) * u128::from(other);
        let (left, others) = (wide(self.remaining, others), wide(other.remaining, limit));
        left < others || left == others && self.more_s > other.more_s
    }

    /// The headers that state this status in these forms, with `policies`.
    pub(super) fn headers<'a>(self, policies: String, forms: Forms) -> Vec<Header<'a>> {
        let mut headers: Vec<Header<'a>> = Vec::with_capacity(STATED.len());
        let mut add = |place: usize, value: String| {
            headers.extend(STATED.get(place).map(|name| (*name, value.into())));
        };
        if !policies.is_empty() {
            add(POLICY, policies);
        }
        if forms.ratelimit {
            add(STATUS, self.member);
        }
        for (at, is_sent) in TRIPLES.into_iter().zip(forms.triples) {
            if !is_sent {
                continue;
            }
            if let Some(limit) = self.limit {
                add(at, limit.to_string());
            }
            add(at + 1, self.remaining.to_string());
            add(at + 2, self.reset.clone());
        }
        headers
    }

    /// Another's status without a name: `remaining` of `limit`, and more in `more_s` seconds.
    fn unnamed(limit: Option<u64>, remaining: u64, more_s: u64, reset: String) -> Self {
        Self { member: format!("{UNNAMED};r={remaining};t={more_s}"), limit, remaining, more_s, reset }
    }
}

/// The headers that replace `lines`, in which others state quotas: the strictest status of `own` and theirs.
/// `reset_of` formats a reset in a number of seconds; `unix_s` is the wall clock.
#[inline(never)]
pub(super) fn merged<'a>(
    (own, ours, mut forms): (Stated, String, Forms),
    lines: &[HeaderLine],
    reset_of: &dyn Fn(u64) -> String,
    unix_s: u64,
) -> Vec<Header<'a>> {
    let mut policies = String::new();
    for policy in all_of(lines, POLICY) {
        // Drafts up to 06 begin with the limit, and have no name.
        if !policy.starts_with(|c: char| c.is_ascii_digit()) {
            add(&mut policies, policy);
        }
    }
    for policy in split(&ours, b',') {
        add(&mut policies, policy);
    }
    let (mut strictest, mut is_unnamed) = (None, false);
    // Without a limit, what remains is compared, so a status may be stricter than `strictest`, but not than `own`.
    let mut consider = |other: Stated, is_without_name| {
        if other.is_stricter(&own) && strictest.as_ref().is_none_or(|known| other.is_stricter(known)) {
            (strictest, is_unnamed) = (Some(other), is_without_name);
        }
    };
    forms.ratelimit |= lines.iter().any(|(place, _)| *place == STATUS);
    for member in all_of(lines, STATUS) {
        let Some(remaining) = parameter(member, "r") else { continue };
        let more_s = parameter(member, "t").unwrap_or(0);
        let mut named = all_of(lines, POLICY).into_iter().filter(|policy| name_of(policy) == name_of(member));
        let limit = named.next().and_then(|policy| parameter(policy, "q"));
        consider(Stated { member: member.into(), limit, remaining, more_s, reset: reset_of(more_s) }, false);
    }
    // Draft 07: `limit=100, remaining=50, reset=30`.
    let of_07 = |name| all_of(lines, STATUS).into_iter().find_map(|pair| value_of(pair, name));
    if let Some(remaining) = of_07("remaining") {
        let more_s = of_07("reset").unwrap_or(0);
        consider(Stated::unnamed(of_07("limit"), remaining, more_s, reset_of(more_s)), true);
    }
    for (at, is_sent) in TRIPLES.into_iter().zip(&mut forms.triples) {
        *is_sent |= lines.iter().any(|(place, _)| (at..at + 3).contains(place));
        for n in 0..lines.len() {
            let Some(remaining) = nth(lines, at + 1, n).and_then(number) else { continue };
            let (limit, reset) = (nth(lines, at, n).and_then(number), nth(lines, at + 2, n).unwrap_or("0"));
            let at_s = number(reset).unwrap_or(0);
            let more_s = if at_s < EPOCH_S_MIN { at_s } else { at_s.saturating_sub(unix_s) };
            consider(Stated::unnamed(limit, remaining, more_s, reset.into()), true);
        }
    }
    let strictest = strictest.unwrap_or(own);
    if let Some(limit) = strictest.limit.filter(|_| is_unnamed) {
        add(&mut policies, &format!("{UNNAMED};q={limit}"));
    }
    strictest.headers(policies, forms)
}

/// Adds a member to a list, unless the list contains it.
fn add(list: &mut String, member: &str) {
    if split(list, b',').contains(&member) {
        return;
    }
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push_str(member);
}

/// The members of all lines of the header at this index (RFC 9651, 3.1).
fn all_of(lines: &[HeaderLine], place: usize) -> Vec<&str> {
    let mut all = Vec::new();
    let mut n = 0;
    while let Some(line) = nth(lines, place, n) {
        all.append(&mut split(line, b','));
        n += 1;
    }
    all
}

/// Line `n` of the header at this index; empty if it is not text.
fn nth(lines: &[HeaderLine], place: usize, n: usize) -> Option<&str> {
    let mut of_place = lines.iter().filter(|(known, _)| *known == place);
    of_place.nth(n).map(|(_, value)| str::from_utf8(value).unwrap_or_default())
}

/// Value of a member, without its parameters.
fn name_of(member: &str) -> &str {
    split(member, b';').first().copied().unwrap_or_default()
}

/// Parameter of a member, if it is a number.
fn parameter(member: &str, name: &str) -> Option<u64> {
    split(member, b';').into_iter().skip(1).find_map(|pair| value_of(pair, name))
}

fn value_of(pair: &str, name: &str) -> Option<u64> {
    number(pair.strip_prefix(name)?.strip_prefix('=')?)
}

/// The number that a text begins with.
fn number(text: &str) -> Option<u64> {
    let text = text.trim_ascii();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.get(..digits)?.parse().ok()
}

/// The parts of `text` between separators outside of its strings, trimmed. Empty parts are left out.
fn split(text: &str, separator: u8) -> Vec<&str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().chain([separator]).enumerate() {
        if at == text.len() || byte == separator && !is_quoted {
            let part = text.get(begin..at).unwrap_or_default().trim_ascii();
            if !part.is_empty() {
                parts.push(part);
            }
            begin = at + 1;
        } else if is_escaped || is_quoted && byte == b'\\' {
            is_escaped = !is_escaped;
        } else if byte == b'"' {
            is_quoted = !is_quoted;
        }
    }
    parts
}
