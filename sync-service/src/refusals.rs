//! Log of refused requests. It shows an operator who tries what, and is rate limited, so that nobody can fill
//! the log.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval after which the same refusal is logged again.
const PAUSE: Duration = Duration::from_mins(1);
/// Maximum number of distinct refusals. Others are not logged until there is room.
const REFUSALS_MAX: usize = 1_000;

/// Maximum number of bytes logged of a text that a client chose.
const TOLD_BYTES_MAX: usize = 128;
/// Maximum number of bytes logged of a reason.
const REASON_BYTES_MAX: usize = 1_024;

/// Text chosen by a client, for the log. A long text is cut, and its length appended.
pub fn told(text: &str) -> Cow<'_, str> {
    cut(text, TOLD_BYTES_MAX)
}

fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    let head = text.floor_char_boundary(bytes_max);
    match text.get(..head).filter(|_| head < text.len()) {
        Some(head) => format!("{head}... ({} bytes)", text.len()).into(),
        None => text.into(),
    }
}

/// Refusals of the last minute.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<HashMap<(IpAddr, String), Seen>>);

#[derive(Debug)]
struct Seen {
    logged_at: Instant,
    since: u64,
}

impl Refusals {
    /// Logs that a request of `peer` was refused, at most once a minute for the same reason.
    pub fn log(&self, peer: IpAddr, reason: &str) {
        self.log_at(Instant::now(), peer, cut(reason, REASON_BYTES_MAX).into_owned());
    }

    /// Returns true if the refusal was logged.
    fn log_at(&self, now: Instant, peer: IpAddr, reason: String) -> bool {
        // Nothing that runs under this lock panics. If it did, the map would still be valid.
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |seen: &Seen| now.duration_since(seen.logged_at) < PAUSE;
        if seen.len() >= REFUSALS_MAX {
            seen.retain(|_, seen| is_recent(seen));
        }
        let has_room = seen.len() < REFUSALS_MAX;
        let key = (peer, reason);
        match seen.get_mut(&key) {
            Some(seen) if is_recent(seen) => {
                seen.since += 1;
                return false;
            }
            Some(seen) => {
                tracing::warn!(%peer, times_since = seen.since + 1, "refused again: {}", key.1);
                *seen = Seen { logged_at: now, since: 0 };
            }
            None if has_room => {
                tracing::warn!(%peer, "refused: {}", key.1);
                seen.insert(key, Seen { logged_at: now, since: 0 });
            }
            None => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    // I2
    #[test]
    fn a_flood_of_refusals_is_logged_once_a_minute_and_bounded() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let peer = |n: u32| IpAddr::from(Ipv4Addr::from(n));
        let logged = |at_s: u64, n: u32| {
            refusals.log_at(start + Duration::from_secs(at_s), peer(n), "401 Unauthorized".into())
        };
        assert!(logged(0, 1));
        assert!(!(0..1_000).any(|_| logged(59, 1)), "the same again");
        assert!(logged(60, 1) && !logged(61, 1), "a minute later");
        let others = (2..10_000).filter(|n| logged(61, *n)).count();
        assert_eq!(others, REFUSALS_MAX - 1);
        assert!(logged(130, 10_001), "once the others are old");
        assert!(refusals.0.lock().unwrap().len() < REFUSALS_MAX);
    }
    #[test]
    fn what_a_client_chose_is_cut_between_characters() {
        assert_eq!(told("/v1/report"), "/v1/report");
        assert_eq!(told(&"x".repeat(TOLD_BYTES_MAX)), "x".repeat(TOLD_BYTES_MAX));
        let long = format!("{}{}", "x".repeat(TOLD_BYTES_MAX - 1), "ü".repeat(15_000));
        assert_eq!(told(&long), format!("{}... (30127 bytes)", "x".repeat(TOLD_BYTES_MAX - 1)));
        let refusals = Refusals::default();
        refusals.log(IpAddr::from(Ipv4Addr::LOCALHOST), &long);
        assert!(refusals.0.lock().unwrap().keys().all(|(_, reason)| reason.len() < REASON_BYTES_MAX + 20));
    }
}
